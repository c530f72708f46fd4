"""What SQLite lacks to answer as SQL Server does: orders of values, conversions, and functions of texts and dates."""

from __future__ import annotations

import calendar
import datetime as dt
import re
import sqlite3
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any

from headrace_emulators.engine.functions import FunctionHost
from headrace_emulators.sqlserver import clr_types, temporal
from headrace_emulators.sqlserver.conversion import assigning, casting
from headrace_emulators.sqlserver.errors import DataError, Error, not_emulated, null_refused, range_refused

_EXACT = Context(prec=60, rounding=ROUND_HALF_UP)


def functions_of(connection: sqlite3.Connection) -> FunctionHost[Error]:
    host = FunctionHost(connection, _worded)
    for name, count, function in SCALARS:
        host.register(name, count, function)
    connection.create_aggregate("tsql_sum", 1, _DecimalSum)  # type: ignore[arg-type]
    connection.create_aggregate("tsql_avg", 1, _DecimalAverage)  # type: ignore[arg-type]
    return host


def _worded(name: str, error: Exception) -> Error | None:
    if isinstance(error, ValueError | TypeError | ArithmeticError):
        return DataError(f"Error converting data type ({name}: {type(error).__name__}).", 8114)
    return error if isinstance(error, Error) else None


def _cast(value: Any, target: str, source: str, style: int) -> Any:
    return casting(target, source, style)(value)


def _try_cast(value: Any, target: str, source: str, style: int) -> Any:
    try:
        return casting(target, source, style)(value)
    except DataError:
        return None


def _assign(value: Any, declaration: str, column: str) -> Any:
    return assigning(declaration, column)(value)


def _assign_required(value: Any, declaration: str, column: str, table: str) -> Any:
    if value is None:
        raise null_refused(column, table)
    return assigning(declaration, column)(value)


def _divide(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    if b == 0:
        raise DataError("Divide by zero error encountered.", 8134)
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return a / b


def _modulo(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a - b * _divide(a, b)


def _arithmetic(operator: str, a: Any, b: Any, scale: int) -> Any:
    if a is None or b is None:
        return None
    x, y = Decimal(str(a)), Decimal(str(b))
    if operator in "/%" and not y:
        raise DataError("Divide by zero error encountered.", 8134)
    if operator == "+":
        made = _EXACT.add(x, y)
    elif operator == "-":
        made = _EXACT.subtract(x, y)
    elif operator == "*":
        made = _EXACT.multiply(x, y)
    elif operator == "/":
        made = _EXACT.divide(x, y)
    else:
        made = _EXACT.remainder(x, y)
    return format(made.quantize(Decimal(1).scaleb(-scale), context=_EXACT), "f")


class _DecimalSum:
    def __init__(self) -> None:
        self.total: Decimal | None = None
        self.count = 0

    def step(self, value: Any) -> None:
        if value is not None:
            self.total = _EXACT.add(self.total or Decimal(0), Decimal(str(value)))
            self.count += 1

    def finalize(self) -> str | None:
        return None if self.total is None else format(self.total, "f")


class _DecimalAverage(_DecimalSum):
    def finalize(self) -> str | None:
        if self.total is None:
            return None
        made = _EXACT.divide(self.total, Decimal(self.count))
        return format(made.quantize(Decimal("0.000001"), context=_EXACT), "f")


@lru_cache(maxsize=1024)
def _pattern(pattern: str, escape: str, exact: bool) -> re.Pattern[str]:
    out, i = [], 0
    while i < len(pattern):
        c = pattern[i]
        if escape and c == escape and i + 1 < len(pattern):
            i += 1
            out.append(re.escape(pattern[i]))
        elif c == "%":
            out.append(".*")
        elif c == "_":
            out.append(".")
        elif c == "[" and "]" in pattern[i + 1 :]:
            end = pattern.index("]", i + 1)
            inside = pattern[i + 1 : end]
            negated = inside.startswith("^")
            body = re.sub(r"([\\\[\]&~|^])", r"\\\1", inside[negated:])
            out.append(f"[{'^' if negated else ''}{body}]")
            i = end
        else:
            out.append(re.escape(c))
        i += 1
    return re.compile("".join(out), re.DOTALL if exact else re.DOTALL | re.IGNORECASE)


def _like(value: Any, pattern: Any, escape: Any, exact: int) -> Any:
    if value is None or pattern is None:
        return None
    return int(_pattern(str(pattern), escape or "", bool(exact)).fullmatch(str(value)) is not None)


def _length(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bytes):
        return len(value)
    return len(str(value).rstrip(" ").encode("utf-16-le")) // 2


def _data_length(value: Any, width: int) -> Any:
    if value is None:
        return None
    if isinstance(value, bytes):
        return len(value)
    return len(str(value).encode("utf-16-le")) // 2 * width


def _substring(text: Any, start: Any, length: Any) -> Any:
    if text is None or start is None or length is None:
        return None
    if length < 0:
        raise DataError("Invalid length parameter passed to the SUBSTRING function.", 537)
    return text[max(start - 1, 0) : max(start - 1 + length, 0)]


_UNITS = {
    "yyyy": "year", "yy": "year", "qq": "quarter", "q": "quarter", "mm": "month", "m": "month", "dd": "day", "d": "day",
    "dy": "dayofyear", "wk": "week", "hh": "hour", "mi": "minute", "n": "minute", "ss": "second", "s": "second",
    "ms": "millisecond", "mcs": "microsecond", "ns": "nanosecond", "tz": "tzoffset",
}  # fmt: skip
_TICKS = {
    "week": 7 * temporal.DAY, "day": temporal.DAY, "dayofyear": temporal.DAY, "hour": 36_000_000_000,
    "minute": 600_000_000,
    "second": 10_000_000, "millisecond": 10_000, "microsecond": 10,
}  # fmt: skip


def _unit(name: str) -> str:
    lowered = name.lower()
    return _UNITS.get(lowered, lowered)


def _date_part(unit: str, value: Any) -> Any:
    if value is None:
        return None
    days, ticks, offset = temporal.parse(str(value))
    day = dt.date.fromordinal(days)
    name = _unit(unit)
    seconds = ticks // 10_000_000
    parts = {
        "year": day.year, "month": day.month, "day": day.day, "quarter": (day.month + 2) // 3,
        "weekday": day.isoweekday() % 7 + 1,
        "dayofyear": day.timetuple().tm_yday, "hour": seconds // 3600, "minute": seconds // 60 % 60,
        "second": seconds % 60,
        "millisecond": ticks % 10_000_000 // 10_000, "microsecond": ticks % 10_000_000 // 10,
        "nanosecond": ticks % 10_000_000 * 100, "tzoffset": offset or 0,
    }  # fmt: skip
    if name not in parts:
        raise not_emulated(f"the date part {unit}", f"DATEPART({unit}, ...)")
    return parts[name]


def _date_add(unit: str, count: Any, value: Any, kind: str, scale: int) -> Any:
    if count is None or value is None:
        return None
    days, ticks, offset = temporal.parse(str(value))
    name = _unit(unit)
    if name in ("year", "quarter", "month"):
        months = int(count) * {"year": 12, "quarter": 3, "month": 1}[name]
        day = dt.date.fromordinal(days)
        index = day.year * 12 + day.month - 1 + months
        year, month = index // 12, index % 12 + 1
        days = dt.date(year, month, min(day.day, calendar.monthrange(year, month)[1])).toordinal()
    elif name in _TICKS or name == "nanosecond":
        moved = ticks + (int(count) // 100 if name == "nanosecond" else int(count) * _TICKS[name])
        days, ticks = days + moved // temporal.DAY, moved % temporal.DAY
    else:
        raise not_emulated(f"the date part {unit}", f"DATEADD({unit}, ...)")
    return temporal.to_text((days, ticks, offset), kind, scale)


def _date_diff(unit: str, start: Any, end: Any) -> Any:
    if start is None or end is None:
        return None
    name = _unit(unit)
    a, b = temporal.parse(str(start)), temporal.parse(str(end))
    if name in ("year", "quarter", "month"):
        x, y = dt.date.fromordinal(a[0]), dt.date.fromordinal(b[0])
        months = {"year": 12, "quarter": 3, "month": 1}[name]
        return (y.year * 12 + y.month - 1) // months - (x.year * 12 + x.month - 1) // months
    if name not in _TICKS:
        raise not_emulated(f"the date part {unit}", f"DATEDIFF({unit}, ...)")
    # SQL Server counts crossed boundaries, not whole units.
    x_ticks = a[0] * temporal.DAY + a[1] - (a[2] or 0) * 600_000_000
    y_ticks = b[0] * temporal.DAY + b[1] - (b[2] or 0) * 600_000_000
    return y_ticks // _TICKS[name] - x_ticks // _TICKS[name]


def _to_offset(value: Any, zone: Any) -> Any:
    if value is None or zone is None:
        return None
    text = zone if isinstance(zone, str) else temporal.zone_text(int(zone))
    return f"{str(value)[:27]} {text}"


def _object_path(name: Any) -> Any:
    if name is None:
        return None
    parts = [
        a.replace("]]", "]") or b or c
        for a, b, c in re.findall(r"\[((?:[^\]]|\]\])*)\]|\"([^\"]*)\"|([^.\[\]\"]+)", str(name))
    ]
    return ".".join(parts[-2:]) if len(parts) > 1 else f"dbo.{parts[0]}" if parts else None


def _step_lsn(lsn: Any, step: int) -> Any:
    if lsn is None:
        return None
    raw = bytes(lsn).ljust(10, b"\0")
    return ((int.from_bytes(raw, "big") + step) % (1 << 80)).to_bytes(10, "big")


def _check_range(low: Any, high: Any, oldest: Any, newest: Any, option: Any) -> int:
    known = str(option or "").lower() in ("all", "all update old")
    if not known or None in (low, high, oldest, newest) or low < oldest or low > high or high > newest:
        raise range_refused()
    return 1


def _quote_name(name: Any) -> Any:
    return None if name is None else "[" + str(name).replace("]", "]]") + "]"


def _replace(text: Any, old: Any, new: Any) -> Any:
    if text is None or old is None or new is None:
        return None
    return re.sub(re.escape(old), lambda _: new, text, flags=re.IGNORECASE) if old else text


def _clr(kind: str, name: str, value: Any) -> Any:
    return clr_types.method(kind, name, value)


def _clr_of(kind: str, text: Any, srid: Any) -> Any:
    return None if text is None else clr_types.stored(kind, str(text), None if srid is None else int(srid))


SCALARS: tuple[tuple[str, int, Callable[..., Any]], ...] = (
    ("tsql_cast", 4, _cast),
    ("tsql_try_cast", 4, _try_cast),
    ("tsql_assign", 3, _assign),
    ("tsql_assign_required", 4, _assign_required),
    ("tsql_divide", 2, _divide),
    ("tsql_modulo", 2, _modulo),
    ("tsql_arithmetic", 4, _arithmetic),
    ("tsql_like", 4, _like),
    ("tsql_len", 1, _length),
    ("tsql_datalength", 2, _data_length),
    ("tsql_substring", 3, _substring),
    ("tsql_datepart", 2, _date_part),
    ("tsql_dateadd", 5, _date_add),
    ("tsql_datediff", 3, _date_diff),
    ("tsql_todatetimeoffset", 2, _to_offset),
    ("tsql_object_path", 1, _object_path),
    ("tsql_step_lsn", 2, _step_lsn),
    ("tsql_check_range", 5, _check_range),
    ("tsql_quotename", 1, _quote_name),
    ("tsql_replace", 3, _replace),
    ("tsql_clr", 3, _clr),
    ("tsql_clr_of", 3, _clr_of),
)
