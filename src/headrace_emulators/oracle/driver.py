"""The emulator as a driver: `connect(settings)` gives what `oracledb` gives, DB-API with an Arrow fetch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace_emulators.engine import driver
from headrace_emulators.oracle import files
from headrace_emulators.oracle.errors import DatabaseError, Error, NotSupportedError
from headrace_emulators.oracle.redo_log import Scripted
from headrace_emulators.oracle.session import Result, Session

__all__ = ["Connection", "Cursor", "DatabaseError", "Error", "NotSupportedError", "connect"]

QUERY_LOG: list[tuple[str, dict[str, Any]]] | None = None
"""Where a test wants to see the statements that this process sends."""


def connect(settings: Mapping[str, Any]) -> Connection:
    """Open a connection to an emulated database.

    Args:
        settings: hostname (the server's folder), database; optionally user, and the instance (redo thread) as `dsn`,
            such as `instance:2`.

    Raises:
        DatabaseError: the folder or database does not exist.
    """
    directory = Path(str(settings["hostname"]))
    if not directory.is_dir():
        raise DatabaseError(12541, f"Cannot connect. No listener at host {directory}.")
    path = files.path_of(directory, str(settings["database"]))
    if not path.is_file():
        raise DatabaseError(12514, f"Service {settings['database']} is not registered with the listener.")
    return Connection(Session(path, user=str(settings.get("user") or "HEADRACE"), thread=_instance(settings)))


def _instance(settings: Mapping[str, Any]) -> int:
    named = str(settings.get("dsn") or "").removeprefix("instance:")
    return int(settings.get("instance") or named or 1)


class Connection(driver.Connection[Session]):
    """A DB-API connection. Changes wait for `commit`."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.call_timeout = 0

    def cursor(self) -> Cursor:
        return Cursor(self.session)

    def execute(self, sql: str, **parameters: Any) -> Cursor:
        cursor = self.cursor()
        cursor.execute(sql, parameters)
        return cursor

    def fetch_df_batches(
        self, statement: str, parameters: Mapping[str, Any] | None = None, size: int | None = None
    ) -> Iterator[pa.Table]:
        """The result of a query, some rows at a time, as what Arrow's stream interface reads."""
        result = _executed(self.session, statement, parameters)
        rows = iter(result.rows)
        given = False
        while True:
            chunk = list(itertools.islice(rows, size or 100))
            if not chunk and given:
                return
            given = True
            columns: list[Any] = list(zip(*chunk, strict=True)) if chunk else [()] * len(result.columns)
            yield pa.table([_column(values) for values in columns], names=list(result.columns))
            if not chunk:
                return


class Cursor(driver.Cursor):
    """A DB-API cursor."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._result = Result()

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Cursor:
        """Run a statement; parameters are `:name` in the text."""
        self._result = _executed(self._session, statement, parameters)
        self._rows = iter(self._result.rows)
        return self

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """One tuple per column; None without a result."""
        return [(name, None, None, None, None, None, True) for name in self._result.columns] or None

    @property
    def rowcount(self) -> int:
        return self._result.count


def _executed(session: Session, sql: str, parameters: Mapping[str, Any] | None) -> Result:
    if QUERY_LOG is not None:
        QUERY_LOG.append((sql, dict(parameters or {})))
    return session.execute(sql, parameters)


def _column(values: tuple[Any, ...]) -> pa.Array:
    first = next((value for value in values if value is not None), None)
    kind = {int: pa.int64(), float: pa.float64(), bytes: pa.large_binary()}.get(type(first), pa.large_string())
    return pa.array(values, kind)


def scripted(connection: Connection, **values: Any) -> None:
    """Prescribe what the next records of a connection contain."""
    connection.session.script = Scripted(**values)
