"""GoldenGate messages of one batch: their fields, and which of them are of rows in the ordinary form."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.changes import TableId
from headrace.formats.change_columns import numbered, upper
from headrace.formats.json_messages import JsonMessages, filled
from headrace.wire.json_exact import ARRAY, OBJECT
from headrace.wire.json_writer import string_lists
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

OPERATIONS = {"I": "c", "U": "u", "D": "d", "T": "t"}
"""The letters of operations, and what they are in change rows."""
FACTS = ("pos", "csn", "xid", "current_ts", "tokens")
"""Fields that a row's `source` keeps by their names."""

_FIELDS = ("table", "op_type", "op_ts", "primary_keys", "before", "after", *FACTS)
_LETTER_NUMBERS = {letter: number for number, letter in enumerate(OPERATIONS)}
_C, _U, _D, _T = range(4)


class Messages(JsonMessages):
    """What the engine found in a batch of messages.

    `ordinary` says which are of rows and can be read; `op` is the index of their letter in `OPERATIONS`, `before` and
    `after` their images. An object without members is not an image: GoldenGate writes one where there is nothing to
    say.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        tape = Tape(values)
        super().__init__(tape, tape.root, _FIELDS)
        self.op: Array = numbered(self.texts("op_type"), _LETTER_NUMBERS, upper)
        is_object = tape.kinds(tape.root) == OBJECT
        self.is_form: Array = is_object & self.holds(OBJECT, "before", "after") & self.holds(ARRAY, "primary_keys")
        self.before, self.after = (filled(tape, self.every(name)) for name in ("before", "after"))
        needed: Array = np.where(self.op == _D, self.before, self.after)
        self.ordinary: Array = self.is_form & np.isin(self.op, (_C, _U, _D)) & (needed >= 0)

    def key_names(self, rows: Array) -> pa.StringArray:
        """The key columns that messages name, as JSON arrays; null where they name none."""
        offsets, items = self.tape.items(self.index("primary_keys", rows))
        return string_lists(offsets, self.tape.texts(items), np.diff(offsets) > 0)

    def is_row_form(self, number: int) -> bool:
        """Whether a message has neither an image before nor one after, and columns beside its own fields."""
        if self.op[number] == _T or self.every("before")[number] >= 0 or self.every("after")[number] >= 0:
            return False
        counts = self.tape.field_counts(self.tape.root[number : number + 1])
        return bool(counts[0] > (self.at[:, number] >= 0).sum())

    def tables(self, rows: Array) -> pa.StructArray:
        codes = self.tape.texts(self.index("table", rows)).dictionary_encode()
        ids = [table_of(text) for text in codes.dictionary.to_pylist()]
        lines = [{"database": id.database, "schema": id.schema, "name": id.name} for id in ids]
        kind = pa.struct([("database", pa.string()), ("schema", pa.string()), ("name", pa.string())])
        nowhere = {"database": "", "schema": "", "name": ""}
        return pa.array([*lines, nowhere], kind).take(codes.indices.fill_null(len(lines)))


def table_of(text: str) -> TableId:
    """A table's name is read from its end: the name, its schema, and the container before them."""
    *database, schema, name = ["", *text.split(".")]
    return TableId(".".join(part for part in database if part), schema, name)
