"""One way to reach a server: statements, Arrow reads, and errors in our own words.

The password is used here and stands in no error: driver messages are passed on without connection strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from headrace import registry
from headrace.errors import CaptureError, ConnectError, HeadraceError

ARROW_ROWS = 32_768
"""Rows per Arrow batch: large enough that Python's share is small, small enough to keep memory flat."""

_INVALID_OBJECT = re.compile(r"Invalid object name '([^']+)'", re.IGNORECASE)
_DENIED = re.compile(r"permission was denied on the object '([^']+)'", re.IGNORECASE)


class Connection:
    """A connection to one database of a server. Not shared between threads and never pickled."""

    def __init__(self, driver: str, settings: Mapping[str, str]) -> None:
        self._where = f"{settings['hostname']}{':' + settings['port'] if settings.get('port') else ''}"
        self._database = settings["database"]
        self._user = settings.get("user") or ""
        self._secrets = [s for s in (settings.get("password"),) if s]
        connect = registry.find("driver", driver)
        try:
            self._connection = connect(settings)
        except HeadraceError:
            raise
        except Exception as error:
            raise self._connect_error(error) from None

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small result.

        Raises:
            CaptureError: an object is missing or may not be read.
            ConnectError: the connection failed.
        """
        with self._cursor(sql, parameters) as cursor:
            return [tuple(row) for row in cursor.fetchall()]

    def run(self, sql: str, parameters: Sequence[object] = ()) -> None:
        """A statement without a result, such as the edges of a transaction."""
        with self._cursor(sql, parameters):
            return

    def value(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        """The one value of a result of one row and column; null when there is no row."""
        rows = self.rows(sql, parameters)
        return rows[0][0] if rows else None

    def batches(
        self, sql: str, parameters: Sequence[object] = (), *, rows: int = ARROW_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """A large result as Arrow batches, streamed; the cursor is closed when the iterator is."""
        with self._cursor(sql, parameters) as cursor:
            reader = cursor.arrow_reader(rows)
            for batch in reader:
                if batch.num_rows:
                    yield batch

    def close(self) -> None:
        """Close the connection; a connection that is broken already is as good as closed."""
        self._connection.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _cursor(self, sql: str, parameters: Sequence[object]) -> Iterator[Any]:
        try:
            cursor = self._connection.cursor()
        except Exception as error:
            # It was closed, or the server went away.
            raise self._statement_error(error) from error
        try:
            if parameters:
                cursor.execute(sql, tuple(parameters))
            else:
                cursor.execute(sql)
            yield cursor
        except HeadraceError:
            raise
        except GeneratorExit:
            raise
        except Exception as error:
            raise self._statement_error(error) from error
        finally:
            cursor.close()

    def _clean(self, error: Exception) -> str:
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _connect_error(self, error: Exception) -> HeadraceError:
        text = self._clean(error)
        lowered = text.lower()
        number = getattr(error, "number", None)
        if number == 18456 or "login failed" in lowered:
            return ConnectError(
                f"Server '{self._where}' refused the login of user '{self._user}'.",
                remedy="Check 'user' and 'password', and that the login may connect to the database.",
            )
        if number == 4060 or "cannot open database" in lowered:
            return ConnectError(
                f"Server '{self._where}' has no database '{self._database}' that user '{self._user}' may open.",
                remedy="Check 'database'.",
            )
        if "failed to load the driver" in lowered:
            return ConnectError(
                "The SQL Server driver mssql-python lacks system libraries.",
                remedy="Install them; on Debian: apt-get install libltdl7 libkrb5-3 libgssapi-krb5-2.",
            )
        return ConnectError(
            f"Server '{self._where}' can't be reached ({text}).",
            remedy="Check 'hostname', 'port', the network and 'encrypt'.",
        )

    def _statement_error(self, error: Exception) -> HeadraceError:
        text = self._clean(error)
        denied = _DENIED.search(text)
        if denied:
            return CaptureError(
                f"User '{self._user}' may not read '{denied[1]}' in database '{self._database}'.",
                remedy=f"Grant it: GRANT SELECT ON {denied[1]} TO [{self._user}].",
            )
        missing = _INVALID_OBJECT.search(text)
        if missing:
            return MissingObject(
                f"Database '{self._database}' has no object '{missing[1]}'.",
                remedy="Check that change data capture is enabled and was not switched off meanwhile.",
            )
        return StatementError(f"Server '{self._where}', database '{self._database}': {text}.")


class StatementError(CaptureError):
    """The server refused a statement."""


class MissingObject(CaptureError):
    """A table or function that a statement names is not there (error 208)."""
