"""Arrow batches of change rows: the form in which sources hand rows to Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Operation, Position, TableId, TableSchema, arrow_schema
from headrace.wire.arrays import map_array, offsets_of


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
    facts: Mapping[str, str] | None = None,
) -> pa.RecordBatch:
    """One `schema` row: how the rows of a table that follow it are to be read.

    Args:
        schema: what it says.
        position: where the row stands.
        capture_time: when the batch was planned.
        connector: the connector's name in events.
        snapshot: the mark that ends the table's snapshot, where no row is left to carry it.
        facts: what else stands in `source`.
    """
    source = [("connector", connector), *(facts or {}).items()]
    return change_batch(
        1,
        {
            "op": pa.array([Operation.SCHEMA.value]),
            "table": table_column(schema.id, 1),
            "position": pa.array([position.text]),
            "capture_time": instants(capture_time, 1),
            "source": pa.array([source], _schema().field("source").type),
            "snapshot": pa.array([snapshot], pa.string()),
            "schema_id": pa.array([schema.fingerprint]),
            "table_schema": pa.array([schema.to_text()]),
        },
    )


def with_fact(rows: pa.RecordBatch, name: str, texts: pa.Array) -> pa.RecordBatch:
    """Change rows with one fact more in `source`, which is the last; rows whose text is null stay as they are."""
    place = rows.schema.get_field_index("source")
    source, given = rows.column(place), texts.is_valid().to_numpy(zero_copy_only=False)
    ends = source.offsets.to_numpy()
    begin, count = int(ends[0]), int(ends[-1] - ends[0])
    offsets = offsets_of(np.diff(ends) + given)
    is_new = np.zeros(offsets[-1], bool)
    is_new[offsets[1:][given] - 1] = True
    names = np.cumsum(~is_new) - 1
    values = names.copy()
    names[is_new] = count
    values[is_new] = count + np.flatnonzero(given)
    keys = pa.concat_arrays([source.keys.slice(begin, count), pa.array([name])]).take(pa.array(names))
    items = pa.concat_arrays([source.items.slice(begin, count), texts]).take(pa.array(values))
    present = given | source.is_valid().to_numpy(zero_copy_only=False)
    facts = map_array(offsets, keys, items, present).cast(source.type)
    return rows.set_column(place, rows.schema.field(place), facts)


def with_transactions_of(database: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Change rows whose transactions' ids begin with the name of their database."""
    place = rows.schema.get_field_index("transaction")
    given = rows.column(place)
    id, *orders = given.flatten()
    fields = [pc.binary_join_element_wise(database, id, ":"), *orders]
    made = pa.StructArray.from_arrays(fields, fields=list(given.type), mask=given.is_null())
    return rows.set_column(place, rows.schema.field(place), made)
