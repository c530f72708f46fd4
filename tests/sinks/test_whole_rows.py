"""Whole rows go into a Delta table without a MERGE, and leave what a MERGE would leave; where they can't, it is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.delta_target import DeltaTarget

from headrace.sinks.lake.delta.log import Transaction
from headrace.sinks.lake.delta.table import DeltaTable
from headrace.testing.change_history import Batch, table

T = table("t", id="int64", a="string")
REPLACED, MERGED = "STREAMING UPDATE", "MERGE"
NO_FILES_IN_CHECKSUMS = "spark.databricks.delta.allFilesInCrc.enabled"


INDEX = "rows are marked by an index"


pytestmark = pytest.mark.smoke("few files-rows are marked", "rows are marked", "rows are marked-*enableChangeDataFeed*")


@pytest.fixture(params=["rows are marked", INDEX, "files are written again"])
def target(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> DeltaTarget:
    vectors = request.param != "files are written again"
    memory = 0 if request.param == "rows are marked" else 100

    class Target(DeltaTarget):
        def content(self, schema: Any) -> list[tuple[Any, ...]]:
            return sorted(tuple(row) for row in self.frame(schema).drop("_headrace_position").collect())

        def frame(self, schema: Any) -> Any:
            return self.spark.read.format("delta").load(self.path(schema.id.name))

    return Target(spark, tmp_path / "lake", readers="spark" if vectors else "other", index_memory=memory)


@pytest.fixture(params=[True, False], ids=["few files", "many files"])
def files_listed(request: pytest.FixtureRequest, spark: Any) -> Iterator[None]:
    """Delta writes the files of a table beside each commit while they are few."""
    spark.conf.set(NO_FILES_IN_CHECKSUMS, str(request.param).lower())
    yield
    spark.conf.unset(NO_FILES_IN_CHECKSUMS)


def row(id: int, text: str) -> dict[str, str]:
    return {"id": str(id), "a": text}


def filled(target: DeltaTarget, rows: int = 40) -> None:
    first = Batch(T)
    for n in range(rows):
        first.add("r", T, 1, row(n, f"read {n}"), snapshot="last" if n == rows - 1 else "true")
    target.write(first, 0)


def operations(target: DeltaTarget) -> list[str]:
    return [
        entry["operation"]
        for entry in target.spark.sql(f"describe history delta.`{target.path('t')}`").orderBy("version").collect()
    ]


@pytest.mark.usefixtures("files_listed", "large_targets")
def test_rows_go_and_come_in_one_commit(target: DeltaTarget) -> None:
    filled(target)
    changes = Batch(T).add("u", T, 5, row(3, "new")).add("d", T, 6, before=row(4, "read 4"))
    target.write(changes.add("c", T, 7, row(100, "come")), 1)
    # One row twice in a row, one that isn't there, one that comes again.
    again = Batch(T).add("u", T, 8, row(3, "newer")).add("d", T, 9, before=row(200, "unknown"))
    target.write(again.add("c", T, 10, row(4, "back")), 2)
    expected = {n: f"read {n}" for n in range(40)} | {3: "newer", 4: "back", 100: "come"}
    assert target.content(T) == sorted(expected.items())
    assert operations(target)[-2:] == [REPLACED, REPLACED]
    added = target.spark.read.json(f"{target.path('t')}/_delta_log/*.json").where("add is not null")
    assert added.count() == added.where("contains(add.stats, 'minValues')").count(), "later batches can't skip files"


@pytest.mark.usefixtures("files_listed")
def test_a_row_that_is_newer_in_the_target_stays(target: DeltaTarget) -> None:
    filled(target, 3)
    target.write(Batch(T).add("u", T, 9, row(1, "new")), 1)
    late = Batch(T).add("u", T, 5, row(1, "old")).add("d", T, 6, before=row(1, "old"))
    target.write(late.add("u", T, 7, row(2, "second")).add("c", T, 8, row(3, "third")), 2)
    assert target.content(T) == [(0, "read 0"), (1, "new"), (2, "second"), (3, "third")]
    assert operations(target)[-2:] == [REPLACED, REPLACED]


@pytest.mark.usefixtures("files_listed")
def test_a_table_can_lose_all_rows_and_get_new_ones(target: DeltaTarget) -> None:
    filled(target, 3)
    gone = Batch(T)
    for n in range(3):
        gone.add("d", T, 5 + n, before=row(n, f"read {n}"))
    target.write(gone, 1)
    assert target.content(T) == []
    target.write(Batch(T).add("c", T, 9, row(1, "again")), 2)
    assert target.content(T) == [(1, "again")]


@pytest.mark.parametrize(
    "statement",
    [
        "alter table {} set tblproperties ('delta.enableChangeDataFeed' = 'true')",
        "alter table {} set tblproperties ('delta.enableRowTracking' = 'true')",
    ],
)
def test_a_table_of_which_more_is_to_be_kept_gets_a_merge(target: DeltaTarget, statement: str) -> None:
    filled(target, 3)
    target.spark.sql(statement.format(f"delta.`{target.path('t')}`"))
    target.write(Batch(T).add("u", T, 5, row(1, "new")), 1)
    assert target.content(T) == [(0, "read 0"), (1, "new"), (2, "read 2")]
    assert operations(target)[-1] == MERGED


def test_values_of_a_column_that_the_source_has_no_more_are_kept_by_a_merge(target: DeltaTarget) -> None:
    wide = table("t", id="int64", a="string", b="string")
    target.write(Batch(wide).add("r", wide, 1, {"id": "1", "a": "x", "b": "y"}, snapshot="last"), 0)
    target.write(Batch(T).add("u", T, 2, row(1, "new")), 1, schema_change_behavior="lenient")
    assert target.content(T) == [(1, "new", "y")]
    assert operations(target)[-1] == MERGED


@pytest.mark.usefixtures("files_listed")
def test_only_files_that_may_have_the_keys_are_looked_at(target: DeltaTarget) -> None:
    for number, first in enumerate((0, 1000)):
        target.write(Batch(T).add("c", T, number, row(first, "a")).add("c", T, number, row(first + 9, "b")), number)
    mirror = DeltaTable(target.spark, target.path("t"))
    log = mirror._log
    assert log is not None
    with log.transaction() as commit:
        found = commit.files(["t.id >= 1001", "(t.id <= 1005 or t.id = 1007)"])
        assert {line["id"] for line in commit.rows(found).collect()} >= {1000, 1009}
        assert found.size() == (1 if target.spark.conf.get(NO_FILES_IN_CHECKSUMS) == "false" else 2)


def test_changes_that_lack_columns_get_a_merge(target: DeltaTarget) -> None:
    wide = table("t", id="int64", a="string", b="string")
    target.write(Batch(wide).add("r", wide, 1, {"id": "1", "a": "x", "b": "y"}, snapshot="last"), 0)
    target.write(Batch(wide).add("u", wide, 2, {"id": "1", "a": "new"}), 1)
    assert target.content(wide) == [(1, "new", "y")]
    assert operations(target)[-1] == MERGED


def test_a_delta_that_lacks_a_part_gets_a_merge(
    target: DeltaTarget, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filled(target, 3)
    monkeypatch.setattr(Transaction, "facts", property(lambda self: self._own.noSuchThing()))
    target.write(Batch(T).add("u", T, 5, row(1, "new")), 1)
    assert target.content(T) == [(0, "read 0"), (1, "new"), (2, "read 2")]
    assert operations(target)[-1] == MERGED
    assert "noSuchThing" in caplog.text


def test_a_batch_is_made_again_when_another_commit_got_into_its_way(
    target: DeltaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(target, 3)
    target.write(Batch(T).add("c", T, 4, row(3, "one more file")), 1)
    before_the_commit(monkeypatch, lambda: target.spark.sql(f"optimize delta.`{target.path('t')}`").collect())
    target.write(Batch(T).add("u", T, 5, row(1, "new")), 2)
    assert target.content(T) == [(0, "read 0"), (1, "new"), (2, "read 2"), (3, "one more file")]
    assert operations(target)[-2:] == ["OPTIMIZE", REPLACED]


def test_rows_that_others_added_meanwhile_are_seen(target: DeltaTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commits of one batch, of which the second does not know the first yet."""
    filled(target, 3)
    before_the_commit(monkeypatch, lambda: target.write(Batch(T).add("c", T, 4, row(7, "come")), 1))
    target.write(Batch(T).add("c", T, 4, row(7, "come")), 1)
    assert target.content(T) == [(0, "read 0"), (1, "read 1"), (2, "read 2"), (7, "come")]


def test_a_row_that_somebody_inserts_meanwhile_is_replaced(
    target: DeltaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta lets an append through that reads nothing, unless the other commit has read the whole table."""
    filled(target, 3)
    insert = f"insert into delta.`{target.path('t')}` values (7, 'foreign', null)"
    before_the_commit(monkeypatch, lambda: target.spark.sql(insert))
    target.write(Batch(T).add("c", T, 4, row(7, "come")), 1)
    assert target.content(T) == [(0, "read 0"), (1, "read 1"), (2, "read 2"), (7, "come")]


def before_the_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something once, after the rows that go were found and before they are."""
    commit, seen = Transaction.commit, []

    def after_another(self: Transaction, *given: Any) -> int:
        if not seen:
            seen.append(self)
            act()
        return commit(self, *given)

    monkeypatch.setattr(Transaction, "commit", after_another)
