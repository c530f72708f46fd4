"""A database's log in memory, and a planner on it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.changes import TableId
from headrace.errors import DataLossError
from headrace.settings import option
from headrace.sources.log.ad_hoc_reads import AdHocReads, KeyRanges
from headrace.sources.log.planner import LogPlanner, PointWaits
from headrace.sources.log.window import Window, WindowState
from headrace.sources.offset import Key, Offset, TableProgress
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import read_first
from headrace.sources.snapshots.requests import RequestWaits
from headrace.sources.stream_options import HeartbeatSettings, SelectSettings, SignalSettings
from headrace.sources.tables.lost import WITHOUT_ROWS
from headrace.sources.tables.rewrites import Rewrite, RewriteSettings, follow_rewrites
from headrace.sources.tables.table_rules import SourceTable
from headrace.testing.change_history import schema_of

Table = SourceTable[Any]
ROWS = 2048
CLOCK = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class ToySettings(HeartbeatSettings, SignalSettings, SelectSettings, RewriteSettings):
    """The options by which batches are planned."""

    snapshot_mode: str = option("When tables are read.", default="initial")
    snapshot_chunks_per_batch: int = option("Chunks.", default=2)
    snapshot_chunk_rows: int = option("Rows.", default=0)
    max_commits_per_trigger: int = option("Commits.", default=0)
    fail_on_data_loss: bool = option("Whether a loss stops the run.", default=True)


@dataclass(frozen=True)
class ToyState(WindowState):
    """What the offset keeps of the toy's window."""


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
        versions: how often the definition of a table was altered.
        rewritten: tables whose rows statements changed since the catalog was looked at last.
        asked: the tables that were asked for keys, in order.
    """

    tables: dict[str, int] = field(default_factory=lambda: {"s.a": 3, "s.b": 1})
    keyless: tuple[str, ...] = ()
    commits: list[Commit] = field(default_factory=lambda: [Commit()])
    forgotten: int = 0
    resumes: bool = True
    point_waits: str = ""
    versions: dict[str, int] = field(default_factory=dict)
    rewritten: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    @property
    def head(self) -> str:
        return place(len(self.commits))

    def write(self, *tables: str, signals: tuple[Signal, ...] = (), size: int = 100) -> str:
        self.commits.append(Commit(tables, signals, size))
        return self.head

    def schemas(self) -> dict[str, Any]:
        return {path: [path not in self.keyless, self.versions.get(path, 0)] for path in self.tables}


def place(number: int) -> str:
    """A place of the toy's log."""
    return f"{number:06}"


def tables_of(schemas: Mapping[str, Any]) -> dict[str, Table]:
    """The tables of an offset."""
    found = {}
    for path, (keyed, version) in schemas.items():
        schema, _, name = path.partition(".")
        columns = {"id": "int32"} | ({f"v{version}": "int32"} if version else {})
        found[path] = Table(schema_of(TableId("db", schema, name), columns, ("id",)), (), ("id",) * keyed)
    return found


class ToyPlanner(LogPlanner[ToySettings, Table, Any]):
    """A planner on a log in memory.

    Args:
        log: the server.
        options: the source's.
    """

    kept_tables = staticmethod(tables_of)
    kept_state = ToyState

    def __init__(self, log: ToyLog, **options: Any) -> None:
        settings = ToySettings(**options)
        super().__init__(settings, "toy:db", AdHocReads(settings, "db", tables_of, ("skip",)))
        self.log = log
        self.kept: dict[str, str] = {}
        """The moments that are kept, by table."""

    def _connect(self) -> Any:
        raise AssertionError("there is no server")

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

    def _follow_tables(self, start: Offset, window: Window | None, *, read_only: bool = False) -> Offset:
        schemas, known = self.log.schemas(), tables_of(self.log.schemas())
        fresh = [path for path in schemas if path not in start.known]
        if not fresh and not self.log.rewritten and schemas == start.schemas:
            return start
        rewrites = [Rewrite(path, "its rows were changed") for path in self.log.rewritten]
        if not read_only:
            self.log.rewritten.clear()
        read = read_first(self._settings, (table.id for table in known.values()))
        reads = follow_rewrites(
            rewrites, AdHoc.from_json(start.ad_hoc), known, self._settings, read=read, rows=self._estimates
        )
        first = [path for path in read if path in fresh]
        reads = replace(reads, blocking=(*reads.blocking, *first))
        state = ToyState.of(start)
        end = replace(start, known=tuple(schemas), schemas=schemas, ad_hoc=reads.to_json())
        return replace(state, waiting=(*state.waiting, *fresh)).in_offset(end)

    def _beginning(self) -> Offset:
        end = self._preview_beginning()
        if self._settings.snapshot_mode not in WITHOUT_ROWS:
            self.kept = dict.fromkeys(self.log.tables, end.commit)
        return end

    def _preview_beginning(self) -> Offset:
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

    def _ranges(self) -> AbstractContextManager[KeyRanges[Table]]:
        return nullcontext(_Keys(self.log))


@dataclass(frozen=True)
class _Keys:
    """Keys of the log's tables: each has as many as it has chunks, and a key stands for `ROWS` rows."""

    log: ToyLog

    def _require_known(self, table: Table) -> None:
        self.log.asked.append(table.id.path)
        if table != tables_of(self.log.schemas())[table.id.path]:
            raise RequestWaits

    def greatest(self, table: Table, condition: str | None) -> list[Key]:
        self._require_known(table)
        count = self.log.tables[table.id.path]
        return [key(count)] if count else []

    def bounds(
        self, table: Table, lower: Key | None, last: Key, rows: int, chunks: int, condition: str | None
    ) -> list[Key]:
        self._require_known(table)
        step = max(rows // ROWS, 1)
        first = int(lower[0] or 0) if lower else 0
        return [key(at) for at in range(first + step, int(last[0] or 0) + 1, step)][:chunks]

    def definition(self, table: Table, before: str = "") -> str:
        return ""


def key(number: int) -> Key:
    """A key of the toy's tables."""
    return (f"{number:06}",)
