"""Deleted rows that stay in lakehouse tables, marked: the result is that of the changes, however batches are cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from tests.support.soft_deletes import SoftDelta, SoftIceberg

from headrace import apply_changes
from headrace.errors import OptionError, SchemaError, SinkError
from headrace.testing.change_history import Batch, Model, from_message, table
from headrace.testing.histories import STEPS, Step, cut, history
from headrace.testing.table_machine import machine_on
from headrace.testing.table_target import FEW, TEXTS, A, B, K, T

LIVE, GONE = (1, "x", "y", False), (1, "x", "y", True)
C = {"id": "3", "a": "c", "b": "c"}


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.system)])
def target(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Any:
    return (SoftDelta if request.param == "delta" else SoftIceberg)(spark, tmp_path / "lake")


@pytest.fixture
def delta(spark: Any, tmp_path: Path) -> SoftDelta:
    return SoftDelta(spark, tmp_path / "lake")


@pytest.mark.system
def test_deleted_rows_stay_marked_until_they_are_created_again(target: Any) -> None:
    wide = table(id="int32", a="string", b="string", c="string")
    batches: list[tuple[Batch, list[Any]]] = [
        (
            Batch(T).add("r", T, "00000001/r/1", A, snapshot="true").add("r", T, "00000001/r/2", B, snapshot="last"),
            [LIVE, (2, "z", None, False)],
        ),
        # A delete that says the key only, and one that says other values than the target has.
        (
            Batch(T).add("d", T, 3, None, {"id": "1"}).add("d", T, 4, None, {**B, "a": "?"}),
            [GONE, (2, "z", None, True)],
        ),
        # Late changes bring nothing back, and a second delete changes nothing to be seen.
        (Batch(T).add("u", T, 2, {**A, "a": "late"}).add("d", T, 5, None, B), [GONE, (2, "z", None, True)]),
        # The same changes once more, and a delete that comes late.
        (
            Batch(T).add("d", T, 4, None, B).add("u", T, 2, {**A, "a": "late"}).add("d", T, 5, None, A),
            [GONE, (2, "z", None, True)],
        ),
        # Created again; changed and deleted; created and deleted; a row that nobody has seen.
        (
            Batch(T).add("c", T, 6, {"id": "1", "a": "new", "b": None}).add("c", T, 7, B)
            .add("u", T, 8, {"id": "2", "a": "w"}).add("d", T, 9, None, {"id": "2"})
            .add("c", T, 9, C).add("d", T, 10, None, C).add("d", T, 10, None, {"id": "4"}),
            [(1, "new", None, False), (2, "w", None, True), (3, "c", "c", True)],
        ),
        # A change of key marks the old one; the new one takes what the change does not carry, but not of a deleted one.
        (
            Batch(T).add("u", T, 11, {"id": "2", "b": "moved"}, {"id": "1"}),
            [(1, "new", None, True), (2, "new", "moved", False), (3, "c", "c", True)],
        ),
        # What was there before a truncate is marked with its last values, even if they came in the same batch.
        (
            Batch(T).add("u", T, 12, {"id": "2", "a": "last"}).add("c", T, 13, A).add("t", T, 14).add("c", T, 15, C),
            [(1, "x", "y", True), (2, "last", "moved", True), (3, "c", "c", False)],
        ),
        (
            Batch(wide).add("u", wide, 16, {**C, "c": "more"}).add("d", wide, 17, None, C)
            .add("c", wide, 18, {**A, "c": None}),
            [(1, "x", "y", None, False), (2, "last", "moved", None, True), (3, "c", "c", "more", True)],
        ),
    ]  # fmt: skip
    for number, (batch, content) in enumerate(batches):
        for _ in range(2):
            target.write(batch, number)
            assert target.content(T) == content
    now = target.sink().now(target.spark, wide)
    assert [tuple(row) for row in now.collect()] == [(1, "x", "y", None)]


def test_a_table_read_again_marks_the_rows_that_vanished_meanwhile(target: Any) -> None:
    first = Batch(T).add("r", T, "1//1", A, snapshot="true").add("r", T, "1//2", B, snapshot="last")
    target.write(first, 0)
    # One of them changed and vanished in the batch in which the read ends.
    again = Batch(T).add("c", T, "4//1", C).add("u", T, "4//2", {**B, "a": "w"})
    again.add("r", T, "5/r/1", A, snapshot="last_in_data_collection")
    for _ in range(2):
        target.write(again, 1)
        assert target.content(T) == [LIVE, (2, "w", None, True), (3, "c", "c", True)]
    target.write(Batch().structure(T, "9/r0:z/", "last_in_data_collection"), 2)
    assert target.content(T) == [GONE, (2, "w", None, True), (3, "c", "c", True)]


@pytest.mark.system
def test_rows_that_a_read_beside_the_stream_did_not_find_are_marked(target: Any) -> None:
    target.write(Batch(T).add("c", T, "1//1", A).add("c", T, "1//2", B), 0)
    target.write(Batch(T).add("r", T, "5/ri0:0/0", A, snapshot="incremental").add("c", T, "6//", C), 1)
    for _ in range(2):
        target.write(Batch().ended(T, "7/ri0:z/", since="5/ri0/"), 2)
        assert target.content(T) == [LIVE, (2, "z", None, True), (3, "c", "c", False)]


def test_a_change_that_lacks_columns_takes_none_of_a_deleted_row(target: Any) -> None:
    target.write(Batch(T).add("c", T, 1, A).add("d", T, 2, None, A), 0)
    lacking = Batch(T).add("u", T, 3, {"id": "1", "b": "w"})
    with pytest.raises(SchemaError, match="no row of its key"):
        target.write(lacking, 1)
    assert target.content(T) == [GONE]
    target.write(lacking, 1, missing_row="insert")
    assert target.content(T) == [(1, None, "w", False)]


@pytest.mark.system
def test_a_delete_shows_that_the_order_of_a_change_from_another_partition_is_unknown(delta: SoftDelta) -> None:
    def fed(op: str, partition: int, offset: int) -> Batch:
        images = (None, A) if op == "d" else (A, None)
        return from_message(Batch(T).add(op, T, f"{offset:020}/1/", *images), "a", partition)

    delta.write(fed("c", 0, 1), 0)
    delta.write(fed("d", 0, 2), 1)
    with pytest.raises(SchemaError, match="come from several Kafka part"):
        delta.write(fed("u", 1, 9), 2)
    assert delta.content(T) == [GONE]


@pytest.mark.system
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_late_change_does_not_get_into_a_row_by_way_of_a_change_that_lacks_columns(target: Any, mode: str) -> None:
    rows = [{**A, "id": str(id), "b": "new"} for id in (1, 2, 3, 4)]
    first = Batch(T)
    for row in rows:
        first.add("c", T, 5, row)
    target.write(first, 0, delete_mode=mode)
    batch = Batch(T)
    for row in rows:
        batch.add("u", T, 3, {**row, "b": "late"})
    batch.add("u", T, 7, {"id": "1", "a": "w"}).add("u", T, 7, {"id": "2", "a": "w"}).add("d", T, 8, None, {"id": "2"})
    batch.add("d", T, 7, None, {"id": "3"}).add("d", T, 4, None, {"id": "4"}).add("u", T, 7, {"id": "4", "a": "w"})
    for _ in range(2):
        target.write(batch, 1, delete_mode=mode)
        content = [(row["id"], row["a"], row["b"], row.get("_headrace_deleted", False)) for row in target.rows(T)]
        kept = [(2, "w", "new", True), (3, "x", "new", True)] if mode == "soft" else []
        assert sorted(content) == sorted([(1, "w", "new", False), (4, "w", "new", False), *kept])


@pytest.mark.system
@FEW
@given(steps=STEPS, sizes=st.lists(st.integers(1, 8), max_size=2), partial=st.booleans())
def test_any_history(target: Any, steps: list[Step], sizes: list[int], partial: bool) -> None:
    target.examples += 1
    schema = table(f"example_{target.examples}", **TEXTS)
    model = Model(schema, keeps_deleted=True)
    for number, batch in enumerate(cut(history(steps, schema, partial, bare_moves=True), schema, sizes)):
        target.write(batch, number, owner=schema.id.name)
        model.apply(batch.lines)
        assert target.content(schema) == model.content()


def test_any_course_of_events(target: Any, arm: Callable[[str], None]) -> None:
    few = settings(max_examples=2, stateful_step_count=12, parent=FEW)
    point = "sink.delta" if isinstance(target, SoftDelta) else "sink.iceberg"
    run_state_machine_as_test(machine_on(target, arm, point), settings=few)


@pytest.mark.soak
def test_many_courses_of_events(target: Any, arm: Callable[[str], None]) -> None:
    many = settings(max_examples=25, stateful_step_count=60, derandomize=False, print_blob=True, parent=FEW)
    point = "sink.delta" if isinstance(target, SoftDelta) else "sink.iceberg"
    run_state_machine_as_test(machine_on(target, arm, point), settings=many)


def test_a_table_that_is_there_is_marked_once_and_never_loses_its_marks(target: Any) -> None:
    target.write(Batch(T).add("c", T, 1, A).add("c", T, 2, B), 0, delete_mode="hard")
    delete = Batch(T).add("d", T, 3, None, B)
    preview = target.sink().preview(T, _batch(1), target.spark)
    assert preview is not None
    assert preview.changes == ("adds column '_headrace_deleted' (boolean)",)
    for _ in range(2):
        target.write(delete, 1)
        assert target.content(T) == [LIVE, (2, "z", None, True)]
    for options in ({"delete_mode": "hard"}, {"deleted_column": "gone"}):
        with pytest.raises(SinkError, match="deleted rows that are marked in its column '_headrace_deleted'"):
            target.write(Batch(T).add("c", T, 4, B), 2, **options)
    assert target.content(T) == [LIVE, (2, "z", None, True)]


def test_what_has_no_deleted_rows_to_keep_is_refused(delta: SoftDelta, tmp_path: Path) -> None:
    for stored_as in ("2", "append"):
        with pytest.raises(OptionError, match=f"no effect with stored_as_scd_type {stored_as}"):
            delta.sink(stored_as_scd_type=stored_as)
    with pytest.raises(OptionError, match="both name 'p'"):
        delta.sink(deleted_column="p", position_column="P")
    with pytest.raises(SchemaError, match=r"Table db\.dbo\.k has no key, so each update"):
        delta.write(Batch(T, K).add("c", T, 1, A).add("c", K, 1, A))
    assert delta.content(T) == []
    flat = delta.spark.createDataFrame([(1, 1)], "id int, n int")
    with pytest.raises(OptionError, match="Flat changes can't be applied with delete_mode soft"):
        apply_changes(flat, str(tmp_path / "flat"), ["id"], "n", delete_mode="soft")


def test_a_column_of_the_source_with_the_name_of_ours_is_refused(delta: SoftDelta) -> None:
    clash = table(id="int32", _headrace_deleted="boolean")
    with pytest.raises(SchemaError, match="Headrace's own in a mirror"):
        delta.write(Batch(clash).add("c", clash, 1, {"id": "1", "_headrace_deleted": "true"}))


def _batch(number: int) -> Any:
    from headrace.sinks.base import BatchId

    return BatchId("p", "checkpoint", number)
