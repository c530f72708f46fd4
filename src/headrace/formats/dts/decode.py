"""DTS records to change rows.

1. The engine reads a batch of records by the only schema that exists; what follows one is its last field.
2. What records say of their tables is read once for each distinct text (`schemas`).
3. Values become canonical texts by the branch of their union (`values`); images, keys and facts become columns.

DDL statements, tombstones, fillers and what can't be read are decoded one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.changes.images import constant
from headrace.formats.change_columns import (
    BLANK,
    origin_columns,
    schema_ids,
    single_row,
    snapshot_column,
    transaction_column,
)
from headrace.formats.change_messages import Announcer
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.dts.record import CODES, FIELD, Records, source_column
from headrace.formats.dts.schemas import SOURCE_TYPES, ResolvedTable, Table, TableDescriptor
from headrace.formats.dts.types import kind_of
from headrace.formats.dts.values import DtsValues, ValueReader, typed_image, unfit_values
from headrace.formats.given_tables import TableOptions
from headrace.formats.given_values import UnfitValue, note_misfits
from headrace.formats.schema_columns import Numbered
from headrace.wire.arrays import map_array, offsets_of
from headrace.wire.json_writer import string_lists
from headrace.wire.spans import Array

# Python's datetimes end where Spark's do not.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
_TRUNCATE = re.compile(rf"(?i){BLANK}*+TRUNCATE\b")
_PART = r'(?:`(?:[^`]|``)++`|"(?:[^"]|"")++"|\[[^\]]++\]|[^\s;.`"\[]++)'
_TRUNCATED = re.compile(rf"(?i){BLANK}*+TRUNCATE{BLANK}++(?:TABLE{BLANK}++)?+(?:{_PART}\.)*({_PART})")


def other_row(batch: pa.RecordBatch, records: Records, number: int) -> dict[str, Any]:
    """The row of a message: a tombstone, a filler (its `op` is null), or a statement."""
    row = single_row(batch, number)
    if records.tombstone[number]:
        return row | {"op": "tombstone"}
    return row if records.filler[number] else row | _statement(records, number)


def _statement(records: Records, number: int) -> dict[str, Any]:
    tape = records.tape

    def text(at: int) -> str | None:
        return tape.text(int(at))

    sql = text(records.ddl[number]) or ""
    truncates = _TRUNCATE.match(sql) is not None
    table = Table.of(text(records.at[FIELD["objectName"], number]))
    name = None if table is None else table.name
    if table is not None and name is None and truncates:
        # The record often says the database only.
        name = _truncated(sql)
    rows = np.array([number])
    second = tape.numbers(np.ascontiguousarray(records.at[FIELD["sourceTimestamp"]][rows]))
    is_moment = (second != 0) & (second >= FIRST_SECOND) & (second <= LAST_SECOND)
    txid = text(records.at[FIELD["sourceTxid"], number])
    return {
        "op": "t" if truncates else "schema",
        "table": None if table is None else {"database": table.database, "schema": table.schema, "name": name},
        "event_time": int(second[0]) * 1_000_000 if is_moment[0] else None,
        "transaction": None if txid in ("", "0") else {"id": txid},
        "source": source_column(records, rows, np.ones(1, bool), second, is_moment)[0].as_py(),
    }


def _truncated(sql: str) -> str | None:
    match = _TRUNCATED.match(sql)
    word = match[1] if match is not None else ""
    if word[:1] in ("`", '"'):
        return word[1:-1].replace(word[0] * 2, word[0]) or None
    return (word[1:-1] if word.startswith("[") else word) or None


_OPS = constant([code or None for code in CODES])
_C, _U, _D, _R, _DDL = range(5)
_KINDS = np.array([kind_of(name) for name in SOURCE_TYPES])
UNREADABLE = "The value of column '{}' does not match its type in the record."


@dataclass
class RecordImages:
    """One image of each record: the numbers of its values, as in an Arrow list; `present` where a record has one."""

    present: Array
    offsets: Array
    first: int

    def index(self, row: Array, field: Array) -> Array:
        return self.first + self.offsets[row] + field


class DtsDecoder(Codec):
    """Reads records; what it remembers is which schemas it knows and has announced."""

    def __init__(self, given: TableOptions) -> None:
        self._typed, self._is_given, self._nulls = given.typed, given.is_whole, given.nulls
        self.schema = change_schema(given.typed)
        self._known = Numbered[TableDescriptor, ResolvedTable](lambda told: ResolvedTable(told, given))
        self._announcer = Announcer(self.schema)
        self._schema_numbers: dict[TableSchema | None, int] = {None: 0}

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = kafka_batch(batch)
        records = Records(batch.column("value"))
        problems = records.problems
        plain = (records.op >= 0) & (records.op != _DDL)
        plain[list(problems)] = False
        rows = np.flatnonzero(plain)
        whole, schema_number = self._rows(batch, records, rows, problems)
        schemas = [] if self._is_given else list(self._schema_numbers)
        yield all_rows(
            whole,
            rows,
            problems,
            batch,
            lambda number: [other_row(batch, records, number)],
            announce=lambda of, kept: self._announcer.announce(batch, of, schema_number[kept], schemas),
        )

    def _identify(self, records: Records, rows: Array) -> Array:
        """The number of what each record's table is known as."""
        tape = records.tape
        path = records.at[FIELD["objectName"]]
        descriptors = np.stack([records.source[0], path, records.fields, records.keys])
        schema_numbers = np.zeros(records.op.size, np.int64)
        if not rows.size:
            return schema_numbers
        groups = tape.groups(np.ascontiguousarray(descriptors[:, rows]))
        numbers = []
        for row in rows[groups.first]:
            items = records.field_items[records.field_offsets[row] : records.field_offsets[row + 1]]
            names, kinds = tape.records(items, 2)
            path_text, keys = tape.texts(np.array([path[row], records.keys[row]], np.int32)).to_pylist()
            key = TableDescriptor(
                str(_KINDS[tape.numbers(records.source[0, row : row + 1])[0]]),
                path_text,
                keys,
                tuple(tape.texts(names).to_pylist()),
                tuple(tape.numbers(kinds).tolist()),
            )
            numbers.append(self._known.number(key))
        schema_numbers[rows] = np.array(numbers)[groups.of]
        return schema_numbers

    def _rows(
        self, batch: pa.RecordBatch, records: Records, rows: Array, problems: dict[int, str]
    ) -> tuple[pa.RecordBatch, Array]:
        tape, count = records.tape, rows.size
        known = self._identify(records, rows)[rows]
        op = records.op[rows]
        is_data = op < _DDL
        before, after, at = self._images(records, rows, op)
        of = np.concatenate([np.repeat(np.arange(count), np.diff(image.offsets)) for image in (before, after)])
        field = np.concatenate([_indexes(image.offsets) for image in (before, after)])
        values = self._values(records, rows, at, of, field)
        self._note_unreadable(values, rows, known, of, field, problems)
        schema_number = self._identify_schemas(known, is_data, values, before, after)
        key, key_text = self._key(known, values, before, after)
        second = tape.numbers(np.ascontiguousarray(records.at[FIELD["sourceTimestamp"]][rows]))
        is_moment = (second != 0) & (second >= FIRST_SECOND) & (second <= LAST_SECOND)
        moments = pa.array(second, mask=~is_moment)
        txid = tape.texts(np.ascontiguousarray(records.at[FIELD["sourceTxid"]][rows]))
        has_id = pc.invert(pc.is_in(txid, pa.array(["", "0"])))
        columns: dict[str, pa.Array] = {
            **origin_columns(batch, rows),
            "op": _OPS.take(pa.array(op)),
            "table": self._table(known),
            "key": key,
            "key_text": key_text,
            "event_time": moments.cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC")),
            "snapshot": snapshot_column(op == _R),
            "transaction": transaction_column(txid, has_id),
            "source": source_column(records, rows, op != len(CODES) - 1, second, is_moment),
            "schema_id": schema_ids(list(self._schema_numbers), schema_number),
        }
        for name, image in (("before", before), ("after", after)):
            if self._typed is None:
                columns[name] = self._map(records, rows, image, values)
                refused = self._refused(values, image, known, schema_number) if self._is_given else []
            else:
                index = self._column_indexes(image, known, self._typed)
                columns[name], columns[f"{name}_absent"], refused = typed_image(
                    values, index, image.present, self._typed, self.schema.field(name).type
                )
            note_misfits(refused, key, rows, problems, nulls=self._nulls)
        return change_batch(columns, self.schema, count), schema_number

    def _images(self, records: Records, rows: Array, op: Array) -> tuple[RecordImages, RecordImages, Array]:
        """Both images of each row, and where their values are: those of the old images, then those of the new ones."""
        nothing = np.int32(-1)
        before = np.where(np.isin(op, (_U, _D)), records.before[rows], nothing)
        after = np.where(np.isin(op, (_C, _U, _R)), records.after[rows], nothing)
        old_offsets, old = records.tape.items(before)
        new_offsets, new = records.tape.items(after)
        return (
            RecordImages(before >= 0, old_offsets, 0),
            RecordImages(after >= 0, new_offsets, len(old)),
            np.concatenate([old, new]),
        )

    def _values(self, records: Records, rows: Array, at: Array, of: Array, field: Array) -> DtsValues:
        tape = records.tape
        kinds = tape.numbers(np.ascontiguousarray(records.source[0][rows]))
        position = tape.texts(np.ascontiguousarray(records.at[FIELD["sourcePosition"]][rows]))
        physical = pc.match_substring(position, "<->").to_numpy(zero_copy_only=False)
        usual = np.isin(kinds, [SOURCE_TYPES.index(name) for name in ("MySQL", "PostgreSQL")])
        items = records.field_items[records.field_offsets[rows][of] + field]
        number = tape.numbers(np.ascontiguousarray(tape.records(items, 2)[1]))
        return ValueReader(tape, at, number, _KINDS[kinds][of], (usual & ~physical)[of]).read()

    def _note_unreadable(
        self, values: DtsValues, rows: Array, known: Array, of: Array, field: Array, problems: dict[int, str]
    ) -> None:
        for number in np.flatnonzero(values.unreadable):
            name = self._known.all[known[of[number]]].descriptor.names[field[number]]
            problems.setdefault(int(rows[of[number]]), UNREADABLE.format(name))

    def _number(self, schema: TableSchema | None) -> int:
        return self._schema_numbers.setdefault(schema, len(self._schema_numbers))

    def _identify_schemas(
        self, known: Array, is_data: Array, values: DtsValues, before: RecordImages, after: RecordImages
    ) -> Array:
        """The number of each row's schema: by its fields, and by values whose form is not the expected one."""
        numbers = np.zeros(known.size, np.int64)
        for number in np.unique(known[is_data]):
            table = self._known.all[number]
            rows = np.flatnonzero(is_data & (known == number))
            count = len(table.descriptor.names)
            fields = np.arange(count)
            forms = np.full((rows.size, count), "", "U1")
            # The new image decides, the old one where that has no value.
            for image in (before, after):
                there = image.present[rows]
                have = values.forms[image.index(rows[there][:, None], fields[None, :])]
                given = (have != "") & (have != "N")
                forms[there] = np.where(given, have, forms[there])
            same = (forms == "") | (forms == table.expected[None, :])
            if table.descriptor.kind == "x":
                same |= forms != "b"
            forms[same] = "."
            usual = same.all(axis=1)
            numbers[rows[usual]] = self._number(table.schema("." * count))
            for row in np.flatnonzero(~usual):
                numbers[rows[row]] = self._number(table.schema("".join(forms[row])))
        return numbers

    def _table(self, known: Array) -> pa.StructArray:
        kind = self.schema.field("table").type
        tables = [
            None if k.table is None else {"database": k.table.database, "schema": k.table.schema, "name": k.table.name}
            for k in self._known.all
        ]
        return pa.array([*tables, None], kind).take(pa.array(known))

    def _key(
        self, known: Array, values: DtsValues, before: RecordImages, after: RecordImages
    ) -> tuple[pa.MapArray, pa.StringArray]:
        """The key of the newest image, where that has all its columns."""
        sets = [k.key_names for k in self._known.all]
        width = max(map(len, sets), default=0)
        index = np.full((len(sets) + 1, width), -1, np.int64)
        for number, k in enumerate(self._known.all):
            words = {name: at for at, name in enumerate(k.descriptor.names)}
            index[number, : len(k.key_names)] = [words.get(name, -1) for name in k.key_names]
        sizes = np.array([*map(len, sets), 0])[known]
        fields = index[known]
        row = np.arange(known.size)[:, None]
        at = np.where(
            after.present[:, None],
            after.index(row, fields),
            np.where(before.present[:, None], before.index(row, fields), -1),
        )
        at[fields < 0] = -1
        carried = (at >= 0) & ~values.absent[at] if values.forms.size else np.zeros(at.shape, bool)
        present = (sizes > 0) & (carried.sum(axis=1) == sizes)
        chosen = carried & present[:, None]
        offsets = offsets_of(np.where(present, sizes, 0))
        names = pa.array([name for s in sets for name in s], pa.string())
        begins = offsets_of([*map(len, sets), 0])
        of, column = np.nonzero(chosen)
        texts = values.texts.take(pa.array(at[chosen]))
        keys = names.take(pa.array(begins[known[of]] + column))
        return map_array(offsets, keys, texts, present), string_lists(offsets, texts, present)

    def _map(self, records: Records, rows: Array, image: RecordImages, values: DtsValues) -> pa.MapArray:
        row = np.repeat(np.arange(rows.size), np.diff(image.offsets))
        field = _indexes(image.offsets)
        at = image.first + np.arange(row.size)
        carried = ~values.absent[at]
        items = records.field_items[records.field_offsets[rows][row] + field][carried]
        names = records.tape.texts(np.ascontiguousarray(records.tape.records(items, 1)[0]))
        offsets = offsets_of(np.bincount(row[carried], minlength=rows.size))
        texts = values.texts.slice(image.first, row.size)
        return map_array(offsets, names, texts if carried.all() else texts.filter(pa.array(carried)), image.present)

    def _refused(self, values: DtsValues, image: RecordImages, known: Array, schema_number: Array) -> list[UnfitValue]:
        """The values of maps that the columns of the schemas that the user gave as a list can't hold."""
        refused = []
        for schema, number in self._schema_numbers.items():
            rows = np.flatnonzero(image.present & (schema_number == number))
            if schema is not None and rows.size:
                index = self._column_indexes(image, known, schema)[rows]
                refused += [value._replace(row=int(rows[value.row])) for value in unfit_values(values, index, schema)]
        return refused

    def _column_indexes(self, image: RecordImages, known: Array, schema: TableSchema) -> Array:
        """The number of each column's value; -1 where the image has no such field."""
        index = np.full((len(self._known.all) + 1, len(schema.columns)), -1, np.int64)
        for number, k in enumerate(self._known.all):
            words = {name: at for at, name in enumerate(k.descriptor.names)}
            index[number] = [words.get(column.name, -1) for column in schema.columns]
        fields = index[known]
        at = image.index(np.arange(known.size)[:, None], fields)
        at[(fields < 0) | ~image.present[:, None]] = -1
        return at


def _indexes(offsets: Array) -> Array:
    counts = np.diff(offsets)
    return np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], counts)
