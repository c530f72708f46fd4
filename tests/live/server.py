"""A real SQL Server as the scenario tests steer it: the part of the emulator's interface that a server can do.

The capture job is there and does not run: a test says when the log is read, by the procedure that the job itself calls.
Nobody of this project has run it yet (docs/live.md).
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

URL = "HEADRACE_SQLSERVER_URL"
EXAMPLE = "sqlserver://sa:<password>@localhost:1433?trust_server_certificate=yes"
MARK = "headrace_scenarios"
"""A table in databases that are ours, so that no other one is ever dropped."""
_DEADLINE_SECONDS = 60.0
_BUSY = ("sp_replcmds", "sp_cdc_scan", "log reader")
"""What a scan is told when another one is at work."""


def settings_from(environment: Mapping[str, str] = os.environ) -> dict[str, str] | None:
    """What a driver needs to reach the server that the environment names; null when it names none.

    Raises:
        ValueError: it names something else.
    """
    text = environment.get(URL, "").strip()
    if not text:
        return None
    url = urlsplit(text)
    if url.scheme != "sqlserver" or not url.hostname or url.path.strip("/"):
        raise ValueError(f"{URL} has the form {EXAMPLE}")
    return {
        "driver": "mssql-python",
        "hostname": url.hostname,
        "port": str(url.port or ""),
        "user": unquote(url.username or ""),
        "password": unquote(url.password or ""),
        **dict(parse_qsl(url.query)),
    }


def connected(settings: Mapping[str, str]) -> Any:
    """A connection by the source's own driver."""
    from headrace import registry

    return registry.find("driver", settings["driver"])(settings)


class Answer:
    """All rows of a statement, fetched at once, because a connection holds only one open result."""

    def __init__(self, cursor: Any) -> None:
        rows = cursor.fetchall() if cursor.description else []
        self._rows = iter([tuple(map(_as_text, row)) for row in rows])
        cursor.close()

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return list(self._rows)

    def fetchval(self) -> Any:
        """The first value of the next row."""
        return (self.fetchone() or (None,))[0]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows


def _as_text(value: Any) -> Any:
    return str(value).upper() if isinstance(value, uuid.UUID) else value


class LiveServer:
    """A server and the databases that a test makes on it.

    Args:
        settings: from `settings_from`.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._made: list[LiveDatabase] = []

    def create_database(self, name: str, enable_cdc: bool = True) -> LiveDatabase:
        """A database of its own for a test, in the place of one that an earlier test left behind.

        Raises:
            AssertionError: there is one of that name that these tests did not make.
        """
        with self._master() as master:
            if _value(master, "SELECT DB_ID(?)", name) is not None:
                self._drop(master, name)
            _run(master, f"CREATE DATABASE {_quoted(name)}")
        made = LiveDatabase({**self._settings, "database": name})
        self._made.append(made)
        made.execute(f"CREATE TABLE dbo.{MARK} (a int)")
        if enable_cdc:
            made.execute("EXEC sys.sp_cdc_enable_db")
            # Made before the first table is enabled, which would make and start it.
            made.execute("EXEC sys.sp_cdc_add_job @job_type = N'capture', @start_job = 0")
        return made

    def close(self) -> None:
        """Drop what was made."""
        while self._made:
            database = self._made.pop()
            database.close()
            with self._master() as master:
                self._drop(master, database.name)

    @contextmanager
    def _master(self) -> Iterator[Any]:
        connection = connected({**self._settings, "database": "master"})
        try:
            yield connection
        finally:
            connection.close()

    @staticmethod
    def _drop(master: Any, name: str) -> None:
        ours = f"SELECT 1 FROM {_quoted(name)}.sys.tables AS t WHERE t.name = ?"
        assert _value(master, ours, MARK), (
            f"The server has a database '{name}' that these tests did not make. They need a server of their own."
        )
        _run(master, f"ALTER DATABASE {_quoted(name)} SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
        if _value(master, "SELECT 1 FROM sys.databases AS d WHERE d.name = ? AND d.is_cdc_enabled = 1", name):
            # Takes the jobs away with it.
            _run(master, f"EXEC {_quoted(name)}.sys.sp_cdc_disable_db")
        _run(master, f"DROP DATABASE {_quoted(name)}")


class LiveDatabase:
    """One database, with a connection of its own for the one who steers it. Not shared between threads.

    Args:
        settings: what a driver needs, with the database.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self._connection = connected(self.settings)

    @property
    def name(self) -> str:
        """The database's name."""
        return self.settings["database"]

    def execute(self, tsql: str, parameters: Sequence[Any] = ()) -> Answer:
        """Run T-SQL in a transaction of its own; gives the result."""
        return _run(self._connection, tsql, parameters)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A transaction: committed at the end, rolled back when the block raises; gives a cursor."""
        self.execute("BEGIN TRANSACTION")
        cursor = self._connection.cursor()
        try:
            yield cursor
        except BaseException:
            cursor.close()
            self.execute("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION")
            raise
        cursor.close()
        self.execute("COMMIT TRANSACTION")

    def capture(self) -> None:
        """Read the log to its end, as the capture job does."""
        _scan(self._connection)

    def mark_idle(self) -> None:
        """A scan that finds nothing and ends later than everything that was seen before."""
        self.execute("WAITFOR DELAY '00:00:00.050'")
        _scan(self._connection)

    def capture_job(self, *, poll: float = 0.1, idle: float | None = None) -> CaptureJob:
        """Scans in the background; `idle` is the emulator's, here an empty scan is seen by itself."""
        return CaptureJob(self.settings, poll)

    def cleanup(self, instance: str, low_lsn: bytes) -> None:
        """Delete the changes of an instance before an LSN."""
        sql = "EXEC sys.sp_cdc_cleanup_change_table @capture_instance = ?, @low_water_mark = ?, @threshold = 5000"
        self.execute(sql, (instance, low_lsn))

    def max_lsn(self) -> bytes | None:
        """The newest LSN that capture has reached."""
        value = self.execute("SELECT sys.fn_cdc_get_max_lsn()").fetchval()
        return None if value is None else bytes(value)

    def close(self) -> None:
        """Close the steering connection."""
        self._connection.close()

    def __enter__(self) -> LiveDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        """The server drops it."""


class CaptureJob:
    """Scans the log again and again on a connection of its own, until the block ends."""

    def __init__(self, settings: Mapping[str, str], poll: float) -> None:
        self._settings = settings
        self._poll = poll
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Exception | None = None

    def _run(self) -> None:
        connection = connected(self._settings)
        try:
            while not self._ended.wait(self._poll):
                _scan(connection)
        except Exception as error:
            self._error = error
        finally:
            connection.close()

    def __enter__(self) -> CaptureJob:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(_DEADLINE_SECONDS)
        if self._error is not None and error is None:
            raise self._error


def _scan(connection: Any) -> None:
    """One scan; where the server's own job is at work after all, it is stopped first."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        try:
            _run(connection, "EXEC sys.sp_cdc_scan @continuous = 0")
            return
        except Exception as error:
            if time.monotonic() > deadline or not any(word in str(error).lower() for word in _BUSY):
                raise
        try:
            _run(connection, "EXEC sys.sp_cdc_stop_job @job_type = N'capture'")
        except Exception as error:
            if "not currently running" not in str(error):
                raise
        _run(connection, "WAITFOR DELAY '00:00:00.200'")


def _run(connection: Any, tsql: str, parameters: Sequence[Any] = ()) -> Answer:
    cursor = connection.cursor()
    if parameters:
        return Answer(cursor.execute(tsql, tuple(parameters)))
    return Answer(cursor.execute(tsql))


def _value(connection: Any, tsql: str, *parameters: Any) -> Any:
    return _run(connection, tsql, parameters).fetchval()


def _quoted(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"
