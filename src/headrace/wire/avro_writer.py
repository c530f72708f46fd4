"""Arrow columns written in Avro's binary form. The schema is data, as for the reader: one compile serves all schemas.

A column is laid out as lines of one array of numbers and pieces of one array of bytes, a node for each part of it, and
one kernel walks over the nodes once for each row. It never writes after the end of what it was given: it stops at the
row that found no room, and is called for the rest with more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import text_view
from headrace.wire.avro_schema import (
    BOOLEAN,
    ENUM,
    FIXED,
    FLOAT,
    LIST,
    MAP,
    NOTHING,
    RECORD,
    SIZED,
    UNION,
    VARINT,
    AvroSchema,
)
from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U, copy

_TAKEN, _REQUIRED = 20, 21
"""Nodes that a column has and no schema: a dictionary's values by their numbers; a column that may hold no null."""
NO_ROOM, MISFIT = -1, -2
"""Why a value was not written."""
MOST_BYTES = 2**31 - 1


class Columns(NamedTuple):
    """Columns as the kernel takes them, a line for each node.

    `numbers` holds each node's own from `base` on, as many as it has values (`size`): the numbers themselves, where
    texts begin in `data`, where lists begin, branches (and with `index`, the numbers of their values behind them).
    """

    kind: Array
    size: Array
    base: Array
    index: Array
    width: Array
    first: Array
    count: Array
    children: Array
    numbers: Array
    data: Array


class WriteFrames(NamedTuple):
    """What is open while a row is written, outermost first: its node, its value, and how far it is written."""

    node: Array
    value: Array
    done: Array
    end: Array


def write_avro(schema: AvroSchema, column: pa.Array) -> pa.BinaryArray:
    """Each value of a column as an Avro datum, without a frame.

    Records are structs with the schema's fields in its order, enums the numbers of their symbols, unions dense unions
    with type codes in the schema's order; a union of null and one other may be a column of the other, with nulls. Any
    column may be a dictionary.

    Raises:
        ValueError: a value is not what the schema says, or all of them have more than 2 GiB.
    """
    layout = _Layout(schema)
    root = layout.add(schema.root, column)
    columns, frames = layout.columns(), WriteFrames(*(np.zeros(layout.depth + 1, np.int64) for _ in range(4)))
    rows = len(column)
    offsets = np.zeros(rows + 1, np.int32)
    out, row = np.empty(min(MOST_BYTES, columns.data.size + 4 * columns.numbers.size + 64), np.uint8), 0
    while row < rows:
        row, reason = write_rows(columns, root, frames, row, offsets, out)
        if reason == MISFIT:
            raise ValueError(f"value {row} does not match its Avro schema")
        if reason == NO_ROOM:
            if out.size >= MOST_BYTES:
                raise ValueError("the Avro values of one batch have more than 2 GiB")
            out = np.concatenate([out, np.empty(min(out.size + 64, MOST_BYTES - out.size), np.uint8)])
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(out)], 0)


class _Layout:
    """Lays columns out beside the nodes of their schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema.program
        self._lines: list[tuple[int, int, int, int, int, list[int]]] = []
        self._numbers: list[Array] = []
        self._data: list[Array] = []
        self._numbers_end = self._data_end = 0
        self.depth = 0

    def add(self, node: int, column: pa.Array, level: int = 0) -> int:
        self.depth = max(self.depth, level + 1)
        if not len(column):
            return self._line(NOTHING, 0)
        if pa.types.is_dictionary(column.type):
            if column.null_count:
                # Nulls are the values' own, so that only one place says them.
                column = column.dictionary_decode()
            else:
                values = self.add(node, column.dictionary, level)
                return self._line(_TAKEN, len(column), self._number(column.indices), children=[values])
        kind = int(self._schema.kind[node])
        if kind == UNION:
            return self._union(node, column, level)
        if kind == NOTHING:
            return self._line(NOTHING, len(column))
        line = self._plain(node, kind, column, level)
        if not column.null_count:
            return line
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return self._line(_REQUIRED, len(column), self._number(valid), children=[line])

    def _plain(self, node: int, kind: int, column: pa.Array, level: int) -> int:
        children, rows = self._children(node), len(column)
        if kind == RECORD:
            if not pa.types.is_struct(column.type) or column.type.num_fields != len(children):
                raise ValueError(f"a column of {column.type} is not a record of {len(children)} fields")
            fields = [
                self.add(child, field, level + 1) for child, field in zip(children, column.flatten(), strict=True)
            ]
            return self._line(RECORD, rows, children=fields)
        if kind == LIST or kind == MAP:
            items = column.values if kind == LIST else column.items
            held = [] if kind == LIST else [self._sized(column.keys)]
            held.append(self.add(children[0], items, level + 1))
            return self._line(kind, rows, self._number(column.offsets), children=held)
        if kind == VARINT or kind == ENUM:
            # An enum has as many symbols as its node is large; any other number has all of them.
            return self._line(kind, rows, self._number(column), width=int(self._schema.size[node]))
        if kind in (FIXED, FLOAT, BOOLEAN):
            return self._fixed(column, int(self._schema.size[node]))
        return self._sized(column)

    def _union(self, node: int, column: pa.Array, level: int) -> int:
        branches = self._children(node)
        if pa.types.is_union(column.type):
            if column.type.mode != "dense" or column.type.num_fields != len(branches):
                raise ValueError(f"a column of {column.type} is not a dense union of {len(branches)} branches")
            held = [self.add(branch, column.field(n), level) for n, branch in enumerate(branches)]
            base = self._number(column.type_codes)
            return self._line(UNION, len(column), base, index=self._number(column.offsets), children=held)
        others = [branch for branch in branches if self._schema.kind[branch] != NOTHING]
        if len(others) != 1 or len(branches) != 2:
            raise ValueError(f"a column of {column.type} does not say which branch its values are of")
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        plain = self._plain(others[0], int(self._schema.kind[others[0]]), column, level)
        null = self._line(NOTHING, len(column))
        is_first = branches[0] == others[0]
        base = self._number(valid != is_first)
        return self._line(UNION, len(column), base, children=[plain, null] if is_first else [null, plain])

    def _sized(self, column: pa.Array) -> int:
        view = text_view(column)
        first, last = int(view.offsets[0]), int(view.offsets[-1])
        indexes = view.offsets.astype(np.int64) - first + self._data_end
        self._bytes(view.data[first:last])
        return self._line(SIZED, len(column), self._number(indexes))

    def _fixed(self, column: pa.Array, width: int) -> int:
        begin = self._data_end
        if pa.types.is_fixed_size_binary(column.type):
            if column.type.byte_width != width:
                raise ValueError(f"a column of {column.type} is not a fixed value of {width} bytes")
            self._bytes(np.frombuffer(b"".join(value or bytes(width) for value in column.to_pylist()), np.uint8))
        else:
            of_width = np.dtype({1: "u1", 4: "<f4", 8: "<f8"}[width])
            values = column.fill_null(False if width == 1 else 0.0).to_numpy(zero_copy_only=False)
            self._bytes(np.ascontiguousarray(values, of_width).view(np.uint8))
        return self._line(FIXED, len(column), begin, width=width)

    def _children(self, node: int) -> list[int]:
        first, count = int(self._schema.first[node]), int(self._schema.count[node])
        return [int(child) for child in self._schema.children[first : first + count]]

    def _line(
        self, kind: int, size: int, base: int = 0, *, index: int = -1, width: int = 0, children: list[int] | None = None
    ) -> int:
        self._lines.append((kind, size, base, index, width, children or []))
        return len(self._lines) - 1

    def _number(self, values: pa.Array | Array) -> int:
        if isinstance(values, pa.Array):
            values = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
        begin = self._numbers_end
        self._numbers.append(np.asarray(values, np.int64))
        self._numbers_end += len(values)
        return begin

    def _bytes(self, values: Array) -> None:
        self._data.append(values)
        self._data_end += len(values)

    def columns(self) -> Columns:
        """All that was added, as the kernel takes it."""
        kind, size, base, index, width = (np.array(part, np.int64) for part in list(zip(*self._lines, strict=True))[:5])
        counts = np.array([len(line[5]) for line in self._lines], np.int64)
        children = [child for line in self._lines for child in line[5]]
        data = np.concatenate([*self._data, np.zeros(8, np.uint8)])
        data.flags.writeable = False
        return Columns(
            kind,
            size,
            base,
            index,
            width,
            np.cumsum(counts) - counts,
            counts,
            np.array([*children, 0], np.int64),
            np.concatenate([*self._numbers, np.zeros(1, np.int64)]),
            data,
        )


@kernel
def write_rows(columns: Columns, root: Any, frames: WriteFrames, row: Any, offsets: Array, out: Array) -> Any:
    """Write rows from this one on: (the row that was not written, and why; or the number of rows, and 0)."""
    o = np.int64(offsets[row])
    while row < offsets.size - 1:
        o = _write_row(columns, root, frames, row, out, o)
        if o < 0:
            return row, o
        row += 1
        offsets[row] = o
    return row, np.int64(0)


@kernel
def _write_row(columns: Columns, root: Any, frames: WriteFrames, row: Any, out: Array, o: Any) -> Any:
    """Write one row: the index after it, or why it was not written."""
    o, depth = np.int64(o), 0
    node, k = np.int64(root), np.int64(row)
    while True:
        if k < 0 or k >= columns.size[U(node)]:
            return np.int64(MISFIT)
        kind = columns.kind[U(node)]
        base = columns.base[U(node)]
        first = columns.first[U(node)]
        if kind == _TAKEN:
            k = columns.numbers[U(base + k)]
            node = columns.children[U(first)]
            continue
        if kind == _REQUIRED:
            if columns.numbers[U(base + k)] == 0:
                return np.int64(MISFIT)
            node = columns.children[U(first)]
            continue
        if kind == UNION:
            branch = columns.numbers[U(base + k)]
            if branch < 0 or branch >= columns.count[U(node)]:
                return np.int64(MISFIT)
            o = put_varint(out, o, branch)
            if o < 0:
                return o
            if columns.index[U(node)] >= 0:
                k = columns.numbers[U(columns.index[U(node)] + k)]
            node = columns.children[U(first + branch)]
            continue
        if kind == RECORD:
            frames.node[depth], frames.value[depth], frames.done[depth] = node, k, 0
            frames.end[depth] = columns.count[U(node)]
            depth += 1
        elif kind == LIST or kind == MAP:
            begin, end = columns.numbers[U(base + k)], columns.numbers[U(base + k + 1)]
            if end > begin:
                o = put_varint(out, o, end - begin)
                if o < 0:
                    return o
            frames.node[depth], frames.value[depth] = node, k
            frames.done[depth], frames.end[depth] = begin, end
            depth += 1
        else:
            o = _put_leaf(columns, node, kind, base, k, out, o)
            if o < 0:
                return o
        # What comes next: the next field or item of the innermost that is open, once what ended is closed.
        while depth > 0:
            open_ = frames.node[depth - 1]
            kind = columns.kind[U(open_)]
            done = frames.done[depth - 1]
            if done < frames.end[depth - 1]:
                frames.done[depth - 1] = done + 1
                first = columns.first[U(open_)]
                if kind == RECORD:
                    node, k = columns.children[U(first + done)], frames.value[depth - 1]
                    break
                k = done
                if kind == MAP:
                    name = columns.children[U(first)]
                    if k < 0 or k >= columns.size[U(name)]:
                        return np.int64(MISFIT)
                    o = _put_sized(columns, columns.base[U(name)], k, out, o)
                    if o < 0:
                        return o
                    first += 1
                node = columns.children[U(first)]
                break
            if kind != RECORD:
                if o >= out.size:
                    return np.int64(NO_ROOM)
                out[U(o)] = 0
                o += 1
            depth -= 1
        if depth == 0:
            return o


@kernel
def _put_leaf(columns: Columns, node: Any, kind: Any, base: Any, k: Any, out: Array, o: Any) -> Any:
    """Write a value that holds no others: the index after it, or why not."""
    if kind == NOTHING:
        return o
    if kind == VARINT or kind == ENUM:
        number = columns.numbers[U(base + k)]
        if kind == ENUM and (number < 0 or number >= columns.width[U(node)]):
            return np.int64(MISFIT)
        return put_varint(out, o, number)
    if kind == FIXED:
        width = columns.width[U(node)]
        if o + width > out.size:
            return np.int64(NO_ROOM)
        return copy(out, o, columns.data, base + k * width, width)
    return _put_sized(columns, base, k, out, o)


@kernel
def _put_sized(columns: Columns, base: Any, k: Any, out: Array, o: Any) -> Any:
    begin, end = columns.numbers[U(base + k)], columns.numbers[U(base + k + 1)]
    o = put_varint(out, o, end - begin)
    if o < 0 or o + end - begin > out.size:
        return np.int64(NO_ROOM)
    return copy(out, o, columns.data, begin, end - begin)


@kernel
def put_varint(out: Array, o: Any, number: Any) -> Any:
    """Write a number: the index after it, or that there is no room for the longest."""
    if o + 10 > out.size:
        return np.int64(NO_ROOM)
    number = np.int64(number)
    rest = (U(number) << U(1)) ^ U(number >> np.int64(63))
    while rest > U(127):
        out[U(o)] = np.uint8((rest & U(127)) | U(128))
        o += 1
        rest >>= U(7)
    out[U(o)] = np.uint8(rest)
    return o + 1
