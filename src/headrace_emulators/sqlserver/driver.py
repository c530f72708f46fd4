"""The emulator as a driver: `connect(settings)` gives what the real driver gives, DB-API with an Arrow fetch."""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace_emulators.engine import database_files as files
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
from headrace_emulators.sqlserver.result import Result, Rows
from headrace_emulators.sqlserver.scope import Output
from headrace_emulators.sqlserver.session import Session
from headrace_emulators.sqlserver.types import SqlType

__all__ = [
    "Connection", "Cursor", "DataError", "DatabaseError", "Error", "IntegrityError", "NotSupportedError",
    "OperationalError",
    "ProgrammingError", "apilevel", "connect", "paramstyle", "run_script", "threadsafety",
]  # fmt: skip

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"

LOGINS = "logins.json"
_ROUNDS = 10_000


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
    _log_in(directory, user, settings.get("password") or "")
    wanted = settings["database"]
    path = files.find(directory, wanted)
    if path is None:
        raise ProgrammingError(f'Cannot open database "{wanted}" requested by the login. The login failed.', 4060)
    return Connection(Session(path, user=user))


def _log_in(directory: Path, user: str, password: str) -> None:
    path = directory / LOGINS
    if not path.exists():
        return
    logins = {name.lower(): entry for name, entry in json.loads(path.read_text("utf-8")).items()}
    entry = logins.get(user.lower())
    if entry is None or not secrets.compare_digest(hashed(password, entry["salt"]), entry["hash"]):
        raise OperationalError(f"Login failed for user '{user}'.", 18456)


def hashed(password: str, salt: str) -> str:
    """What is kept of a password."""
    return hashlib.pbkdf2_hmac("sha256", password.encode(), bytes.fromhex(salt), _ROUNDS).hex()


class Connection:
    """A DB-API connection. Each statement is its own transaction unless `autocommit` is off.

    Args:
        session: the work behind it.
    """

    Error = errors.Error
    DatabaseError = errors.DatabaseError
    OperationalError = errors.OperationalError
    ProgrammingError = errors.ProgrammingError
    IntegrityError = errors.IntegrityError

    def __init__(self, session: Session) -> None:
        self.session = session
        self._closed = False

    @property
    def autocommit(self) -> bool:
        """Whether each statement is a transaction of its own."""
        return self.session.autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        if value and not self.session.autocommit:
            self.session.commit()
        self.session.autocommit = value

    def cursor(self) -> Cursor:
        """A new cursor."""
        self._check()
        return Cursor(self)

    def execute(self, sql: str, *parameters: Any) -> Cursor:
        """A new cursor that has executed a statement."""
        return self.cursor().execute(sql, *parameters)

    def commit(self) -> None:
        """End the transaction."""
        self._check()
        self.session.commit()

    def rollback(self) -> None:
        """Undo the transaction."""
        self._check()
        self.session.rollback()

    def close(self) -> None:
        """Close; what was not committed is undone."""
        if not self._closed:
            self._closed = True
            self.session.close()

    def _check(self) -> None:
        if self._closed:
            raise ProgrammingError("The connection is closed.")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cursor:
    """A DB-API cursor with the real driver's `arrow_reader`."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._result: Result | None = None
        self._rows: Iterator[tuple[Any, ...]] | None = None

    def execute(self, sql: str, *parameters: Any) -> Cursor:
        """Run T-SQL. Parameters are `?` in the text, given as one sequence or one by one.

        Raises:
            Error: as a server would answer.
        """
        given: Sequence[Any] = parameters
        if len(parameters) == 1 and isinstance(parameters[0], list | tuple):
            given = parameters[0]
        self._rows = None
        self._result = self.connection.session.execute(sql, given)
        return self

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> Cursor:
        """Run one statement for each row of parameters, as one transaction."""
        session = self.connection.session
        total = 0
        with session.writing():
            for row in rows:
                self._result = session.execute(sql, row)
                total += max(self._result.rowcount, 0)
        self._result = Result((), Rows.of(()), total)
        self._rows = None
        return self

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name, Python type, null, size, precision, scale and nullability per column; null when there is no result."""
        if self._result is None or not self._result.columns:
            return None
        return [_described(c) for c in self._result.columns]

    @property
    def rowcount(self) -> int:
        """Rows changed, -1 for a query."""
        return -1 if self._result is None else self._result.rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        return next(self._iterator(), None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next rows."""
        return list(itertools.islice(self._iterator(), size or self.arraysize))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return list(self._iterator())

    def fetchval(self) -> Any:
        """The first value of the next row."""
        row = self.fetchone()
        return None if row is None else row[0]

    def arrow_reader(self, batch_size: int = 8192) -> pa.RecordBatchReader:
        """The result as a stream of Arrow batches; rows are read as they are asked for."""
        result = self._queried()
        return ArrowStream(result.columns, result.rows, batch_size).reader()

    def close(self) -> None:
        """Forget the result."""
        self._result = None
        self._rows = None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._iterator()

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _queried(self) -> Result:
        if self._result is None or not self._result.columns:
            raise ProgrammingError("Invalid cursor state: the last statement gave no result.")
        return self._result

    def _iterator(self) -> Iterator[tuple[Any, ...]]:
        result = self._queried()
        if self._rows is None:
            self._rows = python_rows(result.columns, iter(result.rows))
        return self._rows


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
    """Run a script whose batches are apart by lines that say GO.

    Raises:
        Error: as a server would answer; its `line` is counted from the first line of the script.
    """
    for batch in batches(text):
        for _ in range(batch.times):
            try:
                connection.cursor().execute(batch.text)
            except Error as error:
                error.line += batch.line - 1
                raise
