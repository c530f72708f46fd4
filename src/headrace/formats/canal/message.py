"""Canal messages of one batch: their fields, and which of them are of rows in the ordinary form."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.formats.json_messages import JsonMessages
from headrace.formats.words import numbered, upper
from headrace.wire.arrays import offsets_of
from headrace.wire.json_exact import ARRAY, FALSE, NULL, OBJECT
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

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
        found = np.full(self.count, -1)
        if (block >= 0).any():
            kinds = tape.kinds(tape.fields(block, _CUT))
            for index, kind in enumerate(kinds):
                found[(kind > NULL) & (kind != FALSE) & (found < 0)] = index
        return found

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
