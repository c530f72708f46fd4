"""One way to reach a server: statements, Arrow reads, and errors as our own sentences.

The password is used here and stands in no error: driver messages are passed on without connection strings.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from headrace import registry
from headrace.errors import CaptureError, HeadraceError
from headrace.sources.change_tables.captured_table import ARROW_ROWS
from headrace.sources.change_tables.dialect import Dialect
from headrace.sources.change_tables.statements import Statements
from headrace.sources.connection import DriverConnection
from headrace.sources.rows import sized

_LOG = logging.getLogger("headrace.sources")


class Connection(DriverConnection, ABC):
    """A connection to one database of a server. Not shared between threads and never pickled.

    Args:
        driver: the driver's name.
        settings: what the driver needs, and `query_timeout_ms`.
        dialect: the server's own part.
    """

    def __init__(self, driver: str, settings: Mapping[str, Any], dialect: Dialect) -> None:
        super().__init__(settings)
        self.dialect = dialect
        self._where = f"{settings['hostname']}{':' + settings['port'] if settings.get('port') else ''}"
        self._database = settings["database"]
        self._patience = int(settings.get("query_timeout_ms") or 0)
        connect = registry.find("driver", driver)
        try:
            self._connection = connect(settings)
        except HeadraceError:
            raise
        except Exception as error:
            raise self._connect_error(error) from None

    @property
    def statements(self) -> Statements:
        return self.dialect.statements

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

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction; ours only read and lock."""

    @abstractmethod
    def end(self) -> None:
        """End the transaction; harmless where the server ended it itself, so that it does not hide why."""

    def row(self, sql: str, parameters: Sequence[object] = ()) -> tuple[Any, ...] | None:
        """The first row of a small result; None when there is none."""
        return next(iter(self.rows(sql, parameters)), None)

    def value(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        """The one value of a result of one row and column; null when there is no row."""
        row = self.row(sql, parameters)
        return None if row is None else row[0]

    def batches(
        self, sql: str, parameters: Sequence[object] = (), *, rows: int = ARROW_ROWS, patient: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """A large result as Arrow batches of a bounded size, streamed; the cursor is closed when the iterator is.

        Args:
            sql: the statement.
            parameters: its parameters.
            rows: rows per fetch.
            patient: whether it may take longer than `query_timeout_ms`, because it reads a whole table.
        """
        with self._cursor(sql, parameters, patient=patient) as cursor:
            yield from sized(self._arrow(cursor, rows), ARROW_ROWS, fetched=rows)

    def _arrow(self, cursor: Any, rows: int) -> Iterable[pa.RecordBatch]:
        """A cursor's result as Arrow batches, by the driver's own fetch."""
        batches: Iterable[pa.RecordBatch] = cursor.arrow_reader(rows)
        return batches

    def _execute(self, cursor: Any, sql: str, parameters: Sequence[object]) -> None:
        if parameters:
            cursor.execute(sql, tuple(parameters))
        else:
            cursor.execute(sql)

    def _patience_of(self, connection: Any, milliseconds: int) -> None:
        """How long the statements of the cursors to come may take; 0 for no bound."""
        # Whole seconds are all that drivers know.
        connection.timeout = -(-milliseconds // 1000)

    @contextmanager
    def _cursor(self, sql: str, parameters: Sequence[object], *, patient: bool = False) -> Iterator[Any]:
        try:
            # A cursor takes over what is set when it is made.
            self._patience_of(self._connection, 0 if patient else self._patience)
            cursor = self._connection.cursor()
        except Exception as error:
            # It was closed, or the server went away.
            raise self._statement_error(error) from error
        try:
            self._execute(cursor, sql, parameters)
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
                # The connection broke or was closed before; the failure is already reported.
                _LOG.debug("A cursor could not be closed in order: %s", self._clean(error))

    @abstractmethod
    def _connect_error(self, error: Exception) -> HeadraceError:
        """What a driver raised when it was to connect, in our own words."""

    @abstractmethod
    def _statement_error(self, error: Exception) -> HeadraceError:
        """What a driver raised when a statement was sent or its result fetched, in our own words."""


class StatementError(CaptureError):
    """The server refused a statement."""


class PassingRefusal(StatementError):
    """The server refused a statement for a reason that passes, such as a deadlock or a failover."""


class MissingObject(CaptureError):
    """A table or function that a statement names is not there."""


class Denied(CaptureError):
    """The login lacks a permission."""
