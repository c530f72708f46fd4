"""SQL Server's commit times: local times of the server without a zone, made instants."""

from __future__ import annotations

import datetime as dt
import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

_FIXED = re.compile(r"([+-])(\d\d):(\d\d)")


def parse_timezone(text: str) -> str:
    """Check an IANA zone name or an offset such as `+02:00`; used as an option's kind.

    Raises:
        ValueError: it is neither.
    """
    if _FIXED.fullmatch(text):
        return text
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"no IANA time zone is called {text!r}") from error
    return text


def offset_text(minutes: int) -> str:
    """`+02:00` for 120 minutes."""
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def to_instants(local: pa.Array, zone: str) -> pa.Array:
    """Local times as instants. In the hour that a clock repeats, the earlier reading is meant.

    In one it skips, the later.
    """
    local = pc.cast(local, pa.timestamp("us"))
    fixed = _FIXED.fullmatch(zone)
    if fixed:
        minutes = (int(fixed[2]) * 60 + int(fixed[3])) * (-1 if fixed[1] == "-" else 1)
        shifted = pc.subtract(local, pa.scalar(dt.timedelta(minutes=minutes), pa.duration("us")))
        return pc.assume_timezone(shifted, "UTC")
    return pc.cast(
        pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest"), pa.timestamp("us", tz="UTC")
    )
