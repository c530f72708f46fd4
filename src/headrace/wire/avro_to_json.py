"""Avro messages of many schemas, read onto the tape that the same JSON would give: what reads JSON reads them too.

Records have names, whole numbers are digits, bytes base64, symbols of enums texts. Texts stay where the messages have
them, and an object or array becomes JSON text only where something needs its text.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.wire import avro_reader
from headrace.wire.arrays import own_view
from headrace.wire.avro_reader import FLOATING, TextEncoding
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_tape import frames_of
from headrace.wire.canonical import settled
from headrace.wire.compiled import kernel
from headrace.wire.json_exact import ARRAY, BROKEN, FALSE, NAME, NUMBER, OBJECT, STRING, TRUE
from headrace.wire.json_reader import Tokens
from headrace.wire.json_writer import put_quoted, quoted_size
from headrace.wire.names import Names, as_data
from headrace.wire.spans import Array, U, copy
from headrace.wire.tape import Groups, Tape

_NULL = as_data(b"null")


class AvroJson(Tape):
    """Messages of one batch. A message with bytes after its datum is broken, and so is a text that is not UTF-8.

    Args:
        values: messages as `binary`; together less than 2 GiB.
        heads: how many bytes stand in front of each one's datum.
        schema: of the data.
        which: the number of each one's schema; -1 for what is not to be read.
    """

    def __init__(self, values: pa.BinaryArray, heads: Array, schema: AvroSchema, which: Array) -> None:
        data, offsets, *_ = own_view(values)
        indexes = offsets.astype(np.int64)
        begins, ends = indexes[:-1] + heads, indexes[1:]
        read = which >= 0
        room = 2 * int(schema.tokens[which[read]].sum()) + (4 * data.size if schema.repeats else 0)
        self._start(data, room, len(values))
        program, tokens = schema.program, self.tokens
        out = np.empty(5 * data.size + 64, np.uint8)
        encoding = TextEncoding(out, data.size, data.size + program.names.size)
        roots = np.full(len(values), -1, np.int64)
        roots[read] = schema.roots[which[read]]
        after = np.empty(len(values), np.int64)
        self._depth = schema.depth + 1
        written = avro_reader.read_records(
            data, begins, ends, roots, program, tokens, np.empty(0, np.uint8), frames_of(schema), encoding, self.root,
            self.verdict, after,
        )  # fmt: skip
        self.verdict[after != ends] = BROKEN
        self._forget_unread(values)
        self.append(program.names, out[:written])
        self._write_floats()

    def _write_floats(self) -> None:
        used = int(self.tokens.after[self.root[self.root >= 0]].max(initial=0))
        floats = np.flatnonzero(self.tokens.kind[:used] == FLOATING)
        sizes = self.tokens.size[floats]
        for width, kind in ((4, "<f4"), (8, "<f8")):
            at = floats[sizes == width].astype(np.int32)
            if at.size:
                start = self.tokens.start[at]
                values = self.data[start[:, None] + np.arange(width)].view(kind).reshape(-1)
                self.replace(at, _float_texts(values))
                self.tokens.kind[at] = np.where(np.isfinite(values), NUMBER, STRING)

    def texts(self, at: Array) -> pa.StringArray:
        self._write(at)
        return super().texts(at)

    def among(self, at: Array, texts: Names) -> Array:
        self._write(at)
        return super().among(at, texts)

    def groups(self, at: Array) -> Groups:
        """Rows that have the same text at each line of a matrix of indexes."""
        self._write(at.reshape(-1))
        return super().groups(at)

    def _write(self, at: Array) -> None:
        """Write the objects and arrays at these indexes that have no text yet."""
        nested = self.nested(at)
        nested = np.unique(nested[self.tokens.size[nested] == 0])
        if nested.size:
            out = np.empty(_measure_values(self.tokens, self.data, nested), np.uint8)
            open_ = np.empty((2, self._depth), np.int64)
            written = _write_values(self.data, self.tokens, nested, open_, self.data.size, out)
            self.append(out[:written])


def _float_texts(values: Array) -> pa.StringArray:
    """Numbers with the fewest digits that tell them, as Python writes them; those without digits by their names."""
    texts = pa.array(values).cast(pa.string())
    size = np.abs(values)
    ordinary = ((size >= 1e-4) & (size < 1e10)) | (size == 0)
    whole = pa.array(ordinary & (values == np.rint(values)))
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    rows = np.flatnonzero(~ordinary)
    return settled(texts, rows, [_float_text(float(texts[int(row)].as_py())) for row in rows])


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


@kernel
def _measure_values(tokens: Tokens, data: Array, at: Array) -> Any:
    """How many bytes these values have at most."""
    total = 0
    for r in range(at.size):
        for t in range(at[r], tokens.after[U(at[r])]):
            kind, i = tokens.kind[U(t)], tokens.start[U(t)]
            if kind == STRING or kind == NAME:
                total += 2 + quoted_size(data, i, i + tokens.size[U(t)])
            elif kind == NUMBER:
                total += 1 + tokens.size[U(t)]
            else:
                total += 6
    return total


@kernel
def _write_values(data: Array, tokens: Tokens, at: Array, open_: Array, base: Any, out: Array) -> Any:
    """Write objects and arrays, and let their tokens say where: how many bytes there are."""
    o = np.int64(0)
    for r in range(at.size):
        begin = o
        o = _write_value(data, tokens, np.int64(at[r]), open_, out, o)
        tokens.start[U(at[r])] = base + begin
        tokens.size[U(at[r])] = o - begin
    return o


@kernel
def _write_value(data: Array, tokens: Tokens, t: Any, open_: Array, out: Array, o: Any) -> Any:
    """Write one value; `open_` has the end of each container that is open, and the bracket that closes it."""
    last, depth, fresh = tokens.after[U(t)], 0, True
    while t < last:
        kind, i, size = tokens.kind[U(t)], np.int64(tokens.start[U(t)]), np.int64(tokens.size[U(t)])
        # In an object the comma stands in front of the name.
        if not fresh and (kind == NAME or open_[1, depth - 1] == 93):
            out[U(o)] = 44
            o += 1
        fresh = False
        if kind == NAME:
            o = put_quoted(out, o, data, i, i + size)
            out[U(o)] = 58
            o += 1
        elif kind == STRING:
            o = put_quoted(out, o, data, i, i + size)
        elif kind == NUMBER or kind == TRUE or kind == FALSE:
            o = copy(out, o, data, i, size)
        elif kind == OBJECT or kind == ARRAY:
            out[U(o)] = 123 if kind == OBJECT else 91
            o += 1
            open_[0, depth] = tokens.after[U(t)]
            open_[1, depth] = 125 if kind == OBJECT else 93
            depth += 1
            fresh = True
        else:
            o = copy(out, o, _NULL, 0, 4)
        t += 1
        while depth > 0 and open_[0, depth - 1] == t:
            depth -= 1
            out[U(o)] = open_[1, depth]
            o += 1
            fresh = False
    return o
