"""A database's log in memory, and a planner on it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.changes import TableId
from headrace.errors import DataLossError
from headrace.settings import option
from headrace.sources.log.ad_hoc_reads import AdHocReads
from headrace.sources.log.planner import LogPlanner, PointWaits
from headrace.sources.log.window import Window, WindowState
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.first_reads import read_first
from headrace.sources.stream_options import HeartbeatSettings, SelectSettings, SignalSettings
from headrace.sources.tables.lost import WITHOUT_ROWS
from headrace.sources.tables.source_table import SourceTable
from headrace.testing.change_history import schema_of

Table = SourceTable[Any]
CLOCK = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class ToySettings(HeartbeatSettings, SignalSettings, SelectSettings):
    """The options by which batches are planned."""

    snapshot_mode: str = option("When tables are read.", default="initial")
    snapshot_chunks_per_batch: int = option("Chunks.", default=2)
    max_commits_per_trigger: int = option("Commits.", default=0)
    fail_on_data_loss: bool = option("Whether a loss stops the run.", default=True)


@dataclass(frozen=True)
class ToyState(WindowState):
    """What the offset keeps of the toy's window."""

    @classmethod
    def of_log(cls, offset: Offset) -> ToyState:
        data = offset.log
        return cls(cuts=tuple(data["cuts"]), reads=data["reads"], waiting=tuple(data["waiting"]))

    def to_json(self) -> dict[str, Any]:
        return {"cuts": list(self.cuts), "reads": self.reads, "waiting": list(self.waiting)}


@dataclass(frozen=True)
class Commit:
    """A commit in the log, with the tables whose rows it has."""

    tables: tuple[str, ...] = ()
    signals: tuple[Signal, ...] = ()
    size: int = 100


@dataclass
class ToyLog:
    """A server: its commits from the first one on, its tables, each with its chunks, and what it forgot.

    Args:
        tables: how many chunks each table has.
        keyless: those of them that have no key.
        commits: the log; the first commit has the number 1.
        forgotten: how many commits at its beginning are gone.
        resumes: whether it can be read on behind what is gone.
        point_waits: why no moment can be had now; empty where it can.
    """

    tables: dict[str, int] = field(default_factory=lambda: {"s.a": 3, "s.b": 1})
    keyless: tuple[str, ...] = ()
    commits: list[Commit] = field(default_factory=lambda: [Commit()])
    forgotten: int = 0
    resumes: bool = True
    point_waits: str = ""

    @property
    def head(self) -> str:
        return place(len(self.commits))

    def write(self, *tables: str, signals: tuple[Signal, ...] = (), size: int = 100) -> str:
        self.commits.append(Commit(tables, signals, size))
        return self.head

    def schemas(self) -> dict[str, Any]:
        return {path: path not in self.keyless for path in self.tables}


def place(number: int) -> str:
    """A place of the toy's log."""
    return f"{number:06}"


def tables_of(schemas: Mapping[str, Any]) -> dict[str, Table]:
    """The tables of an offset."""
    found = {}
    for path, keyed in schemas.items():
        schema, _, name = path.partition(".")
        found[path] = Table(schema_of(TableId("db", schema, name), {"id": "int32"}, ("id",)), (), ("id",) * keyed)
    return found


class ToyPlanner(LogPlanner[ToySettings, Table]):
    """A planner on a log in memory.

    Args:
        log: the server.
        options: the source's.
    """

    def __init__(self, log: ToyLog, **options: Any) -> None:
        settings = ToySettings(**options)
        super().__init__(settings, "toy:db", tables_of, AdHocReads(settings, "db", tables_of, ("skip",)))
        self.log = log
        self.kept: dict[str, str] = {}
        """The moments that are kept, by table."""

    def _disconnect(self) -> None:
        return None

    def _state(self, offset: Offset) -> ToyState:
        return ToyState.of_log(offset)

    def _in_same_log(self, start: Offset) -> Offset:
        self._require(start)
        return start

    def _require(self, start: Offset) -> None:
        if int(start.commit) < self.log.forgotten:
            raise DataLossError("The log forgot what follows.", remedy="Read again.")

    def _head(self) -> tuple[str, dt.datetime]:
        return self.log.head, CLOCK

    def _window(self, start: Offset, upto: str, commits: int) -> Window:
        self._require(start)
        found = Window(start.commit)
        rows = 0
        for number in range(int(start.commit), int(upto)):
            commit = self.log.commits[number]
            captured = any(table in start.schemas for table in commit.tables)
            found = replace(
                found,
                end=place(number + 1),
                rows=found.rows or captured,
                commit_time=CLOCK - dt.timedelta(hours=1) if captured else found.commit_time,
                signals=(*found.signals, *commit.signals),
                size=found.size + commit.size,
            )
            rows += captured
            if commits and rows == commits:
                break
        return found

    def _looked_up(self, start: Offset, window: Window | None, *, only_looks: bool = False) -> Offset:
        fresh = [path for path in self.log.tables if path not in start.known]
        if not fresh:
            return start
        reads = AdHoc.from_json(start.ad_hoc)
        first = read_first(self._settings, (table.id for table in tables_of(dict.fromkeys(fresh, True)).values()))
        reads = replace(reads, blocking=(*reads.blocking, *first))
        state = self._state(start)
        end = replace(start, known=tuple(self.log.tables), schemas=self.log.schemas(), ad_hoc=reads.to_json())
        return replace(state, waiting=(*state.waiting, *fresh)).in_offset(end)

    def _beginning(self) -> Offset:
        end = self._looked_at_beginning()
        if self._settings.snapshot_mode not in WITHOUT_ROWS:
            self.kept = dict.fromkeys(self.log.tables, end.commit)
        return end

    def _looked_at_beginning(self) -> Offset:
        schemas = self.log.schemas()
        end = Offset(source=self._identity, commit=self.log.head, known=tuple(schemas), schemas=schemas)
        return ToyState().in_offset(end)

    def _later(self, start: Offset) -> str | None:
        return place(self.log.forgotten) if self.log.resumes else None

    def _forget_log(self) -> None:
        self.log.forgotten = 0

    def _point(self, tables: Mapping[str, Table], *, waits: bool) -> str:
        if waits and self.log.point_waits:
            raise PointWaits(self.log.point_waits)
        self.kept = dict.fromkeys(tables, self.log.head)
        return self.log.head

    def _is_served(self, path: str, progress: TableProgress) -> bool:
        return self.kept.get(path) == progress.commit

    def _release_point(self) -> None:
        self.kept = {}

    def _estimates(self, tables: Sequence[Table]) -> dict[str, int]:
        return {table.id.path: self.log.tables[table.id.path] for table in tables}

    def _more_chunks(self, path: str, table: Table, progress: TableProgress, budget: int) -> TableProgress:
        last = self.log.tables[path]
        budget = budget if table.chunk_key or not budget else last
        upto = min(last, progress.chunk + budget)
        bounds = tuple((str(n),) for n in range(progress.chunk + 1, upto + 1))
        return replace(progress, bounds=bounds, done=upto == last)

    def _more_reads(self, reads: AdHoc, end: Offset, budget: int) -> AdHoc:
        return reads
