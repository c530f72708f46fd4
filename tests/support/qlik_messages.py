"""Qlik's messages."""

from __future__ import annotations

import datetime as dt
from typing import Any

import drawn_rows
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL, spark_schema
from headrace.changes.texts import key_text
from headrace.formats.codec import KAFKA_COLUMNS
from headrace.spark.local_rows import local_rows

KAFKA = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())


def messages(values: list[Any]) -> list[tuple[Any, ...]]:
    """Values as Kafka gives them."""
    return [("t", 0, n, None, None, v.encode() if isinstance(v, str) else v, None) for n, v in enumerate(values)]


def by_offset(rows: list[Any]) -> dict[int, Any]:
    """The rows of data messages by offset."""
    return {row.message.offset: row for row in rows if row.op != "schema"}


KINDS = ["boolean", "int8", "int16", "int32", "int64", "uint64", "decimal(9,3)", "decimal(38,10)", "float32",
         "float64", "string", "bytes", "date", "time(6)", "timestamp(6)", "timestamp(9)"]  # fmt: skip


TABLE = TableSchema(
    TableId("", "own er", 'ta"ble'),
    (Column("id", 1, LogicalType("int32"), native_type="int4", nullable=False),
     *(Column(f"c `{k}` 列", n, LogicalType.parse(k), large=k == "bytes") for n, k in enumerate(KINDS, 2))),
    ("id",),
)  # fmt: skip


DATES = st.dates(dt.date(1, 1, 1)).map(str)


CLOCKS = st.times().map(lambda t: t.strftime("%H:%M:%S.%f"))


VALUES: dict[str, st.SearchStrategy[str]] = {
    "boolean": st.sampled_from(["true", "false"]),
    "uint64": st.integers(0, 2**64 - 1).map(str),
    "float32": st.sampled_from(["1.5", "-0.0", "3.4028235e+38", "1e-05", "NaN", "Infinity"]),
    "float64": st.floats().map(lambda f: LogicalType("float64").to_text(f)),
    "bytes": st.binary(max_size=9).map(lambda b: LogicalType("bytes").to_text(b)),
    "date": DATES,
    "time(6)": CLOCKS,
    "timestamp(6)": st.builds("{} {}".format, DATES, CLOCKS),
    "timestamp(9)": st.builds("{} {}789".format, DATES, CLOCKS),
    "decimal(9,3)": st.decimals(-99999, 99999, places=3).map(lambda d: f"{d:.3f}".replace("-0.000", "0.000")),
    "decimal(38,10)": st.decimals(-(10**20), 10**20, places=10).map(LogicalType.parse("decimal(38,10)").to_text),
    "string": st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
    **{f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str) for bits in (8, 16, 32, 64)},
}  # fmt: skip


def change(number: int, op: str, before: Any, after: Any, absent: set[str]) -> dict[str, Any]:
    images = [
        None if image is None else {"id": str(number), **{k: v for k, v in image.items() if k not in absent}}
        for image in (before, after)
    ]
    changed = None
    if op == "u":
        changed = [n for n in images[1] if images[0][n] != images[1][n] and not TABLE.column(n).large]
    return {
        "op": op,
        "table": {"database": None, "schema": "own er", "name": 'ta"ble'},
        "key": {"id": str(number)},
        "key_text": key_text([str(number)]),
        "before": images[0],
        "after": images[1],
        "changed": changed,
        "snapshot": "true" if op == "r" else None,
        "position": f"{number:020}/1/",
        "event_time": dt.datetime(2020, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC) + dt.timedelta(seconds=number),
        # A full load has no headers of changes.
        "transaction": None if op == "r" else {"id": "1.2.3", "total_order": number},
        "source": {}
        if op == "r"
        else {"changeSequence": f"{number:035}", "streamPosition": "x", "transactionLastEvent": "true"},
        "schema_id": TABLE.fingerprint,
    }


DOUBLE = next(c.name for c in TABLE.columns if c.logical.kind == "float64")


POOLS = drawn_rows.pools({c.name: VALUES[str(c.logical)] for c in TABLE.columns[1:]})


PARTS = ("op", "table", "key", "key_text", "before", "after", "changed", "snapshot", "transaction")


def changes_of(drawn: Any, *, whole_reads: bool = False) -> list[dict[str, Any]]:
    found, rng = drawn
    changes = []
    for n in range(120):
        op, old, new = rng.choice("rcud"), drawn_rows.row(rng, found), drawn_rows.row(rng, found)
        absent = set() if whole_reads and op == "r" else set(rng.sample(sorted(found), rng.randrange(4)))
        changes.append(change(n, op, old if op in "ud" else None, new if op in "rcu" else None, absent))
    return changes


def change_frame(spark: SparkSession, changes: list[dict[str, Any]]) -> DataFrame:
    return local_rows(spark, [tuple(c.get(f.name) for f in spark_schema()) for c in changes], CHANGE_ROW_DDL)


def schema_row(schema: TableSchema) -> dict[str, Any]:
    table = {"database": None, "schema": schema.id.schema, "name": schema.id.name}
    told = {"schema_id": schema.fingerprint, "table_schema": schema.to_text()}
    return {"op": "schema", "table": table, "position": "", **told}


def assert_same(rows: list[Any], changes: list[dict[str, Any]], spell: Any = lambda image: image) -> None:
    found = {row.position.split("/")[0]: row.asDict(recursive=True) for row in rows if row.op != "schema"}
    assert len(found) == len(changes)
    for got, wanted in zip((found[n] for n in sorted(found)), changes, strict=True):
        assert got["error"] is None
        (got["transaction"] or {}).pop("data_collection_order", None)
        for part in PARTS:
            wish = spell(wanted[part]) if part in ("before", "after") else wanted[part]
            if part in ("before", "after") and got[part] and DOUBLE in got[part]:
                got[part][DOUBLE] = drawn_rows.shortest(got[part][DOUBLE])
            assert got[part] == wish, (part, got[part], wish)
        assert {k: got["source"].get(k) for k in wanted["source"]} == wanted["source"]


def streamed(number: int, op: str, commit: str, order: str, **more: Any) -> dict[str, Any]:
    """A captured row of one of three tables."""
    row = change(number, op, {"id": "1"}, {"id": "1"}, set())
    table = {"database": None, "schema": "own er", "name": f"t{number % 3}"}
    told = {"table": table, "position": f"{commit}/{order}/1", "source": {}, "transaction": None, "changed": None}
    return {**row, **told, **more}
