"""The kernel that reads JSON as `json_exact` says, and writes down each value and name as a token.

There is no limit to how deep a message is nested: while an object is open, its token's `after` holds the object around
it. A JSON text of n bytes has at most (n + 1) / 2 tokens, so a message that asks for more is broken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace.wire.compiled import kernel
from headrace.wire.json_exact import (
    ARRAY,
    BROKEN,
    ESCAPED_NAME,
    FALSE,
    MORE,
    NAME,
    NULL,
    NUMBER,
    OBJECT,
    READ,
    STRING,
    TRUE,
)
from headrace.wire.spans import (
    CLASS,
    ESCAPE,
    LETTER,
    PLAIN,
    QUOTE,
    Array,
    U,
    byte,
    hex4,
    utf8_size,
    word,
)

_ONES, _HIGH = U(0x0101010101010101), U(0x8080808080808080)
_QUOTES, _SLASHES, _SPACES = U(0x2222222222222222), U(0x5C5C5C5C5C5C5C5C), U(0x2020202020202020)
# What may come next.
_VALUE, _FIRST_ITEM, _NEXT_NAME, _FIRST_NAME, _AFTER_VALUE, _DONE = range(6)


class Tokens(NamedTuple):
    """The tokens of a batch of messages, a numpy array for each part of `json_exact.Token`."""

    kind: Array
    start: Array
    size: Array
    after: Array


@kernel
def read_all(data: Array, offsets: Array, tokens: Tokens, first: Array, verdict: Array) -> Any:
    """Read each message.

    Args:
        data: bytes of all messages.
        offsets: where each begins, and the last one's end.
        tokens: to be filled; room for (bytes + 1) / 2 of each message.
        first: to be filled with each message's first token, which is its value; the tokens of one that is not read
            are given up.
        verdict: to be filled with what came of each.

    Returns:
        How many tokens there are.
    """
    t = 0
    for r in range(first.size):
        first[r] = t
        verdict[r], t = _read_message(data, offsets[r], offsets[r + 1], tokens, t)
        if verdict[r] != READ:
            t = first[r]
    return t


@kernel
def _read_message(data: Array, i: Any, end: Any, tokens: Tokens, t: Any) -> Any:
    room = t + (end - i + 1) // 2
    if room > tokens.kind.size:
        room = tokens.kind.size
    parent, in_object, state = -1, False, _VALUE
    while True:
        i = _skip_space(data, i, end)
        if i >= end:
            return (READ if state == _DONE else BROKEN), t
        c = byte(data, i)
        if state == _AFTER_VALUE:
            if c == 44:
                i += 1
                state = _NEXT_NAME if in_object else _VALUE
                continue
        elif state == _NEXT_NAME or state == _FIRST_NAME:
            if c == 34:
                q = _skip_string(data, i + 1, end)
                if q < 0 or t >= room:
                    return BROKEN, t
                after = (q >> 1) + 1
                _put(tokens, t, NAME + (q & 1) * (ESCAPED_NAME - NAME), i + 1, after - 1)
                t += 1
                i = _skip_space(data, after, end)
                if i >= end or byte(data, i) != 58:
                    return BROKEN, t
                i += 1
                state = _VALUE
                continue
            if state == _NEXT_NAME:
                return BROKEN, t
        elif state == _DONE:
            return MORE, t
        elif c != 93 or state == _VALUE:
            if t >= room:
                return BROKEN, t
            if c == 123 or c == 91:
                in_object = c == 123
                tokens.kind[U(t)] = OBJECT if in_object else ARRAY
                tokens.start[U(t)] = i
                tokens.after[U(t)] = parent
                state = _FIRST_NAME if in_object else _FIRST_ITEM
                parent = t
                t += 1
                i += 1
                continue
            i = _scalar(data, i, end, tokens, t)
            if i < 0:
                return BROKEN, t
            t += 1
            state = _DONE if parent < 0 else _AFTER_VALUE
            continue
        # Here something ends, or nothing that is allowed stands here.
        if c != (125 if in_object else 93):
            return BROKEN, t
        i += 1
        around = tokens.after[U(parent)]
        tokens.size[U(parent)] = i - tokens.start[U(parent)]
        tokens.after[U(parent)] = t
        parent = around
        in_object = parent >= 0 and tokens.kind[U(parent)] == OBJECT
        state = _DONE if parent < 0 else _AFTER_VALUE


@kernel
def _put(tokens: Tokens, t: Any, kind: Any, start: Any, end: Any) -> None:
    tokens.kind[U(t)] = kind
    tokens.start[U(t)] = start
    tokens.size[U(t)] = end - start
    tokens.after[U(t)] = t + 1


@kernel
def _skip_space(data: Array, i: Any, end: Any) -> Any:
    while i < end:
        c = byte(data, i)
        if c > 32 or not (c == 32 or c == 10 or c == 13 or c == 9):
            break
        i += 1
    return i


@kernel
def _scalar(data: Array, i: Any, end: Any, tokens: Tokens, t: Any) -> Any:
    """Read a string, number, `true`, `false` or `null`: the index after it; -1 where it is none."""
    c = byte(data, i)
    if c == 34:
        q = _skip_string(data, i + 1, end)
        if q < 0:
            return -1
        _put(tokens, t, STRING + (q & 1), i + 1, q >> 1)
        return (q >> 1) + 1
    kind, z = NUMBER, -1
    if c == 116:
        kind = TRUE
        if i + 4 <= end and byte(data, i + 1) == 114 and byte(data, i + 2) == 117 and byte(data, i + 3) == 101:
            z = i + 4
    elif c == 102:
        kind = FALSE
        if (
            i + 5 <= end and byte(data, i + 1) == 97 and byte(data, i + 2) == 108 and byte(data, i + 3) == 115
            and byte(data, i + 4) == 101
        ):  # fmt: skip
            z = i + 5
    elif c == 110:
        kind = NULL
        if i + 4 <= end and byte(data, i + 1) == 117 and byte(data, i + 2) == 108 and byte(data, i + 3) == 108:
            z = i + 4
    else:
        z = skip_number(data, i, end)
    if z >= 0:
        _put(tokens, t, kind, i, z)
    return z


@kernel
def skip_number(data: Array, i: Any, end: Any) -> Any:
    """The index after a number that begins here; -1 where none does."""
    if byte(data, i) == 45:
        i += 1
    if i < end and byte(data, i) == 48:
        i += 1
    else:
        j = _skip_digits(data, i, end)
        if j == i:
            return -1
        i = j
    if i < end and byte(data, i) == 46:
        j = _skip_digits(data, i + 1, end)
        if j == i + 1:
            return -1
        i = j
    if i < end and (byte(data, i) == 101 or byte(data, i) == 69):
        i += 1
        if i < end and (byte(data, i) == 43 or byte(data, i) == 45):
            i += 1
        j = _skip_digits(data, i, end)
        if j == i:
            return -1
        i = j
    return i


@kernel
def _skip_digits(data: Array, i: Any, end: Any) -> Any:
    while i < end and 48 <= byte(data, i) <= 57:
        i += 1
    return i


@kernel
def _skip_string(data: Array, i: Any, end: Any) -> Any:
    """From after the opening quote: the closing quote's index * 2, + 1 if there are escapes; -1 where broken."""
    escaped = 0
    while i < end:
        if i + 8 <= end:
            stops = _stops(word(data, i))
            if stops == U(0):
                i += 8
                continue
            i += _lowest(stops)
        c = CLASS[byte(data, i)]
        if c == PLAIN:
            i += 1
        elif c == QUOTE:
            return i * 2 + escaped
        elif c == ESCAPE:
            escaped = 1
            n = _escape_size(data, i, end)
            if n == 0:
                return -1
            i += n
        else:
            n = utf8_size(data, i, end)
            if n == 0:
                return -1
            i += n
    return -1


@kernel
def _stops(w: Any) -> Any:
    """Marks the bytes to look at in a string: quote, backslash, control, not ASCII. The lowest mark is exact."""
    q, s = w ^ _QUOTES, w ^ _SLASHES
    return (((q - _ONES) & ~q) | ((s - _ONES) & ~s) | ((w - _SPACES) & ~w) | w) & _HIGH


@kernel
def _lowest(marks: Any) -> Any:
    below = ((marks & (~marks + U(1))) - U(1)) & _ONES
    # Signed, because the sum of a signed and an unsigned number would be a float.
    return np.int64((below * _ONES) >> U(56)) - 1


@kernel
def _escape_size(data: Array, i: Any, end: Any) -> Any:
    """How long the escape is that begins here, both halves of a surrogate pair taken together; 0 where it is none."""
    if i + 2 > end:
        return 0
    c = byte(data, i + 1)
    if LETTER[c] != 0:
        return 2
    if c != 117 or i + 6 > end:
        return 0
    unit = hex4(data, i + 2)
    if unit < 0 or 0xDC00 <= unit < 0xE000:
        return 0
    if unit < 0xD800 or unit >= 0xE000:
        return 6
    if i + 12 > end or byte(data, i + 6) != 92 or byte(data, i + 7) != 117:
        return 0
    return 12 if 0xDC00 <= hex4(data, i + 8) < 0xE000 else 0
