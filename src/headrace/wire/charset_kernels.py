"""A kernel that makes UTF-8 of texts in other character sets, by tables.

A table has a page of 256 numbers for each beginning of a character: the page of the next byte, counted from below zero,
or a code point.
"""

from __future__ import annotations

import numpy as np

from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U, byte

PAGE = 256
NONE = 0x110000
"""What a table has where no character has these bytes."""
REPLACEMENT = 0xFFFD
GROWTH = 3
"""How many times as long texts may become: those of one byte have up to three in UTF-8."""


@kernel
def write_utf8(data: Array, offsets: Array, table: Array, out: Array, ends: Array) -> None:
    """Write texts, one after another.

    Args:
        data: the texts, whose characters are in the basic plane.
        offsets: where each begins, and where the last one ends.
        table: as above.
        out: room for `GROWTH` times as much.
        ends: where each text in `out` begins, and where the last one ends.
    """
    o = 0
    ends[U(0)] = np.int32(0)
    for r in range(offsets.size - 1):
        i, end = offsets[U(r)], offsets[U(r + 1)]
        while i < end:
            point = table[U(byte(data, i))]
            size = 1
            while point < 0 and i + size < end:
                point = table[U(PAGE * -point + byte(data, i + size))]
                size += 1
            if point < 0 or point == NONE:
                # No character begins here, so what follows the byte is looked at by itself.
                point, size = np.int32(REPLACEMENT), 1
            i += size
            if point < 0x80:
                out[U(o)] = point
                o += 1
                continue
            if point < 0x800:
                out[U(o)] = 0xC0 | (point >> 6)
                o += 1
            else:
                out[U(o)] = 0xE0 | (point >> 12)
                out[U(o + 1)] = 0x80 | ((point >> 6) & 63)
                o += 2
            out[U(o)] = 0x80 | (point & 63)
            o += 1
        ends[U(r + 1)] = o
