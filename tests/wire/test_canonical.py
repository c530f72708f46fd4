"""Counts, packed decimals and binary numbers have the same text whether a kernel settles them or the exact reader."""

from __future__ import annotations

import base64
import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples

from headrace.wire.canonical import DATE, TIME, TIMESTAMP, decimal_texts, moment_texts, odd_floats
from headrace.wire.canonical_exact import decimal_text, float_text
from headrace.wire.openings import Openings
from headrace.wire.tape import Tape

LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**14), 10**14) | st.integers(-3, 3)


def day_text(days: int) -> str:
    """A day of the Gregorian calendar, by the calendar's cycle of 400 years."""
    cycles, rest = divmod(days + 719162, 146097)
    day = dt.date.fromordinal(rest + 1)
    year = day.year + 400 * cycles
    return f"{'-' if year < 0 else ''}{abs(year):04}-{day:%m-%d}"


def moment_text(count: int, kind: int, unit: int, digits: int) -> str | None:
    second, rest = divmod(abs(count) if kind == TIME else count, 10**unit)
    day, clock = (0, second) if kind == TIME else divmod(second, 86400)
    fraction = str(rest).rjust(unit, "0")
    fraction = fraction if digits < 0 else fraction[:digits].ljust(digits, "0")
    if kind == TIME and digits < 0 and rest == 0:
        fraction = ""
    text = f"{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}{'.' if fraction else ''}{fraction}"
    if kind == TIME:
        return ("-" if count < 0 else "") + text
    return f"{day_text(day)} {text}" if -(2**31) <= day < 2**31 else None


@settings(max_examples=examples(200), deadline=None)
@given(
    counts=st.lists(LONGS | st.none(), min_size=1, max_size=20),
    kind=st.sampled_from([TIME, TIMESTAMP]),
    unit=st.sampled_from([3, 6, 9]),
    digits=st.integers(-1, 9),
)
def test_counts_of_time_are_the_moments_that_they_mean(
    counts: list[int | None], kind: int, unit: int, digits: int
) -> None:
    made = moment_texts(pa.array(counts, pa.int64()), kind, unit, digits).to_pylist()
    assert made == [None if count is None else moment_text(count, kind, unit, digits) for count in counts]


@settings(max_examples=examples(200), deadline=None)
@given(days=st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-800_000, 3_000_000), min_size=1, max_size=20))
def test_counts_of_days_are_the_days_that_they_mean(days: list[int]) -> None:
    made = moment_texts(pa.array(days, pa.int64()), DATE, 6, -1).to_pylist()
    assert made == [day_text(count) for count in days]
    assert moment_texts(pa.array([2**31], pa.int64()), DATE, 6, -1).to_pylist() == [None]


@settings(max_examples=examples(200), deadline=None)
@given(
    texts=st.lists(
        st.binary(max_size=20).map(lambda data: base64.b64encode(data).decode()) | st.text("Aa+/=-_0 ", max_size=13),
        min_size=1,
        max_size=20,
    ),
    scale=st.integers(-3, 45),
)
def test_packed_decimals_are_their_digits(texts: list[str], scale: int) -> None:
    tape = Tape(pa.array([json.dumps(text).encode() for text in texts], pa.binary()))
    made = decimal_texts(tape, tape.root, np.full(len(texts), scale), decimal_text)
    made.validate(full=True)
    assert made.to_pylist() == [decimal_text(text, scale) for text in texts]


@pytest.mark.parametrize("number", [0, 1, -1, 127, -128, 10**18, 2**63 - 1, -(2**63), 2**64, -(10**40)])
@pytest.mark.parametrize("scale", [0, 2, 30, 41, -2])
def test_a_packed_decimal_is_the_number_at_its_scale(number: int, scale: int) -> None:
    data = base64.b64encode(number.to_bytes(20, "big", signed=True)).decode()
    text = decimal_text(data, scale)
    assert text is not None
    whole, _, fraction = text.partition(".")
    assert len(fraction) == max(scale, 0)
    assert int(whole + fraction) == (number if scale >= 0 else number * 10**-scale)


@settings(max_examples=examples(300), deadline=None)
@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_a_number_in_its_fewest_digits_stays_as_it_is(numbers: list[float]) -> None:
    tape = Tape(pa.array([repr(number).encode() for number in numbers], pa.binary()))
    for number, odd in zip(numbers, odd_floats(tape, tape.root), strict=True):
        assert float_text(repr(number)) == repr(number)
        assert odd or 1e-4 <= abs(number) < 1e18 or number == 0


@pytest.mark.parametrize(
    ("text", "wanted"), [("1", "1.0"), ("1.50", "1.5"), ("1E-5", "1e-05"), ("0.00001", "1e-05"), ("1e999", None)]
)
def test_other_spellings_of_a_number_are_odd(text: str, wanted: str | None) -> None:
    tape = Tape(pa.array([text.encode()], pa.binary()))
    assert odd_floats(tape, tape.root).tolist() == [True]
    assert float_text(text) == wanted


@settings(max_examples=examples(200), deadline=None)
@given(
    openings=st.lists(st.binary(min_size=1, max_size=12), max_size=4, unique=True),
    values=st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=12)) | st.none(), max_size=12),
)
def test_an_opening_is_found_where_a_text_begins_with_it(
    openings: list[bytes], values: list[tuple[int, bytes] | None]
) -> None:
    texts = [None if v is None else (openings[v[0]] if v[0] < len(openings) else b"") + v[1] for v in values]
    column = pa.array(texts, pa.binary())
    known = Openings(openings, b"}")
    found = known.of(column)
    cut = known.cut(column, found)
    cut.validate(full=True)
    for text, number, rest in zip(texts, found, cut.to_pylist(), strict=True):
        if number >= 0:
            assert text is not None
            assert text == openings[number] + rest + b"}"
        else:
            assert text == rest
            assert text is None or not any(text.startswith(o) and text[len(o) :].endswith(b"}") for o in openings)
