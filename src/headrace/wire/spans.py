"""Pieces of text: where they begin in a buffer of bytes, and how long they are. The small functions of all kernels.

Indices pass through `np.uint64`, so that a negative one is out of bounds and does not count from the end. Eight bytes
that are put together as one number (`word`) become one load.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from headrace.wire.compiled import kernel

Array: TypeAlias = Any
"""A numpy array; its type is what the caller's docstring says."""

U = np.uint64
_PRIME = U(0x9E3779B97F4A7C15)
_MIX = U(0xD6E8FEB86659FD93)
_ALL = U(0xFFFFFFFFFFFFFFFF)
_NOT_ASCII = U(0x8080808080808080)

PLAIN, QUOTE, ESCAPE, NEVER, TWO, THREE, FOUR = range(7)
CLASS = np.zeros(256, np.uint8)
"""What a byte is inside a JSON string: itself, the end, an escape, forbidden, or the first of 2, 3, 4 of UTF-8."""
CLASS[:32], CLASS[34], CLASS[92] = NEVER, QUOTE, ESCAPE
CLASS[128:] = NEVER
CLASS[0xC2:0xE0], CLASS[0xE0:0xF0], CLASS[0xF0:0xF5] = TWO, THREE, FOUR
SIXTY_FOUR = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
"""The characters of base64."""
HEX = np.full(256, -1, np.int64)
for _digit, _character in enumerate("0123456789abcdef"):
    HEX[ord(_character)] = HEX[ord(_character.upper())] = _digit
LETTER = np.zeros(256, np.uint8)
"""What a letter after a backslash stands for; 0 where that is not an escape."""
for _letter, _meant in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    LETTER[_letter] = _meant


@kernel
def byte(data: Array, i: Any) -> Any:
    return data[U(i)]


@kernel
def word(data: Array, i: Any) -> Any:
    """Eight bytes as a little-endian number."""
    i = U(i)
    low = U(data[i]) | (U(data[i + U(1)]) << U(8)) | (U(data[i + U(2)]) << U(16)) | (U(data[i + U(3)]) << U(24))
    high = U(data[i + U(4)]) | (U(data[i + U(5)]) << U(8)) | (U(data[i + U(6)]) << U(16)) | (U(data[i + U(7)]) << U(24))
    return low | (high << U(32))


@kernel
def same(a: Array, i: Any, b: Array, j: Any, size: Any) -> Any:
    """Whether two pieces of one length are equal."""
    k = 0
    while k + 8 <= size:
        if word(a, i + k) != word(b, j + k):
            return False
        k += 8
    return _last(a, i + k, size - k) == _last(b, j + k, size - k)


@kernel
def copy(out: Array, o: Any, data: Array, i: Any, size: Any) -> Any:
    """Copy a piece; the index after it in `out`."""
    for k in range(size):
        out[U(o + k)] = data[U(i + k)]
    return o + size


@kernel
def hashed(data: Array, i: Any, size: Any, seed: Any) -> Any:
    """A hash of a piece. Not secret: who chooses names can make them meet, and then look-ups get slow."""
    h = U(seed) ^ (U(size) * _PRIME)
    k = 0
    while k + 8 <= size:
        h = (h ^ word(data, i + k)) * _MIX
        h ^= h >> U(32)
        k += 8
    h = (h ^ _last(data, i + k, size - k)) * _MIX
    return h ^ (h >> U(32))


@kernel
def _last(data: Array, i: Any, size: Any) -> Any:
    """Fewer than eight bytes as a little-endian number: one load, but where the buffer ends too soon for it."""
    if size == 0:
        return U(0)
    if i + 8 <= data.size:
        return word(data, i) & (_ALL >> U(64 - 8 * size))
    w = U(0)
    for k in range(size):
        w |= U(byte(data, i + k)) << U(8 * k)
    return w


@kernel
def negated(high: Any, low: Any) -> Any:
    """A number of 128 bits, in two halves, with the other sign."""
    carry = U(1) if low == U(0) else U(0)
    return ~high + carry, ~low + U(1)


@kernel
def put_integer(out: Array, o: Any, v: Any) -> Any:
    """Write a whole number of 64 bits in digits; the index after it."""
    rest = U(v)
    if v < 0:
        out[U(o)] = 45
        o += 1
        rest = U(0) - rest
    size, more = 1, rest // U(10)
    while more > U(0):
        more //= U(10)
        size += 1
    for k in range(size):
        out[U(o + size - 1 - k)] = U(48) + rest % U(10)
        rest //= U(10)
    return o + size


@kernel
def put_base64(out: Array, o: Any, data: Array, i: Any, size: Any) -> Any:
    """Write bytes in base64; the index after it."""
    k = 0
    while k < size:
        left = size - k
        bits = np.int64(byte(data, i + k)) << 16
        if left > 1:
            bits |= np.int64(byte(data, i + k + 1)) << 8
        if left > 2:
            bits |= np.int64(byte(data, i + k + 2))
        out[U(o)] = SIXTY_FOUR[U(bits >> 18)]
        out[U(o + 1)] = SIXTY_FOUR[U((bits >> 12) & 63)]
        out[U(o + 2)] = SIXTY_FOUR[U((bits >> 6) & 63)] if left > 1 else 61
        out[U(o + 3)] = SIXTY_FOUR[U(bits & 63)] if left > 2 else 61
        o += 4
        k += 3
    return o


@kernel
def set_bit(bits: Array, r: Any) -> None:
    """Set bit `r` of an Arrow bitmap."""
    bits[U(r >> 3)] |= np.uint8(1 << (r & 7))


@kernel
def hex4(data: Array, i: Any) -> Any:
    """Four hex digits as a number; negative where they are none."""
    high = (HEX[byte(data, i)] << 12) | (HEX[byte(data, i + 1)] << 8)
    return high | (HEX[byte(data, i + 2)] << 4) | HEX[byte(data, i + 3)]


@kernel
def put_character(out: Array, o: Any, u: Any) -> Any:
    """Write a code point as UTF-8; the index after it."""
    if u < 0x80:
        out[U(o)] = u
        return o + 1
    if u < 0x800:
        out[U(o)] = 0xC0 | (u >> 6)
        out[U(o + 1)] = 0x80 | (u & 63)
        return o + 2
    if u < 0x10000:
        out[U(o)] = 0xE0 | (u >> 12)
        out[U(o + 1)] = 0x80 | ((u >> 6) & 63)
        out[U(o + 2)] = 0x80 | (u & 63)
        return o + 3
    out[U(o)] = 0xF0 | (u >> 18)
    out[U(o + 1)] = 0x80 | ((u >> 12) & 63)
    out[U(o + 2)] = 0x80 | ((u >> 6) & 63)
    out[U(o + 3)] = 0x80 | (u & 63)
    return o + 4


@kernel
def put_unescaped(out: Array, o: Any, data: Array, i: Any, size: Any) -> Any:
    """Write a JSON string, which was read before, without its escapes; the index after it. It never gets longer."""
    end = i + size
    while i < end:
        c = byte(data, i)
        if c != 92:
            out[U(o)] = c
            o += 1
            i += 1
            continue
        c = byte(data, i + 1)
        i += 2
        if c != 117:
            out[U(o)] = LETTER[c]
            o += 1
            continue
        u = hex4(data, i)
        i += 4
        if 0xD800 <= u < 0xDC00:
            u = 0x10000 + ((u - 0xD800) << 10) + (hex4(data, i + 2) - 0xDC00)
            i += 6
        o = put_character(out, o, u)
    return o


@kernel
def utf8_size(data: Array, i: Any, end: Any) -> Any:
    """How long the UTF-8 sequence of several bytes is that begins here; 0 where it is none."""
    c = byte(data, i)
    k = CLASS[c]
    if k < TWO or i + 2 > end:
        return 0
    d = byte(data, i + 1)
    if (d & 0xC0) != 0x80:
        return 0
    if k == TWO:
        return 2
    if i + 3 > end or (byte(data, i + 2) & 0xC0) != 0x80 or (c == 0xE0 and d < 0xA0) or (c == 0xED and d > 0x9F):
        return 0
    if k == THREE:
        return 3
    if i + 4 > end or (byte(data, i + 3) & 0xC0) != 0x80 or (c == 0xF0 and d < 0x90) or (c == 0xF4 and d > 0x8F):
        return 0
    return 4


@kernel
def is_utf8(data: Array, i: Any, end: Any) -> Any:
    """Whether bytes are UTF-8, whatever characters they are."""
    while i < end:
        if i + 8 <= end and word(data, i) & _NOT_ASCII == U(0):
            i += 8
            continue
        if byte(data, i) < 128:
            i += 1
            continue
        n = utf8_size(data, i, end)
        if n == 0:
            return False
        i += n
    return True
