"""One connection's work: statements in, results out."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from headrace_emulators.engine.session import Session
from headrace_emulators.engine.storage import BUSY_SECONDS, Clock, record_query, utc_now
from headrace_emulators.sqlserver import procedures
from headrace_emulators.sqlserver.alterations import Alterations
from headrace_emulators.sqlserver.capture import scan_if_idle
from headrace_emulators.sqlserver.catalog import quoted
from headrace_emulators.sqlserver.computed_views import ComputedViews
from headrace_emulators.sqlserver.conversion import bound
from headrace_emulators.sqlserver.databases import change_databases
from headrace_emulators.sqlserver.errors import IntegrityError, ProgrammingError, not_emulated, syntax_error
from headrace_emulators.sqlserver.flow import BatchState, run_batch
from headrace_emulators.sqlserver.key_update import update_keys
from headrace_emulators.sqlserver.modules import create_module, is_module
from headrace_emulators.sqlserver.permissions import Permissions
from headrace_emulators.sqlserver.reader import StatementReader
from headrace_emulators.sqlserver.result import Result
from headrace_emulators.sqlserver.sequences import Sequences, define_sequence
from headrace_emulators.sqlserver.statements import StatementTranslator, Translation
from headrace_emulators.sqlserver.storage import SqlServerStorage

_STABLE = ("SNAPSHOT", "SERIALIZABLE", "REPEATABLE READ")


class SqlServerSession(Session):
    """A connection to one database file.

    Args:
        path: the SQLite file.
        user: the login, for permissions.
        clock: gives transaction times, naive and in UTC.
    """

    storage: SqlServerStorage

    def __init__(self, path: Path, *, user: str = "sa", clock: Clock = utc_now) -> None:
        self.user = user
        self.batch = BatchState()
        self._open(SqlServerStorage(path, clock))

    def _open(self, storage: SqlServerStorage) -> None:
        self.storage = storage
        self._alterations = Alterations(storage)
        self._sequences = Sequences(storage)
        self._permissions = Permissions(storage, self.user)
        self._views = ComputedViews(storage)
        self._translations: dict[object, Translation] = {}
        self._schema_versions: tuple[int, ...] = ()
        self._transaction_name = ""
        self._rowcount = 0
        register = storage.functions.register
        register("tsql_user", 0, lambda: self.user, deterministic=False)
        register("tsql_transactions", 0, lambda: storage.depth, deterministic=False)
        register("tsql_rowcount", 0, lambda: self._rowcount, deterministic=False)
        register("tsql_permitted", -1, self._permissions.allowed, deterministic=False)
        register("tsql_next_value", 1, self._sequences.next, deterministic=False)
        register("tsql_error", 1, self.batch.error, deterministic=False)

    def use(self, name: str) -> None:
        """Go on in another database of the server; raises error 911 without one."""
        path = self.storage.file_of(name)
        if path != self.storage.path:
            if self.storage.explicit and self.storage.sqlite.in_transaction:
                raise not_emulated("USE of another database inside of a transaction", f"USE {name}")
            self.storage.sqlite.close()
            storage = SqlServerStorage(path, self.storage.clock)
            storage.autocommit = self.storage.autocommit
            self._open(storage)

    def execute(self, text: str, parameters: Sequence[object] = ()) -> Result:
        """Run the statements of a text and give the result of the last query, or of the last statement.

        Raises:
            Error: as a server would answer.
        """
        record_query(text)
        return run_batch(self.batch, self.run, text, [bound(p) for p in parameters])

    def run(self, words: str, statement: str, values: list[object]) -> tuple[Result, int]:
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
            return self._call(statement, values)
        if words.startswith(("CREATE DATABASE", "ALTER DATABASE", "DROP DATABASE")):
            change_databases(self.storage, statement)
        elif first in ("CREATE", "ALTER", "DROP", "TRUNCATE"):
            with self.storage.writing():
                if words.split(" ")[1:2] == ["SEQUENCE"]:
                    define_sequence(self.storage, statement)
                elif is_module(words):
                    create_module(self.storage, statement)
                elif first == "TRUNCATE" or words.startswith(("ALTER TABLE", "DROP TABLE")):
                    self._alterations.run(statement)
                else:
                    self.storage.definitions.run(statement)
        else:
            self._control(words, statement)
        return Result(), 0

    def translation(self, statement: str) -> Translation:
        """A SELECT, INSERT, UPDATE or DELETE for SQLite; kept until the structure changes."""
        versions = self.storage.schema_versions()
        if versions != self._schema_versions:
            self._translations.clear()
            self._schema_versions = versions
        variables = self.batch.variables
        key: object = (statement, variables.types) if variables else statement
        found = self._translations.get(key)
        if found is None:
            found = StatementTranslator(statement, self.storage.find, variables.types, self._sequences.find).translate()
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
        self._permissions.check(translation.read)
        self._check_snapshot(translation)
        for name in translation.computed:
            self._views.fill(name)
        if any(table.path == "sys.dm_cdc_log_scan_sessions" for table in translation.read):
            scan_if_idle(self.storage)
        used = [*values[: translation.parameters], *(self.batch.variables.find(v).value for v in translation.variables)]
        if translation.sequences:
            with self.storage.writing():
                self._sequences.prepare(translation.sequences)
                made = self._ran(translation, used)
                if translation.kind == "query":
                    made.rows = iter(list(made.rows))
                self._sequences.keep(translation.sequences)
            return made, translation.parameters
        return self._ran(translation, used), translation.parameters

    def _ran(self, translation: Translation, used: list[object]) -> Result:
        if translation.kind == "query":
            if self.storage.explicit and not self.storage.sqlite.in_transaction:
                if translation.shared:
                    # There is one writer at a time here, so a lock that keeps writers off one table keeps them off all.
                    self.storage.begin_write()
                elif translation.stable or self.storage.isolation in _STABLE:
                    # An exclusive lock is a stable read only: beside it a session may lock another table.
                    self.storage.sqlite.execute("BEGIN")
            rows = self.storage.execute(translation.sql, used)
            if translation.sets:
                found = rows.fetchall()
                for name, value in zip(translation.sets, found[-1] if found else (), strict=False):
                    self.batch.variables.assign(name, value)
                return Result()
            return Result(translation.columns, self.storage.rows(rows))
        with self.storage.writing():
            table = translation.written if translation.kind == "insert" else None
            if table is not None and translation.sets_identity:
                self.storage.identities.check(table)
            self.storage.log.statement()
            if table is not None and not translation.sets_identity:
                self.storage.identities.prepare(table)
            cursor = self._changing(translation, used)
            self._rowcount = cursor.rowcount
            if table is not None:
                self.storage.identities.keep(table, explicit=translation.sets_identity)
        return Result(rowcount=self._rowcount)

    def _changing(self, translation: Translation, values: list[object]) -> sqlite3.Cursor:
        try:
            return self.storage.execute(translation.sql, values)
        except IntegrityError as error:
            # SQLite checks keys row by row; SQL Server only when the statement is done.
            if error.number != 2627 or translation.kind != "update":
                raise
            return update_keys(self.storage, translation, values)

    def _call(self, statement: str, values: list[object]) -> tuple[Result, int]:
        call = procedures.read_call(statement, values, self.batch.variables)
        session, own = self, call.database.lower() in ("", self.storage.name.lower(), "master")
        if not own:
            clock = self.storage.clock
            session = SqlServerSession(self.storage.file_of(call.database), user=self.user, clock=clock)
        try:
            if call.name == "sp_executesql":
                return session.execute(str(call.arguments["stmt"])), call.parameters
            return procedures.run(session.storage, call), call.parameters
        finally:
            if not own:
                session.close()

    def _check_snapshot(self, translation: Translation) -> None:
        storage = self.storage
        if storage.isolation != "SNAPSHOT" or not any(t.object_id for t in translation.read):
            return
        if storage.state("allow_snapshot_isolation", "OFF") != "ON":
            raise ProgrammingError(
                f"Snapshot isolation transaction failed accessing database '{storage.name}' because snapshot isolation"
                " is not allowed in this database. Use ALTER DATABASE to allow snapshot isolation.",
                3952,
            )
        if storage.late_snapshot:
            raise ProgrammingError(
                f"Transaction failed in database '{storage.name}' because the statement was run under snapshot"
                " isolation but the transaction did not start in snapshot isolation. You cannot change the isolation"
                " level of the transaction to snapshot after the transaction has started unless the transaction was"
                " originally started under snapshot isolation level.",
                3951,
            )

    # Transactions and settings.

    def _control(self, words: str, statement: str) -> None:
        storage = self.storage
        parts = words.split(" ")
        if parts[0] == "BEGIN" and len(parts) > 1 and parts[1] in ("TRAN", "TRANSACTION"):
            if not storage.depth:
                self._transaction_name = _transaction_name(statement)
            storage.begin()
        elif parts[0] == "COMMIT":
            if not storage.explicit:
                raise ProgrammingError("The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION.", 3902)
            if storage.depth > 1:
                storage.depth -= 1
            else:
                storage.commit()
        elif parts[0] == "ROLLBACK":
            if not storage.explicit:
                raise ProgrammingError("The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION.", 3903)
            name = _transaction_name(statement)
            if name in storage.savepoints:
                storage.sqlite.execute(f"ROLLBACK TO {quoted('savepoint ' + name)}")
                storage.changed()
            elif name and name != self._transaction_name:
                raise ProgrammingError(
                    f"Cannot roll back {name}. No transaction or savepoint of that name was found.", 6401
                )
            else:
                storage.rollback()
        elif parts[0] == "SAVE":
            if not storage.explicit:
                raise ProgrammingError("Cannot issue SAVE TRANSACTION when there is no active transaction.", 628)
            storage.begin_write()
            name = _transaction_name(statement)
            storage.sqlite.execute(f"SAVEPOINT {quoted('savepoint ' + name)}")
            storage.savepoints.append(name)
        elif parts[0] == "SET":
            self._set(statement)
        elif parts[0] in ("GRANT", "DENY", "REVOKE"):
            self._permissions.change(statement)
        elif parts[0] == "USE":
            self.use(StatementReader(statement).after("USE").name())
        elif parts[0] != "WAITFOR":
            # A WAITFOR has nothing to wait for: capture runs when a test or demo starts it.
            raise not_emulated(f"{parts[0]}", statement)

    def _set(self, statement: str) -> None:
        storage = self.storage
        text = " ".join(statement.upper().split())
        if text.startswith("SET IDENTITY_INSERT"):
            reader = StatementReader(statement).after("SET", "IDENTITY_INSERT")
            table, _ = storage.find(*reader.path())
            storage.identities.explicit = table.object_id if reader.accept("ON") else 0
        elif text.startswith("SET TRANSACTION ISOLATION LEVEL "):
            level = text.removeprefix("SET TRANSACTION ISOLATION LEVEL ")
            if level not in (*_STABLE, "READ COMMITTED", "READ UNCOMMITTED"):
                raise syntax_error(level.split(" ")[0])
            storage.late_snapshot = level == "SNAPSHOT" != storage.isolation and storage.sqlite.in_transaction
            storage.isolation = level
        elif text.startswith("SET LOCK_TIMEOUT "):
            wait = StatementReader(statement).after("SET", "LOCK_TIMEOUT").integer()
            storage.sqlite.execute(f"PRAGMA busy_timeout = {wait if wait >= 0 else int(BUSY_SECONDS * 1000)}")
        elif not re.match(
            r"SET (NOCOUNT|ANSI_\w+|QUOTED_IDENTIFIER|XACT_ABORT|ARITHABORT|DATEFORMAT|DATEFIRST|LANGUAGE|"
            r"CONCAT_NULL_YIELDS_NULL|NUMERIC_ROUNDABORT|DEADLOCK_PRIORITY|TEXTSIZE|IMPLICIT_TRANSACTIONS OFF)\b", text
        ):  # fmt: skip
            raise not_emulated("this SET", statement)


def _transaction_name(statement: str) -> str:
    """The name in BEGIN, SAVE, COMMIT or ROLLBACK TRANSACTION; empty without one."""
    reader = StatementReader(statement)
    reader.next()
    if not reader.accept("TRANSACTION"):
        reader.accept("TRAN")
    return "" if reader.done else reader.name()
