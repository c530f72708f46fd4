"""`OracleSource`: tables of an Oracle database, snapshotted as of one SCN and then followed by what LogMiner reads.

Offsets name SCNs: up to which commits are delivered, and which mined ranges hold rows of transactions that are still
open. Ranges are mined once, side by side, into staging; a transaction is put together when it is committed.

Source: Oracle's documentation of LogMiner; Debezium's documentation of its Oracle connector.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from headrace import faultpoints
from headrace.changes import TableId, TableSchema
from headrace.errors import CaptureError, OptionError
from headrace.passwords import password_of
from headrace.permissions import MissingPermission
from headrace.sources.base import ONE_CHUNK, Limit, Slice, Source
from headrace.sources.database_source import DatabaseSource
from headrace.sources.health import Health
from headrace.sources.offset import Offset
from headrace.sources.oracle import scn, statements
from headrace.sources.oracle.captured_table import owners_and_names, tables_of
from headrace.sources.oracle.catalog import OracleTableRules, Selection, captured_tables, choose
from headrace.sources.oracle.change_rows import CONNECTOR
from headrace.sources.oracle.checks import (
    HealthProbe,
    missing_flashback,
    missing_on_redaction,
    missing_on_tables,
    missing_on_views,
    restricted_reads,
)
from headrace.sources.oracle.connection import Connection, OracleError
from headrace.sources.oracle.incremental import require_signal_table
from headrace.sources.oracle.ledger import Transaction, excluded_users, of_ranges
from headrace.sources.oracle.mining import mine
from headrace.sources.oracle.mining_state import MiningState
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.planner import OraclePlanner
from headrace.sources.oracle.range_index import RangeIndex
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.slices import (
    AppliedDefinition,
    EmptyTableSlice,
    GapsSlice,
    HeartbeatSlice,
    IncrementalSlice,
    MarkerSlice,
    MiningSlice,
    OracleSlice,
    SchemasSlice,
    SnapshotSlice,
    TransactionsSlice,
    read_slice,
)
from headrace.sources.oracle.snapshot_read import require_set_up
from headrace.sources.oracle.staging import Staging
from headrace.sources.signals import SIGNAL_COLUMNS, Signal
from headrace.sources.snapshots.ad_hoc import AdHoc, requested_tables
from headrace.sources.snapshots.chunks import found_empty, plan_chunks, read_first
from headrace.sources.snapshots.ends_equal import end_markers
from headrace.sources.snapshots.requests import NO_ROW, refused_filter
from headrace.sources.snapshots.select_overrides import SelectOverrides
from headrace.sources.stream_options import WHOLE_TABLES
from headrace.sources.tables.lost import forgiven
from headrace.sources.tables.restricted import RestrictedRead, require_whole_reads
from headrace.sources.tables.rewrites import Unlogged
from headrace.sources.tables.unmatched import Unmatched, columns_of, gone_table, has_names, unmatched

_NO_TABLE = 942
_KEPT_INDEXES = 256
_LOG = logging.getLogger("headrace.sources")


class OracleSource(DatabaseSource):
    """Changes of an Oracle database from its redo logs, by LogMiner."""

    name = "oracle"
    address = ("oracle", "1521")
    settings: OracleSettings
    examples: ClassVar[Mapping[str, str]] = {
        "hostname": "db.example.com",
        "database": "ORCL",
        "user": "C##HEADRACE",
        "staging_location": "./staging",
    }
    example_schema = "SHOP"
    offered = ("port", "pdb", "snapshot_mode", "lob_enabled")
    whole_tables = WHOLE_TABLES

    def __init__(self, options: OracleSettings) -> None:
        super().__init__(options)
        # Only to find errors at once.
        Selection(options)
        OracleTableRules(options)
        SelectOverrides.of(options)
        self._planned = False
        self._again = options.snapshot_mode == "always"
        self._ahead: list[ScnRange] = []
        self._indexes: dict[tuple[ScnRange, str], RangeIndex] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Executors read slices, which carry what they need.
        return {**self.__dict__, "_ahead": [], "_indexes": {}}

    def databases(self) -> Mapping[str, Source]:
        return {self._database: self}

    def tables(self, known: Collection[str] = ()) -> Sequence[TableSchema]:
        """What is captured now, in include-list order."""
        known = forgiven(known, self.settings)
        with self._connect("") as root:
            require_set_up(root)
        with self._connect(self.settings.pdb) as connection:
            captured = captured_tables(connection, self._database, self.settings, strict=True, known=known)
        return [table.schema for table in captured.values()]

    def schemas(self, offset: Offset) -> Sequence[TableSchema]:
        return [table.schema for table in tables_of(offset.schemas).values()]

    def unmatched(self, offset: Offset) -> Sequence[Unmatched]:
        """Names that match no table that is captured now or was captured before."""
        if not has_names(self.settings):
            return ()
        with self._connect(self.settings.pdb) as connection:
            captured = captured_tables(connection, self._database, self.settings, strict=False)
            rows = connection.rows(statements.TABLES)
        gone = [gone_table(path, self._database) for path in offset.tables_seen if path not in captured]
        tables = [TableId(self._database, str(owner), str(name)) for owner, name in rows]
        return unmatched(self.settings, [*map(columns_of, captured.values()), *gone], tables, selects=False)

    def head(self) -> str:
        """The SCN up to which the log is complete. It moves on even where nothing is changed."""
        if self.settings.snapshot_mode == "initial_only":
            return scn.ZERO
        return scn.to_text(self._upper())

    def connect(self) -> None:
        """Log in and out again, and into the pluggable database too where there is one."""
        self._connect("").close()
        self._connect(self.settings.pdb).close()

    def missing_permissions(self) -> Sequence[MissingPermission]:
        """What the user may not read; LogMiner itself is not tried."""
        user = self.settings.user or "?"
        with self._connect("") as root:
            missing = list(missing_on_views(root, user))
            if missing:
                return missing
            require_set_up(root)
            at = scn.to_text(int(root.value(statements.CURRENT_SCN)))
        with self._connect(self.settings.pdb) as connection:
            tables = captured_tables(connection, self._database, self.settings, strict=False)
            selects = SelectOverrides.of(self.settings)
            missing = list(missing_on_tables(connection, tables.values(), at, user))
            missing += missing_on_redaction(connection, user)
            if any(selects.select(table.id) is not None for table in tables.values()):
                missing += missing_flashback(connection, at, user)
            return missing

    def unlogged(self) -> Sequence[Unlogged]:
        """Tables that are NOLOGGING, where the database does not force logging."""
        with self._connect("") as root:
            if str(root.value(statements.FORCE_LOGGING)) == "YES":
                return ()
        with self._connect(self.settings.pdb) as connection:
            captured = choose(connection, self.settings).tables
            names = [(str(owner), str(name)) for owner, name in connection.rows(statements.NO_LOGGING)]
        return [
            Unlogged(
                ".".join(name),
                "It is NOLOGGING: rows that are inserted by direct path (APPEND, SQL*Loader) are in no log.",
                "Run ALTER TABLE ... LOGGING, or ALTER DATABASE FORCE LOGGING; read it again after such a load.",
            )
            for name in names
            if name in captured
        ]

    def restricted_reads(self) -> Sequence[RestrictedRead]:
        """Tables of which the user may read something else than the log has."""
        with self._connect(self.settings.pdb) as connection:
            tables = captured_tables(connection, self._database, self.settings, strict=False)
            return restricted_reads(connection, tables, self.settings.user or "?")

    def _require_whole_reads(self, start: Offset) -> None:
        """See that tables are read as the log has them; of those that were read before this is only logged."""
        with self._connect(self.settings.pdb) as connection:
            tables = captured_tables(connection, self._database, self.settings, strict=False)
            restricted = restricted_reads(connection, tables, self.settings.user or "?")
        overrides = SelectOverrides.of(self.settings)
        ids = [table.id for table in tables.values() if overrides.select(table.id) is None]
        known = [replace(one, certain=one.certain and one.table not in start.known) for one in restricted]
        require_whole_reads(known, read_first(self.settings, ids))

    def preview(self, start: Offset, now: dt.datetime, limit: Limit = ONE_CHUNK, *, restarted: bool = True) -> Offset:
        """What the next batch would begin with; no range is mined for it."""
        return self._planner(start, restarted=restarted).preview(start)

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        """Where the next batch ends: more snapshot chunks, or the commits of the ranges that are mined."""
        # Only to find out at once that it is missing.
        self._staging({}, "")
        if start.initial:
            # The snapshot of mode `always` at this start is under way.
            self._again = False
        if not self._planned:
            self._require_whole_reads(start)
        end = self._planner(start, restarted=not self._planned).advance(start, limit, now)
        self._planned = True
        return end

    def _planner(self, start: Offset, *, restarted: bool) -> OraclePlanner:
        resetlogs = "" if start.is_nothing else MiningState.of(start).resetlogs
        return OraclePlanner(
            self._connect,
            self.settings,
            f"{self.name}:{self._database}",
            mine=lambda scns, schemas: self._index(scns, schemas, resetlogs),
            upper=self._upper,
            staging=lambda schemas: self._staging(schemas, resetlogs),
            ahead=self._ahead,
            restarted=restarted,
            again=self._again,
        )

    def plan(self, start: Offset, end: Offset) -> list[Slice]:
        """Snapshot chunks, schemas, groups of whole transactions, and ranges to be mined for the next batch."""
        if start == end:
            return []
        tables = tables_of(end.schemas)
        slices: list[OracleSlice] = [
            SnapshotSlice(tables[chunk.table], chunk, end.capture_time) for chunk in plan_chunks(start, end)
        ]
        slices += [
            EmptyTableSlice(tables[path], position, end.capture_time) for path, position in found_empty(start, end)
        ]
        if end.gaps and end.gaps != start.gaps:
            slices.append(GapsSlice(self._database, end.gaps, end.capture_time))
        state = MiningState.of(end)
        if not start.is_nothing:
            slices += self._stream_slices(start, end, state)
        paths = tuple(sorted(end.schemas))
        if end.ad_hoc != start.ad_hoc:
            chunks = AdHoc.from_json(end.ad_hoc).chunks(end.reads)
            slices += [IncrementalSlice(tables[chunk.table], chunk, end.commit, end.capture_time) for chunk in chunks]
        ends = tuple(end_markers(start, end, CONNECTOR, tables))
        if ends:
            slices.append(MarkerSlice(ends, end.capture_time))
        if end.heartbeat != start.heartbeat:
            slices.append(HeartbeatSlice(end.commit, end.commit_time, end.heartbeat))
        mark = self._mark(end.schemas, state.resetlogs)
        slices += [MiningSlice(scns, paths, mark) for scns in state.mining]
        return [slice.planned() for slice in slices]

    def _stream_slices(self, start: Offset, end: Offset, state: MiningState) -> list[OracleSlice]:
        if not (state.window or state.definitions):
            return []
        indexes = {scns: self._index(scns, end.schemas, state.resetlogs) for scns in state.window}
        ledger = of_ranges(MiningState.of(start).open, indexes.items(), excluded_users(self.settings))
        transactions = ledger.delivered_by(scn.number(start.commit), scn.number(end.commit))
        touched = {f"{owner}.{name}" for index in indexes.values() for owner, name in index.tables}
        slices: list[OracleSlice] = []
        tables = tables_of(end.schemas)
        changed = [tables[path] for path in end.known if path in touched and path in tables] if transactions else []
        definitions = [
            AppliedDefinition(definition, self._database, tables.get(definition.table))
            for definition in state.definitions
        ]
        if changed or definitions:
            slices.append(SchemasSlice(tuple(changed), start.commit, tuple(definitions), end.capture_time))
        touched_tables = {path: table for path, table in tables.items() if path in touched}
        mark = self._mark(end.schemas, state.resetlogs)
        for group in _grouped(transactions, self.settings.rows_per_slice):
            slices.append(TransactionsSlice(tuple(group), touched_tables, mark, end.capture_time))
        return slices

    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        """The change rows of one slice; opens connections of its own and closes them at the end."""
        yield from read_slice(self._connect, slice, self.settings)

    def health(self, offset: Offset | None = None) -> Health:
        """Whether the database writes a log that can be mined, up to where it was mined, and whether logs are gone."""
        health = HealthProbe(self._connect, self.settings, self._staging).ask(offset)
        return health if offset is None else replace(health, uncaptured=self._uncaptured(offset))

    def _captured_now(self, offset: Offset) -> Collection[str]:
        with self._connect(self.settings.pdb) as connection:
            chosen = choose(connection, self.settings)
        return [path for path in chosen.paths if path not in offset.uncaptured or chosen.logs_all(path)]

    def _means(self, path: str) -> bool:
        return Selection(self.settings).means_path(path)

    def check_signal(self, signal: Signal) -> None:
        """Whether the tables that it names are captured, and the server takes its filters."""
        if self.settings.snapshot_mode == "initial_only":
            raise OptionError(
                "A pipeline with snapshot.mode=initial_only ends with its snapshot and follows no signal.",
                remedy="Use another snapshot.mode.",
            )
        with self._connect("") as root:
            at = int(root.value(statements.CURRENT_SCN))
        with self._connect(self.settings.pdb) as connection:
            tables = captured_tables(connection, self._database, self.settings, strict=False)
            by_id = {table.id: table for table in tables.values()}
            for id, filter in requested_tables(signal, by_id.values()):
                try:
                    connection.rows(
                        statements.greatest_key(by_id[id].cut_by(by_id[id].row_key), NO_ROW.format(filter=filter)),
                        scn=at,
                    )
                except OracleError as error:
                    raise refused_filter(id, error.message) from error

    def execute(self, statement: str) -> None:
        with self._connect(self.settings.pdb) as connection:
            connection.run(statement)
            connection.commit()

    def _insert(self, signal: Signal) -> list[str]:
        with self._connect(self.settings.pdb) as connection:
            tables = captured_tables(connection, self._database, self.settings, strict=False)
            table = require_signal_table(self.settings.signal_data_collection, self._database, tables)
            names = [column.name for column in table.schema.columns[:SIGNAL_COLUMNS]]
            values = {"v0": signal.id, "v1": signal.type, "v2": signal.data}
            try:
                connection.run(statements.insert(table, names), **values)
                connection.commit()
            except OracleError as error:
                raise CaptureError(
                    f"The signal can't be inserted into table '{table.id.path}': {error.message}",
                    remedy=f"Run GRANT INSERT ON {statements.table_name(table)} TO the user, give the signal an id "
                    "that is not there yet, or use 'signal_path'.",
                ) from error
        return [f"table {table.id.path} of database {self._database}"]

    def acknowledge(self, offset: Offset) -> None:
        """Staging forgets ranges whose transactions are all delivered."""
        if offset.is_nothing:
            return
        state = MiningState.of(offset)
        self._staging(offset.schemas, state.resetlogs).forget(state.unfinished, state.mined)

    @property
    def _database(self) -> str:
        return str(self.settings.pdb or self.settings.database).upper()

    # Mining.

    def _mark(self, schemas: Mapping[str, Any], resetlogs: str) -> tuple[str, ...]:
        """What is mined: ranges of another database, another incarnation of it or of other tables are other ranges."""
        strategy = self.settings.log_mining_strategy
        # What one strategy can't print another may.
        names = [] if strategy == "online_catalog" else [strategy]
        return (self._database, resetlogs, str(self.settings.lob_enabled), *names, *sorted(schemas))

    def _staging(self, schemas: Mapping[str, Any], resetlogs: str) -> Staging:
        return Staging(self.settings.staging_location, self._mark(schemas, resetlogs))

    def _index(self, scns: ScnRange, schemas: Mapping[str, Any], resetlogs: str) -> RangeIndex:
        """What a range holds; it is mined where staging lacks it."""
        mark = self._mark(schemas, resetlogs)
        key = (scns, "\n".join(mark))
        index = self._indexes.get(key)
        if index is None:
            staging = Staging(self.settings.staging_location, mark)
            index = staging.index(scns)
            if index is None:
                tables = owners_and_names(sorted(schemas))
                index = mine(lambda: self._connect(""), scns, tables, self.settings, staging)
            while len(self._indexes) >= _KEPT_INDEXES:
                self._indexes.pop(next(iter(self._indexes)))
            self._indexes[key] = index
        return index

    def _upper(self) -> int:
        """The SCN up to which every open redo thread has written its log."""
        with self._connect("") as connection:
            if self.settings.archive_log_only:
                return self._archived(connection)
            current = int(connection.value(statements.CURRENT_SCN))
            if self.settings.flush_table:
                self._flush(connection, current)
                for node in self.settings.rac_nodes:
                    with self._connect("", node=node) as other:
                        self._flush(other, current)
            last = connection.value(statements.LAST_REDO)
            faultpoints.reach("source.oracle.upper")
        # What was last written may be in the middle of a commit's SCN.
        return current if last is None else min(current, int(last) - 1)

    @staticmethod
    def _archived(connection: Connection) -> int:
        """The SCN up to which all open threads are archived."""
        newest: dict[int, int] = {int(row[0]): 0 for row in connection.rows(statements.THREADS)}
        for _, thread, _, _, next, *_ in connection.rows(statements.ARCHIVED_LOGS, low=0):
            if int(thread) in newest:
                newest[int(thread)] = max(newest[int(thread)], int(next))
        return max(min(newest.values(), default=1) - 1, 0)

    def _flush(self, connection: Connection, at: int) -> None:
        table = self.settings.flush_table
        try:
            connection.run(statements.flush(table), scn=at)
        except OracleError as error:
            if error.number != _NO_TABLE:
                raise
            for statement in statements.flush_parts(table):
                connection.run(statement)
        connection.commit()

    def _connect(self, container: str, node: str = "") -> Connection:
        names = ("hostname", "port", "dsn", "database", "user", "connect_timeout_ms", "query_timeout_ms")
        settings = {**{name: self.settings.get(name) for name in names}, "password": password_of(self.settings)}
        if node:
            settings["dsn"] = node
        connection = Connection(self.settings.driver, settings)
        try:
            if container:
                connection.run(statements.container(container))
            connection.run(statements.BINARY_ORDER)
        except BaseException:
            connection.close()
            raise
        return connection


def _grouped(transactions: Sequence[Transaction], rows: int) -> list[list[Transaction]]:
    """Transactions in groups of about so many rows; a larger one is by itself."""
    groups: list[list[Transaction]] = []
    size = 0
    for transaction in transactions:
        if not groups or size + transaction.rows > rows:
            groups.append([])
            size = 0
        groups[-1].append(transaction)
        size += transaction.rows
    return groups
