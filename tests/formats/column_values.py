"""Random change rows of a table that has every logical type, for round trips of formats through decode and encode."""

from __future__ import annotations

import base64
import datetime as dt
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL, spark_schema
from headrace.changes.texts import key_text
from headrace.formats.codec import KAFKA_COLUMNS
from headrace.spark.local_rows import local_rows

TYPES = [
    "boolean", "int8", "int16", "int32", "int64", "uint64", "float32", "float64", "decimal", "decimal(5,0)",
    "decimal(9,3)", "decimal(18,18)", "decimal(38,10)", "decimal(65,30)", "string", "bytes", "date", "time(0)",
    "time(6)", "time(9)", "timestamp(0)", "timestamp(3)", "timestamp(6)", "timestamp(9)", "instant(6)", "instant(9)",
    "zoned_timestamp(9)", "json", "xml", "uuid", "interval", "nested",
]  # fmt: skip
EVERY_TYPE = TableSchema(
    TableId("db", "", "every `type`"),
    (
        Column("id", 1, LogicalType("int64"), nullable=False),
        *(Column(f"c {kind}'s", n, LogicalType.parse(kind)) for n, kind in enumerate(TYPES, 2)),
    ),
    ("id",),
)
_EDGES = {
    "boolean": ["true", "false"],
    "int8": ["-128", "127", "0"],
    "int16": ["-32768", "32767"],
    "int32": ["-2147483648", "2147483647"],
    "int64": ["-9223372036854775808", "9223372036854775807"],
    "uint64": ["18446744073709551615", "0"],
    "float32": ["3.4e+38", "-1.5", "0.0", "1e-05", "NaN", "-Infinity"],
    "float64": ["1.7976931348623157e+308", "1e+22", "123456789.0", "1e-07", "NaN", "Infinity"],
    "string": ["", 'quo"te\\back', "日本 😀", "line\nbreak\ttab\x01", '"old":[{"', "null", " ", "12.50", "{", "[1.50]"],
    "date": ["0001-01-01", "1969-12-31", "1970-01-01", "9999-12-31"],
    "instant": ["1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00.000001Z"],
    "zoned_timestamp": ["2018-07-13T12:23:45Z", "2018-07-13T12:23:00.1-05:30"],
    "json": ['{"a": 1.10, "b": [null, "x"]}', "null", '"text"'],
    "xml": ['<a b="1">x</a>'],
    "uuid": ["2f4b1ab0-0000-4000-8000-000000000001"],
    "interval": ["P1DT2H"],
    "nested": ['{"x":[1,2.50]}'],
}


def random_text(logical: LogicalType, rng: random.Random) -> str:
    """Canonical text of a random value of a type, its extremes among them."""
    kind = logical.kind
    edges = _EDGES.get(kind)
    if edges and (rng.random() < 0.4 or kind in ("boolean", "json", "xml", "uuid", "interval", "nested")):
        return rng.choice(edges)
    if kind.startswith(("int", "uint")) and kind not in ("interval", "instant"):
        return str(rng.randrange(2 ** (int(kind.removeprefix("u")[3:]) - 1)))
    if kind in ("float32", "float64"):
        return logical.to_text((np.float32 if kind == "float32" else np.float64)(round(rng.uniform(-1e6, 1e6), 3)))
    if kind == "decimal":
        precision, scale = logical.precision or 20, 3 if logical.precision is None else logical.scale or 0
        digits = str(rng.randrange(10 ** rng.randrange(1, precision + 1))).rjust(scale + 1, "0")
        sign = rng.choice(["", "-"]) if digits.strip("0") else ""
        return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)
    if kind == "bytes":
        return base64.b64encode(rng.randbytes(rng.randrange(0, 20))).decode()
    if kind == "date":
        return dt.date.fromordinal(rng.randrange(1, 3652059)).isoformat()
    if kind in ("time", "timestamp", "instant", "zoned_timestamp"):
        clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
        clock += "." + "".join(rng.choice("0999123") for _ in range(logical.digits)) if logical.digits else ""
        day = dt.date.fromordinal(rng.randrange(1, 3652059)).isoformat()
        return {"time": clock, "timestamp": f"{day} {clock}"}.get(kind, f"{day}T{clock}Z")
    return "".join(rng.choice("abcé\"\\'{}[]:,\n日😀") for _ in range(rng.randrange(12)))


def random_image(rng: random.Random, id: int) -> dict[str, str | None]:
    """A row of the table."""
    image: dict[str, str | None] = {"id": str(id)}
    for column in EVERY_TYPE.columns[1:]:
        image[column.name] = None if rng.random() < 0.1 else random_text(column.logical, rng)
    return image


def random_changes(
    rng: random.Random, *, ops: str, absent_before: bool, id: TableId = EVERY_TYPE.id, count: int = 120, **facts: Any
) -> list[dict[str, Any]]:
    """Random change rows as dictionaries, their positions among them.

    Args:
        rng: decides the rows.
        ops: the operations among them.
        absent_before: whether old images of updates may lack columns.
        id: the table's name.
        count: how many rows.
        facts: other columns of all rows.
    """
    schema = TableSchema(id, EVERY_TYPE.columns, EVERY_TYPE.key)
    rows = []
    for n in range(count):
        op = rng.choice(ops)
        before = random_image(rng, n) if op in "ud" else None
        after = random_image(rng, n) if op in "rcu" else None
        if op == "u" and before is not None and after is not None:
            # Mostly the same, as updates are.
            after = {name: after[name] if rng.random() < 0.3 else before[name] for name in before}
        for image in (before, after):
            if image is not None and rng.random() < 0.2 and (image is after or op == "d" or absent_before):
                del image["c string's"], image["c bytes's"]
        changed = None
        if op == "u" and before is not None and after is not None:
            changed = [k for k in before if k not in after or after[k] != before[k] or rng.random() < 0.1]
        rows.append(
            {
                "op": op,
                "table": {"database": id.database, "schema": id.schema, "name": id.name},
                "key": {"id": str(n)},
                "key_text": key_text([str(n)]),
                "before": before,
                "after": after,
                "changed": changed,
                "position": f"{n + 1:020}/1/",
                "event_time": dt.datetime(2024, 2, 29, 12, 0, n % 60, 123_000, dt.UTC),
                "capture_time": dt.datetime(2024, 3, 1, tzinfo=dt.UTC),
                "snapshot": "true" if op == "r" else None,
                "source": {"connector": "mysql", "id": str(n), "ts": "1709251200000"},
                "schema_id": schema.fingerprint,
                **facts,
            }
        )
    return rows


def changes_of(
    spark: SparkSession, rng: random.Random, *, id: TableId = EVERY_TYPE.id, **given: Any
) -> tuple[list[dict[str, Any]], DataFrame]:
    """Random change rows as dictionaries, and as a DataFrame with the table's `schema` row in front.

    Args:
        spark: the session.
        rng: decides the rows.
        id: the table's name.
        given: what else `random_changes` takes.
    """
    schema = TableSchema(id, EVERY_TYPE.columns, EVERY_TYPE.key)
    rows = random_changes(rng, id=id, **given)
    announced = {
        "op": "schema",
        "position": f"{0:020}/1/",
        "schema_id": schema.fingerprint,
        "table_schema": schema.to_text(),
    }
    names = [field.name for field in spark_schema()]
    lines = [tuple(row.get(name) for name in names) for row in [announced, *rows]]
    return rows, local_rows(spark, lines, CHANGE_ROW_DDL)


def of_kafka(messages: DataFrame) -> DataFrame:
    """Encoded messages as Kafka gives them back: collected, so that decoding does not encode them again."""
    at = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
    lines = [(m.topic, 0, n, at, m.key, m.value, m.headers) for n, m in enumerate(messages.collect())]
    kinds = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())
    return local_rows(messages.sparkSession, lines, kinds).coalesce(1)


COMPARED = ("op", "table", "key", "key_text", "before", "after", "changed", "event_time", "snapshot", "source")


def comparable(row: dict[str, Any], names: Sequence[str] = COMPARED) -> dict[str, Any]:
    """What two rows are compared by; times as seconds since the epoch."""
    found = {name: row[name] for name in names}
    if found.get("changed"):
        found["changed"] = sorted(found["changed"])
    if "event_time" in found:
        found["event_time"] = row["event_time"].timestamp()
    return found


def typed_texts(rows: DataFrame) -> dict[str, tuple[Any, ...]]:
    """What rows with struct images hold, by key text, as texts: no driver's type can lose any of it."""
    image = "to_json({0}, map('ignoreNullFields', 'false')) as {0}"
    found = rows.where("op in ('r', 'c', 'u', 'd')").selectExpr(
        "key_text", "op", image.format("before"), image.format("after"), "before_absent", "after_absent"
    )
    return {
        row.key_text: (row.op, row.before, row.after, sorted(row.before_absent or ()), sorted(row.after_absent or ()))
        for row in found.collect()
    }
