"""Values of every type for Debezium's messages."""

from __future__ import annotations

import base64
import datetime as dt

from hypothesis import strategies as st

DAY_ZERO = dt.datetime(1, 1, 1)


LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)


NANOS = (dt.datetime(1678, 1, 1), dt.datetime(2262, 1, 1))


def digits(precision: int, scale: int) -> st.SearchStrategy[str]:
    def written(number: int) -> str:
        text = str(abs(number)).rjust(scale + 1, "0")
        return ("-" if number < 0 else "") + (f"{text[:-scale]}.{text[-scale:]}" if scale else text)

    return st.integers(1 - 10**precision, 10**precision - 1).map(written)


def clocks(precision: int, first: dt.datetime = DAY_ZERO, last: dt.datetime = LAST) -> st.SearchStrategy[str]:
    """`YYYY-MM-DD HH:MM:SS` and a fraction of so many digits."""

    def written(moment: dt.datetime, nanos: int) -> str:
        fraction = f".{nanos:09}"[: precision + 1] if precision else ""
        return f"{moment.year:04}-{moment:%m-%d %H:%M:%S}{fraction}"

    return st.builds(written, st.datetimes(first, last), st.integers(0, 999_999_999))


def times(precision: int, hours: int = 23) -> st.SearchStrategy[str]:
    def written(sign: str, hour: int, minute: int, second: int, nanos: int) -> str:
        fraction = f".{nanos:09}"[: precision + 1] if precision else ""
        text = f"{hour:02}:{minute:02}:{second:02}{fraction}"
        return sign + text if text.strip("0:.") else text

    sixty = st.integers(0, 59)
    return st.builds(
        written, st.sampled_from(["", "-"] if hours > 23 else [""]), st.integers(0, hours), sixty, sixty,
        st.integers(0, 999_999_999),
    )  # fmt: skip


def plain_decimals() -> st.SearchStrategy[str]:
    return st.integers(0, 45).flatmap(lambda scale: digits(60, scale))


def integers(bits: int) -> st.SearchStrategy[str]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str)


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=12)


VALUES: dict[str, st.SearchStrategy[str]] = {
    "boolean": st.sampled_from(["true", "false"]),
    **{f"int{bits}": integers(bits) for bits in (8, 16, 32, 64)},
    "uint64": st.integers(0, 2**64 - 1).map(str),
    "decimal(5,0)": digits(5, 0),
    "decimal(18,18)": digits(18, 18),
    "decimal(38,10)": digits(38, 10),
    "decimal(65,30)": digits(65, 30),
    "decimal": plain_decimals(),
    "string": TEXT,
    "json": st.sampled_from(['{"a": 1.10, "b": [null, "\\u0001"]}', "[]", '"x"', "12345678901234567890.10"]),
    "nested": st.sampled_from(['{"a":[1,null]}', "[]"]),
    "uuid": st.uuids().map(str),
    "xml": st.sampled_from(['<a b="1">x</a>', "<é/>"]),
    "interval": st.sampled_from(["P1Y2M3DT4H5M6.78S", "-P1D", "PT0S"]),
    "bytes": st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()),
    "date": st.dates().map(lambda day: f"{day.year:04}-{day:%m-%d}"),
    "time(3)": times(3),
    "time(6)": times(6, 838),
    "time(9)": times(9),
    "timestamp(3)": clocks(3),
    "timestamp(6)": clocks(6),
    "timestamp(9)": clocks(9, *NANOS),
    "instant(6)": clocks(6).map(lambda text: f"{text.replace(' ', 'T').rstrip('0').rstrip('.')}Z"),
    "zoned_timestamp(9)": st.sampled_from(["2018-07-13T12:23:45Z", "0001-01-01T00:00:00.123456789+14:00"]),
}
