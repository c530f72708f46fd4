"""A PostgreSQL whose tables are held against what Debezium Server says of them."""

from __future__ import annotations

import re

from headrace_emulators.postgresql.server import PostgresDatabase, PostgresServer

_UNESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Postgres(PostgresServer):
    """The server, with the content of its tables as texts."""

    def natives(self) -> dict[str, dict[str, str]]:
        """The columns' types by table."""
        found: dict[str, dict[str, str]] = {}
        for table, column, kind in self._copied(
            "select c.relname, a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a "
            "join pg_class c on c.oid = a.attrelid where c.relnamespace = 'public'::regnamespace "
            "and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped order by c.relname, a.attnum"
        ):
            found.setdefault(table or "", {})[column or ""] = kind or ""
        return found

    def rows(self, table: str, natives: dict[str, str]) -> list[dict[str, str | None]]:
        """A table's rows as the server prints them."""
        names = ", ".join(f'"{column}"' for column in natives)
        return [dict(zip(natives, row, strict=True)) for row in self._copied(f'select {names} from "{table}"')]

    def _copied(self, query: str) -> list[list[str | None]]:
        lines = PostgresDatabase(self, self.database).copied(f"({query})").split("\n")[:-1]
        return [[_unescaped(cell) for cell in line.split("\t")] for line in lines]

    def connector(self, number: int) -> dict[str, str]:
        """What Debezium's connector needs to read this server; each of several has a number of its own."""
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "cdc",
            "database.password": "cdc",
            "database.dbname": self.database,
            "schema.include.list": "public",
            "plugin.name": "pgoutput",
            "slot.name": f"live_{number}",
            "publication.name": "live",
        }


def _unescaped(cell: str) -> str | None:
    if cell == "\\N":
        return None
    return re.sub(r"\\(.)", lambda match: _UNESCAPED.get(match[1], match[1]), cell)
