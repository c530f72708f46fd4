"""How far a pipeline is: rows by table and operation, snapshot, rate, and a lag that is true on an idle source."""

from __future__ import annotations

import datetime as dt
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.changes import TableId
from headrace.changes.row import DATA_OPERATIONS, Operation
from headrace.observe.completeness import Completeness
from headrace.observe.messages import MessageCounts
from headrace.observe.parked_tables import ParkedTable
from headrace.observe.troubles import Trouble
from headrace.sources.health import Health
from headrace.sources.offset import Offset

_WINDOW_SECONDS = 10.0
_SNAPSHOT_WINDOW_SECONDS = 60.0
_RECENT = 100
COUNTED = (*DATA_OPERATIONS, Operation.ERROR)
"""The operations of rows that count."""


@dataclass(frozen=True)
class BatchCount:
    """How many rows of one table and operation a batch had.

    Args:
        table: `schema.name`; empty where a row belongs to no table.
        op: the operation; empty for messages that are not events.
        rows: how many.
        newest: when the newest of them was committed in the source, where known.
        oldest: when the oldest of them was.
        id: the table's full name, where a batch says it.
    """

    table: str
    op: str
    rows: int
    newest: dt.datetime | None = None
    oldest: dt.datetime | None = None
    id: TableId | None = None


@dataclass(frozen=True)
class BatchDone:
    """A batch that is in all sinks.

    Args:
        number: Spark's number.
        rows: rows by operation, `error` for messages that could not be read.
        tables: the tables that have rows in it, most rows first.
        seconds: how long it took from its first row to the last sink.
        stages: where that time went, in order: `read`, `shape`, each sink, `dead letters`; and `plan`, the time that
            the source and Spark needed around it, where that is known.
        delay: how long ago the oldest change in it was committed when it was in all sinks, in seconds; None where it
            has only rows of snapshots.
        at: when it was in all sinks.
    """

    number: int
    rows: Mapping[str, int]
    tables: tuple[str, ...]
    seconds: float
    stages: Mapping[str, float] = field(default_factory=dict)
    delay: float | None = None
    at: dt.datetime | None = None


@dataclass(frozen=True)
class BatchUnderWay:
    """A batch that is not in all sinks yet.

    Args:
        number: Spark's number.
        stage: what happens to it, in the words of `BatchDone.stages`.
        seconds: how long ago it was begun.
        rows: how many of its rows were read, while it is read by the tasks that are done; 0 where none is yet.
    """

    number: int
    stage: str
    seconds: float
    rows: int = 0


@dataclass(frozen=True)
class Delays:
    """How old changes were when they were in all sinks, in seconds, over the last batches.

    Each batch counts once, by its oldest change.

    Args:
        p50: half of the batches were no slower.
        p90: nine tenths were not.
        p99: nor were 99 of 100.
        batches: how many these are.
    """

    p50: float
    p90: float
    p99: float
    batches: int

    @property
    def by_quantile(self) -> Mapping[str, float]:
        return {"0.5": self.p50, "0.9": self.p90, "0.99": self.p99}

    @classmethod
    def of(cls, delays: Sequence[float]) -> Delays | None:
        """The quantiles of these delays; None where there is none."""
        ordered = sorted(delays)
        if not ordered:
            return None
        p50, p90, p99 = (ordered[math.ceil(part * len(ordered)) - 1] for part in (0.5, 0.9, 0.99))
        return cls(p50, p90, p99, len(ordered))


def mean_stages(batches: Sequence[BatchDone]) -> Mapping[str, float]:
    """The mean seconds of each stage over some batches, in the order in which they happen."""
    names = dict.fromkeys(name for batch in batches for name in batch.stages)
    return {name: sum(batch.stages.get(name, 0.0) for batch in batches) / len(batches) for name in names}


@dataclass(frozen=True)
class TableState:
    """One table's progress since this run started.

    Args:
        table: `schema.name`.
        rows: rows in all sinks by operation (`r` read by the snapshot, `c`, `u`, `d`, `t`; `error` messages that could
            not be read).
        estimate: the table's rows when its snapshot began, from the source's catalog; -1 if unknown.
        snapshot: `running`, `catching up` (complete, changes made meanwhile follow), `done`, or empty when this run
            took none.
        read: about how many rows of the table its snapshot has read, by earlier runs too.
        read_per_second: rows that its snapshot reads per second, over the last minute.
        complete_until: everything that was committed before this in the table is in all sinks; None where unknown.
        captured: whether the source captures it still.
        lost: whether changes of it are missing: the source had deleted them, or a user skipped them.
        unequal: whether a change of structure may have changed its rows, and it was not read again since.
        parked: why its changes are left out, with what to do about it; empty where they are not.
    """

    table: str
    rows: Mapping[str, int]
    estimate: int = -1
    snapshot: str = ""
    read: int = 0
    read_per_second: float = 0.0
    complete_until: dt.datetime | None = None
    captured: bool = True
    lost: bool = False
    unequal: bool = False
    parked: str = ""

    @property
    def state(self) -> str:
        """In few words: `streaming`, `in its snapshot`, `catching up`, `not equal`, `parked`, `changes lost`, `not
        captured`."""
        if self.parked:
            return "parked"
        if not self.captured:
            return "not captured"
        if self.lost:
            return "changes lost"
        level = "not equal" if self.unequal else "streaming"
        return {"running": "in its snapshot", "catching up": "catching up"}.get(self.snapshot, level)

    @property
    def snapshot_left(self) -> int | None:
        """The estimated number of rows that the snapshot has still to read; None if it is not running or unknown."""
        if self.snapshot != "running" or self.estimate < 0:
            return None
        return max(0, self.estimate - self.read)

    @property
    def snapshot_seconds_left(self) -> float | None:
        """When the snapshot will be read at this rate; None if it is not running, stands still or is unknown."""
        left = self.snapshot_left
        return None if left is None or not self.read_per_second else left / self.read_per_second


@dataclass(frozen=True)
class PipelineProgress:
    """What a pipeline has done since it was started; everything counted here rests in all sinks.

    Args:
        batches: how many batches.
        rows: data rows of all tables.
        rows_per_second: over the last seconds.
        lag_seconds: 0 when everything that was committed in the source is in the sinks, else how long ago that was last
            so; None when unknown. It grows while the source's own capture is behind.
        position: the last commit that is in all sinks; empty before the first.
        snapshotting: some table is still in its snapshot.
        tables: in the order in which they were first captured, whether anything happens to them or not.
        health: the health of the source's capture; None for topics.
        complete_until: everything that was committed in the source before this is in all sinks, in every table; None
            while that is unknown for a table.
        behind_commits: captured commits that are not in all sinks; None for topics, or when unknown.
        behind_messages: for topics, messages that are not in all sinks, as of the last batch; None when unknown.
        done: how many batches had rows that count.
        recent: the last of them, oldest first.
        messages: for topics, the messages without a change: unreadable ones by reason, and those that are not events.
        delays: how old changes were when they were in all sinks; None before the first batch of changes.
        troubles: what went wrong lately, oldest first.
        warnings: how often something went wrong since the start.
        under_way: the batch that is being written; None between batches.
    """

    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    lag_seconds: float | None = None
    position: str = ""
    snapshotting: bool = False
    tables: tuple[TableState, ...] = field(default_factory=tuple)
    health: Health | None = None
    complete_until: dt.datetime | None = None
    behind_commits: int | None = None
    behind_messages: int | None = None
    done: int = 0
    recent: tuple[BatchDone, ...] = ()
    messages: MessageCounts = field(default_factory=MessageCounts)
    delays: Delays | None = None
    troubles: tuple[Trouble, ...] = ()
    warnings: int = 0
    under_way: BatchUnderWay | None = None


class ProgressBoard:
    """Where the batches of a running pipeline are counted. Safe to use from the batch's thread and from others.

    Args:
        clock: seconds that only grow.
        now: the time of day in UTC.
        chunk_rows: how many rows a snapshot's chunk has; 0 where that is unknown.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        *,
        chunk_rows: int = 0,
    ) -> None:
        self._chunk_rows = chunk_rows
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, int]] = {}
        self._estimates: dict[str, int] = {}
        self._rate = _Rate(clock, _WINDOW_SECONDS)
        self._reads: dict[str, _Rate] = {}
        self._ids: dict[TableId, None] = {}
        self._batches = 0
        self._done_count = 0
        self._done: deque[BatchDone] = deque(maxlen=_RECENT)
        self._messages = MessageCounts()
        self._newest: dt.datetime | None = None
        self._level_since: dt.datetime | None = None
        self._under_way: tuple[int, str, float] | None = None
        self._rows_read = 0

    def enter(self, number: int, stage: str) -> None:
        with self._lock:
            before = self._under_way
            again = before is not None and before[0] == number
            begun = before[2] if before is not None and again else self._clock()
            self._rows_read = self._rows_read if again else 0
            self._under_way = (number, stage, begun)

    @property
    def is_reading(self) -> bool:
        """Whether a batch is in its first stage."""
        with self._lock:
            return self._under_way is not None and self._under_way[1].startswith("read")

    def read(self, rows: int, *, whole: bool = False) -> None:
        """Say how many rows of the batch under way were read until now; less than before says nothing.

        Args:
            rows: how many.
            whole: whether they are all rows of the batch.
        """
        with self._lock:
            self._rows_read = rows if whole else max(self._rows_read, rows)

    def leave(self) -> None:
        """No batch is being written now."""
        with self._lock:
            self._under_way = None

    def add(
        self,
        counts: Sequence[BatchCount],
        messages: MessageCounts | None = None,
        *,
        number: int = -1,
        seconds: float = 0.0,
        stages: Mapping[str, float] | None = None,
    ) -> None:
        """Count a batch that is in all sinks, and its messages that gave no change.

        Args:
            counts: its rows by table and operation.
            messages: those that gave no change.
            number: the batch's.
            seconds: how long it took.
            stages: where that time went.
        """
        now = self._now()
        with self._lock:
            total = 0
            oldest: list[dt.datetime] = []
            for table in {count.table for count in counts if count.op == Operation.READ} - self._reads.keys():
                self._reads[table] = _Rate(self._clock, _SNAPSHOT_WINDOW_SECONDS, since=seconds)
            by_operation: dict[str, int] = {}
            by_table: dict[str, int] = {}
            for count in counts:
                if count.op not in COUNTED:
                    continue
                if count.id is not None:
                    self._ids[count.id] = None
                by_op = self._counts.setdefault(count.table, {})
                by_op[count.op] = by_op.get(count.op, 0) + count.rows
                total += count.rows
                by_operation[count.op] = by_operation.get(count.op, 0) + count.rows
                by_table[count.table] = by_table.get(count.table, 0) + count.rows
                if count.newest is not None and (self._newest is None or count.newest > self._newest):
                    self._newest = count.newest
                if count.op == Operation.READ:
                    self._reads[count.table].add(count.rows)
                elif count.oldest is not None and count.op != Operation.ERROR:
                    oldest.append(count.oldest)
            self._batches += 1
            if messages is not None:
                self._messages = self._messages.plus(messages)
            self._rate.add(total)
            if by_operation:
                tables = tuple(sorted((name for name in by_table if name), key=lambda name: (-by_table[name], name)))
                self._done_count += 1
                delay = None if not oldest else max(0.0, (now - min(map(_aware, oldest))).total_seconds())
                self._done.append(BatchDone(number, by_operation, tables, seconds, dict(stages or {}), delay, now))

    @property
    def table_ids(self) -> Sequence[TableId]:
        """The tables that had rows, by their full names, where batches say these."""
        with self._lock:
            return tuple(self._ids)

    def planned(self, number: int, seconds: float) -> None:
        """Say how long the source and Spark needed around a batch that is counted: to plan and to commit it."""
        with self._lock:
            for index, batch in enumerate(self._done):
                if batch.number == number:
                    self._done[index] = replace(batch, stages={"plan": seconds, **batch.stages})

    def progress(
        self,
        offset: Offset | None,
        level: bool | None,
        health: Health | None = None,
        complete: Completeness | None = None,
        behind_messages: int | None = None,
        troubles: Sequence[Trouble] = (),
        warnings: int = 0,
        parked: Collection[ParkedTable] = (),
    ) -> PipelineProgress:
        """The state of now.

        Args:
            offset: where the last committed batch ends, for a database; None before the first or for topics.
            level: whether the sinks hold everything that the source offered a moment ago; None when it could not be
                asked.
            health: the health of the source's capture, if known.
            complete: the completeness that the committed batches have.
            behind_messages: for topics, how many messages wait.
            troubles: what went wrong lately.
            warnings: how often something went wrong.
            parked: the tables whose changes are left out.
        """
        with self._lock:
            lagging = offset.tables if offset is not None else {}
            for name, table in lagging.items():
                if table.rows >= 0:
                    self._estimates[name] = table.rows
            names = dict.fromkeys([*(offset.tables_seen if offset is not None else ()), *self._counts, *lagging])
            out = {name: one.text for one in parked for name in (one.table.path, one.table.full_path)}
            tables = tuple(self._table(name, offset, complete, out.get(name, "")) for name in names)
            return PipelineProgress(
                batches=self._batches,
                rows=sum(sum(by_op.values()) for by_op in self._counts.values()),
                rows_per_second=self._rate.now(),
                lag_seconds=self._lag(offset, level, health),
                position=offset.commit if offset is not None else "",
                snapshotting=offset is not None and not offset.is_level,
                tables=tables,
                health=health,
                complete_until=None if complete is None else complete.overall,
                behind_commits=None if health is None else health.waiting_commits,
                behind_messages=behind_messages,
                done=self._done_count,
                recent=tuple(self._done),
                messages=self._messages,
                delays=Delays.of([batch.delay for batch in self._done if batch.delay is not None]),
                troubles=tuple(troubles),
                warnings=warnings,
                under_way=self._batch_under_way(),
            )

    def _batch_under_way(self) -> BatchUnderWay | None:
        if self._under_way is None:
            return None
        number, stage, begun = self._under_way
        return BatchUnderWay(number, stage, self._clock() - begun, self._rows_read)

    def _table(self, name: str, offset: Offset | None, complete: Completeness | None, parked: str) -> TableState:
        rows = dict(self._counts.get(name, {}))
        lagging = offset.tables.get(name) if offset is not None else None
        if offset is not None and lagging is not None and not (lagging.done and lagging.commit >= offset.commit):
            snapshot = "catching up" if lagging.done else "running"
        else:
            snapshot = "done" if rows.get(Operation.READ) else ""
        read = rows.get(Operation.READ, 0)
        if lagging is not None:
            # Chunks of earlier runs count too; the last one of a table may be smaller.
            read = max(read, (lagging.chunk + len(lagging.bounds)) * self._chunk_rows)
            if lagging.rows >= 0:
                read = min(read, max(lagging.rows, rows.get(Operation.READ, 0)))
        return TableState(
            name,
            rows,
            self._estimates.get(name, -1),
            snapshot,
            read,
            read_per_second=self._reads[name].now() if snapshot == "running" and name in self._reads else 0.0,
            complete_until=None if complete is None else complete.of(name),
            captured=offset is None or name not in offset.uncaptured,
            lost=offset is not None and (name in offset.gaps or name in offset.skipped),
            unequal=offset is not None and name in offset.unequal,
            parked=parked,
        )

    def _lag(self, offset: Offset | None, level: bool | None, health: Health | None) -> float | None:
        if level is None:
            return None
        now = self._now()
        late = health is not None and health.is_late
        lag = health.behind_seconds if health is not None and late else None
        if level and not late:
            self._level_since = now
            return 0.0
        if level and lag is not None:
            # What was captured is here; what was not is as late as the capture.
            return lag
        applied = _utc(offset.commit_time) if offset is not None else _utc(self._newest)
        # After an idle hour the last commit is an hour old, but we were level a moment ago: the later of both is the
        # truth.
        since = max((t for t in (applied, self._level_since) if t is not None), default=None)
        if since is None:
            return lag
        return max(0.0, (now - since).total_seconds(), lag or 0.0)


class _Rate:
    """Rows per second over the last seconds.

    Args:
        clock: seconds that only grow.
        window: over how many seconds.
        since: how many seconds ago counting began.
    """

    def __init__(self, clock: Callable[[], float], window: float, *, since: float = 0.0) -> None:
        self._clock = clock
        self._window = window
        # The first entry only marks where the window begins: its rows came before.
        self._added: deque[tuple[float, int]] = deque([(clock() - since, 0)])

    def add(self, rows: int) -> None:
        self._added.append((self._clock(), rows))

    def now(self) -> float:
        now = self._clock()
        while len(self._added) > 1 and now - self._added[1][0] > self._window:
            self._added.popleft()
        span = now - self._added[0][0]
        return sum(rows for _, rows in list(self._added)[1:]) / span if span > 0 else 0.0


def _aware(time: dt.datetime) -> dt.datetime:
    return time.replace(tzinfo=dt.UTC) if time.tzinfo is None else time


def _utc(time: dt.datetime | None) -> dt.datetime | None:
    return None if time is None else _aware(time)
