"""A text is the same value whether a kernel settles it or the exact reader."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples

from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn, instants
from headrace.wire.typed_exact import value_of

KINDS = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(5, 0), pa.decimal128(12, 2),
    pa.decimal128(18, 18), pa.decimal128(38, 10), pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us"),
    pa.timestamp("us", "UTC"), pa.string(), pa.binary(),
]  # fmt: skip
WORDS = [
    "true", "false", "T", "1", "0", "-1", "+5", "", " 7 ", "127", "128", "-128", "-129", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "12.50", "12.505", ".5", "5.", "1e3", "1E-2", "1e999999999", "0x10",
    "NaN", "Infinity", "-inf", "0.1", "3.4028236e38", "16777217", "2024-02-29", "2023-02-29", "0000-00-00", "2024-1-2",
    "2024-02-29 23:59:59", "2024-02-29T23:59:59.5", "2024-02-29 23:59:59.1234567", "2024-02-29 24:00:00", "1969-12-31",
    "2024-02-29T23:59:59.123456Z", "2024-02-29 01:00:00+08:00", "9999-12-31 23:59:59.999999", "0001-01-01", "AQID",
    "AQ=", "é", "\u0661", "--1", "1-", "1.2.3", "99999999999999999999.99", "2024-02-29 23:59:59.123456000",
    "2024-02-29T23:59:59.1234560Z", "2024-02-29 23:59:59.123456001", "2024-02-29 23:59:59.12345600x", "-" + "9" * 38,
    "0044-03-15 BC", "-0043-03-15 01:02:03", "infinity",
    "9" * 39, "0" * 39, f"{'9' * 28}.{'9' * 10}",
]  # fmt: skip
DIGITS = st.from_regex(r"-?[0-9]{0,30}[.]?[0-9]{0,20}", fullmatch=True)
TEXTS = (
    st.sampled_from(WORDS)
    | DIGITS
    | st.text("0123456789-+.:eE TZ", max_size=28)
    | st.decimals(allow_nan=False).map(str)
)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=examples(100), deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=20))
def test_kernels_and_the_exact_reader_agree(kind: pa.DataType, texts: list[str]) -> None:
    tape = Tape(pa.array([json.dumps(text).encode() for text in texts], pa.binary()))
    column = TypedColumn(tape, tape.root, kind)
    wanted = [value_of(text, kind) for text in texts]
    assert column.values.equals(pa.array(wanted, kind)) or _same_numbers(column.values, pa.array(wanted, kind))
    assert column.refused.tolist() == [row for row, value in enumerate(wanted) if value is None]


def _same_numbers(a: pa.Array, b: pa.Array) -> bool:
    """Equal where no number is a number."""
    return pa.types.is_floating(a.type) and np.array_equal(
        a.to_numpy(zero_copy_only=False), b.to_numpy(zero_copy_only=False), equal_nan=True
    )


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1.5", pa.int32(), None),
        ("12.50", pa.decimal128(4, 1), Decimal("12.5")),
        ("12.55", pa.decimal128(4, 1), None),
        ("12345", pa.decimal128(4, 1), None),
        ("2024-02-28 10:00:00", pa.date32(), None),
        ("2024-02-28 00:00:00", pa.date32(), 19781),
        ("2024-01-01 00:00:00.1234567", pa.timestamp("us"), None),
        ("1970-01-01 00:00:01.5", pa.timestamp("us"), 1_500_000),
        ("1970-01-01 08:00:01", pa.timestamp("us", "UTC"), 1_000_000),
        ("1970-01-01T00:00:01Z", pa.timestamp("us", "UTC"), 1_000_000),
        ("1970-01-01 00:00:01Z", pa.timestamp("us"), 1_000_000),
        ("1970-01-01 00:00:01+01:00", pa.timestamp("us"), None),
        ("1e999", pa.float64(), None),
        ("3.5e38", pa.float32(), None),
        ("-Infinity", pa.float64(), float("-inf")),
        ("maybe", pa.bool_(), None),
        ("0044-03-15 BC", pa.date32(), -735160),
        ("-0043-03-15", pa.date32(), -735160),
        ("0000-12-31", pa.date32(), -719163),
        ("0000-00-00", pa.date32(), None),
        ("10000-01-01", pa.date32(), 2932897),
        ("0044-03-15 12:00:00.5 BC", pa.timestamp("us"), -735160 * 86_400_000_000 + 43_200_500_000),
        ("0044-03-15T00:00:00Z BC", pa.timestamp("us", "UTC"), -735160 * 86_400_000_000),
        ("0044-03-15 00:00:00 BC", pa.timestamp("us", "UTC"), (-735160 * 86_400 - 29_143) * 1_000_000),
        ("300000-01-01 00:00:00", pa.timestamp("us"), None),
        ("infinity", pa.timestamp("us"), None),
    ],
)
def test_a_value_is_what_the_type_can_hold_without_loss(text: str, kind: pa.DataType, value: object) -> None:
    assert value_of(text, kind, "Asia/Shanghai") == value


def test_instants_are_in_utc_and_cut_to_microseconds() -> None:
    texts = ["1970-01-01T00:00:01", "1970-01-01 00:00:01.123456789", "1970-01-01T01:00:00+01:00", "soon", None]
    texts += ["0044-03-15 00:00:00 BC", "10000-01-01 00:00:00", "0001-01-01 00:00:00"]
    found = instants(Tape.of_texts(pa.array(texts, pa.string())), np.arange(8, dtype=np.int32))
    first = -62_135_596_800_000_000
    assert found.values.cast(pa.int64()).to_pylist() == [1_000_000, 1_123_456, 0, None, None, None, None, first]
    assert found.refused.tolist() == [3, 5, 6]
