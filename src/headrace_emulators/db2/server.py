"""An emulated Db2 as tests and demos steer it: databases, logins, transactions, and when capture happens."""

from __future__ import annotations

import datetime as dt
import json
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace_emulators.db2 import capture as program
from headrace_emulators.db2.capture import CaptureProgram
from headrace_emulators.db2.catalog import SYSTEM_TABLES, quoted
from headrace_emulators.db2.driver import LOGINS, Connection, Cursor, hashed
from headrace_emulators.db2.errors import OperationalError, ProgrammingError
from headrace_emulators.db2.registrations import REGISTER
from headrace_emulators.db2.session import Clock, Session, utc_now
from headrace_emulators.db2.syntax import Reader, statements
from headrace_emulators.db2.zos import ZOS_TABLES, ZOS_VIEWS
from headrace_emulators.engine import database_files as files

_FIRST_LSN = 0x4E0000


class EmulatedDb2:
    """A Db2 server that is a directory; its databases are files in it.

    Args:
        directory: made when it is not there.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def create_database(
        self, name: str, *, clock: Clock = utc_now, lsn_bytes: int = 16, zone_minutes: int = 0
    ) -> EmulatedDb2Database:
        """Make a database that is set up for SQL Replication.

        Args:
            name: must not be there yet.
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
        with database.session.writing() as session:
            for sql in statements(SYSTEM_TABLES):
                session.definitions.run(Reader(sql), "SYSCAT")
            session.sqlite.execute("INSERT INTO \"SYSIBM.SYSDUMMY1\" VALUES ('Y')")
            session.registrations.create()
            for sql in statements(ZOS_TABLES):
                session.definitions.declare(Reader(sql))
            for sql in ZOS_VIEWS:
                session.sqlite.execute(sql)
        return database

    def database(self, name: str, *, clock: Clock = utc_now) -> EmulatedDb2Database:
        """A database that is there; raises OperationalError (SQL1013N) when it is not."""
        path = files.find(self.directory, name)
        if path is None:
            raise OperationalError(-1013, "42705", f'The database name "{name}" could not be found.')
        return EmulatedDb2Database(path, clock=clock)

    def add_login(self, user: str, password: str) -> None:
        """Let a user in by password. From the first login on, everyone needs one."""
        path = self.directory / LOGINS
        logins = json.loads(path.read_text("utf-8")) if path.exists() else {}
        salt = secrets.token_hex(16)
        logins[user] = {"salt": salt, "hash": hashed(password, salt)}
        path.write_text(json.dumps(logins, indent=1), "utf-8")


class EmulatedDb2Database:
    """One database, with a connection of its own for the one who steers it. Not shared between threads.

    Args:
        path: the SQLite file.
        clock: gives transaction times; set the attribute to move time.
    """

    def __init__(self, path: Path, *, clock: Clock = utc_now) -> None:
        self.path = path
        self.clock = clock
        self._session: Session | None = None

    @property
    def name(self) -> str:
        """The database's name."""
        return files.name_of(self.path)

    @property
    def settings(self) -> dict[str, str]:
        """What a driver needs to connect: hostname and database."""
        return {"hostname": str(self.path.parent), "database": self.name}

    @property
    def session(self) -> Session:
        """The steering connection; opened when first used."""
        if self._session is None:
            self._session = self.open_session()
        return self._session

    def open_session(self) -> Session:
        """A further connection with this database's clock."""
        return Session(self.path, clock=lambda: self.clock())

    def connect(self) -> Connection:
        """A DB-API connection with this database's clock."""
        return Connection(self.open_session())

    def cursor(self) -> Cursor:
        """A cursor on the steering connection."""
        return Connection(self.session).cursor()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run one statement in a transaction of its own; gives a cursor with the result."""
        return self.cursor().execute(sql, parameters)

    def script(self, text: str) -> None:
        """Run statements that semicolons end."""
        for sql in statements(text):
            self.execute(sql)

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """A transaction: committed at the end, rolled back when the block raises.

        Yields:
            A cursor with execute and executemany.
        """
        session = self.session
        session.autocommit = False
        try:
            yield self.cursor()
            session.commit()
        except BaseException:
            session.rollback()
            raise
        finally:
            session.autocommit = True

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
            split_updates: whether an update is a D and an I row; otherwise one U row.
            before_prefix: what stands before the names of columns that hold values before an update.
            before_columns: which columns have such a one; null for all.
        """
        self.execute(f"CALL ASNCDC.ADDTABLE({_constant(schema)}, {_constant(table)})")
        which = f"WHERE SOURCE_OWNER = {_constant(schema)} AND SOURCE_TABLE = {_constant(table)}"
        if not split_updates:
            self.execute(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET CHG_UPD_TO_DEL_INS = 'N' {which}")
        if before_prefix:
            change_table = f"ASNCDC.{quoted(f'CDC_{schema}_{table}')}"
            source = self.session.definitions.table(schema, table)
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
        return program.capture(self.session, max_transactions)

    def capture_program(self, *, poll: float = 0.1, max_transactions: int | None = None) -> CaptureProgram:
        """The Capture program as a thread; start it, or use it as a context manager. Times are in seconds."""
        return CaptureProgram(self.open_session, poll=poll, max_transactions=max_transactions)

    def capturing(self) -> CaptureProgram:
        """The Capture program as demos run it."""
        return self.capture_program()

    def prune(self, mark: bytes | None = None, *, retention: dt.timedelta | None = None) -> None:
        """Forget old changes.

        Args:
            mark: the oldest commit that stays; null for all that was captured.
            retention: instead of a mark, how long changes are kept by their commit time.
        """
        if retention is not None:
            program.prune_old(self.session, retention)
        else:
            program.prune(self.session, mark)

    def lsn(self, commit: bytes, records: Sequence[bytes] = ()) -> None:
        """Decide the commit sequence of this object's next logged transaction, and the sequences of its changes."""
        self.session.log.force(commit, records)

    def synchpoint(self) -> bytes:
        """How far the Capture program has read the log."""
        row = self.session.sqlite.execute(
            f"SELECT SYNCHPOINT FROM {quoted(REGISTER)} WHERE GLOBAL_RECORD = 'Y'"
        ).fetchone()
        return bytes(row[0])

    def close(self) -> None:
        """Close the steering connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def __enter__(self) -> EmulatedDb2Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _constant(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
