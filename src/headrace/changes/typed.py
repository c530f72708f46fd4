"""`headrace.typed`: change rows of one table with images as real Spark columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.changes.table import Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def quote(name: str) -> str:
    """A column name as Spark SQL reads it whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A Spark SQL string literal, whatever characters the text has."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    # Spark replaces ${...} by configuration values before it parses.
    escaped = escaped.replace("$", "\\u0024")
    return f"'{escaped}'"


def typed_value(text: str, column: Column) -> str:
    """Spark SQL that turns canonical text (an SQL expression) into the column's Spark type, never through a double for
    exact types.

    A day that no calendar has (MySQL's `0000-00-00` and `2020-00-10`) is null.
    """
    kind = column.logical.spark_type
    if kind == "string":
        return text
    if kind == "binary":
        return f"unbase64({text})"
    if kind in ("date", "timestamp", "timestamp_ntz"):
        # Behind the first character, which may be the sign of a year.
        text = f"if(contains(substr({text}, 2, 9), '-00'), null, {text})"
    return f"cast({text} as {kind})"


def typed_image(image: str, schema: TableSchema) -> str:
    """Spark SQL for a whole image map as a struct of typed columns; null where the map is null.

    A column that the map does not carry is null in the struct: look at `map_contains_key`, or `*_absent`, to tell it
    from NULL.
    """
    if not schema.columns:
        return "cast(null as struct<>)"
    fields = ", ".join(
        f"{typed_value(f'{image}[{literal(column.name)}]', column)} as {quote(column.name)}"
        for column in schema.columns
    )
    return f"if({image} is null, null, struct({fields}))"


def typed(changes: DataFrame, table_schema: TableSchema) -> DataFrame:
    """The change rows of one table with `before` and `after` as structs of real Spark types.

    Rows of other tables are left out. Absent columns are null in the struct and named in `before_absent` /
    `after_absent`.

    Only builds the plan: Spark is asked nothing, so it can be called in a query function of a declarative pipeline too.

    Args:
        changes: change rows with images as maps; all columns of change rows must be there.
        table_schema: the structure of the table, as `headrace.tables` or a `schema` row gives it.

    Returns:
        The same rows, order and columns.
    """
    from pyspark.sql.functions import expr

    id = table_schema.id
    names = ", ".join(literal(column.name) for column in table_schema.columns)
    replaced = {}
    for image in ("before", "after"):
        replaced[image] = expr(typed_image(image, table_schema))
        replaced[f"{image}_absent"] = expr(
            f"if({image} is null or size({image}) = {len(table_schema.columns)}, {image}_absent, "
            f"array_except(array({names}), map_keys({image})))"
        )
    of_table = (
        f"op not in ('schema') and table.schema <=> {literal(id.schema)} and table.name <=> {literal(id.name)}"
        + (f" and table.database <=> {literal(id.database)}" if id.database else "")
    )
    return changes.where(of_table).withColumns(replaced)
