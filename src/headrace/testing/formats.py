"""What every format does: messages become change rows and back, and what is lost is what the format declares."""

from __future__ import annotations

import datetime as dt
import pickle
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.changes import TableSchema
from headrace.changes.row import arrow_schema
from headrace.errors import OptionError
from headrace.formats.codec import KAFKA, MESSAGES, ArrowFormat, ArrowLookup, Codec, Facts, run_codec
from headrace.testing.contract import Contract
from headrace.testing.every_change import CHANGES, TABLE, TIME, expected, row_meaning

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Row = Mapping[str, Any]
VALUES = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=20).map(str.encode))


def change_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Change rows with map images, from dictionaries of their columns."""
    schema = arrow_schema()
    maps = [field.name for field in schema if pa.types.is_map(field.type)]
    lines = [{**row, **{n: list(row[n].items()) for n in maps if row.get(n) is not None}} for row in rows]
    return pa.RecordBatch.from_pylist(lines, schema)


def run_whole(codec: Codec, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """All that a codec gives for these batches, checked against its schema."""
    output = list(run_codec(codec, batches))
    for part in output:
        assert part.schema.equals(codec.schema)
        part.validate(full=True)
    return pa.Table.from_batches(output, codec.schema)


def encoded(format: ArrowFormat, batches: Sequence[pa.RecordBatch], tables: Sequence[TableSchema]) -> pa.Table:
    """The messages of change rows, as the tasks of a batch make them."""
    facts = format.prepare_encoding(Facts(tuple(tables)))
    known = [
        batch.append_column("has_types", pa.array([bool(tables)] * batch.num_rows, pa.bool_())) for batch in batches
    ]
    return run_whole(format.encoder(facts), known)


def decoded(format: ArrowFormat, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The change rows of messages, with columns of `KAFKA`."""
    return run_whole(format.decoder(format.prepare_decoding(ArrowLookup(batches))), batches)


def as_kafka(messages: Sequence[Row]) -> pa.RecordBatch:
    """Encoded messages as Kafka gives them back, from one partition."""
    lines = [
        {
            **{name: line[name] for name in ("topic", "key", "value", "headers")},
            "partition": 0,
            "offset": number,
            "timestamp": TIME,
        }
        for number, line in enumerate(messages)
    ]
    return pa.RecordBatch.from_pylist(lines, KAFKA)


class FormatContract(Contract):
    """The suite of a format that reads and writes. It needs no Spark. A subclass gives one hook."""

    unreadable: ClassVar[bytes] = b"\x00\xff{"
    """The value of a message that is not of this format."""

    @abstractmethod
    def format(self) -> ArrowFormat:
        """The format, with options by which it loses as little as it can."""

    def test_what_was_written_is_read_again_but_for_what_the_format_does_not_say(self) -> None:
        format = self.format()
        kept = format.reads & format.writes
        rows = [_plain(row) for row in decoded(format, [as_kafka(self._messages())]).to_pylist()]
        assert [row["error"] for row in rows if row["op"] == "error"] == []
        meanings = Counter(row_meaning(row, kept) for row in rows if row["op"] not in ("schema", None))
        assert meanings == expected(kept)

    def test_messages_have_topics_and_follow_the_order_of_changes(self) -> None:
        messages = self._messages()
        assert all(message["topic"] for message in messages)
        positions = [message["position"] for message in messages]
        assert positions == sorted(positions)

    def test_the_cut_into_batches_changes_nothing(self) -> None:
        format, changes = self.format(), change_batch([_SCHEMA_ROW, *CHANGES])
        rows = [changes.slice(number, 1) for number in range(changes.num_rows)]
        messages = encoded(format, rows, [TABLE])
        assert messages.equals(encoded(format, [changes], [TABLE]))
        batch = as_kafka(messages.to_pylist())
        single = [batch.slice(number, 1) for number in range(batch.num_rows)]
        assert decoded(format, single).to_pylist() == decoded(format, [batch]).to_pylist()

    def test_the_rows_alone_decide_the_bytes(self) -> None:
        assert self._messages() == self._messages()

    def test_positions_of_rows_follow_the_order_of_messages(self) -> None:
        rows = decoded(self.format(), [as_kafka(self._messages())]).to_pylist()
        positions = [row["position"] for row in rows if row["op"] is not None]
        assert positions == sorted(positions)
        assert {row["message"]["offset"] for row in rows} == set(range(len(self._messages())))

    def test_a_message_that_cannot_be_read_is_an_error_row_that_keeps_it_whole(self) -> None:
        good = self._messages()
        bad = {**good[0], "key": b"key", "value": self.unreadable}
        batch = as_kafka([*good, bad])
        rows = decoded(self.format(), [batch]).to_pylist()
        assert [row for row in rows if row["op"] == "error"] == [
            row for row in rows if row["message"]["offset"] == len(good)
        ]
        [error] = [row for row in rows if row["op"] == "error"]
        assert error["error"]
        assert error["message"] == batch.slice(len(good), 1).to_pylist()[0]

    @settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.differing_executors])
    @given(values=st.lists(VALUES, max_size=4))
    def test_no_message_stops_the_others(self, values: list[bytes | None]) -> None:
        good = self._messages()
        batch = as_kafka([*good, *({**good[0], "value": value} for value in values), *good])
        rows = decoded(self.format(), [batch]).to_pylist()
        assert {row["message"]["offset"] for row in rows} == set(range(batch.num_rows))
        between = range(len(good), len(good) + len(values))
        others = [_facts(row) for row in rows if row["message"]["offset"] not in between]
        assert others == [_facts(row) for row in decoded(self.format(), [as_kafka([*good, *good])]).to_pylist()]

    def test_an_error_row_gives_no_message(self) -> None:
        error = {**dict.fromkeys(arrow_schema().names), "op": "error", "error": "why", "position": "1//"}
        assert encoded(self.format(), [change_batch([error])], [TABLE]).num_rows == 0

    def test_it_can_be_sent_to_executors(self) -> None:
        format = self.format()
        copy = pickle.loads(pickle.dumps(format))
        changes = change_batch([_SCHEMA_ROW, *CHANGES])
        assert encoded(copy, [changes], [TABLE]).equals(encoded(format, [changes], [TABLE]))

    def test_options_that_it_does_not_have_are_refused(self) -> None:
        with pytest.raises(OptionError, match="no_such_option"):
            type(self.format()).of({"no_such_option": "1"})

    def _messages(self) -> list[dict[str, Any]]:
        messages = encoded(self.format(), [change_batch([_SCHEMA_ROW, *CHANGES])], [TABLE])
        assert messages.schema.equals(MESSAGES)
        listed: list[dict[str, Any]] = messages.to_pylist()
        return listed


_SCHEMA_ROW = {
    "op": "schema",
    "table": {"database": "shop", "schema": "dbo", "name": "orders"},
    "position": f"{0:020}//",
    "event_time": TIME,
    "capture_time": TIME,
    "source": {"connector": "mysql"},
    "schema_id": TABLE.fingerprint,
    "table_schema": TABLE.to_text(),
}


def _plain(row: Row) -> dict[str, Any]:
    """A row with its maps as dictionaries, and its time in microseconds."""
    time = row["event_time"]
    maps = {name: None if row[name] is None else dict(row[name]) for name in ("key", "before", "after", "source")}
    return {**row, **maps, "event_micros": None if time is None else (time - EPOCH) // dt.timedelta(microseconds=1)}


def _facts(row: Row) -> dict[str, Any]:
    """What a row says but for where it came from."""
    return {name: value for name, value in row.items() if name not in ("message", "position")}
