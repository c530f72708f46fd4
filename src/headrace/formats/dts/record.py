"""DTS records of one batch: their fields, what they are, and why some can't be read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.dts.schema import OPERATIONS, record_schema
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_tape import AvroTape
from headrace.wire.json_exact import ARRAY, STRING
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
        """Which are of a row."""
        return (self.op >= 0) & (self.op < _DATA)

    def _of_kind(self, name: str, kind: int) -> Array:
        at = self.at[FIELD[name]]
        return np.where(self.tape.kinds(at) == kind, at, np.int32(-1))

    def _problems(self) -> dict[int, str]:
        found: dict[int, str] = {}

        def note(mask: Array, sentence: str) -> None:
            for number in np.flatnonzero(mask):
                found.setdefault(int(number), sentence)

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
        return found

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
