"""The laws of codecs, which need no Spark: what one gives depends on its facts and its input in order only.

Neither on how the input is cut into batches, nor on whether kernels are compiled.
"""

from __future__ import annotations

import atexit
import datetime as dt
import functools
import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from codec_rows import as_kafka, change_batch, events_of, sent
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import registry_of, samples_of
from tests.smoke import examples

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.formats.codec import KAFKA, MESSAGES, ArrowFormat, Codec, CountingEncoder, Facts, run_codec, with_lists
from headrace.formats.convert import format_named
from headrace.formats.encoding import OutOfRange
from headrace.formats.kernels import compile_all
from headrace.wire.compiled import CACHE_VARIABLE
from headrace_emulators.schema_registry.server import SchemaRegistryServer

FORMATS = [
    "canal_json", "dts_avro", "maxwell_json", "ogg_json", "shareplex_json", "debezium_json", "debezium_avro",
    "qlik_json", "qlik_avro",
]  # fmt: skip
DATA = pa.array(["r", "c", "u", "d", "t"])
ENCODING = FORMATS


def messages_of(format: str) -> pa.RecordBatch:
    """The samples of a format, twice, in two partitions."""
    samples = [sample.message for sample in samples_of(format)]
    rows = [
        dict(zip(KAFKA.names, ("t", number % 2, number, None, *sample[4:6], None), strict=True))
        for number, sample in enumerate([*samples, *samples])
    ]
    return pa.RecordBatch.from_pylist(rows, KAFKA)


@functools.cache
def registry_url(format: str) -> str:
    """A server that has the schemas of a format's samples, and takes more."""
    server = SchemaRegistryServer()
    server.start()
    atexit.register(server.stop)
    for id, schema in (registry_of(format) or {}).items():
        server.store.put(id, schema)
    return server.url


def options_of(format: str) -> dict[str, Any]:
    """What a format can't go both ways without."""
    own = {
        "debezium_json": {"topic_prefix": "s", "schemas_enable": True},
        "debezium_avro": {"topic_prefix": "s", "registry": registry_url(format)},
        "qlik_avro": {"registry": registry_url(format), "envelope": True},
    }
    return own.get(format, {})


def arrow_format(name: str) -> ArrowFormat:
    found = format_named(name, options_of(name))
    assert isinstance(found, ArrowFormat)
    return found


def rows_of(codec: Codec, batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    found = list(run_codec(codec, batches))
    for batch in found:
        assert batch.schema.equals(codec.schema)
        batch.validate(full=True)
    return [row for batch in found for row in batch.to_pylist()]


def facts_of(rows: list[dict[str, Any]]) -> Facts:
    structures = (TableSchema.from_text(row["table_schema"]) for row in rows if row["table_schema"])
    return Facts(tables=tuple({schema.fingerprint: schema for schema in structures}.values()))


def cut(batch: pa.RecordBatch, cuts: list[int]) -> list[pa.RecordBatch]:
    ends = sorted({0, batch.num_rows, *(at % (batch.num_rows + 1) for at in cuts)})
    return [batch.slice(start, end - start) for start, end in itertools.pairwise(ends)]


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=examples(20), deadline=None)
@given(cuts=st.lists(st.integers(0, 1000), max_size=6))
def test_cutting_the_input_otherwise_changes_nothing(format: str, cuts: list[int]) -> None:
    codecs = arrow_format(format)
    messages = messages_of(format)
    rows = rows_of(codecs.decoder(Facts()), [messages])
    assert rows_of(codecs.decoder(Facts()), cut(messages, cuts)) == rows
    assert [row["message"]["offset"] for row in rows] == sorted(row["message"]["offset"] for row in rows)
    if format not in ENCODING:
        return
    changes, facts = changes_of(format)
    sent = rows_of(codecs.encoder(facts), [changes])
    assert rows_of(codecs.encoder(facts), cut(changes, cuts)) == sent


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_input_gives_nothing(format: str) -> None:
    codecs = arrow_format(format)
    assert rows_of(codecs.decoder(Facts()), [messages_of(format).slice(0, 0)]) == []
    if format in ENCODING:
        assert codecs.encoder(Facts()).schema == MESSAGES


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("value", [None, b""])
def test_a_batch_without_a_byte_is_read(format: str, value: bytes | None) -> None:
    batch = pa.RecordBatch.from_pylist([{"topic": "t", "partition": 0, "offset": 7, "value": value}] * 3, KAFKA)
    wanted = "tombstone" if value is None else "error"
    assert [row["op"] for row in rows_of(arrow_format(format).decoder(Facts()), [batch])] == [wanted] * 3


@pytest.mark.parametrize("format", FORMATS)
def test_a_format_can_be_sent_to_executors(format: str) -> None:
    there = pickle.loads(pickle.dumps(arrow_format(format)))
    here = rows_of(arrow_format(format).decoder(Facts()), [messages_of(format)])
    assert rows_of(there.decoder(Facts()), [messages_of(format)]) == here


@pytest.mark.smoke("debezium_json", "qlik_avro")
@pytest.mark.parametrize("format", FORMATS)
def test_without_numba_the_rows_are_the_same(format: str) -> None:
    here = rows_of(arrow_format(format).decoder(Facts()), [messages_of(format)])
    program = (
        "import sys; sys.modules['numba'] = None; sys.path.insert(0, sys.argv[1])\n"
        "from test_codec import *\n"
        "print(repr(rows_of(arrow_format(sys.argv[2]).decoder(Facts()), [messages_of(sys.argv[2])])))"
    )
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", program, folder, format], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == repr(here), done.stderr[-2000:]


def test_what_setup_compiles_is_read_and_written_without_an_error() -> None:
    compile_all()


@pytest.mark.soak
def test_what_setup_compiles_is_all_that_messages_need(tmp_path: Path) -> None:
    """In a folder of kernels of its own: the samples leave no file there that was not made before."""
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from headrace.formats.kernels import compile_all\n"
        "compile_all()\n"
        "made = set(Path(sys.argv[2]).rglob('*.kernel'))\n"
        "from test_codec import *\n"
        "for name in FORMATS: rows_of(arrow_format(name).decoder(Facts()), [messages_of(name)])\n"
        "print(sorted(p.name for p in set(Path(sys.argv[2]).rglob('*.kernel')) - made))"
    )
    arguments = [sys.executable, "-c", program, str(Path(__file__).parent), str(tmp_path)]
    environment = {**os.environ, CACHE_VARIABLE: str(tmp_path)}
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == "[]", done.stderr[-2000:]


class Late(Codec):
    """Gives a batch without rows for each that it is fed, and all messages at the end."""

    schema = MESSAGES
    held = 0

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.held += batch.num_rows
        self.out_of_range = self.out_of_range.plus(OutOfRange({(TableId("d", "s", "t"), "c"): 1}, f"row {self.held}"))
        yield pa.RecordBatch.from_pylist([], MESSAGES)

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"topic": str(number)} for number in range(self.held)], MESSAGES)


def test_counts_beside_messages_leave_none_of_them_out() -> None:
    rows = pa.RecordBatch.from_pylist([{"a": 1}, {"a": 2}, {"a": 3}])
    found = rows_of(CountingEncoder(Late()), [rows.slice(0, 2), rows.slice(2)])
    assert [row["topic"] for row in found] == ["0", "1", "2"]
    assert [row["lost"] for row in found] == ['[[["d", "s", "t", "c", 2]], "row 2"]', None, None]


@pytest.mark.parametrize("format", ["debezium_json", "debezium_avro"])
def test_a_batch_of_which_all_is_skipped_is_no_error_where_values_are_counted(format: str) -> None:
    table = TableSchema(
        TableId("db", "s", "t"),
        (Column("ID", 1, LogicalType("int32")), Column("AT", 2, LogicalType("timestamp", 7))),
        ("ID",),
    )
    # A changed key is told as a delete and a create.
    moved = {
        "op": "u", "table": {"database": "db", "schema": "s", "name": "t"}, "key": {"ID": "2"}, "position": "1",
        "before": {"ID": "1", "AT": None}, "after": {"ID": "2", "AT": None}, "schema_id": table.fingerprint,
        "source": {"connector": "sqlserver"}, "event_time": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    }  # fmt: skip
    skipping = {"skipped.operations": "c,d", "event.converting.failure.handling.mode": "warn"}
    codecs = format_named(format, {**options_of(format), **skipping})
    assert isinstance(codecs, ArrowFormat)
    encoder = codecs.encoder(codecs.prepare_encoding(Facts((table,))))
    assert encoder.may_lose
    changes = change_batch([moved]).append_column("has_types", pa.array([True]))
    assert rows_of(CountingEncoder(encoder), [changes]) == []


def changes_of(format: str) -> tuple[pa.RecordBatch, Facts]:
    """The samples of a format as an encoder takes them, and what the driver says of them."""
    (decoded,) = run_codec(arrow_format(format).decoder(Facts()), [messages_of(format)])
    facts = facts_of(decoded.to_pylist())
    if format in ("debezium_json", "qlik_json"):
        # Their encoders write no row that follows no structure; in Spark, one is found for those that name none.
        named = pc.or_(decoded.column("schema_id").is_valid(), pc.invert(pc.is_in(decoded.column("op"), DATA)))
        decoded = decoded.filter(named)
    return decoded.append_column("has_types", decoded.column("schema_id").is_valid()), facts


def hidden(column: pa.Array, present: pa.Array) -> pa.Array:
    """A struct, map or list column whose rows are null here and there, though its children hold values there."""
    if isinstance(column, pa.StructArray):
        mask = pc.invert(pc.and_(present, column.is_valid()))
        return pa.StructArray.from_arrays(column.flatten(), fields=list(column.type), mask=mask)
    return pc.if_else(present, column, pa.scalar(None, column.type))


@pytest.mark.parametrize("format", ENCODING)
def test_what_stands_under_a_null_is_not_written(format: str) -> None:
    changes, facts = changes_of(format)
    present = pa.array([number % 3 != 0 for number in range(changes.num_rows)])
    columns = dict(zip(changes.schema.names, changes.columns, strict=True))
    columns["transaction"] = hidden(columns["transaction"], present)
    over_values = pa.RecordBatch.from_pydict(columns, schema=changes.schema)
    plain = pa.RecordBatch.from_pylist(over_values.to_pylist(), changes.schema)
    codecs = arrow_format(format)
    assert rows_of(codecs.encoder(facts), [over_values]) == rows_of(codecs.encoder(facts), [plain])


@pytest.mark.parametrize("format", ENCODING)
def test_values_of_two_megabytes_go_both_ways(format: str) -> None:
    table = TableSchema(
        TableId("db", "s", "t"),
        (Column("ID", 1, LogicalType("int32"), "int"), Column("LONG", 2, LogicalType("string"), "text")),
        ("ID",),
    )
    texts = ["x" * 2_000_000, '"\\\n\u20ac' * 400_000, "", "short"]
    rows = [
        {
            "op": "c", "table": {"database": "db", "schema": "s", "name": "t"}, "key": {"ID": str(number)},
            "after": {"ID": str(number), "LONG": text}, "position": f"{number:04d}", "schema_id": table.fingerprint,
            "source": {"connector": "oracle"}, "capture_time": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        }
        for number, text in enumerate(texts)
    ]  # fmt: skip
    told = {"op": "schema", "table": rows[0]["table"], "schema_id": table.fingerprint, "table_schema": table.to_text()}
    messages = sent(format, change_batch([told, *rows]), [table], **options_of(format))
    found = [row.after["LONG"] for row in events_of(format, as_kafka(messages), **options_of(format)) if row.op == "c"]
    assert found == texts


@pytest.mark.parametrize("first", range(5))
@pytest.mark.parametrize("count", range(6))
def test_lists_that_came_to_a_worker_as_one_are_three_again(first: int, count: int) -> None:
    packed = [[["x", "y"], None, []], [], [None, ["q"], None], [], [["z"], [], None]]
    lists = pa.array(packed, pa.list_(pa.list_(pa.string()))).slice(first, count)
    batch = pa.RecordBatch.from_arrays([lists], names=["packed"])
    found = with_lists(batch, {"packed": ["a", "b", "c"]})
    assert found.to_pylist() == [
        dict(zip("abc", row or [None] * 3, strict=True)) for row in packed[first : first + count]
    ]
