"""What a login may not do on a MySQL or MariaDB server, and what the server is not set up for.

Each comes with the statement, or on a managed service the setting, that mends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.changes import TableId
from headrace.permissions import MissingPermission
from headrace.sources.mysql.connection import Connection, connect, connect_binlog, login_of
from headrace.sources.mysql.log_settings import NAMES, wrong_settings
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.refusals import MysqlError, identifier
from headrace.sources.snapshots.first_reads import is_read_first

_FIRST = 4
_NO_LOG = 1236
_GHOST = re.compile(r"_.+_(?:gho|ghc|del|new|old)", re.DOTALL)
_ENGINE = """
SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s
"""


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
