"""`ChangeTableSource`: any number of tables of a server's databases, snapshotted and then followed by commit LSN.

Offsets name commits. A snapshot is read from the live tables and stamped with the newest captured commit; what was
committed between that and the read comes again as changes, which tables absorb. Later tables are snapshotted beside the
stream of the others.
"""

from __future__ import annotations

import datetime as dt
import time
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from headrace.changes import TableId, TableSchema
from headrace.errors import CaptureError, HeadraceError, OptionError, PositionMismatch
from headrace.permissions import MissingPermission
from headrace.sources.base import ONE_CHUNK, Limit, Slice, Source
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable, CatalogTable, columns_of
from headrace.sources.change_tables.clock import ServerZone
from headrace.sources.change_tables.connection import Connection, MissingObject, PassingRefusal
from headrace.sources.change_tables.dialect import Dialect
from headrace.sources.change_tables.guards import SameHistory
from headrace.sources.change_tables.moves import TableMoves
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.permissions import missing_on_tables
from headrace.sources.change_tables.planner import Planner
from headrace.sources.change_tables.schema_history import schema_histories
from headrace.sources.change_tables.signal_table import insert_signal, require_signal_table
from headrace.sources.change_tables.slices import slice_of
from headrace.sources.change_tables.slicing import Slicing
from headrace.sources.change_tables.snapshot_read import schema_lock
from headrace.sources.database_source import DatabaseSource
from headrace.sources.health import CaptureState, Health
from headrace.sources.offset import Offset
from headrace.sources.retries import Retries
from headrace.sources.signals import Signal, signal_table
from headrace.sources.snapshots.ad_hoc import requested_tables
from headrace.sources.snapshots.chunks import read_first
from headrace.sources.snapshots.requests import NO_ROW, refused_filter
from headrace.sources.snapshots.select_overrides import SelectOverrides
from headrace.sources.stream_options import WHOLE_TABLES
from headrace.sources.table_versions import MovePlan, TableMove
from headrace.sources.tables.lost import forgiven, is_named
from headrace.sources.tables.restricted import RestrictedRead, require_whole_reads
from headrace.sources.tables.rewrites import Unlogged
from headrace.sources.tables.selection import TableSelection
from headrace.sources.tables.table_rules import TableRules
from headrace.sources.tables.unmatched import Unmatched, gone_table, unmatched


class HealthProbe(Protocol):
    """Asks one database how its capture is."""

    def ask(self, offset: Offset | None) -> Health:
        """How it is now; `offset` says what is in all sinks. Raises nothing that a server may answer."""


_CATALOG_SECONDS = 30.0
"""How long a catalog is believed when nothing says that it changed."""


class ChangeTableSource(DatabaseSource):
    """Changes of a server's databases from change tables. Subclasses name the server, its options and its own part."""

    settings: ChangeTableSettings
    dialect: Dialect
    knows_schemas = True
    whole_tables = WHOLE_TABLES
    moves = frozenset(("rewind", "skip"))

    def __init__(self, settings: ChangeTableSettings, *, databases: Sequence[str] = ()) -> None:
        super().__init__(settings)
        if settings.tables_excluded and (settings.tables or settings.table):
            raise OptionError(
                "Options 'tables' and 'tables_excluded' can't be given together.", remedy="Keep one of them."
            )
        # Here only to say at once what can't be.
        TableRules.of(settings)
        SelectOverrides.of(settings)
        self._names = tuple(databases) or tuple(n for n in map(str.strip, settings.database.split(",")) if n)
        if not self._names:
            raise OptionError("Option 'database' names no database.", remedy="Write a name between the commas.")
        self._catalog: tuple[float, object, Mapping[str, CatalogTable]] | None = None
        self._seen: Mapping[str, CatalogTable] = {}
        self._planned = False
        self._lost: set[str] = set()
        self._probe: HealthProbe | None = None
        self._zone = ServerZone(settings)

    def __getstate__(self) -> dict[str, Any]:
        # Executors read slices, which carry what they need; the catalog stays with the planner.
        return {**self.__dict__, "_catalog": None, "_seen": {}, "_probe": None}

    def databases(self) -> Mapping[str, Source]:
        """One source for each database of the option `database`."""
        if len(self._names) == 1:
            return {self._names[0]: self}
        return {name: type(self)(self.settings.replaced(database=name), databases=self._names) for name in self._names}

    def tables(self, known: Collection[str] = ()) -> Sequence[TableSchema]:
        """What is captured now, in include-list order."""
        with self._asking() as connection:
            catalog = self._read_catalog(connection, strict=True, known=forgiven(known, self.settings))
            return [table.newest.schema for table in catalog.values()]

    def schemas(self, offset: Offset) -> Sequence[TableSchema]:
        """The schemas of each table that are still needed, oldest first."""
        histories = schema_histories(offset.schemas, self.dialect).values()
        return [version.table.schema for history in histories for version in history.versions]

    def unmatched(self, offset: Offset) -> Sequence[Unmatched]:
        """What stands for none of the tables that the catalog showed last, nor for one that was captured before."""
        known = [columns_of(table) for table in self._seen.values()]
        database = self.settings.database
        known += [gone_table(path, database) for path in offset.tables_seen if path not in self._seen]
        tables = [table.id for table in known]
        if self.settings.tables_excluded or len(self._names) > 1:
            with self._connect() as connection:
                rows = connection.rows(connection.statements.TABLES)
            tables = [TableId(database, str(schema).rstrip(), str(name)) for schema, name, *_ in rows]
        return unmatched(self.settings, known, tables, selects=offset.is_nothing and len(self._names) > 1)

    def head(self) -> str:
        """The newest captured transaction; what an idle server writes does not count."""
        if self.settings.snapshot_mode == "initial_only":
            return self.dialect.zero
        with self._asking() as connection:
            return self._newest_transaction(connection) or connection.dialect.zero

    def connect(self) -> None:
        self._connect().close()

    def missing_permissions(self) -> Sequence[MissingPermission]:
        """What the login may not read, or see of the server's jobs."""
        with self._asking() as connection:
            reason = connection.dialect.no_capture(connection, self.settings.database)
            if reason is not None:
                raise reason
            missing = list(self._missing_in_database(connection))
            if any(permission.required for permission in missing):
                # Without them the catalog can't be read, so which tables are meant is not known.
                return missing
            tables = self._captured(connection, strict=False)
            return [*missing, *missing_on_tables(connection, tables, self.settings, self.settings.user or "?")]

    def unlogged(self) -> Sequence[Unlogged]:
        """Tables of which the catalog shows that rows may change without a change in the log."""
        with self._asking() as connection:
            captured = [table.id.path for table in self._captured(connection, strict=False)]
            return [lack for lack in connection.dialect.unlogged(connection) if lack.table in captured]

    def restricted_reads(self) -> Sequence[RestrictedRead]:
        with self._asking() as connection:
            tables = [table.newest for table in self._captured(connection, strict=False)]
            return connection.dialect.restricted(connection, tables)

    def preview(self, start: Offset, now: dt.datetime, limit: Limit = ONE_CHUNK, *, restarted: bool = True) -> Offset:
        """What the next batch would begin with; tables are not locked, whatever the isolation of the snapshot."""
        with self._asking() as connection:
            catalog = self._read_catalog(connection, strict=start.is_nothing)
            planner = Planner(
                connection,
                self.settings,
                self._identity,
                catalog,
                health=self.health,
                zone=ServerZone(self.settings),
                means=self._means,
                restarted=restarted,
            )
            return planner.advance(start, limit, now)

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        """Where the next batch ends: more snapshot chunks, a window of commits, or both."""
        return Retries.of(self.settings, PassingRefusal).call(lambda: self._advanced(start, limit, now))

    def _advanced(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        with self._asking() as connection:
            catalog = self._known_catalog(connection, strict=start.is_nothing)
            if not self._planned:
                self._require_whole_reads(connection, catalog, start)
            if not start.is_nothing:
                return self._advance_by_catalog(connection, catalog, start, limit, now)
            tables = [table.newest for table in catalog.values()]
            with schema_lock(connection, self.settings, tables) as locked:
                if locked:
                    # Again, now that nobody can alter them.
                    catalog = self._known_catalog(connection, strict=True)
                return self._advance(connection, catalog, start, limit, now)

    def _require_whole_reads(self, connection: Connection, catalog: Mapping[str, CatalogTable], start: Offset) -> None:
        """See that tables are read as the log has them; of those that were read before this is only logged."""
        tables = [table.newest for table in catalog.values()]
        overrides = SelectOverrides.of(self.settings)
        ids = [table.id for table in tables if overrides.select(table.id) is None]
        restricted = connection.dialect.restricted(connection, tables)
        known = [replace(one, certain=one.certain and one.table not in start.known) for one in restricted]
        require_whole_reads(known, read_first(self.settings, ids))

    def _advance_by_catalog(
        self, connection: Connection, catalog: Mapping[str, CatalogTable], start: Offset, limit: Limit, now: dt.datetime
    ) -> Offset:
        """Where a batch ends whose change tables were still those of the catalog when its end was known.

        So a change table that is made later begins after that end, and can't pass for the one that was planned with.
        """
        while True:
            lost = self._lost
            end = self._advance(connection, catalog, start, limit, now)
            if end == start or self._catalog is None or self._state(connection) == self._catalog[1]:
                return end
            self._lost = lost
            catalog = self._known_catalog(connection, strict=False)

    def _advance(
        self, connection: Connection, catalog: Mapping[str, CatalogTable], start: Offset, limit: Limit, now: dt.datetime
    ) -> Offset:
        planner = Planner(
            connection,
            self.settings,
            self._identity,
            catalog,
            health=self.health,
            zone=self._zone,
            means=self._means,
            restarted=not self._planned,
            lost=self._lost,
        )
        end = planner.advance(start, limit, now)
        self._lost = set()
        self._planned = True
        return end

    def plan(self, start: Offset, end: Offset) -> list[Slice]:
        """Snapshot chunks by key range, and the stream by table and commit range."""
        if start == end:
            return []
        return Retries.of(self.settings, PassingRefusal).call(lambda: self._sliced(start, end))

    def _sliced(self, start: Offset, end: Offset) -> list[Slice]:
        with self._asking() as connection:
            slicing = Slicing(connection, self.settings, start, end)
            slices = slicing.slices()
            self._lost |= slicing.lost
            return slices

    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        """The change rows of one slice; opens connections of its own and closes them at the end."""
        retries = Retries.of(self.settings, PassingRefusal)
        share = slice_of(slice)
        yield from retries.rows(lambda: share.rows(self._connect, self.settings, self.dialect), same=share.same_rows)

    def without(self, slice: Slice, table: str) -> Slice | None:
        left = slice_of(slice).without(table)
        return None if left is None else left.planned()

    def schemas_in(self, slice: Slice) -> Sequence[TableSchema]:
        return slice_of(slice).schemas

    def health(self, offset: Offset | None = None) -> Health:
        """Whether the server captures and how far it is, and how long it keeps what it captured."""
        if self._probe is None:
            self._probe = self._health_probe()
        health = self._probe.ask(offset)
        known = Offset.nothing() if offset is None else offset
        if not known.is_nothing and health.state is not CaptureState.UNKNOWN:
            health = self._of_same_history(health, known)
        if not known.tables_seen or health.state is CaptureState.UNKNOWN:
            return replace(health, uncaptured=tuple(known.uncaptured))
        return replace(health, uncaptured=self._uncaptured(known))

    def _of_same_history(self, health: Health, offset: Offset) -> Health:
        """The health, or that a run would stop because the database is not the one that was read."""
        try:
            with self._asking() as connection:
                history, statements = SameHistory(connection, self.settings.database), connection.statements
                history.require_not_older(offset)
                head = connection.value(statements.MAX_LSN)
                if head is not None and lsn.read(head) > offset.commit:
                    history.require_same(offset, connection.value(statements.OLDEST_MAPPED))
        except PositionMismatch as error:
            return replace(health, state=CaptureState.NOT_CAPTURING, sentence=error.message, remedy=error.remedy)
        except HeadraceError:
            # What can't be asked is no other history; the run says what it is.
            return health
        return health

    def _captured_now(self, offset: Offset) -> Collection[str]:
        with self._asking() as connection:
            return self._known_catalog(connection, strict=False)

    @property
    def ends_equal(self) -> bool:
        """As of every source; and what is lost stops the run, for a task that finds it tells no planner."""
        return super().ends_equal and self.settings.fail_on_data_loss

    def check_signal(self, signal: Signal) -> None:
        """Whether the tables that it names are captured in one of the databases, and the server takes its filters."""
        sources = [source for source in self.databases().values() if isinstance(source, ChangeTableSource)]
        by_table: dict[TableId, tuple[ChangeTableSource, CapturedTable]] = {}
        for source in sources:
            with source._asking() as connection:
                catalog = source._read_catalog(connection, strict=False)
            by_table |= {table.newest.id: (source, table.newest) for table in catalog.values()}
        for id, filter in requested_tables(signal, [table for _, table in by_table.values()]):
            source, table = by_table[id]
            with source._asking() as connection:
                where = NO_ROW.format(filter=filter)
                query = connection.statements.greatest_key(table, table.row_key, condition=where)
                try:
                    connection.rows(*query)
                except CaptureError as error:
                    raise refused_filter(id, error.message) from error

    def move(self, wanted: TableMove, offset: Offset) -> MovePlan:
        """What it takes to go on elsewhere with the changes of one table: the change table has to hold them."""
        with self._asking() as connection:
            catalog = self._read_catalog(connection, strict=False)
            histories = schema_histories(offset.schemas, self.dialect)
            settings = self.settings
            moves = TableMoves(connection, catalog, histories, settings.signal_data_collection, settings.database)
            move = replace(wanted, to=moves.position(wanted.to, self._zone))
            return moves.described(moves.checked(move, offset), self._zone.of(connection))

    def signal(self, signal: Signal) -> Sequence[str]:
        """Ask by a row in each database's signal table; by a file where there is none."""
        if not self.settings.signal_data_collection:
            return super().signal(signal)
        sources = [source for source in self.databases().values() if isinstance(source, ChangeTableSource)]
        return [location for source in sources for location in source._insert(signal)]

    def execute(self, statement: str) -> None:
        with self._connect() as connection:
            connection.run(statement)

    def _insert(self, signal: Signal) -> list[str]:
        with self._asking() as connection:
            catalog = self._read_catalog(connection, strict=False)
            self._require_signal_table(connection, catalog)
            path = signal_table(self.settings.signal_data_collection, self.settings.database, catalog)
            if path is None:
                # It is in another database of the same pipeline.
                return []
            insert_signal(connection, catalog[path].newest, signal)
            return [f"table {path} of database {self.settings.database}"]

    @contextmanager
    def _asking(self) -> Iterator[Connection]:
        """A connection for questions. If the database is not set up for capture, the error says so.

        Raises:
            CaptureError: it is not.
        """
        with self._connect() as connection:
            try:
                yield connection
            except MissingObject as error:
                reason = connection.dialect.no_capture(connection, self.settings.database)
                if reason is None:
                    raise
                raise reason from error

    @property
    def _identity(self) -> str:
        return f"{self.name}:{self.settings.database}"

    def _known_catalog(self, connection: Connection, *, strict: bool) -> Mapping[str, CatalogTable]:
        """The catalog, read again only when something in it may have changed: an idle source asks every second."""
        state = self._state(connection)
        kept = self._catalog
        if kept is None or kept[1] != state or time.monotonic() - kept[0] > _CATALOG_SECONDS or strict:
            kept = (time.monotonic(), state, self._read_catalog(connection, strict=strict))
            self._catalog = kept
        return kept[2]

    def _read_catalog(
        self, connection: Connection, *, strict: bool, known: Collection[str] = ()
    ) -> Mapping[str, CatalogTable]:
        catalog = {table.id.path: table for table in self._captured(connection, strict=strict, known=known)}
        self._seen = catalog
        if strict and not known:
            self._require_signal_table(connection, catalog)
        return catalog

    def _require_signal_table(self, connection: Connection, catalog: Mapping[str, CatalogTable]) -> None:
        name, database = self.settings.signal_data_collection, self.settings.database
        require_signal_table(name, database, self._names, catalog, connection.dialect.advice)

    def _means(self, path: str) -> bool:
        return is_named(path, self._include, self.settings.tables_excluded, self.settings.database)

    @property
    def _include(self) -> tuple[str, ...]:
        return (self.settings.table,) if self.settings.table else tuple(self.settings.tables)

    def _captured(self, connection: Connection, *, strict: bool, known: Collection[str] = ()) -> Sequence[CatalogTable]:
        """The tables that the options select, as the catalog shows them now.

        Args:
            connection: to the database.
            strict: whether it is an error that a named table is missing or not captured.
            known: tables that may be so all the same, because they were captured once.

        Raises:
            CaptureError: where it is strict, a named table is missing or not captured.
        """
        database, excluded = self.settings.database, self.settings.tables_excluded
        return self._selected(connection, TableSelection(database, self._include, excluded, self._names, strict, known))

    @abstractmethod
    def _selected(self, connection: Connection, selection: TableSelection) -> Sequence[CatalogTable]:
        """The selected tables as the catalog shows them now.

        Raises:
            CaptureError: where the selection is strict, a named table is missing or not captured.
        """

    @abstractmethod
    def _missing_in_database(self, connection: Connection) -> Iterable[MissingPermission]:
        """What the login lacks besides permission to read captured tables and their change tables."""

    @abstractmethod
    def _state(self, connection: Connection) -> object:
        """What is different whenever something in the catalog may have changed; cheap to ask."""

    @abstractmethod
    def _newest_transaction(self, connection: Connection) -> str | None:
        """The newest captured transaction; None where there is none."""

    @abstractmethod
    def _health_probe(self) -> HealthProbe:
        """What asks the server how its capture is."""

    @abstractmethod
    def _connect(self) -> Connection:
        """A connection of its own to the database."""
