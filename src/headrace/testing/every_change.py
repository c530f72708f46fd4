"""Changes of every kind, and what is left of them where formats have no place for all that they say."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.texts import key_text
from headrace.formats.features import Feature

TABLE = TableSchema(
    TableId("shop", "dbo", "orders"),
    tuple(
        Column(name, n, LogicalType.parse(kind), native_type=native, nullable=name not in ("id", "part"), large=large)
        for n, (name, kind, native, large) in enumerate(
            [
                ("id", "int32", "int", False),
                ("part", "string", "varchar(20)", False),
                ("amount", "decimal(12,2)", "decimal(12,2)", False),
                ("huge", "decimal(38,10)", "decimal(38,10)", False),
                ("ratio", "float64", "double", False),
                ("count", "int64", "bigint", False),
                ("day", "date", "date", False),
                ("made", "timestamp(6)", "datetime(6)", False),
                ("picture", "bytes", "blob", True),
                ("note", "string", "longtext", True),
            ],
            1,
        )
    ),
    ("id", "part"),
)
FIRST: Mapping[str, str | None] = {
    "id": "1",
    "part": 'é "x" \\ \' 日😀',
    "amount": "12.50",
    "huge": "-1234567890123456789012345678.0123456789",
    "ratio": "0.1",
    "count": "-9223372036854775808",
    "day": "1969-12-31",
    "made": "1969-12-31 23:59:59.999999",
    "picture": "AP8Q",
    "note": "line\nbreak",
}
NULLS: Mapping[str, str | None] = {"id": "2", "part": "b", **dict.fromkeys(list(FIRST)[2:])}
TIME = dt.datetime(2024, 2, 29, 23, 59, 58, 123456, tzinfo=dt.UTC)
CONTROL = {
    "t": Feature.TRUNCATE,
    "begin": Feature.EDGES,
    "end": Feature.EDGES,
    "heartbeat": Feature.HEARTBEAT,
}
PRECISIONS = (
    (Feature.EVENT_MICROSECONDS, 1),
    (Feature.EVENT_MILLISECONDS, 1_000),
    (Feature.EVENT_TIME, 1_000_000),
)


def change(number: int, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any]:
    """A change row of the table, as a dictionary of its columns."""
    image = after or before
    key = None if image is None else {"id": image["id"], "part": image["part"]}
    data = op in "rcudt"
    return {
        "op": op,
        "table": {"database": "shop", "schema": "dbo", "name": "orders"} if data else None,
        "key": key,
        "key_text": None if key is None else key_text(list(key.values())),
        "before": before,
        "after": after,
        "position": f"{number:020}//",
        "event_time": TIME + dt.timedelta(seconds=number),
        "capture_time": TIME + dt.timedelta(minutes=1),
        "snapshot": "true" if op == "r" else None,
        "transaction": {"id": "77", "total_order": number, "data_collection_order": number}
        if op in ("c", "u", "d")
        else {"id": "77"}
        if op in ("begin", "end")
        else None,
        "source": {"connector": "mysql"},
        "schema_id": TABLE.fingerprint if data else None,
    }


def without(image: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """An image without some columns."""
    return {name: value for name, value in image.items() if name not in names}


CHANGES = [
    change(1, "r", None, dict(FIRST)),
    change(2, "begin", None, None),
    change(3, "c", None, dict(NULLS)),
    change(4, "u", dict(NULLS), {**NULLS, "amount": "0.00", "note": ""}),
    change(5, "u", without(FIRST, "note", "picture"), without({**FIRST, "amount": "7.25"}, "note", "picture")),
    change(6, "u", dict(FIRST), {**FIRST, "id": "-3"}),
    change(7, "d", dict(NULLS), None),
    change(8, "end", None, None),
    change(9, "t", None, None),
    change(10, "heartbeat", None, None),
]


def meaning(name: str, text: str | None, kept: frozenset[Feature]) -> Any:
    """What a column's text means, as far as formats that carry `kept` can say it."""
    if text is None:
        return None
    logical = TABLE.column(name).logical
    if logical.kind == "bytes":
        # Written in the format's own way where it can't be told from text.
        return text if Feature.BYTES in kept else "bytes"
    if logical.kind == "decimal":
        return Decimal(text)
    return logical.from_text(text)


def image_meaning(image: Mapping[str, Any] | None, kept: frozenset[Feature]) -> Any:
    """The same of a whole image."""
    if image is None:
        return None
    held = image if Feature.ABSENT in kept else dict.fromkeys(FIRST) | dict(image)
    return tuple(sorted((name, repr(meaning(name, value, kept))) for name, value in held.items()))


def event_meaning(op: str, micros: int | None, kept: frozenset[Feature]) -> int | None:
    """The same of a time in microseconds."""
    unit = next((unit for feature, unit in PRECISIONS if feature in kept), None)
    if unit is None or micros is None or op == "heartbeat":
        # A heartbeat is of the moment when it is written.
        return None
    if op == "r" and Feature.READ_TIME not in kept:
        # Some formats write the time of capture where there is no other.
        return None
    # No format says more of a transaction's edges than milliseconds.
    unit = max(unit, 1_000) if op in ("begin", "end") else unit
    return micros // unit * unit


def row_meaning(row: Mapping[str, Any], kept: frozenset[Feature]) -> tuple[Any, ...]:
    """The same of a row."""
    op, table = row["op"], row["table"] or {}
    control = op in ("begin", "end", "heartbeat")
    transaction = row["transaction"] or {}
    return (
        op,
        "" if control else table["name"] or "",
        table["schema"] if not control and Feature.SCHEMA_NAME in kept else "",
        table["database"] if not control and Feature.DATABASE in kept else "",
        tuple((row["key"] or {}).items()) if Feature.KEY in kept and not control else (),
        image_meaning(row["before"], kept) if op == "d" or Feature.BEFORE in kept else None,
        image_meaning(row["after"], kept),
        event_meaning(op, row["event_micros"], kept),
        transaction.get("id") if Feature.TRANSACTION in kept else None,
        transaction.get("total_order") if Feature.TRANSACTION_ORDER in kept else None,
    )


def expected(kept: frozenset[Feature], came: frozenset[Feature] | None = None) -> Counter[tuple[Any, ...]]:
    """The changes as far as formats that carry `kept` can say them.

    Args:
        kept: what all of them carry.
        came: what the first of them carries, where there are two.
    """
    changes: Counter[tuple[Any, ...]] = Counter()
    for given in CHANGES:
        row = dict(given)
        micros = (row["event_time"] - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        row["event_micros"] = micros
        # What the first one made a create of keeps its time in the second.
        if row["op"] == "r" and Feature.READ in (came or kept) and Feature.READ_TIME not in kept:
            row["event_micros"] = None
        if row["op"] in CONTROL and CONTROL[row["op"]] not in kept:
            continue
        if row["op"] == "r" and Feature.READ not in kept:
            row["op"] = "c"
        moved = row["op"] == "u" and row["before"]["id"] != row["after"]["id"]
        rows = [row]
        if moved and Feature.KEY_CHANGE not in kept:
            old = {"id": row["before"]["id"], "part": row["before"]["part"]}
            order = row["transaction"]["total_order"]
            second = {**row["transaction"], "total_order": order + 1}
            rows = [
                {**row, "op": "d", "key": old, "after": None},
                {**row, "op": "c", "before": None, "transaction": second},
            ]
        for found_row in rows:
            changes[row_meaning(found_row, kept)] += 1
    return changes
