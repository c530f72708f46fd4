"""The emulator as a driver: `connect(settings)` gives what `ibm_db_dbi` gives, with its methods, types and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from headrace_emulators.db2.session import Db2Session, Result
from headrace_emulators.db2.types import Db2Type, given
from headrace_emulators.engine import database_files as files
from headrace_emulators.engine import driver, logins

__all__ = [
    "Connection", "Cursor", "DataError", "DatabaseError", "Error", "IntegrityError", "InternalError",
    "NotSupportedError", "OperationalError", "ProgrammingError", "apilevel", "connect", "paramstyle", "threadsafety",
]  # fmt: skip

apilevel = "2.0"
threadsafety = 0
paramstyle = "qmark"

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
    if not logins.admits(directory, user, settings.get("password") or ""):
        raise OperationalError(
            -30082, "08001", 'Security processing failed with reason "24" ("USERNAME AND/OR PASSWORD INVALID").'
        )
    wanted = settings["database"]
    path = files.find(directory, wanted)
    if path is None:
        raise OperationalError(
            -1013, "42705", f'The database alias name or database name "{wanted}" could not be found.'
        )
    return Connection(Db2Session(path, user=user))


def _object(kind: Db2Type) -> frozenset[str]:
    return next(names for names in _TYPES if kind.driver_name in names)


class Connection(driver.Connection[Db2Session]):
    """A DB-API connection. Each statement is a transaction of its own until `set_autocommit(False)`."""

    def set_autocommit(self, is_on: bool) -> None:
        """Whether each statement is a transaction of its own; what is open is committed."""
        storage = self.session.storage
        if is_on and not storage.autocommit:
            storage.commit()
        storage.autocommit = bool(is_on)

    def cursor(self) -> Cursor:
        if self._closed:
            raise ProgrammingError(-99999, "08003", "Connection is not active.")
        return Cursor(self)


class Cursor(driver.Cursor):
    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self._result: Result | None = None

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
        with self.connection.session.storage.writing():
            for row in seq_parameters:
                self.execute(operation, row)
        return self

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name, type object, size, size, precision, scale and nullability per column; None without a result."""
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

    def close(self) -> None:
        super().close()
        self._result = None
