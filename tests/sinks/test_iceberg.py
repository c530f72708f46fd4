"""The Iceberg sink does what the contract of table sinks says; its batches stand in snapshot summaries."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import smoke
from tests.support.iceberg_target import IcebergTarget

from headrace.changes import TableSchema
from headrace.errors import OptionError
from headrace.sinks.base import BatchId
from headrace.sinks.lake.catalog import escaped
from headrace.sinks.lake.iceberg.sink import IcebergSink
from headrace.sinks.lake.iceberg.table import IcebergTable
from headrace.testing.change_history import Batch, table
from headrace.testing.table_sinks import TableSinkContract
from headrace.testing.table_target import A, B, K, T
from headrace.testing.waiting import PATIENCE, until


@pytest.fixture
def target(spark: Any, tmp_path: Path, large_targets: None) -> IcebergTarget:
    return IcebergTarget(spark, tmp_path / "lake")


@pytest.mark.smoke(
    *smoke.TABLES, "test_batches_bring_the_mirror_to_the_source_and_replays_change_nothing", "test_any_course_of_events"
)
class TestIceberg(TableSinkContract):
    fault_point = "sink.iceberg"


def snapshot_of(owner: str, number: int, **more: str) -> dict[str, str]:
    given = {"headrace.owner": owner, "headrace.batch": str(number), "headrace.target": "dbo.t"}
    return given | {f"headrace.{name}": text for name, text in more.items()}


@pytest.mark.parametrize(
    ("summaries", "sink", "has"),
    [
        ([], "", False),
        ([snapshot_of("p/c", 3)], "", True),
        ([snapshot_of("p/c", 2)], "", False),
        ([snapshot_of("q/c", 3)], "", False),
        ([snapshot_of("p/c", 3, target="dbo.other")], "", False),
        # Somebody compacted the table, and somebody else wrote to it.
        ([snapshot_of("p/c", 3, offsets="ab"), {"operation": "replace"}, snapshot_of("q/c", 9)], "", True),
        # Sinks that share a table have marks of their own.
        ([snapshot_of("p/c", 2, sink="1"), snapshot_of("p/c", 3, sink="2")], "1", False),
        ([snapshot_of("p/c", 3, sink="1"), snapshot_of("p/c", 2, sink="2")], "1", True),
    ],
)
def test_the_owners_newest_snapshot_says_which_batch_a_table_has(
    monkeypatch: pytest.MonkeyPatch, summaries: list[dict[str, str]], sink: str, has: bool
) -> None:
    snapshots = {
        number: SimpleNamespace(summary=lambda said=said: said, parentId=lambda number=number: number - 1 or None)
        for number, said in enumerate(summaries, 1)
    }
    java = SimpleNamespace(
        refresh=lambda: None, currentSnapshot=lambda: snapshots.get(len(summaries)), snapshot=snapshots.get
    )
    monkeypatch.setattr(IcebergTable, "_java", lambda table: java)
    asked = BatchId("p", "c", 3, offsets="ab", sink=sink)
    assert IcebergTable(None, ("lake", "dbo", "t")).has(asked, "dbo.t") is has  # type: ignore[arg-type]


def test_a_batch_is_one_snapshot_that_names_it_and_a_replay_makes_none(target: IcebergTarget) -> None:
    typed = table(id="int16", a="string", b="string")
    batches = [Batch(typed).add("r", typed, 1, A, snapshot="last"), Batch(typed).add("u", typed, 2, {**A, "a": "w"})]
    for number, batch in enumerate(batches):
        for _ in range(2):
            target.write(batch, number)
    names = ("headrace.owner", "headrace.batch", "headrace.target")
    assert [[found[name] for name in names] for found in target.snapshots()] == [
        ["p/checkpoint", "0", "db.dbo.t"],
        ["p/checkpoint", "1", "db.dbo.t"],
    ]
    assert dict(target.table().read().dtypes) == {
        "id": "int",
        "a": "string",
        "b": "string",
        "_headrace_position": "string",
    }
    assert target.shown_properties()["identifier-fields"] == "[id]"


def test_a_writer_that_wrote_all_but_did_not_publish_lands_nothing_beside_its_successor(
    target: IcebergTarget, arm: Callable[[str], None], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    arm(f"sink.iceberg.before_publish=hold:{gate}")
    # The first batch of all, where there is no snapshot yet to tell that the table moved.
    batch = Batch(K).add("c", K, 1, A)
    with ThreadPoolExecutor(1) as pool:
        paused = pool.submit(target.write, batch, 0)
        until(gate.with_name("gate.reached").exists, "the first writer is held")
        target.write(batch, 0)
        gate.touch()
        paused.result(PATIENCE)
    assert target.content(K) == [(1, "x", "y")]
    found = target.table(K)
    refs = [row["name"] for row in found.session.table(f"{found.sql_name}.refs").collect()]
    assert refs == ["main"]


@pytest.mark.parametrize(("schema", "scd_type", "left"), [(K, "1", [2]), (T, "2", [1, 2])])
def test_a_table_whose_files_are_copied_takes_a_batch_that_reads_it(
    target: IcebergTarget, schema: TableSchema, scd_type: str, left: list[int]
) -> None:
    given = {"merge_on_read": False, "stored_as_scd_type": scd_type}
    target.write(Batch(schema).add("c", schema, 1, A).add("c", schema, 2, B), 0, **given)
    target.write(Batch(schema).add("d", schema, 3, None, A), 1, **given)
    assert sorted(row["id"] for row in target.rows(schema)) == left


def test_a_batch_lands_in_a_table_that_somebody_compacted_meanwhile(
    target: IcebergTarget, arm: Callable[[str], None], tmp_path: Path
) -> None:
    for number in range(2):
        target.write(Batch(T).add("c", T, f"{number + 1:08}", {**A, "id": str(number)}), number)
    gate = tmp_path / "gate"
    arm(f"sink.iceberg.before_publish=hold:{gate}")
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(target.write, Batch(T).add("u", T, "00000003", {**A, "id": "1"}), 2)
        until(gate.with_name("gate.reached").exists, "the writer is held")
        found = target.table()
        options = "table => 'dbo.t', options => map('rewrite-all', 'true')"
        found.session.sql(f"call lake.system.rewrite_data_files({options})").collect()
        gate.touch()
        writing.result(PATIENCE)
    assert [row[0] for row in target.content(T)] == [0, 1]
    assert [found["headrace.batch"] for found in target.snapshots()][-1] == "2"


@pytest.mark.usefixtures("generated_code")
def test_odd_names_of_tables_and_columns_work(target: IcebergTarget) -> None:
    name = "x]; DROP TABLE a.b ü`t'q"
    odd = table(name, key=("k " + name,), **{"k " + name: "int32", name: "string", "plain": "string"})
    target.write(Batch(odd).add("r", odd, 1, {"k " + name: "1", name: "v", "plain": None}, snapshot="true"), 0)
    target.write(Batch(odd).add("u", odd, 2, {"k " + name: "1", name: "w"}), 1)
    assert target.content(odd) == [(1, "w", None)]
    assert target.table(odd).location == f"lake.dbo.{escaped(name)}"


def test_the_user_keeps_the_sessions_settings(target: IcebergTarget) -> None:
    before = dict(target.spark.conf.getAll)
    target.write(Batch(T).add("u", T, 1, B), 0)
    assert dict(target.spark.conf.getAll) == before


def test_a_catalogue_in_a_database(spark: Any, tmp_path: Path) -> None:
    given = {"catalog": "cabinet", "catalog_type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    target = IcebergTarget(spark, tmp_path / "lake", **given, namespace="own")
    for _ in range(2):
        target.write(Batch(T).add("c", T, 1, A).add("c", T, 2, B), 0)
    assert target.content(T) == [(1, "x", "y"), (2, "z", None)]
    assert target.table().location == "cabinet.own.t"
    with sqlite3.connect(tmp_path / "catalog.db") as catalog:
        assert catalog.execute("select table_namespace, table_name from iceberg_tables").fetchall() == [("own", "t")]


def test_a_catalogue_in_a_database_needs_its_address() -> None:
    with pytest.raises(OptionError, match="needs the option 'uri'"):
        IcebergSink.of({"catalog_type": "jdbc"})


def test_a_table_can_be_sorted_by_its_key(target: IcebergTarget) -> None:
    target.write(Batch(T).add("c", T, 1, A), 0, cluster_by_key=True)
    assert target.shown_properties()["sort-order"] == "id ASC NULLS FIRST"
