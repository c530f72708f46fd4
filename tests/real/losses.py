"""What Debezium 3.0.8 itself loses or changes, so that no decoder can bring it back: the closed list, with reasons.

Each entry says what stands in the messages instead, and is checked too. Whatever is not listed here equals what the
database holds. Found by comparing recorded messages with the tables; docs/real-producers.md lists the same for users.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

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
        return self.when(cell) and same(self.sent(cell), got, cell.native)


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


def _before_gregory(cell: Cell) -> bool:
    text = cell.canonical or ""
    dated = re.match(r"-?\d{4}-", text) is not None
    return dated and (text.startswith("-") or text < "1582-10-15")


def _by_julian_calendar(cell: Cell) -> str:
    """The date, taken for one of the Julian calendar, as the Gregorian calendar names that day."""
    match = re.match(r"(-?\d+)-(\d\d)-(\d\d)", cell.canonical or "")
    assert match is not None, cell.canonical
    year, month, day = map(int, match.groups())
    # Years from 1 March of -4800, where every Julian year has the same first 365 days.
    shifted, month = year + 4800 - (month < 3), month - 3 + (12 if month < 3 else 0)
    julian = shifted * 365 + shifted // 4 + (153 * month + 2) // 5 + day - 1
    # That 1 March was the Gregorian calendar's 22 January, 38 days before its own.
    left = julian - 38
    cycles, left = divmod(left, 146_097)
    centuries = min(left // 36_524, 3)
    left -= centuries * 36_524
    fours, left = divmod(left, 1_461)
    years = min(left // 365, 3)
    left -= years * 365
    month = (5 * left + 2) // 153
    day = left - (153 * month + 2) // 5 + 1
    year = cycles * 400 + centuries * 100 + fours * 4 + years - 4800 + (month > 9)
    text = f"{'-' if year < 0 else ''}{abs(year):04}-{(month + 2) % 12 + 1:02}-{day:02}"
    return text + (cell.canonical or "")[match.end() :]


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
        "before 15 October 1582 the snapshot reads timestamps by the Julian calendar",
        lambda cell: _typed("datetime", snapshot=True)(cell) and _before_gregory(cell),
        lambda cell: _by_julian_calendar(cell),
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


_UNSENT = r"(line|lseg|box|path|polygon|circle|tsvector|tsquery|pg_lsn|\w*multirange|(public\.)?pair)$"

_MONEY = {
    "$92,233,720,368,547,758.07": "92233720368547760.00",
    "-$92,233,720,368,547,758.08": "-92233720368547760.00",
}

_INFINITE_DATES = {
    ("infinity", True): "-1701532-04-05",
    ("infinity", False): "-5877611-06-21",
    ("-infinity", True): "-1711471-07-22",
    ("-infinity", False): "-5877611-06-22",
}
"""By the text, and whether the snapshot read it."""


def _infinite(kind: str) -> Callable[[Cell], bool]:
    return lambda cell: cell.text in ("infinity", "-infinity") and re.match(kind, cell.native) is not None


def _trimmed(cell: Cell) -> str:
    return base64.b64encode(base64.b64decode(cell.canonical or "").rstrip(b"\0")).decode()


POSTGRES = [
    *COMMON,
    Loss(
        "a type that Debezium does not know is left out",
        lambda cell: re.match(_UNSENT, cell.native) is not None,
        lambda cell: ABSENT,
    ),
    Loss(
        "a generated column is not in PostgreSQL's log",
        lambda cell: cell.place == "all_types.g_stored" and not cell.snapshot,
        lambda cell: ABSENT,
    ),
    Loss("a name is sent as null in the stream", _typed("name$", snapshot=False), lambda cell: None),
    Loss("a time with time zone is moved to UTC", _typed(r"time(\(.\))? with time zone"), _zone_free),
    Loss("an interval is sent as microseconds, a month being 30.4375 days", _typed("interval"), _interval),
    Loss(
        "Connect's decimals have no NaN and no infinity",
        lambda cell: cell.native == "numeric" and cell.text in ("NaN", "Infinity", "-Infinity"),
        lambda cell: None,
    ),
    Loss(
        "a numeric without scale loses its trailing zeros",
        lambda cell: cell.native == "numeric" and "." in (cell.text or ""),
        lambda cell: (cell.text or "").rstrip("0").rstrip("."),
    ),
    Loss(
        "a negative scale is sent as the scale 2046",
        lambda cell: cell.native == "numeric(5,-2)" and cell.text is not None,
        lambda cell: f"{cell.text}.{'0' * 2046}",
    ),
    Loss(
        "the snapshot reads money through a binary number",
        lambda cell: cell.native == "money" and cell.snapshot and cell.text in _MONEY,
        lambda cell: _MONEY[cell.text or ""],
    ),
    Loss(
        "zero bytes at the high end of bits are left out",
        lambda cell: cell.text is not None and cell.native.startswith("bit") and cell.native != "bit(1)",
        _trimmed,
    ),
    Loss(
        "the snapshot reads dates without their era",
        lambda cell: cell.native == "date" and cell.snapshot and (cell.text or "").endswith(" BC"),
        lambda cell: (cell.text or "").removesuffix(" BC"),
    ),
    Loss(
        "the snapshot moves the days of October 1582 that the Gregorian calendar skipped",
        lambda cell: cell.native == "date" and cell.snapshot and cell.text == "1582-10-10",
        lambda cell: "1582-10-20",
    ),
    Loss(
        "before 15 October 1582 the snapshot reads timestamps by the Julian calendar",
        lambda cell: _typed("timestamp", snapshot=True)(cell) and _before_gregory(cell),
        _by_julian_calendar,
    ),
    Loss(
        "an infinite date is sent as a far date",
        _infinite("date"),
        lambda cell: _INFINITE_DATES[cell.text or "", cell.snapshot],
    ),
    Loss(
        "an infinite timestamp is sent as a far one",
        _infinite("timestamp.*without time zone"),
        lambda cell: "+294247-01-10 04:00:25.2" if cell.text == "infinity" else "-290308-12-21 19:59:27.6",
    ),
    Loss(
        "microseconds beyond the year 294247 wrap around",
        lambda cell: cell.text == "294276-12-31 23:59:59.999999" and cell.native == "timestamp without time zone",
        lambda cell: "-290308-12-21 19:59:06.22419",
    ),
    Loss(
        "an array of arrays is sent as nulls",
        lambda cell: cell.native.endswith("[]") and (cell.text or "").startswith("{{"),
        lambda cell: json.dumps([None] * ((cell.text or "").count("{") - 1)),
    ),
    Loss(
        "24:00 in an array is sent as 00:00",
        lambda cell: cell.native == "time without time zone[]" and "24:00:00" in (cell.text or ""),
        lambda cell: (cell.canonical or "").replace("24:00:00", "00:00:00"),
    ),
    *_nulls_as_defaults(
        null_defaults__n="5",
        null_defaults__s="dflt",
        null_defaults__d="1.25",
        null_defaults__dt="2020-01-01 00:00:00",
        null_defaults__b="true",
        late_table__e="ok",
        late_table__b="true",
        customers__score="1.2500",
    ),
]


def _item_on_the_wire(kind: str, text: str) -> Any:
    """How Debezium writes an item of an array."""
    if kind.startswith("numeric"):
        sign, digits, exponent = Decimal(text).as_tuple()
        number = int("".join(map(str, digits))) * (-1 if sign else 1)
        scale = -int(exponent)
        if kind == "numeric" and scale < 0:
            number, scale = number * 10**-scale, 0
        length = (number + (number < 0)).bit_length() // 8 + 1
        value = base64.b64encode(number.to_bytes(length, "big", signed=True)).decode()
        return {"scale": scale, "value": value} if kind == "numeric" else value
    epoch = dt.datetime(1970, 1, 1)
    if kind == "date":
        return (dt.datetime.fromisoformat(text) - epoch).days
    moment = text if kind.startswith("timestamp") else f"1970-01-01 {text.replace('24:00:00', '00:00:00')}"
    return (dt.datetime.fromisoformat(moment) - epoch) // dt.timedelta(microseconds=1)


def _items_on_the_wire(cell: Cell) -> str:
    kind = cell.native.removesuffix("[]")
    items = json.loads(cell.canonical or "[]")
    return json.dumps([None if item is None else _item_on_the_wire(kind, item) for item in items])


UNTOLD: dict[str, list[Loss]] = {
    "mariadb": [],
    "postgres": [
        Loss(
            "without schema no one says how the items of an array are written",
            lambda cell: cell.text is not None and re.match(r"(numeric|date|time).*\[\]$", cell.native) is not None,
            _items_on_the_wire,
        ),
        Loss(
            "without schema no one says that the scale was another one when the message was written",
            lambda cell: cell.place == "customers.score" and cell.text == "1.2500",
            lambda cell: "0.1250",
        ),
    ],
}
"""What is not told besides in JSON without schema, though the tables are known."""
