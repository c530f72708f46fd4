"""Debezium's messages, written and read."""

from __future__ import annotations

import base64
import datetime as dt
import random
from typing import Any

import debezium_recordings as recordings
import numpy as np

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.texts import key_text

TYPES = [
    "boolean", "int8", "int16", "int32", "int64", "float32", "float64", "decimal(5,0)", "decimal(9,3)",
    "decimal(18,18)", "decimal(19,4)", "decimal(38,10)", "decimal(38,0)", "string", "bytes", "date", "time(3)",
    "time(6)", "time(9)", "timestamp(3)", "timestamp(6)", "timestamp(9)", "zoned_timestamp(9)", "json", "xml",
]  # fmt: skip


EDGES = {
    "boolean": ["true", "false"],
    "int8": ["-128", "127", "0"],
    "int16": ["-32768", "32767"],
    "int32": ["-2147483648", "2147483647"],
    "int64": ["-9223372036854775808", "9223372036854775807"],
    "float32": ["3.4e+38", "-1.5", "0.0", "0.0001", "1e-05", "10000000.0", "1e+16"],
    "float64": ["1.7976931348623157e+308", "1e+22", "123456789.0", "0.00012", "1e-07", "NaN", "Infinity", "-Infinity"],
    "string": ["", 'quo"te\\back', "日本 😀", "line\nbreak\ttab\x01", '","payload":', "null", " "],
    "json": ['{"a": 1.10}'],
    "xml": ['<a b="1">x</a>'],
    "date": ["0001-01-01", "1969-12-31", "1970-01-01", "9999-12-31"],
    "zoned_timestamp": ["2018-07-13T12:23:45Z", "2018-07-13T12:23:00.1-05:30", "0001-01-01T00:00:00.123456789+14:00"],
}


TABLE = TableSchema(
    TableId("db", "dbo", "every `type`"),
    (
        Column("id", 1, LogicalType("int64"), nullable=False),
        *(Column(f"c {kind}'s", n, LogicalType.parse(kind)) for n, kind in enumerate(TYPES, 2)),
    ),
    ("id",),
)


NAMES = [column.name for column in TABLE.columns]


def random_text(logical: LogicalType, rng: random.Random) -> str:
    kind = logical.kind
    edges = EDGES.get(kind)
    if edges and (rng.random() < 0.4 or kind in ("boolean", "json", "xml", "zoned_timestamp")):
        return rng.choice(edges)
    if kind.startswith("int"):
        bits = rng.randrange(1, int(kind[3:]))
        return str(rng.randrange(-(2**bits), 2**bits))
    if kind in ("float32", "float64"):
        number = rng.choice(
            [rng.uniform(-1, 1), rng.uniform(-1e9, 1e9), rng.uniform(1, 10) * 10 ** rng.randrange(-30, 30)]
        )
        return logical.to_text((np.float32 if kind == "float32" else np.float64)(round(number, 3)))
    if kind == "decimal":
        digits = rng.choice([1, 2, logical.precision, rng.randrange(1, (logical.precision or 0) + 1)])
        value = rng.choice([0, 1, -1, 127, 128, -128, -129, 10**digits - 1, 1 - 10**digits, rng.randrange(10**digits)])
        value = max(min(value, 10 ** (logical.precision or 0) - 1), 1 - 10 ** (logical.precision or 0))
        scale = logical.scale or 0
        text = str(abs(value)).rjust(scale + 1, "0")
        return ("-" if value < 0 else "") + (f"{text[:-scale]}.{text[-scale:]}" if scale else text)
    if kind == "bytes":
        return base64.b64encode(rng.randbytes(rng.randrange(0, 20))).decode()
    if kind == "date":
        return dt.date.fromordinal(rng.randrange(1, 3652059)).isoformat()
    if kind in ("time", "timestamp"):
        clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
        clock += "." + "".join(rng.choice("0999123") for _ in range(logical.digits))
        years = (1, 3652059) if logical.digits < 9 else (612_500, 825_800)
        return clock if kind == "time" else f"{dt.date.fromordinal(rng.randrange(*years)).isoformat()} {clock}"
    return "".join(rng.choice("abcé\"\\'{}[]:,\n日😀") for _ in range(rng.randrange(12)))


def random_image(rng: random.Random, id: int) -> dict[str, str | None]:
    image: dict[str, str | None] = {"id": str(id)}
    for column in TABLE.columns[1:]:
        image[column.name] = None if rng.random() < 0.1 else random_text(column.logical, rng)
    return image


def random_change(rng: random.Random, id: int) -> dict[str, Any]:
    op = rng.choice("rcud")
    row = {
        "op": op,
        "table": {"database": "db", "schema": "dbo", "name": "every `type`"},
        "key": {"id": str(id)},
        "key_text": key_text([str(id)]),
        "before": random_image(rng, id) if op in "ud" else None,
        "after": random_image(rng, id) if op in "rcu" else None,
        "event_time": recordings.instant(rng.randrange(10**15) // 1000 * 1000),
        "capture_time": recordings.instant(10**15),
        "snapshot": rng.choice(["true", "last"]) if op == "r" else None,
        "transaction": None if op == "r" else {"id": "tx", "total_order": 5, "data_collection_order": 2},
        "source": {"connector": "sqlserver"},
        "schema_id": TABLE.fingerprint,
    }
    if op != "r":
        row["source"]["change_lsn"] = "00000027:00000758:0003"
    row["source"]["commit_lsn"] = "00000027:00000758:0005"
    if op != "r":
        row["source"]["event_serial_no"] = str(rng.randrange(9))
    for image in ("before", "after"):
        if row[image] is not None and rng.random() < 0.1:
            del row[image]["c string's"], row[image]["c bytes's"]
    return row


def as_kafka(messages: list[Any]) -> list[tuple[Any, ...]]:
    """Messages as Kafka would give them back."""
    return [
        (m.topic, 0, n, recordings.instant(10**15), m.key, m.value, [tuple(h) for h in m.headers or ()])
        for n, m in enumerate(messages)
    ]


def number_of(name: str, text: str) -> str:
    return repr(np.float32(text) if "32" in name else np.float64(text))


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    names = ("op", "key", "key_text", "table", "before", "after", "event_time", "snapshot", "transaction", "source")
    out = {name: row[name] for name in names}
    out["event_time"] = out["event_time"].timestamp()
    for image in ("before", "after"):
        if out[image]:
            # Without the column's own type a time comes without a fraction of zero.
            out[image] = {n: t and (t.removesuffix(".000") if n == "c time(3)'s" else t) for n, t in out[image].items()}
        # Java before 19 writes some binary numbers with a digit too many; the number is the same.
        if out[image]:
            numbers = {n: number_of(n, t) for n, t in out[image].items() if t is not None and n.startswith("c float")}
            out[image] = out[image] | numbers
    out["source"] = {k: v for k, v in out["source"].items() if k not in ("version", "name")}
    return out
