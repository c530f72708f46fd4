"""Rule: whatever a rows event has, kernels give what the exact reader gives, or both refuse it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.sources.mysql import exact_rows
from tests.sources.mysql.logged_rows import read_images

from headrace.sources.mysql.layouts import WrongRow
from headrace.sources.mysql.types import NativeType
from headrace.sources.mysql.wire_columns import WireColumn


def column(code, meta=0, unsigned=False, labels=(), collation=None, native=None):
    of_wire = NativeType.of_wire(code, meta, unsigned=unsigned, labels=labels, collation=collation)
    return WireColumn(code, meta, native or of_wire)


UTF8, BINARY, ASCII = 45, 63, 11
COLUMNS = [
    *(column(code, unsigned=unsigned) for code in (1, 2, 9, 3, 8) for unsigned in (False, True)),
    *(column(246, precision | scale << 8) for precision, scale in [(1, 0), (9, 9), (12, 2), (65, 30), (20, 7)]),
    *(column(code, digits) for code in (17, 18, 19) for digits in range(7)),
    *(column(code) for code in (7, 10, 11, 12, 13)),
    column(16, 1),
    column(16, 2 | 1 << 8),
    column(16, 8 << 8),
    column(254, 247 | 1 << 8, labels=("a", "é", ""), collation=UTF8),
    column(254, 247 | 2 << 8, labels=tuple(map(str, range(300))), collation=UTF8),
    column(254, 254 | 40 << 8, collation=UTF8),
    column(254, 254 | 36 << 8, collation=ASCII),
    column(254, 254 | 6 << 8, collation=BINARY),
    column(254, 254 | 16 << 8, collation=BINARY, native=NativeType("uuid")),
    column(15, 200, collation=UTF8),
    column(15, 900, collation=UTF8),
    column(15, 900, collation=BINARY),
    column(252, 1, collation=UTF8),
    column(252, 2, collation=BINARY),
    column(252, 3, collation=UTF8),
    column(252, 4, collation=BINARY),
]
MIDDLE = st.sampled_from([b"\x80", b"\x7f", b"\0", b"\xff"])


def bits(flags):
    found = bytearray((len(flags) + 7) // 8)
    for n, flag in enumerate(flags):
        found[n >> 3] |= flag << (n & 7)
    return bytes(found)


@st.composite
def values(draw, wire):
    """Bytes of the right size: often ones that mean something."""
    if wire.size >= 0:
        small = st.binary(min_size=1, max_size=1).map(lambda end: end.rjust(wire.size, b"\0"))
        whole = st.binary(min_size=wire.size, max_size=wire.size)
        high = st.tuples(MIDDLE, whole).map(lambda pair: b"".join(pair)[: wire.size])
        return draw(small | high | whole)
    most = 16 if wire.native.kind == "uuid" else 6
    data = draw(st.text(max_size=6).map(str.encode) if draw(st.booleans()) else st.binary(max_size=most))[:most]
    return len(data).to_bytes(-wire.size, "little") + data


@st.composite
def events(draw):
    kind = draw(st.sampled_from([23, 24, 25, 30, 31, 32]))
    columns = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=10))
    body = bytes(8) + (b"\x04\0ab" if kind >= 30 else b"") + bytes([len(columns)])
    sides = 2 if kind in (24, 31) else 1
    present = [draw(st.lists(st.booleans(), min_size=len(columns), max_size=len(columns))) for _ in range(sides)]
    body += b"".join(map(bits, present))
    for _ in range(draw(st.integers(0, 3))):
        for given_columns in present:
            shown = [wire for wire, is_given in zip(columns, given_columns, strict=True) if is_given]
            nulls = [draw(st.integers(0, 3)) == 0 for _ in shown]
            body += bits(nulls)
            body += b"".join(draw(values(w)) for w, is_null in zip(shown, nulls, strict=True) if not is_null)
    return kind, columns, body


def exact(body, kind, columns):
    try:
        return exact_rows.read(body, kind, columns)
    except ValueError:
        return None


def by_kernels(body, kind, columns):
    try:
        return read_images([body], [kind], columns)
    except WrongRow as error:
        assert 0 <= error.offset <= len(body)
        assert error.event == 0
        return None


@settings(deadline=None, max_examples=examples(400))
@given(events())
def test_rows_are_those_of_the_exact_reader(event):
    kind, columns, body = event
    assert by_kernels(body, kind, columns) == exact(body, kind, columns)


@settings(deadline=None, max_examples=examples(400))
@given(events(), st.data())
def test_events_that_are_cut_or_changed_are_refused_by_both_or_read_alike(event, data):
    kind, columns, body = event
    position = data.draw(st.integers(0, len(body) - 1))
    if data.draw(st.booleans()):
        body = body[:position]
    else:
        body = body[:position] + data.draw(st.binary(min_size=1, max_size=2)) + body[position + 1 :]
    assert by_kernels(body, kind, columns) == exact(body, kind, columns)


def test_a_value_that_is_none_is_refused_with_its_place():
    columns = [column(3), column(10)]
    body = bytes(8) + b"\x02\x03" + b"\0" + b"\1\0\0\0" + b"\xff\xff\xff"
    with pytest.raises(WrongRow, match=r"none of its column's type in column 2\.") as raised:
        read_images([body], [23], columns)
    assert (raised.value.event, raised.value.offset, raised.value.column) == (0, 15, 1)
