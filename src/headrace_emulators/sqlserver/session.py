"""One connection's work: statements in, results out, transactions, and the log of what they change."""

from __future__ import annotations

import datetime as dt
import os
import re
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from headrace_emulators.engine import database_files as files
from headrace_emulators.sqlserver import catalog as catalogs
from headrace_emulators.sqlserver import temporal
from headrace_emulators.sqlserver.alterations import Alterations
from headrace_emulators.sqlserver.capture import scan_if_idle
from headrace_emulators.sqlserver.catalog import Catalog, TableInfo, quoted
from headrace_emulators.sqlserver.change_log import TransactionLog
from headrace_emulators.sqlserver.collations import register_collations
from headrace_emulators.sqlserver.computed_views import ComputedViews
from headrace_emulators.sqlserver.conversion import bound
from headrace_emulators.sqlserver.definitions import Definitions
from headrace_emulators.sqlserver.errors import (
    Error,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    duplicate_key,
    invalid_object,
    no_database,
    not_emulated,
    null_refused,
    syntax_error,
)
from headrace_emulators.sqlserver.flow import run_batch
from headrace_emulators.sqlserver.functions import FunctionHost
from headrace_emulators.sqlserver.identities import Identities
from headrace_emulators.sqlserver.modules import create_module, is_module
from headrace_emulators.sqlserver.permissions import Permissions
from headrace_emulators.sqlserver.reader import StatementReader
from headrace_emulators.sqlserver.result import Result, Rows
from headrace_emulators.sqlserver.sequences import Sequences, define_sequence
from headrace_emulators.sqlserver.statements import StatementTranslator, Translation
from headrace_emulators.sqlserver.types import DEFAULT_COLLATION
from headrace_emulators.sqlserver.variables import Variables
from headrace_emulators.sqlserver.writing import Writing

QUERY_LOG = "HEADRACE_EMULATOR_QUERY_LOG"
"""The environment variable that names a file to which each executed statement is appended, one per line."""

_STABLE = ("SNAPSHOT", "SERIALIZABLE", "REPEATABLE READ")

Clock = Callable[[], dt.datetime]
_BUSY_SECONDS = 60.0
_VERSION = "Microsoft SQL Server 2022 (RTM-CU14) - 16.0.4135.4 (X64) (emulated by Headrace on SQLite)"
_PROPERTIES = {
    "version": _VERSION, "productversion": "16.0.4135.4", "productlevel": "RTM", "edition": "Developer Edition"
    " (64-bit)",
    "engineedition": 3, "servername": "EMULATOR", "machinename": "EMULATOR", "collation": DEFAULT_COLLATION,
    "productmajorversion": "16", "status": "ONLINE", "updateability": "READ_WRITE",
}  # fmt: skip


def utc_now() -> dt.datetime:
    """The server's clock, which runs in UTC."""
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


class Session:
    """A connection to one database file.

    Args:
        path: the SQLite file.
        user: the login, for permissions.
        clock: gives transaction times.
    """

    def __init__(self, path: Path, *, user: str = "sa", clock: Clock = utc_now) -> None:
        self.user = user
        self.clock = clock
        self.autocommit = True
        self.variables = Variables()
        self.messages: list[str] = []
        self.caught: Error | None = None
        self.permissions = Permissions(self)
        self._open(path)

    def _open(self, path: Path) -> None:
        self.path = path
        self.database = files.name_of(path)
        self.sqlite = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        self.sqlite.execute("PRAGMA synchronous = OFF")
        self.sqlite.execute("PRAGMA cache_size = -32000")
        self.sqlite.execute("PRAGMA recursive_triggers = OFF")
        self.sqlite.execute("PRAGMA foreign_keys = ON")
        register_collations(self.sqlite)
        self.host = FunctionHost(self.sqlite)
        self.log = TransactionLog(self.sqlite, self.now)
        self.log.register(self.host)
        self.definitions = Definitions(self.sqlite, self.catalog, self.now)
        self.alterations = Alterations(self.sqlite, self.catalog, self.now, self.definitions)
        self.sequences = Sequences(self)
        self._views = ComputedViews(self)
        self.identities = Identities(self.sqlite)
        self._register_functions()
        self._version = -1
        self._catalog = Catalog()
        self._translations: dict[object, Translation] = {}
        self._depth = 0
        self._writing = False
        self.isolation = "READ COMMITTED"
        self._late_snapshot = False
        self._savepoints: list[str] = []
        self._transaction_name = ""
        self._rowcount = 0
        self._attached: dict[str, tuple[int, Catalog]] = {}

    # The clock, names and the catalog.

    def now(self) -> str:
        """The time as stored text of a datetime."""
        return temporal.to_text(temporal.parse(temporal.of_datetime(self.clock())), "datetime", 3)

    def use(self, name: str) -> None:
        """Go on in another database of the server; raises error 911 when it is not there."""
        path = files.find(self.path.parent, name)
        if path is None:
            raise no_database(name)
        if path != self.path:
            if self.explicit and self.sqlite.in_transaction:
                raise not_emulated("USE of another database inside of a transaction", f"USE {name}")
            self.sqlite.close()
            self._open(path)

    def catalog(self) -> Catalog:
        """The catalog as it is now, read again only when the structure changed."""
        (version,) = self.sqlite.execute("PRAGMA schema_version").fetchone()
        if version != self._version:
            self._catalog = catalogs.load(self.sqlite)
            self._translations.clear()
            self._version = version
        return self._catalog

    def changed(self) -> None:
        """The catalog's rows changed without a change of SQLite's structure."""
        self._version = -1

    def _find(self, database: str, schema: str, name: str) -> tuple[TableInfo, str]:
        shown = ".".join(p for p in (database, schema, name) if p)
        if database.lower() == "msdb":
            database, schema = "", "msdb" if schema.lower() == "dbo" else schema
        if database and database.lower() not in (self.database.lower(), "master"):
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
        found = files.find(self.path.parent, database)
        if found is None:
            raise no_database(database)
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

    # Statements.

    def execute(self, text: str, parameters: Sequence[object] = ()) -> Result:
        """Run the statements of a text and give the result of the last query, or of the last statement.

        Raises:
            Error: as a server would answer.
        """
        _record(text)
        return run_batch(self, text, [bound(p) for p in parameters])

    def run_simple(self, words: str, statement: str, values: list[object]) -> tuple[Result, int]:
        """Run one statement.

        Args:
            words: its first words in upper case.
            statement: its text.
            values: the parameters to come.

        Returns:
            The result, and how many parameters were taken.
        """
        first = words.split(" ")[0]
        if first in ("SELECT", "WITH", "(", "INSERT", "UPDATE", "DELETE"):
            return self._translated(statement, values)
        if first in ("EXEC", "EXECUTE") or first.startswith("SP_"):
            from headrace_emulators.sqlserver.procedures import call

            return call(self, statement, values)
        if words.startswith(("CREATE DATABASE", "ALTER DATABASE", "DROP DATABASE")):
            from headrace_emulators.sqlserver.databases import change_databases

            change_databases(self, statement)
        elif first in ("CREATE", "ALTER", "DROP", "TRUNCATE"):
            with self.writing():
                if words.split(" ")[1:2] == ["SEQUENCE"]:
                    define_sequence(self, statement)
                elif is_module(words):
                    create_module(self, statement)
                elif first == "TRUNCATE" or words.startswith(("ALTER TABLE", "DROP TABLE")):
                    self.alterations.run(statement)
                else:
                    self.definitions.run(statement)
        else:
            self._control(words, statement)
        return Result((), Rows.of(()), -1), 0

    def translation(self, statement: str) -> Translation:
        """A SELECT, INSERT, UPDATE or DELETE for SQLite; kept until the structure changes."""
        self.catalog()
        for name, (version, _) in list(self._attached.items()):
            if self.sqlite.execute(f"PRAGMA {quoted('db_' + name)}.schema_version").fetchone()[0] != version:
                self._translations.clear()
        key: object = (statement, self.variables.types) if self.variables else statement
        found = self._translations.get(key)
        if found is None:
            found = StatementTranslator(statement, self._find, self.variables.types, self.sequences.find).translate()
            if len(self._translations) > 2000:
                self._translations.clear()
            self._translations[key] = found
        return found

    def _translated(self, statement: str, values: list[object]) -> tuple[Result, int]:
        translation = self.translation(statement)
        if len(values) < translation.parameters:
            raise ProgrammingError(
                f"The SQL contains {translation.parameters} parameter markers, but {len(values)} parameters were"
                " supplied.",
                0,
            )
        self.permissions.check(translation.read)
        self._check_snapshot(translation)
        for name in translation.computed:
            self._views.fill(name)
        if any(table.path == "sys.dm_cdc_log_scan_sessions" for table in translation.read):
            scan_if_idle(self)
        used = [*values[: translation.parameters], *(self.variables.find(v).value for v in translation.variables)]
        if translation.sequences:
            with self.writing():
                self.sequences.prepare(translation.sequences)
                made = self._ran(translation, used)
                if translation.kind == "query":
                    made.rows = Rows.of(list(made.rows))
                self.sequences.keep(translation.sequences)
            return made, translation.parameters
        return self._ran(translation, used), translation.parameters

    def _ran(self, translation: Translation, used: list[object]) -> Result:
        if translation.kind == "query":
            if self.explicit and not self.sqlite.in_transaction:
                if translation.shared:
                    # There is one writer at a time here, so a lock that keeps writers off one table keeps them off all.
                    self.begin_write()
                elif translation.stable or self.isolation in _STABLE:
                    # An exclusive lock is a stable read only: beside it a session may lock another table.
                    self.sqlite.execute("BEGIN")
            rows = self._sqlite(translation.sql, used)
            if translation.sets:
                found = rows.fetchall()
                for name, value in zip(translation.sets, found[-1] if found else (), strict=False):
                    self.variables.assign(name, value)
                return Result((), Rows.of(()), -1)
            return Result(translation.columns, Rows(rows.fetchmany, self.translated_error))
        with self.writing():
            table = translation.written if translation.kind == "insert" else None
            if table is not None and translation.sets_identity:
                self.identities.check(table)
            self.log.statement()
            if table is not None and not translation.sets_identity:
                self.identities.prepare(table)
            cursor = self._changing(translation, used)
            self._rowcount = cursor.rowcount
            if table is not None:
                self.identities.keep(table, explicit=translation.sets_identity)
        return Result((), Rows.of(()), self._rowcount)

    def _changing(self, translation: Translation, values: list[object]) -> sqlite3.Cursor:
        try:
            return self._sqlite(translation.sql, values)
        except IntegrityError as error:
            from headrace_emulators.sqlserver.key_update import update_keys

            # SQLite checks keys row by row; SQL Server only when the statement is done.
            if error.number != 2627 or translation.kind != "update":
                raise
            return update_keys(self, translation, values)

    def _sqlite(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        try:
            return self.sqlite.execute(sql, values)
        except sqlite3.Error as error:
            raise self.translated_error(error) from error

    def translated_error(self, error: sqlite3.Error) -> Error:
        """An SQLite error as SQL Server would word it."""
        failure = self.host.take_failure()
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
                f' "{self.database}".', 547
            )  # fmt: skip
        if isinstance(error, sqlite3.OperationalError) and ("locked" in text or "busy" in text):
            return OperationalError("Lock request time out period exceeded.", 1222)
        return ProgrammingError(f"The SQL Server emulator could not run the statement: {text}.", 0)

    def _check_snapshot(self, translation: Translation) -> None:
        if self.isolation != "SNAPSHOT" or not any(t.object_id for t in translation.read):
            return
        if self.state("allow_snapshot_isolation", "OFF") != "ON":
            raise ProgrammingError(
                f"Snapshot isolation transaction failed accessing database '{self.database}' because snapshot isolation"
                " is not allowed in this database. Use ALTER DATABASE to allow snapshot isolation.",
                3952,
            )
        if self._late_snapshot:
            raise ProgrammingError(
                f"Transaction failed in database '{self.database}' because the statement was run under snapshot"
                " isolation but the transaction did not start in snapshot isolation. You cannot change the isolation"
                " level of the transaction to snapshot after the transaction has started unless the transaction was"
                " originally started under snapshot isolation level.",
                3951,
            )

    def state(self, name: str, default: str = "") -> str:
        """A setting of the database that its file keeps."""
        row = self.sqlite.execute('SELECT value FROM "emulator.state" WHERE name = ?', (name,)).fetchone()
        return default if row is None else str(row[0])

    def set_state(self, name: str, value: str) -> None:
        """Change a setting that the database's file keeps."""
        with self.writing():
            self.sqlite.execute('INSERT OR REPLACE INTO "emulator.state" VALUES (?, ?)', (name, value))

    # Transactions.

    @property
    def explicit(self) -> bool:
        """Whether a transaction is open that only COMMIT or ROLLBACK ends."""
        return self._depth > 0 or not self.autocommit

    def writing(self) -> Writing:
        """A scope in which the database may be changed; ends the transaction when it began one by itself."""
        return Writing(self)

    @property
    def writes(self) -> bool:
        """Whether this connection is the one writer now."""
        return self._writing

    def begin_write(self) -> None:
        """Become the one writer, unless this connection is it."""
        if self._writing:
            return
        try:
            # A transaction that already reads can only be upgraded, and fails when someone else wrote meanwhile.
            if not self.sqlite.in_transaction:
                self.sqlite.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self.translated_error(error) from error
        self._writing = True
        self.log.begin()

    def commit(self) -> bytes | None:
        """End the transaction; what it changed in captured tables gets its LSN.

        Returns:
            The commit LSN, null when no captured row was changed.
        """
        lsn = None
        if self._writing:
            lsn = self.log.commit()
        if self.sqlite.in_transaction:
            self.sqlite.execute("COMMIT")
        self._ended()
        return lsn

    def _ended(self) -> None:
        self._writing, self._depth, self._late_snapshot = False, 0, False
        self._savepoints.clear()

    def rollback(self) -> None:
        """Undo the transaction."""
        self.log.rollback()
        if self.sqlite.in_transaction:
            self.sqlite.execute("ROLLBACK")
        self._ended()
        self.identities.forget()
        self.changed()

    def begin(self) -> None:
        """BEGIN TRANSACTION; they nest as on a server."""
        self._depth += 1

    def close(self) -> None:
        """Roll back what is open and close."""
        if self.sqlite.in_transaction:
            self.rollback()
        self.sqlite.close()

    def _control(self, words: str, statement: str) -> None:
        parts = words.split(" ")
        if parts[0] == "BEGIN" and len(parts) > 1 and parts[1] in ("TRAN", "TRANSACTION"):
            if not self._depth:
                self._transaction_name = _transaction_name(statement)
            self.begin()
        elif parts[0] == "COMMIT":
            if not self.explicit:
                raise ProgrammingError("The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION.", 3902)
            if self._depth > 1:
                self._depth -= 1
            else:
                self.commit()
        elif parts[0] == "ROLLBACK":
            if not self.explicit:
                raise ProgrammingError("The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION.", 3903)
            name = _transaction_name(statement)
            if name in self._savepoints:
                self.sqlite.execute(f"ROLLBACK TO {quoted('savepoint ' + name)}")
                self.changed()
            elif name and name != self._transaction_name:
                raise ProgrammingError(
                    f"Cannot roll back {name}. No transaction or savepoint of that name was found.", 6401
                )
            else:
                self.rollback()
        elif parts[0] == "SAVE":
            if not self.explicit:
                raise ProgrammingError("Cannot issue SAVE TRANSACTION when there is no active transaction.", 628)
            self.begin_write()
            name = _transaction_name(statement)
            self.sqlite.execute(f"SAVEPOINT {quoted('savepoint ' + name)}")
            self._savepoints.append(name)
        elif parts[0] == "SET":
            self._set(statement)
        elif parts[0] in ("GRANT", "DENY", "REVOKE"):
            self.permissions.change(statement)
        elif parts[0] == "USE":
            self.use(StatementReader(statement).after("USE").name())
        elif parts[0] != "WAITFOR":
            # A WAITFOR has nothing to wait for: capture runs when it is told to.
            raise not_emulated(f"{parts[0]}", statement)

    def _set(self, statement: str) -> None:
        text = " ".join(statement.upper().split())
        if text.startswith("SET IDENTITY_INSERT"):
            reader = StatementReader(statement).after("SET", "IDENTITY_INSERT")
            table, _ = self._find(*reader.path())
            self.identities.explicit = table.object_id if reader.accept("ON") else 0
        elif text.startswith("SET TRANSACTION ISOLATION LEVEL "):
            level = text.removeprefix("SET TRANSACTION ISOLATION LEVEL ")
            if level not in (*_STABLE, "READ COMMITTED", "READ UNCOMMITTED"):
                raise syntax_error(level.split(" ")[0])
            self._late_snapshot = level == "SNAPSHOT" != self.isolation and self.sqlite.in_transaction
            self.isolation = level
        elif text.startswith("SET LOCK_TIMEOUT "):
            wait = StatementReader(statement).after("SET", "LOCK_TIMEOUT").integer()
            self.sqlite.execute(f"PRAGMA busy_timeout = {wait if wait >= 0 else int(_BUSY_SECONDS * 1000)}")
        elif not re.match(
            r"SET (NOCOUNT|ANSI_\w+|QUOTED_IDENTIFIER|XACT_ABORT|ARITHABORT|DATEFORMAT|DATEFIRST|LANGUAGE|"
            r"CONCAT_NULL_YIELDS_NULL|NUMERIC_ROUNDABORT|DEADLOCK_PRIORITY|TEXTSIZE|IMPLICIT_TRANSACTIONS OFF)\b", text
        ):  # fmt: skip
            raise not_emulated("this SET", statement)

    # What functions and computed views need.

    def _register_functions(self) -> None:
        register = self.host.register
        register("tsql_now", 1, self._now_as, deterministic=False)
        register("tsql_newid", 0, lambda: str(uuid.uuid4()).upper(), deterministic=False)
        register("tsql_user", 0, lambda: self.user, deterministic=False)
        register("tsql_server_property", 1, lambda name: _PROPERTIES.get(str(name).lower()))
        register("tsql_last_identity", 0, lambda: self.identities.last, deterministic=False)
        register("tsql_transactions", 0, lambda: self._depth, deterministic=False)
        register("tsql_rowcount", 0, lambda: self._rowcount, deterministic=False)
        register("tsql_identity", 1, self.identities.next, deterministic=False)
        register("tsql_rowversion", 0, self._row_version, deterministic=False)
        register("tsql_db_name", 2, self._db_name, deterministic=False)
        register("tsql_db_id", 2, self._db_id, deterministic=False)
        register("tsql_role", 0, lambda: 1)
        register("tsql_permitted", 3, self.permissions.allowed, deterministic=False)
        register("tsql_next_value", 1, self.sequences.next, deterministic=False)
        register("tsql_error", 1, self._error, deterministic=False)
        register("tsql_upper", 1, lambda text: None if text is None else str(text).upper())
        register("tsql_lower", 1, lambda text: None if text is None else str(text).lower())
        register("tsql_reverse", 1, lambda text: None if text is None else str(text)[::-1])
        register("tsql_replicate", 2, lambda text, n: None if text is None or n is None or n < 0 else str(text) * n)
        register("tsql_decimal_abs", 3, lambda value, _, scale: None if value is None else str(value).lstrip("-"))
        register("tsql_decimal_round", 3, _round)
        register(
            "tsql_bit_set",
            2,
            lambda n, mask: None if mask is None else mask[len(mask) - 1 - (n - 1) // 8] >> ((n - 1) % 8) & 1,
        )

    def _error(self, part: str) -> object:
        if self.caught is None:
            return None
        return {"number": self.caught.number, "message": str(self.caught), "line": self.caught.line}[part]

    def _now_as(self, kind: str) -> str:
        moment = temporal.parse(temporal.of_datetime(self.clock()))
        return temporal.to_text(moment, kind, 3 if kind == "datetime" else 7)

    def _row_version(self) -> bytes:
        # Unique and growing in one database, because there is one writer and clocks move on.
        self._last_version = max(getattr(self, "_last_version", 0) + 1, int(self.clock().timestamp() * 1_000_000))
        return self._last_version.to_bytes(8, "big")

    def database_names(self) -> list[str]:
        """The server's databases in the order of their ids, which start at 1."""
        return ["master", "tempdb", "model", "msdb", *files.databases(self.path.parent)]

    def _db_name(self, number: int | None, given: int) -> str | None:
        if not given:
            return self.database
        names = self.database_names()
        return names[number - 1] if number is not None and 0 < number <= len(names) else None

    def _db_id(self, name: str | None, given: int) -> int | None:
        wanted = name if given else self.database
        lowered = [n.lower() for n in self.database_names()]
        return lowered.index(wanted.lower()) + 1 if wanted is not None and wanted.lower() in lowered else None


def _transaction_name(statement: str) -> str:
    """The name in BEGIN, SAVE, COMMIT or ROLLBACK TRANSACTION; empty without one."""
    reader = StatementReader(statement)
    reader.next()
    if not reader.accept("TRANSACTION"):
        reader.accept("TRAN")
    return "" if reader.done else reader.name()


def _round(value: Any, digits: int, scale: int) -> Any:
    if value is None:
        return None
    rounded = Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    return format(rounded.quantize(Decimal(1).scaleb(-scale)), "f")


def _record(text: str) -> None:
    path = os.environ.get(QUERY_LOG)
    if path:
        with Path(path).open("a", encoding="utf-8") as log:
            log.write(" ".join(text.split()) + "\n")
