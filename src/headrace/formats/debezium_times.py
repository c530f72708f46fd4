"""Dates, times and intervals as counts, as Debezium writes them, from canonical texts and from Spark's typed values.

The session's time zone plays no part: texts are read as UTC, and local timestamps are counted by expressions that never
turn them into instants.

Source: Debezium's documentation (temporal types); recorded events of the PostgreSQL and MariaDB connectors 3.0.8 for
infinite timestamps and times beyond a day.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Spark SQL that holds a value against the limits of its wire type.

    Args:
        beyond: whether it is beyond them; what is no such value may be too.
        is_value: whether it is such a value at all.
        nearest: the wire value nearest to it.
    """

    beyond: str
    is_value: str
    nearest: str


@dataclass(frozen=True)
class Limits:
    """The first and last timestamp that a wire type holds, as canonical texts, and the counts that stand for them."""

    first: str
    last: str
    first_count: int
    last_count: int

    def of_text(self, text: str) -> Range:
        """For a canonical text. Texts of four-digit years compare as the timestamps do; longer years are later."""
        return Range(
            f"({text} > '{self.last}' or {text} < '{self.first}')",
            f"({text} rlike '^([0-9]{{4,6}}-[0-9]{{2}}-[0-9]{{2}} [0-9:]{{8}}([.][0-9]+)?|-?infinity)$')",
            f"if({text} > '{self.last}', {self.last_count}L, cast('{self.first_count}' as bigint))",
        )

    def of_typed(self, value: str) -> Range:
        """For a TIMESTAMP_NTZ."""
        first, last = (f"timestamp_ntz'{text[:26]}'" for text in (self.first, self.last))
        return Range(
            f"({value} > {last} or {value} < {first})",
            "true",
            f"if({value} > {last}, {self.last_count}L, cast('{self.first_count}' as bigint))",
        )


NANOSECONDS = Limits("1677-09-21 00:12:43.145225", "2262-04-11 23:47:16.854775807", -(2**63), 2**63 - 1)
"""What 64 bits hold of nanoseconds since the epoch."""
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_MONTH = 2_629_800_000_000
"""Microseconds of a twelfth of 365.25 days, by which Debezium counts months."""
_DAY = 86_400_000_000
# What PostgreSQL's infinite timestamps became on the wire, in milliseconds.
_INFINITE = {"infinity": 9223372036825200, "-infinity": -9223372036832400}


def days(text: str) -> str:
    """Spark SQL for the days since the epoch of a date's text; null where it is none."""
    return f"unix_date(try_cast({text} as date))"


def day_constant(text: str) -> int:
    """The same in Python, for defaults."""
    return dt.date.fromisoformat(text).toordinal() - _EPOCH_DAY


def of_timestamp(text: str, unit: str) -> str:
    """Spark SQL for a local timestamp's text as milliseconds (`ms`), microseconds or nanoseconds since the epoch.

    Null where the text is no timestamp, or does not fit.
    """
    if unit == "ns":
        micros = f"unix_micros(try_cast(concat(substr({text}, 1, 26), 'Z') as timestamp))"
        nanos = f"try_cast(rpad(substr({text}, 27), 3, '0') as int)"
        return f"try_add(try_multiply({micros}, 1000L), {nanos})"
    per_unit = 1 if unit == "ms" else 1000
    infinite = " ".join(f"when '{word}' then {count * per_unit}L" for word, count in _INFINITE.items())
    function = "unix_millis" if unit == "ms" else "unix_micros"
    return f"coalesce({function}(try_cast(concat({text}, 'Z') as timestamp)), case {text} {infinite} end)"


def of_time(text: str, unit: str) -> str:
    """Spark SQL for a time's text (`[-]HH:MM:SS[.f]`) as milliseconds (an int), microseconds or nanoseconds.

    A time may be negative or longer than a day. Null where the text is no time, or does not fit.
    """
    whole = f"concat('1970-01-01 ', {text}, 'Z')"
    if unit == "ms":
        usual = f"cast(unix_millis(try_cast({whole} as timestamp)) as int)"
        return f"coalesce({usual}, try_cast({_long_time(text, 6)} as int))"
    if unit == "us":
        return f"coalesce(unix_micros(try_cast({whole} as timestamp)), {_long_time(text, 3)})"
    return _long_time(text, 0)


def _long_time(text: str, cut: int) -> str:
    """A time of any length in nanoseconds, without the last `cut` digits."""
    plain = f"ltrim('-', {text})"
    clock = f"substring_index({plain}, '.', 1)"
    seconds = " + ".join(
        f"cast(split_part({clock}, ':', {n}) as bigint) * {unit}L" for n, unit in ((1, 3600), (2, 60), (3, 1))
    )
    fraction = f"cast(rpad(if(contains({text}, '.'), substring_index({text}, '.', -1), ''), 9, '0') as bigint)"
    count = f"(({seconds}) * 1000000000L + {fraction}) div {10**cut}L"
    signed = f"if(startswith({text}, '-'), -1L, 1L) * ({count})"
    return f"if({text} rlike '^-?[0-9]{{1,6}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,9}})?$', {signed}, null)"


def time_constant(text: str, unit: str) -> int:
    """A time's text as a count, in Python, for defaults."""
    sign = -1 if text.startswith("-") else 1
    clock, _, fraction = text.lstrip("-").partition(".")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    nanos = (hours * 3600 + minutes * 60 + seconds) * 10**9 + int(fraction.ljust(9, "0")[:9])
    return sign * (nanos // _NANOS[unit])


def timestamp_constant(text: str, unit: str) -> int:
    """A local timestamp's text as a count, in Python, for defaults."""
    moment, _, fraction = text.partition(".")
    seconds = (dt.datetime.fromisoformat(moment) - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1)
    return (seconds * 10**9 + int(fraction.ljust(9, "0")[:9])) // _NANOS[unit]


_NANOS = {"ns": 1, "us": 1000, "ms": 10**6}


def of_typed_timestamp(value: str, unit: str) -> str:
    """Spark SQL for a TIMESTAMP_NTZ as a count; nanoseconds that do not fit are null."""
    # What turns a local timestamp into a number without any zone: whole seconds (cut towards zero, so for those since
    # the epoch only), and the seconds of a minute with their fraction. Before the epoch by the difference of two local
    # timestamps, in whole seconds and the rest; an interval becomes a number by its seconds.
    recent = f"unix_timestamp({value}) div 60L * 60000000L + cast(extract(second from {value}) * 1000000 as bigint)"
    since = f"cast({value} - timestamp_ntz'1970-01-01 00:00:00' as interval second)"
    seconds = f"cast({since} as bigint)"
    rest = f"cast(({since} - interval '1' second * {seconds}) * 1000000 as bigint)"
    early = f"{seconds} * 1000000L + {rest}"
    micros = f"if({value} >= timestamp_ntz'1970-01-01 00:00:00', {recent}, {early})"
    if unit == "ms":
        return f"cast(floor({micros} / 1000BD) as bigint)"
    return micros if unit == "us" else f"try_multiply({micros}, 1000L)"


def micro_duration(text: str) -> str:
    """Spark SQL for an interval's text in microseconds, a month being a twelfth of 365.25 days.

    Read are ISO 8601 (`P1Y2M3DT4H5M6.789S`), Oracle's two forms (`+01-06`, `+03 04:05:06.789`) and a count of
    microseconds itself. Null where the text is none of these, or does not fit.
    """

    def part(pattern: str) -> str:
        return f"coalesce(try_cast(nullif(regexp_extract({text}, '{pattern}', 1), '') as bigint), 0L)"

    def fraction(pattern: str) -> str:
        return f"cast(rpad(regexp_extract({text}, '{pattern}', 1), 6, '0') as bigint)"

    sign = f"if(startswith({text}, '-'), -1L, 1L)"
    date, clock = "^[^T]*?(-?[0-9]+)", "T.*?(-?[0-9]+)"
    below = f"if(regexp_extract({text}, 'T.*?(-?)[0-9]+[.][0-9]*S', 1) = '-', -1L, 1L)"
    iso = " + ".join(
        (
            f"({part(date + 'Y')} * 12 + {part(date + 'M')}) * {_MONTH}L",
            f"{part(date + 'W')} * {7 * _DAY}L",
            f"{part(date + 'D')} * {_DAY}L",
            f"{part(clock + 'H')} * 3600000000L",
            f"{part(clock + 'M')} * 60000000L",
            f"{part(clock + '(?:[.][0-9]*)?S')} * 1000000L",
            f"{below} * {fraction('[.]([0-9]{1,6})[0-9]*S')}",
        )
    )
    months = f"({part('^[+-]?([0-9]+)-')} * 12 + {part('-([0-9]+)$')}) * {_MONTH}L"
    clocked = (
        f"{part('^[+-]?([0-9]+) ')} * {_DAY}L + {part(' ([0-9]+):')} * 3600000000L + "
        f"{part(':([0-9]+):')} * 60000000L + {part(':([0-9]+)(?:[.]|$)')} * 1000000L + "
        f"{fraction('[.]([0-9]{1,6})[0-9]*$')}"
    )
    number = "[0-9]{1,9}"
    return (
        f"case when {text} rlike '^-?[0-9]+$' then try_cast({text} as bigint) "
        f"when {text} rlike '^[+-]?P(-?{number}[YMWD])*(T(-?{number}([.][0-9]*)?[HMS])*)?$' then {sign} * ({iso}) "
        f"when {text} rlike '^[+-]?{number}-{number}$' then {sign} * ({months}) "
        f"when {text} rlike '^[+-]?[0-9]{{1,6}} {number}:{number}:{number}([.][0-9]+)?$' then {sign} * ({clocked}) end"
    )
