"""Oracle GoldenGate's JSON, one operation per message (GoldenGate for Big Data, `format=json`).

Messages of rows are read together, every other message by itself. Members of a message that say nothing are left
out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import LogicalType, TableId
from headrace.changes.images import constant
from headrace.changes.types import arrow_text
from headrace.formats.base import FormatSettings, topic_option
from headrace.formats.change_columns import (
    SourceFacts,
    empty_as_null,
    error_row,
    numbered,
    origin_columns,
    present,
    single_row,
    table_parts,
    transaction_column,
    upper,
)
from headrace.formats.change_messages import (
    RowSchemas,
    are,
    first_of,
    message_batch,
    operations,
    picked,
    rows_of,
    table_part,
    topics,
)
from headrace.formats.codec import (
    MESSAGES,
    ArrowFormat,
    Codec,
    Facts,
    all_rows,
    change_batch,
    change_schema,
    kafka_batch,
)
from headrace.formats.features import Feature
from headrace.formats.given_tables import ResolvedTables, TableOptions, image_columns
from headrace.formats.images import Image
from headrace.formats.json_images import ObjectImage
from headrace.formats.json_messages import JsonMessages, filled, unread
from headrace.formats.recognition import Evidence, Sample
from headrace.wire.arrays import map_of
from headrace.wire.json_exact import ARRAY, MORE, OBJECT
from headrace.wire.json_writer import Part, members, string_lists
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import instants

OPERATIONS = {"I": "c", "U": "u", "D": "d", "T": "t"}
"""The letters of operations, and what they are in change rows."""
FACTS = ("pos", "csn", "xid", "current_ts", "tokens")
"""Fields that a row's `source` keeps by their names."""

_FIELDS = ("table", "op_type", "op_ts", "primary_keys", "before", "after", *FACTS)
_LETTER_NUMBERS = {letter: number for number, letter in enumerate(OPERATIONS)}
_C, _U, _D, _T = range(4)

_SEVERAL = re.compile(rb"\}\s*\{")
_TRANSACTION = (
    "The value holds several JSON objects, as GoldenGate writes whole transactions (mode=tx). Headrace does not read "
    "that form: set gg.handler.name.mode=op."
)
_ROW_FORM = (
    "GoldenGate wrote the columns beside the operation (format=json_row), without before and after. Headrace does not "
    "read that form: set gg.handler.name.format=json."
)
_CODES = constant(list(OPERATIONS.values()))
_LETTERS = {"c": "I", "r": "I", "u": "U", "d": "D", "t": "T"}
_CLOCK = LogicalType("timestamp", 6)


class Messages(JsonMessages):
    """What the engine found in a batch of messages.

    `ordinary` says which are of rows and can be read; `op` is the index of their letter in `OPERATIONS`, `before` and
    `after` their images. An object without members is not an image: GoldenGate writes one where there is nothing to
    say.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        tape = Tape(values)
        super().__init__(tape, tape.root, _FIELDS)
        self.op: Array = numbered(self.texts("op_type"), _LETTER_NUMBERS, upper)
        is_object = tape.kinds(tape.root) == OBJECT
        self.is_form: Array = is_object & self.holds(OBJECT, "before", "after") & self.holds(ARRAY, "primary_keys")
        self.before, self.after = (filled(tape, self.every(name)) for name in ("before", "after"))
        needed: Array = np.where(self.op == _D, self.before, self.after)
        self.ordinary: Array = self.is_form & np.isin(self.op, (_C, _U, _D)) & (needed >= 0)

    def key_names(self, rows: Array) -> pa.StringArray:
        """The key columns that messages name, as JSON arrays; null where they name none."""
        offsets, items = self.tape.items(self.index("primary_keys", rows))
        return string_lists(offsets, self.tape.texts(items), np.diff(offsets) > 0)

    def is_row_form(self, number: int) -> bool:
        """Whether a message has neither an image before nor one after, and columns beside its own fields."""
        if self.op[number] == _T or self.every("before")[number] >= 0 or self.every("after")[number] >= 0:
            return False
        counts = self.tape.field_counts(self.tape.root[number : number + 1])
        return bool(counts[0] > (self.at[:, number] >= 0).sum())

    def tables(self, rows: Array) -> pa.StructArray:
        codes = self.tape.texts(self.index("table", rows)).dictionary_encode()
        ids = [table_of(text) for text in codes.dictionary.to_pylist()]
        lines = [{"database": id.database, "schema": id.schema, "name": id.name} for id in ids]
        kind = pa.struct([("database", pa.string()), ("schema", pa.string()), ("name", pa.string())])
        nowhere = {"database": "", "schema": "", "name": ""}
        return pa.array([*lines, nowhere], kind).take(codes.indices.fill_null(len(lines)))


def table_of(text: str) -> TableId:
    """A table's name is read from its end: the name, its schema, and the container before them."""
    *database, schema, name = ["", *text.split(".")]
    return TableId(".".join(part for part in database if part), schema, name)


def other_row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    """The row of a message that is not ordinary: a tombstone, a truncate, or an error."""
    value = batch.column("value")[number].as_py()
    if value is None:
        return single_row(batch, number) | {"op": "tombstone", "table": table_parts(None, None, None)}
    problem = _problem(value, messages, number)
    if problem is not None:
        return error_row(batch, number, problem)
    moment = instants(messages.tape, messages.index("op_ts", np.array([number]))).values[0]
    facts = {"connector": "oracle"} | {name: messages.text(name, number) for name in FACTS}
    facts["op_ts"] = None if moment.is_valid else messages.text("op_ts", number)
    id = table_of(messages.text("table", number) or "")
    return single_row(batch, number) | {
        "op": OPERATIONS[upper(messages.text("op_type", number) or "")],
        "table": table_parts(id.database, id.schema, id.name),
        "event_time": moment.value,
        "transaction": None if facts["xid"] is None else {"id": facts["xid"]},
        "source": present(facts),
    }


def _problem(value: bytes, messages: Messages, number: int) -> str | None:
    """Why a message can't be read; None where it can."""
    if messages.tape.verdict[number] == MORE and _SEVERAL.search(value):
        return _TRANSACTION
    if not messages.is_form[number]:
        return unread(value, messages.tape.verdict[number], "of GoldenGate's form")
    letter = messages.text("op_type", number)
    if letter is None:
        return "The message has no op_type."
    op = OPERATIONS.get(upper(letter))
    if op is None:
        return f"Unknown operation {letter}."
    if messages.is_row_form(number):
        return _ROW_FORM
    if op in ("c", "u") and messages.after[number] < 0:
        return "The message has no image after the change."
    return "The message has no image before the change." if op == "d" and messages.before[number] < 0 else None


class GoldenGateDecoder(Codec):
    """Reads messages; what it remembers is which tables it knows."""

    def __init__(self, given: TableOptions) -> None:
        self._given = given
        self.schema = change_schema(given.typed)
        self._tables = ResolvedTables(given)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = kafka_batch(batch)
        messages = Messages(batch.column("value"))
        rows = np.flatnonzero(messages.ordinary)
        problems: dict[int, str] = {}
        whole = self._columns(batch, messages, rows, problems)
        yield all_rows(whole, rows, problems, batch, lambda number: [other_row(batch, messages, number)])

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: Array, problems: dict[int, str]
    ) -> pa.RecordBatch:
        tape, op, nothing = messages.tape, messages.op[rows], np.int32(-1)
        table = messages.tables(rows)
        known = self._tables.numbers(table, messages.key_names(rows))
        old = np.where(op == _C, nothing, messages.before[rows])
        new = np.where(op == _D, nothing, messages.after[rows])
        self._tables.write_canonical(tape, np.concatenate([old, new]), np.tile(known, 2))
        before, after = ObjectImage.of(tape, old), ObjectImage.of(tape, new)
        moments = instants(tape, messages.index("op_ts", rows)).values
        tokens = messages.index("tokens", rows)
        tape.compact(tokens)
        facts = {name: messages.texts(name, rows) for name in FACTS}
        # Where it is not a time, the fact is all that is left of it.
        facts["op_ts"] = pc.if_else(moments.is_valid(), pa.scalar(None, pa.string()), messages.texts("op_ts", rows))
        columns: dict[str, pa.Array] = {
            **origin_columns(batch, rows),
            **self._tables.columns(table, after.or_else(before), known),
            "op": _CODES.take(pa.array(op)),
            "event_time": moments,
            "transaction": transaction_column(facts["xid"]),
            "source": map_of([("connector", pa.repeat("oracle", rows.size)), *facts.items()]),
        }
        images = {"before": before, "after": after}
        columns |= image_columns(
            images, columns["key"], self._given, self.schema, rows, problems, self._tables.given(known)
        )
        return change_batch(columns, self.schema, rows.size)


class GoldenGateEncoder(Codec):
    """Writes messages; it holds nothing but what its facts say."""

    schema = MESSAGES

    def __init__(self, facts: Facts, topic: str) -> None:
        self._known, self._topic = RowSchemas(facts), topic

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        numbers = rows_of(batch, tuple(_LETTERS))
        if numbers.size:
            rows = picked(batch, numbers)
            yield message_batch(rows, topics(rows, self._topic), self._values(rows), _key(rows.column("key")))

    def _values(self, rows: pa.RecordBatch) -> pa.StringArray:
        schema_number = self._known.of(rows)
        before = self._known.image(rows, "before").where(are(rows, "u", "d"))
        after = self._known.image(rows, "after").where(are(rows, "u", "c", "r"))
        parts = [table_part(rows, name) for name in ("database", "schema", "name")]
        named = [empty_as_null(part) for part in parts]
        path = pc.binary_join_element_wise(*named, ".", null_handling="skip")
        captured = pc.replace_substring(_clock(rows.column("capture_time")), " ", "T")
        return members(
            {
                "table": Part(path, quoted=True),
                "op_type": Part(operations(rows, _LETTERS), quoted=True),
                "op_ts": Part(_clock(rows.column("event_time")), quoted=True),
                "current_ts": Part(captured, quoted=True),
                "pos": Part(first_of(SourceFacts(rows).texts("pos"), rows.column("position")), quoted=True),
                "xid": Part(pc.struct_field(rows.column("transaction"), "id"), quoted=True),
                "primary_keys": Part(self._known.keys(rows, schema_number)),
                "before": Part(self._known.json(before, schema_number)),
                "after": Part(self._known.json(after, schema_number)),
            },
            rows.num_rows,
        )


def _clock(moments: pa.TimestampArray) -> pa.StringArray:
    return arrow_text(moments.cast(pa.timestamp("us")), _CLOCK)


def _key(keys: pa.MapArray) -> pa.StringArray:
    """The values of keys with `_` between; null where a row has no key."""
    entries = Image.of_maps(keys)
    values = pa.ListArray.from_arrays(pa.array(entries.entries.offsets, pa.int32()), entries.values.fill_null(""))
    joined = pc.binary_join(values, "_")
    return pc.if_else(pa.array(entries.entries.present), joined, pa.scalar(None, pa.string()))


class OggSettings(FormatSettings):
    """Of the format `ogg_json`."""

    topic: str = topic_option()


class OggJson(ArrowFormat):
    """GoldenGate's operations: insert, update, delete and truncate, each with the images that it has.

    Decoding: `before` and `after` are taken as they are; a column that one does not hold (compressed updates hold the
    key and what changed) is absent, and an image without columns is none. The table's name is read from its end: name,
    schema, container. `op_ts` is UTC and becomes `event_time`; `source` has `pos`, and `csn`, `xid`, `tokens` where
    they are written. The key is named by `primary_keys`. Encoding: images as they are; numbers as JSON numbers; the
    Kafka key is the values of the row's key with `_` between.

    Ordering: the offset. Idempotence: the rows alone decide the bytes. Process: executors; nothing is
    asked when `decode` is called.
    """

    name = "ogg_json"
    settings: OggSettings
    reads = frozenset(
        (
            Feature.TRUNCATE, Feature.TOMBSTONE, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.KEY,
            Feature.KEY_CHANGE, Feature.DATABASE, Feature.SCHEMA_NAME, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.EVENT_MILLISECONDS,
            Feature.EVENT_MICROSECONDS, Feature.TRANSACTION, Feature.SOURCE,
        )
    )  # fmt: skip
    writes = frozenset(
        (
            Feature.TRUNCATE, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.KEY, Feature.KEY_CHANGE,
            Feature.SCHEMA_NAME, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.EVENT_MILLISECONDS, Feature.EVENT_MICROSECONDS,
            Feature.TRANSACTION,
        )
    )  # fmt: skip

    written_columns = (
        "op", "table", "key", "before", "after", "before_absent", "after_absent", "position", "event_time",
        "capture_time", "transaction", "source", "schema_id",
    )  # fmt: skip

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        """An `op_type` of one letter beside `table` and `op_ts`."""
        fields = message.fields
        is_letter = fields.get("op_type") in ("I", "U", "D", "T")
        if is_letter and isinstance(fields.get("table"), str) and "op_ts" in fields:
            return Evidence("an `op_type` of one letter beside `table` and `op_ts`")
        return None

    def decoder(self, facts: Facts) -> GoldenGateDecoder:
        return GoldenGateDecoder(TableOptions.of(self.settings, facts))

    def encoder(self, facts: Facts) -> GoldenGateEncoder:
        return GoldenGateEncoder(facts, self.settings.topic)
