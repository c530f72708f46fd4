"""The rows of a mirror in a database as a Spark DataFrame, to be compared with the source.

The database writes every value as a text, so that no driver's idea of a type comes between; Spark reads the texts as
the source's types. One connection reads one table, as a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from headrace.changes.table import Column, TableSchema
from headrace.changes.typed import literal, quote, typed_value
from headrace.sinks.jdbc.database import Database
from headrace.sinks.jdbc.dialect import TableName

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_ROWS_AT_ONCE = 10_000


def mirrored_rows(
    spark: SparkSession, database: Database, name: TableName, schema: TableSchema, *, where: str = ""
) -> DataFrame | None:
    """The rows of a mirror in the source's columns, as far as it has them; None where there is no mirror.

    Lazy: each action reads the table again, over one connection of one executor.
    """
    with database.connected(schema.id, name) as connection:
        types = database.target_schema(connection, name).types
    if not types:
        return None
    there = {database.dialect.folded(column) for column in types}
    columns = [column for column in schema.columns if database.dialect.folded(column.name) in there]
    texts = [database.dialect.text_of(database.dialect.quote(c.name), c) for c in columns]
    query = f"SELECT {', '.join(texts)} FROM {database.dialect.table(name)}" + (f" WHERE {where}" if where else "")
    # Own names, because mapInArrow does not accept every name.
    ddl = ", ".join(f"c{number} string" for number in range(len(columns)))
    rows = spark.range(0, 1, 1, 1).mapInArrow(_reading(database, query, len(columns), schema, name), ddl)
    return rows.selectExpr(*(f"{_typed(f'c{n}', c)} as {quote(c.name)}" for n, c in enumerate(columns)))


def as_compared(value: str, column: Column) -> str:
    """Spark SQL for a value of the source as `mirrored_rows` gives it: times of a day without zeros at their end."""
    if column.logical.kind != "time" or column.logical.digits > 6:
        return value
    return f"regexp_replace(regexp_replace({value}, {literal(_ZEROS)}, '$1'), {literal(_POINT)}, '')"


_ZEROS = r"(\.\d*?)0+$"
_POINT = r"\.$"


def _typed(text: str, column: Column) -> str:
    kind = column.logical.spark_type
    if kind == "binary":
        return f"unhex({text})"
    return as_compared(text, column) if kind == "string" else typed_value(text, column)


def _reading(
    database: Database, query: str, width: int, schema: TableSchema, name: TableName
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            with database.connected(schema.id, name) as connection:
                for rows in database.stream(connection, query, _ROWS_AT_ONCE):
                    columns = [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
                    yield pa.RecordBatch.from_arrays(columns, [f"c{number}" for number in range(width)])

    return read
