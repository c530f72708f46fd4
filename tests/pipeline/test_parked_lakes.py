"""Rule: tables of lakes and messages are parked from the snapshot on, and equal after a reread."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import SchemaError
from headrace.observe.checkpoint import PARKED
from headrace.pipeline import load_pipeline
from headrace.testing.faults import InjectedFault, arming
from headrace.testing.waiting import PATIENCE
from headrace_emulators.postgresql.server import PostgresDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = {
    "fine": "text",
    "endless": "timestamp",
    "changed": "text",
    "limited": "text",
    "taken": "text",
    "keyed": "int",
}
"""The tables with the type of their column v."""


class Lakes:
    """A PostgreSQL database in two lakes and a folder of messages."""

    def __init__(self, spark: SparkSession, folder: Path, source: PostgresDatabase) -> None:
        self.folder, self.source = folder, source
        self.file = folder / "pipeline.yaml"
        made = {
            "source": {"type": "postgresql", **source.options, "message_key_columns": "public.keyed:v"},
            "sinks": [
                {"type": "delta", "path": "delta"},
                {"type": "iceberg", "warehouse": "iceberg", "catalog": "parked"},
                {"type": "files", "path": "files", "format": {"type": "debezium_json", "topic.prefix": "p"}},
            ],
            "pipeline": {"name": "lakes", "checkpoint": "state", "on_table_error": "park"},
        }
        self.file.write_text(json.dumps(made))
        self.spark = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
        for name, value in [
            ("", "org.apache.iceberg.spark.SparkCatalog"),
            (".type", "hadoop"),
            (".warehouse", str(folder / "iceberg")),
            (".cache-enabled", "false"),  # another session's commits are seen at once
        ]:
            self.spark.conf.set(f"spark.sql.catalog.parked{name}", value)

    def run(self) -> None:
        assert load_pipeline(self.file).start(self.spark, once=True).wait(PATIENCE)

    def parked(self) -> dict[str, str]:
        """What is parked, with the cause."""
        file = self.folder / "state" / PARKED
        return {one["name"]: one["sentence"] for one in json.loads(file.read_text())["parked"]} if file.exists() else {}

    def different(self) -> set[str]:
        """The tables of lakes that differ from their source."""
        found = set()
        for name, kind in VALUES.items():
            truth = self.source.execute(f"SELECT id::text, v::text FROM {name} ORDER BY id")
            delta, iceberg = f"delta.`{self.folder}/delta/public/{name}`", f"parked.public.{name}"
            for target in (delta, iceberg):
                if target == iceberg and not self.spark.catalog.tableExists(target):
                    found.add(name)
                    continue
                value = "date_format(v, 'yyyy-MM-dd HH:mm:ss')" if kind == "timestamp" else "cast(v as string)"
                rows = self.spark.sql(f"SELECT cast(id AS string), {value} FROM {target} ORDER BY id").collect()
                if [tuple(row) for row in rows] != truth:
                    found.add(name)
        return found

    def messages(self) -> dict[str, list[Any]]:
        """The keys of inserts that consumers got, by table."""
        found: dict[str, list[Any]] = {}
        for part in sorted((self.folder / "files").rglob("part-*")):
            for line in part.read_text().splitlines():
                value = json.loads(json.loads(line)["value"] or "{}")
                if value.get("op") == "c":
                    found.setdefault(value["source"]["table"], []).append(value["after"]["id"])
        return found


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return arming(tmp_path, monkeypatch)


@pytest.mark.system
def test_parked_tables_of_lakes_come_back_equal_and_messages_lack_only_theirs(
    spark: SparkSession, tmp_path: Path, postgres_database: PostgresDatabase, arm: Callable[[str], None]
) -> None:
    source = postgres_database
    for name, kind in VALUES.items():
        first = "infinity" if name == "endless" else "1"
        source.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v {kind} NOT NULL)")
        source.execute(f"INSERT INTO {name} VALUES (1, '{first}')")
    source.execute("ALTER TABLE keyed REPLICA IDENTITY FULL")
    lakes = Lakes(spark, tmp_path, source)
    # It dies between the record of the first parked table and the commit of its batch, which is one of the snapshot.
    arm("pipeline.table.parked=raise")
    with pytest.raises((InjectedFault, SchemaError)):
        lakes.run()
    assert (tmp_path / "faults" / "pipeline.table.parked.hit").exists()
    assert set(lakes.parked()) == {"endless"}
    lakes.run()
    assert set(lakes.parked()) == {"endless"}
    lakes.spark.sql(f"ALTER TABLE delta.`{tmp_path}/delta/public/limited` ADD CONSTRAINT short CHECK (v <> '2')")
    lakes.spark.sql("ALTER TABLE parked.public.taken DROP COLUMN v")
    lakes.spark.sql("ALTER TABLE parked.public.taken ADD COLUMN v int")
    source.execute("ALTER TABLE keyed REPLICA IDENTITY DEFAULT")
    source.execute("ALTER TABLE changed ALTER v TYPE int USING v::int")
    for number in (2, 3):
        for name, kind in VALUES.items():
            value = "2024-01-02 03:04:06" if kind == "timestamp" else str(number)
            source.execute(f"INSERT INTO {name} VALUES ({number}, '{value}')")
            source.execute(f"DELETE FROM {name} WHERE id = {number - 1}")
        lakes.run()
        assert set(lakes.parked()) == set(VALUES) - {"fine"}
        assert "fine" not in lakes.different()
    assert lakes.messages()["fine"] == [2, 3]

    source.execute("ALTER TABLE keyed REPLICA IDENTITY FULL")
    lakes.spark.sql(f"ALTER TABLE delta.`{tmp_path}/delta/public/limited` DROP CONSTRAINT short")
    for target in ("parked.public.taken", "parked.public.changed"):
        lakes.spark.sql(f"DROP TABLE {target} PURGE")
    (tmp_path / "delta" / "public" / "changed").rename(tmp_path / "away")
    repair = load_pipeline(lakes.file).reread([f"public.{name}" for name in VALUES if name != "fine"])
    repair.do()
    lakes.run()
    assert (lakes.parked(), lakes.different()) == ({}, set())
