"""Where a pipeline stands, from its checkpoint and its source, whether it runs or not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headrace.observe.completeness import of_tables
from headrace.observe.history import KeptFigures
from headrace.observe.messages import MessageCounts, SkippedMessages
from headrace.observe.parked_tables import ParkedTable
from headrace.observe.progress import PipelineProgress, TableState
from headrace.sources.databases import Offsets
from headrace.sources.health import CaptureState, Health, combined
from headrace.sources.offset import Offset
from headrace.sources.snapshots.ad_hoc import AdHoc

SnapshotState = Literal["", "running", "catching up"]


@dataclass(frozen=True)
class TableStatus:
    """One table.

    Args:
        table: `schema.name`.
        complete_until: everything that was committed before this is in all sinks; None while nothing is complete.
        snapshot: `running`, `catching up` (complete, changes made meanwhile follow), or empty.
        chunks: snapshot chunks in all sinks while it runs.
        estimate: the table's rows when its snapshot began, from the source's catalog; -1 if unknown.
        lost: changes of it are missing in the last batch, because the source had deleted them.
        captured: whether it is captured still; where not, what happens to it is missing.
        skipped: the commits after which and up to which changes are missing because a user skipped them; None where
            none is, or where the table was read again since.
        unequal: the commit up to which it equals the source, and the time of that where it is known, because a change
            of structure may have changed rows after that; None where none did, or where it was read again since.
        read_again: whether it is not equal and the pipeline reads it again as a whole, or will without being asked.
        parked: since when and why its changes are left out; None where they are not.
    """

    table: str
    complete_until: dt.datetime | None = None
    snapshot: SnapshotState = ""
    chunks: int = 0
    estimate: int = -1
    lost: bool = False
    captured: bool = True
    skipped: tuple[str, str] | None = None
    unequal: tuple[str, dt.datetime | None] | None = None
    read_again: bool = False
    parked: ParkedTable | None = None

    @property
    def is_fine(self) -> bool:
        """Whether nothing of it is missing, but for what the pipeline reads again by itself."""
        equal = self.unequal is None or self.read_again
        return equal and self.captured and self.skipped is None and self.parked is None


@dataclass(frozen=True)
class AdHocStatus:
    """A table that a signal requested.

    Args:
        table: `schema.name`.
        state: `running`, `waiting` for the tables before it, `paused`, or `stalled` while capture does not move.
        chunks: chunks in all sinks.
    """

    table: str
    state: Literal["running", "waiting", "paused", "stalled"]
    chunks: int = 0


@dataclass(frozen=True)
class DatabaseStatus:
    """One database of a pipeline.

    Args:
        name: the database.
        position: the last commit that is in all sinks; empty before the first batch.
        commit_time: when that was committed in the source; None when unknown.
        lag_seconds: 0 when all that was committed is in the sinks; else how long ago the oldest change was committed
            that is not, or may not be because capture is behind; None if the source was not queried or not reached.
        health: the health of the source's capture; None if it was not queried.
        answered: whether the source answered.
        tables: in the order in which they were first captured.
        ad_hoc: snapshots that signals requested, in their order.
    """

    name: str
    position: str = ""
    commit_time: dt.datetime | None = None
    lag_seconds: float | None = None
    health: Health | None = None
    answered: bool = True
    tables: tuple[TableStatus, ...] = ()
    ad_hoc: tuple[AdHocStatus, ...] = ()

    @property
    def is_fine(self) -> bool:
        """Whether the source answers and captures every table, and nothing that is needed is deleted or about to be, or
        was skipped, or changed without a change in the log and is not read again; and no table is parked.
        """
        if not all(table.is_fine for table in self.tables):
            return False
        if self.health is None:
            return self.answered
        return self.answered and self.health.state is not CaptureState.NOT_CAPTURING and not self.health.at_risk


@dataclass(frozen=True)
class PipelineStatus:
    """Where a pipeline stands.

    Args:
        name: the pipeline's.
        checkpoint: path or URL.
        batch: the newest batch that is in all sinks; None before the first.
        running: whether a run holds the checkpoint; None when that can't be seen, as on an object store.
        process: that run's process id.
        host: the machine where it is, where that is another one or may be; else empty.
        databases: one for each database that is captured; none where the source is Kafka.
        topics: for Kafka the next offset of each partition, by topic.
        messages: the messages that gave no change since the checkpoint was made, or not all of it; None for a database
            where there is none.
        skipped: messages of Kafka that a user passed over, and that were not read since.
        run: the last figures that a run kept, of now or of before it ended; None where none did.
    """

    name: str
    checkpoint: str
    batch: int | None = None
    running: bool | None = False
    process: int | None = None
    host: str = ""
    databases: tuple[DatabaseStatus, ...] = ()
    topics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    messages: MessageCounts | None = None
    skipped: tuple[SkippedMessages, ...] = ()
    run: KeptFigures | None = None

    @property
    def is_fine(self) -> bool:
        """Whether every database is, and no message was left out because it could not be read, or was skipped."""
        left_out = self.messages is not None and self.messages.left_out > 0
        return not left_out and not self.skipped and all(database.is_fine for database in self.databases)

    @property
    def complete_until(self) -> dt.datetime | None:
        """Everything that was committed before this is in all sinks, in every table; None when any has no such time."""
        times = [table.complete_until for database in self.databases for table in database.tables]
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    def told_by_run(self, now: float) -> KeptFigures | None:
        """The figures of a run that works at this time (seconds since 1970) and keeps them; None where none does."""
        works = self.run is not None and self.running is not False and self.run.are_fresh(now)
        return self.run if works else None

    def progress(self) -> PipelineProgress:
        """The same as a run says it of itself, without what only a run counts."""
        several = len(self.databases) > 1
        lags = [database.lag_seconds for database in self.databases]
        known = [lag for lag in lags if lag is not None]
        healths = {database.name: database.health for database in self.databases if database.health is not None}
        tables = [
            TableState(
                f"{database.name}.{table.table}" if several else table.table,
                {},
                table.estimate,
                table.snapshot,
                complete_until=table.complete_until,
                captured=table.captured,
                lost=table.lost or table.skipped is not None,
                unequal=table.unequal is not None,
                parked="" if table.parked is None else table.parked.text,
            )
            for database in self.databases
            for table in database.tables
        ]
        return PipelineProgress(
            lag_seconds=max(known) if known and len(known) == len(lags) else None,
            snapshotting=any(table.snapshot for table in tables),
            tables=tuple(tables),
            health=combined(healths) if healths else None,
            complete_until=self.complete_until,
            messages=self.messages or MessageCounts(),
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names; times in ISO 8601."""
        return {
            "name": self.name,
            "checkpoint": self.checkpoint,
            "batch": self.batch,
            "running": self.running,
            "process": self.process,
            "host": self.host or None,
            "fine": self.is_fine,
            "complete_until": _text(self.complete_until),
            "databases": {database.name: _database(database) for database in self.databases},
            "topics": {topic: dict(ends) for topic, ends in self.topics.items()},
            "messages": None if self.messages is None else self.messages.to_json(),
            "skipped": [one.to_json() for one in self.skipped],
            "run": None if self.run is None else dict(self.run.figures),
        }


def database_status(
    name: str,
    offset: Offset,
    head: str | None,
    health: Health | None,
    now: dt.datetime,
    *,
    asked: bool = True,
    parked: Mapping[str, ParkedTable] | None = None,
) -> DatabaseStatus:
    """One database's status.

    Args:
        name: the database.
        offset: where the newest batch ends that is in all sinks.
        head: the newest commit of the source; None if it was not queried, or can't be reached.
        health: the health of the source.
        now: the time of day, for a source that does not say its own.
        asked: whether the source was queried.
        parked: the tables whose changes are left out, by path.
    """
    out = parked or {}
    complete = of_tables(offset, out)
    uncaptured = tuple(offset.uncaptured) if health is None else health.uncaptured
    paths = (*offset.known, *(path for path in uncaptured if path not in offset.known))
    return DatabaseStatus(
        name=name,
        position=offset.commit,
        commit_time=offset.commit_time,
        lag_seconds=_lag(name, offset, head, health, now),
        health=health,
        answered=head is not None or not asked,
        tables=tuple(
            replace(
                TableStatus(path, captured=False) if path in uncaptured else _table(path, offset, complete[path]),
                parked=out.get(path),
            )
            for path in paths
        ),
        ad_hoc=_ad_hoc(offset),
    )


def _lag(name: str, offset: Offset, head: str | None, health: Health | None, now: dt.datetime) -> float | None:
    if head is None:
        return None
    late = (health.behind_seconds if health is not None and health.is_late else None) or 0.0
    if Offsets({name: offset}).reached({name: head}):
        return late
    since = offset.commit_time
    if offset.is_level and health is not None and health.waiting_since is not None:
        # After a quiet hour the last commit is an hour old, but the first one after it is what is late.
        since = health.waiting_since
    elif offset.is_level and since is not None and health is not None and health.quiet_until is not None:
        since = max(since, health.quiet_until)
    if since is None:
        return None
    clock = health.checked if health is not None and health.checked is not None else now
    return max(late, (clock - since).total_seconds())


def _table(path: str, offset: Offset, complete: dt.datetime | None) -> TableStatus:
    progress = offset.tables.get(path)
    skipped = offset.skipped.get(path)
    lost = path in offset.gaps and skipped is None
    unequal = offset.unequal.get(path)
    again = unequal is not None and AdHoc.from_json(offset.ad_hoc).reads_again(path)
    if progress is None or (progress.done and progress.commit >= offset.commit):
        return TableStatus(path, complete, lost=lost, skipped=skipped, unequal=unequal, read_again=again)
    state: SnapshotState = "catching up" if progress.done else "running"
    chunks = progress.chunk + len(progress.bounds)
    return TableStatus(
        path, complete, state, chunks, progress.rows, lost, skipped=skipped, unequal=unequal, read_again=again
    )


def _ad_hoc(offset: Offset) -> tuple[AdHocStatus, ...]:
    asked = AdHoc.from_json(offset.ad_hoc)
    requests = [AdHocStatus(path, "waiting") for path in asked.blocking]
    first: Literal["running", "paused", "stalled"] = (
        "paused" if asked.paused else "stalled" if asked.stalled else "running"
    )
    for number, request in enumerate(request for request in asked.requests if not request.done):
        state: Literal["running", "waiting", "paused", "stalled"] = "waiting" if number else first
        requests.append(AdHocStatus(request.table, state, request.chunk + len(request.bounds)))
    return tuple(requests)


def _database(status: DatabaseStatus) -> dict[str, Any]:
    return {
        "position": status.position or None,
        "commit_time": _text(status.commit_time),
        "lag_seconds": status.lag_seconds,
        "answered": status.answered,
        "health": None if status.health is None else health_json(status.health),
        "tables": {
            table.table: {
                "complete_until": _text(table.complete_until),
                "snapshot": table.snapshot or None,
                "chunks": table.chunks if table.snapshot else None,
                "estimated_rows": table.estimate if table.estimate >= 0 else None,
                "lost": table.lost,
                "captured": table.captured,
                "skipped": None if table.skipped is None else list(table.skipped),
                "unequal": None if table.unequal is None else _unequal(table.unequal, read_again=table.read_again),
                "parked": None if table.parked is None else _parked(table.parked),
            }
            for table in status.tables
        },
        "ad_hoc": [{"table": one.table, "state": one.state, "chunks": one.chunks} for one in status.ad_hoc],
    }


def _unequal(since: tuple[str, dt.datetime | None], *, read_again: bool) -> dict[str, Any]:
    position, time = since
    return {"since": _text(time), "position": position, "read_again": read_again}


def _parked(parked: ParkedTable) -> dict[str, Any]:
    names = ("batch", "at", "sentence", "remedy", "command")
    return {name: value for name, value in parked.to_json().items() if name in names}


def health_json(health: Health) -> dict[str, Any]:
    """A health as JSON values under stable names."""
    return {
        "state": health.state.value,
        "sentence": health.sentence,
        "remedy": health.remedy,
        "captured_until": _text(health.captured_until),
        "behind_seconds": health.behind_seconds,
        "waiting_since": _text(health.waiting_since),
        "waiting_commits": health.waiting_commits,
        "retention_seconds": health.retention_seconds,
        "headroom_seconds": health.headroom_seconds,
        "lost": list(health.lost),
        "uncaptured": list(health.uncaptured),
        "log_used_bytes": health.log_used_bytes,
        "retained_bytes": health.retained_bytes,
        "headroom_bytes": health.headroom_bytes,
        "not_seen": list(health.not_seen),
    }


def _text(time: dt.datetime | None) -> str | None:
    return None if time is None else time.isoformat()
