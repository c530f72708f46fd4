"""Maxwell messages to change rows: those of rows together, every other message by itself.

A message that is not of a row, or can't be read, becomes one row that is found by reading it by itself. `Messages`
has the fields of a batch's messages and says which of them are of rows in the ordinary form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.images import constant
from headrace.changes.texts import key_text
from headrace.formats.change_columns import (
    error_row,
    lower,
    numbered,
    origin_columns,
    present,
    single_row,
    snapshot_column,
    table_column,
    table_parts,
    transaction_column,
    whole_within,
)
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.given_tables import ResolvedTables, TableOptions, image_columns
from headrace.formats.json_images import ObjectImage
from headrace.formats.json_messages import JsonMessages, unread
from headrace.wire.arrays import map_of
from headrace.wire.json_exact import ARRAY, OBJECT
from headrace.wire.json_writer import string_lists
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import integers

DATA = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
"""The types of messages of rows, and the operation of their rows."""
DDL = ("table-create", "table-alter", "table-drop", "database-create", "database-alter", "database-drop")
NO_EVENT = ("bootstrap-start", "bootstrap-complete")
HEARTBEAT = "heartbeat"
FACTS = ("position", "gtid", "server_id", "thread_id", "schema_id", "query", "commit")
"""Fields that a row's `source` keeps by their names."""

_FIELDS = (
    "database", "table", "type", "ts", "xid", "xoffset", "sql", "data", "old", "primary_key_columns", *FACTS,
)  # fmt: skip
_TYPE_NUMBERS = {kind: number for number, kind in enumerate(DATA)}


class Messages(JsonMessages):
    """What the engine found in a batch of messages.

    `ordinary` says which are of rows and can be read; `op` is the index of their type in `DATA`.
    """

    def __init__(self, values: pa.BinaryArray, keys: pa.BinaryArray) -> None:
        tape = Tape(values)
        super().__init__(tape, tape.root, _FIELDS)
        self.op: Array = numbered(self.texts("type"), _TYPE_NUMBERS, lower)
        is_object = tape.kinds(tape.root) == OBJECT
        self.is_form: Array = is_object & self.holds(OBJECT, "data", "old") & self.holds(ARRAY, "primary_key_columns")
        self.ordinary: Array = self.is_form & (self.op >= 0) & tape.is_value(self.every("data"))
        self.keys = KafkaKeys(keys)

    def key_names(self, rows: Array) -> pa.StringArray:
        """The key columns that messages name, else their Kafka keys, as JSON arrays; null where neither does."""
        offsets, items = self.tape.items(self.index("primary_key_columns", rows))
        named = string_lists(offsets, self.tape.texts(items), np.diff(offsets) > 0)
        return pc.coalesce(named, self.keys.names(rows)) if named.null_count else named


class KafkaKeys:
    """Maxwell's Kafka keys: `{"database":..,"table":..,"pk.id":..}`, read where they are asked for."""

    def __init__(self, keys: pa.BinaryArray) -> None:
        self._keys = keys

    def names(self, rows: Array) -> pa.StringArray:
        """The key columns as JSON arrays of texts; null where a key names none."""
        if self._keys.null_count == len(self._keys):
            return pa.nulls(rows.size, pa.string())
        tape = Tape(self._keys.take(pa.array(rows)))
        members = tape.members(tape.root)
        names = tape.texts(members.names)
        kept = pc.starts_with(names, "pk.").to_numpy(zero_copy_only=False)
        row = np.repeat(np.arange(rows.size), np.diff(members.offsets))[kept]
        counts = np.bincount(row, minlength=rows.size)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        columns = pc.utf8_slice_codeunits(names.filter(pa.array(kept)), 3)
        return string_lists(offsets, columns, counts > 0)

    def parts(self, number: int) -> dict[str, str | None]:
        """The members of one key; none where it is not an object."""
        tape = Tape(self._keys.slice(number, 1))
        members = tape.members(tape.root)
        names, values = tape.texts(members.names), tape.texts(members.values)
        return dict(zip(names.to_pylist(), values.to_pylist(), strict=True))


FIRST_SECOND, LAST_MS = -62_135_596_800, 253_402_300_799_999
# Seconds reach this number in the year 5138, milliseconds passed it in 1973.
MILLISECONDS = 100_000_000_000


def other_row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    """The row of a message that is not ordinary: a tombstone, DDL, no event (its `op` is null), or an error."""
    value = batch.column("value")[number].as_py()
    if value is None:
        return _tombstone(batch, messages, number)
    problem = _problem(value, messages, number)
    if problem is not None:
        return error_row(batch, number, problem)
    kind = lower(messages.text("type", number) or "")
    row = _row(batch, messages, number)
    if kind == HEARTBEAT:
        return row | {"op": "heartbeat"}
    if kind not in DDL:
        return row
    facts = [("type", kind), ("ddl", messages.text("sql", number) or "")]
    return row | {"op": "schema", "source": [*row["source"], *facts]}


def _row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    ts = messages.text("ts", number)
    moment = whole_within(ts, FIRST_SECOND, LAST_MS)
    facts = {"connector": "mysql"} | {name: messages.text(name, number) for name in FACTS}
    facts["commit"] = "true" if facts["commit"] == "true" else None
    # Where it is not a time, the fact is all that is left of it.
    facts["ts"] = ts if moment is None else None
    xid = messages.text("xid", number)
    return single_row(batch, number) | {
        "table": table_parts(messages.text("database", number), None, messages.text("table", number)),
        "event_time": None if moment is None else (moment if moment >= MILLISECONDS else moment * 1000) * 1000,
        "transaction": None if xid is None else {"id": xid},
        "source": present(facts),
    }


def _tombstone(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    parts = messages.keys.parts(number)
    key = [(name[3:], value) for name, value in parts.items() if name.startswith("pk.")]
    return single_row(batch, number) | {
        "op": "tombstone",
        "table": table_parts(parts.get("database"), None, parts.get("table")),
        "key": key or None,
        "key_text": key_text([value for _, value in key]) if key else None,
    }


def _problem(value: bytes, messages: Messages, number: int) -> str | None:
    """Why a message can't be read; None where it can."""
    if not messages.is_form[number]:
        return unread(value, messages.tape.verdict[number], "of Maxwell's form")
    kind = messages.text("type", number)
    if kind is None:
        return "The message has no type."
    if lower(kind) not in (*DATA, *DDL, *NO_EVENT, HEARTBEAT):
        return f"Unknown type {kind}."
    has_data = messages.tape.is_value(messages.every("data")[number])
    return "The message has no data." if lower(kind) in DATA and not has_data else None


_CODES = constant(list(DATA.values()))
_C, _U, _D, _R = (list(DATA.values()).index(op) for op in "cudr")
_MOST = 2**63 - 2


class MaxwellDecoder(Codec):
    """Reads messages; what it remembers is which tables it knows."""

    def __init__(self, given: TableOptions) -> None:
        self._given = given
        self.schema = change_schema(given.typed)
        self._tables = ResolvedTables(given)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = kafka_batch(batch)
        messages = Messages(batch.column("value"), batch.column("key"))
        rows = np.flatnonzero(messages.ordinary)
        problems: dict[int, str] = {}
        whole = self._columns(batch, messages, rows, problems)
        yield all_rows(whole, rows, problems, batch, lambda number: [other_row(batch, messages, number)])

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: Array, problems: dict[int, str]
    ) -> pa.RecordBatch:
        tape, count, op = messages.tape, rows.size, messages.op[rows]
        head = {name: messages.index(name, rows) for name in ("database", "table", "ts", "xid", "xoffset", *FACTS)}
        table = table_column(tape.texts(head["database"]), tape.texts(head["table"]))
        known = self._tables.numbers(table, messages.key_names(rows))
        data, old = messages.index("data", rows), messages.index("old", rows)
        old[(op != _U) | ~tape.is_value(old)] = -1
        self._tables.write_canonical(tape, np.concatenate([data, old]), np.tile(known, 2))
        nothing = np.int32(-1)
        laid = old >= 0
        before = ObjectImage.of(tape, np.where((op == _D) | laid, data, nothing), old)
        after = ObjectImage.of(tape, np.where(op == _D, nothing, data))
        ts, xid, xoffset = integers(tape, head["ts"]), tape.texts(head["xid"]), integers(tape, head["xoffset"])
        is_time = pc.fill_null(pc.and_(pc.greater_equal(ts, FIRST_SECOND), pc.less_equal(ts, LAST_MS)), False)
        in_time = pc.if_else(is_time, ts, None)
        millis = pc.if_else(pc.greater_equal(in_time, MILLISECONDS), in_time, pc.multiply(in_time, 1000))
        counted = pc.and_(pc.greater_equal(xoffset, 0), pc.less_equal(xoffset, _MOST))
        order = pc.add(pc.if_else(counted, xoffset, None), 1)
        columns: dict[str, pa.Array] = {
            **origin_columns(batch, rows),
            **self._tables.columns(table, after.or_else(before), known),
            "op": _CODES.take(pa.array(op)),
            "changed": ObjectImage.of(tape, old).names(),
            "event_time": millis.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            "snapshot": snapshot_column(op == _R),
            "transaction": transaction_column(xid, total_order=order),
            "source": self._source(messages, head, is_time),
        }
        images = {"after": after, "before": before}
        columns |= image_columns(
            images, columns["key"], self._given, self.schema, rows, problems, self._tables.given(known)
        )
        return change_batch(columns, self.schema, count)

    def _source(self, messages: Messages, head: dict[str, Array], is_time: pa.BooleanArray) -> pa.MapArray:
        tape, nothing = messages.tape, pa.scalar(None, pa.string())
        facts = {name: tape.texts(head[name]) for name in FACTS}
        facts["commit"] = pc.if_else(pc.equal(facts["commit"], "true"), "true", nothing)
        # Where it is not a time, the fact is all that is left of it.
        facts["ts"] = pc.if_else(is_time, nothing, tape.texts(head["ts"]))
        return map_of([("connector", pa.repeat("mysql", len(is_time))), *facts.items()])
