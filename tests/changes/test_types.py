"""Rule: every logical type has one canonical text; text and value turn into each other without loss."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes.types import LogicalType, NanosecondTime, arrow_text

CANONICAL = [
    ("boolean", True, "true"),
    ("int16", -32768, "-32768"),
    ("int64", -(2**63), "-9223372036854775808"),
    ("uint64", 2**64 - 1, "18446744073709551615"),
    ("decimal(10,2)", Decimal("12.5"), "12.50"),
    ("decimal(38,10)", Decimal("1E-10"), "0.0000000001"),
    ("decimal(38,10)", Decimal("-9999999999999999999999999999.9999999999"), "-9999999999999999999999999999.9999999999"),
    ("decimal(9,3)", Decimal("-0.001"), "-0.001"),
    ("decimal(5,0)", Decimal("1E3"), "1000"),
    ("decimal(5,2)", Decimal("-0.00"), "0.00"),
    ("float64", 3.0, "3.0"),
    ("float64", 1e22, "1e+22"),
    ("float64", math.nan, "NaN"),
    ("float64", -math.inf, "-Infinity"),
    ("float32", 3.323, "3.323"),
    ("string", "O'Hara \u65e5 \U0001f600", "O'Hara \u65e5 \U0001f600"),
    ("bytes", b"\xde\xad\xbe\xef", "3q2+7w=="),
    ("date", dt.date(1, 1, 1), "0001-01-01"),
    ("time(2)", dt.time(10, 23, 45, 120000), "10:23:45.12"),
    ("time(0)", dt.time(23, 59, 59), "23:59:59"),
    ("timestamp(3)", dt.datetime(2018, 7, 13, 11, 23, 45, 340000), "2018-07-13 11:23:45.340"),
    ("timestamp(7)", NanosecondTime(dt.datetime(9999, 12, 31, 23, 59, 59), 999_999_900), "9999-12-31 23:59:59.9999999"),
    ("instant(3)", dt.datetime(1969, 12, 31, 23, 59, 59, 999000, dt.UTC), "1969-12-31T23:59:59.999Z"),
    (
        "zoned_timestamp(0)",
        dt.datetime(2018, 7, 13, 12, 23, 45, tzinfo=dt.timezone(-dt.timedelta(hours=5, minutes=30))),
        "2018-07-13T12:23:45-05:30",
    ),
]


@pytest.mark.parametrize(("kind", "value", "text"), CANONICAL)
def test_a_value_has_its_canonical_text_and_comes_back(kind, value, text):
    logical = LogicalType.parse(kind)
    assert logical.to_text(value) == text
    assert logical.to_text(logical.from_text(text)) == text


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("decimal(9,2)", Decimal("0.001")),
        ("timestamp(3)", dt.datetime(2020, 1, 1, 0, 0, 0, 1)),
        ("time(6)", NanosecondTime(dt.time(1), 1)),
        ("instant(0)", dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
    ],
)
def test_a_value_that_would_lose_digits_is_refused(kind, value):
    with pytest.raises(ValueError):
        LogicalType.parse(kind).to_text(value)


@pytest.mark.parametrize("text", ["decimal(10,2)", "timestamp(7)", "string", "uint64"])
def test_a_logical_type_reads_back_from_its_text(text):
    assert str(LogicalType.parse(text)) == text


@pytest.mark.parametrize("text", ["money", "decimal(", "", "STRING"])
def test_an_unknown_logical_type_is_refused(text):
    with pytest.raises(ValueError):
        LogicalType.parse(text)


@pytest.mark.parametrize(
    ("kind", "spark"),
    [
        ("uint64", "decimal(20,0)"),
        ("decimal(38,10)", "decimal(38,10)"),
        ("decimal(65,30)", "string"),
        ("timestamp(6)", "timestamp_ntz"),
        ("timestamp(7)", "string"),
        ("instant(3)", "timestamp"),
        ("time(3)", "string"),
        ("bytes", "binary"),
        ("json", "string"),
    ],
)
def test_a_typed_column_never_cuts_what_the_text_holds(kind, spark):
    assert LogicalType.parse(kind).spark_type == spark


CENTS = st.integers(-(10**13), 10**13).map(lambda n: n / 100)
VALUES = {
    "int64": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "boolean": (st.booleans(), pa.bool_()),
    "string": (st.text(), pa.string()),
    "bytes": (st.binary(), pa.binary()),
    "date": (st.dates(), pa.date32()),
    "float64": (st.floats(allow_nan=False) | st.floats(-1e11, 1e11) | CENTS, pa.float64()),
    "float32": (st.floats(allow_nan=False, width=32) | st.floats(-1e7, 1e7, width=32), pa.float32()),
    "decimal(38,10)": (
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: _scaled(n)),
        pa.decimal128(38, 10),
    ),
    "timestamp(6)": (st.datetimes(), pa.timestamp("us")),
    "time(6)": (st.times(), pa.time64("us")),
    "instant(6)": (st.datetimes(timezones=st.just(dt.UTC)), pa.timestamp("us", tz="UTC")),
}


def _scaled(unscaled: int) -> Decimal:
    sign, digits = (1, -unscaled) if unscaled < 0 else (0, unscaled)
    return Decimal((sign, tuple(int(d) for d in str(digits)), -10))


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_whole_columns_have_the_same_text_as_single_values(kind):
    strategy, arrow = VALUES[kind]
    logical = LogicalType.parse(kind)

    @given(st.lists(st.none() | strategy, max_size=8))
    def same(values):
        array = pa.array(values, arrow)
        expected = [None if v is None else logical.to_text(v) for v in values]
        assert arrow_text(array, logical).to_pylist() == expected

    same()


@pytest.mark.parametrize("kind", sorted(set(VALUES) - {"string"}))
def test_text_and_value_are_inverse(kind):
    strategy, _ = VALUES[kind]
    logical = LogicalType.parse(kind)

    @given(strategy)
    def inverse(value):
        text = logical.to_text(value)
        again = logical.from_text(text)
        assert again == value or logical.to_text(again) == text

    inverse()


@pytest.mark.parametrize(
    ("kind", "expected"), [("timestamp(0)", "2018-01-01 01:01:01"), ("timestamp(2)", "2018-01-01 01:01:01.50")]
)
def test_a_columns_own_precision_decides_the_fraction_digits(kind, expected):
    array = pa.array([dt.datetime(2018, 1, 1, 1, 1, 1, 500000 if "2" in kind else 0)], pa.timestamp("us"))
    assert arrow_text(array, LogicalType.parse(kind)).to_pylist() == [expected]
