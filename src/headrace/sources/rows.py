"""Arrow batches of change rows: the form in which sources hand rows to Spark."""

from __future__ import annotations

import datetime as dt
from functools import cache

import pyarrow as pa

from headrace.changes import Operation, Position, TableId, TableSchema, arrow_schema


@cache
def _schema() -> pa.Schema:
    return arrow_schema()


def change_batch(length: int, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """A batch of change rows; columns that are not given are null."""
    schema = _schema()
    arrays = [columns[f.name] if f.name in columns else pa.nulls(length, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def repeat(value: object, kind: pa.DataType, length: int) -> pa.Array:
    """The same value in every row."""
    return pa.repeat(pa.scalar(value, kind), length)


def table_column(id: TableId, length: int) -> pa.Array:
    """The column `table` of rows that all belong to one table."""
    fields = [repeat(part, pa.string(), length) for part in (id.database, id.schema, id.name)]
    return pa.StructArray.from_arrays(fields, names=["database", "schema", "name"])


def instants(time: dt.datetime | None, length: int) -> pa.Array:
    """The same instant in every row."""
    return repeat(time, pa.timestamp("us", tz="UTC"), length)


def schema_batch(
    schema: TableSchema,
    position: Position,
    capture_time: dt.datetime | None,
    connector: str,
    *,
    snapshot: str | None = None,
) -> pa.RecordBatch:
    """One `schema` row: how the rows of a table that follow it are to be read.

    Args:
        schema: the structure.
        position: where the row stands.
        capture_time: when the batch was planned.
        connector: the connector's name in events.
        snapshot: the mark that ends the table's snapshot, where no row is left to carry it.
    """
    return change_batch(
        1,
        {
            "op": pa.array([Operation.SCHEMA.value]),
            "table": table_column(schema.id, 1),
            "position": pa.array([position.text]),
            "capture_time": instants(capture_time, 1),
            "source": pa.array([[("connector", connector)]], _schema().field("source").type),
            "snapshot": pa.array([snapshot], pa.string()),
            "schema_id": pa.array([schema.fingerprint]),
            "table_schema": pa.array([schema.to_text()]),
        },
    )
