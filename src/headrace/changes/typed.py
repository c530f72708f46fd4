"""`headrace.typed`: change rows of one table with images as real Spark columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def typed_columns(texts: str, columns: Iterable[Column], known: Mapping[str, str] | None = None) -> list[str]:
    """Spark SQL for each column of a schema, typed, from the texts of an image in order (`texts_in_order`).

    Args:
        texts: the name of the column with the texts.
        columns: the schema.
        known: SQL for columns whose typed values are known otherwise.
    """
    known = known or {}
    return [
        f"{known.get(column.name) or typed_value(f'{texts}[{place}]', column)} as {quote(column.name)}"
        for place, column in enumerate(columns)
    ]


def typed_struct(texts: str, columns: Iterable[Column]) -> str:
    """Spark SQL for a whole image as a struct of typed columns; null where the image, and so its texts, is null."""
    return f"if({texts} is null, null, struct({', '.join(typed_columns(texts, columns))}))"


def texts_in_order(image: str, columns: Iterable[Column]) -> str:
    """Spark SQL for the texts of an image map as an array, each column of a schema at its place.

    A column that the image does not carry is null there, just as NULL is. Columns that the schema lacks come last.
    Null where the image is null. Select it under a name before it is used: a look-up by name walks through the keys of
    a map, so that looking up every column of a wide table is quadratic, and computing this for every column too.
    """
    names = [column.name for column in columns]
    if not names:
        return f"if({image} is null, null, cast(array() as array<string>))"
    # Most images have the columns of the schema in its order: then nothing is looked up at all.
    return (
        f"if(map_keys({image}) = {_array(names)}, map_values({image}), "
        f"map_values(map_zip_with({_every(names)}, {image}, (k, x, y) -> y)))"
    )


def presence_in_order(said: str, names: Sequence[str]) -> str:
    """Spark SQL for an array of booleans: at each name's place, whether an array of names has it. Null stays null."""
    if not names:
        return f"if({said} is null, null, cast(array() as array<boolean>))"
    whole = f"map_from_arrays({said}, {said})"
    # Other names follow.
    return f"slice(map_values(map_zip_with({_every(names)}, {whole}, (k, x, y) -> y is not null)), 1, {len(names)})"


def in_order(image: str, names: Sequence[str]) -> str:
    """Spark SQL for an image map with those of the named columns that it carries, in this order."""
    placed = f"map_zip_with({_every(names)}, {_wrapped(image)}, (k, x, y) -> if(x, y, null))"
    return f"transform_values(map_filter({placed}, (k, y) -> y is not null), (k, y) -> y.v)"


def laid_over(under: str, over: str) -> str:
    """Spark SQL for what two image maps say together: where both say a column, the second. Null where one is null."""
    return f"map_zip_with({under}, {_wrapped(over)}, (k, x, y) -> if(y is null, x, y.v))"


def _array(names: Sequence[str]) -> str:
    return f"array({', '.join(map(literal, names))})"


def _every(names: Sequence[str]) -> str:
    """A map with these keys in this order; Spark finds keys by their hashes when it puts two maps together."""
    return f"map_from_arrays({_array(names)}, array_repeat(true, {len(names)}))"


def _wrapped(image: str) -> str:
    """The map with its values in structs, so that NULL is something and absent is nothing."""
    return f"transform_values({image}, (k, v) -> struct(v as v))"


def typed(changes: DataFrame, table_schema: TableSchema) -> DataFrame:
    """The change rows of one table with `before` and `after` as structs of real Spark types.

    Rows of other tables are left out. Absent columns are null in the struct and named in `before_absent` /
    `after_absent`.

    Only builds the plan and runs no Spark job, so a query function of a declarative pipeline can call it too.

    Args:
        changes: change rows with images as maps; all columns of change rows must be there.
        table_schema: the table schema of the table, as `headrace.tables` or a `schema` row gives it.

    Returns:
        The same rows, order and columns.
    """
    from pyspark.sql.functions import expr

    id, columns = table_schema.id, table_schema.columns
    names = ", ".join(literal(column.name) for column in columns)
    texts, replaced = {}, {}
    for image in ("before", "after"):
        texts[f"_{image}_texts"] = expr(texts_in_order(image, columns))
        replaced[image] = expr(typed_struct(f"_{image}_texts", columns) if columns else "cast(null as struct<>)")
        replaced[f"{image}_absent"] = expr(
            f"if({image} is null or size({image}) = {len(columns)}, {image}_absent, "
            f"array_except(array({names}), map_keys({image})))"
        )
    of_table = (
        f"op not in ('schema') and table.schema <=> {literal(id.schema)} and table.name <=> {literal(id.name)}"
        + (f" and table.database <=> {literal(id.database)}" if id.database else "")
    )
    return changes.where(of_table).withColumns(texts).withColumns(replaced).drop(*texts)
