"""Histories and change logs in lakehouse tables: versions are those of the plain model, whatever order changes come."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.smoke import examples
from tests.support.delta_target import DeltaTarget
from tests.support.history_model import versions
from tests.support.iceberg_target import IcebergTarget

from headrace.changes import TableSchema
from headrace.errors import OptionError, SchemaError, SinkError
from headrace.testing.change_history import Batch, pos, table
from headrace.testing.histories import history
from headrace.testing.table_target import A, B, K, T

TEXTS = {"id": "string", "a": "string", "b": "string"}
S = table(**TEXTS)
DELTA, ICEBERG = "delta", "iceberg"


class Lake:
    """A sink with histories, and the versions that its tables hold."""

    def __init__(self, target: Any, **options: Any) -> None:
        self.target = target
        self.options = {"stored_as_scd_type": "2", **options}

    def write(self, batch: Batch, number: int, **options: Any) -> None:
        self.target.write(batch, number, **{**self.options, **options})

    def versions(self, schema: TableSchema = S) -> list[Any]:
        found = []
        for row in self.target.rows(schema):
            start, end = ((row[name] or {}).get("position") for name in ("__START_AT", "__END_AT"))
            found.append((tuple(row[column.name] for column in schema.columns), start, end))
        return sorted(found, key=repr)

    def log(self, schema: TableSchema = S) -> list[dict[str, Any]]:
        """The change log's rows in the order of their positions."""
        return sorted(self.target.rows(schema), key=lambda row: str(row["_headrace_position"]))


@pytest.fixture
def lake(spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    kind = getattr(request, "param", DELTA)
    if kind == ICEBERG:
        request.getfixturevalue("large_targets")
    return Lake(DeltaTarget(spark, tmp_path) if kind == DELTA else IcebergTarget(spark, tmp_path))


def random_lines(seed: int, steps: int) -> list[Any]:
    """Change rows that a database could have made of 12 rows, with partial images, key changes and truncates."""
    choose = random.Random(seed)
    doing = [
        (
            choose.choice(["put"] * 6 + ["move", "delete", "delete"] + ["truncate"] * (number % 40 == 0)),
            choose.choice("123456789abc"),
            choose.choice("123456789abc"),
            choose.choice(["x", "y", None]),
            choose.random() < 0.5,
        )
        for number in range(steps)
    ]
    return [line for change in history(doing, S, True) for line in change.lines]


@pytest.mark.parametrize(
    ("lake", "tracked"),
    [(DELTA, ("b",)), pytest.param(ICEBERG, ("a", "b"), marks=pytest.mark.system)],
    indirect=["lake"],
)
def test_versions_are_the_models_with_late_and_repeated_changes(lake: Lake, tracked: tuple[str, ...]) -> None:
    lines = random_lines(seed=len(tracked), steps=examples(120))
    scrambled = lines[:]
    random.Random(7).shuffle(scrambled)
    batches = [scrambled[::2], scrambled[1::2] + scrambled[:40]]
    options = {} if len(tracked) == 2 else {"track_history_column_list": tracked}
    so_far: list[Any] = []
    for number, found in enumerate(batches):
        batch = Batch(S)
        batch.lines += found
        so_far += [line for line in found if line not in so_far]
        # Late changes without all columns have no row before them yet.
        lake.write(batch, number, missing_row="insert", **options)
        assert lake.versions() == versions(so_far, S, tracked)


@pytest.mark.system
def test_a_first_snapshot_then_changes_then_the_same_again(lake: Lake) -> None:
    first = Batch(T).add("r", T, 1, A, snapshot="true").add("r", T, 2, B, snapshot="last")
    then = (
        Batch(T).add("u", T, 5, {**A, "a": "w"}).add("u", T, 6, {**A, "id": "9", "a": "w"}, A).add("d", T, 7, None, B)
    )
    expected = [
        ((1, "w", "y"), pos(5), pos(6)),
        ((1, "x", "y"), pos(1), pos(5)),
        ((2, "z", None), pos(2), pos(7)),
        ((9, "w", "y"), pos(6), None),
    ]
    lake.write(first, 0)
    for _ in range(2):
        lake.write(then, 1)
        assert lake.versions(T) == expected
    # Another checkpoint does not know the batch, but every event is known.
    lake.target.write(then, 0, owner="q", takeover="true", **lake.options)
    assert lake.versions(T) == expected


@pytest.mark.system
def test_a_table_read_again_ends_the_versions_that_vanished_and_starts_none_for_the_rest(lake: Lake) -> None:
    gone = {**A, "id": "7"}
    lake.write(Batch(T).add("r", T, "1//1", A, snapshot="true").add("r", T, "1//2", gone, snapshot="last"), 0)
    again = Batch(T).add("r", T, "5/r/1", A, snapshot="first")
    lake.write(again, 1)
    lake.write(Batch(T).add("r", T, "5/r/2", B, snapshot="last").add("d", T, "6//1", None, B), 2)
    assert lake.versions(T) == [
        ((1, "x", "y"), "1//1", None),
        ((2, "z", None), "5/r/2", "6//1"),
        ((7, "x", "y"), "1//2", "5/"),
    ]


@pytest.mark.system
def test_versions_end_that_a_read_beside_the_stream_did_not_find(lake: Lake) -> None:
    gone = {**A, "id": "7"}
    lake.write(Batch(T).add("c", T, "1//1", A).add("c", T, "1//2", B).add("c", T, "1//3", gone), 0)
    lake.write(Batch(T).add("r", T, "5/ri0:0/0", A, snapshot="incremental").add("u", T, "6//", {**B, "a": "w"}, B), 1)
    for _ in range(2):
        lake.write(Batch().ended(T, "7/ri0:z/", since="5/ri0/"), 2)
        assert lake.versions(T) == [
            ((1, "x", "y"), "1//1", None),
            ((2, "w", None), "6//", None),
            ((2, "z", None), "1//2", "6//"),
            ((7, "x", "y"), "1//3", "5/ri0/"),
        ]


def test_a_change_without_all_columns_and_without_a_row_before_it_stops(lake: Lake) -> None:
    lake.write(Batch(T).add("c", T, 1, A), 0)
    with pytest.raises(SchemaError, match="no row of its key"):
        lake.write(Batch(T).add("u", T, 2, {"id": "7", "a": "q"}), 1)
    assert lake.versions(T) == [((1, "x", "y"), pos(1), None)]


@pytest.mark.system
def test_a_changed_key_takes_over_what_its_change_does_not_say(lake: Lake) -> None:
    lake.write(Batch(T).add("c", T, 1, A).add("u", T, 3, {**A, "b": "w"}, A), 0)
    moves = Batch(T).add("u", T, 4, {"id": "2", "a": "q"}, {"id": "1"}).add("t", T, 5).add("c", T, 6, A)
    lake.write(moves.add("u", T, 7, {"id": "3"}, {"id": "1"}), 1)
    assert lake.versions(T) == [
        ((1, "x", "w"), pos(3), pos(4)),
        ((1, "x", "y"), pos(1), pos(3)),
        ((1, "x", "y"), pos(6), pos(7)),
        ((2, "q", "w"), pos(4), pos(5)),
        ((3, "x", "y"), pos(7), None),
    ]


def test_only_listed_columns_are_written_and_nulls_may_say_nothing(lake: Lake) -> None:
    options = {"except_column_list": "t.b", "ignore_null_updates": "true", "stored_as_scd_type": "1"}
    lake.write(Batch(T).add("c", T, 1, A).add("u", T, 2, {"id": "1", "a": None, "b": "q"}, A), 0, **options)
    lake.write(
        Batch(T).add("u", T, 3, {"id": "1", "a": None, "b": "r"}, A).add("c", T, 4, {**B, "a": None}), 1, **options
    )
    assert lake.target.content(T) == [(1, "x"), (2, None)]


@pytest.mark.smoke("delta")
@pytest.mark.parametrize("lake", [DELTA, ICEBERG], indirect=True)
def test_a_change_log_has_every_change_once_as_it_came(lake: Lake) -> None:
    batch = Batch(T, K).add("c", T, 1, A).add("u", T, 2, {"id": "1", "b": None}, A).add("d", T, 3, None, {"id": "1"})
    batch.add("t", T, 4).add("u", K, 5, B, A)
    for _ in range(2):
        lake.write(batch, 0, stored_as_scd_type="append")
    assert [tuple(v for n, v in row.items() if n != "_headrace_event_time") for row in lake.log(T)] == [
        (1, "x", "y", pos(1), "c", None, None),
        (1, None, None, pos(2), "u", ["a"], A),
        (1, None, None, pos(3), "d", ["a", "b"], {"id": "1"}),
        (None, None, None, pos(4), "t", None, None),
    ]
    assert [row["_headrace_before"] for row in lake.log(K)] == [A]


def test_a_change_log_may_begin_with_a_truncate_that_tells_no_key(lake: Lake) -> None:
    untold = replace(T, key=())
    for number, batch in enumerate((Batch(untold).add("t", untold, 1), Batch(T).add("c", T, 2, A))):
        lake.write(batch, number, stored_as_scd_type="append")
    assert [row["_headrace_op"] for row in lake.log(T)] == ["t", "c"]


def test_what_can_not_be_is_refused(lake: Lake) -> None:
    with pytest.raises(SchemaError, match="has no key, so it can't have a history"):
        lake.write(Batch(K).add("c", K, 1, A), 0)
    for options in (
        {"column_list": "a", "except_column_list": "b"},
        {"stored_as_scd_type": "1", "track_history_column_list": "a"},
    ):
        with pytest.raises(OptionError):
            lake.write(Batch(T), 0, **options)
    lake.write(Batch(T).add("c", T, 1, A), 0)
    with pytest.raises(SinkError, match="is stored as SCD type 2, not 1"):
        lake.write(Batch(T).add("c", T, 2, B), 1, stored_as_scd_type="1")


@pytest.mark.system
@pytest.mark.parametrize("lake", [DELTA, ICEBERG], indirect=True)
def test_a_renamed_column_keeps_its_versions_and_what_is_kept_beside_them(lake: Lake) -> None:
    lake.write(Batch(S).add("c", S, 1, {"id": "1", "a": "x", "b": "y"}).add("u", S, 3, {"id": "1", "a": "z"}), 0)
    new = table(id="string", title="string", b="string")
    batch = Batch(S).add("u", S, 4, {"id": "1", "a": "w"})
    batch.statement(S, 5, "ALTER TABLE t RENAME COLUMN a TO title").structure(new, 6)
    for _ in range(2):
        lake.write(batch, 1, schema_change_behavior="evolve")
    # A late change has the versions made anew, out of updates that carried the column by its old name.
    lake.write(Batch(new).add("u", new, 2, {"id": "1", "b": "late"}), 2)
    assert lake.versions(new) == [
        (("1", "w", "late"), pos(4), None),
        (("1", "x", "late"), pos(2), pos(3)),
        (("1", "x", "y"), pos(1), pos(2)),
        (("1", "z", "late"), pos(3), pos(4)),
    ]


def test_a_change_log_has_a_renamed_column_once(lake: Lake) -> None:
    new = table(id="string", title="string", b="string")
    batch = Batch(S).add("u", S, 2, {"id": "1", "a": "w"}).statement(S, 3, "ALTER TABLE t CHANGE a title text", new)
    log = {"stored_as_scd_type": "append", "schema_change_behavior": "evolve"}
    lake.write(Batch(S).add("c", S, 1, {"id": "1", "a": "x", "b": "y"}), 0, **log)
    lake.write(batch.add("c", new, 4, {"id": "2", "title": "v", "b": None}), 1, **log)
    rows = [tuple(row[name] for name in ("id", "title", "b", "_headrace_absent")) for row in lake.log(new)]
    assert rows == [("1", "x", "y", None), ("1", "w", None, ["b"]), ("2", "v", None, None)]
