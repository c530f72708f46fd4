"""Qlik's messages to change rows: data messages together, metadata and what can't be read one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.changes.images import constant
from headrace.formats.change_columns import (
    empty_as_null,
    origin_columns,
    schema_ids,
    single_row,
    snapshot_column,
    transaction_column,
)
from headrace.formats.change_messages import Announcer
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.given_tables import Given, canonical, image_columns
from headrace.formats.json_images import ObjectImage, write_canonical
from headrace.formats.qlik.avro_schema import Description
from headrace.formats.qlik.masks import ColumnBits, is_little
from headrace.formats.qlik.message import OPERATIONS, D, Messages, R, U
from headrace.formats.qlik.metadata import MetadataMessage
from headrace.formats.qlik.schemas import DecodeSettings, ResolvedTable, table_parts
from headrace.formats.schema_columns import Numbered, numbers_of
from headrace.wire.arrays import list_array, map_array, map_of, offsets_of
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import instants, integers

_CODES = constant(list(OPERATIONS.values()))
_FACTS = ("changeSequence", "streamPosition", "transactionLastEvent", "externalSchemaId")


@dataclass(frozen=True)
class CapturedImage(ObjectImage):
    """An image without the columns that were not captured: their values' tokens are `gone`."""

    gone: Array

    def fields(self, names: Names, group: Array | None = None) -> Array:
        indexes = super().fields(names, group)
        return np.where((indexes >= 0) & self.gone[indexes], np.int32(-1), indexes)

    def map(self) -> pa.MapArray:
        members = self.tape.members(self.base, self.over)
        kept = ~self.gone[members.values]
        values = np.ascontiguousarray(members.values[kept])
        self.tape.compact(values)
        names = self.tape.texts(np.ascontiguousarray(members.names[kept]))
        offsets = offsets_of(kept)[members.offsets]
        return map_array(offsets, names, self.tape.texts(values), self.present)


class QlikDecoder(Codec):
    """Reads messages; what it remembers is what is known of their tables, and which schemas it has announced.

    Args:
        reading: how messages are read.
        read: finds the messages of a batch.
        described: what Avro's schemas say of columns, by the numbers in `Messages.columns`.
    """

    def __init__(
        self,
        reading: DecodeSettings,
        read: Callable[[pa.RecordBatch], Messages],
        described: Sequence[Description | None] = (),
    ) -> None:
        self._reading, self._read = reading, read
        self.schema = change_schema(reading.given.typed)
        self._known = Numbered[tuple[str | None, ...], ResolvedTable](
            lambda table_facts: ResolvedTable(
                table_facts, None if table_facts[4] is None else described[int(table_facts[4])], reading
            )
        )
        self._announcer = Announcer(self.schema)
        self._schema_numbers: dict[TableSchema | None, int] = {None: 0}

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = kafka_batch(batch)
        messages = self._read(batch)
        tombstones = batch.column("value").is_null().to_numpy(zero_copy_only=False)
        metadata = self._metadata(messages)
        plain = ~tombstones & ~messages.is_metadata
        plain[list(messages.problems)] = False
        known = np.zeros(plain.size, np.int64)
        rows = np.flatnonzero(plain)
        known[rows] = self._identify(messages, rows)
        committed, masks = self._check(messages, plain, known)
        problems = messages.problems
        plain[list(problems)] = False
        rows = np.flatnonzero(plain)
        whole = self._columns(batch, messages, rows, known[rows], committed, masks)
        schema_number = self._numbers_of_schemas()[known[rows]] if rows.size else np.zeros(0, np.int64)
        yield all_rows(
            whole,
            rows,
            problems,
            batch,
            lambda number: [other_row(batch, number, metadata.get(number))],
            announce=lambda of, kept: self._announcer.announce(
                batch, of, schema_number[kept], list(self._schema_numbers)
            ),
        )

    def _metadata(self, messages: Messages) -> dict[int, MetadataMessage]:
        by_message = {}
        for number in map(int, np.flatnonzero(messages.is_metadata)):
            if number in messages.problems:
                continue
            metadata = messages.metadata(number)
            if metadata is None:
                messages.problems[number] = "The metadata message can't be read."
            else:
                by_message[number] = metadata
        return by_message

    def _identify(self, messages: Messages, rows: Array) -> Array:
        picked = pa.array(rows)
        described = messages.columns[rows]
        table_facts = [
            messages.schema_id.take(picked),
            messages.said("schema").take(picked),
            messages.said("table").take(picked),
            pa.nulls(rows.size, pa.string()),
            pa.array(described, mask=described < 0).cast(pa.string()),
        ]
        numbers = numbers_of(self._known, table_facts)
        keyless = np.flatnonzero(np.array([not known.own_key for known in self._known.all] + [False])[numbers])
        if keyless.size:
            # Only then does Kafka's key matter.
            table_facts = [column.take(pa.array(keyless)) for column in table_facts]
            table_facts[3] = messages.key_names(rows[keyless])
            numbers[keyless] = numbers_of(self._known, table_facts)
        return numbers

    def _check(
        self, messages: Messages, plain: Array, known: Array
    ) -> tuple[pa.TimestampArray, tuple[ColumnBits, ColumnBits]]:
        """Notes why messages can't be read; their times and masks."""
        times = pc.utf8_trim(messages.texts("timestamp"), " ")
        committed = instants(Tape.of_texts(times), np.arange(len(times), dtype=np.int32))
        change, column = (ColumnBits(texts) for texts in messages.masks)
        messages.note(plain & ~messages.has_headers, messages.no_headers)
        messages.note(plain & ~messages.has_operation, "The headers have no operation.")
        messages.note(
            plain & (messages.op < 0),
            lambda number: f"Unknown operation: {messages.text('operation', number)[:80]}.",
        )
        unknown = np.array([k.is_unknown for k in self._known.all] + [False])
        messages.note(plain & unknown[known], lambda number: self._known.all[known[number]].unknown)
        bad_time = np.zeros(plain.size, bool)
        bad_time[committed.refused] = True
        bad_time &= ~pc.equal(times, "").fill_null(False).to_numpy(zero_copy_only=False)
        messages.note(
            plain & bad_time, lambda number: f"The timestamp can't be read: {messages.text('timestamp', number)}."
        )
        messages.note(plain & change.malformed, "The changeMask is not hexadecimal text.")
        messages.note(plain & column.malformed, "The columnMask is not hexadecimal text.")
        nothing = (messages.data < 0) & (messages.before < 0)
        messages.note(plain & (messages.op == D) & nothing, "A delete has neither data nor beforeData.")
        messages.note(plain & (messages.op != D) & (messages.data < 0), "The message has no data.")
        return committed.values, (change, column)

    def _numbers_of_schemas(self) -> Array:
        """By what is known of messages, the number of the schema to announce."""
        schemas = [known.announced for known in self._known.all]
        return np.array([self._schema_numbers.setdefault(schema, len(self._schema_numbers)) for schema in schemas])

    def _columns(
        self,
        batch: pa.RecordBatch,
        messages: Messages,
        rows: Array,
        known: Array,
        committed: pa.TimestampArray,
        masks: tuple[ColumnBits, ColumnBits],
    ) -> pa.RecordBatch:
        tape, count, op, nothing = messages.tape, rows.size, messages.op[rows], np.int32(-1)
        data, before = messages.data[rows], messages.before[rows]
        base = np.where(data >= 0, data, before)
        old = np.where(op == U, before, np.where(op == D, base, nothing))
        new = np.where(op == D, nothing, data)
        change, column = masks
        little = self._little(messages, masks, rows, known)
        changed = self._changed(tape, base, rows, known, change, little, op == U)
        gone = self._uncaptured(tape, base, (old, new), rows, known, column, little)
        codes = [k.codes for k in self._known.all]
        write_canonical(tape, np.concatenate([old, new]), np.tile(known, 2), codes, canonical)
        images = [
            ObjectImage.of(tape, at)
            if gone is None
            else CapturedImage(tape, at, np.full(count, nothing, np.int32), gone)
            for at in (old, new)
        ]
        key, key_text = images[1].or_else(images[0]).key([k.key_names for k in self._known.all], known)
        id = empty_as_null(tape.texts(messages.index("transactionId", rows)))
        picked = pa.array(rows)
        facts = [(name, empty_as_null(tape.texts(messages.index(name, rows)))) for name in _FACTS]
        tables = pa.array([k.table for k in self._known.all], self.schema.field("table").type)
        columns: dict[str, pa.Array] = {
            **origin_columns(batch, rows),
            "op": _CODES.take(pa.array(op)),
            "table": tables.take(pa.array(known)),
            "key": key,
            "key_text": key_text,
            "changed": changed,
            "event_time": committed.take(picked),
            "snapshot": snapshot_column(op == R),
            "transaction": transaction_column(
                id, total_order=integers(tape, messages.index("transactionEventCounter", rows))
            ),
            "source": map_of([*facts, ("messageSchemaId", messages.schema_id.take(picked))]),
            "schema_id": schema_ids([k.schema for k in self._known.all], known),
        }
        given = self._reading.given
        checked = Given([k.checked for k in self._known.all], known) if given.tables else None
        columns |= image_columns(
            {"before": images[0], "after": images[1]}, key, given, self.schema, rows, messages.problems, checked
        )
        return change_batch(columns, self.schema, count)

    def _little(self, messages: Messages, masks: tuple[ColumnBits, ColumnBits], rows: Array, known: Array) -> Array:
        """Whether the masks of each row have their least significant byte first."""
        order = self._reading.order
        if order != "auto":
            return np.full(rows.size, order == "little")
        flags = np.zeros(rows.size, bool)
        for row in np.flatnonzero(np.maximum(masks[0].size, masks[1].size)[rows] > 1):
            number = int(rows[row])
            data, before = (_members(messages.tape, at[number]) for at in (messages.data, messages.before))
            differing = None
            if messages.op[number] == U and messages.before[number] >= 0:
                differing = {name for name, text in data.items() if text != before.get(name)}
            names = self._known.all[known[row]].ordinals or list(data or before)
            flags[row] = is_little(*masks, number, names, differing)
        return flags

    def _changed(
        self, tape: Tape, base: Array, rows: Array, known: Array, change: ColumnBits, little: Array, is_update: Array
    ) -> pa.ListArray:
        named = is_update & change.said[rows]
        if not named.any():
            return pa.nulls(rows.size, pa.list_(pa.string()))
        ordinals = [k.ordinals for k in self._known.all]
        has_ordinals = np.array([names is not None for names in ordinals])[known]
        members = tape.members(np.where(named & ~has_ordinals, base, np.int32(-1)))
        flat = pa.array([name for names in ordinals for name in names or ()], pa.string())
        first = offsets_of([len(names or ()) for names in ordinals])
        counts = np.where(has_ordinals, np.diff(first)[known], np.diff(members.offsets))
        counts[~named] = 0
        row = np.repeat(np.arange(rows.size), counts)
        index = np.arange(row.size) - offsets_of(counts)[row]
        at = np.where(has_ordinals[row], first[known][row] + index, len(flat) + members.offsets[:-1][row] + index)
        kept = change.bit(rows[row], index, little[row]) == 1
        names = pa.concat_arrays([flat, tape.texts(members.names)]).take(pa.array(at[kept]))
        there = names.is_valid().to_numpy(zero_copy_only=False)
        counts = np.bincount(row[kept][there], minlength=rows.size)
        return list_array(offsets_of(counts), names.drop_null(), named)

    def _uncaptured(
        self,
        tape: Tape,
        base: Array,
        images: tuple[Array, Array],
        rows: Array,
        known: Array,
        column: ColumnBits,
        little: Array,
    ) -> Array | None:
        """The tokens of nulls that stand for what was not captured: their bits in columnMask are clear."""
        counts = np.array([-1 if k.ordinals is None else len(k.ordinals) for k in self._known.all])[known]
        counts = np.where(counts < 0, tape.field_counts(base), counts)
        masked = column.said[rows] & ~column.is_full(rows, counts, little)
        if not masked.any():
            return None
        gone = np.zeros(tape.tokens.kind.size, bool)
        for at in images:
            members = tape.members(np.where(masked, at, np.int32(-1)))
            entry = np.flatnonzero(~tape.is_value(members.values))
            if not entry.size:
                continue
            row = np.repeat(np.arange(rows.size), np.diff(members.offsets))[entry]
            names = tape.texts(np.ascontiguousarray(members.names[entry]))
            index = entry - members.offsets[row]
            has_ordinals = np.array([k.ordinals is not None for k in self._known.all])[known[row]]
            index[has_ordinals] = self._ordinals(names.filter(pa.array(has_ordinals)), known[row][has_ordinals])
            other = np.flatnonzero(~has_ordinals & (at[row] != base[row]))
            index[other] = _places_in(tape, base, row[other], index[other], names.take(pa.array(other)))
            clear = column.bit(rows[row], index, little[row]) == 0
            gone[members.values[entry[clear]]] = True
        return gone if gone.any() else None

    def _ordinals(self, names: pa.StringArray, known: Array) -> Array:
        """The indexes of columns in their metadata; -1 where that lacks them."""
        codes = names.dictionary_encode()
        words = {name: number for number, name in enumerate(codes.dictionary.to_pylist())}
        indexes = np.full((len(self._known.all), len(words) + 1), -1)
        for number in np.unique(known):
            for index, name in enumerate(self._known.all[number].ordinals or ()):
                indexes[number, words.get(name, -1)] = index
        return indexes[known, codes.indices.to_numpy(zero_copy_only=False)]


def _members(tape: Tape, at: int) -> dict[str, str | None]:
    members = tape.members(np.array([at], np.int32))
    return dict(zip(tape.texts(members.names).to_pylist(), tape.texts(members.values).to_pylist(), strict=True))


def _places_in(tape: Tape, base: Array, row: Array, index: Array, names: pa.StringArray) -> Array:
    """The indexes of names in other objects than their own, in which they mostly stand at the same index."""
    members = tape.members(base)
    at = members.offsets[row] + index
    inside = at < members.offsets[row + 1]
    there = np.where(inside, members.names[np.minimum(at, len(members.names) - 1)], np.int32(-1))
    same = pc.fill_null(pc.equal(tape.texts(np.ascontiguousarray(there)), names), False)
    for n in np.flatnonzero(~same.to_numpy(zero_copy_only=False)):
        here = list(_members(tape, base[row[n]]))
        name = names[int(n)].as_py()
        index[n] = here.index(name) if name in here else -1
    return index


def other_row(batch: pa.RecordBatch, number: int, metadata: MetadataMessage | None) -> dict[str, Any]:
    """The row of a message that is not data: the `schema` row that a metadata message is, else a tombstone."""
    row = single_row(batch, number)
    if metadata is None:
        return row | {"op": "tombstone"}
    schema = metadata.schema
    return row | {
        "op": "schema",
        "table": table_parts(schema.id.schema, schema.id.name),
        "source": [*metadata.source.items(), ("schemaId", metadata.schema_id)],
        "schema_id": schema.fingerprint,
        "table_schema": schema.to_text(),
    }
