"""A real PostgreSQL database as the capture contract needs it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.testing.captured_database import CapturedDatabase, Run
from headrace.testing.sources import Row
from headrace_emulators.postgresql.server import PostgresDatabase

_slots = itertools.count(1)


class CapturedPostgres(CapturedDatabase):
    """PostgreSQL, with a publication that somebody keeps by hand: what is captured are its tables.

    Args:
        database: the test's own.
        identity: what the log says of a row before its change: FULL for all of it, DEFAULT for its key.
    """

    source, schema = "postgresql", "public"
    # The chunk was read: what changes then follows it.
    chunk_point, chunks_are_moments = "source.incremental.read", True
    small_slices: Row = {"min_wal_per_reader": 1}  # noqa: RUF012

    def __init__(self, database: PostgresDatabase, identity: str = "FULL") -> None:
        self.database = database
        self.identity = identity
        # A slot's name is the server's and not the database's.
        self.slot = f"slot_{database.name}_{next(_slots)}"
        self.execute("CREATE PUBLICATION shop WITH (publish_via_partition_root)")

    @property
    def options(self) -> dict[str, str]:
        return {
            **self.database.options,
            "slot": self.slot,
            "publication": "shop",
            "publication_autocreate": "disabled",
            # Faults show at once, unless a test is about what is tried again.
            "errors_max_retries": "0",
        }

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        with self.transaction() as cursor:
            cursor.execute(sql, parameters)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self.database.connect(autocommit=False) as connection:
            yield _Marked(connection.cursor())

    def create(self, table: str, columns: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        super().create(table, re.sub(r"\bvarbinary\(\d+\)", "bytea", columns), rows)

    def enable(self, table: str) -> None:
        self.execute(f"ALTER TABLE {self.schema}.{table} REPLICA IDENTITY {self.identity}")
        self.execute(f"ALTER PUBLICATION shop ADD TABLE {self.schema}.{table}")

    def disable(self, table: str) -> None:
        self.execute(f"ALTER PUBLICATION shop DROP TABLE {self.schema}.{table}")

    def capture(self) -> None:
        """A change is in the log when it is committed."""

    def clean(self) -> None:
        """The slot is dropped and made again, as after a failover: it begins now."""
        self.execute("SELECT pg_drop_replication_slot(?)", (self.slot,))
        self.execute("SELECT pg_create_logical_replication_slot(?, 'pgoutput')", (self.slot,))

    def clean_delivered(self, run: Run) -> None:
        """The server removes the log before the slot."""
        run.source.acknowledge(run.offset)
        self.execute("SELECT pg_switch_wal()")
        with self.database.connect() as connection:
            connection.execute("CHECKPOINT")

    @contextmanager
    def capturing(self) -> Iterator[None]:
        yield


class _Marked:
    """A cursor that takes question marks for parameters."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        if parameters:
            self._cursor.execute(sql.replace("?", "%s"), parameters)
        else:
            self._cursor.execute(sql)
