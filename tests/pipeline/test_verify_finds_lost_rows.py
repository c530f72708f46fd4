"""Rule: without what keeps rows whose keys move along, and values that types have no place for, mirrors are unequal
without a word, and `headrace verify` names each of these tables and no other.

Each case is a table; all of a server share one run. What is taken out is one function each, and only while the pipeline
runs: verify is the product's own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.apply.shared_keys import FACTS
from headrace.changes import typed
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline, load_pipeline
from headrace.pipeline.verify import Verified
from headrace.testing.waiting import PATIENCE
from headrace_emulators.mysql.server import MySqlDatabase
from headrace_emulators.postgresql.server import PostgresDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.system, pytest.mark.jvm]

_KEY = "id int, a text, PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED"
_ROWS = "(1, 'one'), (2, 'two'), (3, 'three')"
_MOVED = {
    "moved_along": "UPDATE {0} SET id = id + 1",
    "swapped": "UPDATE {0} SET id = 3 - id WHERE id < 3",
    "in_a_circle": "UPDATE {0} SET id = CASE id WHEN 1 THEN 2 WHEN 2 THEN 3 ELSE 1 END",
    "apart": "UPDATE {0} SET id = id + 10",
}
"""What is done with rows in PostgreSQL; in the last case no key is shared."""
_VALUES = {
    "endless_day": ("date", "infinity"),
    "endless_moment": ("timestamp", "-infinity"),
    "no_number": ("numeric(10,2)", "NaN"),
    "before_christ": ("date", "0044-03-15 BC"),
    "ordinary": ("date", "2024-02-29"),
}
_DAYS = {
    "zero_keys": ("day DATE PRIMARY KEY", "('0000-00-00'), ('2024-00-00')"),
    "zero_values": ("id INT PRIMARY KEY, at DATETIME NOT NULL", "(1, '0000-00-00 00:00:00')"),
    "real_days": ("day DATE PRIMARY KEY", "('2024-02-29')"),
}


def pipeline_of(folder: Path, source: dict[str, Any]) -> Pipeline:
    file = folder / "pipeline.yaml"
    text = {
        "source": source,
        "sink": {"type": "delta", "path": "./lake"},
        "pipeline": {"name": "lossy", "checkpoint": "./checkpoint", "trigger": "50ms"},
    }
    file.write_text(json.dumps(text))
    return load_pipeline(file)


def run(spark: SparkSession, pipeline: Pipeline) -> None:
    """A run without the mendings."""
    with pytest.MonkeyPatch.context() as out:
        # The package has a function of that name.
        out.setattr(sys.modules["headrace.apply.fold"], "settled", lambda lines, table: lines.drop(*FACTS))
        out.setattr(typed, "_cast", lambda text, kind: f"try_cast({text} as {kind})")
        out.setattr(typed, "_cast_before_christ", lambda text, kind: [])
        out.setattr(typed, "_without_value", lambda text, column, misfit: "null")
        assert pipeline.start(spark, once=True).wait(PATIENCE)


def found(spark: SparkSession, pipeline: Pipeline) -> tuple[set[str], set[str]]:
    """The tables that `verify` finds to be unequal or can't compare, and those that are equal."""
    unequal, equal = set(), set()
    try:
        for one in pipeline.verify(spark):
            assert isinstance(one, Verified)
            (equal if one.equal else unequal).add(one.table.name)
    except HeadraceError as error:
        for one in (error, *error.others):
            assert one.table is not None
            unequal.add(one.table.name)
    return unequal, equal


def test_verify_finds_what_postgresql_would_lose(
    spark: SparkSession, tmp_path: Path, postgres_database: PostgresDatabase
) -> None:
    for name in _MOVED:
        postgres_database.execute(
            f"CREATE TABLE {name} ({_KEY}); ALTER TABLE {name} REPLICA IDENTITY FULL; INSERT INTO {name} VALUES {_ROWS}"
        )
    for name, (kind, _) in _VALUES.items():
        postgres_database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v {kind})")
    source = {
        "type": "postgresql",
        **postgres_database.options,
        "slot": f"v_{postgres_database.name}",
        "publication_autocreate": "filtered",
        "tables": [f"public.{name}" for name in (*_MOVED, *_VALUES)],
    }
    pipeline = pipeline_of(tmp_path, source)
    run(spark, pipeline)
    for name, statement in _MOVED.items():
        postgres_database.execute(statement.format(name))
    for name, (_, value) in _VALUES.items():
        postgres_database.execute(f"INSERT INTO {name} VALUES (1, '{value}')")
    run(spark, pipeline)
    right = {"apart", "ordinary"}
    assert found(spark, pipeline) == ({*_MOVED, *_VALUES} - right, right)


def test_verify_finds_what_mariadb_would_lose(
    spark: SparkSession, tmp_path: Path, mariadb_database: MySqlDatabase
) -> None:
    with mariadb_database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for name, (columns, values) in _DAYS.items():
            cursor.execute(f"CREATE TABLE {name} ({columns})")
            cursor.execute(f"INSERT INTO {name} VALUES {values}")
    tables = [f"{mariadb_database.name}.{name}" for name in _DAYS]
    pipeline = pipeline_of(tmp_path, {"type": "mysql", **mariadb_database.options, "tables": tables})
    run(spark, pipeline)
    assert found(spark, pipeline) == ({"zero_keys", "zero_values"}, {"real_days"})
