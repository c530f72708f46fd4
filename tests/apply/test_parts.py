"""A batch of many tables is looked through once, and each table still gets all of its rows and no others.

One of few rows is read by one task.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.apply import in_one_task, parted, parts, profile
from headrace.changes import TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL
from headrace.changes.table import Column
from headrace.changes.types import LogicalType

NAMES = ("a", "A", "it's", "a.b", "")


@pytest.fixture(autouse=True)
def sorted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "FEW_TABLES", 1)
    monkeypatch.setattr(parts, "FEW_ROWS", 0)


def test_each_table_gets_its_own_rows(spark: Any) -> None:
    drawn = [(schema, name, op) for schema in NAMES for name in NAMES for op in "rcudt"]
    ids = sorted({TableId("shop", schema, name) for schema, name, _ in drawn})
    structures = {id: TableSchema(id, (Column("id", 1, LogicalType("int64")),), ("id",)) for id in ids}
    told: list[dict[str, Any]] = [
        {"op": "schema", "table": table(id), "position": "0", "schema_id": s.fingerprint, "table_schema": s.to_text()}
        for id, s in structures.items()
    ]
    changes: list[dict[str, Any]] = [
        {
            "op": op,
            "table": table(id := TableId("shop", schema, name)),
            "position": f"{number:05}",
            "schema_id": structures[id].fingerprint,
            "before": {"id": str(number)} if op in "ud" else None,
            "after": {"id": str(number)} if op in "rcu" else None,
        }
        for number, (schema, name, op) in enumerate(drawn, 1)
    ]
    fields = spark.createDataFrame([], CHANGE_ROW_DDL).columns
    rows = spark.createDataFrame([tuple(one.get(f) for f in fields) for one in told + changes], CHANGE_ROW_DDL)
    found, kept_before = profile(rows), kept(spark)
    with parted(rows, found) as rows_of:
        for one in found:
            mine = rows_of(one)
            assert mine.columns == rows.columns
            assert sorted(row["position"] for row in mine.collect()) == [
                change["position"] for change in changes if change["table"] == table(one.id)
            ]
    assert kept(spark) == kept_before


def test_few_rows_that_are_persisted_are_read_by_one_task(spark: Any) -> None:
    few, more = (spark.range(0, size, 1, 4).selectExpr("id", "repeat('x', 90) || id as text") for size in (9, 99_999))
    for rows, tasks in ((few, 1), (more, 4)):
        rows.persist().count()
        assert in_one_task(rows).rdd.getNumPartitions() == tasks
        assert in_one_task(rows.where("id > 3")).count() == rows.count() - 4
        rows.unpersist()


def kept(spark: Any) -> set[int]:
    return set(spark.sparkContext._jsc.getPersistentRDDs())


def table(id: TableId) -> dict[str, str]:
    return {"database": id.database, "schema": id.schema, "name": id.name}
