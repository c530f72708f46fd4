"""Debezium's events to change rows.

1. The engine reads keys and values, in JSON without the schemas in front of them (`payload`), in Avro by the schemas
   that they name (`payload`). Rows in the ordinary form and tombstones go on together (`message`); every other
   message is looked at by itself (`others`).
2. What messages say of their tables is read once for each distinct text (`schemas`).
3. Values are written as canonical text (`values`); images, keys and facts become columns (`images`, `facts`). A message
   with a value that can't be read is one `error` row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.images import constant
from headrace.formats.change_columns import schema_ids
from headrace.formats.change_messages import Announcer
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.debezium.facts import fact_columns
from headrace.formats.debezium.images import (
    FieldIndexes,
    FieldLayout,
    doubled,
    either,
    keys_of,
    map_images,
    struct_images,
)
from headrace.formats.debezium.message import OPERATIONS, ROW_OPERATIONS, TOMBSTONE, TRANSACTION, Messages, Rows
from headrace.formats.debezium.others import EVENT_FORM, other_rows
from headrace.formats.debezium.payload import Converter
from headrace.formats.debezium.refused import MARKED_CELLS, has_mark
from headrace.formats.debezium.schemas import UNKNOWN, DecodeSettings, ResolvedTable, TableDescriptor, resolve_table
from headrace.formats.debezium.values import placeholders
from headrace.formats.given_values import misfit, misfits, note_misfits
from headrace.wire.json_exact import OBJECT
from headrace.wire.json_writer import string_lists
from headrace.wire.spans import Array
from headrace.wire.tape import Members, Tape
from headrace.wire.typed import TypedColumn

_D, _T = OPERATIONS.index("d"), OPERATIONS.index("t")
_CODES = constant(ROW_OPERATIONS)


class DebeziumDecoder(Codec):
    """Reads messages; what it remembers is which schemas it knows and has announced.

    Args:
        reading: how messages are read.
        converter: how their keys and values are written.
    """

    def __init__(self, reading: DecodeSettings, converter: Converter) -> None:
        self._reading, self._converter = reading, converter
        self.schema = change_schema(None if reading.typed is None else reading.typed.schema)
        self._numbers: dict[TableDescriptor, int] = {}
        self._known: list[ResolvedTable] = [UNKNOWN]
        self._row_layout, self._key_layout = FieldLayout([None]), FieldLayout([None])
        self._announcer = Announcer(self.schema)
        self._absent = placeholders(reading.placeholder)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = kafka_batch(batch)
        messages = Messages(batch, self._reading, self._converter)
        rows = self._rows(batch, messages)
        problems: dict[int, str] = {}
        whole = self._columns(batch, messages, rows, problems)
        schemas = [None if self._reading.typed is not None else known.schema for known in self._known]
        yield all_rows(
            whole,
            rows.message,
            problems,
            batch,
            lambda number: other_rows(batch, messages, self._reading, number, self._converter),
            announce=lambda of, kept: self._announcer.announce(batch, of, rows.schema_number[kept], schemas),
        )

    def _rows(self, batch: pa.RecordBatch, messages: Messages) -> Rows:
        message = np.flatnonzero(messages.ordinary)
        op = messages.op[message]
        before, after = (
            np.where(messages.tape.is_value(at) & (op != TOMBSTONE), at, np.int32(-1))
            for at in (messages.index(name, message) for name in ("before", "after"))
        )
        key = messages.key.at[message]
        # A key that is a plain text or number names no columns.
        key = np.where(messages.key.tape.kinds(key) == OBJECT, key, np.int32(-1))
        return Rows(message, op, self._identify(batch, messages, message), before, after, key)

    def _identify(self, batch: pa.RecordBatch, messages: Messages, message: Array) -> Array:
        """The number of what each row's table is known as."""
        reading = self._reading
        value, key = messages.value.schema[message], messages.key.schema[message]
        given = reading.tables is not None or reading.typed is not None
        schema_numbers = np.zeros(message.size, np.int64)
        rows = np.arange(message.size) if given else np.flatnonzero((value >= 0) | (key >= 0))
        if not rows.size:
            return schema_numbers
        with_table = message[rows]
        indexes = np.stack([messages.source.index(name, with_table) for name in ("db", "schema", "table")])
        if reading.typed is not None:
            indexes[:] = -1
        groups = messages.tape.groups(indexes)
        topics = batch.column("topic").dictionary_encode()
        topic = topics.indices.fill_null(-1).to_numpy()[with_table]
        numbers = np.stack([value[rows], key[rows], groups.of, topic]).astype(np.int64)
        first, of = _alike(numbers)
        places_of = indexes[:, first]
        texts = [messages.tape.texts(np.ascontiguousarray(line)).to_pylist() for line in places_of]
        numbered = []
        for n, row in enumerate(first):
            parts = (
                None if numbers[0, row] < 0 else self._converter.values.texts[numbers[0, row]],
                None if numbers[1, row] < 0 else self._converter.keys.texts[numbers[1, row]],
                *(line[n] for line in texts),
                None if topic[row] < 0 else topics.dictionary[topic[row]].as_py(),
            )
            told_as = TableDescriptor(*parts)
            if told_as not in self._numbers:
                self._numbers[told_as] = len(self._known)
                self._known.append(resolve_table(told_as, reading))
            numbered.append(self._numbers[told_as])
        if len(self._known) > len(self._row_layout.fields):
            self._row_layout = FieldLayout([known.row for known in self._known])
            self._key_layout = FieldLayout([known.key for known in self._known])
        schema_numbers[rows] = np.array(numbered)[of]
        return schema_numbers

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: Rows, problems: dict[int, str]
    ) -> pa.RecordBatch:
        """The change rows; those of messages with a problem are to be left out."""
        reading, tape, images = self._reading, messages.tape, rows.images
        known, typed = np.tile(rows.known, 2), reading.typed
        # The placeholder of a value that the event leaves out is recognised by its text on the wire, so this comes
        # before canonical texts are written.
        members = tape.members(images) if typed is None else None
        marked = np.zeros(0, np.int64) if members is None else _owners(members, has_mark(tape, members.values))
        carried = None if members is None else ~tape.among(members.values, self._absent)
        lenient = typed is not None
        values = self._row_layout.read(tape, images, known, absent=self._absent, lenient=lenient)
        keys = self._key_layout.read(messages.key.tape, rows.key, rows.known, absent=None, lenient=lenient)
        newest: Array = np.where(rows.after >= 0, rows.after, rows.before)
        wanted = reading.keys if typed is None else typed.schema.key
        use = (rows.key < 0) & (newest >= 0) if typed is None else None
        key = keys_of(messages.key.tape, rows.key, reading.table_field, wanted, (tape, newest, use))
        twice = doubled(tape, images, values, members)
        if typed is not None:
            marked = np.nonzero(has_mark(tape, values.at.reshape(-1)).reshape(values.at.shape))[1]
        for row in marked % max(rows.message.size, 1):
            problems.setdefault(int(rows.message[row]), MARKED_CELLS)
        if reading.tables is not None:
            self._refuse(tape, rows, values, problems)
        self._note(messages, rows, values, keys, twice, key.present, problems)
        given_table = typed.schema.id if typed is not None and typed.schema.id.name else None
        columns = fact_columns(batch, messages, rows, given_table, reading.unwrapped) | {
            "op": _CODES.take(pa.array(rows.op)),
            "key": key.as_maps(),
            "key_text": string_lists(key.offsets, key.texts, key.present),
            "schema_id": schema_ids([known.schema for known in self._known], rows.schema_number),
        }
        if members is not None:
            flat = np.tile(messages.flat[rows.message], 2)
            columns |= map_images(tape, images, members, carried, flat, reading.unwrapped)
        if typed is not None:
            names = [column.name for column in typed.schema.columns]
            at = self._row_layout.columns_at(values, known, names)
            structs, unfit = struct_images(tape, images, at, typed.schema, self.schema.field("before").type)
            columns |= structs
            note_misfits(unfit, columns["key"], rows.message, problems, nulls=reading.nulls)
        deletes = messages.deleted[rows.message]
        if reading.tombstone_as_delete and reading.unwrapped is not None:
            deletes = rows.op == TOMBSTONE
        deletes &= key.present
        if deletes.any():
            columns["op"] = pc.if_else(pa.array(deletes), "d", columns["op"])
            if typed is None:
                columns["before"] = either(deletes, columns["key"], columns["before"])
        return change_batch(columns, self.schema, rows.message.size)

    def _refuse(self, tape: Tape, rows: Rows, values: FieldIndexes, problems: dict[int, str]) -> None:
        """Note the messages with a value that its column can't hold, by the schemas that the user gave as a list."""
        images, known = rows.images, np.tile(rows.known, 2)

        def columns_of(some: Array, names: list[str]) -> Array:
            return self._row_layout.columns_at(values.only(some), known[some], names)

        schemas = [known.schema for known in self._known]
        for image, column, text in misfits(tape, images >= 0, known, schemas, columns_of):
            problems.setdefault(int(rows.message[image % rows.message.size]), misfit(column, text))

    def _note(
        self,
        messages: Messages,
        rows: Rows,
        values: FieldIndexes,
        keys: FieldIndexes,
        twice: Array,
        has_key: Array,
        problems: dict[int, str],
    ) -> None:
        """Note the messages that can't be read, each with the first reason."""
        count, is_data = rows.message.size, rows.op != TOMBSTONE
        reasons = [known.problem for known in self._known]
        if any(reasons):
            for row in np.flatnonzero(is_data & np.array([reason is not None for reason in reasons])[rows.known]):
                problems.setdefault(int(rows.message[row]), reasons[rows.known[row]] or "")
        planned = np.array([known.row is not None for known in self._known])[rows.known]
        failed, lost = (part[:count] | part[count:] for part in (values.failed, twice))
        malformed = np.zeros(count, np.bool_)
        for name in TRANSACTION[1:]:
            at = messages.transaction.index(name, rows.message)
            if (at >= 0).any():
                malformed[TypedColumn(messages.tape, at, pa.int64()).refused] = True
        no_new = (rows.op != _D) & (rows.op != _T) & (rows.after < 0)
        is_delete = (rows.op == _D) | messages.deleted[rows.message]
        nothing = is_delete & (rows.before < 0) & ~has_key
        for reason, wrong in (
            (EVENT_FORM, malformed & is_data),
            ("The value has a field twice.", lost & ~planned),
            ("The value does not follow its schema.", failed | lost),
            ("The key does not follow its schema.", keys.failed),
            ("The event has no new row.", no_new & is_data),
            ("The event has neither an old row nor a key.", nothing),
        ):
            for row in np.flatnonzero(wrong):
                problems.setdefault(int(rows.message[row]), reason)


def _owners(members: Members, chosen: Array) -> Array:
    if not chosen.any():
        return np.zeros(0, np.int64)
    owners: Array = np.repeat(np.arange(members.offsets.size - 1), np.diff(members.offsets))[chosen]
    return owners


def _alike(numbers: Array) -> tuple[Array, Array]:
    """The first column of each kind in a matrix, and the number of each column's kind."""
    of: Array = np.zeros(numbers.shape[1], np.int64)
    for line in numbers:
        least, most = line.min(), line.max()
        if least < most:
            _, of = np.unique(of * (most - least + 1) + (line - least), return_inverse=True)
    _, first = np.unique(of, return_index=True)
    return first, of
