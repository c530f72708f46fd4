"""One connection to an Oracle database, and what its errors mean."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from headrace import registry
from headrace.errors import CaptureError, ConnectError, HeadraceError
from headrace.sources.connection import DriverConnection, LostConnection
from headrace.sources.rows import sized

ARROW_ROWS = 10_000
_NUMBER = re.compile(r"\b(?:ORA|DPY|DPI)-(\d{4,5})")
_LOG = logging.getLogger("headrace.sources")
_LOGIN = frozenset((1017, 1045, 28000, 28001, 1005))
_AWAY = frozenset((3113, 3114, 3135, 12170, 12514, 12541, 12545, 12571, 12537, 1033, 1034, 1089, 4011, 6005, 28, 12516))
_MISSING = frozenset((942, 4043))
_DENIED = frozenset((1031, 41900))


class OracleError(CaptureError):
    """The server refused a statement.

    Attributes:
        number: the number after `ORA-`; 0 where the driver gives none.
    """

    number = 0


class Connection(DriverConnection):
    """A connection. Not shared between threads and never pickled.

    Args:
        driver: the driver's name.
        settings: what the driver needs, and `query_timeout_ms`.
    """

    def __init__(self, driver: str, settings: Mapping[str, Any]) -> None:
        self._where = settings.get("dsn") or f"{settings['hostname']}/{settings['database']}"
        super().__init__(settings)
        connect = registry.find("driver", driver)
        try:
            self._connection = connect(settings)
            self._connection.call_timeout = int(settings.get("query_timeout_ms") or 0)
        except HeadraceError:
            raise
        except Exception as error:
            raise self._error(error) from None

    def rows(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a small result.

        Raises:
            OracleError: the server refused the statement.
            LostConnection: the connection broke.
        """
        cursor = self._executed(sql, parameters)
        try:
            return [tuple(row) for row in cursor.fetchall()]
        except Exception as error:
            raise self._error(error) from error
        finally:
            cursor.close()

    def value(self, sql: str, **parameters: Any) -> Any:
        """The one value of a result of one row and column; null when there is no row."""
        rows = self.rows(sql, **parameters)
        return rows[0][0] if rows else None

    def run(self, sql: str, **parameters: Any) -> None:
        """A statement without a result."""
        self._executed(sql, parameters).close()

    def commit(self) -> None:
        try:
            self._connection.commit()
        except Exception as error:
            raise self._error(error) from error

    def batches(self, sql: str, *, rows: int = ARROW_ROWS, **parameters: Any) -> Iterator[pa.RecordBatch]:
        """A large result as Arrow batches of a bounded size, streamed; `rows` is how many are fetched at once."""
        try:
            frames = self._connection.fetch_df_batches(statement=sql, parameters=parameters, size=rows)
            fetches = (batch for frame in frames for batch in pa.table(frame).to_batches())
            yield from sized(fetches, ARROW_ROWS, fetched=rows)
        except (HeadraceError, GeneratorExit):
            raise
        except Exception as error:
            raise self._error(error) from error

    def _executed(self, sql: str, parameters: Mapping[str, Any]) -> Any:
        try:
            cursor = self._connection.cursor()
            cursor.execute(sql, dict(parameters))
            return cursor
        except Exception as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> HeadraceError:
        text = self._clean(error)
        match = _NUMBER.search(text)
        number = int(match[1]) if match else 0
        if number in _LOGIN:
            return ConnectError(
                f"Database '{self._where}' refused the login of user '{self._user}'.",
                remedy="Check 'user' and 'password', and that the user may connect (CREATE SESSION).",
            )
        if number in _AWAY or not match:
            return LostConnection(
                f"Database '{self._where}' can't be reached or is gone ({text}).",
                remedy="Check 'hostname', 'port', 'database' and the network; the run goes on where it stopped.",
            )
        remedy = ""
        if number in _DENIED | _MISSING:
            remedy = f"Check that it exists and that user '{self._user}' may read it (docs/reference/oracle.md)."
        refused = OracleError(f"Database '{self._where}': {text}.", remedy=remedy)
        refused.number = number
        return refused
