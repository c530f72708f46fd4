"""Debezium messages of one batch: their fields, and which of them are rows in the ordinary form, or tombstones.

`rows` of these messages come with the members of their objects as texts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.formats.change_columns import numbered
from headrace.formats.debezium.headers import header_words
from headrace.formats.debezium.payload import Converter
from headrace.formats.debezium.refused import foreign_form, is_refused
from headrace.formats.debezium.schemas import DecodeSettings
from headrace.formats.json_messages import JsonMessages
from headrace.wire import tape as tapes
from headrace.wire.arrays import map_array, offsets_of
from headrace.wire.json_exact import ABSENT, ARRAY, NULL, OBJECT, STRING, TRUE
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

OPERATIONS = "rcudt"
"""The operations of rows, each a number: its index. `TOMBSTONE` is the next number."""
TOMBSTONE = len(OPERATIONS)
ROW_OPERATIONS = (*OPERATIONS, "tombstone")

_FIELDS = (
    "before", "after", "source", "op", "transaction", "ts_ms", "message", "status", "id", "event_count",
    "data_collections", "databaseName", "schemaName", "ddl", "tableChanges", "aggregate_type", "type",
)  # fmt: skip
SOURCE = ("db", "schema", "table", "ts_us", "ts_ms", "snapshot", "connector")
"""Fields of source blocks that become columns, or say how rows are written."""
TRANSACTION = ("id", "total_order", "data_collection_order")
"""The fields of a transaction block."""
_CONTROL = Names([("source", "tableChanges", "op", "status", "event_count", "id", "ts_ms", "aggregate_type",
                   "additional_data")])  # fmt: skip
_OBJECTS = ("before", "after", "source", "transaction", "message")
_UNSAID = -2
_CODE = np.full(256, -1, np.int8)
for _index, _letter in enumerate(OPERATIONS):
    _CODE[ord(_letter)] = _index


class Messages(JsonMessages):
    """What the engine found in a batch of messages: their fields, those of their source and transaction blocks.

    `ordinary` says which are rows that can be read as far as their form goes, or tombstones; `op` is each one's number.
    `flat` says which are records of ExtractNewRecordState, whose added fields stand where those of an event would, or
    in headers; `deleted` says which have no value and a header that says that the row was deleted.
    """

    def __init__(self, batch: pa.RecordBatch, reading: DecodeSettings, converter: Converter) -> None:
        self.count = batch.num_rows
        self.key, self.value = converter.read(batch)
        super().__init__(self.value.tape, self.value.at, _FIELDS)
        self.empty: Array = self.value.missing | self.value.empty
        self.flat: Array = np.zeros(self.count, np.bool_)
        self.deleted: Array = np.zeros(self.count, np.bool_)
        prefix = reading.unwrapped
        self._header_op: Array | None = None
        headers = batch.column("headers")
        if prefix is not None and headers.null_count < self.count:
            words = header_words(headers, prefix + "op")
            self._header_op = numbered(words, {letter: n for n, letter in enumerate(OPERATIONS)}, str)
            self._header_op[words.is_null().to_numpy(zero_copy_only=False)] = _UNSAID
            self.deleted = (self.value.missing | self.empty) & (self._header_op == OPERATIONS.index("d"))
        if prefix is not None:
            self.flat = (self.tape.kinds(self.value.at) == OBJECT) & ~self._is_control()
            self.flat &= foreign_form(self.tape, self.value.at) < 0
        self.op: Array = self._codes(self.every("op"))
        self.source = JsonMessages(self.tape, self.every("source"), SOURCE)
        self.transaction = JsonMessages(self.tape, self.every("transaction"), TRANSACTION)
        if prefix is not None and self.flat.any():
            self._lay_out(prefix)
        self.has_source: Array = self.tape.is_value(self.every("source")) | self.flat
        self.form: Array = (self.tape.kinds(self.value.at) == OBJECT) & self.holds(OBJECT, *_OBJECTS)
        self.ordinary: Array = self._ordinary()

    def _is_control(self) -> Array:
        """Whether a message is none that the transform flattens, so that it passes it as it is."""
        is_control = self.tape.fields(self.value.at, _CONTROL) >= 0
        source, changes, op, status, count, id, ts_ms, kind, data = is_control
        edge = status & count & id & np.isin(self._words("status"), (b"BEGIN", b"END"))
        heartbeat = ts_ms & (self.tape.field_counts(self.value.at) == 1)
        control: Array = (source & (changes | op)) | edge | heartbeat | (kind & data)
        return control

    def _words(self, name: str) -> Array:
        texts = self.texts(name).to_pylist()
        return np.array([b"" if text is None else text.encode() for text in texts])

    def _lay_out(self, prefix: str) -> None:
        """Put a flat record's added fields where those of an event stand."""
        flat, tape = self.flat, self.tape
        added = ["op", "deleted", "ts_ms", *(f"source_{name}" for name in SOURCE)]
        added += [name for name in SOURCE if name != "ts_ms"] + [f"transaction_{name}" for name in TRANSACTION]
        line = {name: number for number, name in enumerate(added)}
        rows = np.where(flat, self.value.at, np.int32(-1)).astype(np.int32)
        members = tape.fields(rows, Names([[prefix + name for name in added]]))
        self.at[:, flat] = -1
        deleted = np.ascontiguousarray(members[line["deleted"]])
        is_deleted = (tape.kinds(deleted) == TRUE) | tape.among(deleted, Names([("true",)]))
        op = self._codes(np.ascontiguousarray(members[line["op"]]))
        unsaid = tape.kinds(members[line["op"]]) <= NULL
        op[unsaid] = OPERATIONS.index("c")
        if self._header_op is not None:
            in_header = unsaid & (self._header_op != _UNSAID)
            op[in_header] = self._header_op[in_header]
        op[is_deleted] = OPERATIONS.index("d")
        self.op = np.where(flat, op, self.op)
        self.every("op")[flat] = members[line["op"]][flat]
        is_delete = self.op == OPERATIONS.index("d")
        self.every("before")[flat & is_delete] = self.value.at[flat & is_delete]
        held = flat & ~is_delete & (self.op != OPERATIONS.index("t"))
        self.every("after")[held] = self.value.at[held]
        self.every("ts_ms")[flat] = members[line["ts_ms"]][flat]
        for name in SOURCE:
            first = members[line[f"source_{name}"]]
            second = members[line[name]] if name != "ts_ms" else np.full(self.count, -1, np.int32)
            self.source.every(name)[flat] = np.where(first >= 0, first, second)[flat]
        for name in TRANSACTION:
            self.transaction.every(name)[flat] = members[line[f"transaction_{name}"]][flat]

    def _codes(self, at: Array) -> Array:
        """The number of each operation; -1 where it is another word."""
        short = (self.tape.kinds(at) == STRING) & (self.tape.tokens.size[at] == 1)
        letters = self.tape.data[np.where(short, self.tape.tokens.start[at], 0)] if self.tape.data.size else at
        return np.where(short, _CODE[letters], np.int8(-1))

    def _ordinary(self) -> Array:
        rows = self.form & (self.op >= 0)
        image = self.tape.is_value(self.every("before")) | self.tape.is_value(self.every("after"))
        rows &= self.flat | ~is_refused(self.tape, self.source.every("connector"))
        rows &= self.has_source | image | (self.op == OPERATIONS.index("t"))
        keys = self.key.tape.kinds(self.key.at)
        is_ordinary: Array = (rows | self.empty) & (self.key.missing | ((keys != ARRAY) & (keys != ABSENT)))
        self.op = np.where(self.empty, np.int8(TOMBSTONE), self.op)
        return is_ordinary


@dataclass
class Rows:
    """The rows of a batch's ordinary messages, each of one message.

    Args:
        message: which message each row is of.
        op: a number of `ROW_OPERATIONS`.
        known: which of the decoder's known schemas it follows.
        before: its old image; -1 where it has none.
        after: its new image.
        key: its key.
    """

    message: Array
    op: Array
    known: Array
    before: Array
    after: Array
    key: Array

    @property
    def schema_number(self) -> Array:
        """Which of the known schemas each row follows that says one; 0, which is none, for tombstones."""
        return np.where(self.op == TOMBSTONE, 0, self.known)

    @property
    def images(self) -> Array:
        """The old images, and after them the new ones."""
        return np.concatenate([self.before, self.after])


@dataclass
class MemberTexts:
    """The members of a column of objects, as texts."""

    offsets: Array
    names: pa.StringArray
    texts: pa.StringArray
    present: Array

    @classmethod
    def of(cls, tape: Tape, members: tapes.Members, kept: Array, present: Array) -> MemberTexts:
        if kept.all():
            return cls(members.offsets, tape.texts(members.names), tape.texts(members.values), present)
        names, values = np.ascontiguousarray(members.names[kept]), np.ascontiguousarray(members.values[kept])
        return cls(offsets_of(kept)[members.offsets], tape.texts(names), tape.texts(values), present)

    def with_others(self, other: MemberTexts) -> MemberTexts:
        counts = np.where(other.present, np.diff(other.offsets), np.where(self.present, np.diff(self.offsets), 0))
        begins = np.where(other.present, other.offsets[:-1] + len(self.names), self.offsets[:-1])
        offsets = offsets_of(counts)
        order = pa.array(np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], counts))
        names = pa.concat_arrays([self.names, other.names]).take(order)
        texts = pa.concat_arrays([self.texts, other.texts]).take(order)
        return MemberTexts(offsets, names, texts, self.present | other.present)

    def as_maps(self) -> pa.MapArray:
        return map_array(self.offsets, self.names, self.texts, self.present)
