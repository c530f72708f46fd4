"""The face of the source: what Spark's reader, the commands and the pipeline ask."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing

from headrace.errors import OptionError
from headrace.sources.base import Source
from headrace.sources.health import CaptureState, Health
from headrace.sources.log.markers import LogMarkers
from headrace.sources.log.source import LogSource
from headrace.sources.offset import Offset
from headrace.sources.signals import Signal
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import IncrementalChunk
from headrace.sources.table_versions import NOW
from toy_litelog import log
from toy_litelog.catalog import SCHEMA, LiteTable, captured, database, means, quoted, tables_of
from toy_litelog.options import LitelogSettings
from toy_litelog.planner import LitelogState, Planner
from toy_litelog.rows import CONNECTOR, IncrementalSlice, SnapshotSlice, StreamSlice, Window, facts_of


class LitelogMarkers(LogMarkers):
    """What announcements say."""

    def facts(self, commit: str) -> Mapping[str, str]:
        return facts_of(commit)

    def lost(self, after: str, upto: str) -> tuple[Mapping[str, str], str, str]:
        first, last = str(int(after) + 1), str(int(upto))
        return {"from": first, "to": last}, f"from entry {first} to {last}", "the log did not keep them"


class LitelogSource(LogSource[LiteTable, Planner]):
    """Changes of a SQLite database from a log that triggers write."""

    name = "litelog"
    settings: LitelogSettings
    kept_tables = tables_of
    kept_state = LitelogState
    example_schema = SCHEMA

    def databases(self) -> Mapping[str, Source]:
        return {database(self.settings.path): self}

    def head(self) -> str:
        with closing(log.connect(self.settings.path)) as connection:
            return log.text(log.head(connection))

    def _new_planner(self) -> Planner:
        return Planner(self.settings)

    def _captured(self, *, strict: bool, known: Collection[str] = ()) -> Mapping[str, LiteTable]:
        with closing(log.connect(self.settings.path)) as connection:
            return captured(connection, self.settings, strict=strict and not known)

    def _means(self, path: str) -> bool:
        return means(self.settings, path)

    def _markers(self, end: Offset) -> LitelogMarkers:
        return LitelogMarkers(CONNECTOR, database(self.settings.path))

    def _chunks(self, table: LiteTable, chunks: Sequence[Chunk], end: Offset) -> Iterator[SnapshotSlice]:
        yield from (SnapshotSlice(table, chunk, end.capture_time) for chunk in chunks)

    def _increment(self, table: LiteTable, chunk: IncrementalChunk, end: Offset) -> IncrementalSlice:
        return IncrementalSlice(table, chunk, end.capture_time, end.commit)

    def _windows(
        self, start: Offset, end: Offset, tables: Mapping[str, LiteTable], after: Mapping[str, str]
    ) -> Iterator[StreamSlice]:
        # One task reads all; a source of large batches cuts them, in the order of their commits.
        yield StreamSlice(Window(start.commit, end.commit, tables, after), end.capture_time)

    def _health(self, offset: Offset | None) -> Health:
        """Triggers capture within the transaction, so nothing is late; what is left of the log may be too little."""
        with closing(log.connect(self.settings.path)) as connection:
            head, kept = log.head(connection), log.first_kept(connection)
        reached = None if offset is None or offset.is_nothing else int(offset.commit)
        is_lost = reached is not None and kept > reached + 1
        return Health(
            CaptureState.CAPTURING,
            f"The log has the entries {kept} to {head}." if head >= kept else "The log is empty.",
            "Start with a new checkpoint." if is_lost else "",
            checked=dt.datetime.now(dt.UTC),
            waiting_commits=None if reached is None else head - reached,
            lost=tuple(offset.known) if offset is not None and is_lost else (),
        )

    def _check_filter(self, table: LiteTable, filter: str) -> None:
        try:
            with closing(sqlite3.connect(self.settings.path)) as connection:
                connection.execute(f"SELECT 1 FROM {quoted(table.id.name)} WHERE ({filter}) AND 1 = 0")
        except sqlite3.Error as error:
            raise OptionError(
                f"The filter for table '{table.id.path}' is refused: {error}.", remedy="Correct it, and send it again."
            ) from error

    def _insert(self, signal: Signal) -> list[str]:
        name = self.settings.signal_data_collection.rpartition(".")[2]
        with closing(sqlite3.connect(self.settings.path)) as connection, connection:
            connection.execute(f"INSERT INTO {quoted(name)} VALUES (?, ?, ?)", (signal.id, signal.type, signal.data))
        return [f"table {SCHEMA}.{name}"]

    def _position(self, text: str, head: str) -> str:
        """As in `LogSource`: the number of an entry, or `now`."""
        given = text.strip()
        if given.lower() == NOW:
            return head
        if not given.isdecimal():
            raise OptionError(f"'{text}' is no place in the log.", remedy="Write the number of an entry, or now.")
        return log.text(int(given))
