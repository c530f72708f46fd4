"""Maxwell messages of one batch: their fields, and which of them are of rows in the ordinary form."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.json_messages import JsonMessages
from headrace.formats.words import lower, numbered
from headrace.wire.json_exact import ARRAY, OBJECT
from headrace.wire.json_writer import string_lists
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

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
