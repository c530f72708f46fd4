"""Payloads of packets: whole ones only, in order, whatever arrived."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.packet_kernels import LAST, MORE, WRONG, take_payloads


def packets(*payloads: bytes, number: int = 0) -> bytes:
    found = b""
    for payload in payloads:
        found += len(payload).to_bytes(3, "little") + bytes([number & 255]) + payload
        number += 1
    return found


def taken(data: bytes, number: int = 0, skip: int = 0) -> tuple[int, int, bytes, int, int]:
    out, found = np.zeros(len(data), np.uint8), np.zeros(5, np.int64)
    take_payloads(np.frombuffer(data, np.uint8), 0, len(data), number, skip, out, found)
    after, next_number, written, why, wanted = found.tolist()
    return after, next_number, out[:written].tobytes(), why, wanted


_PAYLOADS = st.lists(st.binary(min_size=1, max_size=40).filter(lambda one: one[0] < 0xFE), max_size=6)


@given(_PAYLOADS, st.data(), st.integers(0, 255), st.integers(0, 2))
def test_what_is_whole_is_taken_and_the_rest_stays(
    payloads: list[bytes], data: st.DataObject, number: int, skip: int
) -> None:
    whole = packets(*payloads, number=number)
    cut = data.draw(st.integers(0, len(whole)))
    ends = np.cumsum([0, *(len(payload) + 4 for payload in payloads)]).tolist()
    count = sum(end <= cut for end in ends) - 1
    after, next_number, out, why, wanted = taken(whole[:cut], number, skip)
    assert (after, next_number, why) == (ends[count], (number + count) & 255, MORE)
    assert out == b"".join(payload[skip:] for payload in payloads[:count])
    assert cut - after < wanted <= (ends[count + 1] - after if count < len(payloads) else 4)


@pytest.mark.parametrize("last", [b"\xfe\0\0\2\0", b"\xff\x17\x04#HY000no"])
def test_an_error_and_the_end_are_left(last: bytes) -> None:
    after, number, out, why, _ = taken(packets(b"\0one", b"\0two", last), skip=1)
    assert (after, number, out, why) == (16, 2, b"onetwo", LAST)


def test_a_long_value_is_no_end() -> None:
    _, _, out, why, _ = taken(packets(b"\xfe" + bytes(8)))
    assert (out, why) == (b"\xfe" + bytes(8), MORE)


@pytest.mark.parametrize("wrong", [packets(b"one", number=7), packets(b"")])
def test_packets_out_of_order_and_empty_ones_are_wrong(wrong: bytes) -> None:
    assert taken(wrong)[3] == WRONG


@pytest.mark.parametrize("rest", [0, 1, 5])
def test_a_payload_of_several_packets_is_one(rest: int) -> None:
    payload = b"\0" + bytes(range(256)) * 65536
    parts = payload[:0xFFFFFF], payload[0xFFFFFF:][:rest]
    data = packets(*parts)
    assert taken(data, skip=1)[2] == b"".join(parts)[1:]
    after, _, out, why, wanted = taken(data[:-1], skip=1)
    assert (after, out, why) == (0, b"", MORE)
    assert wanted == len(data), "more than is there, or nobody would wait for the rest"
