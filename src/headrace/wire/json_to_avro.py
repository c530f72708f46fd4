"""JSON values written as Avro of many schemas: what an Avro converter writes where a JSON converter wrote the tape.

Members of objects are found by the names of fields, and those that an object lacks are null. Bytes stand in base64, and
numbers without digits as their names. A kernel walks over the schema and the tape at once; at a value that finds no
room it stops, and is called again with more. Numbers of 4 and 8 bytes are put into their indexes afterwards.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.wire.avro_schema import (
    BOOLEAN,
    FLOAT,
    LIST,
    MAP,
    NOTHING,
    RECORD,
    SIZED,
    TEXT,
    UNION,
    VARINT,
    AvroSchema,
    Program,
)
from headrace.wire.avro_writer import MISFIT, MOST_BYTES, NO_ROOM, put_varint
from headrace.wire.compiled import kernel
from headrace.wire.json_exact import ARRAY, ESCAPED, FALSE, NAME, NULL, NUMBER, OBJECT, STRING, TRUE
from headrace.wire.json_reader import Tokens
from headrace.wire.spans import SIXTY_FOUR, Array, U, byte, copy, put_unescaped, same
from headrace.wire.tape import Tape
from headrace.wire.typed_exact import value_of

_VALUE = np.full(256, -1, np.int64)
_VALUE[SIXTY_FOUR] = np.arange(64)
_LONGEST_SIZE = 5
_MOST_LESS = np.int64(-(2**63 // 10))


class _Frames(NamedTuple):
    """What is open while a value is written, outermost first: its node, its token, the next member, the next field.

    The last line of `field` has the index of the field that is written, among the names of the schema.
    """

    node: Array
    token: Array
    member: Array
    field: Array


class _Floats(NamedTuple):
    """The numbers that are left to be put into their indexes: their tokens, where they go, and their bytes."""

    token: Array
    index: Array
    width: Array


def json_to_avro(tape: Tape, at: Array, schema: AvroSchema, which: Array) -> pa.BinaryArray:
    """Values as Avro data, without a frame; null where there is none.

    Args:
        tape: where they are.
        at: their indexes; -1 for none.
        schema: of all of them. Unions are of null and one other.
        which: the number of each one's schema.

    Raises:
        ValueError: a value is not what its schema says, or all of them have more than 2 GiB.
    """
    rows = at.size
    roots = np.where(at >= 0, schema.roots[which] if schema.roots.size else 0, -1)
    frames = _Frames(*(np.full(schema.depth + 2, -1, np.int64) for _ in range(4)))
    used = int(tape.tokens.after[at[at >= 0]].max(initial=0))
    floats = _Floats(*(np.empty(used + 1, np.int64) for _ in range(3)))
    offsets = np.zeros(rows + 1, np.int32)
    out, row, count = np.empty(tape.data.size + 16 * rows + 64, np.uint8), 0, 0
    while row < rows:
        row, count, reason = _write_rows(
            tape.data, tape.tokens, at, roots, schema.program, frames, floats, row, count, offsets, out
        )
        if reason == MISFIT:
            raise _misfit(_field(schema.program, int(frames.field[-1])))
        if reason == NO_ROOM:
            if out.size >= MOST_BYTES:
                raise ValueError("the Avro values of one batch have more than 2 GiB")
            out = np.concatenate([out, np.empty(min(out.size + 64, MOST_BYTES - out.size), np.uint8)])
    _put_floats(tape, floats, count, out)
    missing = np.packbits(at >= 0, bitorder="little")
    return pa.Array.from_buffers(pa.binary(), rows, [pa.py_buffer(missing), pa.py_buffer(offsets), pa.py_buffer(out)])


def _field(schema: Program, index: int) -> str | None:
    if index < 0:
        return None
    start, size = schema.name_start[index], schema.name_size[index]
    name: str = schema.names[start : start + size].tobytes().decode()
    return name


def _misfit(field: str | None) -> ValueError:
    return ValueError(f"{'a value' if field is None else f'field {field!r}'} does not match its Avro schema")


def _put_floats(tape: Tape, floats: _Floats, count: int, out: Array) -> None:
    for width, kind in ((4, pa.float32()), (8, pa.float64())):
        rows = np.flatnonzero(floats.width[:count] == width)
        if rows.size:
            values = _numbers(tape, floats.token[rows].astype(np.int32), kind)
            data = np.ascontiguousarray(values.to_numpy(), f"<f{width}").view(np.uint8).reshape(-1, width)
            out[floats.index[rows][:, None] + np.arange(width)] = data


def _numbers(tape: Tape, at: Array, kind: pa.DataType) -> pa.Array:
    texts = tape.texts(at)
    try:
        values = texts.cast(kind)
        if not np.isinf(values.to_numpy()).any():
            return values
    except pa.ArrowInvalid:
        pass
    encoded = [value_of(text, kind) for text in texts.to_pylist()]
    if None in encoded:
        index = int(at[encoded.index(None)])
        raise _misfit(tape.text(index - 1) if tape.tokens.kind[index - 1] == NAME else None)
    return pa.array(encoded, kind)


@kernel
def _write_rows(
    data: Array,
    tokens: Tokens,
    at: Array,
    roots: Array,
    schema: Program,
    frames: _Frames,
    floats: _Floats,
    row: Any,
    count: Any,
    offsets: Array,
    out: Array,
) -> Any:
    """Write rows from this one on: (the row that was not written, how many numbers are left, and why)."""
    o, row, count = np.int64(offsets[row]), np.int64(row), np.int64(count)
    while row < at.size:
        if at[row] >= 0:
            written, size = _write_value(data, tokens, at[row], roots[row], schema, frames, floats, count, out, o)
            if written < 0:
                return row, count, written
            o, count = written, size
        row += 1
        offsets[row] = o
    return row, count, np.int64(0)


@kernel
def _write_value(
    data: Array,
    tokens: Tokens,
    t: Any,
    node: Any,
    schema: Program,
    frames: _Frames,
    floats: _Floats,
    count: Any,
    out: Array,
    o: Any,
) -> Any:
    """Write one value: (the index after it, or why it was not written; how many numbers are left)."""
    t, node, depth = np.int64(t), np.int64(node), 0
    while True:
        kind = schema.kind[U(node)]
        token = NULL if t < 0 else tokens.kind[U(t)]
        if kind == UNION:
            branch = _branch(schema, node, token == NULL)
            if branch < 0:
                return np.int64(MISFIT), count
            o = put_varint(out, o, branch)
            if o < 0:
                return o, count
            node = np.int64(schema.children[U(schema.first[U(node)] + branch)])
            continue
        if kind == RECORD or kind == MAP or kind == LIST:
            if token != (ARRAY if kind == LIST else OBJECT) or depth >= frames.node.size - 1:
                return np.int64(MISFIT), count
            if kind != RECORD and tokens.after[U(t)] > t + 1:
                o = put_varint(out, o, _members(tokens, t, kind))
                if o < 0:
                    return o, count
            frames.node[depth], frames.token[depth] = node, t
            frames.member[depth], frames.field[depth] = t + 1, 0
            depth += 1
        elif kind == FLOAT:
            width = np.int64(schema.size[U(node)])
            if token != NUMBER and token != STRING:
                return np.int64(MISFIT), count
            if o + width > out.size:
                return np.int64(NO_ROOM), count
            floats.token[count], floats.index[count], floats.width[count] = t, o, width
            count += 1
            o += width
        else:
            o = _put_leaf(data, tokens, t, kind, token, out, o)
            if o < 0:
                return o, count
        # What comes next: the next field, item or value of the innermost that is open, once what ended is closed.
        while depth > 0:
            open_ = frames.node[depth - 1]
            kind, first = schema.kind[U(open_)], np.int64(schema.first[U(open_)])
            whole, member = frames.token[depth - 1], frames.member[depth - 1]
            if kind == RECORD:
                field = frames.field[depth - 1]
                if field < schema.count[U(open_)]:
                    frames.field[depth - 1] = field + 1
                    frames.field[frames.field.size - 1] = first + field
                    node = np.int64(schema.children[U(first + field)])
                    t = _value_of(data, tokens, whole, member, schema, first + field)
                    if t >= 0:
                        frames.member[depth - 1] = tokens.after[U(t)]
                    break
            elif member < tokens.after[U(whole)]:
                node, t = np.int64(schema.children[U(first)]), member
                if kind == MAP:
                    o = _put_text(data, tokens, member, out, o)
                    if o < 0:
                        return o, count
                    t = member + 1
                frames.member[depth - 1] = tokens.after[U(t)]
                break
            else:
                if o >= out.size:
                    return np.int64(NO_ROOM), count
                out[U(o)] = 0
                o += 1
            depth -= 1
        if depth == 0:
            return o, count


@kernel
def _branch(schema: Program, node: Any, is_null: Any) -> Any:
    """The index of a union's branch for null, or for what is not; -1 where it has none."""
    for branch in range(schema.count[U(node)]):
        child = schema.children[U(schema.first[U(node)] + branch)]
        if (schema.kind[U(child)] == NOTHING) == is_null:
            return np.int64(branch)
    return np.int64(-1)


@kernel
def _members(tokens: Tokens, t: Any, kind: Any) -> Any:
    """How many items an array has, or members an object."""
    count, k, end = np.int64(0), t + 1, tokens.after[U(t)]
    while k < end:
        k = np.int64(tokens.after[U(k + 1 if kind == MAP else k)])
        count += 1
    return count


@kernel
def _value_of(data: Array, tokens: Tokens, whole: Any, member: Any, schema: Program, field: Any) -> Any:
    """The token of a field's value: the next member's, or that of any other; -1 where the object has none."""
    start, size = np.int64(schema.name_start[U(field)]), np.int64(schema.name_size[U(field)])
    end = np.int64(tokens.after[U(whole)])
    if member < end and _is_name(data, tokens, member, schema, start, size):
        return np.int64(member + 1)
    t = np.int64(whole + 1)
    while t < end:
        if _is_name(data, tokens, t, schema, start, size):
            return t + 1
        t = np.int64(tokens.after[U(t + 1)])
    return np.int64(-1)


@kernel
def _is_name(data: Array, tokens: Tokens, t: Any, schema: Program, start: Any, size: Any) -> Any:
    return tokens.size[U(t)] == size and same(data, np.int64(tokens.start[U(t)]), schema.names, start, size)


@kernel
def _put_leaf(data: Array, tokens: Tokens, t: Any, kind: Any, token: Any, out: Array, o: Any) -> Any:
    """Write a value that holds no others: the index after it, or why not."""
    if kind == NOTHING:
        return o if token == NULL else np.int64(MISFIT)
    if kind == TEXT:
        return _put_text(data, tokens, t, out, o) if token == STRING or token == ESCAPED else np.int64(MISFIT)
    if kind == BOOLEAN and (token == TRUE or token == FALSE):
        if o >= out.size:
            return np.int64(NO_ROOM)
        out[U(o)] = 1 if token == TRUE else 0
        return o + 1
    if kind == VARINT and token == NUMBER:
        return _put_number(data, np.int64(tokens.start[U(t)]), np.int64(tokens.size[U(t)]), out, o)
    if kind == SIZED and token == STRING:
        return _put_bytes(data, np.int64(tokens.start[U(t)]), np.int64(tokens.size[U(t)]), out, o)
    return np.int64(MISFIT)


@kernel
def _put_text(data: Array, tokens: Tokens, t: Any, out: Array, o: Any) -> Any:
    start, size = np.int64(tokens.start[U(t)]), np.int64(tokens.size[U(t)])
    if o + 2 * _LONGEST_SIZE + size > out.size:
        return np.int64(NO_ROOM)
    if tokens.kind[U(t)] != ESCAPED:
        return copy(out, put_varint(out, o, size), data, start, size)
    # How long it is turns out behind where its length goes.
    begin = o + _LONGEST_SIZE
    size = put_unescaped(out, begin, data, start, size) - begin
    return copy(out, put_varint(out, o, size), out, begin, size)


@kernel
def _put_number(data: Array, i: Any, size: Any, out: Array, o: Any) -> Any:
    """Write digits as a number of 64 bits."""
    end, less = i + size, byte(data, i) == 45
    if less:
        i += 1
    # Towards the least number, which has no counterpart.
    value = np.int64(0)
    while i < end:
        digit = np.int64(byte(data, i)) - 48
        if digit < 0 or digit > 9 or value < _MOST_LESS or (value == _MOST_LESS and digit > 8):
            return np.int64(MISFIT)
        value = value * 10 - digit
        i += 1
    if not less:
        if value == np.int64(-(2**63)):
            return np.int64(MISFIT)
        value = -value
    return put_varint(out, o, value)


@kernel
def _put_bytes(data: Array, i: Any, size: Any, out: Array, o: Any) -> Any:
    """Write the bytes of a text in base64."""
    if size % 4 != 0:
        return np.int64(MISFIT)
    if o + 2 * _LONGEST_SIZE + size > out.size:
        return np.int64(NO_ROOM)
    count = size // 4 * 3
    if size > 0 and byte(data, i + size - 1) == 61:
        count -= 2 if byte(data, i + size - 2) == 61 else 1
    o = put_varint(out, o, count)
    bits, held = np.int64(0), 0
    for k in range((8 * count + 5) // 6):
        value = _VALUE[byte(data, i + k)]
        if value < 0:
            return np.int64(MISFIT)
        bits = ((bits << 6) | value) & 0xFFFF
        held += 6
        if held >= 8:
            held -= 8
            out[U(o)] = (bits >> held) & 255
            o += 1
    return o
