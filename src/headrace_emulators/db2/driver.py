"""The emulator as a driver: `connect(settings)` gives what `ibm_db_dbi` gives, with its methods, types and values."""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace_emulators.db2.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from headrace_emulators.db2.session import Result, Session
from headrace_emulators.db2.types import Db2Type, given
from headrace_emulators.engine import database_files as files

__all__ = [
    "Connection", "Cursor", "DataError", "DatabaseError", "Error", "IntegrityError", "InternalError",
    "NotSupportedError", "OperationalError", "ProgrammingError", "apilevel", "connect", "paramstyle", "threadsafety",
]  # fmt: skip

apilevel = "2.0"
threadsafety = 0
paramstyle = "qmark"

LOGINS = "logins.json"
_ROUNDS = 10_000
_TYPES = tuple(
    frozenset(names)
    for names in (
        ("CHARACTER", "CHAR", "VARCHAR", "CHARACTER VARYING", "CHAR VARYING", "STRING"),
        ("CLOB", "CHARACTER LARGE OBJECT", "CHAR LARGE OBJECT", "DBCLOB"),
        ("XML",),
        ("BLOB", "BINARY LARGE OBJECT"),
        ("INTEGER", "INT", "SMALLINT"),
        ("BIGINT",),
        ("FLOAT", "REAL", "DOUBLE", "DECFLOAT"),
        ("DECIMAL", "DEC", "NUMERIC", "NUM"),
        ("DATE",),
        ("TIME",),
        ("TIMESTAMP",),
        ("BOOLEAN",),
    )
)
"""The driver's type objects: sets of names, as PEP 249 has them compared."""


def connect(settings: Mapping[str, Any]) -> Connection:
    """Open a connection to an emulated server.

    Args:
        settings: hostname (the server's directory), database, and optionally user and password. Others are ignored.

    Raises:
        OperationalError: no such directory (SQL1336N), no such database (SQL1013N), or the login failed (SQL30082N).
    """
    directory = Path(settings["hostname"])
    if not directory.is_dir():
        raise OperationalError(-1336, "08001", f'The remote host "{directory}" was not found.')
    user = settings.get("user") or "DB2INST1"
    _log_in(directory, user, settings.get("password") or "")
    wanted = settings["database"]
    path = files.find(directory, wanted)
    if path is None:
        raise OperationalError(
            -1013, "42705", f'The database alias name or database name "{wanted}" could not be found.'
        )
    return Connection(Session(path, user=user))


def _log_in(directory: Path, user: str, password: str) -> None:
    path = directory / LOGINS
    if not path.exists():
        return
    logins = {name.lower(): entry for name, entry in json.loads(path.read_text("utf-8")).items()}
    entry = logins.get(user.lower())
    if entry is None or not secrets.compare_digest(hashed(password, entry["salt"]), entry["hash"]):
        raise OperationalError(
            -30082, "08001", 'Security processing failed with reason "24" ("USERNAME AND/OR PASSWORD INVALID").'
        )


def hashed(password: str, salt: str) -> str:
    """What is kept of a password."""
    return hashlib.pbkdf2_hmac("sha256", password.encode(), bytes.fromhex(salt), _ROUNDS).hex()


def _object(kind: Db2Type) -> frozenset[str]:
    return next(names for names in _TYPES if kind.driver_name in names)


class Connection:
    """A DB-API connection. Each statement is a transaction of its own until `set_autocommit(False)`.

    Args:
        session: the work behind it.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._closed = False

    def set_autocommit(self, is_on: bool) -> None:
        """Whether each statement is a transaction of its own; what is open is committed."""
        if is_on and not self.session.autocommit:
            self.session.commit()
        self.session.autocommit = bool(is_on)

    def set_option(self, options: Mapping[int, Any]) -> None:
        """Attributes of the connection; none of them shows here."""

    def cursor(self) -> Cursor:
        """A new cursor."""
        if self._closed:
            raise ProgrammingError(-99999, "08003", "Connection is not active.")
        return Cursor(self)

    def commit(self) -> None:
        """End the transaction."""
        self.session.commit()

    def rollback(self) -> None:
        """Undo the transaction."""
        self.session.rollback()

    def close(self) -> None:
        """Close; what was not committed is undone."""
        if not self._closed:
            self._closed = True
            self.session.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cursor:
    """A DB-API cursor."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self._result: Result | None = None
        self._rows: Iterator[tuple[Any, ...]] = iter(())

    def execute(self, operation: str, parameters: Sequence[Any] | None = None) -> Cursor:
        """Run one statement. Parameters are `?` in the text.

        Raises:
            Error: as a server would answer.
        """
        self._result = self.connection.session.execute(operation, parameters or ())
        makers = [given(kind) for _, kind in self._result.columns]
        self._rows = (
            tuple(None if value is None else make(value) for make, value in zip(makers, row, strict=True))
            for row in self._result.rows
        )
        return self

    def executemany(self, operation: str, seq_parameters: Sequence[Sequence[Any]]) -> Cursor:
        """Run one statement for each row of parameters."""
        with self.connection.session.writing():
            for row in seq_parameters:
                self.execute(operation, row)
        return self

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name, type object, size, size, precision, scale and nullability per column; null without a result."""
        if self._result is None or not self._result.columns:
            return None
        return [
            (name, _object(kind), kind.length, kind.length, kind.length, kind.scale, True)
            for name, kind in self._result.columns
        ]

    @property
    def rowcount(self) -> int:
        """Rows changed, -1 for a query."""
        return -1 if self._result is None else self._result.rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        return next(self._rows, None)

    def fetchmany(self, size: int = 0) -> list[tuple[Any, ...]]:
        """The next rows."""
        return list(itertools.islice(self._rows, size or self.arraysize))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return list(self._rows)

    def close(self) -> None:
        """Forget the result."""
        self._result, self._rows = None, iter(())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
