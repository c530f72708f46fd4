"""The plain change log: every change of a table as one row, as it came.

The columns of the table hold the image after the change, of a delete what the source said of the row before. Ours say
the rest; what of a row was not sent is named, so that absent and NULL stay two things.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.apply.fold import fold, fold_keyless
from headrace.apply.profile import TableProfile, profile
from headrace.changes.row import spark_schema
from headrace.changes.table import TableSchema
from headrace.changes.texts import text_image
from headrace.changes.typed import literal, quote, texts_in_order, typed_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPERATION, EVENT_TIME, ABSENT, BEFORE = (
    "_headrace_op",
    "_headrace_event_time",
    "_headrace_absent",
    "_headrace_before",
)


def change_log(rows: DataFrame, table: TableProfile, position_column: str) -> DataFrame:
    """The data changes of one table, truncates too, in the columns of its change log. Lazy and pure.

    Args:
        rows: the batch's change rows with images as maps; rows of other tables are left out.
        table: the profile of the table.
        position_column: the name of the column that holds the position.
    """
    names = ", ".join(literal(column.name) for column in table.schema.columns)
    image = "case when op = 't' then null when op <> 'd' then after else coalesce(before, key) end"
    return (
        rows.where(f"op in ('r', 'c', 'u', 'd', 't') and {table.same}")
        .selectExpr("*", f"{image} as image")
        .selectExpr("*", f"{texts_in_order('image', table.schema.columns)} as texts")
        .selectExpr(
            *typed_columns("texts", table.schema.columns, misfit=table.misfit_in_texts),
            f"position as {quote(position_column)}",
            f"op as {OPERATION}",
            f"event_time as {EVENT_TIME}",
            f"nullif(array_except(array({names}), map_keys(image)), cast(array() as array<string>)) as {ABSENT}",
            f"before as {BEFORE}",
        )
    )


def rows_left(log: DataFrame, schema: TableSchema, position_column: str) -> DataFrame:
    """The rows that the changes of a log leave, typed: what the table holds after the last of them.

    A read of the whole table says nothing of rows that vanished before it; a log that has two of them still has such
    rows. Runs one Spark job over the log to see what is in it; the answer is lazy.

    Args:
        log: the rows of a change log.
        schema: the table's schema; columns that the log does not have are left out.
        position_column: the name of the column that holds the position.

    Raises:
        SchemaError: the table has no key and the log not its whole rows.
    """
    have = {name.lower() for name in log.columns}
    schema = replace(schema, columns=tuple(c for c in schema.columns if c.name.lower() in have))
    id = schema.id
    image = text_image(f"struct({', '.join(quote(column.name) for column in schema.columns)})", schema, ABSENT)
    columns = {
        "op": OPERATION,
        "table": f"named_struct('database', {literal(id.database)}, 'schema', {literal(id.schema)}, "
        f"'name', {literal(id.name)})",
        "before": f"if({OPERATION} = 'd', {image}, {BEFORE})",
        "after": f"if({OPERATION} in ('r', 'c', 'u'), {image}, null)",
        "position": quote(position_column),
        "event_time": EVENT_TIME,
        "schema_id": literal(schema.fingerprint),
    }
    kinds = {field.name: field.dataType.simpleString() for field in spark_schema()}
    changes = log.selectExpr(*(f"cast({columns.get(n, 'null')} as {kind}) as {n}" for n, kind in kinds.items()))
    columns_of_schema_row = {
        "op": "'schema'",
        "table": columns["table"],
        "position": "'0'",
        "schema_id": columns["schema_id"],
        "table_schema": literal(schema.to_text()),
    }
    declared = log.sparkSession.range(1).selectExpr(
        *(f"cast({columns_of_schema_row.get(n, 'null')} as {kind}) as {n}" for n, kind in kinds.items())
    )
    both = declared.unionByName(changes)
    (table,) = profile(both)
    folded = fold(both, table) if schema.key else fold_keyless(both, table)
    left = folded.where("op <> 'delete'")
    return left.selectExpr(*(f"row.{quote(column.name)} as {quote(column.name)}" for column in schema.columns))
