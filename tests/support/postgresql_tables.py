"""Tables of a PostgreSQL database as the source knows them, and rows of change batches as Python's values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pyarrow as pa
from tests.support.postgresql import PostgresDatabase

from headrace.sources.offset import TableProgress
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.catalog import captured_tables
from headrace.sources.postgresql.connection import Connection, connect
from headrace.sources.postgresql.keeper import Keeper
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.snapshot_read import more_chunks, read_chunk
from headrace.sources.snapshots.chunks import Chunk

COMMIT = lsn.commit_before(0x1000)
"""The commit of snapshots whose slot begins at LSN 4096."""
PARTITIONED = (
    "CREATE TABLE t (id int{key}, v text) PARTITION BY RANGE (id);"
    "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (500);"
    "CREATE TABLE t2 (v text, id int NOT NULL); ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (500) TO (10000);"
    "INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(0, 2999) g; ANALYZE"
)
"""Tables `t` with two partitions, of which one has its columns in another order."""


def settings_of(database: PostgresDatabase, **options: object) -> PostgresSettings:
    """The source's settings for a database."""
    given = {name: str(value) for name, value in options.items()}
    return PostgresSettings.parse({**database.options, "errors_max_retries": "0", **given}, owner="source 'postgresql'")


def table_of(database: PostgresDatabase, name: str = "t") -> PostgresTable:
    """A table as the catalog shows it."""
    settings = settings_of(database, tables=f"public.{name}")
    with connect(settings) as connection:
        return captured_tables(connection, database.name, settings, strict=True)[f"public.{name}"]


def images(batches: Iterable[pa.RecordBatch], column: str = "after") -> list[dict[str, Any]]:
    """The values of rows by column, without rows that have none."""
    return [dict(row[column]) for row in rows(batches) if row[column] is not None]


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows of change batches."""
    return [row for batch in batches for row in batch.to_pylist()]


def session(database: PostgresDatabase, **options: object) -> Connection:
    """A session as the source has it."""
    return connect(settings_of(database, **options))


@contextmanager
def exported(database: PostgresDatabase) -> Iterator[str]:
    """The snapshot of a place of the log, as the session that makes a slot exports it."""
    with database.connect(replication="database") as walsender:
        # A replication session takes no extended protocol.
        ((_, _, name, _),) = (
            psycopg.ClientCursor(walsender)
            .execute("CREATE_REPLICATION_SLOT point TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT")
            .fetchall()
        )
        yield name


@contextmanager
def keeping(database: PostgresDatabase, *tables: PostgresTable, **options: object) -> Iterator[Keeper]:
    """A keeper of tables, closed at the end."""
    with exported(database) as name:
        keeper = Keeper(settings_of(database, **options), name, tables)
    with closing(keeper):
        yield keeper


def chunks_of(connection: Connection, table: PostgresTable, settings: PostgresSettings, budget: int = 3) -> list[Chunk]:
    """All chunks of a table's snapshot, planned batch by batch."""
    found: list[Chunk] = []
    progress = TableProgress(commit=COMMIT)
    while not progress.done:
        progress = more_chunks(connection, table, progress.advanced(), settings, budget)
        lower = progress.lower
        for number, upper in enumerate(progress.bounds, progress.chunk):
            found.append(Chunk(table.id.path, 0, number, lower, upper, COMMIT, None, None))
            lower = upper
    return found


def read(
    table: PostgresTable, chunks: Iterable[Chunk], settings: PostgresSettings, snapshot: str | None = None
) -> list[dict[str, Any]]:
    """The values of chunks, in a snapshot or as the table is."""
    return [image for chunk in chunks for image in images(read_chunk(table, chunk, settings, None, snapshot=snapshot))]


def all_rows(
    database: PostgresDatabase, table: PostgresTable, *, budget: int = 3, **options: object
) -> tuple[list[Chunk], list[dict[str, Any]]]:
    """A table's chunks, and its values as it is."""
    settings = settings_of(database, **options)
    with connect(settings) as connection:
        chunks = chunks_of(connection, table, settings, budget)
    return chunks, read(table, chunks, settings)
