"""Rule: the number of a union's branch is read where each datum begins, however many bytes it has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.debezium.payload import varints_at


def varint(number: int) -> bytes:
    rest, out = (number << 1) ^ (number >> 63), b""
    while rest > 127:
        out, rest = out + bytes([rest & 127 | 128]), rest >> 7
    return out + bytes([rest])


@given(st.lists(st.tuples(st.binary(max_size=6), st.integers(0, 2**33), st.binary(max_size=2)), min_size=1), st.data())
def test_numbers_are_read_at_their_places(parts: list[tuple[bytes, int, bytes]], data: st.DataObject) -> None:
    values = pa.array([head + varint(number) + rest for head, number, rest in parts], pa.binary())
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(parts) - 1)))), np.int64)
    starts = np.array([len(parts[row][0]) for row in rows], np.int64)
    found, sizes = varints_at(values, rows, starts)
    assert found.tolist() == [parts[row][1] for row in rows]
    assert sizes.tolist() == [len(varint(parts[row][1])) for row in rows]


def test_where_a_value_ends_there_is_no_number() -> None:
    values = pa.array([b"", b"\x80", None, b"\x02"], pa.binary())
    found, sizes = varints_at(values, np.arange(4), np.array([0, 0, 0, 1]))
    assert (found.tolist(), sizes.tolist()) == ([-1] * 4, [0] * 4)
