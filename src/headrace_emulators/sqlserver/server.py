"""An emulated server as tests and demos steer it: databases, logins, transactions, and when capture happens."""

from __future__ import annotations

import datetime as dt
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace_emulators.engine import database_files as files
from headrace_emulators.sqlserver import capture as jobs
from headrace_emulators.sqlserver import temporal
from headrace_emulators.sqlserver.bulk import insert_rows
from headrace_emulators.sqlserver.capture import CaptureJob
from headrace_emulators.sqlserver.databases import create_file, is_database
from headrace_emulators.sqlserver.driver import LOGINS, Connection, Cursor, hashed, run_script
from headrace_emulators.sqlserver.errors import OperationalError, ProgrammingError
from headrace_emulators.sqlserver.instances import adopt
from headrace_emulators.sqlserver.session import Clock, Session, utc_now


class EmulatedServer:
    """A SQL Server that is a directory; its databases are files in it.

    Args:
        directory: made when it is not there.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def create_database(self, name: str, enable_cdc: bool = True, *, clock: Clock = utc_now) -> EmulatedDatabase:
        """Make a database.

        Args:
            name: must not be there yet.
            enable_cdc: run sys.sp_cdc_enable_db in it.
            clock: gives transaction times, naive and in UTC.

        Raises:
            ProgrammingError: it exists (1801).
        """
        if files.find(self.directory, name) is not None:
            raise ProgrammingError(f"Database '{name}' already exists. Choose a different database name.", 1801)
        path = self.directory / f"{name}{files.SUFFIX}"
        create_file(path, temporal.to_text(temporal.parse(temporal.of_datetime(clock())), "datetime", 3))
        database = EmulatedDatabase(path, clock=clock)
        if enable_cdc:
            database.execute("EXEC sys.sp_cdc_enable_db")
            database.capture()
        return database

    def database(self, name: str, *, clock: Clock = utc_now) -> EmulatedDatabase:
        """A database that is there; raises OperationalError (4060) when it is not."""
        path = files.find(self.directory, name)
        if path is None:
            raise OperationalError(f'Cannot open database "{name}" requested by the login. The login failed.', 4060)
        return EmulatedDatabase(path, clock=clock)

    def open_file(self, file: str, name: str | None = None, *, clock: Clock = utc_now) -> EmulatedDatabase:
        """A database by its file in the directory, made when it is not there.

        Args:
            file: the file's name.
            name: what the database is called from now on; like the file, without its suffix, when not given.
            clock: gives transaction times, naive and in UTC.

        Raises:
            ProgrammingError: another file has that name already (1801).
            ValueError: the file is there and no database of the emulator.
        """
        path = self.directory / file
        wanted = name or path.stem
        known = files.find(self.directory, wanted)
        if known is not None and known != path:
            raise ProgrammingError(f"Database '{wanted}' already exists. Choose a different database name.", 1801)
        if not path.exists():
            create_file(path, temporal.to_text(temporal.parse(temporal.of_datetime(clock())), "datetime", 3))
        elif not is_database(path):
            raise ValueError(f"{path} is no database of the emulator. Name another file, or one that is not there yet.")
        if wanted != files.name_of(path) or path.suffix != files.SUFFIX:
            files.give_name(path, wanted)
        return EmulatedDatabase(path, clock=clock)

    def add_login(self, user: str, password: str) -> None:
        """Let a user in by password. From the first login on, everyone needs one."""
        path = self.directory / LOGINS
        logins = json.loads(path.read_text("utf-8")) if path.exists() else {}
        salt = secrets.token_hex(16)
        logins[user] = {"salt": salt, "hash": hashed(password, salt)}
        path.write_text(json.dumps(logins, indent=1), "utf-8")

    def set_agent(self, *, running: bool) -> None:
        """Start or stop SQL Server Agent, for all databases: what sys.dm_server_services says, and the capture jobs."""
        for path in files.databases(self.directory).values():
            session = Session(path)
            try:
                session.set_state("agent", "4" if running else "1")
            finally:
                session.close()


class EmulatedDatabase:
    """One database, with a connection of its own for the one who steers it. Not shared between threads.

    Args:
        path: the SQLite file.
        clock: gives transaction times; set the attribute to move time.
    """

    def __init__(self, path: Path, *, clock: Clock = utc_now) -> None:
        self.path = path
        self._clock = clock
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
    def clock(self) -> Clock:
        """Gives transaction times, naive and in UTC."""
        return self._clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._clock = clock
        if self._session is not None:
            self._session.clock = clock

    @property
    def session(self) -> Session:
        """The steering connection; opened when first used."""
        if self._session is None:
            self._session = self.open_session()
        return self._session

    def open_session(self) -> Session:
        """A further connection with this database's clock."""
        return Session(self.path, clock=lambda: self._clock())

    def connect(self) -> Connection:
        """A DB-API connection with this database's clock."""
        return Connection(self.open_session())

    def cursor(self) -> Cursor:
        """A cursor on the steering connection."""
        return Connection(self.session).cursor()

    def execute(self, tsql: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run T-SQL in a transaction of its own; gives a cursor with the result."""
        return self.cursor().execute(tsql, list(parameters))

    def script(self, tsql: str) -> None:
        """Run a script whose batches are apart by GO. It may USE other databases; this object stays with its own.

        Raises:
            Error: as a server would answer; with the statement and the line of the script where it begins.
        """
        try:
            run_script(Connection(self.session), tsql)
        finally:
            self.session.use(self.name)

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """A transaction: committed at the end, rolled back when the block raises.

        Yields:
            A cursor with execute and executemany.
        """
        session = self.session
        session.begin()
        try:
            yield self.cursor()
        except BaseException:
            session.rollback()
            raise
        session.commit()

    def load(self, table: str, rows: Iterable[Sequence[Any]] | pa.Table, columns: Sequence[str] | None = None) -> int:
        """Insert many rows as one transaction.

        Args:
            table: `schema.table`.
            rows: an Arrow table with the columns' names, or sequences in the order of `columns`.
            columns: names; all columns but computed ones when not given.

        Returns:
            How many rows.
        """
        return insert_rows(self.session, table, rows, columns)

    def adopt_instances(self, *instances: str) -> list[str]:
        """From now on log what statements change in tables whose capture instances a script wrote by hand.

        Until then those tables are changed without any trace, as the rows of their change tables come from the script
        too. What `capture` finds in the log afterwards is appended to them, with LSNs above all that are there.

        Args:
            instances: which ones; all that no log is kept for yet when none is given.

        Returns:
            The instances that are logged from now on and were not before.
        """
        return adopt(self.session, instances)

    def allow_type_changes(self) -> None:
        """From now on let ALTER COLUMN change the type of a captured column, in its change tables too.

        Microsoft's reference describes that in `cdc.ddl_history.required_column_update`. Without this call it is
        refused with error 4928, as for a replicated column.
        """
        self.session.set_state("retyping", "ON")

    def capture(self, max_transactions: int | None = None) -> int:
        """One scan of the capture job: gives how many transactions became visible."""
        return jobs.capture(self.session, max_transactions)

    def mark_idle(self) -> bytes:
        """Write the dummy row that an idle capture job writes; gives its LSN."""
        return jobs.mark_idle(self.session)

    def capture_job(
        self, *, poll: float = 0.1, idle: float | None = 300.0, max_transactions: int | None = None
    ) -> CaptureJob:
        """The capture job as a thread; start it, or use it as a context manager. Times are in seconds."""
        return CaptureJob(self.open_session, poll=poll, idle=idle, max_transactions=max_transactions)

    def capturing(self) -> CaptureJob:
        """The capture job as demos run it."""
        return self.capture_job()

    def cleanup(
        self, instance: str | None = None, low_lsn: bytes | str | None = None, *, retention: dt.timedelta | None = None
    ) -> None:
        """Forget old changes.

        Args:
            instance: one capture instance; null for all.
            low_lsn: the new lowest LSN; null for the newest there is.
            retention: instead of an LSN, how long changes are kept by their commit time.
        """
        if retention is not None:
            jobs.clean_old(self.session, retention)
            return
        from headrace_emulators.sqlserver.lsn import to_bytes

        mark = None if low_lsn is None else to_bytes(low_lsn)
        with self.session.writing():
            names = (
                [instance]
                if instance
                else [n for (n,) in self.session.sqlite.execute('SELECT capture_instance FROM "cdc.change_tables"')]
            )
            for name in names:
                jobs.clean_instance(self.session, name, mark)

    def lsn(self, commit: bytes | str, records: Sequence[bytes | str] = ()) -> None:
        """Decide the commit LSN of this object's next logged transaction, and the sequence values of its changes."""
        self.session.log.force(commit, records)

    def max_lsn(self) -> bytes | None:
        """The newest LSN that capture has reached."""
        value = self.execute("SELECT sys.fn_cdc_get_max_lsn()").fetchval()
        return None if value is None else bytes(value)

    def close(self) -> None:
        """Close the steering connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def __enter__(self) -> EmulatedDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
