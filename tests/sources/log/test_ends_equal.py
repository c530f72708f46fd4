"""Law: a whole table that is read beside the stream ends equal. No row that the source has ever goes from a mirror, and
every row that it lacks does, wherever batches are cut, done again or killed, and whatever happens meanwhile.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.sources.log import toy_log
from tests.sources.log.toy_log import Commit, ToyLog, ToyPlanner, ToyState, place, tables_of

from headrace.changes.position import READ_AGAIN_FROM, Position
from headrace.settings import option
from headrace.sources.base import Limit
from headrace.sources.log.ad_hoc_reads import AdHocReads
from headrace.sources.offset import Key, Offset
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.ends_equal import end_markers

T = "s.a"
Row = dict[str, int]
Change = tuple[str, int, int, Row]
"""An operation, the key before it, the key after it, and the columns that it carries."""

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


@dataclass
class RowsLog(ToyLog):
    """A server with one table that has rows.

    Args:
        rows: what it holds now, by key.
        changes: what each commit did.
        flushed: how many commits can be read of the log; all can be seen in the table.
        definition: counts alterations of the table.
        altered: how many chunks will not be read, because the table is altered after the plan, and altered back.
        whole: whether changes carry all columns, so that readers may leave rows out that their changes bring.
    """

    tables: dict[str, int] = field(default_factory=lambda: {T: 1})
    rows: dict[int, Row] = field(default_factory=dict)
    changes: list[list[Change]] = field(default_factory=lambda: [[]])
    flushed: int = 1
    definition: int = 0
    altered: int = 0
    whole: bool = True

    @property
    def head(self) -> str:
        return place(self.flushed)

    def commit(self, *changes: Change, signals: tuple[Signal, ...] = (), flush: bool = True) -> None:
        self.commits.append(Commit((T,) if changes else (), signals))
        self.changes.append(list(changes))
        self.flushed = len(self.commits) if flush else self.flushed

    def write(self, kind: str, key: int, other: int, flush: bool) -> None:
        """One commit, where it can be done."""
        row = self.rows.get(key)
        new = {"a": len(self.commits), "b": len(self.commits)}
        if kind == "insert" and row is None:
            self.rows[key] = new
            self.commit(("c", key, key, new), flush=flush)
        elif kind == "update" and row is not None:
            self.rows[key] = {**row, "a": new["a"]}
            self.commit(("u", key, key, self._carried(key)), flush=flush)
        elif kind == "delete" and row is not None:
            del self.rows[key]
            self.commit(("d", key, key, {}), flush=flush)
        elif kind == "move" and row is not None and other not in self.rows:
            del self.rows[key]
            self.rows[other] = {**row, "a": new["a"]}
            self.commit(("u", key, other, self._carried(other)), flush=flush)
        elif kind == "vanish":
            # No change of it is in the log, but the statement is.
            self.rows.pop(key, None)
            self.commit(flush=flush)

    def _carried(self, key: int) -> Row:
        row = self.rows[key]
        return dict(row) if self.whole else {"a": row["a"]}

    def written_since(self, commit: str) -> set[int]:
        later = self.changes[int(commit) :]
        return {key for changes in later for op, _, key, _ in changes if op in ("c", "u")}


@dataclass(frozen=True)
class _Keys:
    log: RowsLog

    def greatest(self, table: object, condition: object) -> Sequence[Key]:
        return [(str(max(self.log.rows)),)] if self.log.rows else []

    def bounds(
        self, table: object, lower: Key | None, last: Key, rows: int, chunks: int, condition: object
    ) -> Sequence[Key]:
        keys = [key for key in sorted(self.log.rows) if _between(key, lower, last)]
        return [(str(key),) for key in keys[rows - 1 :: rows][:chunks]]

    def definition(self, table: object, before: str = "") -> str:
        return str(self.log.definition)


def _between(key: int, lower: Key | None, upper: Key | None) -> bool:
    return (lower is None or key > int(lower[0] or 0)) and (upper is None or key <= int(upper[0] or 0))


class Settings(toy_log.ToySettings):
    """With the operations that are left out."""

    skipped_operations: tuple[str, ...] = option("Skipped.", default=())


class RowsPlanner(ToyPlanner):
    """A planner on a server whose table has rows."""

    log: RowsLog

    def __init__(self, log: RowsLog, **options: Any) -> None:
        super().__init__(log, **{name: value for name, value in options.items() if name != "skipped_operations"})
        self._settings = Settings(**options)
        self._ad_hoc = AdHocReads(self._settings, "db", tables_of, ("skip",))

    def _written(self) -> str:
        return place(len(self.log.commits))

    def _ranges(self) -> AbstractContextManager[_Keys]:
        return nullcontext(_Keys(self.log))

    def _more_reads(self, reads: AdHoc, end: Offset, budget: int) -> AdHoc:
        return self._ad_hoc.further(reads, end, budget, self._ranges)


class Run:
    """Batches into a mirror, which has the table as it was at the beginning."""

    def __init__(self, keys: int, *, whole: bool, **options: Any) -> None:
        self.log = RowsLog(rows={key: {"a": 0, "b": 0} for key in range(0, keys * 2, 2)}, whole=whole)
        self.options = {"snapshot_mode": "no_data", "incremental_snapshot_chunk_size": 2, **options}
        self.planner = RowsPlanner(self.log, **self.options)
        self.offset = self.planner.advance(Offset.nothing(), Limit(), NOW)
        self.start = self.offset
        self.mirror = {key: (f"{place(0)}//", dict(row)) for key, row in self.log.rows.items()}
        self.ended = 0

    def ask(self) -> None:
        self.log.commit(signals=(Signal("s", "execute-snapshot", json.dumps({"data-collections": [T]})),))

    def batch(self, *, before: tuple[str, int, int, bool] | None = None, **limit: Any) -> bool:
        """One batch; `before` happens when it is planned and not read. False where nothing is new."""
        end = self.planner.advance(self.offset, Limit(**limit), NOW)
        if end == self.offset:
            return False
        self.start, self.offset = self.offset, Offset.from_json(json.loads(end.to_text()))
        if before:
            self.log.write(*before)
        self.deliver()
        return True

    def restart(self) -> None:
        self.planner = RowsPlanner(self.log, **self.options)

    def settled(self, **limit: Any) -> None:
        for _ in range(60):
            if not self.batch(**limit):
                return
        raise AssertionError("the source never rests")

    def deliver(self) -> None:
        """Bring the mirror to the end of the batch that was planned last, for the first time or again."""
        start, end = self.start, self.offset
        for position, change in sorted(self._rows(start, end), key=lambda found: found[0]):
            self._take(position, *change)
        for marker in end_markers(start, end, "toy", tables_of(end.schemas)):
            assert Position(start.commit) < marker.position
            self.ended += 1
            since = marker.source[READ_AGAIN_FROM]
            gone = [key for key, (position, _) in self.mirror.items() if position < since]
            later = self.log.written_since(end.commit)
            assert not [key for key in gone if key in self.log.rows and key not in later], "a row that is there went"
            for key in gone:
                del self.mirror[key]

    def _rows(self, start: Offset, end: Offset) -> Iterator[tuple[str, Change]]:
        if ToyState.of(end).reads:
            for number in range(int(start.commit), int(end.commit)):
                for order, change in enumerate(self.log.changes[number]):
                    yield Position(place(number + 1), f"{order:02x}").text, change
        if end.ad_hoc == start.ad_hoc:
            return
        for chunk in AdHoc.from_json(end.ad_hoc).chunks(end.reads):
            if self.log.altered:
                self.log.altered -= 1
                self.log.definition += 1
                continue
            left_out = self.log.written_since(end.commit) if self.log.whole else ()
            for key, row in sorted(self.log.rows.items()):
                if _between(key, chunk.lower, chunk.upper) and key not in left_out:
                    yield chunk.position(end.commit).text, ("r", key, key, dict(row))

    def _take(self, position: str, op: str, old: int, key: int, row: Row) -> None:
        held = self.mirror.get(old)
        if held is not None and held[0] >= position:
            return
        if op == "d":
            self.mirror.pop(old, None)
            return
        if op == "u" and len(row) < 2:
            known = held or self.mirror.get(key)
            assert known is not None, "a change does not carry all columns, and its row is not there"
            row = {**known[1], **row}
        if old != key:
            self.mirror.pop(old, None)
        if key not in self.mirror or self.mirror[key][0] < position:
            self.mirror[key] = (position, row)

    @property
    def is_equal(self) -> bool:
        return {key: row for key, (_, row) in self.mirror.items()} == self.log.rows


KEYS = st.integers(0, 12)
WRITES = st.tuples(st.sampled_from(["insert", "update", "delete", "move", "vanish"]), KEYS, KEYS, st.booleans())
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), WRITES),
        st.tuples(st.just("gate"), WRITES),
        st.tuples(st.sampled_from(["ask", "batch", "batch", "again", "restart", "flush", "alter", "lose"]), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    steps=STEPS,
    keys=st.integers(0, 7),
    whole=st.booleans(),
    budget=st.integers(1, 3),
    commits=st.sampled_from([0, 0, 1]),
)
@example(
    # The last chunk leaves a row out whose change comes with the next batch.
    steps=[("ask", None), ("gate", ("update", 0, 0, True)), ("batch", None)],
    keys=1,
    whole=True,
    budget=1,
    commits=0,
)
@example(
    # What was seen in the table is not in the log that can be read.
    steps=[("ask", None), ("batch", None), ("gate", ("move", 2, 1, False)), ("batch", None), ("batch", None)],
    keys=4,
    whole=False,
    budget=1,
    commits=0,
)
def test_a_table_that_is_read_beside_the_stream_ends_equal(
    steps: list[tuple[str, Any]], keys: int, whole: bool, budget: int, commits: int
) -> None:
    run = Run(
        keys,
        whole=whole,
        snapshot_chunks_per_batch=budget,
        max_commits_per_trigger=commits,
        fail_on_data_loss=False,
    )
    for step, detail in steps:
        if step == "write":
            run.log.write(*detail)
        elif step == "gate":
            run.batch(before=detail)
        elif step == "ask":
            run.ask()
        elif step == "batch":
            run.batch()
        elif step == "again":
            run.deliver()
        elif step == "restart":
            run.deliver()
            run.restart()
        elif step == "flush":
            run.log.flushed = len(run.log.commits)
        elif step == "alter":
            run.log.altered += 1
        elif whole:
            # Changes that lack columns can't follow what was lost.
            run.log.forgotten = run.log.flushed
            run.restart()
    run.log.altered, run.log.flushed = 0, len(run.log.commits)
    run.settled()
    run.ask()
    run.settled()
    assert run.is_equal


def test_the_end_waits_until_the_stream_has_what_chunks_left_out() -> None:
    run = Run(3, whole=True, snapshot_chunks_per_batch=9)
    run.log.rows.pop(2)
    run.ask()
    run.batch(before=("update", 4, 4, True))
    assert (run.ended, sorted(run.mirror)) == (0, [0, 2, 4])
    run.batch()
    assert (run.ended, sorted(run.mirror)) == (0, [0, 2, 4])
    run.batch()
    assert (run.ended, sorted(run.mirror)) == (1, [0, 4])
    assert not run.batch()


def test_a_run_that_should_end_reads_on_to_the_end() -> None:
    run = Run(3, whole=True, snapshot_chunks_per_batch=9)
    run.log.rows.pop(2)
    run.ask()
    upto = run.log.head
    run.batch(upto=upto, before=("update", 4, 4, True))
    assert run.offset.has_open_requests
    run.settled(upto=upto)
    assert (run.ended, run.is_equal, run.offset.has_open_requests) == (1, True, False)


def test_a_quiet_table_ends_with_the_batch_after_its_last_chunk() -> None:
    run = Run(2, whole=True, snapshot_chunks_per_batch=9)
    run.ask()
    assert [run.batch(), run.batch(), run.batch()] == [True, True, False]
    assert run.ended == 1


@pytest.mark.parametrize("skipped", [("d",), ("u", "c")])
def test_no_row_goes_where_the_stream_leaves_changes_out(skipped: tuple[str, ...]) -> None:
    run = Run(3, whole=True, skipped_operations=skipped)
    run.log.rows.pop(2)
    run.ask()
    run.settled()
    assert (run.ended, sorted(run.mirror)) == (0, [0, 2, 4])


def test_an_offset_of_an_earlier_release_goes_on_without_an_end() -> None:
    run = Run(3, whole=True, snapshot_chunks_per_batch=1)
    run.ask()
    run.batch()
    data = json.loads(run.offset.to_text())
    for request in data["ad_hoc"]["requests"]:
        del request["since"], request["definition"]
    run.offset = Offset.from_json(data)
    run.settled()
    assert run.ended == 0
