"""Debezium's values as canonical text, for the fields whose text on the wire is not the canonical one.

Whole columns go through the kernels of `wire.canonical`; what they leave, and the forms that few messages have, one by
one. What can't be read has no text. Exact numbers never pass through a double.

The other way, binary numbers get Java's text form (the fewest digits, with a point, and an exponent beyond 0.001 and
10,000,000), and dates, times and intervals the counts that Debezium writes.

Source: Debezium's documentation (data type mappings, temporal types); recorded events of the PostgreSQL and MariaDB
    connectors 3.0.8 for
infinite timestamps and times beyond a day.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.wire.canonical import DATE as COUNTS_DATE
from headrace.wire.canonical import TIME as COUNTS_TIME
from headrace.wire.canonical import TIMESTAMP as COUNTS_TIMESTAMP
from headrace.wire.canonical import decimal_texts, moment_texts, odd_floats, settled
from headrace.wire.canonical_exact import MOST_DIGITS, decimal_text, float_text
from headrace.wire.json_columns import FLOAT as FLOAT_OF_JSON
from headrace.wire.json_columns import JsonColumn, JsonColumns
from headrace.wire.json_exact import FALSE, NUMBER, OBJECT, TRUE
from headrace.wire.json_rows import Cells
from headrace.wire.json_writer import to_text
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn
from headrace.wire.typed_exact import days_of, decimal_of, value_of

(
    INTEGER, BOOLEAN, FLOAT, DATE, TIME, TIMESTAMP, DECIMAL, VARIABLE_DECIMAL, ISO, URL_SAFE, HEX, STRUCTURED, INSTANT,
    UNSIGNED,
) = range(14)  # fmt: skip
"""How a value is encoded. `INSTANT` is a text, or a count without a schema that says so; `UNSIGNED` is a number of 64
bits that is negative from 2^63 on."""

_COUNTS = {DATE: COUNTS_DATE, TIME: COUNTS_TIME, TIMESTAMP: COUNTS_TIMESTAMP, INSTANT: COUNTS_TIMESTAMP}
_LENIENT = frozenset((INTEGER, BOOLEAN, FLOAT, DATE, TIME, TIMESTAMP, DECIMAL, INSTANT, UNSIGNED))
_VARIABLE = Names([("scale", "value")])
_MOST_SCALE = 1 << 20
_DECIMAL_DIGITS = 38


@dataclass(frozen=True)
class FieldEncoding:
    """How a field's values are written.

    Args:
        code: one of the numbers above.
        unit: the fraction digits of a count of time.
        digits: those of its text; -1 for the unit's.
        scale: digits after the point.
        listed: whether the value is an array whose elements are written so.
    """

    code: int
    unit: int = 6
    digits: int = -1
    scale: int = 0
    listed: bool = False

    @property
    def is_checked_only(self) -> bool:
        return not self.listed and self.code in (INTEGER, BOOLEAN)

    @property
    def is_lenient(self) -> bool:
        """Whether a value that is written otherwise keeps its text, where a column's type says what it means."""
        return self.code in _LENIENT and not self.listed

    def canonical(self, tape: Tape, at: Array) -> pa.StringArray:
        """The canonical texts of values; null for what is none.

        Args:
            tape: where they are.
            at: their indexes; none is null or absent.
        """
        if self.listed:
            return _each(tape.texts(at), self._listed_text)
        if self.is_checked_only or self.code in _COUNTS:
            return self._of_counts(tape, at)
        if self.code == UNSIGNED:
            counts = TypedColumn(tape, at, pa.int64()).values
            rows = np.flatnonzero(counts.fill_null(-1).to_numpy() < 0)
            texts = tape.texts(np.ascontiguousarray(at[rows])).to_pylist()
            return settled(tape.texts(at), rows, [_unsigned(text) for text in texts])
        if self.code == FLOAT:
            rows = np.flatnonzero(odd_floats(tape, at))
            texts = tape.texts(np.ascontiguousarray(at[rows])).to_pylist()
            return settled(tape.texts(at), rows, [float_text(text) for text in texts])
        if self.code == DECIMAL:
            is_number = tape.kinds(at) == NUMBER
            quoted = np.where(is_number, np.int32(-1), at)
            decimals = decimal_texts(tape, quoted, np.full(at.size, self.scale), decimal_text)
            if not is_number.any():
                return decimals
            return pc.coalesce(decimals, _scaled(tape, np.where(is_number, at, np.int32(-1)), self.scale))
        if self.code == VARIABLE_DECIMAL:
            return _variable_decimals(tape, at)
        return _each(tape.texts(at), self._odd_text)

    def _of_counts(self, tape: Tape, at: Array) -> pa.StringArray:
        if self.code == BOOLEAN:
            texts, kinds = tape.texts(at), tape.kinds(at)
            rows = np.flatnonzero((kinds != TRUE) & (kinds != FALSE))
            odd = [text if text in ("true", "false") else None for text in texts.take(pa.array(rows)).to_pylist()]
            return settled(texts, rows, odd)
        counts = TypedColumn(tape, at, pa.int64())
        if self.code == INTEGER:
            return settled(tape.texts(at), counts.refused, [None] * counts.refused.size)
        moments = moment_texts(counts.values, _COUNTS[self.code], self.unit, self.digits)
        if self.code != INSTANT:
            return moments
        zoned = pa.compute.binary_join_element_wise(moments, "Z", "")
        texts = tape.texts(np.ascontiguousarray(at[counts.refused])).to_pylist()
        return settled(zoned, counts.refused, texts)

    def _listed_text(self, text: str) -> str | None:
        try:
            items = json.loads(text)
        except ValueError:
            return None
        if not isinstance(items, list):
            return None
        texts = [
            None if item is None else self.text(item if isinstance(item, str) else to_text(item)) for item in items
        ]
        wrong = any(new is None and item is not None for item, new in zip(items, texts, strict=True))
        return None if wrong else to_text(texts)

    def text(self, text: str) -> str | None:
        if self.code in (INTEGER, *_COUNTS):
            column = TypedColumn(Tape.of_texts(pa.array([text])), np.zeros(1, np.int32), pa.int64()).values
            if self.code == INTEGER:
                return text if column.null_count == 0 else None
            moment: str | None = moment_texts(column, _COUNTS[self.code], self.unit, self.digits)[0].as_py()
            return moment
        if self.code == BOOLEAN:
            return text if text in ("true", "false") else None
        if self.code == FLOAT:
            return float_text(text)
        if self.code == DECIMAL:
            return decimal_text(text, self.scale)
        return self._odd_text(text)

    def _odd_text(self, text: str) -> str | None:
        if self.code == VARIABLE_DECIMAL:
            return _variable_decimal(text)
        if self.code == UNSIGNED:
            return _unsigned(text)
        if self.code == ISO:
            return text.rstrip("Z").replace("T", " ")
        if self.code == URL_SAFE:
            return text.replace("-", "+").replace("_", "/")
        if self.code == HEX:
            try:
                return base64.b64encode(bytes.fromhex(text)).decode()
            except ValueError:
                return None
        return _structured(text)


def _scaled(tape: Tape, at: Array, scale: int) -> pa.StringArray:
    """Numbers with the digits of their column after the point (decimal.format=NUMERIC); None where one has more."""
    rows, scaled = np.flatnonzero(at >= 0), pa.nulls(at.size, pa.string())
    if 0 <= scale <= _DECIMAL_DIGITS:
        column = TypedColumn(tape, at, pa.decimal128(_DECIMAL_DIGITS, scale))
        scaled = column.values.cast(pa.string())
        # What has too many digits for the type, and what Arrow writes with an exponent.
        small = np.flatnonzero(pc.fill_null(pc.match_substring(scaled, "E"), False).to_numpy(zero_copy_only=False))
        rows = np.union1d(column.refused, small)
    texts = tape.texts(np.ascontiguousarray(at[rows])).to_pylist()
    exact = (decimal_of(text, MOST_DIGITS, scale) for text in texts)
    return settled(scaled, rows, [None if number is None else format(number, "f") for number in exact])


def _unsigned(text: str) -> str | None:
    if not re.fullmatch(r"-?[0-9]{1,20}", text):
        return None
    number = int(text)
    return str(number % 2**64) if -(2**63) <= number < 2**64 else None


def _variable_decimals(tape: Tape, at: Array) -> pa.StringArray:
    """Numbers that carry their scale, as objects."""
    objects = np.ascontiguousarray(np.where(tape.kinds(at) == OBJECT, at, np.int32(-1)))
    scale, value = tape.fields(objects, _VARIABLE)
    scales = TypedColumn(tape, np.ascontiguousarray(scale), pa.int64()).values
    known = scales.is_valid().to_numpy(zero_copy_only=False)
    numbers = np.clip(scales.fill_null(0).to_numpy(), -_MOST_SCALE, _MOST_SCALE)
    quoted = np.where(known & (tape.kinds(value) != NUMBER), value, np.int32(-1))
    return decimal_texts(tape, np.ascontiguousarray(quoted), numbers, decimal_text)


def _variable_decimal(text: str) -> str | None:
    parsed = _object(text)
    if parsed is None:
        return None
    scale, value = parsed.get("scale"), parsed.get("value")
    return decimal_text(value, scale) if isinstance(value, str) and type(scale) is int else None


def _object(text: str) -> dict[str, Any] | None:
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _structured(text: str) -> str | None:
    """Debezium's structured dates and times: as a date, a time or both; what says neither stays as it came."""
    parsed = _object(text)
    if parsed is None:
        return None
    numbers = {name: value for name, value in parsed.items() if type(value) is int}
    special = parsed.get("special") or parsed.get("special_value")
    if special is not None:
        return str(special).lower()
    day = clock = offset = ""
    if "day" in numbers and "month" in numbers and "year" in numbers:
        year = numbers["year"]
        day = f"{'-' if year < 0 else ''}{abs(year):04}-{numbers['month']:02}-{numbers['day']:02}"
    if "hour" in numbers and "minute" in numbers:
        nano = next((numbers[name] for name in ("nano", "nanos", "nanosecond") if name in numbers), 0)
        fraction = f".{nano:09}".rstrip("0") if nano else ""
        clock = f"{numbers['hour']:02}:{numbers['minute']:02}:{numbers.get('second', 0):02}{fraction}"
    if "offset_seconds" in numbers:
        minutes = abs(numbers["offset_seconds"]) // 60
        sign = "-" if numbers["offset_seconds"] < 0 else "+"
        offset = "Z" if numbers["offset_seconds"] == 0 else f"{sign}{minutes // 60:02}:{minutes % 60:02}"
    if day and clock:
        return f"{day}T{clock}{offset}" if offset else f"{day} {clock}"
    return day or (clock + offset if clock else text)


def uuid_of(text: str) -> str:
    """The UUID that Java makes of the bytes of a text."""
    return str(uuid.UUID(bytes=hashlib.md5(text.encode(), usedforsecurity=False).digest(), version=3))


def placeholders(text: str) -> Names:
    """What stands for a value that a change does not carry: as a text, as bytes (four ways), as an array of texts, of
    whole numbers or of a UUID, as a map."""
    data = text.encode()
    quoted = to_text(text)
    forms = [text, base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex(), f"[{quoted}]"]
    forms += [f"[{to_text(item)}]" for item in (forms[1], uuid_of(text))]
    for comma, colon in ((",", ":"), (", ", ": ")):
        forms += [f"[{comma.join(map(str, data))}]", f"{{{quoted}{colon}{quoted}}}"]
    # PostgreSQL's hstore is a text that holds an object.
    return Names([list(dict.fromkeys([*forms, *(to_text(form)[1:-1] for form in forms)]))])


def _each(texts: pa.StringArray, convert: Callable[[str], str | None]) -> pa.StringArray:
    codes = texts.dictionary_encode()
    converted = [convert(text) for text in codes.dictionary.to_pylist()]
    return pa.array(converted, pa.string()).take(codes.indices)


_COLUMN = JsonColumns([("", [JsonColumn("", "", FLOAT_OF_JSON, 17)], "")])
_WORDS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def java_texts(texts: pa.StringArray, *, single: bool) -> list[str | None]:
    """The JSON of the numbers that texts mean; None for what is none.

    Args:
        texts: the texts.
        single: whether numbers have 32 bits.
    """
    values = _values(texts, pa.float32() if single else pa.float64())
    # Arrow writes the fewest digits, too.
    shortest, present = values.cast(pa.string()), np.ones(len(values), np.bool_)

    def written(_: int, odd: pa.StringArray, rows: Array) -> list[str]:
        numbers = values.take(pa.array(rows)).to_pylist()
        return [_WORDS.get(text) or java_text(text, n) for text, n in zip(odd.to_pylist(), numbers, strict=True)]

    written_texts: list[str] = Cells.of_columns(_COLUMN, [shortest], present, None).json(written).to_pylist()
    return [None if text == "null" else text for text in written_texts]


def _values(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    try:
        values = texts.cast(kind)
    except pa.ArrowInvalid:
        values = None
    if values is None or pc.any(pc.is_inf(values)).as_py():
        values = pa.array([value_of(text, kind) for text in texts.to_pylist()], kind)
    return values


def java_text(text: str, number: float) -> str:
    """What Java writes for a finite number, from the fewest digits that tell it: the specification of the kernel."""
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits)).rstrip("0")
    minus = "-" if sign else ""
    if not figures:
        return f"{minus}0.0"
    if len(figures) == 1:
        # Where one digit is enough, Java takes the nearest number of two.
        _, digits, exponent = Decimal(f"{number:.1e}").as_tuple()
        assert isinstance(exponent, int)
        figures = "".join(map(str, digits)).rstrip("0")
    # The number is 0.figures times ten to the power of `point`.
    point = len(digits) + exponent
    if -3 < point <= 7:
        whole, fraction = figures[: max(point, 0)].ljust(point, "0"), figures[max(point, 0) :]
        return f"{minus}{whole or '0'}.{'0' * max(-point, 0)}{fraction or '0'}"
    return f"{minus}{figures[0]}.{figures[1:] or '0'}E{point - 1}"


_FIRST, _LAST = -(2**63), 2**63 - 1
_DATE = re.compile(r"\s*([+-]?[0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})(?:[ T].*)?\s*", re.S)
_TIMESTAMP = re.compile(
    r"\s*([+-]?[0-9]{4,6})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?\s*"
)
_TIME = re.compile(r"(-?)([0-9]{1,6}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?")
# What PostgreSQL's infinite timestamps became on the wire, in milliseconds, and its infinite dates, in days.
_INFINITE = {"infinity": 9223372036825200, "-infinity": -9223372036832400}
_INFINITE_DATES = {"infinity": -2147472692, "-infinity": -2147472691}
_BEFORE_CHRIST = " BC"
MONTH = 2_629_800_000_000
"""Microseconds of a twelfth of 365.25 days, by which Debezium counts months."""
DAY = 86_400_000_000
_N = "-?[0-9]{1,9}"
_ISO = re.compile(rf"([+-]?)P(?=.*?)((?:{_N}[YMWD])*)(?:T((?:{_N}(?:\.[0-9]*)?[HMS])*))?")
_MONTHS = re.compile(r"([+-]?)([0-9]{1,9})-([0-9]{1,9})")
_CLOCK = re.compile(r"([+-]?)([0-9]{1,6}) ([0-9]{1,9}):([0-9]{1,9}):([0-9]{1,9})(?:\.([0-9]+))?")


def of_date(text: str) -> int | None:
    if text in _INFINITE_DATES:
        return _INFINITE_DATES[text]
    match = _DATE.fullmatch(text.removesuffix(_BEFORE_CHRIST))
    return None if match is None else days_of(_year(match[1], text), int(match[2]), int(match[3]))


def of_timestamp(text: str, digits: int) -> int | None:
    """Units of so many fraction digits since 1970 of a local timestamp; what is finer is cut off."""
    if text in _INFINITE:
        return _INFINITE[text] * 10 ** (digits - 3) if digits < 9 else None
    moment = _moment(text)
    if moment is None:
        return None
    count = moment // 10 ** (9 - digits)
    return count if _FIRST <= count <= _LAST else None


def nearest_timestamp(text: str) -> int | None:
    """The nearest count of nanoseconds for a timestamp beyond their range; None if the text is not a timestamp."""
    if text in _INFINITE:
        return _LAST if _INFINITE[text] > 0 else _FIRST
    moment = _moment(text)
    return None if moment is None else _LAST if moment > 0 else _FIRST


def is_timestamp(text: str) -> bool:
    """Whether a text is a local timestamp, of any year."""
    return text in _INFINITE or _moment(text) is not None


def of_time(text: str, digits: int) -> int | None:
    """Units of a time, which may be negative or longer than a day; those of milliseconds are of 32 bits."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    sign, hours, minutes, seconds, fraction = match.groups()
    nanos = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 10**9 + int((fraction or "").ljust(9, "0"))
    count = nanos // 10 ** (9 - digits) * (-1 if sign else 1)
    return None if digits == 3 and not -(2**31) <= count < 2**31 else count


def of_interval(text: str) -> int | None:
    """Microseconds of an interval, a month being a twelfth of 365.25 days.

    Read are ISO 8601 (`P1Y2M3DT4H5M6.789S`), Oracle's two forms (`+01-06`, `+03 04:05:06.789`) and a count of
    microseconds itself.
    """
    count = _interval(text)
    return count if count is not None and _FIRST <= count <= _LAST else None


def _interval(text: str) -> int | None:
    if re.fullmatch(r"-?[0-9]{1,40}", text):
        return int(text)
    months, clock, iso = _MONTHS.fullmatch(text), _CLOCK.fullmatch(text), _ISO.fullmatch(text)
    if months is not None:
        return _signed(months[1], (int(months[2]) * 12 + int(months[3])) * MONTH)
    if clock is not None:
        days, hours, minutes, seconds = (int(part) for part in clock.groups()[1:5])
        count = days * DAY + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
        return _signed(clock[1], count + int((clock[6] or "")[:6].ljust(6, "0")))
    return None if iso is None else _signed(iso[1], _iso(iso[2] or "", iso[3] or ""))


def _iso(date_part: str, clock: str) -> int:
    def part(text: str, letter: str) -> int:
        match = re.search(rf"(-?[0-9]+)(?:\.[0-9]*)?{letter}", text)
        return 0 if match is None else int(match[1])

    count = (part(date_part, "Y") * 12 + part(date_part, "M")) * MONTH
    count += part(date_part, "W") * 7 * DAY + part(date_part, "D") * DAY
    count += ((part(clock, "H") * 60 + part(clock, "M")) * 60 + part(clock, "S")) * 1_000_000
    below = re.search(r"(-?)[0-9]+\.([0-9]{1,6})[0-9]*S", clock)
    return count if below is None else count + _signed(below[1], int(below[2].ljust(6, "0")))


def _signed(sign: str, number: int) -> int:
    return -number if sign == "-" else number


def _moment(text: str) -> int | None:
    match = _TIMESTAMP.fullmatch(text.removesuffix(_BEFORE_CHRIST))
    if match is None:
        return None
    days = days_of(_year(match[1], text), int(match[2]), int(match[3]))
    hour, minute, second = (int(match[n] or 0) for n in (4, 5, 6))
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 10**9 + int((match[7] or "")[:9].ljust(9, "0"))


def _year(digits: str, text: str) -> int:
    return 1 - int(digits) if text.endswith(_BEFORE_CHRIST) else int(digits)
