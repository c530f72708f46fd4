"""The emulator as a driver: `connect(settings)` gives what the real driver gives, DB-API with an Arrow fetch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace_emulators.engine import database_files as files
from headrace_emulators.engine import driver, logins
from headrace_emulators.sqlserver import errors
from headrace_emulators.sqlserver.arrow import ArrowStream, python_rows
from headrace_emulators.sqlserver.batches import batches
from headrace_emulators.sqlserver.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from headrace_emulators.sqlserver.result import Result
from headrace_emulators.sqlserver.scope import Output
from headrace_emulators.sqlserver.session import SqlServerSession
from headrace_emulators.sqlserver.types import SqlType

__all__ = [
    "Connection", "Cursor", "DataError", "DatabaseError", "Error", "IntegrityError", "NotSupportedError",
    "OperationalError",
    "ProgrammingError", "apilevel", "connect", "paramstyle", "run_script", "threadsafety",
]  # fmt: skip

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"


def connect(settings: Mapping[str, str]) -> Connection:
    """Open a connection to an emulated server.

    Args:
        settings: hostname (the server's directory), database, and optionally user and password. Others are ignored.

    Raises:
        OperationalError: no such directory, or the login failed (18456).
        ProgrammingError: no such database (4060).
    """
    directory = Path(settings["hostname"])
    if not directory.is_dir():
        raise OperationalError(
            f"A network-related or instance-specific error occurred while establishing a connection to '{directory}'."
            " The server was not found or was not accessible.", 53
        )  # fmt: skip
    user = settings.get("user") or "sa"
    if not logins.admits(directory, user, settings.get("password") or ""):
        raise OperationalError(f"Login failed for user '{user}'.", 18456)
    wanted = settings["database"]
    path = files.find(directory, wanted)
    if path is None:
        raise ProgrammingError(f'Cannot open database "{wanted}" requested by the login. The login failed.', 4060)
    return Connection(SqlServerSession(path, user=user))


class Connection(driver.Connection[SqlServerSession]):
    """A DB-API connection. Each statement is its own transaction unless `autocommit` is off."""

    Error = errors.Error
    DatabaseError = errors.DatabaseError
    OperationalError = errors.OperationalError
    ProgrammingError = errors.ProgrammingError
    IntegrityError = errors.IntegrityError

    @property
    def autocommit(self) -> bool:
        """Whether each statement is a transaction of its own."""
        return self.session.storage.autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        storage = self.session.storage
        if value and not storage.autocommit:
            storage.commit()
        storage.autocommit = value

    def cursor(self) -> Cursor:
        self._check()
        return Cursor(self)

    def execute(self, sql: str, *parameters: Any) -> Cursor:
        return self.cursor().execute(sql, *parameters)

    def commit(self) -> None:
        self._check()
        super().commit()

    def rollback(self) -> None:
        self._check()
        super().rollback()

    def _check(self) -> None:
        if self._closed:
            raise ProgrammingError("The connection is closed.")


class Cursor(driver.Cursor):
    """A DB-API cursor with the real driver's `arrow_reader`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self._result: Result | None = None

    def execute(self, sql: str, *parameters: Any) -> Cursor:
        """Run T-SQL. Parameters are `?` in the text, given as one sequence or one by one.

        Raises:
            Error: as a server would answer.
        """
        given: Sequence[Any] = parameters
        if len(parameters) == 1 and isinstance(parameters[0], list | tuple):
            given = parameters[0]
        self._result = self.connection.session.execute(sql, given)
        self._rows = python_rows(self._result.columns, self._result.rows)
        return self

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> Cursor:
        """Run one statement for each row of parameters, as one transaction."""
        session = self.connection.session
        total = 0
        with session.storage.writing():
            for row in rows:
                self._result = session.execute(sql, row)
                total += max(self._result.rowcount, 0)
        self._result = Result(rowcount=total)
        return self

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name, Python type, None, size, precision, scale and nullability per column; None without a result."""
        if self._result is None or not self._result.columns:
            return None
        return [_described(c) for c in self._result.columns]

    @property
    def rowcount(self) -> int:
        """Rows changed, -1 for a query."""
        return -1 if self._result is None else self._result.rowcount

    def fetchval(self) -> Any:
        """The first value of the next row."""
        row = self.fetchone()
        return None if row is None else row[0]

    def arrow_reader(self, batch_size: int = 8192) -> pa.RecordBatchReader:
        """The result as a stream of Arrow batches; rows are read on demand."""
        result = self._queried()
        return ArrowStream(result.columns, result.rows, batch_size).reader()

    def close(self) -> None:
        super().close()
        self._result = None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        self._queried()
        return self._rows

    def _queried(self) -> Result:
        if self._result is None or not self._result.columns:
            raise ProgrammingError("Invalid cursor state: the last statement gave no result.")
        return self._result


_PYTHON_TYPES = {"int": int, "bit": bool, "float": float, "binary": bytes}


def _described(column: Output) -> tuple[Any, ...]:
    name, declared = column
    kind = declared or SqlType("nvarchar", -1)
    return (
        name,
        _PYTHON_TYPES.get(kind.family, str),
        None,
        kind.max_length,
        kind.shown_precision,
        kind.shown_scale,
        True,
    )


def run_script(connection: Connection, text: str) -> None:
    """Run a script whose batches end at lines with GO.

    Raises:
        Error: as a server would answer; its `line` counts from the first line of the script.
    """
    for batch in batches(text):
        for _ in range(batch.times):
            try:
                connection.cursor().execute(batch.text)
            except Error as error:
                error.line += batch.line - 1
                raise
