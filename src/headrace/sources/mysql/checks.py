"""What is amiss at a MySQL or MariaDB server: rights and settings that it lacks, and how long its binary log is kept.

Each comes with the statement, or on a managed service the setting, that mends it. Key columns that hold the day
`0000-00-00` are among them; servers take it unless their sql_mode forbids it.

What is committed is in the log at once, so nothing is late on the server's side.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.changes import TableId
from headrace.errors import DataLossError, HeadraceError, PositionMismatch
from headrace.permissions import MissingPermission
from headrace.sources.health import CaptureState, Health, size_text, span_text, unasked
from headrace.sources.mysql.binlog_position import FIRST, BinlogPosition, boundary, file_name, file_of
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.connection import Connection, ServerKind, connect, connect_binlog, login_of
from headrace.sources.mysql.failover import is_another
from headrace.sources.mysql.guards import ServerState, require_same_file, require_there
from headrace.sources.mysql.log_read import mark_of
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.refusals import KEEP_LONGER, MysqlError, identifier
from headrace.sources.mysql.snapshot_statements import quoted
from headrace.sources.mysql.stream_state import StreamState
from headrace.sources.offset import Offset
from headrace.sources.snapshots.chunks import is_read_first
from headrace.sources.tables.keys import MisfitKey

NAMES = (
    "log_bin", "server_id", "binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_storage_engine",
    "gtid_mode", "gtid_strict_mode", "binlog_expire_logs_seconds", "expire_logs_days", "log_replica_updates",
    "log_slave_updates", "innodb_native_foreign_keys", "sync_binlog", "innodb_flush_log_at_trx_commit",
)  # fmt: skip
"""The settings that are looked at."""
_DAY = 86_400
_ON = ("1", "ON")

_FIRST = 4
_NO_LOG = 1236
_GHOST = re.compile(r"_.+_(?:gho|ghc|del|new|old)", re.DOTALL)
_ENGINE = """
SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s
"""
_ZERO = "0000-00-00"
_DAYS = ("date", "timestamp", "instant")
_SECONDS = 2
"""How long the server may scan a table for a key column that leads no index."""
_IN_TIME = {
    True: f"SET STATEMENT max_statement_time = {_SECONDS} FOR SELECT 1 FROM {{0}} WHERE {{1}} = '{_ZERO}' LIMIT 1",
    False: f"SELECT /*+ MAX_EXECUTION_TIME({_SECONDS}000) */ 1 FROM {{0}} WHERE {{1}} = '{_ZERO}' LIMIT 1",
}
"""By whether the server is a MariaDB."""
_TOO_LATE = frozenset((1317, 1969, 3024))
_UNREADABLE = frozenset((1054, 1142, 1143, 1146))
"""Refusals of a table or column that the login may not read, or that went away."""
Means = Callable[[str], bool]
"""Whether the options mean a table (`database.name`)."""
_SCAN_BYTES = 64 * 2**20
"""How much of the log a check reads at most."""
_SCAN_SECONDS = 1.0
_HEADER = 19
_FORMAT, _TABLE_MAP, _PAYLOAD = 15, 19, 40


def retention_seconds(settings: Mapping[str, str]) -> float | None:
    """How long the server keeps a file of its log; None for ever.

    Args:
        settings: those of `NAMES` that the server has.
    """
    seconds = float(settings.get("binlog_expire_logs_seconds") or 0)
    return seconds or float(settings.get("expire_logs_days") or 0) * _DAY or None


def wrong_settings(
    server: ServerKind, settings: Mapping[str, str], *, is_replica: bool = False
) -> Iterator[MissingPermission]:
    """What is set so that changes are missing from the log, or can't be read as well as they could be.

    Args:
        server: what the server is.
        settings: those of `NAMES` that it has; a setting that is not there is not looked at.
        is_replica: whether it gets changes from another server.
    """

    def differs(name: str, *wanted: str) -> bool:
        return name in settings and settings[name].upper() not in wanted

    def wrong(
        name: str, value: str, meaning: str, *, required: bool = True, restart: bool = False
    ) -> MissingPermission:
        return MissingPermission(
            f"{name} of the server is {settings[name] or 'empty'}{meaning}.",
            # Once it is restarted for its log, what was set while it ran is forgotten.
            f"Write {name}={value} into the server's option file, too."
            if is_off and name != "log_bin"
            else _in_file(name, value)
            if restart
            else _set(server, name, value),
            required,
        )

    is_off = differs("log_bin", *_ON)
    if is_off:
        yield wrong("log_bin", "binlog", ": it writes no binary log", restart=True)
    if settings.get("server_id") == "0":
        yield wrong("server_id", "1", ", with which it serves no readers of its log")
    if differs("binlog_format", "ROW"):
        yield wrong("binlog_format", "ROW", ": changes are logged as statements, which can't be read as rows")
    if differs("binlog_storage_engine", ""):
        yield wrong("binlog_storage_engine", "", ", a form of the log that is not read", restart=True)
    if differs("binlog_row_image", "FULL"):
        yield wrong(
            "binlog_row_image",
            "FULL",
            ": changes lack columns, deletes have the key alone, and with MINIMAL inserts have the columns alone that "
            "their statement names, so that a mirror stops",
            required=False,
        )
    if differs("binlog_row_metadata", "FULL"):
        yield wrong(
            "binlog_row_metadata",
            "FULL",
            ": the log does not name columns, so a changed table may stop the stream",
            required=False,
        )
    if not server.is_mariadb and differs("gtid_mode", "ON"):
        yield MissingPermission(
            f"gtid_mode of the server is {settings['gtid_mode']}: the stream can't follow a failover, and snapshots "
            "lock tables for a moment.",
            "Set enforce_gtid_consistency = ON, and step gtid_mode to OFF_PERMISSIVE, ON_PERMISSIVE and ON.",
            required=False,
        )
    if server.is_mariadb and differs("gtid_strict_mode", *_ON):
        yield wrong("gtid_strict_mode", "ON", ": the stream can't follow a failover", required=False)
    kept = retention_seconds(settings)
    if kept is not None and kept < _DAY:
        yield MissingPermission(
            f"The server keeps its log for {kept:,.0f} seconds (binlog_expire_logs_seconds): a pipeline that rests "
            "longer loses changes.",
            _set(server, "binlog_expire_logs_seconds", str(7 * _DAY)),
            required=False,
        )
    updates = "log_slave_updates" if server.is_mariadb else "log_replica_updates"
    if is_replica and differs(updates, *_ON):
        yield wrong(updates, "ON", ", so a replica does not log what it gets", restart=True)
    if "innodb_native_foreign_keys" in settings and not differs("innodb_native_foreign_keys", *_ON):
        yield wrong(
            "innodb_native_foreign_keys",
            "OFF",
            ": rows that a foreign key changes by CASCADE or SET NULL are not logged",
            required=False,
            restart=True,
        )
    for name in ("sync_binlog", "innodb_flush_log_at_trx_commit"):
        if differs(name, "1"):
            yield wrong(name, "1", ": after a crash the log may lack what was read from it already", required=False)


def _set(server: ServerKind, name: str, value: str) -> str:
    if server.is_mariadb or server.version < (8, 0):
        return f"Run: SET GLOBAL {name} = {value}; and write it into the server's option file."
    return f"Run: SET PERSIST {name} = {value};"


def _in_file(name: str, value: str) -> str:
    return (
        f"Write {name}={value} into the server's option file and restart it; on RDS set it in the parameter group, "
        "where automated backups switch the log on."
    )


def missing_permissions(settings: MysqlSettings, tables: Sequence[TableId]) -> list[MissingPermission]:
    """What the login may not do, and what the server lacks; nothing is changed to find it out.

    Args:
        settings: the source's options.
        tables: the captured tables.

    Raises:
        HeadraceError: the server can't be asked.
    """
    with connect(settings) as connection:
        return list(_Questions(connection, settings, tables).missing())


@dataclass(frozen=True)
class _Questions:
    connection: Connection
    settings: MysqlSettings
    tables: Sequence[TableId]

    def missing(self) -> Iterator[MissingPermission]:
        server, variables = self.connection.server, self.connection.variables(*NAMES)
        yield from wrong_settings(server, variables, is_replica=self._is_replica())
        yield from self._of_log()
        for table in self.tables:
            yield from self._of_table(table)

    def _of_log(self) -> Iterator[MissingPermission]:
        server = self.connection.server
        try:
            # None where it writes no log.
            status = self.connection.rows(server.log_status)
            file, _, only, without, *_ = status[0] if status else (None, None, "", "")
        except MysqlError as error:
            if error.number != 1227:
                raise
            right = "BINLOG MONITOR" if server.is_mariadb else "REPLICATION CLIENT"
            yield MissingPermission.of(
                [right], "", "to see where the log ends", f"Run: GRANT {right} ON *.* TO {login_of(self.connection)};"
            )
            file = None
        else:
            if only or without:
                name, whose = ("binlog_do_db", "other") if only else ("binlog_ignore_db", "these")
                yield MissingPermission(
                    f"{name} of the server is {only or without}: changes of {whose} databases are not logged.",
                    f"Take {name} out of the server's option file and restart it.",
                )
        try:
            with connect_binlog(self.settings) as reader:
                # Without the right to see the log's files the first one is asked for, whatever its name.
                reader.dump(file or "", _FIRST)
                reader.receive()
        except MysqlError as error:
            if error.number == _NO_LOG:
                return
            if error.number != 1227:
                raise
            yield MissingPermission.of(
                ["REPLICATION SLAVE"],
                "",
                "to read the log",
                f"Run: GRANT REPLICATION SLAVE ON *.* TO {login_of(self.connection)};",
            )

    def _of_table(self, table: TableId) -> Iterator[MissingPermission]:
        path = table.full_path
        name = f"{identifier(table.database)}.{identifier(table.name)}"
        if is_read_first(self.settings, table):
            try:
                self.connection.rows(f"SELECT 1 FROM {name} LIMIT 0")
            except MysqlError as error:
                if error.number not in (1142, 1143):
                    yield MissingPermission(error.message, error.remedy)
                    return
                yield MissingPermission.of(
                    ["SELECT"],
                    f"on {path}",
                    "its snapshot",
                    f"Run: GRANT SELECT ON {name} TO {login_of(self.connection)};",
                )
                return
        position = (table.database, table.name)
        engine = self.connection.value(_ENGINE, position)
        if engine is not None and engine.lower() != "innodb":
            yield MissingPermission(
                f"Table '{path}' is of the engine {engine}: its snapshot is of no single moment, and its changes are "
                "committed row by row.",
                f"Run: ALTER TABLE {name} ENGINE = InnoDB;",
                required=False,
            )
        if _GHOST.fullmatch(table.name):
            yield MissingPermission(
                f"Table '{path}' has the name of a table that an online change of another one makes.",
                "Leave it out with 'tables_excluded'.",
                required=False,
            )

    def _is_replica(self) -> bool:
        """Whether it follows another server; no where the login may not ask."""
        server = self.connection.server
        asked = "SHOW ALL SLAVES STATUS" if server.is_mariadb else "SHOW REPLICA STATUS"
        try:
            return bool(self.connection.rows(asked))
        except MysqlError:
            return False


def zero_dates(connection: Connection, tables: Iterable[MysqlTable]) -> Iterator[MisfitKey]:
    """The key columns of captured tables that have a zero date, and those of which that did not come out in time.

    A session's own sql_mode may take what the server's forbids, and rows are older than either, so each column is
    asked; a server that is too slow to answer counts where its sql_mode takes such days.
    """
    statement, takes = _IN_TIME[connection.server.is_mariadb], None
    for table in tables:
        for column in table.schema.key_columns:
            if column.logical.kind not in _DAYS:
                continue
            try:
                lines = connection.rows(statement.format(quoted(table.id), identifier(column.name)))
            except MysqlError as error:
                if error.number in _UNREADABLE:
                    continue
                if error.number not in _TOO_LATE:
                    raise
                if takes is None:
                    [(mode,)] = connection.rows("SELECT @@GLOBAL.sql_mode")
                    takes = "NO_ZERO_DATE" not in str(mode).split(",")
                if takes:
                    yield MisfitKey(table.path, column.name, _ZERO, certain=False)
            else:
                if lines:
                    yield MisfitKey(table.path, column.name, _ZERO, certain=True)


class HealthProbe:
    """Examines the log of a pipeline's server. Runs in the driver.

    Args:
        settings: the source's options.
        means: whether they mean a table.
    """

    def __init__(self, settings: MysqlSettings, means: Means) -> None:
        self._settings = settings
        self._means = means

    def ask(self, offset: Offset | None) -> Health:
        """How it is now; `offset` says what is in all sinks. Raises nothing that a server may answer."""
        try:
            with connect(self._settings) as connection:
                return _Examination(connection, self._settings, self._means).health(offset)
        except HeadraceError as error:
            return unasked(error)


@dataclass(frozen=True)
class _LogFile:
    name: str
    number: int
    size: int


@dataclass(frozen=True)
class _Examination:
    connection: Connection
    settings: MysqlSettings
    means: Means

    def health(self, offset: Offset | None) -> Health:
        now = self.connection.value("SELECT UTC_TIMESTAMP(6)").replace(tzinfo=dt.UTC)
        server, variables = self.connection.server, self.connection.variables(*NAMES)
        wrong = next((setting for setting in wrong_settings(server, variables) if setting.required), None)
        if wrong is not None:
            return Health(CaptureState.NOT_CAPTURING, wrong.sentence, wrong.remedy, checked=now)
        files = [
            _LogFile(name, file_of(name)[1], int(size)) for name, size, *_ in self.connection.rows("SHOW BINARY LOGS")
        ]
        kept = retention_seconds(variables)
        well = Health(
            CaptureState.CAPTURING,
            "The server logs rows.",
            checked=now,
            captured_until=now,
            retention_seconds=kept,
            headroom_seconds=kept,
        )
        if offset is None or offset.is_nothing:
            return well
        position = boundary(offset.commit)
        refused = self._refused(well, offset, position)
        if refused is not None:
            return refused
        ours = next((file for file in files if file.number == position.file), None)
        if ours is None or ours.size < position.position:
            # Another server took over, whose log has other positions.
            return well
        after = [file for file in files if file.number > position.file]
        waiting = ours.size - position.position + sum(file.size for file in after)
        since, scan = self._first_change(ours, position, waiting) if waiting else (None, True)
        left = kept
        if kept is not None and after:
            # A file is purged so long after its last event, which is about when the next one was begun.
            begun = self._begun(after[0])
            left = kept - (now - begun).total_seconds()
        sentence = f"{size_text(waiting)} of log wait"
        if left is not None:
            sentence += f"; file '{ours.name}' may be purged in {span_text(left)}"
        return replace(
            well,
            sentence=f"{sentence}.",
            remedy="" if left is None or left > 0 else KEEP_LONGER,
            waiting_since=since,
            quiet_until=now if scan and since is None else None,
            headroom_seconds=left,
            retained_bytes=waiting,
        )

    def _refused(self, well: Health, offset: Offset, position: BinlogPosition) -> Health | None:
        """What a run would stop with, because the log is another one or lacks what follows; None where it goes on."""
        now, state = ServerState.of(self.connection), StreamState.of(offset)
        stopped = replace(well, state=CaptureState.NOT_CAPTURING, captured_until=None, headroom_seconds=None)
        try:
            if is_another(now, state.log):
                # Reading both logs says whether it took over, which the run does.
                return None
            require_there(now, state, position)
            file = file_name(state.log.base, position.file)
            require_same_file(mark_of(self.settings, file), state.log.mark, file, str(self.connection.endpoint))
        except DataLossError as error:
            known = tuple(offset.known)
            return replace(stopped, sentence=error.message, remedy=error.remedy, headroom_seconds=0.0, lost=known)
        except PositionMismatch as error:
            return replace(stopped, sentence=error.message, remedy=error.remedy)
        return None

    def _begun(self, file: _LogFile) -> dt.datetime:
        with connect_binlog(self.settings) as reader:
            reader.dump(file.name, FIRST)
            while block := reader.receive():
                at = 0
                while at + _HEADER <= len(block):
                    moment, kind, _, size = struct.unpack_from("<IBII", block, at)
                    if kind == _FORMAT:
                        return dt.datetime.fromtimestamp(moment, dt.UTC)
                    at += max(size, _HEADER)
        raise HeadraceError(f"File '{file.name}' of the log has no beginning.")

    def _first_change(self, file: _LogFile, position: BinlogPosition, waiting: int) -> tuple[dt.datetime | None, bool]:
        """When the first statement on a captured table began that waits; and whether that is known, null being none.

        What is compressed counts as such a change.
        """
        if position.position >= 2**32:
            return None, False
        read, deadline = 0, time.monotonic() + _SCAN_SECONDS
        with connect_binlog(self.settings) as reader:
            reader.dump(file.name, position.position)
            while block := reader.receive():
                at = 0
                while at + _HEADER <= len(block):
                    moment, kind, _, size = struct.unpack_from("<IBII", block, at)
                    if kind == _PAYLOAD or (kind == _TABLE_MAP and self.means(_table(bytes(block[at : at + size])))):
                        return dt.datetime.fromtimestamp(moment, dt.UTC), True
                    at += max(size, _HEADER)
                read += len(block)
                if read > _SCAN_BYTES or time.monotonic() > deadline:
                    return None, False
        return None, True


def _table(event: bytes) -> str:
    """The table of a TABLE_MAP, as `database.name`."""
    at = _HEADER + 8
    database = event[at + 1 : at + 1 + event[at]]
    at += 2 + event[at]
    return f"{database.decode(errors='replace')}.{event[at + 1 : at + 1 + event[at]].decode(errors='replace')}"
