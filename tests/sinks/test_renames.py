"""Renamed columns on the whole way: from what a feed or a source says to the rows of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sources.oracle.runs import Run

import headrace
from headrace.changes.row import CHANGE_ROW_DDL
from headrace.formats.codec import KAFKA_COLUMNS
from headrace.spark.local_rows import local_rows
from headrace_emulators.oracle import EmulatedOracle

DDL = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())
RENAMED = "ALTER TABLE `orders` CHANGE COLUMN `note` `remark` varchar(50) COMMENT 'what, else', ADD COLUMN n int"


def row(kind: str, old: Any = None, **data: Any) -> dict[str, Any]:
    types = {"id": "int", "n": "int"}
    return {
        **{"type": kind, "database": "shop", "table": "orders", "isDdl": False, "sql": "", "es": 1, "pkNames": ["id"]},
        **{"data": [data], "old": [old], "mysqlType": {name: types.get(name, "varchar(50)") for name in data}},
    }


def ddl(text: str) -> dict[str, Any]:
    return {**row("ALTER"), "isDdl": True, "sql": text, "data": None, "old": None, "mysqlType": None}


@pytest.mark.parametrize(
    "batches",
    [
        # The statement comes between rows, as the last message of a batch, or alone.
        ([0, 1, 2, 3, 4],),
        *(
            pytest.param(batches, marks=pytest.mark.system)
            for batches in (([0, 1], [2, 3, 4]), ([0, 1, 2], [3, 4]), ([0, 1], [2], [3, 4]))
        ),
    ],
)
def test_a_feed_of_canal_that_renames_a_column(spark: Any, tmp_path: Path, batches: tuple[list[int], ...]) -> None:
    feed = [
        row("INSERT", id="1", note="x"),
        row("INSERT", id="2", note="y"),
        ddl(RENAMED),
        row("UPDATE", {"remark": "y"}, id="2", remark="z", n="7"),
        row("INSERT", id="3", remark=None, n="8"),
    ]
    for number, batch in enumerate(batches):
        values = [("t", 0, n, None, None, json.dumps(feed[n]).encode(), None) for n in batch]
        rows = headrace.decode(local_rows(spark, values, DDL), format="canal_json").persist()
        for _ in range(2):
            headrace.apply_changes(
                rows, f"{tmp_path}/{{table}}", batch_id=number, schema_change_behavior="evolve", name="feed"
            )
    orders = spark.read.format("delta").load(f"{tmp_path}/orders").drop("_headrace_position").orderBy("id")
    assert (orders.columns, [tuple(found) for found in orders.collect()]) == (
        ["id", "remark", "n"],
        [(1, "x", None), (2, "z", 7), (3, None, 8)],
    )


def test_a_database_that_renames_a_column(spark: Any, tmp_path: Path) -> None:
    with EmulatedOracle(tmp_path / "server") as database:
        database.run(
            "CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME VARCHAR2(50))",
            "ALTER TABLE CUSTOMERS ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
        )
        # With the online catalog LogMiner has no names for what a table was before a definition.
        run = Run(database, log_mining_strategy="redo_log_catalog")
        with database.connect() as session:
            session.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (1, 'x')")
            session.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (2, 'y')")
            session.commit()
            before = run.until_level()
            session.execute("UPDATE CUSTOMERS SET NAME = 'w' WHERE ID = 1")
            session.commit()
            session.execute("ALTER TABLE CUSTOMERS RENAME COLUMN NAME TO LABEL")
            session.execute("INSERT INTO CUSTOMERS (ID, LABEL) VALUES (3, 'z')")
            session.commit()
            after = run.until_level()
    names = local_rows(spark, [], CHANGE_ROW_DDL).columns
    for number, batch in enumerate((before, after, after)):
        maps = ("key", "before", "after", "source")
        lines = [
            tuple(dict(line[n]) if n in maps and line[n] is not None else line[n] for n in names) for line in batch
        ]
        rows = local_rows(spark, lines, CHANGE_ROW_DDL)
        headrace.apply_changes(
            rows, f"{tmp_path}/{{table}}", batch_id=min(number, 1), schema_change_behavior="evolve", name="database"
        )
    customers = spark.read.format("delta").load(f"{tmp_path}/CUSTOMERS").drop("_headrace_position").orderBy("ID")
    assert (customers.columns, [tuple(found) for found in customers.collect()]) == (
        ["ID", "LABEL"],
        [(1, "w"), (2, "y"), (3, "z")],
    )
