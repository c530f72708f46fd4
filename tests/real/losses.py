"""What Debezium 3.0.8 itself loses or changes, so that no decoder can bring it back: the closed list, with reasons.

Each entry says what stands in the messages instead, and is checked too. Whatever is not listed here equals what the
database holds. Found by comparing recorded messages with the tables; docs/real-producers.md lists the same for users.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.real.database_texts import canonical, same
from tests.real.replay import ABSENT


@dataclass(frozen=True)
class Cell:
    """A value as the database holds it.

    Args:
        database: `mariadb` or `postgres`.
        place: `table.column`.
        native: the column's type in the database.
        text: what the database's client prints; None is NULL.
        row: all texts of the row, by column.
        snapshot: whether the row's last image was read by the snapshot.
    """

    database: str
    place: str
    native: str
    text: str | None
    row: dict[str, str | None]
    snapshot: bool

    @property
    def canonical(self) -> str | None:
        """Canonical text of the value."""
        return canonical(self.database, self.native, self.text)


@dataclass(frozen=True)
class Loss:
    """One thing that the producer does.

    Args:
        reason: why no decoder can do better.
        when: for which values.
        sent: the canonical text of what stands in the messages instead.
    """

    reason: str
    when: Callable[[Cell], bool]
    sent: Callable[[Cell], str | None]

    def explains(self, cell: Cell, got: str | None) -> bool:
        """Whether this is why the decoded value is not the database's."""
        return self.when(cell) and same(self.sent(cell), got)


def _at(*places: str) -> Callable[[Cell], bool]:
    return lambda cell: re.fullmatch("|".join(places), cell.place) is not None


def _null_at(place: str) -> Callable[[Cell], bool]:
    return lambda cell: cell.text is None and cell.place == place


def _typed(pattern: str, snapshot: bool | None = None) -> Callable[[Cell], bool]:
    """Columns of these native types, with a value; `snapshot` says only read, or only streamed, rows."""
    return lambda cell: (
        cell.text is not None
        and re.match(pattern, cell.native) is not None
        and (snapshot is None or cell.snapshot == snapshot)
    )


COMMON = [
    Loss(
        "a column added later with a default is not in older messages",
        lambda cell: cell.place == "customers.score" and cell.text == "1.2500",
        lambda cell: ABSENT,
    ),
    Loss(
        "a column whose scale grew later has the old scale in older messages",
        lambda cell: cell.place == "customers.score" and cell.text == "1.2500",
        lambda cell: "1.250",
    ),
]

_ZERO = re.compile(r"\d{4}-(00-\d\d|\d\d-00)")
_NOT_NULL_DATES = _at(r"zero_dates\.(d_nn|dt_nn|ts_nn)")
_EPOCH = {"date": "1970-01-01", "datetime": "1970-01-01 00:00:00", "timestamp": "1970-01-01T00:00:00Z"}


def _zero(cell: Cell) -> bool:
    return cell.text is not None and cell.native[:4] in ("date", "time") and _ZERO.match(cell.text) is not None


def _epoch(cell: Cell) -> str:
    return _EPOCH[cell.native.partition("(")[0]]


def _nulls_as_defaults(**defaults: str) -> list[Loss]:
    reason = "a NULL in a nullable column with a default is sent as the default"
    return [
        Loss(reason, _null_at(place.replace("__", ".")), lambda cell, text=text: text)  # type: ignore[misc]
        for place, text in defaults.items()
    ]


MARIADB = [
    *COMMON,
    Loss(
        "bigint unsigned is sent as a signed 64-bit number",
        lambda cell: cell.native == "bigint(20) unsigned" and cell.text is not None and int(cell.text) >= 2**63,
        lambda cell: str(int(cell.text or 0) - 2**64),
    ),
    Loss(
        "a zero timestamp in the stream is sent as the epoch",
        lambda cell: _zero(cell) and cell.native.startswith("timestamp") and not cell.snapshot,
        _epoch,
    ),
    Loss("a zero date in a NOT NULL column is sent as 0", lambda c: _zero(c) and _NOT_NULL_DATES(c), _epoch),
    Loss("a date with a zero part is sent as null", lambda c: _zero(c) and not _NOT_NULL_DATES(c), lambda c: None),
    Loss("the year 0000 is sent as 1900", lambda c: c.native == "year(4)" and c.text == "0000", lambda c: "1900"),
    Loss(
        "years below 100 get a century",
        lambda cell: _typed("date")(cell) and (cell.text or "").startswith("0001-"),
        lambda cell: "2" + (cell.text or "")[1:],
    ),
    Loss(
        "before 15 October 1582 the snapshot reads date-times by the Julian calendar",
        lambda cell: _typed("datetime", snapshot=True)(cell) and (cell.text or "") < "1582-10-15",
        lambda cell: (dt.datetime.fromisoformat(cell.text or "") + dt.timedelta(days=10)).isoformat(" "),
    ),
    Loss(
        "the comma of an enum label is escaped in the stream",
        lambda cell: _typed("enum", snapshot=False)(cell) and "," in (cell.text or ""),
        lambda cell: (cell.text or "").replace(",", "\\,"),
    ),
    Loss(
        "a column declared BOOLEAN by DDL in the stream is sent as boolean, though it is tinyint(1)",
        lambda cell: cell.place == "late_table.b" and cell.text is not None,
        lambda cell: "true" if cell.text == "1" else "false",
    ),
    Loss(
        "a foreign key's ON UPDATE CASCADE is not in MariaDB's log",
        lambda cell: cell.place == "orders.purchaser" and cell.text == "3003",
        lambda cell: "1003",
    ),
    *_nulls_as_defaults(
        null_defaults__n="5",
        null_defaults__s="dflt",
        null_defaults__d="1.25",
        null_defaults__dt="2020-01-01 00:00:00",
        null_defaults__b="1",
        late_table__e="p",
        late_table__b="true",
    ),
]

_INTERVAL = re.compile(
    r"(?:(?P<years>[+-]?\d+) years? ?)?(?:(?P<months>[+-]?\d+) mons? ?)?(?:(?P<days>[+-]?\d+) days? ?)?"
    r"(?P<clock>[+-]?\d+:\d\d:\d\d(?:\.\d+)?)?"
)


def _interval(cell: Cell) -> str:
    """Microseconds, a month being 30.4375 days."""
    match = _INTERVAL.fullmatch(cell.text or "")
    assert match is not None, cell.text
    part = {name: int(text) if text else 0 for name, text in match.groupdict().items() if name != "clock"}
    micros = (part["years"] * 12 + part["months"]) * 2_629_800_000_000 + part["days"] * 86_400_000_000
    clock = match["clock"]
    if clock:
        hours, minutes, seconds = clock.lstrip("+-").split(":")
        whole, _, fraction = seconds.partition(".")
        of_day = ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1_000_000 + int((fraction or "0").ljust(6, "0"))
        micros += -of_day if clock.startswith("-") else of_day
    return str(micros)


def _zone_free(cell: Cell) -> str:
    """A time with time zone moved to UTC."""
    match = re.fullmatch(r"(\d\d):(\d\d):(\d\d)(\.\d+)?([+-])(\d\d)(?::(\d\d))?", cell.text or "")
    assert match is not None, cell.text
    hour, minute, second, fraction, sign, off_hours, off_minutes = match.groups()
    offset = (int(off_hours) * 60 + int(off_minutes or 0)) * (1 if sign == "+" else -1)
    total = (int(hour) * 60 + int(minute) - offset) % 1440
    return f"{total // 60:02}:{total % 60:02}:{second}{fraction or ''}Z"


_UNSENT = r"line|lseg|box|path|polygon|circle|tsvector|tsquery|pg_lsn|.*multirange|.*\bpair|public\.pair|pair$"

POSTGRES = [
    *COMMON,
    Loss("a type without a Connect schema is left out", _typed(f"(?:{_UNSENT})"), lambda cell: ABSENT),
    Loss(
        "a type without a Connect schema is left out",
        lambda cell: cell.text is None and re.match(_UNSENT, cell.native) is not None,
        lambda cell: ABSENT,
    ),
    Loss("a name is sent as null in the stream", _typed("name$", snapshot=False), lambda cell: None),
    Loss("a time with time zone is moved to UTC", _typed("time(\\(.\\))? with time zone"), _zone_free),
    Loss("an interval is sent as microseconds, a month being 30.4375 days", _typed("interval"), _interval),
    Loss(
        "numeric has no NaN or infinity in Connect",
        lambda cell: cell.native == "numeric" and cell.text in ("NaN", "Infinity", "-Infinity"),
        lambda cell: None,
    ),
    Loss(
        "a numeric without scale loses its trailing zeros",
        lambda cell: cell.native == "numeric" and "." in (cell.text or ""),
        lambda cell: (cell.text or "").rstrip("0").rstrip("."),
    ),
]
