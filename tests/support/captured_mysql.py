"""A real MySQL or MariaDB as the capture contract needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.sources.mysql.source import MysqlSource
from headrace.testing.captured_database import CapturedDatabase, Run
from headrace.testing.sources import Row, SourceRun
from headrace.testing.waiting import until
from headrace_emulators.mysql.server import MySqlDatabase


class CapturedMysql(CapturedDatabase):
    """MySQL or MariaDB, whose log has the changes of all tables.

    Args:
        database: the test's own.
    """

    # The chunk was read: what changes then follows it.
    chunk_point, chunks_are_moments = "source.incremental.read", True
    small_slices: Row = {"min_log_per_reader": 1}  # noqa: RUF012

    def __init__(self, database: MySqlDatabase) -> None:
        self.database = database
        self.schema = database.name
        self.source = database.server.name

    @property
    def options(self) -> dict[str, str]:
        # Faults show at once, unless a test is about what is tried again.
        return {**self.database.options, "errors_max_retries": "0"}

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        with self.transaction() as cursor:
            cursor.execute(sql, parameters)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self.database.server.connect(self.database.name, autocommit=False) as connection:
            yield _Marked(connection.cursor())
            connection.commit()

    def create(self, table: str, columns: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        super().create(table, re.sub(r"\breal\b", "float", columns), rows)

    def enable(self, table: str) -> None:
        """The log has the changes of every table."""

    def disable(self, table: str) -> None:
        """No table can be left out of the log."""

    def capture(self) -> None:
        """A change is in the log when it is committed."""

    def clean(self) -> None:
        self.database.execute("FLUSH BINARY LOGS")
        self._purge()

    def clean_delivered(self, run: Run) -> None:
        """A run follows the log into its newest file, so the ones before it are not needed."""
        self.database.execute("FLUSH BINARY LOGS")
        run.all()
        self._purge()

    def _purge(self) -> None:
        """Remove the files before the one that is written; the server keeps one for a moment after it was in use."""
        newest = self.database.server.log_end[0]

        def is_oldest() -> bool:
            self.database.execute(f"PURGE BINARY LOGS TO '{newest}'")
            return bool(self.database.execute("SHOW BINARY LOGS")[0][0] == newest)

        until(is_oldest, "the files before the newest one are removed")

    @contextmanager
    def capturing(self) -> Iterator[None]:
        yield

    def run(self, **options: Any) -> Run:
        return MysqlRun(self, **options)


class MysqlRun(Run):
    """A run of the source for MySQL, which is made by its class."""

    def __init__(self, database: CapturedDatabase, **options: Any) -> None:
        self.options = {**database.options, **{name: str(value) for name, value in options.items()}}
        SourceRun.__init__(self, lambda: MysqlSource.of(self.options))


class _Marked:
    """A cursor that takes question marks for parameters."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        if parameters:
            self._cursor.execute(sql.replace("?", "%s"), parameters)
        else:
            self._cursor.execute(sql)
