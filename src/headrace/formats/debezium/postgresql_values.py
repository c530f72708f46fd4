"""PostgreSQL's canonical texts as its Debezium connector writes them; None for a text that does not fit.

Source: recorded events of the PostgreSQL connector 3.0.8; Debezium's documentation (data type mappings).
"""

from __future__ import annotations

import base64
import re
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.debezium.values import DAY, MONTH

_INTERVAL = re.compile(
    r"(?:([+-]?\d{1,9}) years? ?)?(?:([+-]?\d{1,9}) mons? ?)?(?:([+-]?\d{1,10}) days? ?)?"
    r"(?:([+-]?)(\d{1,12}):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?",
    re.ASCII,
)
_ZONED = re.compile(r"(\d{4,6})(-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00( BC)?", re.ASCII)
_TIMETZ = re.compile(r"(\d\d):(\d\d):(\d\d)(\.\d{1,6})?([+-])(\d\d)(?::(\d\d)(?::(\d\d))?)?", re.ASCII)
_POINT = re.compile(r"\(([^,()]+),([^,()]+)\)")
_BITS = re.compile(r"[01]*", re.ASCII)
_LARGEST = 2**63
_HAS_SYSTEM = 0x20000000
"""In the type of an extended well-known binary: the number of its reference system follows."""


def micro_duration(text: str) -> int | None:
    """Microseconds of an interval, a month being a twelfth of 365.25 days."""
    parts = _parts(text)
    if parts is None:
        return None
    months, days, micros = parts
    count = months * MONTH + days * DAY + micros
    return count if -_LARGEST <= count < _LARGEST else None


def is_interval(text: str) -> bool:
    return _parts(text) is not None


def iso_interval(text: str) -> str:
    """An interval as ISO 8601 has it; another text stays."""
    parts = _parts(text)
    if parts is None:
        return text
    months, days, micros = parts
    sign, rest = "-" if micros < 0 else "", abs(micros)
    years, months = int(months / 12), months - 12 * int(months / 12)
    hours, minutes = rest // 3_600_000_000, rest // 60_000_000 % 60
    seconds = format(Decimal(rest % 60_000_000) / 1_000_000, "f").rstrip("0").rstrip(".") if rest % 60_000_000 else "0"
    clock = "".join(f"{'' if part in (0, '0') else sign}{part}{unit}" for part, unit in
                    ((hours, "H"), (minutes, "M"), (seconds, "S")))  # fmt: skip
    return f"P{years}Y{months}M{days}DT{clock}"


def _parts(text: str) -> tuple[int, int, int] | None:
    """Months, days and microseconds."""
    match = _INTERVAL.fullmatch(text.rstrip()) if text else None
    if match is None:
        return None
    years, months, days = (int(match[n] or 0) for n in (1, 2, 3))
    micros = (int(match[5] or 0) * 60 + int(match[6] or 0)) * 60 + int(match[7] or 0)
    micros = micros * 1_000_000 + int((match[8] or "").ljust(6, "0"))
    return years * 12 + months, days, -micros if match[4] == "-" else micros


def zoned_texts(texts: pa.StringArray, digits: int) -> pa.StringArray:
    """Instants in ISO 8601. Those of the years 1 to 9999 are written so already."""
    ordinary = pc.ends_with(texts, "Z")
    if pc.all(ordinary, min_count=0).as_py():
        return texts
    odd = pc.invert(ordinary)
    converted = [zoned_text(text, digits) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(converted, pa.string()))


def zoned_text(text: str, digits: int) -> str:
    """An instant in ISO 8601, which counts years before Christ from 0 and has a sign for years beyond 9999."""
    match = _ZONED.fullmatch(text)
    if match is None:
        return text
    year = 1 - int(match[1]) if match[5] else int(match[1])
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    fraction = f".{(match[4] or '')[:digits].ljust(digits, '0')}" if digits else ""
    return f"{sign}{abs(year):04}{match[2]}T{match[3]}{fraction}Z"


def zoned_time(text: str) -> str | None:
    """A time of day with its offset, moved to UTC."""
    match = _TIMETZ.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds, *of_offset = (int(match[n] or 0) for n in (1, 2, 3, 6, 7, 8))
    offset = (of_offset[0] * 60 + of_offset[1]) * 60 + of_offset[2]
    total = ((hours * 60 + minutes) * 60 + seconds + (offset if match[5] == "-" else -offset)) % 86_400
    return f"{total // 3600:02}:{total // 60 % 60:02}:{total % 60:02}{match[4] or ''}Z"


def bits(text: str) -> str | None:
    """Bits as bytes, the lowest first, without zero bytes at the end."""
    if not _BITS.fullmatch(text):
        return None
    number = int(text or "0", 2)
    return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


def point(text: str) -> dict[str, Any] | None:
    """A point with its well-known binary."""
    match = _POINT.fullmatch(text)
    try:
        x, y = (float(part) for part in match.groups()) if match is not None else (None, None)
    except ValueError:
        return None
    if x is None or y is None:
        return None
    wkb = base64.b64encode(struct.pack("<BIdd", 1, 1, x, y)).decode()
    return {"x": _number(x), "y": _number(y), "wkb": wkb, "srid": None}


def _number(value: float) -> float | str:
    # JSON has no words for these.
    return value if np.isfinite(value) else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")


def geometry(text: str) -> dict[str, Any] | None:
    """PostGIS's extended well-known binary, and the number of the reference system in it."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    if len(data) < 9:
        return None
    kind, system = struct.unpack("<II" if data[0] else ">II", data[1:9])
    return {"wkb": text, "srid": system if kind & _HAS_SYSTEM else 0}


def shortest_decimal(text: str) -> str:
    """A number without the zeros that end its fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text
