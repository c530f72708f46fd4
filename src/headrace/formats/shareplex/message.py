"""SharePlex messages of one batch: what they say, and which of them are of rows in the ordinary form.

| operation | `data` | `key` | change row |
|---|---|---|---|
| insert | the new row | | `after` = data |
| update | the changed columns | the old row | `before` = key, `after` = key overlaid with data |
| update without key | what it has | | `after` = data, no `before` |
| delete | the old row (else in key) | | `before` |
| update before, update after | the old row, the new row | | one update, where both stand in one task |

A column that stands in `data` as null was set to null; one that does not stand there did not change.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.json_messages import JsonMessages, filled
from headrace.formats.words import numbered, upper
from headrace.wire.json_exact import ABSENT, NULL, OBJECT
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn, instants, integers

_WORDS = {
    "c": ("INS", "INSERT"),
    "u": ("UPD", "UPDATE"),
    "d": ("DEL", "DELETE"),
    "old": ("UPDATE BEFORE",),
    "new": ("UPDATE AFTER",),
    "t": ("TRUNC", "TRUNCATE"),
    "drop": ("DROP COLUMN",),
    "ddl": ("DDL",),
    "end": ("COMMIT",),
}
KINDS = list(_WORDS)
C, U, D, OLD, NEW = range(5)
"""The kinds of messages of rows, as indexes in `KINDS`; what is behind them is looked at one by one."""
_KIND_NUMBERS = {word: number for number, kind in enumerate(KINDS) for word in _WORDS[kind]}

_PARTS = Names([("meta", "data", "key")])
META = ("time", "userid", "op", "scn", "rowid", "trans", "seq", "size", "table", "idx", "posttime")
"""What `meta` may hold."""
_PART = r'(?:"(?:[^"]|"")+"|[^."]+)'
_TABLE = re.compile(rf"{_PART}(?:[.]{_PART}){{0,2}}")
_EACH_PART = re.compile(_PART)
TABLE = pa.struct([("database", pa.string()), ("schema", pa.string()), ("name", pa.string())])


class Messages(JsonMessages):
    """What the engine found in a batch of messages.

    `kind` is the index of an operation in `KINDS`, -1 where it is none; `data` and `key` are objects that have members,
    because an empty one says as little as none. `ordinary` says which are of rows and can be read.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        tape = Tape(values)
        parts = tape.fields(tape.root, _PARTS)
        super().__init__(tape, parts[0], META)
        self.has_meta: Array = tape.is_value(parts[0])
        are_objects = np.isin(tape.kinds(parts), (ABSENT, NULL, OBJECT)).all(axis=0)
        self.is_form: Array = (tape.kinds(tape.root) == OBJECT) & are_objects
        self.data, self.key = (filled(tape, part) for part in parts[1:])
        self.kind: Array = numbered(self.texts("op"), _KIND_NUMBERS, _normal)
        is_row = self.kind >= 0
        is_row &= self.kind <= NEW
        has_image: Array = (self.data >= 0) | ((self.kind != C) & (self.key >= 0))
        self.times = self._times()
        self.tables, self.bad_tables = self._tables()
        self.bad_times: Array = np.zeros(len(values), bool)
        self.bad_times[self.times.refused] = True
        self.ordinary: Array = self.is_form & is_row & has_image & ~self.bad_times & ~self.bad_tables

    def _times(self) -> TypedColumn:
        """The commit times, in UTC where they say no zone. What is blank is none."""
        at = self.every("time").copy()
        blank = pc.fill_null(pc.equal(pc.utf8_trim(self.tape.texts(at), " "), ""), False)
        at[blank.to_numpy(zero_copy_only=False)] = -1
        return instants(self.tape, at)

    def _tables(self) -> tuple[pa.StructArray, Array]:
        """The tables, null where a message says none, and which can't be read."""
        found = self.texts("table").dictionary_encode()
        parts = [table_of(text) for text in found.dictionary.to_pylist()]
        bad = np.array([*(part is None for part in parts), False])
        lines = [None if part is None else dict(zip(TABLE.names, part, strict=True)) for part in parts]
        indices = found.indices.fill_null(len(parts))
        return pa.array([*lines, None], TABLE).take(indices), bad[indices.to_numpy(zero_copy_only=False)]

    def numbers(self, name: str, rows: Array) -> pa.Int64Array:
        """`seq` or `size` of some messages, else its part of `idx`."""
        own = integers(self.tape, self.index(name, rows))
        if not own.null_count:
            return own
        parts = pc.extract_regex(self.texts("idx", rows), r"^\s*(?P<seq>[0-9]{1,18})/(?P<size>[0-9]{1,18})\s*$")
        return pc.coalesce(own, pc.struct_field(parts, name).cast(pa.int64()))

    def members(self, at: int) -> dict[str, str | None]:
        """The members of one object; none where there is no object."""
        found = self.tape.members(np.array([at], np.int32))
        self.tape.compact(found.values)
        names, values = self.tape.texts(found.names), self.tape.texts(found.values)
        return dict(zip(names.to_pylist(), values.to_pylist(), strict=True))


def _normal(word: str) -> str:
    """An operation as it stands in the list: in capitals, with blanks."""
    return upper(word.strip(" ")).replace("_", " ")


def table_of(text: str) -> tuple[str | None, str | None, str] | None:
    """`OWNER.TABLE`, the table alone, or three parts, quoted or not; None where it is none of them."""
    if not _TABLE.fullmatch(text):
        return None
    parts = [p[1:-1].replace('""', '"') if p.startswith('"') else p for p in _EACH_PART.findall(text)]
    return (parts[-3] if len(parts) > 2 else None, parts[-2] if len(parts) > 1 else None, parts[-1])
