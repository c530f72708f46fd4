"""What every sink does that keeps tables equal to their source.

A sink's test file subclasses `TableSinkContract` and gives two fixtures: `target`, and `spark`, a Spark session.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from headrace.changes import Column, LogicalType, TableSchema
from headrace.errors import SchemaError, SinkError
from headrace.sinks.base import BatchId
from headrace.testing.change_history import Batch, Model, from_message, schema_of, table
from headrace.testing.contract import Contract
from headrace.testing.faults import InjectedFault, arming
from headrace.testing.histories import STEPS, Step, cut, history
from headrace.testing.table_machine import machine_on
from headrace.testing.table_target import FEW, TEXTS, A, B, K, T, TableTarget
from headrace.testing.waiting import PATIENCE, until

if TYPE_CHECKING:
    pass


class TableSinkContract(Contract):
    """The suite of a sink that keeps tables.

    A subclass's file has the fixture `target`, a `TableTarget` whose tables no other test has.
    """

    fault_point: ClassVar[str] = ""
    """In front of `.before_commit` and `.after_commit`."""
    looked: ClassVar[str] = "before_commit"
    """The point where a writer has found that the batch is not there, and locks nothing."""
    never_fits: ClassVar[Sequence[tuple[dict[str, str], tuple[str, ...], str]]] = ()
    """More structures that the target refuses: columns, key, and what the error says."""

    @pytest.fixture
    def arm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Arms fault points (`headrace.testing.faults`)."""
        return arming(tmp_path, monkeypatch)

    def test_batches_bring_the_mirror_to_the_source_and_replays_change_nothing(self, target: TableTarget) -> None:
        batches: list[tuple[Batch, list[Any], list[Any]]] = [
            (
                Batch(T, K)
                .add("r", T, "00000001/r/1", A, snapshot="true")
                .add("r", T, "00000001/r/2", B, snapshot="last_in_data_collection")
                .add("r", K, "00000001/r/1", A, snapshot="true")
                .add("r", K, "00000001/r/2", A, snapshot="last"),
                [(1, "x", "y"), (2, "z", None)],
                [(1, "x", "y"), (1, "x", "y")],
            ),
            (
                Batch(T, K)
                .add("u", T, 10, {**A, "id": "3"}, A)
                .add("d", T, 11, None, B)
                .add("c", T, 12, {**B, "b": "again"})
                .add("u", K, 13, B, A),
                [(2, "z", "again"), (3, "x", "y")],
                [(1, "x", "y"), (2, "z", None)],
            ),
            (
                Batch(T, K).add("u", T, 20, {"id": "3", "b": None}).add("d", T, 21, None, B).add("d", K, 22, None, B),
                [(3, "x", None)],
                [(1, "x", "y")],
            ),
            (
                Batch(T, K).add("t", T, 30).add("c", T, 31, A).add("t", K, 32).add("c", K, 33, B),
                [(1, "x", "y")],
                [(2, "z", None)],
            ),
        ]
        for number, (batch, keyed, keyless) in enumerate(batches):
            for _ in range(2):
                target.write(batch, number)
                assert (target.content(T), target.content(K)) == (keyed, keyless)
        target.write(batches[0][0], 0)
        assert (target.content(T), target.content(K)) == batches[-1][1:]

    def test_a_batch_is_done_by_its_number_and_its_offsets(self, target: TableTarget) -> None:
        def write(batch: Batch, number: int, offsets: str, sink: str = "") -> list[tuple[Any, ...]]:
            target.sink().write(batch.rows(target.spark), BatchId("p", "checkpoint", number, offsets, sink))
            return target.content(T)

        first, second = Batch(T).add("c", T, 1, A), Batch(T).add("c", T, 2, B)
        a, b = (1, "x", "y"), (2, "z", None)
        # What an earlier release wrote has no offsets, and its number decides.
        assert write(first, 3, "") == [a]
        assert write(second, 3, "3a" * 8) == [a]
        assert write(first, 5, "5a" * 8) == write(first, 5, "5a" * 8) == write(second, 5, "") == [a]
        for number, offsets in ((5, "5b" * 8), (4, "4a" * 8)):
            with pytest.raises(SinkError, match=f"Batch {number} of pipeline 'p' differs from the one .* set back"):
                write(second, number, offsets)
        assert target.content(T) == [a]
        assert write(second, 6, "6a" * 8, "one") == [a, b]
        # A mark of another sink of the same pipeline is not a mark of this one.
        third = Batch(T).add("d", T, 3, None, A)
        assert write(third, 6, "6a" * 8, "one") == [a, b]
        assert write(third, 6, "6a" * 8, "two") == [b]

    def test_a_late_change_does_not_win_and_a_later_snapshot_row_does(self, target: TableTarget) -> None:
        target.write(Batch(T).add("u", T, 9, A), 0)
        target.write(Batch(T).add("r", T, 3, {**A, "a": "older"}, snapshot="incremental").add("d", T, 4, None, A), 1)
        assert target.content(T) == [(1, "x", "y")]
        target.write(Batch(T).add("r", T, 12, {**A, "a": "read"}, snapshot="true"), 2)
        assert target.content(T) == [(1, "read", "y")]

    def test_a_late_change_does_not_get_into_a_row_by_way_of_one_that_lacks_columns(self, target: TableTarget) -> None:
        target.write(Batch(T).add("u", T, 9, A).add("u", T, 9, B), 0)
        late = Batch(T).add("u", T, 3, {**A, "b": "late"}).add("u", T, 12, {"id": "1", "a": "new"})
        target.write(late.add("u", T, 12, {"id": "2", "b": "new"}), 1)
        assert target.content(T) == [(1, "new", "y"), (2, "z", "new")]

    def test_a_table_read_again_loses_the_rows_that_vanished_meanwhile(self, target: TableTarget) -> None:
        gone, other = {**A, "id": "7"}, {**A, "id": "8"}
        first = Batch(T, K).add("r", T, "1//1", A, snapshot="true").add("r", T, "1//2", gone, snapshot="last")
        first.add("r", K, "1//3", A, snapshot="last").add("r", K, "1//4", A, snapshot="last")
        target.write(first, 0)
        target.write(Batch(T).add("c", T, "3//1", other), 1)
        begun = Batch(T).add("r", T, "5/r/1", {**A, "a": "w"}, snapshot="first")
        target.write(begun, 2)
        assert target.content(T) == [(1, "w", "y"), (7, "x", "y"), (8, "x", "y")]
        ended = Batch(T, K).add("r", T, "5/r/2", B, snapshot="last_in_data_collection")
        ended.add("c", T, "6//1", {**A, "id": "9"}).add("r", K, "5/r/1", B, snapshot="last")
        for _ in range(2):
            target.write(ended, 3)
            assert target.content(T) == [(1, "w", "y"), (2, "z", None), (9, "x", "y")]
            assert target.content(K) == [(2, "z", None)]

    def test_a_table_that_is_empty_when_it_is_read_again_loses_all_its_rows(self, target: TableTarget) -> None:
        new = table("new")
        first = Batch(T, K).add("r", T, "1/r/1", A, snapshot="true").add("r", K, "1/r/2", A, snapshot="true")
        # The last chunk had rows when it was planned, and none when it was read.
        first.structure(T, "1/r0:z/", "last_in_data_collection").structure(K, "1/r1:z/", "last")
        target.write(first, 0)
        assert (target.content(T), target.content(K)) == ([(1, "x", "y")], [(1, "x", "y")])
        target.write(Batch(T).add("c", T, "3//1", B), 1)
        empty = Batch().structure(T, "5/r0:z/", "last_in_data_collection").structure(K, "5/r1:z/", "last")
        empty.structure(new, "5/r2:z/", "last").add("c", T, "6//1", {**A, "id": "9"})
        for _ in range(2):
            target.write(empty, 2)
            assert (target.content(T), target.content(K), target.content(new)) == ([(9, "x", "y")], [], [])
        again = Batch(T, K, new)
        for schema in (T, K, new):
            again.add("r", schema, "8/r/1", {**A, "id": "9"}, snapshot="last_in_data_collection")
        target.write(again, 3)
        assert [target.content(schema) for schema in (T, K, new)] == [[(9, "x", "y")]] * 3

    def test_rows_that_a_read_beside_the_stream_did_not_find_go(self, target: TableTarget) -> None:
        gone, moved = {**A, "id": "7"}, {**A, "id": "8"}
        first = Batch(T).add("r", T, "1/r/1", A, snapshot="true").add("r", T, "1/r/2", gone, snapshot="true")
        first.add("r", T, "1/r/3", B, snapshot="true").add("r", T, "1/r/4", moved, snapshot="last")
        target.write(first, 0)
        target.write(Batch(T).add("r", T, "5/ri0:0/0", A, snapshot="incremental"), 1)
        # Chunks alone take no row away.
        target.write(Batch(T).add("u", T, "6/1/", {"id": "8", "a": "moved"}), 2)
        kept = [(1, "x", "y"), (2, "z", None), (7, "x", "y"), (8, "moved", "y")]
        assert target.content(T) == kept
        ended = Batch().ended(T, "9/ri0:z/", since="5/ri0/").add("c", T, "9/1/", {**A, "id": "9"})
        # Of rows with the old key of one that went, the newest is there.
        ended.add("c", T, "9/2/", {**B, "a": "back"})
        for _ in range(2):
            target.write(ended, 3)
            assert target.content(T) == [(1, "x", "y"), (2, "back", None), (8, "moved", "y"), (9, "x", "y")]
        target.write(Batch().ended(T, "96/ri1:z/", since="95/ri1/"), 4)
        assert target.content(T) == []

    def test_a_row_stays_that_took_over_a_key_before_its_transaction_was_cut(self, target: TableTarget) -> None:
        every = Batch(T).add("c", T, f"{1:020}/1/", A).add("c", T, f"{2:020}/1/", B)
        every.add("u", T, f"{3:020}/1/", {**A, "id": "2"}, A).add("u", T, f"{4:020}/1/", {**B, "id": "3"}, B)
        moved = [Batch(T) for _ in range(3)]
        for number, line in enumerate(every.lines[1:]):
            batch = moved[max(0, number - 1)]
            batch.lines.append(line)
            from_message(batch, "t", 0, {"connector": "goldengate", "csn": str(min(number, 2))})
        for number in (0, 1, 1, 2, 2):
            target.write(moved[number], number)
        stays = [(2, "x", "y")] if target.keeps_tables else []
        assert target.content(T) == [*stays, (3, "z", None)]

    def test_a_truncate_whose_message_tells_no_key_empties_a_table_that_has_one(self, target: TableTarget) -> None:
        untold = replace(T, key=())
        # Before any row nothing is there to empty, and nothing is made.
        target.write(Batch(untold).add("t", untold, 1), 0)
        target.write(Batch(T).add("c", T, 2, A).add("c", T, 3, B), 1)
        for _ in range(2):
            target.write(Batch(untold).add("t", untold, 4), 2)
            assert target.content(T) == []
        target.write(Batch(T).add("c", T, 5, B), 3)
        assert target.content(T) == [(2, "z", None)]

    def test_rows_whose_key_holds_null_are_kept_apart_changed_and_deleted(self, target: TableTarget) -> None:
        not_nullable = table("of_null", key=("id", "b"), id="int32", a="string", b="string")
        schema = replace(not_nullable, columns=tuple(replace(column, nullable=True) for column in not_nullable.columns))
        keys = [(None, None), (None, "y"), ("1", None), ("1", "y")]
        rows = [{"id": id, "a": "x", "b": b} for id, b in keys]
        first = Batch(schema)
        for number, row in enumerate(rows):
            first.add("r", schema, f"1/r/{number}", row, snapshot="last" if row is rows[-1] else "true")
        target.write(first, 0)
        second = Batch(schema).add("u", schema, "2//", {**rows[0], "a": "new"}, rows[0])
        second.add("d", schema, "3//", None, rows[1])
        second.add("u", schema, "4//", {**rows[2], "id": None, "b": "z"}, rows[2])
        for _ in range(2):
            target.write(second, 1)
            assert target.content(schema) == sorted([(None, "new", None), (None, "x", "z"), (1, "x", "y")], key=repr)

    @FEW
    @given(steps=STEPS, sizes=st.lists(st.integers(1, 8), max_size=2), partial=st.booleans())
    def test_any_history_of_a_table_with_a_key(
        self, target: TableTarget, steps: list[Step], sizes: list[int], partial: bool
    ) -> None:
        schema = _of_its_own(target, key=("id",))
        model = Model(schema)
        for number, batch in enumerate(cut(history(steps, schema, partial, bare_moves=True), schema, sizes)):
            target.write(batch, number, owner=schema.id.name)
            model.apply(batch.lines)
            assert target.content(schema) == model.content()

    @FEW
    @given(steps=STEPS, sizes=st.lists(st.integers(1, 8), max_size=2))
    def test_any_history_of_a_table_without_a_key(
        self, target: TableTarget, steps: list[Step], sizes: list[int]
    ) -> None:
        schema = _of_its_own(target, key=())
        model = Model(schema)
        # Keys are not told, so that equal rows come from different ones.
        changes = history(steps, schema, False)
        for change in changes:
            for line in change.lines:
                line.update({name: {**line[name], "id": None} for name in ("before", "after") if line.get(name)})
        for number, batch in enumerate(cut(changes, schema, sizes)):
            target.write(batch, number, owner=schema.id.name)
            model.apply(batch.lines)
            assert target.content(schema) == model.content()

    def test_a_new_column_is_added(self, target: TableTarget) -> None:
        target.write(Batch(T).add("c", T, 1, A).add("c", T, 2, B), 0)
        newer = replace(T, columns=(*T.columns, Column("c d", 4, LogicalType("decimal", 10, 2), comment="it's new")))
        batch = Batch(T).structure(newer, 10).add("u", T, 9, {**A, "a": "old"})
        batch.add("u", newer, 11, {**B, "c d": "1.50"})
        for _ in range(2):
            target.write(batch, 1)
            assert target.content(newer) == [(1, "old", "y", None), (2, "z", None, Decimal("1.50"))]

    def test_rows_from_before_get_the_value_of_a_column_that_was_added(
        self, target: TableTarget, arm: Callable[[str], None]
    ) -> None:
        texts = [
            ("decimal(38,9)", "12345678901234567890123456789.120000000", Decimal("12345678901234567890123456789.12")),
            ("string", "it's\n$x \u00e9", "it's\n$x \u00e9"),
            ("date", "2024-02-29", dt.date(2024, 2, 29)),
            ("boolean", "true", True),
            ("string", None, None),
        ]
        kinds = {f"n{number}": kind for number, (kind, _, _) in enumerate(texts)}
        values = {f"n{number}": text for number, (_, text, _) in enumerate(texts)}
        old, none = tuple(value for *_, value in texts), (None,) * len(texts)
        other = dict.fromkeys(kinds)
        new = schema_of(T.id, {**TEXTS, "id": "int32", **kinds}, ("id",))
        k_new = table("k", key=(), id="int32", a="string", b="string", n="decimal(9,2)")
        rows = [{**A, "id": str(number)} for number in range(1, 6)]
        first = Batch(T, K)
        for row in rows:
            first.add("c", T, f"1/1/{row['id']}", row)
        target.write(first.add("c", K, "1/2/1", A).add("c", K, "1/2/2", A).add("c", K, "1/2/3", B), 0)
        batch = Batch(T, K).structure(new, "3/1/").structure(k_new, "3/1/")
        # Before the statement a row is changed in part, as a whole, deleted, and moved; another one comes.
        batch.add("u", T, "2/1/", {"id": "1", "a": "w"}).add("u", T, "2/2/", {**rows[1], "a": "w"})
        batch.add("d", T, "2/3/", None, rows[2]).add("u", T, "2/4/", {**rows[3], "id": "40"}, rows[3])
        batch.add("c", T, "2/5/", {**B, "id": "6"}).add("d", K, "2/6/", None, A).add("c", K, "2/7/", B)
        # After it rows have values of their own, or lack the column because it did not change.
        batch.add("c", new, "4/1/", {**B, "id": "7", **other}).add("u", new, "4/2/", {"id": "1", "b": "later"})
        batch.add("u", new, "4/3/", {**rows[1], **other, "n1": "mine"}).add(
            "d", k_new, "4/4/", None, {**A, "n": "1.50"}
        )
        batch.added(new, "4/rj0/", "10", **values).added(k_new, "4/rj1/", "10", n="1.50")
        for point in (
            "sink.lake.old_values=raise;sink.jdbc.old_values=raise",
            f"{self.fault_point}.before_commit=raise",
        ):
            arm(point)
            with pytest.raises(InjectedFault):
                target.write(batch, 1)
        arm("")
        expected = [
            (1, "w", "later", *old),
            (2, "x", "y", None, "mine", *none[2:]),
            (5, "x", "y", *old),
            (6, "z", None, *old),
            (7, "z", None, *none),
            (40, "x", "y", *old),
        ]
        for _ in range(2):
            target.write(batch, 1)
            assert target.content(new) == sorted(expected, key=repr)
            assert target.content(k_new) == [(2, "z", None, Decimal("1.50"))] * 2
        # The stream comes to the statement later than the catalog: what an earlier batch told is not told again.
        late = Batch(T).add("c", T, "5/1/", {**B, "id": "8"}).structure(new, "5/0/").added(new, "5/rj0/", "", **values)
        target.write(late, 2)
        assert target.content(new) == sorted([*expected, (8, "z", None, *old)], key=repr)

    def test_structures_are_followed_as_far_as_is_said(self, target: TableTarget) -> None:
        wide = table(id="int32", a="string", n="int32")
        target.write(Batch(wide).add("c", wide, 1, {"id": "1", "a": "x", "n": "7"}), 0)
        grown = table(id="int32", a="string", n="int64")
        target.write(Batch(grown).add("c", grown, 2, {"id": "2", "a": "y", "n": "5000000000"}), 1)
        assert target.content(grown) == [(1, "x", 7), (2, "y", 5000000000)]
        less = table(id="int32", n="int64")
        batch = Batch(less).add("u", less, 3, {"id": "1", "n": "8"}).add("c", less, 4, {"id": "3", "n": "9"})
        target.write(batch, 2, schema_change_behavior="lenient")
        assert target.content(grown) == [(1, "x", 8), (2, "y", 5000000000), (3, None, 9)]
        more = table(id="int32", n="int64", z="string")
        batch = Batch(more).add("c", more, 5, {"id": "4", "n": "1", "z": "z"})
        target.write(batch, 3, schema_change_behavior="ignore")
        assert (4, None, 1) in target.content(grown)
        target.write(Batch(less).add("d", less, 6, None, {"id": "4"}), 4, schema_change_behavior="evolve")
        assert target.content(less) == [(1, 8), (2, 5000000000), (3, 9)]
        with pytest.raises(SchemaError, match="has a column 'z' now"):
            target.write(batch, 5, schema_change_behavior="exception")

    def test_a_renamed_column_keeps_its_values(self, target: TableTarget, arm: Callable[[str], None]) -> None:
        target.write(Batch(T).add("c", T, 1, A).add("c", T, 2, B), 0)
        named = table(key=("nr",), nr="int32", b="string", title="string", more="string")
        text = "ALTER TABLE t CHANGE a title varchar(9), RENAME COLUMN id TO nr, ADD COLUMN more text"
        batch = Batch(T).add("u", T, 5, {"id": "1", "a": "old"}).add("d", T, 5, None, {"id": "3"})
        batch.statement(T, 6, text).structure(named, 7).add("u", named, 7, {"nr": "2", "more": "m"})
        with pytest.raises(SchemaError, match=r"is named '(title|nr)' now"):
            target.write(batch, 1)
        arm("sink.lake.renamed=raise;sink.jdbc.renamed=raise")
        with pytest.raises(InjectedFault):
            target.write(batch, 1, schema_change_behavior="evolve")
        arm("")
        for _ in range(2):
            target.write(batch, 1, schema_change_behavior="evolve")
            assert target.content(named) == [(1, "old", "y", None), (2, "z", None, "m")]
        # The statement comes alone, and what follows it in the next batch.
        alone = Batch().statement(named, 8, "ALTER TABLE t RENAME COLUMN b TO `the b`, RENAME COLUMN nr TO id")
        last = schema_of(T.id, {"id": "int32", "the b": "string", "title": "string", "more": "string"}, ("id",))
        for behavior in ("lenient", "evolve", "evolve"):
            target.write(alone, 2, schema_change_behavior=behavior)
        batch = Batch(last).add("u", last, 9, {"id": "1", "the b": "w"})
        for _ in range(2):
            target.write(batch, 3)
            assert target.content(last) == [(1, "old", "w", None), (2, "z", None, "m")]

    def test_the_user_can_say_what_was_renamed(self, target: TableTarget) -> None:
        target.write(Batch(T).add("c", T, 1, A), 0)
        named = table(id="int32", title="string", b="string")
        options: dict[str, Any] = {"schema_change_behavior": "evolve", "renamed_columns": ["t.a=title", "other.b=c"]}
        batch = Batch(T, named).add("u", T, 2, {"id": "1", "a": "w"}).add("u", named, 3, {"id": "1", "b": None})
        batch.lines[1]["position"] = "2"
        with pytest.raises(SchemaError, match="can't know whether that is a new name"):
            target.write(batch, 1, schema_change_behavior="evolve")
        preview = target.sink(**options).preview(named, BatchId("p", "checkpoint", 1), target.spark)
        assert preview is not None
        assert preview.changes == ("renames column 'a' to 'title'",)
        for number in (1, 2):
            target.write(batch, number, **options)
            assert target.content(named) == [(1, "w", None)]

    def test_the_user_can_say_what_was_dropped(self, target: TableTarget) -> None:
        target.write(Batch(T).add("c", T, 1, A), 0)
        now = table(id="int32", title="string", b="string")
        options: dict[str, Any] = {"schema_change_behavior": "evolve", "dropped_columns": ["t.a", "other.b"]}
        batch = Batch(now).add("u", now, 3, {"id": "1", "title": "w", "b": None})
        with pytest.raises(SchemaError, match="can't know whether that is a new name") as error:
            target.write(batch, 1, schema_change_behavior="evolve")
        assert "'dropped_columns'" in error.value.remedy
        for number in (1, 2):
            target.write(batch, number, **options)
            # The new column is the target's last one.
            assert target.content(now) == [(1, None, "w")]

    def test_a_structure_that_does_not_fit_is_refused_before_anything(self, target: TableTarget) -> None:
        target.write(Batch(T).add("c", T, 1, A), 0)
        other = table("other")
        structures = [
            ({"id": "int32", "a": "string"}, ("id",), "has no column 'b' any more"),
            ({"id": "int32", "a": "int32", "b": "string"}, ("id",), r"Column 'a' of table db\.dbo\.t is int"),
            ({"id": "int32", "a": "string", "b": "string"}, ("a",), r"The key of table db\.dbo\.t is"),
            *self.never_fits,
        ]
        before = target.version_of(T)
        for columns, key, sentence in structures:
            changed = table(key=key, **columns)
            batch = Batch(changed, other).add("c", changed, 2, dict.fromkeys(columns, "1")).add("c", other, 3, A)
            with pytest.raises(SchemaError, match=sentence) as caught:
                target.write(batch, 1)
            # So that a pipeline can go on without that table.
            assert caught.value.table == T.id
            assert (target.content(T), target.content(other)) == ([(1, "x", "y")], [])
            assert (target.version_of(T), target.version_of(other)) == (before, None)

    def test_a_preview_says_what_a_write_then_does(self, target: TableTarget) -> None:
        def preview(schema: TableSchema, owner: str = "p", **options: Any) -> tuple[bool | None, tuple[str, ...]]:
            result = target.sink(**options).preview(schema, BatchId(owner, "checkpoint", 1), target.spark)
            assert result is not None
            assert schema.id.name in result.place
            return result.exists, result.changes

        assert preview(T) == (False, ())
        assert target.content(T) == []
        target.write(Batch(T).add("c", T, 1, A))
        assert preview(T) == (True, ())
        wider = replace(T, columns=(*T.columns, Column("extra", 4, LogicalType("int32"))))
        exists, (change,) = preview(wider)
        assert (exists, change.startswith("adds column 'extra'")) == (True, True)
        with pytest.raises(SchemaError, match="extra"):
            preview(wider, schema_change_behavior="exception")
        with pytest.raises(SinkError, match="belongs"):
            preview(T, owner="q")
        # Nothing was done.
        assert preview(wider) == (True, (change,))
        assert target.content(T) == [(1, "x", "y")]

    def test_a_target_of_another_owner_is_refused_unless_taken_over(self, target: TableTarget) -> None:
        target.write(Batch(T).add("c", T, 5, A), 7)
        again = Batch(T).add("u", T, 6, {**A, "a": "mine"})
        with pytest.raises(SinkError, match="belongs to the pipeline and checkpoint 'p/checkpoint', not to 'q/"):
            target.write(again, 0, owner="q")
        target.write(again, 0, owner="q", takeover="true")
        assert target.content(T) == [(1, "mine", "y")]
        with pytest.raises(SinkError, match="belongs to") as caught:
            target.write(Batch(T).add("u", T, 7, A), 8)
        # Another run may have taken over all of them.
        assert caught.value.table is None

    def test_a_partial_update_without_its_row_stops_and_leaves_the_table(self, target: TableTarget) -> None:
        target.write(Batch(T).add("c", T, 1, A), 0)
        lost = Batch(T).add("u", T, 2, {**A, "a": "w"}).add("u", T, 3, {"id": "77", "a": "q"})
        with pytest.raises(SchemaError, match="no row of its key") as caught:
            target.write(lost, 1)
        assert caught.value.table == T.id
        assert target.content(T) == [(1, "x", "y")]
        target.write(lost, 1, missing_row="insert")
        assert target.content(T) == [(1, "w", "y"), (77, "q", None)]

    def test_a_changed_key_keeps_the_values_that_its_change_does_not_carry(self, target: TableTarget) -> None:
        target.write(Batch(T).add("c", T, 1, A).add("c", T, 2, B), 0)
        bare = ({"id": "3", "a": "w"}, {"id": "1"})
        target.write(Batch(T).add("u", T, 10, *bare), 1)
        assert target.content(T) == [(2, "z", None), (3, "w", "y")]
        # Twice in a batch, to a key that was another row's, and after a change of its own.
        batch = Batch(T).add("u", T, 20, {"id": "2", "b": "new"}).add("u", T, 21, {"id": "9"}, {"id": "2"})
        batch.add("u", T, 22, {"id": "2"}, {"id": "3"}).add("u", T, 23, {"id": "3"}, {"id": "9"})
        target.write(batch, 2)
        assert target.content(T) == [(2, "w", "y"), (3, "z", "new")]
        # Of a row that nobody knows nothing goes over, and the user says what then becomes of it.
        unknown = Batch(T).add("u", T, 30, {"id": "8", "a": "q"}, {"id": "7"})
        with pytest.raises(SchemaError, match=r"table db\.dbo\.t does not carry all columns, .* no row of its key"):
            target.write(unknown, 3)
        assert target.content(T) == [(2, "w", "y"), (3, "z", "new")]

    def test_changes_of_one_row_from_two_partitions_stop_unless_their_order_is_given(self, target: TableTarget) -> None:
        def fed(*changes: tuple[str, int, int, dict[str, Any]]) -> Batch:
            batch = Batch(T)
            for op, partition, offset, row in changes:
                batch.add(op, T, f"{offset:020}/1/", None if op == "d" else row, row if op == "d" else None)
                from_message(batch, "a", partition, {"n": row["a"]})
            return batch

        # A mirror of an older release, whose positions did not say their sequence, goes on.
        target.write(Batch(T).add("c", T, f"{5:020}/1/", A).add("c", T, f"{6:020}/1/", B), 0)
        target.write(fed(("u", 0, 7, {**A, "a": "1"}), ("u", 1, 7, {**B, "a": "1"})), 1)
        content = [(1, "1", "y"), (2, "1", None)]
        assert target.content(T) == content
        stopping = [
            # In one batch, and from one batch to the next; whichever offset is larger.
            fed(("u", 0, 8, {**A, "a": "2"}), ("u", 1, 9, {**A, "a": "3"})),
            fed(("u", 1, 9, {**A, "a": "2"})),
            fed(("u", 1, 3, {**A, "a": "2"})),
            fed(("d", 1, 9, A)),
            fed(("u", 1, 9, {"id": "1", "a": "2"})),
            from_message(fed().add("t", T, f"{9:020}/1/"), "a", 0),
        ]
        for batch in stopping:
            with pytest.raises(SchemaError, match=r"of one row of table db\.dbo\.t come from several Kafka part"):
                target.write(batch, 2)
            assert target.content(T) == content
        by = {"sequence_by": "cast(source['n'] as bigint)"}
        target.write(fed(("u", 1, 1, {**A, "a": "30"}), ("u", 0, 9, {**A, "a": "4"})), 2, **by)
        target.write(fed(("u", 1, 99, {**A, "a": "29"}), ("u", 1, 2, {"id": "2", "a": "8"})), 3, **by)
        assert target.content(T) == [(1, "30", "y"), (2, "8", None)]
        with pytest.raises(SchemaError, match="sequence_by"):
            target.write(fed(("u", 0, 99, {**A, "a": "30"})), 4, **by)

    def test_a_value_that_does_not_fit_stops_without_being_shown(self, target: TableTarget) -> None:
        with pytest.raises(SchemaError, match="does not fit its column") as caught:
            target.write(Batch(T).add("c", T, 1, {**A, "id": "secret7"}), 0)
        assert "secret7" not in str(caught.value)
        assert caught.value.table == T.id
        assert target.content(T) == []

    def test_days_before_christ_are_days_of_their_own_or_stop(self, target: TableTarget) -> None:
        days = table("days", ("d",), d="date", at="timestamp(6)")
        early, late = {"d": "0044-03-15 BC", "at": "0044-03-15 10:00:00.5 BC"}, {"d": "0044-03-15", "at": None}
        batch = Batch(days).add("c", days, 1, early).add("c", days, 2, late).add("u", days, 3, late)
        if not target.has_years_before_christ:
            with pytest.raises(SchemaError, match=r"'d' of table db\.dbo\.days has the value 0044-03-15 BC, for which"):
                target.write(batch, 0)
            return
        target.write(batch, 0)
        target.write(Batch(days).add("u", days, 4, early).add("d", days, 5, None, late), 1)
        kept = target.sink().now(target.spark, days)
        assert kept is not None
        # As texts, because Python has no such years.
        texts = kept.selectExpr("cast(d as string)", "cast(at as string)").collect()
        assert [tuple(row) for row in texts] == [("-0043-03-15", "-0043-03-15 10:00:00.5")]

    def test_values_that_no_column_has_a_place_for_stop_or_are_null_or_texts(self, target: TableTarget) -> None:
        odd, days = table("odd", id="int32", d="date"), table("days", ("d",), d="date", a="string")
        endless = Batch(odd).add("c", odd, 1, {"id": "7", "d": "infinity"})
        zeros = Batch(days)
        for at, day in enumerate(("0000-00-00", "2024-00-00", "2024-02-29"), 1):
            zeros.add("c", days, at, {"d": day, "a": str(at)})
        sentence = r"Column 'd' of table db\.dbo\.odd has the value infinity in the row id=7, .* 'unrepresentable'"
        with pytest.raises(SchemaError, match=sentence) as refused:
            target.write(endless, 0)
        # By this a pipeline parks the table, and the others go on.
        assert refused.value.table == odd.id
        assert target.content(odd) == []
        lenient = target.sink(unrepresentable="null")
        lenient.write(endless.rows(target.spark), BatchId("p", "checkpoint", 0))
        assert target.content(odd) == [(7, None)]
        assert lenient.nulled() == {odd.id: {"d": 1}}
        # Three rows would be one.
        with pytest.raises(SchemaError, match=r"'d' of table db\.dbo\.days has the value .*-00, .* stand in a key"):
            target.write(zeros, 0, unrepresentable="null")
        assert target.content(days) == []
        texts = table("texts", ("d",), d="date", a="string")
        zeros = Batch(texts)
        for at, day in enumerate(("0000-00-00", "2024-00-00", "2024-02-29"), 1):
            zeros.add("c", texts, at, {"d": day, "a": str(at)})
        target.write(zeros.add("d", texts, 4, None, {"d": "2024-00-00"}), 0, unrepresentable="text")
        assert target.content(texts) == [("0000-00-00", "1"), ("2024-02-29", "3")]

    @pytest.mark.parametrize("moment", ["before_commit=raise@2", "after_commit=raise@1"])
    def test_after_one_table_failed_a_retry_gives_every_table_the_batch_once(
        self, target: TableTarget, arm: Callable[[str], None], moment: str
    ) -> None:
        target.write(Batch(T, K).add("r", T, 1, A, snapshot="true").add("c", K, 2, A), 0)
        batch = Batch(T, K).add("u", T, 3, {**A, "a": "w"}).add("u", K, 4, A, A).add("c", K, 5, A)
        arm(f"{self.fault_point}.{moment}")
        with pytest.raises(InjectedFault):
            target.write(batch, 1)
        for _ in range(2):
            target.write(batch, 1)
            assert (target.content(T), target.content(K)) == ([(1, "w", "y")], [(1, "x", "y")] * 2)

    def test_of_two_writers_of_one_batch_one_lands(
        self, target: TableTarget, arm: Callable[[str], None], tmp_path: Path
    ) -> None:
        # A table without a key shows a batch that landed twice.
        target.write(Batch(K).add("c", K, 1, A), 0)
        gate = tmp_path / "gate"
        arm(f"{self.fault_point}.{self.looked}=hold:{gate}")
        batch = Batch(K).add("c", K, 2, A)
        with ThreadPoolExecutor(1) as pool:
            paused = pool.submit(target.write, batch, 1)
            held = gate.with_name("gate.reached")
            until(lambda: held.exists() or paused.done(), "the first writer is held, or has written")
            assert held.exists()
            # Its successor, which takes it for dead.
            target.write(batch, 1)
            gate.touch()
            paused.result(PATIENCE)
        assert target.content(K) == [(1, "x", "y")] * 2

    def test_any_course_of_events(self, target: TableTarget, arm: Callable[[str], None]) -> None:
        # Hypothesis's first course is the simplest one; the next ones are of any steps.
        few = settings(max_examples=3, stateful_step_count=12, parent=FEW)
        run_state_machine_as_test(machine_on(target, arm, self.fault_point), settings=few)

    @pytest.mark.soak
    def test_many_courses_of_events(self, target: TableTarget, arm: Callable[[str], None]) -> None:
        many = settings(max_examples=25, stateful_step_count=60, derandomize=False, print_blob=True, parent=FEW)
        run_state_machine_as_test(machine_on(target, arm, self.fault_point), settings=many)


def _of_its_own(target: TableTarget, key: tuple[str, ...]) -> TableSchema:
    target.examples += 1
    return table(f"example_{target.examples}", key=key, **TEXTS)
