"""A SQL Server database file as one connection has it open: its clock, catalog, log and definitions."""

from __future__ import annotations

import re
import sqlite3
import uuid
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from headrace_emulators.engine import database_files as files
from headrace_emulators.engine.storage import Clock, Storage, utc_now
from headrace_emulators.sqlserver import catalog as catalogs
from headrace_emulators.sqlserver import temporal
from headrace_emulators.sqlserver.catalog import Catalog, TableInfo, quoted
from headrace_emulators.sqlserver.change_log import TransactionLog
from headrace_emulators.sqlserver.collations import register_collations
from headrace_emulators.sqlserver.definitions import Definitions
from headrace_emulators.sqlserver.errors import (
    Error,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    duplicate_key,
    invalid_object,
    no_database,
    null_refused,
)
from headrace_emulators.sqlserver.functions import functions_of
from headrace_emulators.sqlserver.identities import Identities
from headrace_emulators.sqlserver.types import DEFAULT_COLLATION

_VERSION = "Microsoft SQL Server 2022 (RTM-CU14) - 16.0.4135.4 (X64) (emulated by Headrace on SQLite)"
_PROPERTIES = {
    "version": _VERSION, "productversion": "16.0.4135.4", "productlevel": "RTM", "edition": "Developer Edition"
    " (64-bit)",
    "engineedition": 3, "servername": "EMULATOR", "machinename": "EMULATOR", "collation": DEFAULT_COLLATION,
    "productmajorversion": "16", "status": "ONLINE", "updateability": "READ_WRITE",
}  # fmt: skip


class SqlServerStorage(Storage):
    """A connection to one database file.

    Args:
        path: the SQLite file.
        clock: gives transaction times, naive and in UTC.
    """

    log: TransactionLog

    def __init__(self, path: Path, clock: Clock = utc_now) -> None:
        super().__init__(path, clock)
        self.sqlite.execute("PRAGMA cache_size = -32000")
        self.sqlite.execute("PRAGMA foreign_keys = ON")
        register_collations(self.sqlite)
        self.functions = functions_of(self.sqlite)
        self.log = TransactionLog(self.sqlite, self.now)
        self.log.register(self.functions)
        self.definitions = Definitions(self.sqlite, self.catalog, self.now)
        self.identities = Identities(self.sqlite)
        self.isolation = "READ COMMITTED"
        self.late_snapshot = False
        """Whether the open transaction changed to snapshot isolation after it had begun."""
        self.savepoints: list[str] = []
        self._catalog, self._version, self._loaded = Catalog(), -1, 0
        self._attached: dict[str, tuple[int, Catalog]] = {}
        self._last_version = 0
        self._register_functions()

    def now(self) -> str:
        return temporal.to_text(temporal.parse(temporal.of_datetime(self.clock())), "datetime", 3)

    # Names and the catalog.

    def catalog(self) -> Catalog:
        """The catalog as it is now, read again only when the schema changed."""
        (version,) = self.sqlite.execute("PRAGMA schema_version").fetchone()
        if version != self._version:
            self._catalog, self._version, self._loaded = catalogs.load(self.sqlite), version, self._loaded + 1
        return self._catalog

    def changed(self) -> None:
        """The catalog's rows changed without a change of SQLite's own schema."""
        self._version = -1

    def schema_versions(self) -> tuple[int, ...]:
        """What changes with the catalog, or with that of another database which this connection reads."""
        self.catalog()
        others = (f"PRAGMA {quoted('db_' + name)}.schema_version" for name in self._attached)
        return (self._loaded, *(self.sqlite.execute(other).fetchone()[0] for other in others))

    def database_names(self) -> list[str]:
        """The server's databases in the order of their ids, which start at 1."""
        return ["master", "tempdb", "model", "msdb", *files.databases(self.path.parent)]

    def file_of(self, database: str) -> Path:
        """The file of a database of this server; raises error 911 without one."""
        found = files.find(self.path.parent, database)
        if found is None:
            raise no_database(database)
        return found

    def find(self, database: str, schema: str, name: str) -> tuple[TableInfo, str]:
        """A table of this database or another one, and its SQLite name; raises error 208 without one."""
        shown = ".".join(p for p in (database, schema, name) if p)
        if database.lower() == "msdb":
            database, schema = "", "msdb" if schema.lower() == "dbo" else schema
        if database and database.lower() not in (self.name.lower(), "master"):
            found = self._other(database).find(schema, name)
            if found is None:
                raise invalid_object(shown)
            return found, f"{quoted('db_' + database.lower())}.{quoted(found.path)}"
        found = self.catalog().find(schema, name)
        if found is None:
            raise invalid_object(shown if schema.lower() != "dbo" or database else name)
        return found, quoted(found.path)

    def _other(self, database: str) -> Catalog:
        lowered = database.lower()
        alias = quoted("db_" + lowered)
        found = self.file_of(database)
        if lowered not in self._attached:
            self.sqlite.execute(f"ATTACH DATABASE ? AS {alias}", (str(found),))
        (version,) = self.sqlite.execute(f"PRAGMA {alias}.schema_version").fetchone()
        known = self._attached.get(lowered)
        if known is not None and known[0] == version:
            return known[1]
        other = sqlite3.connect(f"file:{found}?mode=ro", uri=True)
        try:
            register_collations(other)
            catalog = catalogs.load(other)
        finally:
            other.close()
        self._attached[lowered] = (version, catalog)
        return catalog

    # Errors and the end of transactions.

    def translated(self, error: sqlite3.Error) -> Error:
        failure = self.functions.take_failure()
        if failure is not None:
            return failure
        text = str(error)
        if text.startswith("UNIQUE constraint failed"):
            found = re.search(r"failed: (?:index ')?(.*?)'?$", text)
            path = ".".join((found[1] if found else "").split(",")[0].split(".")[:2])
            return duplicate_key(path, path)
        if text.startswith("NOT NULL constraint failed"):
            path = text.rsplit(": ", 1)[1]
            return null_refused(path.rsplit(".", 1)[1], path.rsplit(".", 1)[0])
        if text.startswith(("FOREIGN KEY constraint failed", "CHECK constraint failed")):
            kind = text.split(" constraint")[0]
            return IntegrityError(
                f'The statement conflicted with the {kind} constraint. The conflict occurred in database'
                f' "{self.name}".', 547
            )  # fmt: skip
        if isinstance(error, sqlite3.OperationalError) and ("locked" in text or "busy" in text):
            return OperationalError("Lock request time out period exceeded.", 1222)
        return ProgrammingError(f"The SQL Server emulator could not run the statement: {text}.", 0)

    def rollback(self) -> None:
        super().rollback()
        self.identities.forget()

    def _ended(self) -> None:
        super()._ended()
        self.late_snapshot = False
        self.savepoints.clear()

    # Functions.

    def _register_functions(self) -> None:
        register = self.functions.register
        register("tsql_now", 1, self._now_as, deterministic=False)
        register("tsql_newid", 0, lambda: str(uuid.uuid4()).upper(), deterministic=False)
        register("tsql_server_property", 1, lambda name: _PROPERTIES.get(str(name).lower()))
        register("tsql_last_identity", 0, lambda: self.identities.last, deterministic=False)
        register("tsql_identity", 1, self.identities.next, deterministic=False)
        register("tsql_rowversion", 0, self._row_version, deterministic=False)
        register("tsql_db_name", 2, self._db_name, deterministic=False)
        register("tsql_db_id", 2, self._db_id, deterministic=False)
        register("tsql_upper", 1, lambda text: None if text is None else str(text).upper())
        register("tsql_lower", 1, lambda text: None if text is None else str(text).lower())
        register("tsql_replicate", 2, lambda text, n: None if text is None or n is None or n < 0 else str(text) * n)
        register("tsql_decimal_abs", 3, lambda value, _, scale: None if value is None else str(value).lstrip("-"))
        register("tsql_decimal_round", 3, _round)
        register(
            "tsql_bit_set",
            2,
            lambda n, mask: None if mask is None else mask[len(mask) - 1 - (n - 1) // 8] >> ((n - 1) % 8) & 1,
        )

    def _now_as(self, kind: str) -> str:
        moment = temporal.parse(temporal.of_datetime(self.clock()))
        return temporal.to_text(moment, kind, 3 if kind == "datetime" else 7)

    def _row_version(self) -> bytes:
        # Unique and growing in one database, because there is one writer and clocks move on.
        self._last_version = max(self._last_version + 1, int(self.clock().timestamp() * 1_000_000))
        return self._last_version.to_bytes(8, "big")

    def _db_name(self, number: int | None, given: int) -> str | None:
        if not given:
            return self.name
        names = self.database_names()
        return names[number - 1] if number is not None and 0 < number <= len(names) else None

    def _db_id(self, name: str | None, given: int) -> int | None:
        wanted = name if given else self.name
        lowered = [n.lower() for n in self.database_names()]
        return lowered.index(wanted.lower()) + 1 if wanted is not None and wanted.lower() in lowered else None


def _round(value: Any, digits: int, scale: int) -> Any:
    if value is None:
        return None
    rounded = Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    return format(rounded.quantize(Decimal(1).scaleb(-scale)), "f")
