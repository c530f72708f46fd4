"""How far a pipeline is: rows by table and operation, snapshot, rate, and a lag that is true on an idle source."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.changes.operation import DATA_OPERATIONS, Operation
from headrace.observe.messages import MessageCounts
from headrace.sources.health import Health
from headrace.sources.offset import Offset

_WINDOW_SECONDS = 10.0
_RECENT = 100
_COUNTED = (*DATA_OPERATIONS, Operation.ERROR)


@dataclass(frozen=True)
class BatchCount:
    """How many rows of one table and operation a batch had.

    Args:
        table: `schema.name`; empty where a row belongs to no table.
        op: the operation; empty for messages that are not events.
        rows: how many.
        newest: when the newest of them was committed in the source, where known.
    """

    table: str
    op: str
    rows: int
    newest: dt.datetime | None = None


@dataclass(frozen=True)
class BatchDone:
    """A batch that is in all sinks.

    Args:
        number: Spark's number.
        rows: rows by operation, `error` for messages that could not be read.
        tables: the tables that have rows in it, most rows first.
        seconds: how long it took from its first row to the last sink.
    """

    number: int
    rows: Mapping[str, int]
    tables: tuple[str, ...]
    seconds: float


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
    """

    table: str
    rows: Mapping[str, int]
    estimate: int = -1
    snapshot: str = ""
    read: int = 0

    @property
    def snapshot_left(self) -> int | None:
        """The estimated number of rows that the snapshot has still to read; null if it is not running or unknown."""
        if self.snapshot != "running" or self.estimate < 0:
            return None
        return max(0, self.estimate - self.read)


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
        tables: in the order in which they appeared.
        health: the health of the source's capture; None for topics.
        complete_until: everything that was committed in the source before this is in all sinks, in every table; None
            while that is unknown for a table.
        behind_commits: captured commits that are not in all sinks; None for topics, or when unknown.
        behind_messages: for topics, messages that are not in all sinks, as of the last batch; None when unknown.
        done: how many batches had rows that count.
        recent: the last of them, oldest first.
        messages: for topics, the messages without a change: unreadable ones by reason, and those that are not events.
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
        self._recent: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._batches = 0
        self._done_count = 0
        self._done: deque[BatchDone] = deque(maxlen=_RECENT)
        self._messages = MessageCounts()
        self._newest: dt.datetime | None = None
        self._level_since: dt.datetime | None = None

    def add(
        self,
        counts: Iterable[BatchCount],
        messages: MessageCounts | None = None,
        *,
        number: int = -1,
        seconds: float = 0.0,
    ) -> None:
        """Count a batch that is in all sinks, and its messages that gave no change.

        Args:
            counts: its rows by table and operation.
            messages: those that gave no change.
            number: the batch's.
            seconds: how long it took.
        """
        with self._lock:
            total = 0
            by_operation: dict[str, int] = {}
            by_table: dict[str, int] = {}
            for count in counts:
                if count.op not in _COUNTED:
                    continue
                by_op = self._counts.setdefault(count.table, {})
                by_op[count.op] = by_op.get(count.op, 0) + count.rows
                total += count.rows
                by_operation[count.op] = by_operation.get(count.op, 0) + count.rows
                by_table[count.table] = by_table.get(count.table, 0) + count.rows
                if count.newest is not None and (self._newest is None or count.newest > self._newest):
                    self._newest = count.newest
            self._batches += 1
            if messages is not None:
                self._messages = self._messages.plus(messages)
            self._recent.append((self._clock(), total))
            if by_operation:
                tables = tuple(sorted((name for name in by_table if name), key=lambda name: (-by_table[name], name)))
                self._done_count += 1
                self._done.append(BatchDone(number, by_operation, tables, seconds))

    def progress(
        self,
        offset: Offset | None,
        level: bool | None,
        health: Health | None = None,
        complete_until: dt.datetime | None = None,
        behind_messages: int | None = None,
    ) -> PipelineProgress:
        """The state of now.

        Args:
            offset: where the last committed batch ends, for a database; None before the first or for topics.
            level: whether the sinks hold everything that the source offered a moment ago; None when it could not be
                asked.
            health: the health of the source's capture, if known.
            complete_until: the completeness that the committed batches have.
            behind_messages: for topics, how many messages wait.
        """
        with self._lock:
            lagging = offset.tables if offset is not None else {}
            for name, table in lagging.items():
                if table.rows >= 0:
                    self._estimates[name] = table.rows
            names = dict.fromkeys([*self._counts, *lagging])
            tables = tuple(self._table(name, offset) for name in names)
            return PipelineProgress(
                batches=self._batches,
                rows=sum(sum(by_op.values()) for by_op in self._counts.values()),
                rows_per_second=self._rate(),
                lag_seconds=self._lag(offset, level, health),
                position=offset.commit if offset is not None else "",
                snapshotting=offset is not None and not offset.is_level,
                tables=tables,
                health=health,
                complete_until=complete_until,
                behind_commits=None if health is None else health.waiting_commits,
                behind_messages=behind_messages,
                done=self._done_count,
                recent=tuple(self._done),
                messages=self._messages,
            )

    def _table(self, name: str, offset: Offset | None) -> TableState:
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
        return TableState(name, rows, self._estimates.get(name, -1), snapshot, read)

    def _rate(self) -> float:
        now = self._clock()
        while len(self._recent) > 1 and now - self._recent[1][0] > _WINDOW_SECONDS:
            self._recent.popleft()
        # The first entry only marks where the window begins: its rows came before.
        span = now - self._recent[0][0]
        return sum(rows for _, rows in list(self._recent)[1:]) / span if span > 0 else 0.0

    def _lag(self, offset: Offset | None, level: bool | None, health: Health | None) -> float | None:
        if level is None:
            return None
        now = self._now()
        late = health is not None and health.is_late
        behind = health.behind_seconds if health is not None and late else None
        if level and not late:
            self._level_since = now
            return 0.0
        if level and behind is not None:
            # What was captured is here; what was not is as late as the capture.
            return behind
        applied = _utc(offset.commit_time) if offset is not None else _utc(self._newest)
        # After an idle hour the last commit is an hour old, but we were level a moment ago: the later of both is the
        # truth.
        since = max((t for t in (applied, self._level_since) if t is not None), default=None)
        if since is None:
            return behind
        return max(0.0, (now - since).total_seconds(), behind or 0.0)


def _utc(time: dt.datetime | None) -> dt.datetime | None:
    return time.replace(tzinfo=dt.UTC) if time is not None and time.tzinfo is None else time
