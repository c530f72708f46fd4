"""Canal messages to change rows.

1. The engine reads a batch of messages. Those of rows in the ordinary form go on together; every other message
   (tombstones, DDL, heartbeats, what can't be read) is looked at by itself.
2. What messages say of their tables is read once for each distinct text (`schemas`).
3. The rows of a message are laid beside their old rows; values are written as canonical text; images, keys and facts
   become columns. A message with a value that can't be read is one `error` row, never part of one.

`Messages` has the fields of a batch's messages and says which of them are of rows in the ordinary form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.images import constant
from headrace.formats.canal.schemas import DecodeSettings, ResolvedTable, TableDescriptor, resolve_table
from headrace.formats.canal.values import CanalEncoding
from headrace.formats.change_columns import (
    BLANK,
    FIRST_MS,
    LAST_MS,
    empty_as_null,
    error_row,
    numbered,
    origin_columns,
    present,
    schema_ids,
    single_row,
    snapshot_column,
    table_column,
    table_parts,
    transaction_column,
    upper,
    whole_within,
)
from headrace.formats.change_messages import Announcer
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.given_tables import Given, unfit_values
from headrace.formats.given_values import misfit, note_misfits
from headrace.formats.json_images import ObjectImage, write_canonical
from headrace.formats.json_messages import JsonMessages, unread
from headrace.formats.schema_columns import Numbered
from headrace.wire.arrays import map_of, offsets_of
from headrace.wire.json_exact import ARRAY, FALSE, NULL, OBJECT
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import integers

DATA = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "INIT": "r"}
"""The types of messages of rows, and the operation of their rows."""
DDL = ("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "DDL")
NO_EVENT = (
    "QUERY", "GTID", "GTIDLOG", "XACOMMIT", "XAROLLBACK", "TRANSACTIONBEGIN", "TRANSACTIONEND", "TIDB_WATERMARK",
)  # fmt: skip
HEARTBEATS = ("MHEARTBEAT", "HEARTBEAT")
CUT = {
    "onlyHandleKey": "TiCDC left out all columns but the key's (onlyHandleKey), because the message was too large. "
    "Raise max-message-bytes in the changefeed and in Kafka's topic, and let TiCDC write the table's changes again.",
    "claimCheckLocation": "TiCDC wrote the row to external storage (claim check), because the message was too large. "
    "Turn large-message-handle-option off, raise max-message-bytes in the changefeed and in Kafka's topic, and let "
    "TiCDC write the table's changes again.",
}
"""Fields of TiCDC's block `_tidb` by which a message lacks columns of its row, and what to do."""

FIELDS = (
    "data", "old", "database", "table", "type", "es", "ts", "id", "gtid", "isDdl", "sql", "pkNames", "mysqlType",
    "sqlType", "_tidb",
)  # fmt: skip
_CUT = Names([tuple(CUT)])
_TYPE_NUMBERS = {kind: number for number, kind in enumerate(DATA)}


class Messages(JsonMessages):
    """What the engine found in a batch of messages.

    `ordinary` says which are of rows, and can be read as far as their form goes; `op` is the index of their type in
    `DATA`, `rows` the array of their rows, `old_rows` that of an update's old ones.
    """

    def __init__(self, values: pa.BinaryArray, *, legacy_old: bool = False) -> None:
        self.legacy_old = legacy_old
        self.count = len(values)
        tape = Tape(values)
        super().__init__(tape, tape.root, FIELDS)
        self.op: Array = numbered(self.texts("type"), _TYPE_NUMBERS, upper)
        data, old = (tape.kinds(self.every(name)) for name in ("data", "old"))
        is_update = self.op == _TYPE_NUMBERS["UPDATE"]
        has_data = data == ARRAY
        self.rows: Array = np.where(has_data, self.every("data"), self.every("old"))
        self.old_rows: Array = np.where(is_update & (old == ARRAY), self.every("old"), np.int32(-1))
        self._has_arrays: Array = self.holds(ARRAY, "pkNames", "data", "old")
        self.cut: Array = self._cut()
        fine = (self.op >= 0) & (self.cut < 0) & self.holds(FALSE, "isDdl") & self._has_arrays
        fine &= has_data | ((old == ARRAY) & ~is_update)
        self.ordinary: Array = fine
        self.ordinary = fine & self._rows_are_fine()

    def _cut(self) -> Array:
        """Which field of `CUT` says that a message lacks columns of its row, by its index there; -1 where none does."""
        tape, block = self.tape, self.every("_tidb")
        cut_at = np.full(self.count, -1)
        if (block >= 0).any():
            kinds = tape.kinds(tape.fields(block, _CUT))
            for index, kind in enumerate(kinds):
                cut_at[(kind > NULL) & (kind != FALSE) & (cut_at < 0)] = index
        return cut_at

    def _rows_are_fine(self) -> Array:
        """Whether a message has rows, all of them objects, and as many old rows as rows."""
        kept = self.ordinary
        counts, plain = self._items(np.where(kept, self.rows, np.int32(-1)), (OBJECT,))
        old_kinds = (OBJECT,) if self.legacy_old else (OBJECT, NULL)
        old_counts, old_plain = self._items(np.where(kept, self.old_rows, np.int32(-1)), old_kinds)
        has_old = self.old_rows >= 0
        if self.legacy_old:
            has_old = self.op == _TYPE_NUMBERS["UPDATE"]
        return (counts > 0) & plain & old_plain & (~has_old | (counts == old_counts))

    def _items(self, at: Array, kinds: tuple[int, ...]) -> tuple[Array, Array]:
        """How many items each array has, and whether all of them are of these kinds."""
        offsets, items = self.tape.items(at)
        wrong = offsets_of(~np.isin(self.tape.kinds(items), kinds))
        return np.diff(offsets), wrong[offsets[1:]] == wrong[offsets[:-1]]

    def items(self, name: str, number: int) -> list[int] | None:
        """The kinds of the items of an array; None where the field is null or absent."""
        at = self.every(name)[number : number + 1]
        kinds: list[int] = self.tape.kinds(self.tape.items(at)[1]).tolist()
        return kinds if self.tape.is_value(at)[0] else None

    def is_form(self, number: int) -> bool:
        """Whether a message is an object whose arrays are arrays, and whose rows are objects or null."""
        if self.tape.kinds(self.tape.root[number]) != OBJECT or not self._has_arrays[number]:
            return False
        return all(kind in (OBJECT, NULL) for name in ("data", "old") for kind in self.items(name, number) or ())


BEFORE_DDL = rf"(?is){BLANK}*+"
_TRUNCATE = re.compile(BEFORE_DDL + r"TRUNCATE\b")


def other_row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    """The row of a message that is not ordinary: an event without rows, no event (its `op` is null), or an error."""
    value = batch.column("value")[number].as_py()
    if value is None:
        return _row(batch, messages, number, "tombstone") | {"source": None}
    problem = _problem(value, messages, number)
    if problem is not None:
        return error_row(batch, number, problem, 0)
    kind = upper(messages.text("type", number) or "")
    if not _is_ddl(messages, number, kind):
        return _row(batch, messages, number, "heartbeat" if kind in HEARTBEATS else None)
    sql = messages.text("sql", number) or ""
    op = "t" if kind == "TRUNCATE" or _TRUNCATE.match(sql) else "schema"
    row = _row(batch, messages, number, op)
    source = [(name, text) for name, text in row["source"] if name != "sql"]
    return row | {"source": [*source, ("type", kind), ("ddl", sql)]}


def _row(batch: pa.RecordBatch, messages: Messages, number: int, op: str | None) -> dict[str, Any]:
    es, gtid = messages.text("es", number), messages.text("gtid", number) or None
    moment = whole_within(es, FIRST_MS, LAST_MS)
    facts = {
        "connector": "mysql",
        "id": messages.text("id", number),
        "ts": messages.text("ts", number),
        "gtid": gtid,
        "es": None if moment is not None else es,
        "sql": messages.text("sql", number) or None,
    }
    return single_row(batch, number, 0) | {
        "op": op,
        "table": table_parts(messages.text("database", number), None, messages.text("table", number)),
        "event_time": None if moment is None else moment * 1000,
        "transaction": None if gtid is None else {"id": gtid},
        "source": present(facts),
    }


def _is_ddl(messages: Messages, number: int, kind: str) -> bool:
    return upper(messages.text("isDdl", number) or "") == "TRUE" or kind in DDL


def _problem(value: bytes, messages: Messages, number: int) -> str | None:
    """Why a message can't be read; None where it can."""
    if not messages.is_form(number):
        return unread(value, messages.tape.verdict[number], "of the Canal form")
    kind = messages.text("type", number)
    if kind is None:
        return "The message has no type."
    kind = upper(kind)
    if _is_ddl(messages, number, kind):
        return None
    if kind not in DATA:
        return None if kind in (*NO_EVENT, *HEARTBEATS) else f"Unknown type {kind}."
    return _problem_of_rows(messages, number, DATA[kind])


def _problem_of_rows(messages: Messages, number: int, op: str) -> str | None:
    if messages.cut[number] >= 0:
        return list(CUT.values())[int(messages.cut[number])]
    data, old = messages.items("data", number), messages.items("old", number)
    if data is None and old is None:
        return "The message has neither data nor old."
    if data is None and op == "u":
        return "The update has no data."
    if NULL in (old if data is None else data):  # type: ignore[operator]
        return "A row of the message is null."
    if op != "u" or data is None:
        return None
    if messages.legacy_old and (old is None or NULL in old):
        return "The update has no new row in old."
    if old is not None and len(old) != len(data):
        return f"The message has {len(data)} rows in data and {len(old)} in old."
    return None


_CODES = constant(list(DATA.values()))
_C, _U, _D, _R = (list(DATA.values()).index(op) for op in "cudr")
NO_BYTES = "A column of bytes holds a character that is not a byte."
NO_BASE64 = "Column '{}' holds a text that is not base64. If its bytes come as characters, set bytes: characters."


@dataclass
class _Rows:
    """The rows of a batch's ordinary messages.

    Args:
        message: which message each row is of.
        index: its index in it.
        op: a number of `_CODES`.
        known: which of the codec's known schemas it follows.
        data: its object in `data`, or in `old` where that stands alone.
        old: its object in `old`; -1 where it has none.
    """

    message: Array
    index: Array
    op: Array
    known: Array
    data: Array
    old: Array


class CanalDecoder(Codec):
    """Reads messages; what it remembers is which schemas it knows and has announced."""

    def __init__(self, reading: DecodeSettings) -> None:
        self._reading = reading
        self.schema = change_schema(reading.typed)
        self._known = Numbered[TableDescriptor, ResolvedTable](lambda descriptor: resolve_table(descriptor, reading))
        self._announcer = Announcer(self.schema)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = kafka_batch(batch)
        messages = Messages(batch.column("value"), legacy_old=self._reading.legacy_old)
        rows = self._rows(messages)
        problems: dict[int, str] = {}
        self._write_canonical(messages.tape, rows, problems)
        whole = self._columns(batch, messages, rows, problems)
        schemas = [known.announced for known in self._known.all]
        yield all_rows(
            whole,
            rows.message,
            problems,
            batch,
            lambda number: [other_row(batch, messages, number)],
            announce=lambda of, kept: self._announcer.announce(batch, of, rows.known[kept], schemas),
            index=0,
        )

    def _rows(self, messages: Messages) -> _Rows:
        tape = messages.tape
        offsets, data = tape.items(np.where(messages.ordinary, messages.rows, np.int32(-1)))
        message = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        index = np.arange(len(data)) - offsets[message]
        old_offsets, old_items = tape.items(np.where(messages.ordinary, messages.old_rows, np.int32(-1)))
        old = np.full(len(data), -1, np.int32)
        paired = np.diff(old_offsets)[message] > 0
        old[paired] = old_items[(old_offsets[message] + index)[paired]]
        # A null in `old` says nothing.
        old[~tape.is_value(old)] = -1
        known = self._identify(messages)[message]
        return _Rows(message, index, messages.op[message], known, data, old)

    def _identify(self, messages: Messages) -> Array:
        """The number of what each message's table is known as; 0 for those that are not ordinary."""
        fields_of_tables = np.stack(
            [messages.every(name) for name in ("mysqlType", "sqlType", "pkNames", "database", "table")]
        )
        ordinary = np.flatnonzero(messages.ordinary)
        schema_numbers = np.zeros(messages.count, np.int64)
        if not ordinary.size:
            return schema_numbers
        fields_of_tables = np.ascontiguousarray(fields_of_tables[:, ordinary])
        groups = messages.tape.groups(fields_of_tables)
        numbers = []
        for row in groups.first:
            key = TableDescriptor(*messages.tape.texts(np.ascontiguousarray(fields_of_tables[:, row])).to_pylist())
            numbers.append(self._known.number(key))
        schema_numbers[ordinary] = np.array(numbers)[groups.of]
        return schema_numbers

    def _write_canonical(self, tape: Tape, rows: _Rows, problems: dict[int, str]) -> None:
        """Write canonical texts in place of what the wire has; note messages whose bytes are none."""
        encodings = [known.encodings for known in self._known.all]
        objects = np.concatenate([rows.data, rows.old])
        for value in write_canonical(tape, objects, np.tile(rows.known, 2), encodings, _canonical):
            if self._reading.base64:
                problem = NO_BASE64.format(value.column)
            elif self._reading.typed is None:
                problem = NO_BYTES
            else:
                column = next(c for c in self._reading.typed.columns if c.name == value.column)
                problem = misfit(column, tape.text(value.at) or "")
            problems[int(rows.message[value.object % rows.message.size])] = problem

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: _Rows, problems: dict[int, str]
    ) -> pa.RecordBatch:
        tape, count = messages.tape, rows.message.size
        before, after = self._images(tape, rows)
        key, key_text = after.or_else(before).key([known.key_names for known in self._known.all], rows.known)
        head = {name: messages.index(name, rows.message) for name in FIELDS}
        es = integers(tape, head["es"])
        known_es = pc.fill_null(pc.and_(pc.greater_equal(es, FIRST_MS), pc.less_equal(es, LAST_MS)), False)
        gtid = empty_as_null(tape.texts(head["gtid"]))
        columns: dict[str, pa.Array] = {
            **origin_columns(batch, rows.message, rows.index),
            "op": _CODES.take(pa.array(rows.op)),
            "table": table_column(tape.texts(head["database"]), tape.texts(head["table"])),
            "key": key,
            "key_text": key_text,
            "changed": ObjectImage.of(tape, np.where(rows.op == _U, rows.old, np.int32(-1))).names(),
            "event_time": pc.if_else(known_es, es, None)
            .cast(pa.timestamp("ms", "UTC"))
            .cast(pa.timestamp("us", "UTC")),
            "snapshot": snapshot_column(rows.op == _R),
            "transaction": transaction_column(gtid),
            "source": map_of(
                [
                    ("connector", pa.repeat("mysql", count)),
                    ("id", tape.texts(head["id"])),
                    ("ts", tape.texts(head["ts"])),
                    ("gtid", gtid),
                    # Where it is not a time, the fact is all that is left of it.
                    ("es", pc.if_else(known_es, pa.scalar(None, pa.string()), tape.texts(head["es"]))),
                    ("sql", empty_as_null(tape.texts(head["sql"]))),
                ]
            ),
            "schema_id": schema_ids([known.schema for known in self._known.all], rows.known),
        }
        for name, image in (("before", before), ("after", after)):
            if self._reading.typed is None:
                given = Given([known.schema for known in self._known.all], rows.known) if self._reading.given else None
                refused = unfit_values(image, given)
                columns[name] = image.map()
            else:
                kind, zone = self.schema.field(name).type, self._reading.zone
                columns[name], columns[f"{name}_absent"], refused = image.structs(self._reading.typed, kind, zone)
            note_misfits(refused, key, rows.message, problems, nulls=self._reading.nulls)
        return change_batch(columns, self.schema, count)

    def _images(self, tape: Tape, rows: _Rows) -> tuple[ObjectImage, ObjectImage]:
        nothing = np.full(rows.message.size, -1, np.int32)
        updates, has_old = rows.op == _U, rows.old >= 0
        laid = np.where(updates, rows.old, nothing)
        first, second = np.where(rows.op == _D, rows.data, nothing), np.where(rows.op != _D, rows.data, nothing)
        if self._reading.legacy_old:
            return ObjectImage.of(tape, np.where(updates, rows.data, first)), ObjectImage.of(tape, second, laid)
        first = np.where(updates & has_old, rows.data, first)
        return ObjectImage.of(tape, first, laid), ObjectImage.of(tape, second)


def _canonical(tape: Tape, at: Array, encoding: CanalEncoding) -> pa.StringArray:
    return encoding.canonical(tape.texts(at))
