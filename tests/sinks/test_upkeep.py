"""Tables are compacted between batches: no row changes, no batch counts twice, and a failure is only a warning."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from tests.support.delta_target import DeltaTarget
from tests.support.iceberg_target import IcebergTarget

from headrace.errors import OptionError
from headrace.sinks.base import BatchId
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.sinks.lake.iceberg.table import IcebergTable
from headrace.sinks.lake.table import LakeTable
from headrace.sinks.lake.upkeep import Upkeep, UpkeepSettings
from headrace.testing.change_history import Batch
from headrace.testing.table_target import A, T


class Kept(DeltaTarget):
    """A Delta table whose batches one sink writes, as a pipeline does. Each MERGE leaves one small file more."""

    def sink(self, **options: Any) -> DeltaSink:
        return super().sink(**{**options})

    def kept(self, **options: Any) -> Any:
        made = self.sink(**options)
        return lambda batch, number: made.write(batch.rows(self.spark), BatchId("p", "checkpoint", number))


class KeptIceberg(IcebergTarget):
    """An Iceberg table of that kind."""

    def kept(self, **options: Any) -> Any:
        made = self.sink(**options)
        return lambda batch, number: made.write(batch.rows(self.spark), BatchId("p", "checkpoint", number))

    def operations(self) -> list[str]:
        found = self.table()
        rows = found.session.table(f"{found.sql_name}.snapshots").orderBy("committed_at").collect()
        return [row["operation"] for row in rows if int(row["summary"].get("total-records", 0))]


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.system)])
def target(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Any:
    return (Kept if request.param == "delta" else KeptIceberg)(spark, tmp_path / "lake")


def change(number: int) -> Batch:
    return Batch(T).add("c", T, number, {**A, "id": str(number)}).add("u", T, 1000 + number, {**A, "id": "0", "a": "w"})


def compactions(target: Any) -> list[int]:
    """After how many commits of data each compaction came."""
    found, commits = [], 0
    for operation in target.operations():
        if operation in ("OPTIMIZE", "replace"):
            found.append(commits)
        commits += operation in ("WRITE", "MERGE", "STREAMING UPDATE", "append", "overwrite")
    return sorted(set(found))


@pytest.mark.system
def test_a_table_is_compacted_after_so_many_commits_also_over_restarts_and_replays(
    target: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, 4):
        target.write(change(number), number, compact_every=5)
    write = target.kept(compact_every=5)
    write(change(3), 3)
    for number in range(4, 13):
        write(change(number), number)
        write(change(number), number)
    assert compactions(target) == [5, 10]
    assert sorted(row[0] for row in target.content(T)) == list(range(13))
    assert "compacted" not in caplog.text


@pytest.mark.system
def test_files_of_old_versions_go_after_a_compaction_and_the_table_still_knows_its_batches(
    target: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write = target.kept(compact_every=2, vacuum_retain_hours=200)
    for number in range(1, 6):
        write(change(number), number)
    assert "compacted" not in caplog.text
    # Iceberg has no older ones, and says nothing.
    assert isinstance(target, KeptIceberg) or "VACUUM END" in target.operations()
    before = target.content(T)
    write(change(5), 5)
    target.write(change(5), 5)
    assert target.content(T) == before
    assert [row[0] for row in before] == list(range(6))


def test_the_snapshot_that_says_which_batch_a_table_has_never_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, str]] = [{}, {"headrace.owner": "p/c"}, {"headrace.owner": "p/c"}]
    snapshots = [SimpleNamespace(summary=lambda found=found: found) for found in said]
    monkeypatch.setattr(IcebergTable, "_descent", lambda table: iter(snapshots))
    statements: list[str] = []
    session: Any = SimpleNamespace(sql=statements.append)
    IcebergTable(session, ("lake", "dbo", "t")).vacuum(48)
    (statement,) = statements
    assert statement.startswith("call `lake`.system.expire_snapshots(table => '`dbo`.`t`', older_than => timestamp '20")
    # The newest one compacted the table; the one before it has the batch.
    assert statement.endswith("retain_last => 2)")


def test_old_versions_do_not_go_without_a_compaction() -> None:
    with pytest.raises(OptionError, match="'compact_every' is 0"):
        Upkeep(UpkeepSettings(vacuum_retain_hours=24))


class Refusing:
    """A table that can't be compacted."""

    location = label = "Delta table /t"

    def __init__(self) -> None:
        self.tried = 0

    def commits_since_compaction(self, most: int) -> int:
        return most

    def compact(self) -> None:
        self.tried += 1
        raise PySparkException("somebody else wrote a cell of 'secret7'")


def test_a_compaction_that_fails_is_a_warning_and_is_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    table: LakeTable = Refusing()  # type: ignore[assignment]
    upkeep = Upkeep(UpkeepSettings(compact_every=3))
    with caplog.at_level(logging.WARNING):
        for _ in range(7):
            upkeep.after_commit(table)
    assert table.tried == 3  # type: ignore[attr-defined]
    assert len(caplog.messages) == 3
    assert "The Delta table /t can't be compacted (PySparkException). Its batches are there" in caplog.messages[0]
    assert "secret7" not in caplog.text
