"""What capture does on every database server, be it from change tables or from its log."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace.errors import CaptureError, DataLossError, PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.health import CaptureState
from headrace.sources.offset import Offset
from headrace.testing.capture_beside import BesideTheStreamContract, T
from headrace.testing.captured_database import CapturedDatabase, data, image, replay
from headrace.testing.sources import NOW

KEYS = [
    ("k decimal(20,4) not null primary key", ["10.5", "9", "-3.25", "100"]),
    ("k date not null primary key", ["2024-02-29", "1999-12-31", "2024-03-01"]),
    ("k varbinary(4) not null primary key", [bytes([n, 255 - n]) for n in range(5)]),
    ("k varchar(10) not null primary key", ["b", "A", "c", "B2", "ä", "a1"]),
    ("k bigint not null primary key", [2**40, -5, 0, 7]),
    ("k real not null primary key", [1.1, -2.5, 3.25, 1e10]),
]


class CaptureContract(BesideTheStreamContract):
    """The suite of a source that captures a database: snapshots, the stream, signals, and what is lost.

    It speaks a small SQL, which the subclass's `CapturedDatabase` puts into the words of its server.
    """

    lost: ClassVar[str] = ""
    """What a `DataLossError` of this source says: a regular expression."""

    @abstractmethod
    def captured(self, folder: Path) -> CapturedDatabase:
        """A new database without tables.

        Args:
            folder: an empty folder of the test's own.
        """

    @pytest.fixture
    def database(self, tmp_path: Path) -> Iterator[CapturedDatabase]:
        """The database of one test."""
        captured = self.captured(tmp_path / "server")
        try:
            yield captured
        finally:
            captured.close()

    @pytest.mark.parametrize("chunk", [1, 3, 100])
    def test_a_snapshot_in_chunks_reads_every_row_once(self, database: CapturedDatabase, chunk: int) -> None:
        rows = [(n % 3, f"k{n}") for n in range(7)]
        database.create("t", "a int not null, b varchar(5) not null, primary key (b, a)", rows)
        read_rows = database.run(snapshot_chunk_rows=chunk, snapshot_chunks_per_batch=2).all()
        assert Counter(op for op, _, _ in data(read_rows)) == {"r": 7}
        assert sorted(row["b"] for _, _, row in data(read_rows)) == [f"k{n}" for n in range(7)]
        marks = [row["snapshot"] for row in read_rows if row["op"] == "r"]
        assert (marks[0], marks[-1]) == ("first", "last")

    def test_a_table_that_is_empty_when_it_is_read_says_that_its_snapshot_is_complete(
        self, database: CapturedDatabase
    ) -> None:
        database.create("e", T)
        database.create("t", T, [(1, "one")])
        run = database.run(tables=f"{database.schema}.*")
        end = run.source.advance(run.offset, Limit(), NOW)
        for _ in range(2):
            rows = run.rows(run.offset, end)
            ends = [row for row in rows if (row["snapshot"] or "").startswith("last") and row["op"] == "schema"]
            assert [(row["table"]["name"].lower(), row["snapshot"]) for row in ends] == [
                ("e", "last_in_data_collection")
            ]
            assert ends[0]["position"].partition("/")[0] == end.commit
            assert ends[0]["position"] > max(row["position"] for row in rows if row["table"] == ends[0]["table"])[:-1]
        # Once per snapshot, not with what follows.
        run.offset = end
        database.insert("e", 1, "one")
        database.capture()
        assert [row["snapshot"] for row in run.restarted().all()] == [None] * 2

    @pytest.mark.parametrize(("columns", "keys"), KEYS, ids=[columns.split()[1] for columns, _ in KEYS])
    def test_chunks_follow_the_servers_own_order_of_keys(
        self, database: CapturedDatabase, columns: str, keys: list[Any]
    ) -> None:
        database.create("t", columns, [(key,) for key in keys])
        changes = data(database.run(snapshot_chunk_rows=1, snapshot_chunks_per_batch=2).all())
        assert len({str(row["k"]) for _, _, row in changes}) == len(changes) == len(keys)

    def test_changes_come_in_commit_order_with_both_images(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(1, "one")])
        run = database.run(tables=f"{database.schema}.*")
        run.all()
        database.insert("t", 2, "two")
        database.update("t", "v = 'uno'", "id = 1")
        database.delete("t", "id = 2")
        database.capture()
        rows = run.all()
        assert data(rows) == [
            ("c", "t", {"id": "2", "v": "two"}),
            ("u", "t", {"id": "1", "v": "uno"}),
            ("d", "t", {"id": "2", "v": "two"}),
        ]
        [update] = [row for row in rows if row["op"] == "u"]
        assert image(update, "before") == {"id": "1", "v": "one"}
        assert all(row["event_time"] is not None for row in rows if row["op"] in "cud")
        assert {dict(row["source"])["connector"] for row in rows} == {database.source}

    def test_changes_during_the_snapshot_win_over_what_was_read(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(n, "old") for n in range(6)])
        run = database.run(snapshot_chunk_rows=2, snapshot_chunks_per_batch=1)
        rows = run.batch()
        database.update("t", "v = 'new'", "id IN (1, 5)")
        database.delete("t", "id = 4")
        database.insert("t", 9, "late")
        database.capture()
        rows += run.all()
        assert {key: row["v"] for (_, key), row in replay(rows).items()} == {
            '["0"]': "old", '["1"]': "new", '["2"]': "old", '["3"]': "old", '["5"]': "new", '["9"]': "late",
        }  # fmt: skip

    def test_a_snapshot_that_was_stopped_goes_on_where_it_was(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(n, "v") for n in range(6)])
        run = database.run(snapshot_chunk_rows=1, snapshot_chunks_per_batch=2)
        first = data(run.batch())
        rest = data(run.restarted().all())
        assert [row["id"] for _, _, row in first + rest] == [str(n) for n in range(6)]

    def test_a_batch_is_a_whole_number_of_commits(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        database.create("u", T)
        run = database.run(max_commits_per_trigger=2)
        run.all()
        for commit in range(5):
            with database.transaction() as cursor:
                for table in ("t", "u"):
                    for n in range(3):
                        sql = f"INSERT INTO {database.schema}.{table} VALUES (?, ?)"
                        cursor.execute(sql, (commit * 10 + n, f"c{commit}"))
        database.capture()
        batches = []
        while rows := run.batch():
            batches.append(Counter(row["v"] for _, _, row in data(rows)))
        assert batches == [{"c0": 6, "c1": 6}, {"c2": 6, "c3": 6}, {"c4": 6}]

    @pytest.mark.parametrize("together", ["false", "true"])
    def test_the_same_offsets_give_the_same_rows(self, database: CapturedDatabase, together: str) -> None:
        database.create("t", T)
        database.create("u", T)
        run = database.run(**database.small_slices, provide_transaction_metadata=together)
        run.all()
        start = run.offset
        for n in range(6):
            with database.transaction() as cursor:
                cursor.execute(f"INSERT INTO {database.schema}.t VALUES (?, 'x')", (n,))
                cursor.execute(f"INSERT INTO {database.schema}.u VALUES (?, 'y')", (n,))
        database.capture()
        first = run.all()
        database.update("t", "v = 'later'", "id = 1")
        database.capture()
        assert run.restarted().rows(start, run.offset) == first
        assert len(data(first)) == 12

    def test_transactions_have_edges_and_numbers(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        database.create("u", T)
        run = database.run(provide_transaction_metadata="true")
        run.all()
        with database.transaction() as cursor:
            cursor.execute(f"INSERT INTO {database.schema}.t VALUES (1, 'a')")
            cursor.execute(f"INSERT INTO {database.schema}.u VALUES (1, 'b')")
            cursor.execute(f"UPDATE {database.schema}.t SET v = 'c' WHERE id = 1")
        database.capture()
        rows = [row for row in run.all() if row["op"] != "schema"]
        assert [row["op"] for row in rows] == ["begin", "c", "c", "u", "end"]
        assert [row["transaction"]["total_order"] for row in rows[1:]] == [1, 2, 3, 3]
        assert [row["transaction"]["data_collection_order"] for row in rows[1:4]] == [1, 1, 2]
        assert len({row["transaction"]["id"] for row in rows}) == 1

    def test_a_delete_of_one_row_beside_an_insert_of_another_is_no_update(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(1, "one"), (2, "two")])
        run = database.run()
        run.all()
        with database.transaction() as cursor:
            cursor.execute(f"DELETE FROM {database.schema}.t WHERE id = 1")
            cursor.execute(f"INSERT INTO {database.schema}.t VALUES (3, 'three')")
        database.capture()
        assert [(op, row["id"]) for op, _, row in data(run.all())] == [("d", "1"), ("c", "3")]

    def test_an_update_names_the_columns_that_it_changed(self, database: CapturedDatabase) -> None:
        database.create("t", "id int not null primary key, v varchar(20), w varchar(20)", [(1, "one", "same")])
        run = database.run()
        run.all()
        database.update("t", "v = 'uno'", "id = 1")
        database.capture()
        assert [[name.lower() for name in row["changed"]] for row in run.all() if row["op"] == "u"] == [["v"]]

    def test_an_update_that_changes_the_key_leaves_the_right_rows(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(1, "one"), (2, "two")])
        run = database.run()
        rows = run.all()
        database.update("t", "id = 5", "id = 1")
        database.capture()
        held = {}
        for op, _, row in data(rows + run.all()):
            held[row["v"]] = (op != "d", row["id"])
        assert held["one"] == (True, "5")

    def test_a_table_that_is_registered_while_we_run_comes_in_with_its_rows(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(1, "one")])
        run = database.run()
        run.all()
        database.create("late", T, [(n, "history") for n in range(3)])
        database.insert("late", 7, "after")
        database.capture()
        rows = run.all()
        assert set(replay(rows)) == {("late", f'["{n}"]') for n in (0, 1, 2, 7)}
        created = [row for row in rows if row["op"] == "schema" and dict(row["source"]).get("change") == "CREATE"]
        assert [row["table"]["name"].lower() for row in created] == ["late"]

    def test_a_table_that_is_deregistered_is_said_and_the_others_go_on(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        database.create("u", T)
        run = database.run()
        run.all()
        database.disable("u")
        database.insert("t", 1, "x")
        database.capture()
        rows = run.all()
        assert data(rows) == [("c", "t", {"id": "1", "v": "x"})]
        dropped = [row for row in rows if row["op"] == "schema" and dict(row["source"]).get("change") == "DROP"]
        assert [row["table"]["name"].lower() for row in dropped] == ["u"]

    def test_a_table_that_is_registered_again_is_snapshotted_again(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(1, "one")])
        run = database.run()
        rows = run.all()
        database.disable("t")
        database.insert("t", 2, "unseen")
        database.delete("t", "id = 1")
        database.enable("t")
        database.capture()
        all_rows = run.all()
        assert [(op, row["id"]) for op, _, row in data(all_rows)] == [("r", "2")]
        assert rows

    def test_cleaned_changes_stop_the_run_before_a_row_is_read(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        run = database.run()
        run.all()
        for n in range(3):
            database.insert("t", n, "x")
        database.capture()
        database.clean()
        with pytest.raises(DataLossError, match=self.lost):
            run.batch()

    def test_what_was_cleaned_is_a_gap_where_the_user_wants_to_go_on(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        run = database.run(fail_on_data_loss="false")
        run.all()
        for n in range(3):
            database.insert("t", n, "x")
        database.capture()
        database.clean()
        database.insert("t", 9, "kept")
        database.capture()
        rows = run.all()
        assert [row["op"] for row in rows if row["op"] == "gap"] == ["gap"]
        assert data(rows)[-1] == ("c", "t", {"id": "9", "v": "kept"})

    def test_when_needed_reads_a_table_again_whose_changes_were_cleaned(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        run = database.run(snapshot_mode="when_needed")
        run.all()
        for n in range(3):
            database.insert("t", n, "x")
        database.capture()
        database.clean()
        rows = run.all()
        assert [(op, row["id"]) for op, _, row in data(rows)] == [("r", "0"), ("r", "1"), ("r", "2")]

    def test_tables_off_the_list_of_the_snapshot_are_streamed_and_not_read(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(1, "one")])
        database.create("u", T, [(1, "history")])
        run = database.run(snapshot_include_collection_list=rf"{database.schema}\.(t|x)")
        rows = run.all()
        assert data(rows) == [("r", "t", {"id": "1", "v": "one"})]
        assert [row["snapshot"] for row in rows if row["op"] == "r"] in (["first"], ["last"])
        database.create("late", T, [(1, "history")])
        run.all()
        for table in ("t", "u", "late"):
            database.insert(table, 2, "new")
        database.capture()
        assert {(op, table, row["id"]) for op, table, row in data(run.restarted().all())} >= {
            ("c", "t", "2"), ("c", "u", "2"), ("c", "late", "2"),
        }  # fmt: skip

    def test_always_reads_only_the_tables_of_the_list_again(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(1, "one")])
        database.create("u", T, [(1, "history")])
        run = database.run(snapshot_mode="always", snapshot_include_collection_list=database.named("u"))
        for _ in range(2):
            assert data(run.restarted().all()) == [("r", "u", {"id": "1", "v": "history"})]

    def test_when_needed_stops_for_a_table_that_the_list_leaves_out(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        database.create("u", T)
        run = database.run(snapshot_mode="when_needed", snapshot_include_collection_list=database.named("t"))
        run.all()
        database.insert("t", 1, "lost")
        database.insert("u", 1, "lost")
        database.capture()
        database.clean()
        with pytest.raises(DataLossError, match=self.lost):
            run.all()
        rows = run.restarted(fail_on_data_loss="false").all()
        assert {row["table"]["name"].lower() for row in rows if row["op"] == "gap"} >= {"u"}
        assert ("r", "t", "1") in [(op, table, row["id"]) for op, table, row in data(rows)]
        assert not [row for row in rows if row["op"] == "r" and row["table"]["name"].lower() == "u"]

    def test_the_clean_up_of_what_was_delivered_stops_nothing(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        database.create("quiet", T)
        run = database.run()
        run.all()
        for n in range(3):
            database.insert("t", n, "x")
            database.capture()
            assert len(data(run.all())) == 1
            database.clean_delivered(run)
        database.insert("quiet", 1, "at last")
        database.capture()
        assert [table for _, table, _ in data(run.all())] == ["quiet"]

    def test_an_idle_database_makes_no_batches(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(1, "one")])
        run = database.run()
        run.all()
        before = run.batches
        for _ in range(5):
            database.capture()
            assert run.batch() == []
        assert run.batches == before

    @pytest.mark.parametrize("mode", ["initial", "initial_only", "no_data", "when_needed", "always"])
    def test_a_run_that_has_everything_finds_nothing_left_to_do(self, database: CapturedDatabase, mode: str) -> None:
        database.create("keyed", T, [(1, "one")])
        database.create("log", "a int, b varchar(5)", [(1, "x"), (1, "x")])
        with database.capturing():
            run = database.run(snapshot_mode=mode)
            for process in (run, run.restarted()):
                process.all()
                # A run that should end asks a source of its own.
                left = database.run(snapshot_mode=mode).source.preview(run.offset, NOW, restarted=False)
                assert left is None or not left.brings_more_than(run.offset)

    def test_a_column_that_is_added_is_in_the_rows_that_follow(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(1, "one")])
        run = database.run()
        run.all()
        database.disable("t")
        database.execute(f"ALTER TABLE {database.schema}.t ADD w varchar(5)")
        database.enable("t")
        database.insert("t", 2, "two", "new")
        database.capture()
        assert replay(run.all())["t", '["2"]'] == {"id": "2", "v": "two", "w": "new"}

    def test_a_table_without_a_key_is_read_as_it_was_at_the_snapshots_commit(self, database: CapturedDatabase) -> None:
        database.create("log", "a int, b varchar(5)", [(1, "x"), (1, "x"), (2, None)])
        with database.capturing():
            run = database.run()
            rows = run.batch()
            assert Counter((row["a"], row["b"]) for _, _, row in data(rows)) == {("1", "x"): 2, ("2", None): 1}
            assert all(row["key_text"] is None for row in rows)
            run.all()
        database.insert("log", 3, "y")
        database.capture()
        assert data(run.all()) == [("c", "log", {"a": "3", "b": "y"})]

    def test_an_offset_of_another_database_is_refused(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        run = database.run()
        run.all()
        data_ = {**json.loads(run.offset.to_text()), "source": "other:shop"}
        run.offset = Offset.from_json(data_)
        with pytest.raises(PositionMismatch, match="The checkpoint belongs to 'other:shop'"):
            run.batch()

    def test_a_table_that_is_not_captured_is_an_error_with_the_way_out(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        database.execute(f"CREATE TABLE {database.schema}.plain ({T})")
        name = database.named("plain")
        with pytest.raises(CaptureError, match=name) as caught:
            database.run(tables=name).all()
        assert caught.value.remedy

    def test_columns_keys_masks_and_operations_are_as_options_say(self, database: CapturedDatabase) -> None:
        database.create("t", "id int not null primary key, v varchar(20), secret varchar(20)", [(1, "a", "hidden")])
        schema = database.schema
        run = database.run(
            column_exclude_list=rf"{schema}\.t\.v",
            skipped_operations="u",
            **{"column.mask.with.3.chars": rf"{schema}\.t\.secret"},
        )
        assert data(run.all()) == [("r", "t", {"id": "1", "secret": "***"})]
        database.update("t", "secret = 'new'", "id = 1")
        database.delete("t", "id = 1")
        database.capture()
        assert data(run.all()) == [("d", "t", {"id": "1", "secret": "***"})]

    def test_health_says_that_capture_works_and_how_long_changes_are_kept(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        run = database.run()
        run.all()
        database.capture()
        # Oracle says nowhere how long logs are kept: it is seen when some were deleted.
        database.clean_delivered(run)
        health = run.source.health(run.offset)
        assert health.state is CaptureState.CAPTURING
        assert health.retention_seconds is not None
        assert (health.waiting_since, health.lost) == (None, ())
        database.insert("t", 1, "waits")
        database.capture()
        # A batch that is planned and not delivered.
        run.source.advance(run.offset, Limit(), NOW)
        assert run.source.health(run.offset).waiting_since is not None
        database.insert("t", 2, "is lost")
        database.capture()
        database.clean()
        assert run.source.health(run.offset).lost
