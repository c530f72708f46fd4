"""`MysqlSource`: tables of a MySQL or MariaDB server, snapshotted at positions of its binary log and then followed by
it.

Offsets name positions of the log, which is one for all databases of a server. Nothing is kept on the server: readers
read the same files again, as long as these are there, so a window gives the same rows to several tasks, byte for byte.

Source: MySQL's and MariaDB's documentation of replication; Debezium's documentation of its connectors for both.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar

from headrace.changes.foreign_key import Cascade, ForeignKey
from headrace.errors import OptionError
from headrace.permissions import MissingPermission
from headrace.sources.health import Health
from headrace.sources.log.source import LogSource
from headrace.sources.mysql import binlog_position
from headrace.sources.mysql.captured_table import MysqlTable, tables_of
from headrace.sources.mysql.catalog import Catalog, means
from headrace.sources.mysql.checks import HealthProbe, missing_permissions, zero_dates
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.foreign_keys import cascades, require_followed, still_there, unlogged_keys
from headrace.sources.mysql.incremental import check_filter
from headrace.sources.mysql.markers import MysqlMarkers, connector, table_id
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.planner import Planner
from headrace.sources.mysql.printed import printed_tables
from headrace.sources.mysql.refusals import PassingError
from headrace.sources.mysql.signal_table import insert_signal, require_signal_table
from headrace.sources.mysql.slices import (
    IncrementalSlice,
    MysqlSlice,
    SnapshotSlice,
    StreamSlice,
)
from headrace.sources.mysql.stream_state import StreamState
from headrace.sources.mysql.visibility import Snapshots
from headrace.sources.mysql.window import Window
from headrace.sources.offset import Offset
from headrace.sources.printed_tables import PrintedTable
from headrace.sources.signals import Signal
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import IncrementalChunk
from headrace.sources.snapshots.select_overrides import SelectOverrides
from headrace.sources.table_versions import NOW
from headrace.sources.tables.keys import MisfitKey
from headrace.sources.tables.table_rules import TableRules
from headrace.sources.tables.unmatched import TableColumns, Unmatched, columns_of, has_names, unmatched


class MysqlSource(LogSource[MysqlTable, Planner]):
    """Changes of a MySQL or MariaDB server from its binary log."""

    name = "mysql"
    address = ("mysql", "3306")
    settings: MysqlSettings
    kept_tables = tables_of
    kept_state = StreamState
    examples: ClassVar[Mapping[str, str]] = {"hostname": "db.example.com", "databases": "shop", "user": "cdc"}
    example_schema = "shop"
    offered = ("port", "snapshot_mode", "sslmode")
    passing = (PassingError,)

    def __init__(self, settings: MysqlSettings) -> None:
        super().__init__(settings)
        # Only to find errors at once.
        TableRules.of(settings)
        SelectOverrides.of(settings, for_mysql=True)

    def unmatched(self, offset: Offset) -> Sequence[Unmatched]:
        """Names that match no table that is captured now or was captured before."""
        if not has_names(self.settings):
            return ()
        with connect(self.settings) as connection:
            catalog = Catalog(connection, self.settings)
            captured = catalog.captured(strict=False)
        gone = [TableColumns(table_id(path), gone=True) for path in offset.tables_seen if path not in captured]
        tables = [table.id for table in catalog.tables.values()]
        return unmatched(self.settings, [*map(columns_of, captured.values()), *gone], tables, selects=False)

    def head(self) -> str:
        """How far the log is written. It moves on even where no captured table is changed."""
        if self.settings.snapshot_mode == "initial_only":
            return binlog_position.ZERO
        with connect(self.settings) as connection:
            return binlog_position.commit_before(Snapshots(connection.server).head(connection))

    def head_after(self, offset: Offset) -> str:
        """The same for an offset that was reached with several servers, one after another."""
        return self.head() if offset.is_nothing else binlog_position.in_epoch_of(self.head(), offset.commit)

    def connect(self) -> None:
        connect(self.settings).close()

    def missing_permissions(self) -> Sequence[MissingPermission]:
        return missing_permissions(self.settings, [table.id for table in self._captured(strict=False).values()])

    def printed_tables(self) -> Iterator[PrintedTable]:
        return printed_tables(self.settings)

    def misfit_keys(self) -> Sequence[MisfitKey]:
        with connect(self.settings) as connection:
            captured = Catalog(connection, self.settings).captured(strict=False)
            return list(zero_dates(connection, captured.values()))

    def cascades(self, start: Offset | None = None, end: Offset | None = None) -> Sequence[Cascade]:
        """The foreign keys that either offset knows; without offsets those that the catalog has now."""
        if end is None:
            with connect(self.settings) as connection:
                captured = Catalog(connection, self.settings).captured(strict=False)
                keys = unlogged_keys(connection, captured)
            require_followed(keys, self.settings)
            return cascades(keys, captured, self.settings)
        if start is None or start.is_nothing or end.is_nothing:
            return ()
        known, now = StreamState.of(start).cascades, StreamState.of(end).cascades
        tables = {**tables_of(start.schemas), **tables_of(end.schemas)}
        both = tuple(dict.fromkeys((*known, *now)))
        return cascades(both, tables, self.settings, uncertain=set(known) ^ set(now))

    def still_there(self, key: ForeignKey, rows: Sequence[Mapping[str, str | None]], offset: Offset) -> Sequence[bool]:
        """Rows of the primary key, and where the foreign key would change them, with its values."""
        table = tables_of(offset.schemas)[key.child.path]
        with connect(self.settings) as connection:
            return still_there(connection, key, table, rows)

    def execute(self, statement: str) -> None:
        with connect(self.settings) as connection:
            connection.run(statement)

    def _new_planner(self) -> Planner:
        # What server it is its log says, whatever its address.
        return Planner(self.settings, self.name)

    def _captured(self, *, strict: bool, known: Collection[str] = ()) -> Mapping[str, MysqlTable]:
        with connect(self.settings) as connection:
            return Catalog(connection, self.settings).captured(strict=strict, known=known)

    def _means(self, path: str) -> bool:
        return means(self.settings, path)

    def _markers(self, end: Offset) -> MysqlMarkers:
        return MysqlMarkers(StreamState.of(end).log)

    def _chunks(self, table: MysqlTable, chunks: Sequence[Chunk], end: Offset) -> Iterator[MysqlSlice]:
        log = StreamState.of(end).log
        if self._retries.call(partial(self._planner.can_be_read, table.path, table)):
            yield from (SnapshotSlice(table, chunk, end.capture_time, log) for chunk in chunks)

    def _increment(self, table: MysqlTable, chunk: IncrementalChunk, end: Offset) -> MysqlSlice:
        return IncrementalSlice(table, chunk, end.capture_time, end.commit, StreamState.of(end).log)

    def _windows(
        self, start: Offset, end: Offset, tables: Mapping[str, MysqlTable], after: Mapping[str, str]
    ) -> Iterator[MysqlSlice]:
        state, before = StreamState.of(end), StreamState.of(start)
        log = state.log
        # Of the files between the two nothing is known but their names.
        marks = {
            binlog_position.boundary(offset.commit).file: of.log.mark for offset, of in ((end, state), (start, before))
        }
        for begin, upto in pairwise(map(binlog_position.boundary, (start.commit, *state.cuts, end.commit))):
            window = Window(
                begin,
                upto,
                log.base,
                connector(log.kind),
                tables,
                after,
                before.prepared,
                server=log.server,
                mark=marks.get(begin.file, ""),
                folds_names=log.folds_names,
                unsettled=state.unsettled,
                states={path: history for path, history in state.states.items() if path in tables},
                unsure=before.unsure,
                gone=tuple(path for path in tables if path not in end.schemas),
            )
            yield StreamSlice(window, end.capture_time)

    def _health(self, offset: Offset | None) -> Health:
        """Whether the server logs rows, how much waits, and how long until it may be purged."""
        return HealthProbe(self.settings, self._means).ask(offset)

    def _check_filter(self, table: MysqlTable, filter: str) -> None:
        with connect(self.settings) as connection:
            check_filter(connection, table, filter)

    def _insert(self, signal: Signal) -> list[str]:
        with connect(self.settings) as connection:
            tables = Catalog(connection, self.settings).captured(strict=False)
            table = require_signal_table(self.settings.signal_data_collection, tables)
            insert_signal(connection, table, signal)
        return [f"table {table.path}"]

    def _position(self, text: str, head: str) -> str:
        """As in `LogSource`: a file and a byte of the log, or `now`."""
        return _position(text, head)


def _position(text: str, head: str) -> str:
    """The commit up to which changes that begin before a position are delivered.

    Raises:
        OptionError: it is not a position.
    """
    given = text.strip()
    if given.lower() == NOW:
        return head
    name, separator, position = given.rpartition(":")
    try:
        if not separator or not position.isdecimal():
            raise ValueError
        if re.fullmatch(r"\d{4}:\d{10}", name):
            return binlog_position.BinlogPosition.of(given).text
        _, file = binlog_position.file_of(name)
        return binlog_position.commit_before(
            binlog_position.BinlogPosition(binlog_position.BinlogPosition.of(head).epoch, file, int(position))
        )
    except ValueError:
        raise OptionError(
            f"'{text}' is no place in the binary log.",
            remedy="Write file and byte, such as binlog.000042:1234, or now. The log is not searched by time.",
        ) from None
