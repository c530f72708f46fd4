"""An emulated Db2 as tests and demos control it: databases, logins, transactions, and when capture happens."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from headrace_emulators.db2 import capture as program
from headrace_emulators.db2.capture import CaptureProgram
from headrace_emulators.db2.catalog import SYSTEM_TABLES, quoted
from headrace_emulators.db2.driver import Connection, Cursor
from headrace_emulators.db2.errors import OperationalError, ProgrammingError
from headrace_emulators.db2.session import Db2Session
from headrace_emulators.db2.storage import Db2Storage
from headrace_emulators.db2.syntax import Reader, statements
from headrace_emulators.db2.zos import ZOS_TABLES, ZOS_VIEWS
from headrace_emulators.engine import database_files as files
from headrace_emulators.engine.server import DatabaseHandle, ServerDirectory
from headrace_emulators.engine.storage import Clock, utc_now

_FIRST_LSN = 0x4E0000


class EmulatedDb2(ServerDirectory):
    """A Db2 server that is a directory; its databases are files in it."""

    def create_database(
        self, name: str, *, clock: Clock = utc_now, lsn_bytes: int = 16, zone_minutes: int = 0
    ) -> EmulatedDb2Database:
        """Make a database that is set up for SQL Replication.

        Args:
            name: must not exist yet.
            clock: gives transaction times, naive and in UTC.
            lsn_bytes: 16, or 10 as in old releases.
            zone_minutes: how far the server's clock is ahead of UTC.

        Raises:
            ProgrammingError: it exists (SQL1005N).
        """
        if files.find(self.directory, name) is not None:
            raise ProgrammingError(-1005, "42710", f'The database alias "{name}" already exists.')
        path = self.directory / f"{name}{files.SUFFIX}"
        made = sqlite3.connect(path, isolation_level=None)
        try:
            made.execute("PRAGMA journal_mode = WAL")
            made.execute("BEGIN")
            made.execute('CREATE TABLE "emulator.state" (name TEXT PRIMARY KEY, value) WITHOUT ROWID')
            made.execute(
                'CREATE TABLE "emulator.tables" (schema TEXT, name TEXT, body TEXT, PRIMARY KEY (schema, name))'
            )
            made.execute(
                'CREATE TABLE "emulator.transactions" (tran INTEGER PRIMARY KEY, commit_lsn BLOB, begin_time TEXT,'
                " commit_time TEXT)"
            )
            state = {"lsn": str(_FIRST_LSN), "lsn_bytes": lsn_bytes, "transaction": 0, "table": 3, "zone": zone_minutes}
            made.executemany('INSERT INTO "emulator.state" VALUES (?, ?)', list(state.items()))
            made.execute("COMMIT")
        finally:
            made.close()
        database = EmulatedDb2Database(path, clock=clock)
        storage = database.session.storage
        with storage.writing():
            for sql in statements(SYSTEM_TABLES):
                storage.definitions.run(Reader(sql), "SYSCAT")
            storage.sqlite.execute("INSERT INTO \"SYSIBM.SYSDUMMY1\" VALUES ('Y')")
            database.session.registrations.create()
            for sql in statements(ZOS_TABLES):
                storage.definitions.declare(Reader(sql))
            for sql in ZOS_VIEWS:
                storage.sqlite.execute(sql)
        return database

    @staticmethod
    def _bring_forward(database: EmulatedDb2Database) -> None:
        """Give a file of an earlier release what its catalog lacks."""
        storage = database.session.storage
        known = {row[1] for row in storage.sqlite.execute('PRAGMA table_info("SYSCAT.TABLES")').fetchall()}
        if "CONTROL" in known:
            return
        with storage.writing():
            storage.sqlite.execute("ALTER TABLE \"SYSCAT.TABLES\" ADD COLUMN CONTROL TEXT DEFAULT ' '")
            storage.sqlite.execute('DROP VIEW "SYSIBM.SYSTABLES"')
            storage.sqlite.execute(ZOS_VIEWS[0])
            for sql in (*statements(SYSTEM_TABLES), *statements(ZOS_TABLES)):
                storage.definitions.declare(Reader(sql))

    def database(self, name: str, *, clock: Clock = utc_now) -> EmulatedDb2Database:
        """An existing database; raises OperationalError (SQL1013N) without one."""
        path = files.find(self.directory, name)
        if path is None:
            raise OperationalError(-1013, "42705", f'The database name "{name}" could not be found.')
        database = EmulatedDb2Database(path, clock=clock)
        self._bring_forward(database)
        return database


class EmulatedDb2Database(DatabaseHandle[Db2Session, Cursor]):
    """One database, with a connection through which a test or demo controls it. Not shared between threads."""

    def open_session(self) -> Db2Session:
        return Db2Session(self.path, clock=lambda: self.clock())

    def connect(self) -> Connection:
        return Connection(self.open_session())

    def cursor(self) -> Cursor:
        return Connection(self.session).cursor()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run one statement in a transaction of its own; gives a cursor with the result."""
        return self.cursor().execute(sql, parameters)

    def script(self, text: str) -> None:
        """Run statements that semicolons end."""
        for sql in statements(text):
            self.execute(sql)

    def register(
        self,
        schema: str,
        table: str,
        *,
        active: bool = True,
        split_updates: bool = True,
        before_prefix: str = "",
        before_columns: Sequence[str] | None = None,
    ) -> None:
        """Register a table with the setup's procedures, and activate it.

        Args:
            schema: its schema.
            table: its name.
            active: whether it is captured from now on.
            split_updates: whether an update is a D and an I row instead of one U row.
            before_prefix: the prefix of the names of columns that hold values before an update.
            before_columns: which columns have one; None for all.
        """
        self.execute(f"CALL ASNCDC.ADDTABLE({_constant(schema)}, {_constant(table)})")
        which = f"WHERE SOURCE_OWNER = {_constant(schema)} AND SOURCE_TABLE = {_constant(table)}"
        if not split_updates:
            self.execute(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET CHG_UPD_TO_DEL_INS = 'N' {which}")
        if before_prefix:
            change_table = f"ASNCDC.{quoted(f'CDC_{schema}_{table}')}"
            source = self.session.storage.definitions.table(schema, table)
            for column in source.columns:
                if before_columns is None or column.name in before_columns:
                    added = f"{quoted(before_prefix + column.name)} {column.type.declaration}"
                    self.execute(f"ALTER TABLE {change_table} ADD COLUMN {added}")
            self.execute(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET BEFORE_IMG_PREFIX = {_constant(before_prefix)} {which}")
        if active:
            self.execute(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'A' {which}")
        self.execute("VALUES ASNCDC.ASNCDCSERVICES('reinit', 'asncdc')")

    def deregister(self, schema: str, table: str) -> None:
        """Take a table's registration away."""
        self.execute(f"CALL ASNCDC.REMOVETABLE({_constant(schema)}, {_constant(table)})")
        self.execute("VALUES ASNCDC.ASNCDCSERVICES('reinit', 'asncdc')")

    def load(self, table: str, rows: Iterable[Sequence[Any]]) -> int:
        """Insert rows into all columns of a table as one transaction; gives how many."""
        count = 0
        with self.transaction() as cursor:
            for row in rows:
                cursor.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
                count += 1
        return count

    def capture(self, max_transactions: int | None = None) -> int:
        """One look of the Capture program at the log: gives how many transactions became visible."""
        return program.capture(self.session.storage, max_transactions)

    def _open_storage(self) -> Db2Storage:
        return Db2Storage(self.path, lambda: self.clock())

    def capture_program(self, *, poll: float = 0.1, max_transactions: int | None = None) -> CaptureProgram:
        """The Capture program as a thread; start it, or use it as a context manager. Times are in seconds."""
        return CaptureProgram(self._open_storage, poll=poll, max_transactions=max_transactions)

    def capturing(self) -> CaptureProgram:
        return self.capture_program()

    def prune(self, mark: bytes | None = None, *, retention: dt.timedelta | None = None) -> None:
        """Forget old changes.

        Args:
            mark: the oldest commit that stays; None for all that was captured.
            retention: instead of a mark, how long changes are kept by their commit time.
        """
        if retention is not None:
            program.prune_old(self.session.storage, retention)
        else:
            program.prune(self.session.storage, mark)

    def lsn(self, commit: bytes, records: Sequence[bytes] = ()) -> None:
        """Decide the commit sequence of this object's next logged transaction, and the sequences of its changes."""
        self.session.storage.log.force(commit, records)


def _constant(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
