"""A MariaDB whose tables and rows are read as texts, and what Debezium's connector needs to read it."""

from __future__ import annotations

from pathlib import Path

from headrace_emulators.mysql.server import PASSWORD, USER, MySqlServer

_RAW = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit", "geometry", "point", "polygon")


class MariaDb(MySqlServer):
    """The server with the defaults of its log, whose tables have no metadata there.

    Args:
        folder: for data, socket and log; its path must be short, because a socket's is limited.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, binlog_row_metadata="NO_LOG")

    def natives(self) -> dict[str, dict[str, str]]:
        """The columns' types by table."""
        found: dict[str, dict[str, str]] = {}
        for table, column, kind in self.run(
            "select table_name, column_name, column_type from information_schema.columns "
            f"where table_schema = '{self.database}' order by table_name, ordinal_position"
        ):
            found.setdefault(table, {})[column] = kind
        return found

    def rows(self, table: str, natives: dict[str, str]) -> list[dict[str, str | None]]:
        """A table's rows as texts: each value crosses as hex digits, so that NULL and any character are told apart."""
        cells = []
        for column, native in natives.items():
            name = f"`{column}`"
            kind = native.partition("(")[0].split()[0]
            # A float's text has six digits; as a double it has them all.
            value = f"cast({name} as double)" if kind == "float" else name
            cells.append(f"hex({value})" if kind in _RAW else f"hex(cast({value} as char character set utf8mb4))")
        rows = self.run(f"select {', '.join(cells)} from `{table}`")
        return [
            {
                column: None if cell == "NULL" else cell if _is_raw(native) else bytes.fromhex(cell).decode()
                for (column, native), cell in zip(natives.items(), row, strict=True)
            }
            for row in rows
        ]

    def connector(self, number: int) -> dict[str, str]:
        """What Debezium's connector needs to read this server; each of several has a number of its own."""
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.server.id": str(85_000 + number),
            "database.include.list": self.database,
            "database.ssl.mode": "disable",
            "snapshot.locking.mode": "none",
            "include.schema.changes": "true",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": "history.dat",
            "schema.history.internal.store.only.captured.tables.ddl": "true",
        }


def _is_raw(native: str) -> bool:
    return native.partition("(")[0].split()[0] in _RAW
