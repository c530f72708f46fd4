"""One way to reach a server: statements, Arrow reads, and errors in our own words.

The password is used here and stands in no error: driver messages are passed on without connection strings.
"""

from __future__ import annotations

import logging
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
_DENIED = re.compile(r"(\w+) permission was denied on the object '(.+)', database '.+', schema '(.+)'", re.IGNORECASE)
_TIMED_OUT = re.compile(r"(?<!connection )(?<!login )timeout expired", re.IGNORECASE)
# The driver tells no error numbers, so what it says has to do; the words before `DDBC Error` follow the SQLSTATE.
_BROKEN = re.compile(
    "communication link failure|connection timeout expired|connection not open|connection failure during"
    "|connection is (?:broken|closed|not open)|(?:tcp|ssl) provider|transport-level error|forcibly closed"
    "|session is in the kill state|not (?:found or|found, or) (?:was )?not accessible",
    re.IGNORECASE,
)
_AWAY = re.compile(
    "is not currently available|service is currently busy|error processing your request|not enough resources"
    "|too many (?:create or update )?operations|limit for the database is|too busy to support requests"
    "|availability group|is being recovered|middle of a restore|shut ?down is in progress|deadlock"
    "|serialization failure",
    re.IGNORECASE,
)
_BROKEN_NUMBERS = frozenset((-2, 20, 64, 121, 233, 596, 10053, 10054, 10060))
_AWAY_NUMBERS = frozenset(
    (922, 927, 976, 978, 983, 1205, 4221, 6005, 10928, 10929, 40143, 40197, 40501, 40540, 40613, 49918, 49919, 49920)
)
_LOG = logging.getLogger("headrace.sources")


class Connection:
    """A connection to one database of a server. Not shared between threads and never pickled.

    Args:
        driver: the driver's name.
        settings: what the driver needs, and `query_timeout_ms`.
    """

    def __init__(self, driver: str, settings: Mapping[str, Any]) -> None:
        self._where = f"{settings['hostname']}{':' + settings['port'] if settings.get('port') else ''}"
        self._database = settings["database"]
        self._user = settings.get("user") or ""
        self._secrets = [s for s in (settings.get("password"),) if s]
        self._patience = int(settings.get("query_timeout_ms") or 0)
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
            PassingRefusal: the server was too busy, or a deadlock was ended at our cost.
            LostConnection: the connection broke, or no answer came in time.
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
        self, sql: str, parameters: Sequence[object] = (), *, rows: int = ARROW_ROWS, patient: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """A large result as Arrow batches, streamed; the cursor is closed when the iterator is.

        Args:
            sql: the statement.
            parameters: its parameters.
            rows: rows per batch.
            patient: whether it may take longer than `query_timeout_ms`, because it reads a whole table.
        """
        with self._cursor(sql, parameters, patient=patient) as cursor:
            reader = cursor.arrow_reader(rows)
            for batch in reader:
                if batch.num_rows:
                    yield batch

    def close(self) -> None:
        """Close the connection; a connection that is broken already is as good as closed."""
        try:
            self._connection.close()
        except Exception as error:
            _LOG.debug("A connection could not be closed in order: %s", self._clean(error))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _cursor(self, sql: str, parameters: Sequence[object], *, patient: bool = False) -> Iterator[Any]:
        try:
            # A cursor takes over what is set when it is made; whole seconds are all that drivers know.
            self._connection.timeout = 0 if patient else -(-self._patience // 1000)
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
            try:
                cursor.close()
            except Exception as error:
                # The connection broke or was closed before; what happened is said already.
                _LOG.debug("A cursor could not be closed in order: %s", self._clean(error))

    def _clean(self, error: Exception) -> str:
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _connect_error(self, error: Exception) -> HeadraceError:
        text = self._clean(error)
        lowered = text.lower()
        number = getattr(error, "number", None)
        if number == 4060 or "cannot open database" in lowered:
            # Looked for first, because it goes on with "The login failed"; for a moment also true during a failover.
            return LostConnection(
                f"Server '{self._where}' has no database '{self._database}' that user '{self._user}' may open.",
                remedy="Check 'database'.",
            )
        if number == 18456 or "login failed" in lowered:
            return ConnectError(
                f"Server '{self._where}' refused the login of user '{self._user}'.",
                remedy="Check 'user' and 'password', and that the login may connect to the database.",
            )
        if "access token" in lowered:
            return ConnectError(
                f"No access token for server '{self._where}' could be had ({text}).",
                remedy="Check 'authentication', the identity that the process runs as, and its way to Microsoft Entra.",
            )
        if "connection string attribute" in lowered or "connection string parsing failed" in lowered:
            return ConnectError(
                f"The driver refuses an option of the connection to server '{self._where}' ({text}).",
                remedy="Correct the option that it names.",
            )
        if "failed to load the driver" in lowered:
            return ConnectError(
                "The SQL Server driver mssql-python lacks system libraries.",
                remedy="Install them; on Debian: apt-get install libltdl7 libkrb5-3 libgssapi-krb5-2.",
            )
        return LostConnection(
            f"Server '{self._where}' can't be reached ({text}).",
            remedy="Check 'hostname', 'port', the network and 'encrypt'.",
        )

    def _statement_error(self, error: Exception) -> HeadraceError:
        text = self._clean(error)
        number = getattr(error, "number", None)
        denied = _DENIED.search(text)
        if denied:
            right, name, schema = denied.groups()
            path = f"{schema}.{name}"
            quoted = ".".join(f"[{part.replace(']', ']]')}]" for part in (schema, name))
            verb = "read" if right.upper() == "SELECT" else f"do {right.upper()} on"
            return CaptureError(
                f"User '{self._user}' may not {verb} '{path}' in database '{self._database}'.",
                remedy=f"Grant it: GRANT {right.upper()} ON {quoted} TO [{self._user.replace(']', ']]')}].",
            )
        missing = _INVALID_OBJECT.search(text)
        if missing:
            return MissingObject(
                f"Database '{self._database}' has no object '{missing[1]}'.",
                remedy="Check that change data capture is enabled and was not switched off meanwhile.",
            )
        if number == 208 or "base table or view not found" in text.lower():
            # As a server says it in another language than English.
            return MissingObject(
                f"Database '{self._database}' has no such object ({text}).",
                remedy="Check that change data capture is enabled and was not switched off meanwhile.",
            )
        place = f"server '{self._where}', database '{self._database}'"
        if _TIMED_OUT.search(text):
            return LostConnection(
                f"No answer from {place} within {self._patience} milliseconds.",
                remedy="See what blocks the server, or raise 'query_timeout_ms'.",
            )
        if number in _BROKEN_NUMBERS or _BROKEN.search(text):
            return LostConnection(
                f"The connection to {place} broke ({text}).",
                remedy="Check the server and the network; the run goes on where it stopped.",
            )
        if number in _AWAY_NUMBERS or _AWAY.search(text):
            return PassingRefusal(f"{place[0].upper()}{place[1:]}: {text}.")
        return StatementError(f"{place[0].upper()}{place[1:]}: {text}.")


class LostConnection(ConnectError):
    """The server is not there, or is no longer: it may be in a moment."""


class StatementError(CaptureError):
    """The server refused a statement."""


class PassingRefusal(StatementError):
    """The server refused a statement for a reason that passes, such as a deadlock or a failover."""


class MissingObject(CaptureError):
    """A table or function that a statement names is not there (error 208)."""
