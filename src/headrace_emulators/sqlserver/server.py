"""An emulated server as tests and demos control it: databases, logins, transactions, and when capture happens."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from headrace_emulators.engine import database_files as files
from headrace_emulators.engine.server import DatabaseHandle, ServerDirectory
from headrace_emulators.engine.storage import Clock, utc_now
from headrace_emulators.sqlserver import capture as jobs
from headrace_emulators.sqlserver import temporal
from headrace_emulators.sqlserver.bulk import insert_rows
from headrace_emulators.sqlserver.capture import CaptureJob
from headrace_emulators.sqlserver.databases import bring_forward, create_file, is_database
from headrace_emulators.sqlserver.driver import Connection, Cursor, run_script
from headrace_emulators.sqlserver.errors import OperationalError, ProgrammingError
from headrace_emulators.sqlserver.instances import adopt
from headrace_emulators.sqlserver.lsn import to_bytes
from headrace_emulators.sqlserver.session import SqlServerSession
from headrace_emulators.sqlserver.storage import SqlServerStorage


class EmulatedServer(ServerDirectory):
    """A SQL Server that is a directory; its databases are files in it."""

    def create_database(self, name: str, enable_cdc: bool = True, *, clock: Clock = utc_now) -> EmulatedDatabase:
        """Make a database.

        Args:
            name: must not exist yet.
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
        """An existing database; raises OperationalError (4060) without one."""
        path = files.find(self.directory, name)
        if path is None:
            raise OperationalError(f'Cannot open database "{name}" requested by the login. The login failed.', 4060)
        # All of them, since others are read beside it by their files.
        for file in files.databases(self.directory).values():
            bring_forward(file)
        return EmulatedDatabase(path, clock=clock)

    def open_file(self, file: str, name: str | None = None, *, clock: Clock = utc_now) -> EmulatedDatabase:
        """A database by its file in the directory, made unless it exists.

        Args:
            file: the file's name.
            name: what the database is called from now on; like the file, without its suffix, when not given.
            clock: gives transaction times, naive and in UTC.

        Raises:
            ProgrammingError: another file has that name already (1801).
            ValueError: the file exists and is not a database of the emulator.
        """
        path = self.directory / file
        wanted = name or path.stem
        known = files.find(self.directory, wanted)
        if known is not None and known != path:
            raise ProgrammingError(f"Database '{wanted}' already exists. Choose a different database name.", 1801)
        if not path.exists():
            create_file(path, temporal.to_text(temporal.parse(temporal.of_datetime(clock())), "datetime", 3))
        elif not is_database(path):
            raise ValueError(
                f"{path} is not a database of the emulator. Name another file, or one that does not exist yet."
            )
        bring_forward(path)
        if wanted != files.name_of(path) or path.suffix != files.SUFFIX:
            files.give_name(path, wanted)
        return EmulatedDatabase(path, clock=clock)

    def set_agent(self, *, running: bool) -> None:
        """Start or stop SQL Server Agent for all databases: its row of sys.dm_server_services, and the capture jobs."""
        for path in files.databases(self.directory).values():
            storage = SqlServerStorage(path)
            try:
                storage.set_state("agent", "4" if running else "1")
            finally:
                storage.close()


class EmulatedDatabase(DatabaseHandle[SqlServerSession, Cursor]):
    """One database, with a connection through which a test or demo controls it. Not shared between threads."""

    def open_session(self) -> SqlServerSession:
        return SqlServerSession(self.path, clock=lambda: self.clock())

    def connect(self) -> Connection:
        """A DB-API connection with this database's clock."""
        return Connection(self.open_session())

    def cursor(self) -> Cursor:
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

    def load(self, table: str, rows: Iterable[Sequence[Any]] | pa.Table, columns: Sequence[str] | None = None) -> int:
        """Insert many rows as one transaction.

        Args:
            table: `schema.table`.
            rows: an Arrow table with the columns' names, or sequences in the order of `columns`.
            columns: names; all columns but computed ones when not given.

        Returns:
            How many rows.
        """
        return insert_rows(self.session.storage, table, rows, columns)

    def adopt_instances(self, *instances: str) -> list[str]:
        """From now on log what statements change in tables whose capture instances a script wrote by hand.

        Until then those tables are changed without any trace, as the rows of their change tables come from the script
        too. What `capture` finds in the log afterwards is appended to them, with LSNs above all others.

        Args:
            instances: which ones; all that no log is kept for yet when none is given.

        Returns:
            The instances that are logged from now on and were not before.
        """
        return adopt(self.session.storage, instances)

    def allow_type_changes(self) -> None:
        """From now on let ALTER COLUMN change the type of a captured column, in its change tables too.

        Microsoft's reference describes that in `cdc.ddl_history.required_column_update`. Without this call it is
        refused with error 4928, as for a replicated column.
        """
        self.session.storage.set_state("retyping", "ON")

    def capture(self, max_transactions: int | None = None) -> int:
        """One scan of the capture job: gives how many transactions became visible."""
        return jobs.capture(self.session.storage, max_transactions)

    def mark_idle(self) -> bytes:
        """Write the dummy row that an idle capture job writes; gives its LSN."""
        return jobs.mark_idle(self.session.storage)

    def _open_storage(self) -> SqlServerStorage:
        return SqlServerStorage(self.path, lambda: self.clock())

    def capture_job(
        self, *, poll: float = 0.1, idle: float | None = 300.0, max_transactions: int | None = None
    ) -> CaptureJob:
        """The capture job as a thread; start it, or use it as a context manager. Times are in seconds."""
        return CaptureJob(self._open_storage, poll=poll, idle=idle, max_transactions=max_transactions)

    def capturing(self) -> CaptureJob:
        return self.capture_job()

    def cleanup(
        self, instance: str | None = None, low_lsn: bytes | str | None = None, *, retention: dt.timedelta | None = None
    ) -> None:
        """Forget old changes.

        Args:
            instance: one capture instance; None for all.
            low_lsn: the new lowest LSN; None for the newest there is.
            retention: instead of an LSN, how long changes are kept by their commit time.
        """
        if retention is not None:
            jobs.clean_old(self.session.storage, retention)
            return
        storage, mark = self.session.storage, None if low_lsn is None else to_bytes(low_lsn)
        with storage.writing():
            every = storage.sqlite.execute('SELECT capture_instance FROM "cdc.change_tables"').fetchall()
            for name in [instance] if instance else [name for (name,) in every]:
                jobs.clean_instance(storage, name, mark)

    def lsn(self, commit: bytes | str, records: Sequence[bytes | str] = ()) -> None:
        """Decide the commit LSN of this object's next logged transaction, and the sequence values of its changes."""
        self.session.storage.log.force(commit, records)

    def max_lsn(self) -> bytes | None:
        """The newest LSN that capture has reached."""
        value = self.execute("SELECT sys.fn_cdc_get_max_lsn()").fetchval()
        return None if value is None else bytes(value)
