"""Tables of a PostgreSQL database as the source knows them, and rows of change batches as Python's values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from tests.support.postgresql import PostgresDatabase

from headrace.changes import Column, TableId, TableSchema
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.connection import Connection, connect
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.types import TypeCatalog

_COLUMNS = """
SELECT attname::text, atttypid::bigint, atttypmod, attnotnull FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_KEY = """
SELECT a.attname::text FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY k (attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.indisprimary ORDER BY k.place
"""
_LEAVES = "SELECT relid::oid::bigint FROM pg_partition_tree(%s) WHERE isleaf"


def settings_of(database: PostgresDatabase, **options: object) -> PostgresSettings:
    """The source's settings for a database."""
    given = {name: str(value) for name, value in options.items()}
    return PostgresSettings.parse({**database.options, **given}, owner="source 'postgresql'")


def table_of(
    database: PostgresDatabase, name: str = "t", schema: str = "public", key: Sequence[str] | None = None
) -> PostgresTable:
    """A table as the catalog shows it; its chunk key is the primary key where none is given."""
    with connect(settings_of(database)) as connection:
        oid = int(
            connection.value(
                "SELECT c.oid::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE c.relname = %s AND n.nspname = %s",
                (name, schema),
            )
        )
        types = TypeCatalog.of(connection)
        columns = connection.rows(_COLUMNS, (oid,))
        natives = tuple(types.resolve(int(kind), int(modifier)) for _, kind, modifier, _ in columns)
        found = tuple(str(column) for (column,) in connection.rows(_KEY, (oid,))) if key is None else tuple(key)
        leaves = tuple(int(leaf) for (leaf,) in connection.rows(_LEAVES, (oid,))) or (oid,)
    return PostgresTable(
        TableSchema(
            TableId(database.name, schema, name),
            tuple(
                Column(str(column), place, native.logical, nullable=not required)
                for place, ((column, _, _, required), native) in enumerate(zip(columns, natives, strict=True), 1)
            ),
            found,
        ),
        natives,
        found,
        oid=oid,
        leaves=leaves,
    )


def images(batches: Iterable[pa.RecordBatch], column: str = "after") -> list[dict[str, Any]]:
    """The values of rows by column, without rows that have none."""
    return [dict(row[column]) for row in rows(batches) if row[column] is not None]


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows of change batches."""
    return [row for batch in batches for row in batch.to_pylist()]


def session(database: PostgresDatabase, **options: object) -> Connection:
    """A session as the source has it."""
    return connect(settings_of(database, **options))
