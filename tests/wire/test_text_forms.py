"""The text_forms of numbers, days and clocks are those of these patterns, for any text."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples

from headrace.wire import text_forms

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?")
_DAY = r"(?P<year>[+-]?[0-9]{4,9})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_CLOCK = r"(?P<sign>-?)(?P<hour>[0-9]{2,9}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:[.](?P<fraction>[0-9]{1,9}))?"
_ZONE = r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?"
_MOMENTS = [re.compile(text + _ZONE) for text in (_DAY, _CLOCK, f"{_DAY}[ T]{_CLOCK}")]
_PIECE = st.sampled_from(
    [
        *("-", "+", ":", ".", " ", "T", "Z", "e", "E", "0", "24", "12", "2024", "2024-02-29", "23:59:59", ".123456"),
        *("+08:00", "-0530", "999999999", "é", "\n"),
    ]
)
TEXTS = st.lists(st.lists(_PIECE, max_size=6).map("".join), min_size=1, max_size=20)


@settings(max_examples=examples(400), deadline=None)
@given(TEXTS)
def test_numbers_and_moments_are_those_of_their_patterns(texts: list[str]) -> None:
    column, at = pa.array(["x", *texts], pa.string()).slice(1), np.arange(len(texts), dtype=np.int32)
    assert text_forms.integers(column, at).tolist() == [_INTEGER.fullmatch(text) is not None for text in texts]
    assert text_forms.numbers(column, at).tolist() == [_NUMBER.fullmatch(text) is not None for text in texts]
    found = text_forms.moments(column, at)
    for row, text in enumerate(texts):
        match = next((m for pattern in _MOMENTS if (m := pattern.fullmatch(text))), None)
        assert found.fine[row] == (match is not None), text
        if match is None:
            continue
        part = {"year": None, "hour": None, "fraction": None, "sign": "", "zone": None} | match.groupdict()
        assert (found.has_day[row], found.has_clock[row]) == (part["year"] is not None, part["hour"] is not None)
        if part["year"] is not None:
            assert found.day[row].tolist() == [int(part[name]) for name in ("year", "month", "day")]
        if part["hour"] is not None:
            assert found.clock[row].tolist() == [int(part[name]) for name in ("hour", "minute", "second")]
        fraction = part["fraction"] or ""
        assert (found.digits[row], found.nanos[row]) == (len(fraction), int(fraction.ljust(9, "0")))
        assert (found.sign[row], found.zone[row]) == (-1 if part["sign"] else 1, len(part["zone"] or ""))
