"""Canal messages of one batch: their fields, and which of them are of rows in the ordinary form."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.formats.words import numbered, upper
from headrace.wire.arrays import offsets_of
from headrace.wire.json_exact import ABSENT, ARRAY, FALSE, NULL, OBJECT
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

DATA = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "INIT": "r"}
"""The types of messages of rows, and the operation of their rows."""
DDL = ("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "DDL")
NO_EVENT = ("QUERY", "GTID", "XACOMMIT", "XAROLLBACK")
HEARTBEAT = "MHEARTBEAT"

_FIELDS = (
    "data", "old", "database", "table", "type", "es", "ts", "id", "gtid", "isDdl", "sql", "pkNames", "mysqlType",
    "sqlType",
)  # fmt: skip
HEAD = {name: line for line, name in enumerate(_FIELDS)}
"""The fields of a message, and the line of `Messages.at` that has their places."""
_NAMES = Names([_FIELDS])
_TYPE_NUMBERS = {kind: number for number, kind in enumerate(DATA)}


class Messages:
    """What the engine found in a batch of messages.

    `ordinary` says which are of rows, and can be read as far as their form goes; `op` is the place of their type in
    `DATA`, `rows` the array of their rows, `old_rows` that of an update's old ones.
    """

    def __init__(self, values: pa.BinaryArray, *, legacy_old: bool = False) -> None:
        self.legacy_old = legacy_old
        self.count = len(values)
        self.tape = Tape(values)
        self.at: Array = self.tape.fields(self.tape.root, _NAMES)
        self.op: Array = self._ops()
        kinds = self.tape.kinds(self.at)
        data, old, keys, ddl = (kinds[HEAD[name]] for name in ("data", "old", "pkNames", "isDdl"))
        is_update = self.op == _TYPE_NUMBERS["UPDATE"]
        has_data = data == ARRAY
        self.rows: Array = np.where(has_data, self.at[HEAD["data"]], self.at[HEAD["old"]])
        self.old_rows: Array = np.where(is_update & (old == ARRAY), self.at[HEAD["old"]], np.int32(-1))
        fine = (self.op >= 0) & np.isin(ddl, (ABSENT, NULL, FALSE)) & np.isin(keys, (ABSENT, NULL, ARRAY))
        fine &= np.isin(data, (ABSENT, NULL, ARRAY)) & np.isin(old, (ABSENT, NULL, ARRAY))
        fine &= has_data | ((old == ARRAY) & ~is_update)
        self.ordinary: Array = fine
        self.ordinary = fine & self._rows_are_fine()

    def _ops(self) -> Array:
        """The place of each message's type in `DATA`; -1 where it has another."""
        return numbered(self.tape.texts(self.at[HEAD["type"]]), _TYPE_NUMBERS, upper)

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

    def text(self, name: str, number: int) -> str | None:
        """The text of a field of one message."""
        return self.tape.text(self.at[HEAD[name], number])

    def items(self, name: str, number: int) -> list[int] | None:
        """The kinds of the items of an array; None where the field is null or absent."""
        at = self.at[HEAD[name], number : number + 1]
        kinds: list[int] = self.tape.kinds(self.tape.items(np.ascontiguousarray(at))[1]).tolist()
        return kinds if self.tape.is_value(at)[0] else None

    def is_form(self, number: int) -> bool:
        """Whether a message is an object whose arrays are arrays, and whose rows are objects or null."""
        if self.tape.root[number] < 0 or self.tape.tokens.kind[self.tape.root[number]] != OBJECT:
            return False
        kinds = self.tape.kinds(np.ascontiguousarray(self.at[:, number]))
        if any(kinds[HEAD[name]] not in (ABSENT, NULL, ARRAY) for name in ("data", "old", "pkNames")):
            return False
        return all(kind in (OBJECT, NULL) for name in ("data", "old") for kind in self.items(name, number) or ())
