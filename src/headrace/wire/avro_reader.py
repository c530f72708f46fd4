"""Avro's binary form, read into tokens. The schema is data: a tree of nodes, so that one compile serves all schemas.

Numbers stay bytes until `AvroTape` reads them on demand; or everything is read onto the tape
that the same JSON would give (`AvroJson`). Lengths and counts are looked at before they are used, so that bytes that
are no record cost no more than their own length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace.wire import json_exact
from headrace.wire.avro_schema import (
    BOOLEAN,
    ENUM,
    FIXED,
    FLOAT,
    LIST,
    MAP,
    NOTHING,
    RECORD,
    TEXT,
    UNION,
    VARINT,
    Program,
)
from headrace.wire.compiled import kernel
from headrace.wire.json_exact import ARRAY, BROKEN, FALSE, NAME, NULL, OBJECT, READ, STRING, TRUE
from headrace.wire.json_reader import Tokens
from headrace.wire.names import as_data
from headrace.wire.spans import Array, U, byte, copy, is_utf8, put_base64, put_integer

_WORDS = as_data(b"truefalse")
NUMBER, FLOATING, BYTES = 11, 12, 13
"""Kinds of tokens beside those of JSON: a varint (also of an enum), a number of 4 or 8 bytes, bytes."""


class ReadFrames(NamedTuple):
    """What is open while a record is read, outermost first: the node, its token, and how much is still to come."""

    node: Array
    token: Array
    left: Array


class TextEncoding(NamedTuple):
    """How the tape of the same JSON is made: where numbers and bytes are written as text, and what all bytes are then.

    `names` and `texts` are the numbers that the first byte of the schema's names and of `out` will have among them.
    With an empty `out`, values stay as they are and records have no names.
    """

    out: Array
    names: int
    texts: int


@kernel
def read_records(
    data: Array,
    begins: Array,
    ends: Array,
    root: Array,
    schema: Program,
    tokens: Tokens,
    branch: Array,
    frames: ReadFrames,
    encoding: TextEncoding,
    first: Array,
    verdict: Array,
    after: Array,
) -> Any:
    """Read one record of each message; what follows it is left to the caller.

    Args:
        data: bytes of all messages.
        begins: where each record begins.
        ends: where each message ends.
        root: the schema's node of each; negative where it has none.
        schema: of the records.
        tokens: to be filled.
        branch: to be filled with each token's index in the union that it is of; 0 where it is of none. Not with
            `encoding`.
        frames: room for as many levels as the schema has.
        encoding: whether JSON is made, and where.
        first: to be filled with each message's first token.
        verdict: to be filled with what came of each.
        after: to be filled with where each record ends.

    Returns:
        How many bytes were written.
    """
    t, o = 0, 0
    for r in range(first.size):
        first[r] = t
        verdict[r] = BROKEN
        after[r] = begins[r]
        if root[r] >= 0:
            written = o
            verdict[r], t, after[r], o = _read_record(
                data, begins[r], ends[r], root[r], schema, tokens, branch, frames, encoding, t, o
            )
            if verdict[r] != READ:
                t, o = first[r], written
    return o


@kernel
def _read_record(
    data: Array,
    i: Any,
    end: Any,
    node: Any,
    schema: Program,
    tokens: Tokens,
    branch: Array,
    frames: ReadFrames,
    encoding: TextEncoding,
    t: Any,
    o: Any,
) -> Any:
    i, node, o = np.int64(i), np.int64(node), np.int64(o)
    end = np.int64(end)
    room, named = tokens.kind.size, encoding.out.size > 0
    depth, chosen = 0, 0
    while True:
        kind = schema.kind[U(node)]
        if kind == UNION:
            chosen, i = varint(data, i, end)
            if i < 0 or chosen < 0 or chosen >= schema.count[U(node)]:
                return BROKEN, t, i, o
            node = np.int64(schema.children[U(schema.first[U(node)] + chosen)])
            continue
        if t >= room:
            return BROKEN, t, i, o
        tokens.start[U(t)] = i
        tokens.size[U(t)] = 0
        tokens.after[U(t)] = t + 1
        if not named:
            branch[U(t)] = chosen
        chosen = 0
        if kind == RECORD or kind == LIST or kind == MAP:
            tokens.kind[U(t)] = ARRAY if kind == LIST else OBJECT
            if depth >= frames.node.size:
                return BROKEN, t, i, o
            frames.node[depth] = node
            frames.token[depth] = t
            frames.left[depth] = schema.count[U(node)] if kind == RECORD else 0
            depth += 1
        else:
            i = _leaf(data, i, end, schema, node, kind, tokens, t)
            if i < 0:
                return BROKEN, t, i, o
            if named:
                o = _write(data, schema, node, tokens, t, encoding, o)
                if o < 0:
                    return BROKEN, t, i, o
        t += 1
        # What comes next: the next field, item or value of the innermost that is open, once what ended is closed.
        while depth > 0:
            open_ = frames.node[depth - 1]
            kind = schema.kind[U(open_)]
            left = frames.left[depth - 1]
            if kind == RECORD:
                if left > 0:
                    field = schema.first[U(open_)] + schema.count[U(open_)] - left
                    node = np.int64(schema.children[U(field)])
                    frames.left[depth - 1] = left - 1
                    if named:
                        if t >= room:
                            return BROKEN, t, i, o
                        tokens.kind[U(t)] = NAME
                        tokens.start[U(t)] = encoding.names + schema.name_start[U(field)]
                        tokens.size[U(t)] = schema.name_size[U(field)]
                        tokens.after[U(t)] = t + 1
                        t += 1
                    break
            else:
                if left == 0:
                    left, i = _block(data, i, end)
                    if i < 0:
                        return BROKEN, t, i, o
                if left > 0:
                    frames.left[depth - 1] = left - 1
                    node = np.int64(schema.children[U(schema.first[U(open_)])])
                    if kind == MAP:
                        if t >= room:
                            return BROKEN, t, i, o
                        size, i = varint(data, i, end)
                        if i < 0 or size < 0 or size > end - i or (named and not is_utf8(data, i, i + size)):
                            return BROKEN, t, i, o
                        tokens.kind[U(t)] = NAME
                        tokens.start[U(t)] = i
                        tokens.size[U(t)] = size
                        tokens.after[U(t)] = t + 1
                        if not named:
                            branch[U(t)] = 0
                        t += 1
                        i += size
                    break
            depth -= 1
            whole = frames.token[depth]
            if not named:
                tokens.size[U(whole)] = i - tokens.start[U(whole)]
            tokens.after[U(whole)] = t
        if depth == 0:
            return READ, t, i, o


@kernel
def _leaf(data: Array, i: Any, end: Any, schema: Program, node: Any, kind: Any, tokens: Tokens, t: Any) -> Any:
    """Read a value that holds no others: the index after it; -1 where it is broken."""
    if kind == NOTHING:
        tokens.kind[U(t)] = NULL
        return i
    if kind == VARINT or kind == ENUM:
        value, after = varint(data, i, end)
        if after < 0 or (kind == ENUM and (value < 0 or value >= schema.size[U(node)])):
            return np.int64(-1)
        tokens.kind[U(t)] = NUMBER
        tokens.size[U(t)] = after - i
        return after
    size = np.int64(schema.size[U(node)])
    if kind == FLOAT:
        tokens.kind[U(t)] = FLOATING
    elif kind == BOOLEAN:
        if i >= end or byte(data, i) > 1:
            return np.int64(-1)
        tokens.kind[U(t)] = TRUE if byte(data, i) == 1 else FALSE
    else:
        tokens.kind[U(t)] = STRING if kind == TEXT else BYTES
        if kind != FIXED:
            size, i = varint(data, i, end)
            if i < 0:
                return i
    if size < 0 or size > end - i:
        return np.int64(-1)
    tokens.start[U(t)] = i
    tokens.size[U(t)] = size
    return i + size


@kernel
def _write(data: Array, schema: Program, node: Any, tokens: Tokens, t: Any, encoding: TextEncoding, o: Any) -> Any:
    """Let a token be what the same JSON would give: the index after what was written; -1 where a text is not UTF-8.

    Numbers of 4 and 8 bytes are left to the caller.
    """
    kind, i, size = tokens.kind[U(t)], np.int64(tokens.start[U(t)]), np.int64(tokens.size[U(t)])
    if kind == STRING:
        return o if is_utf8(data, i, i + size) else np.int64(-1)
    if kind == NUMBER:
        value = varint(data, i, i + size)[0]
        if schema.kind[U(node)] == ENUM:
            symbol = schema.first[U(node)] + value
            tokens.kind[U(t)] = STRING
            tokens.start[U(t)] = encoding.names + schema.name_start[U(symbol)]
            tokens.size[U(t)] = schema.name_size[U(symbol)]
            return o
        if o + 20 > encoding.out.size:
            return np.int64(-1)
        tokens.kind[U(t)] = json_exact.NUMBER
        after = put_integer(encoding.out, o, value)
    elif kind == BYTES:
        if o + 4 * (size // 3) + 4 > encoding.out.size:
            return np.int64(-1)
        tokens.kind[U(t)] = STRING
        after = put_base64(encoding.out, o, data, i, size)
    elif kind == TRUE or kind == FALSE:
        if o + 5 > encoding.out.size:
            return np.int64(-1)
        after = copy(encoding.out, o, _WORDS, 0, 4) if kind == TRUE else copy(encoding.out, o, _WORDS, 4, 5)
    else:
        return o
    tokens.start[U(t)] = encoding.texts + o
    tokens.size[U(t)] = after - o
    return np.int64(after)


@kernel
def _block(data: Array, i: Any, end: Any) -> Any:
    """(How many items the next block has, the index after its head); a negative index where it is broken."""
    count, i = varint(data, i, end)
    if i >= 0 and count < 0:
        # Followed by the block's size in bytes, which is for those who pass over it.
        count = -count
        _, i = varint(data, i, end)
    if i >= 0 and (count < 0 or count > end - i):
        # An item of no bytes would let a few bytes ask for any number of them.
        return np.int64(0), np.int64(-1)
    return count, i


@kernel
def varint(data: Array, i: Any, end: Any) -> Any:
    """(A number, the index after it); the index is -1 where there is none, or more than 64 bits."""
    value, shift = U(0), 0
    while i < end and shift < 70:
        b = byte(data, i)
        i += 1
        value |= U(b & 127) << U(shift)
        if b < 128:
            return np.int64(value >> U(1)) ^ -np.int64(value & U(1)), i
        shift += 7
    return np.int64(0), np.int64(-1)


@kernel
def fill_numbers(data: Array, tokens: Tokens, at: Array, out: Array) -> None:
    """Fill the numbers of varints; 0 where there is none."""
    for r in range(at.size):
        t = at[r]
        if t >= 0 and tokens.kind[U(t)] == NUMBER:
            start = np.int64(tokens.start[U(t)])
            out[r] = varint(data, start, start + tokens.size[U(t)])[0]


@kernel
def fill_trailing(data: Array, ends: Array, root: Array, after: Array, out: Array) -> None:
    """Fill the number that follows each record; what is not a number there is left out."""
    for r in range(root.size):
        if root[r] >= 0:
            out[r] = varint(data, after[r], np.int64(ends[r]))[0]


@kernel
def fill_fields(tokens: Tokens, at: Array, fields: Array) -> None:
    """Fill `found[index, row]` with the fields of each record."""
    for r in range(at.size):
        t = at[r] + 1
        for index in range(fields.shape[0]):
            if at[r] >= 0:
                fields[index, r] = t
                t = tokens.after[U(t)]


@kernel
def fill_utf8(data: Array, tokens: Tokens, at: Array, out: Array) -> None:
    for r in range(at.size):
        out[r] = True
        t = at[r]
        if t >= 0:
            i = np.int64(tokens.start[U(t)])
            out[r] = is_utf8(data, i, i + tokens.size[U(t)])
