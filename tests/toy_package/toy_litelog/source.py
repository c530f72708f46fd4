"""The face of the source: what Spark's reader, the commands and the pipeline ask."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from headrace.changes import Operation, Position, TableId, TableSchema
from headrace.errors import OptionError
from headrace.sources.base import ONE_CHUNK, Limit, Slice, Source
from headrace.sources.health import CaptureState, Health
from headrace.sources.log.window import LogSlice, MarkerSlice, checked_skip, refuse_rewind, slice_of
from headrace.sources.offset import Offset
from headrace.sources.rows import Marker
from headrace.sources.signal_files import has_files, signal_file
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc, requested_tables
from headrace.sources.snapshots.chunks import LAST_OF_TABLE, found_empty, plan_chunks
from headrace.sources.snapshots.ends_equal import end_markers
from headrace.sources.table_versions import NOW, MovePlan, TableMove
from headrace.sources.tables.lost import forgiven
from headrace.sources.tables.table_rules import TableRules
from toy_litelog import log
from toy_litelog.catalog import captured, database, tables_of
from toy_litelog.options import LitelogSettings
from toy_litelog.planner import LitelogState, Planner
from toy_litelog.rows import CONNECTOR, IncrementalSlice, SnapshotSlice, StreamSlice

_GAP_ORDER = "g"
"""Order of a gap: after every streamed change of the commit before it."""


class LitelogSource(Source):
    """Changes of a SQLite database from a log that triggers write."""

    name = "litelog"
    settings: LitelogSettings
    example_schema = "main"
    knows_schemas = True
    moves = frozenset(("skip",))
    whole_tables: ClassVar[Mapping[str, Any]] = {
        "snapshot_mode": "initial_only", "snapshot_chunk_rows": 0, "signal_path": None,
    }  # fmt: skip

    def __init__(self, settings: LitelogSettings) -> None:
        super().__init__(settings)
        self._rules = TableRules.of(settings)
        self._planner_made: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors read slices, which carry what they need.
        return {**self.__dict__, "_planner_made": None}

    def databases(self) -> Mapping[str, Source]:
        return {database(self.settings.path): self}

    def tables(self, known: Collection[str] = ()) -> Sequence[TableSchema]:
        known = forgiven(known, self.settings)
        with log.connected(self.settings.path) as connection:
            found = captured(connection, self.settings.path, self.settings.tables, self._rules)
        missing = [path for path in self.settings.tables if path not in found and path not in known and "*" not in path]
        if missing:
            raise OptionError(
                f"Table '{missing[0]}' is not captured.", remedy="Run toy_litelog.install.capture for it."
            )
        return [table.schema for table in found.values()]

    def schemas(self, offset: Offset) -> Sequence[TableSchema]:
        return [table.schema for table in tables_of(offset.schemas).values()]

    def head(self) -> str:
        with log.connected(self.settings.path) as connection:
            return log.text(log.head(connection))

    def preview(self, start: Offset, now: dt.datetime, limit: Limit = ONE_CHUNK, *, restarted: bool = True) -> Offset:
        return Planner(self.settings).preview(start, restarted=restarted)

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        return self._planner.advance(start, limit, now)

    @property
    def _planner(self) -> Planner:
        if self._planner_made is None:
            self._planner_made = Planner(self.settings)
        return self._planner_made

    def plan(self, start: Offset, end: Offset) -> list[Slice]:
        return [] if start == end else [slice.planned() for slice in self._slices(start, end)]

    def _slices(self, start: Offset, end: Offset) -> Iterator[LogSlice[Any]]:
        tables, before = tables_of(end.schemas), tables_of(start.schemas)
        for chunk in plan_chunks(start, end):
            yield SnapshotSlice(tables[chunk.table], chunk, end.capture_time)
        state = LitelogState.of(end)
        if not start.is_nothing and state.reads:
            read = {path: table for path, table in {**before, **tables}.items() if path not in state.waiting}
            behind = {path: progress.commit for path, progress in start.tables.items()}
            yield StreamSlice(start.commit, end.commit, read, behind, end.capture_time)
        if end.ad_hoc != start.ad_hoc:
            for increment in AdHoc.from_json(end.ad_hoc).chunks(end.reads):
                yield IncrementalSlice(tables[increment.table], increment, end.commit, end.capture_time)
        markers = [*_empty(start, end), *_gaps(start, end), *end_markers(start, end, CONNECTOR, tables)]
        if markers:
            yield MarkerSlice(tuple(markers), end.capture_time)

    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        yield from slice_of(slice).rows(self.settings)

    def without(self, slice: Slice, table: str) -> Slice | None:
        left = slice_of(slice).without(table)
        return None if left is None else left.planned()

    def schemas_in(self, slice: Slice) -> Sequence[TableSchema]:
        return slice_of(slice).schemas

    # Who looks at it, and who asks for something.

    def health(self, offset: Offset | None = None) -> Health:
        """Triggers capture within the transaction, so nothing is late; what is left of the log may be too little."""
        with log.connected(self.settings.path) as connection:
            head, kept = log.head(connection), log.first_kept(connection)
        known = offset is not None and not offset.is_nothing
        waiting = head - int(offset.commit) if offset is not None and known else None
        lost = tuple(offset.known) if offset is not None and known and kept > int(offset.commit) + 1 else ()
        return Health(
            CaptureState.CAPTURING,
            f"The log has the entries {kept} to {head}." if head >= kept else "The log is empty.",
            "Start with a new checkpoint." if lost else "",
            checked=dt.datetime.now(dt.UTC),
            waiting_commits=waiting,
            lost=lost,
            uncaptured=() if offset is None else tuple(offset.uncaptured),
        )

    def check_signal(self, signal: Signal) -> None:
        with log.connected(self.settings.path) as connection:
            found = captured(connection, self.settings.path, self.settings.tables, self._rules)
            for id, filter in requested_tables(signal, found.values()):
                connection.execute(f"SELECT 1 FROM {id.name} WHERE ({filter}) AND 1 = 0")

    def signal(self, signal: Signal) -> Sequence[str]:
        """A file: this source writes nothing to the database."""
        return [f"file {signal_file(self.settings.signal_path, signal)}"]

    def has_signals(self, offset: Offset) -> bool:
        return has_files(self.settings.signal_path, AdHoc.from_json(offset.ad_hoc).files)

    def move(self, wanted: TableMove, offset: Offset) -> MovePlan:
        refuse_rewind(wanted)
        head = self.head()
        to = head if wanted.to.strip().lower() == NOW else wanted.to
        return checked_skip(replace(wanted, to=to), offset, head)


def _empty(start: Offset, end: Offset) -> Iterator[Marker]:
    tables = tables_of(end.schemas)
    for path, position in found_empty(start, end):
        schema = tables[path].schema
        facts = {"connector": CONNECTOR}
        yield Marker(Operation.SCHEMA, position, facts, schema.id, schema=schema, snapshot=LAST_OF_TABLE)


def _gaps(start: Offset, end: Offset) -> Iterator[Marker]:
    if end.gaps == start.gaps:
        return
    for path, (after, upto) in sorted(end.gaps.items()):
        schema, _, name = path.partition(".")
        why = "a repair skipped them" if end.skipped.get(path) == (after, upto) else "the log did not keep them"
        text = f"Changes of table '{path}' from entry {int(after) + 1} to {int(upto)} are lost: {why}."
        table = TableId(end.source.partition(":")[2], schema, name)
        facts = {"connector": CONNECTOR, "from": after, "to": upto}
        yield Marker(Operation.GAP, Position(after, _GAP_ORDER), facts, table, error=text)
