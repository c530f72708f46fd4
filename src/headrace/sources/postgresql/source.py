"""`PostgresSource`: tables of a PostgreSQL database, snapshotted at one point of the log and then followed by it.

Offsets name positions in the log. The permanent slot keeps the log for the pipeline and is never streamed: readers
stream temporary copies of it, so the same window can be read again, by several tasks, byte for byte. The slot goes on
only when all sinks have a batch.

Source: PostgreSQL's documentation of logical decoding; Debezium's documentation of its PostgreSQL connector.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.permissions import MissingPermission
from headrace.sources.health import Health
from headrace.sources.log.source import LogSource
from headrace.sources.offset import Offset
from headrace.sources.postgresql import catalog_statements, lsn
from headrace.sources.postgresql.captured_table import PostgresTable, tables_of
from headrace.sources.postgresql.catalog import captured_tables, left_out, means
from headrace.sources.postgresql.checks import HealthProbe, missing_permissions
from headrace.sources.postgresql.connection import connect
from headrace.sources.postgresql.earlier_structures import statement
from headrace.sources.postgresql.incremental import check_filter
from headrace.sources.postgresql.markers import PostgresMarkers
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.planner import Planner
from headrace.sources.postgresql.printed import printed_tables
from headrace.sources.postgresql.signal_table import insert_signal, require_signal_table
from headrace.sources.postgresql.slices import (
    IncrementalSlice,
    PostgresSlice,
    SnapshotSlice,
    StreamSlice,
    Window,
)
from headrace.sources.postgresql.stream_state import StreamState, written_commit
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.printed_tables import PrintedTable
from headrace.sources.rows import Marker
from headrace.sources.signals import Signal
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import IncrementalChunk
from headrace.sources.snapshots.select_overrides import SelectOverrides
from headrace.sources.table_versions import NOW
from headrace.sources.tables.rewrites import Unlogged
from headrace.sources.tables.table_rules import TableRules
from headrace.sources.tables.unmatched import Unmatched, columns_of, gone_table, has_names, unmatched


class PostgresSource(LogSource[PostgresTable, Planner]):
    """Changes of a PostgreSQL database from its write-ahead log, by pgoutput."""

    name = "postgresql"
    address = ("postgres", "5432")
    settings: PostgresSettings
    kept_tables = tables_of
    kept_state = StreamState
    examples: ClassVar[Mapping[str, str]] = {"hostname": "db.example.com", "database": "shop", "user": "cdc"}
    example_schema = "public"
    offered = ("port", "slot", "snapshot_mode", "sslmode")

    def __init__(self, settings: PostgresSettings) -> None:
        super().__init__(settings)
        # Only to find errors at once.
        TableRules.of(settings)
        SelectOverrides.of(settings)

    def left_out(self) -> Sequence[Unlogged]:
        """Tables with columns that the server computes and does not send."""
        with connect(self.settings) as connection:
            captured = captured_tables(connection, self.settings.database, self.settings, strict=False)
            return list(left_out(captured.values(), self.settings.publication_name, connection.version))

    def unmatched(self, offset: Offset) -> Sequence[Unmatched]:
        """Names that match no table that is captured now or was captured before."""
        if not has_names(self.settings):
            return ()
        with connect(self.settings) as connection:
            captured = captured_tables(connection, self.settings.database, self.settings, strict=False)
            rows = connection.rows(catalog_statements.TABLES)
        tables = [TableId(self.settings.database, str(schema), str(name)) for _, schema, name, *_ in rows]
        gone = [gone_table(path, self.settings.database) for path in offset.tables_seen if path not in captured]
        return unmatched(self.settings, [*map(columns_of, captured.values()), *gone], tables, selects=False)

    def head(self) -> str:
        """How far the log is written. It moves on even where nothing is changed."""
        if self.settings.snapshot_mode == "initial_only":
            return lsn.ZERO
        with connect(self.settings) as connection:
            return written_commit(connection)

    def connect(self) -> None:
        connect(self.settings).close()

    def missing_permissions(self) -> Sequence[MissingPermission]:
        return missing_permissions(self.settings)

    def printed_tables(self) -> Iterator[PrintedTable]:
        return printed_tables(self.settings)

    def execute(self, statement: str) -> None:
        with connect(self.settings) as connection:
            connection.run(statement)

    def _new_planner(self) -> Planner:
        return Planner(self.settings, f"{self.name}:{self.settings.database}")

    def _captured(self, *, strict: bool, known: Collection[str] = ()) -> Mapping[str, PostgresTable]:
        with connect(self.settings) as connection:
            return captured_tables(connection, self.settings.database, self.settings, strict=strict, known=known)

    def _means(self, path: str) -> bool:
        return means(self.settings, path)

    def _markers(self, end: Offset) -> PostgresMarkers:
        return PostgresMarkers(self.settings.database)

    def _chunks(self, table: PostgresTable, chunks: Sequence[Chunk], end: Offset) -> Iterator[PostgresSlice]:
        path = table.id.path
        exported = self._planner.exported(path, end.tables[path])
        if exported is not None or self._retries.call(partial(self._planner.can_be_read, path, table)):
            yield from (SnapshotSlice(table, chunk, end.capture_time, exported) for chunk in chunks)

    def _increment(self, table: PostgresTable, chunk: IncrementalChunk, end: Offset) -> PostgresSlice:
        return IncrementalSlice(table, chunk, end.capture_time, end.commit)

    def _windows(
        self, start: Offset, end: Offset, tables: Mapping[str, PostgresTable], after: Mapping[str, str]
    ) -> Iterator[PostgresSlice]:
        state = StreamState.of(end)
        # One that had another name in between is the same table all along.
        before = {path: table.oid for path, table in tables_of(start.schemas).items()}
        kept = tuple(t.oid for path, t in tables_of(end.schemas).items() if before.get(path) == t.oid)
        earlier = state.earlier
        earlier_tables = {p: table for p, table in earlier.before(tables_of(end.schemas)).items() if p in tables}
        changed = lsn.boundary(earlier.until) if earlier else 0
        for begin, upto in pairwise(map(lsn.boundary, (start.commit, *state.cuts, end.commit))):
            window = Window(
                begin,
                upto,
                self.settings.database,
                tables,
                after,
                kept,
                earlier_tables,
                TypeCatalog(earlier.types),
                changed,
                is_last=upto == lsn.boundary(end.commit),
            )
            yield StreamSlice(window, end.capture_time, state.types)

    def _altered(self, start: Offset, end: Offset) -> Sequence[Marker]:
        """What was done to names of columns where the batch passes it; where rows are read, their reader says it."""
        state = StreamState.of(end)
        if start.is_nothing or state.reads or not start.commit < state.earlier.until <= end.commit:
            return ()
        now, announced = tables_of(end.schemas), self._markers(end)
        statements = ((now[path], statement(table, now[path])) for path, table in state.earlier.before(now).items())
        return tuple(announced.altered(table.schema, end.commit, text) for table, text in statements if text)

    def _health(self, offset: Offset | None) -> Health:
        """Whether the slot keeps what is needed, how much that is, and how far the stream is behind."""
        return HealthProbe(self.settings).ask(offset)

    def _check_filter(self, table: PostgresTable, filter: str) -> None:
        with connect(self.settings) as connection:
            check_filter(connection, table, filter)

    def _insert(self, signal: Signal) -> list[str]:
        with connect(self.settings) as connection:
            tables = captured_tables(connection, self.settings.database, self.settings, strict=False)
            table = require_signal_table(self.settings.signal_data_collection, self.settings.database, tables)
            insert_signal(connection, table, signal)
        return [f"table {table.id.path} of database {self.settings.database}"]

    def _position(self, text: str, head: str) -> str:
        """As in `LogSource`: an LSN as the server writes it, or `now`."""
        return _place(text, head)


def _place(text: str, head: str) -> str:
    """The commit up to which changes that begin before a position are delivered.

    Raises:
        OptionError: it is not a position.
    """
    if text.strip().lower() == NOW:
        return head
    try:
        return lsn.commit_before(lsn.of_server(text.strip()))
    except ValueError:
        if re.fullmatch(r"[0-9a-f]{16}", text.strip()):
            return text.strip()
        raise OptionError(
            f"'{text}' is no place in the log of PostgreSQL.",
            remedy="Write an LSN such as 16/B374D848, or now. The log is not searched by time.",
        ) from None
