"""`Db2Source`: a Db2 database with SQL Replication behind what all sources with change tables do.

Source: IBM's documentation of SQL Replication; Debezium's documentation of its Db2 connector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from headrace.errors import OptionError
from headrace.passwords import password_of
from headrace.permissions import MissingPermission
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CatalogTable
from headrace.sources.change_tables.connection import Connection
from headrace.sources.change_tables.source import ChangeTableSource
from headrace.sources.db2.catalog import captured_tables
from headrace.sources.db2.checks import HealthProbe, missing_in_database
from headrace.sources.db2.connection import Db2Connection
from headrace.sources.db2.dialect import Db2
from headrace.sources.db2.options import Db2Settings
from headrace.sources.db2.statements import ZOS, Statements
from headrace.sources.tables.selection import TableSelection
from headrace.sources.tables.table_rules import TableRules


class Db2Source(ChangeTableSource):
    """Changes of a Db2 database from the change-data tables of SQL Replication."""

    name = "db2"
    address = ("db2", "50000")
    examples: ClassVar[Mapping[str, str]] = {"hostname": "db.example.com", "database": "SALES", "user": "cdc"}
    example_schema = "SHOP"
    offered = ("port", "snapshot_mode", "snapshot_chunk_rows", "capture_schema", "signal_data_collection")
    settings: Db2Settings

    def __init__(self, settings: Db2Settings, *, databases: Sequence[str] = ()) -> None:
        super().__init__(settings, databases=databases)
        mode = settings.snapshot_isolation_mode
        if settings.platform == ZOS and mode != "read_committed":
            raise OptionError(
                f"Option 'snapshot_isolation_mode' can't be '{mode}' on z/OS, where a session can't set its isolation.",
                remedy="Leave it out: read_committed reads chunks in parallel, and the stream brings them up to date.",
            )
        self._statements = Statements(settings.platform, settings.capture_schema)
        self.dialect: Db2 = Db2(self._statements)

    def _selected(self, connection: Connection, selection: TableSelection) -> Sequence[CatalogTable]:
        return captured_tables(connection, self._statements, selection, TableRules.of(self.settings))

    def _missing_in_database(self, connection: Connection) -> Iterable[MissingPermission]:
        user = self.settings.user or "?"
        return missing_in_database(connection, self._statements, self.settings.capture_schema, user)

    def _state(self, connection: Connection) -> object:
        return [connection.rows(self._statements.INSTANCES), connection.rows(self._statements.CATALOG_STATE)]

    def _newest_transaction(self, connection: Connection) -> str | None:
        newest = connection.value(self._statements.NEWEST_TRANSACTION)
        return None if newest is None else lsn.read(newest)

    def _health_probe(self) -> HealthProbe:
        return HealthProbe(self._connect, self._statements, self.settings)

    def _connect(self) -> Connection:
        names = (
            "hostname",
            "port",
            "database",
            "user",
            "authentication",
            "security",
            "ssl_server_certificate",
            "connect_timeout_ms",
            "query_timeout_ms",
        )
        given = {name: self.settings.get(name) for name in names}
        return Db2Connection(self.settings.driver, {**given, "password": password_of(self.settings)}, self.dialect)
