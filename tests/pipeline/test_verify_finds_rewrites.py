"""Rule: where changes of structure or foreign keys leave mirrors unequal (`on_rewrite: warn`, `on_cascade: warn`),
`headrace verify` says so of each table, and once the tables are read again it says that they are equal.

Each table has one case; all of them share two runs of a pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipeline import Pipeline, load_pipeline
from headrace.pipeline.verify import LeftOut
from headrace.testing.waiting import PATIENCE
from headrace_emulators.mysql.server import MySqlDatabase
from headrace_emulators.postgresql.server import PostgresDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

_ROWS = "INSERT INTO {0} (id, a, b) VALUES (1, 10, 'one'), (2, 20, 'two')"
_MARIADB = {
    "a_default": ["ALTER TABLE {0} ADD stock INT NOT NULL DEFAULT 5"],
    "an_expression": ["ALTER TABLE {0} ADD tag CHAR(36) NOT NULL DEFAULT (UUID())"],
    "generated": ["ALTER TABLE {0} ADD twice INT AS (id * 2) STORED"],
    "cut": ["SET sql_mode = ''", "ALTER TABLE {0} MODIFY b VARCHAR(2)"],
    "clipped": ["INSERT INTO {0} VALUES (3, 5000, NULL)", "ALTER TABLE {0} MODIFY a TINYINT"],
    "without_nulls": ["INSERT INTO {0} VALUES (3, 30, NULL)", "ALTER TABLE {0} MODIFY b VARCHAR(9) NOT NULL"],
    "name_taken": ["ALTER TABLE {0} CHANGE b c VARCHAR(9), ADD b VARCHAR(9) DEFAULT 'x'"],
    "names_swapped": ["ALTER TABLE {0} ADD c INT", "ALTER TABLE {0} CHANGE a c INT, CHANGE c a INT"],
    "added_again": ["ALTER TABLE {0} DROP a, ADD a INT"],
    "unique_rows": ["INSERT INTO {0} VALUES (3, 30, 'one')", "ALTER IGNORE TABLE {0} ADD UNIQUE (b)"],
    "swapped": [
        "CREATE TABLE _{0}_gho LIKE {0}",
        "ALTER TABLE _{0}_gho ADD kind VARCHAR(10) NOT NULL DEFAULT 'std'",
        "INSERT INTO _{0}_gho (id, a, b) SELECT id, a, b FROM {0}",
        "RENAME TABLE {0} TO _{0}_del, _{0}_gho TO {0}",
    ],
    "swapped_with_a_unique_key": [
        "INSERT INTO {0} VALUES (3, 30, 'one')",
        "CREATE TABLE _{0}_new LIKE {0}",
        "ALTER TABLE _{0}_new ADD UNIQUE (b)",
        "INSERT IGNORE INTO _{0}_new SELECT * FROM {0}",
        "RENAME TABLE {0} TO _{0}_old, _{0}_new TO {0}",
    ],
    "labels": ["SET sql_mode = ''", "ALTER TABLE {0} MODIFY b ENUM('one')"],
}
_CASCADES = {"deleted_with_parents": "ON DELETE CASCADE", "nulled_with_parents": "ON DELETE SET NULL"}
"""Children by what happens to them when a parent is deleted, which is in no log."""
_TYPES = "CREATE TYPE mood AS ENUM ('one', 'two'); CREATE TYPE address AS (street text, zip int)"
_COLUMNS = {
    "hidden": "b varchar(9), c jsonb DEFAULT '{\"secret\": 1}'",
    "expression": "b varchar(9), twice int GENERATED ALWAYS AS (a * 2) STORED",
    "label": "b mood",
    "attributes": "b varchar(9), c address DEFAULT ROW('Ash', 13)",
}
"""Columns beside the first two, where they are others than a text."""
_POSTGRESQL = {
    "a_default": ["ALTER TABLE {0} ADD stock int NOT NULL DEFAULT 5"],
    "same_type": ["ALTER TABLE {0} ALTER b TYPE varchar(9) USING upper(b)"],
    "added_again": ["ALTER TABLE {0} DROP a, ADD a int DEFAULT 9"],
    "hidden": ["ALTER TABLE {0} ALTER c TYPE jsonb USING c - 'secret'"],
    "expression": ["ALTER TABLE {0} ALTER twice DROP EXPRESSION"],
    "label": ["ALTER TYPE mood RENAME VALUE 'two' TO 'three'"],
    "attributes": ["ALTER TYPE address RENAME ATTRIBUTE zip TO code; ALTER TYPE address ADD ATTRIBUTE city text"],
    "with_partition": [
        "CREATE TABLE {0}_p (LIKE {0} INCLUDING ALL); INSERT INTO {0}_p VALUES (100, 1, 'x');"
        "ALTER TABLE {0} ATTACH PARTITION {0}_p FOR VALUES FROM (100) TO (200)"
    ],
    "without_partition": ["ALTER TABLE {0} DETACH PARTITION {0}_low"],
}


def pipeline_of(folder: Path, source: dict[str, Any], on_rewrite: str) -> Pipeline:
    file = folder / "pipeline.yaml"
    text = {
        "source": {**source, "on_rewrite": on_rewrite},
        "sink": {"type": "delta", "path": "./lake"},
        "pipeline": {"name": "rewritten", "checkpoint": "./checkpoint", "trigger": "50ms"},
    }
    file.write_text(json.dumps(text))
    return load_pipeline(file)


def unequal(spark: SparkSession, pipeline: Pipeline) -> set[str]:
    """The tables that `verify` finds to be different."""
    found = list(pipeline.verify(spark))
    assert found
    return {one.table.name for one in found if isinstance(one, LeftOut) or not one.equal}


def found_and_mended(
    spark: SparkSession, folder: Path, source: dict[str, Any], alter: Callable[[], None]
) -> tuple[set[str], set[str]]:
    """The unequal tables after they were altered, and after they are read again."""
    pipeline = pipeline_of(folder, source, "warn")
    assert pipeline.start(spark, once=True).wait(PATIENCE)
    alter()
    assert pipeline.start(spark, once=True).wait(PATIENCE)
    found = unequal(spark, pipeline)
    pipeline.reread([".*"]).do()
    assert pipeline.start(spark, once=True).wait(PATIENCE)
    return found, unequal(spark, pipeline)


@pytest.mark.jvm
def test_verify_finds_what_alterations_did_on_mariadb(
    spark: SparkSession, tmp_path: Path, mariadb_database: MySqlDatabase
) -> None:
    with mariadb_database.connect() as session, session.cursor() as cursor:

        def run(statements: list[str], name: str) -> None:
            for statement in statements:
                cursor.execute(statement.format(name))

        for name in _MARIADB:
            run(["CREATE TABLE {0} (id INT PRIMARY KEY, a INT, b VARCHAR(9))", _ROWS], name)
        run(["CREATE TABLE {0} (id INT PRIMARY KEY)", "INSERT INTO {0} VALUES (1), (2)"], "parents")
        for name, rule in _CASCADES.items():
            foreign = f"FOREIGN KEY (parent) REFERENCES parents (id) {rule}"
            run(
                [
                    f"CREATE TABLE {{0}} (id INT PRIMARY KEY, parent INT, {foreign})",
                    "INSERT INTO {0} VALUES (7, 1), (8, 2)",
                ],
                name,
            )
        altered = {**_MARIADB, "parents": ["DELETE FROM {0} WHERE id = 2"]}
        source = {
            "type": "mysql",
            **mariadb_database.options,
            "signal_path": str(tmp_path / "signals"),
            "tables": [f"{mariadb_database.name}.{name}" for name in (*altered, *_CASCADES)],
            "on_cascade": "warn",
        }
        found = found_and_mended(
            spark, tmp_path, source, lambda: [run(sql, name) for name, sql in altered.items()] and None
        )
    assert found == ({*_MARIADB, *_CASCADES}, set())


@pytest.mark.jvm
def test_verify_finds_what_alterations_did_on_postgresql(
    spark: SparkSession, tmp_path: Path, postgres_database: PostgresDatabase
) -> None:
    postgres_database.execute(_TYPES)
    for name in _POSTGRESQL:
        columns = f"id int PRIMARY KEY, a int, {_COLUMNS.get(name, 'b varchar(9)')}"
        if "partition" in name:
            postgres_database.execute(
                f"CREATE TABLE {name} ({columns}) PARTITION BY RANGE (id);"
                f"CREATE TABLE {name}_low PARTITION OF {name} FOR VALUES FROM (0) TO (50)"
            )
        else:
            postgres_database.execute(f"CREATE TABLE {name} ({columns})")
        postgres_database.execute(_ROWS.format(name))
    source = {
        "type": "postgresql",
        **postgres_database.options,
        "slot": f"v_{postgres_database.name}",
        "publication_autocreate": "filtered",
        "signal_path": str(tmp_path / "signals"),
        "tables": [f"public.{name}" for name in _POSTGRESQL],
    }

    def alter() -> None:
        for name, statements in _POSTGRESQL.items():
            for statement in statements:
                postgres_database.execute(statement.format(name))

    assert found_and_mended(spark, tmp_path, source, alter) == (set(_POSTGRESQL), set())
