"""Canal messages to change rows.

1. The engine reads a batch of messages. Those of rows in the ordinary form go on together; every other message
   (tombstones, DDL, heartbeats, what can't be read) is looked at by itself, in `others`.
2. What messages say of their tables is read once for each distinct text (`schemas`).
3. The rows of a message are laid beside their old rows; values are written as canonical text; images, keys and facts
   become columns. A message with a value that can't be read is one `error` row, never part of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.constant import constant
from headrace.formats.announced import Announcer
from headrace.formats.canal.message import DATA, FIELDS, Messages
from headrace.formats.canal.others import other_row
from headrace.formats.canal.schemas import DecodeSettings, ResolvedTable, TableDescriptor, resolve_table
from headrace.formats.canal.values import CanalEncoding
from headrace.formats.change_columns import (
    FIRST_MS,
    LAST_MS,
    origin_columns,
    schema_ids,
    snapshot_column,
    table_column,
    transaction_column,
)
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.given_tables import Given, unfit_values
from headrace.formats.given_values import misfit, note_misfits
from headrace.formats.json_images import ObjectImage, write_canonical
from headrace.formats.numbered import Numbered
from headrace.formats.words import empty_as_null
from headrace.wire.arrays import map_of
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import integers

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
        self._known = Numbered[TableDescriptor, ResolvedTable](lambda told: resolve_table(told, reading))
        self._announcer = Announcer(self.schema)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The change rows of messages, in their order."""
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
        told = np.stack([messages.every(name) for name in ("mysqlType", "sqlType", "pkNames", "database", "table")])
        ordinary = np.flatnonzero(messages.ordinary)
        found = np.zeros(messages.count, np.int64)
        if not ordinary.size:
            return found
        told = np.ascontiguousarray(told[:, ordinary])
        groups = messages.tape.groups(told)
        numbers = []
        for row in groups.first:
            key = TableDescriptor(*messages.tape.texts(np.ascontiguousarray(told[:, row])).to_pylist())
            numbers.append(self._known.number(key))
        found[ordinary] = np.array(numbers)[groups.of]
        return found

    def _write_canonical(self, tape: Tape, rows: _Rows, problems: dict[int, str]) -> None:
        """Write canonical texts in place of what the wire has; note messages whose bytes are none."""
        encodings = [known.encodings for known in self._known.all]
        objects = np.concatenate([rows.data, rows.old])
        for unread in write_canonical(tape, objects, np.tile(rows.known, 2), encodings, _canonical):
            if self._reading.base64:
                problem = NO_BASE64.format(unread.column)
            elif self._reading.typed is None:
                problem = NO_BYTES
            else:
                column = next(c for c in self._reading.typed.columns if c.name == unread.column)
                problem = misfit(column, tape.text(unread.at) or "")
            problems[int(rows.message[unread.object % rows.message.size])] = problem

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
