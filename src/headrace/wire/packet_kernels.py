"""Kernels over packets of the protocol of MySQL: three bytes of length, a sequence number, a part of a payload.

A packet of the greatest length goes on in the next one.
"""

from __future__ import annotations

from typing import Any

from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U, byte, copy

_HEADER, _GREATEST = 4, 0xFFFFFF
_ERROR, _END, _END_SIZE = 0xFF, 0xFE, 9
MORE, LAST, WRONG = 0, 1, 2
"""Why there are no more payloads: their bytes are missing, an error or the end comes next, a number is out of order."""


@kernel
def take_payloads(data: Array, first: Any, end: Any, number: Any, skip: Any, out: Array, result: Array) -> None:
    """Find the whole payloads of a buffer, and copy them one after another where there is room for them.

    Args:
        data: the buffer; a packet begins at `first`, and its bytes end at `end`.
        first: see above.
        end: see above.
        number: the sequence number of the first packet.
        skip: how many bytes of each payload are not copied; all where this is negative.
        out: takes the payloads; as large as the buffer, unless nothing is copied.
        result: takes where the first packet stands that was not taken, its number, how many bytes were copied, why
            there are no more payloads, and how many bytes the next payload has at the least, headers included.
    """
    i, written, why, wanted = first, 0, MORE, _HEADER
    while i + _HEADER <= end:
        at, next_number, size, whole = i, number, 0, False
        while at + _HEADER <= end:
            length = byte(data, at) | (byte(data, at + 1) << 8) | (byte(data, at + 2) << 16)
            if byte(data, at + 3) != next_number:
                why = WRONG
                break
            next_number = (next_number + 1) & 255
            size += length
            wanted = at + _HEADER + length - i
            at += _HEADER + length
            if at > end:
                break
            if length < _GREATEST:
                whole = True
                break
            wanted = at + _HEADER - i
        if why == WRONG or not whole:
            break
        if size == 0:
            why = WRONG
            break
        lead = byte(data, i + _HEADER)
        if lead == _ERROR or (lead == _END and size < _END_SIZE):
            why = LAST
            break
        if skip >= 0:
            part, left_out = i, skip
            while part < at:
                length = byte(data, part) | (byte(data, part + 1) << 8) | (byte(data, part + 2) << 16)
                if length > left_out:
                    written = copy(out, written, data, part + _HEADER + left_out, length - left_out)
                left_out = 0
                part += _HEADER + length
        i, number, wanted = at, next_number, _HEADER
    result[U(0)], result[U(1)], result[U(2)], result[U(3)], result[U(4)] = i, number, written, why, wanted
