"""What every source does: batches are whole commits, and two offsets decide the rows of a batch."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from headrace.changes import arrow_schema
from headrace.changes.texts import key_text
from headrace.errors import DataLossError, PositionMismatch
from headrace.sources.base import Limit, Source
from headrace.sources.offset import Offset
from headrace.testing.contract import Contract

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
Row = dict[str, Any]


class SourceRun:
    """A source as Spark drives it: advance, plan, read, again; what crosses processes is pickled or goes through JSON.

    Args:
        make: makes the source of a new process.
    """

    def __init__(self, make: Callable[[], Source]) -> None:
        self._make = make
        self.source = make()
        self.offset = Offset.nothing()
        self.batches = 0

    def batch(self, limit: Limit | None = None) -> list[Row]:
        """The rows of the next batch; none when there is nothing new."""
        end = self.source.advance(self.offset, limit or Limit(), NOW)
        if end == self.offset:
            return []
        end = Offset.from_json(json.loads(end.to_text()))
        rows = self.rows(self.offset, end)
        self.offset = end
        self.batches += 1
        return rows

    def read(self, start: Offset, end: Offset) -> list[pa.RecordBatch]:
        """What the tasks of a batch read, each with copies of the source and of its slice."""
        slices = self.source.plan(start, end)
        copies = [pickle.loads(pickle.dumps((self.source, each))) for each in slices]
        return [batch for source, each in copies for batch in source.read(each)]

    def rows(self, start: Offset, end: Offset) -> list[Row]:
        """The rows of a batch."""
        return [row for batch in self.read(start, end) for row in batch.to_pylist()]

    def all(self, limit: Limit | None = None) -> list[Row]:
        """The rows of all batches until there is nothing new."""
        rows: list[Row] = []
        while True:
            before = self.offset
            rows += self.batch(limit)
            if self.offset == before:
                return rows


class SourceContract(Contract):
    """The suite of any source of one table with a column `v`. A subclass gives three hooks.

    A source of a database, with snapshots and signals, runs `CaptureContract` besides.
    """

    own_records: ClassVar[int] = 0
    """How often the server writes into its log by itself while a test runs, which moves an offset and gives no row."""

    @abstractmethod
    def source(self, folder: Path) -> Source:
        """A new source, as another process makes it; two sources of one folder have the same database.

        The table is there, and has no row.

        Args:
            folder: a folder of the test's own.
        """

    @abstractmethod
    def commit(self, folder: Path, *values: str) -> None:
        """One commit with a new row for each value of `v`, in this order, which the source can read at once."""

    @abstractmethod
    def lose(self, folder: Path) -> None:
        """Delete all changes that were committed, as a database does when their retention is over."""

    def test_commits_come_whole_and_in_their_order(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        self.commit(tmp_path, "b", "a")
        self.commit(tmp_path, "c")
        assert _values(run.all()) == ["b", "a", "c"]

    def test_a_limit_cuts_between_commits_only(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        for values in (("a", "b"), ("c",), ("d", "e")):
            self.commit(tmp_path, *values)
        batches = []
        while rows := _values(run.batch(Limit(commits=1))):
            batches.append(rows)
        assert batches == [["a", "b"], ["c"], ["d", "e"]]

    def test_nothing_new_makes_no_batch(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        self.commit(tmp_path, "a")
        run.all()
        moves = 0
        for _ in range(3):
            end = run.source.advance(run.offset, Limit(), NOW + dt.timedelta(hours=1))
            if end != run.offset:
                moves += 1
                assert run.rows(run.offset, end) == []
                run.offset = end
        assert moves <= self.own_records

    def test_a_run_that_has_everything_is_at_the_head(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        self.commit(tmp_path, "a")
        head = run.source.head()
        assert run.offset.commit < head
        run.all()
        assert run.offset.commit >= head

    def test_two_offsets_decide_the_rows_of_a_batch(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        start = run.offset
        self.commit(tmp_path, "a", "b")
        self.commit(tmp_path, "c")
        end = run.source.advance(start, Limit(), NOW)
        first = pa.Table.from_batches(run.read(start, end), arrow_schema())
        self.commit(tmp_path, "later")
        again = SourceRun(lambda: self.source(tmp_path)).read(start, end)
        assert pa.Table.from_batches(again, arrow_schema()).equals(first)

    def test_a_new_process_goes_on_where_the_last_one_was(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        self.commit(tmp_path, "a")
        run.all()
        restarted = SourceRun(lambda: self.source(tmp_path))
        restarted.offset = Offset.from_json(json.loads(run.offset.to_text()))
        self.commit(tmp_path, "b")
        assert _values(restarted.all()) == ["b"]

    def test_positions_say_the_order_of_all_changes(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        for values in (("a", "b"), ("c",)):
            self.commit(tmp_path, *values)
        rows = [row for row in run.all(Limit(commits=1)) if row["op"] == "c"]
        positions = [row["position"] for row in rows]
        assert positions == sorted(set(positions))
        assert [position.count("/") for position in positions] == [2] * 3

    def test_rows_follow_the_schemas_that_the_source_names(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        self.commit(tmp_path, "a")
        rows = run.all()
        known = {schema.fingerprint: schema for schema in run.source.tables()}
        changes = [row for row in rows if row["op"] == "c"]
        assert changes
        for row in changes:
            schema = known[row["schema_id"]]
            assert row["table"] == {
                "database": schema.id.database,
                "schema": schema.id.schema,
                "name": schema.id.name,
            }
            assert [name for name, _ in row["after"]] == [column.name for column in schema.columns]
            assert tuple(name for name, _ in row["key"] or ()) == schema.key
            assert row["key_text"] == (key_text([text for _, text in row["key"]]) if schema.key else None)

    def test_a_preview_does_nothing(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        self.commit(tmp_path, "a")
        self.source(tmp_path).preview(run.offset, NOW)
        assert _values(run.all()) == ["a"]

    def test_an_offset_of_another_database_is_refused(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        self.commit(tmp_path, "a")
        run.all()
        strange = replace(run.offset, source="other:database")
        with pytest.raises(PositionMismatch) as caught:
            self.source(tmp_path).advance(strange, Limit(), NOW)
        assert caught.value.remedy

    def test_changes_that_are_gone_stop_the_run(self, tmp_path: Path) -> None:
        run = self._begun(tmp_path)
        self.commit(tmp_path, "a")
        self.commit(tmp_path, "b")
        self.lose(tmp_path)
        with pytest.raises(DataLossError) as caught:
            run.batch()
        assert caught.value.remedy

    def _begun(self, folder: Path) -> SourceRun:
        run = SourceRun(lambda: self.source(folder))
        assert _values(run.all()) == []
        return run


def _values(rows: list[Row]) -> list[str]:
    changes = sorted((row for row in rows if row["op"] in ("r", "c", "u", "d")), key=lambda row: row["position"])
    assert {row["op"] for row in changes} <= {"c"}
    return [{name.lower(): text for name, text in row["after"]}["v"] for row in changes]
