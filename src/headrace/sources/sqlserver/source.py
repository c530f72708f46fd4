"""`SqlServerSource`: SQL Server's databases after what all sources with change tables do.

Source: Microsoft's documentation of change data capture; Debezium's documentation of its SQL Server connector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from headrace.passwords import password_of
from headrace.permissions import MissingPermission
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CatalogTable
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.source import ChangeTableSource
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.catalog import captured_tables
from headrace.sources.sqlserver.checks import HealthProbe, missing_in_database
from headrace.sources.sqlserver.connection import SqlServerConnection
from headrace.sources.sqlserver.dialect import SqlServer
from headrace.sources.sqlserver.options import SqlServerSettings
from headrace.sources.tables.selection import TableSelection
from headrace.sources.tables.table_rules import TableRules


class SqlServerSource(ChangeTableSource):
    """Changes of SQL Server databases from their change data capture."""

    name = "sqlserver"
    address = ("mssql", "1433")
    examples: ClassVar[Mapping[str, str]] = {"hostname": "db.example.com", "database": "sales", "user": "cdc"}
    offered = ("port", "snapshot_mode", "snapshot_chunk_rows", "server_timezone", "signal_data_collection")
    settings: SqlServerSettings
    dialect = SqlServer()

    def _selected(self, connection: Connection, selection: TableSelection) -> Sequence[CatalogTable]:
        return captured_tables(connection, selection, TableRules.of(self.settings))

    def _missing_in_database(self, connection: Connection) -> Iterable[MissingPermission]:
        return missing_in_database(connection, self.settings)

    def _state(self, connection: Connection) -> object:
        return [connection.rows(statements.INSTANCES), connection.rows(statements.DDL_STATE)]

    def _newest_transaction(self, connection: Connection) -> str | None:
        # Dummy commits of an idle server do not count.
        newest = connection.value(statements.NEWEST_TRANSACTION)
        return None if newest is None else lsn.read(newest)

    def _health_probe(self) -> HealthProbe:
        return HealthProbe(self._connect, self.settings)

    def _connect(self) -> Connection:
        names = (
            "hostname",
            "port",
            "instance",
            "database",
            "user",
            "authentication",
            "encrypt",
            "trust_server_certificate",
            "hostname_in_certificate",
            "server_certificate",
            "multi_subnet_failover",
            "application_intent",
            "connect_timeout_ms",
            "query_timeout_ms",
        )
        given = {name: self.settings.get(name) for name in names}
        return SqlServerConnection(self.settings.driver, {**given, "password": password_of(self.settings)})
