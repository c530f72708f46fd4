"""DTS records of one batch: their fields, what they are, and why some can't be read.

`source` of change rows has what a record's fields and tags say of its source.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.images import constant
from headrace.formats.dts.schemas import OPERATIONS, SOURCE_TYPES, record_schema
from headrace.wire.arrays import joined_maps, map_array, map_of, offsets_of
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_tape import AvroTape
from headrace.wire.json_exact import ARRAY, NULL, STRING
from headrace.wire.json_writer import to_text
from headrace.wire.names import Names
from headrace.wire.spans import Array

FILLER = 48
"""The length of a value with which the broker fills gaps; 48 zero bytes would read as an INSERT."""

_FIELDS = (
    "version", "id", "sourceTimestamp", "sourcePosition", "safeSourcePosition", "sourceTxid", "source", "operation",
    "objectName", "processTimestamps", "tags", "fields", "beforeImages", "afterImages",
)  # fmt: skip
FIELD = {name: index for index, name in enumerate(_FIELDS)}
"""The fields of a record, and their indexes."""

CODES = ("c", "u", "d", "r", "ddl", "begin", "end", "heartbeat", "")
"""What a record can be; the last is not an event."""
_DATA = 4
_OPS = {
    "INSERT": "c", "UPDATE": "u", "DELETE": "d", "INIT": "r", "DDL": "ddl", "COMMAND": "ddl", "BEGIN": "begin",
    "COMMIT": "end", "HEARTBEAT": "heartbeat", "CHECKPOINT": "heartbeat",
}  # fmt: skip
_OP = np.array([CODES.index(_OPS.get(name, "")) for name in OPERATIONS], np.int8)
_COMMAND = OPERATIONS.index("COMMAND")
# Without the last field, which older writers leave out: it is read as what follows the record.
SCHEMA = AvroSchema(record_schema(born=False))
_TAGS = Names([("pk_uk_info", "connector")])


class Records:
    """What the engine found in a batch.

    `problems` says of messages why they can't be read, as far as their values are not looked at; `op` is the index of
    what each is in `CODES`, -1 for what is not a record.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        sizes = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False)
        self.filler: Array = sizes == FILLER
        self.tombstone: Array = sizes < 0
        read = pc.if_else(pa.array(self.filler), pa.scalar(None, pa.binary()), values) if self.filler.any() else values
        self.tape = AvroTape(read, SCHEMA)
        root = self.tape.root
        self.at: Array = self.tape.records(root, len(_FIELDS))
        self.source: Array = self.tape.records(self.at[FIELD["source"]], 2)
        self.born: Array = self.tape.trailing_number()
        self.operation: Array = self.tape.numbers(self.at[FIELD["operation"]])
        self.keys, self.connector = self.tape.fields(self.at[FIELD["tags"]], _TAGS)
        self.tags = self.tape.members(self.at[FIELD["tags"]])
        self.ddl: Array = self._of_kind("afterImages", STRING)
        self.fields: Array = self._of_kind("fields", ARRAY)
        op = np.where(root < 0, -1, _OP[self.operation])
        op[(self.operation == _COMMAND) & (op >= 0) & (self.ddl < 0)] = CODES.index("")
        self.op: Array = op
        self.before: Array = self._of_kind("beforeImages", ARRAY)
        self.after: Array = self._of_kind("afterImages", ARRAY)
        self.field_offsets, self.field_items = self.tape.items(self.fields)
        self.problems = self._problems()

    @property
    def is_data(self) -> Array:
        return (self.op >= 0) & (self.op < _DATA)

    def _of_kind(self, name: str, kind: int) -> Array:
        at = self.at[FIELD[name]]
        return np.where(self.tape.kinds(at) == kind, at, np.int32(-1))

    def _problems(self) -> dict[int, str]:
        problems: dict[int, str] = {}

        def note(mask: Array, sentence: str) -> None:
            for number in np.flatnonzero(mask):
                problems.setdefault(int(number), sentence)

        note((self.op < 0) & ~self.filler & ~self.tombstone, "The value is not a DTS record.")
        note(self._has_broken_text(), "A text of the record is not UTF-8.")
        is_ddl, is_data = self.op == CODES.index("ddl"), self.is_data
        note(is_ddl & (self.ddl < 0), "The DDL record has no statement.")
        path = self._of_kind("objectName", STRING)
        note(is_data & (path < 0), "The record of a row names no table.")
        note(is_data & (self.fields < 0), "The record of a row has no fields.")
        note(is_data & self._repeats_a_name(), "Two fields of the record have the same name.")
        is_delete = self.op == CODES.index("d")
        note(is_data & ~is_delete & (self.after < 0), "The record has no new image.")
        note(is_delete & (self.before < 0), "The record of a delete has no old image.")
        count = np.diff(self.field_offsets)
        for image in (self.before, self.after):
            other = (image >= 0) & (np.diff(self.tape.items(image)[0]) != count)
            note(is_data & other, "An image of the record does not have one value for each field.")
        return problems

    def _has_broken_text(self) -> Array:
        names = ("sourcePosition", "safeSourcePosition", "sourceTxid")
        whole = [self.at[FIELD[name]] for name in names]
        broken = np.zeros(self.op.size, bool)
        for at in (*whole, self.source[1], self._of_kind("objectName", STRING), self.ddl):
            broken |= ~self.tape.is_text(at)
        rows = np.repeat(np.arange(self.op.size), np.diff(self.tags.offsets))
        for part in (self.tags.names, self.tags.values):
            broken[rows[~self.tape.is_text(part)]] = True
        rows = np.repeat(np.arange(self.op.size), np.diff(self.field_offsets))
        broken[rows[~self.tape.is_text(self.tape.records(self.field_items, 1)[0])]] = True
        return broken

    def _repeats_a_name(self) -> Array:
        """Whether two fields of a record have one name; looked at once for records with the same fields."""
        groups = self.tape.groups(np.ascontiguousarray(self.fields[None, :]))
        repeats = []
        for row in groups.first:
            items = self.field_items[self.field_offsets[row] : self.field_offsets[row + 1]]
            names = self.tape.bytes(self.tape.records(items, 1)[0]).to_pylist()
            repeats.append(len(set(names)) < len(names))
        return np.array(repeats, bool)[groups.of]


FACTS = ("connector", "version", "id", "sourcePosition", "safeSourcePosition")
"""What a record says of its source beside the tags, as `source` has it; these stand in every row."""
MORE_FACTS = ("operation", "sourceTimestamp", "bornTimestamp", "processTimestamps", "objectName", "ddl", "tags")
"""Further facts, which stand in a row where they say something."""

_CONNECTORS = np.array(["" if name == "OTHER" else name.lower() for name in SOURCE_TYPES])
_CHECKPOINT = OPERATIONS.index("CHECKPOINT")
_OWN = constant([*FACTS[1:], *MORE_FACTS])


def source_column(records: Records, rows: Array, present: Array, second: Array, is_moment: Array) -> pa.MapArray:
    """The facts of records, and their tags. Where a tag has a fact's name, all tags stand in `tags` too, as JSON.

    Args:
        records: of a batch.
        rows: which of them.
        present: which of these have facts.
        second: their `sourceTimestamp`.
        is_moment: where that is the row's `event_time`.
    """
    tape = records.tape

    def texts(at: Array) -> pa.StringArray:
        return tape.texts(np.ascontiguousarray(at[rows]))

    type_name = pa.array(_CONNECTORS[tape.numbers(np.ascontiguousarray(records.source[0][rows]))])
    facts = map_of(
        [
            ("connector", pc.coalesce(texts(records.connector), type_name)),
            ("version", texts(records.source[1])),
            ("id", pa.array(tape.numbers(np.ascontiguousarray(records.at[FIELD["id"]][rows]))).cast(pa.string())),
            ("sourcePosition", texts(records.at[FIELD["sourcePosition"]])),
            ("safeSourcePosition", texts(records.at[FIELD["safeSourcePosition"]])),
        ]
    )
    tags, hidden = _tags(records, rows)
    return joined_maps([facts, tags, _more(records, rows, second, is_moment, hidden)], present)


def _tags(records: Records, rows: Array) -> tuple[pa.MapArray, pa.StringArray]:
    """The tags that have no name of a fact; and all tags as JSON where some have one."""
    members = records.tape.members(np.ascontiguousarray(records.at[FIELD["tags"]][rows]))
    names, values = records.tape.texts(members.names), records.tape.texts(members.values)
    row = np.repeat(np.arange(rows.size), np.diff(members.offsets))
    is_own = pc.is_in(names, _OWN).to_numpy(zero_copy_only=False)
    kept = ~is_own & ~pc.equal(names, "connector").to_numpy(zero_copy_only=False)
    offsets = offsets_of(np.bincount(row[kept], minlength=rows.size))
    mask = pa.array(kept)
    tags = map_array(offsets, names.filter(mask), values.filter(mask))
    hidden: list[str | None] = [None] * rows.size
    for number in np.unique(row[is_own]):
        here = slice(int(members.offsets[number]), int(members.offsets[number + 1]))
        pairs = dict(zip(names[here].to_pylist(), values[here].to_pylist(), strict=True))
        hidden[number] = to_text(pairs)
    return tags, pa.array(hidden, pa.string())


def _more(records: Records, rows: Array, second: Array, is_moment: Array, hidden: pa.StringArray) -> pa.MapArray:
    tape = records.tape

    def numbers(values: Array, mask: Array) -> pa.StringArray:
        return pa.array(values, mask=~mask).cast(pa.string())

    born = records.born[rows]
    is_checkpoint = pa.array(records.operation[rows] == _CHECKPOINT)
    path = tape.texts(np.ascontiguousarray(records.at[FIELD["objectName"]][rows]))
    long = pc.fill_null(pc.greater(pc.count_substring(path, "."), 2), False)
    # More than the names of a table.
    kept = pc.and_(long, pa.array(records.is_data[rows]))
    return map_of(
        [
            ("operation", pc.if_else(is_checkpoint, "CHECKPOINT", pa.scalar(None, pa.string()))),
            ("sourceTimestamp", numbers(second, ~is_moment & (second != 0))),
            ("bornTimestamp", numbers(born, born != 0)),
            ("processTimestamps", _process_timestamps(records, rows)),
            ("objectName", pc.if_else(kept, path, pa.scalar(None, pa.string()))),
            ("ddl", tape.texts(np.ascontiguousarray(records.ddl[rows]))),
            ("tags", hidden),
        ]
    )


def _process_timestamps(records: Records, rows: Array) -> pa.StringArray:
    at = np.ascontiguousarray(records.at[FIELD["processTimestamps"]][rows])
    times: list[str | None] = [None] * rows.size
    for row in np.flatnonzero(records.tape.kinds(at) != NULL):
        items = records.tape.items(at[row : row + 1])[1]
        times[row] = to_text(records.tape.numbers(items).tolist())
    return pa.array(times, pa.string())
