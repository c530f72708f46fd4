"""Key columns that hold the day `0000-00-00`, which servers take unless their sql_mode forbids it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.connection import Connection
from headrace.sources.mysql.refusals import MysqlError
from headrace.sources.mysql.snapshot_statements import identifier, quoted
from headrace.sources.tables.misfit_keys import MisfitKey

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
                found = connection.rows(statement.format(quoted(table.id), identifier(column.name)))
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
                if found:
                    yield MisfitKey(table.path, column.name, _ZERO, certain=True)
