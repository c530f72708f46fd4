"""`headrace.typed`: change rows of one table with images as real Spark columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes.refusal import refusal
from headrace.changes.table import Column, TableId, TableSchema
from headrace.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_REPLACED = re.compile(r"\$\{[^ \t\n\x0b\f\r]+?\}")
"""What Spark replaces in a statement before it parses it; in a name nothing can stand for the `$`."""


def unfit_in_sql(name: str) -> str:
    """Why Spark SQL has no way to write a name, as the end of a sentence; empty where it has one."""
    if not name:
        return "which is empty"
    if _REPLACED.search(name):
        return "in which Spark would replace ${...} by a setting"
    return "" if name.isascii() or name.encode(errors="ignore").decode() == name else "which is not valid Unicode"


def quote(name: str) -> str:
    """A name as Spark SQL reads it, whatever characters it has.

    Raises:
        SchemaError: Spark SQL has no way to write it.
    """
    if reason := unfit_in_sql(name):
        raise SchemaError(
            f"Spark SQL can't have the name '{name}', {reason}.",
            remedy="Give it another name, or leave the column out.",
        )
    return "`" + name.replace("`", "``") + "`"


def same_table(table: TableId) -> str:
    """Spark SQL that is true of the change rows of a table, and never null."""
    parts = (("database", table.database), ("schema", table.schema), ("name", table.name))
    return " and ".join(f"coalesce(table.{part}, '') = {literal(value)}" for part, value in parts)


def literal(text: str) -> str:
    """A Spark SQL string literal, whatever characters the text has."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    # Spark replaces ${...} by configuration values before it parses.
    escaped = escaped.replace("$", "\\u0024")
    return f"'{escaped}'"


@dataclass(frozen=True)
class Misfit:
    """What is said of a text that has no value of its column's Spark type, and whether null may stand for it.

    Args:
        table: the table as messages name it; empty where they name it by themselves.
        row: Spark SQL for a text that names the row, such as `id=7`; empty where nothing does.
        null: whether null stands for a value of the source that the type has no place for.
        remedy: how to go on where the source has such a value.
        lacks: a regular expression of further texts, for which not Spark's type but the target has no place.
        target: what the target is called.
    """

    table: str = ""
    row: str = ""
    null: bool = False
    remedy: str = ""
    lacks: str = ""
    target: str = ""


ANY = Misfit()
_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_ENDLESS = "[+-]?inf(inity)?"
_DAY = "-?[0-9]{4,7}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+)?(Z|[+-][0-9:]+)?( BC)?"
_VALUES = {
    **dict.fromkeys(_MOMENTS, f"(?i)^({_ENDLESS}|{_DAY})$"),
    "decimal": f"(?i)^(nan|{_ENDLESS})$",
}
"""The texts that are values of some database, whether or not the Spark type has a place for them."""
_TEXT = "_text"
_BEFORE_CHRIST = "^[0-9]{4}-.* BC$"
_CONTROL = r"\p{Cntrl}"
_MOST_SHOWN = 100


def typed_value(text: str, column: Column, misfit: Misfit = ANY) -> str:
    """Spark SQL that turns canonical text (an SQL expression) into the column's Spark type, never through a double for
    exact types.

    The same in every session, whatever `spark.sql.ansi.enabled` is: only null is null. A text that the type has no
    position for (infinity, a day that no calendar has, NaN among decimals) stops the query with a sentence, unless null
    may stand for it; any other text that is not a value of the type always does. Years before Christ are counted as
    Spark counts them: 1 BC is 0.
    """
    kind = column.logical.spark_type
    if kind == "string":
        value = text
    elif kind == "binary":
        value = f"unbase64({text})"
    else:
        # Lambdas are not compiled: code for values that hardly ever come would slow down the others.
        rare = ", ".join([*_cast_before_christ(_TEXT, kind), _without_value(_TEXT, column, misfit)])
        rarely = f"transform(array({text}), {_TEXT} -> coalesce({rare}))[0]"
        value = f"coalesce({_cast(text, kind)}, if({text} is null, null, {rarely}))"
    if not misfit.lacks:
        return value
    instead = "null" if misfit.null else _no_location(text, column, misfit, misfit.target)
    return f"case when {text} rlike {literal(misfit.lacks)} then {instead} else {value} end"


def is_misfit(text: str, column: Column, lacks: str = "") -> str:
    """Spark SQL: is a text a value of some database that the column has no place for? Never null.

    Args:
        text: SQL for it.
        column: the column.
        lacks: as in `Misfit`.
    """
    kind = column.logical.spark_type
    known = _VALUES.get(kind.partition("(")[0])
    ways = [f"{text} rlike {literal(lacks)}"] if lacks else []
    if known is not None:
        values = ", ".join([_cast(text, kind), *_cast_before_christ(text, kind)])
        ways.append(f"(coalesce({values}) is null and {text} rlike {literal(known)})")
    return f"({text} is not null and ({' or '.join(ways) or 'false'}))"


def _cast(text: str, kind: str) -> str:
    """Spark SQL for a text as a value of a Spark type; null where it is none, and for days before Christ."""
    # Of a date Spark reads no further than the blank.
    plain = f"if(endswith({text}, ' BC'), null, {text})" if kind == "date" else text
    return f"try_cast({plain} as {kind})"


def _cast_before_christ(text: str, kind: str) -> list[str]:
    """Spark SQL for a day or moment before Christ, as PostgreSQL prints it; null for any other text."""
    if kind not in _MOMENTS:
        return []
    year = f"lpad(cast(try_cast(left({text}, 4) as int) - 1 as string), 4, '0')"
    counted = f"concat('-', {year}, substr({text}, 5, length({text}) - 7))"
    return [f"try_cast(if({text} rlike {literal(_BEFORE_CHRIST)}, {counted}, null) as {kind})"]


def _without_value(text: str, column: Column, misfit: Misfit) -> str:
    """Spark SQL for what stands where the Spark type has no value for a text that is not null: null, or a sentence."""
    kind = column.logical.spark_type
    broken = f"A value{_of(misfit)} does not fit its column '{column.name}' of type {column.logical}"
    then = literal(". Compare the values with the source's column types.")
    stop = refusal(f"concat({literal(broken)}{_in_row(misfit)}, {then})", SchemaError)
    known = _VALUES.get(kind.partition("(")[0])
    if known is None:
        return stop
    is_known = f"{text} rlike {literal(known)}"
    if misfit.null:
        return f"if({is_known}, null, {stop})"
    named = _no_location(text, column, misfit, f"Spark's {kind}")
    return f"if({is_known}, {named}, {stop})"


def _no_location(text: str, column: Column, misfit: Misfit, place: str) -> str:
    """Spark SQL that stops the query for a value that it names."""
    before = literal(f"Column '{column.name}'{_of(misfit)} has the value ")
    after = literal(f", for which {place} has no place. {misfit.remedy}".rstrip())
    return refusal(f"concat({before}, left({text}, {_MOST_SHOWN}){_in_row(misfit)}, {after})", SchemaError)


def _of(misfit: Misfit) -> str:
    return f" of table {misfit.table}" if misfit.table else ""


def _in_row(misfit: Misfit) -> str:
    """Spark SQL for more arguments of a `concat`."""
    shown = f"left(regexp_replace({misfit.row}, {literal(_CONTROL)}, '?'), {_MOST_SHOWN})"
    return f", ' in the row ', {shown}" if misfit.row else ""


def typed_columns(
    texts: str,
    columns: Iterable[Column],
    known: Mapping[str, str] | None = None,
    misfit: Callable[[Column], Misfit] = lambda _: ANY,
) -> list[str]:
    """Spark SQL for each column of a schema, typed, from the texts of an image in order (`texts_in_order`).

    Args:
        texts: the name of the column with the texts.
        columns: the schema.
        known: SQL for columns whose typed values are known otherwise.
        misfit: what is said of a text that has no value, by column.
    """
    known = known or {}
    return [
        f"{known.get(column.name) or typed_value(f'{texts}[{index}]', column, misfit(column))} as {quote(column.name)}"
        for index, column in enumerate(columns)
    ]


def typed_struct(texts: str, columns: Iterable[Column], misfit: Callable[[Column], Misfit] = lambda _: ANY) -> str:
    """Spark SQL for a whole image as a struct of typed columns; null where the image, and so its texts, is null."""
    return f"if({texts} is null, null, struct({', '.join(typed_columns(texts, columns, misfit=misfit))}))"


def texts_in_order(image: str, columns: Iterable[Column]) -> str:
    """Spark SQL for the texts of an image map as an array, each column of a schema at its position.

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


def presence_in_order(flags: str, names: Sequence[str]) -> str:
    """Spark SQL for an array of booleans: at each name's position, whether an array of names has it. Null stays
    null.
    """
    if not names:
        return f"if({flags} is null, null, cast(array() as array<boolean>))"
    whole = f"map_from_arrays({flags}, {flags})"
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


def typed(changes: DataFrame, table_schema: TableSchema, *, unrepresentable: str = "fail") -> DataFrame:
    """The change rows of one table with `before` and `after` as structs of real Spark types.

    Rows of other tables are left out. Absent columns are null in the struct and named in `before_absent` /
    `after_absent`.

    Only builds the plan and runs no Spark job, so a query function of a declarative pipeline can call it too.

    Args:
        changes: change rows with images as maps; all columns of change rows must be there.
        table_schema: the table schema of the table, as `headrace.tables` or a `schema` row gives it.
        unrepresentable: what to do with values that Spark's type can't hold (infinity, days that no calendar
            has, NaN among decimals): `fail` stops the query with a sentence that names table, column and value, `null`
            makes them null.

    Returns:
        The same rows, order and columns.

    Raises:
        OptionError: `unrepresentable` is neither.
    """
    from pyspark.sql.functions import expr

    if unrepresentable not in ("fail", "null"):
        raise OptionError(f"unrepresentable can't be '{unrepresentable}'.", remedy="Pass fail or null.")
    id, columns = table_schema.id, table_schema.columns
    remedy = "Call headrace.typed with unrepresentable='null' to have null there."
    misfit = Misfit(str(id), null=unrepresentable == "null", remedy=remedy)
    names = ", ".join(literal(column.name) for column in columns)
    texts, replaced = {}, {}
    for image in ("before", "after"):
        texts[f"_{image}_texts"] = expr(texts_in_order(image, columns))
        replaced[image] = expr(
            typed_struct(f"_{image}_texts", columns, lambda _: misfit) if columns else "cast(null as struct<>)"
        )
        replaced[f"{image}_absent"] = expr(
            f"if({image} is null or size({image}) = {len(columns)}, {image}_absent, "
            f"array_except(array({names}), map_keys({image})))"
        )
    of_table = (
        f"op not in ('schema') and table.schema <=> {literal(id.schema)} and table.name <=> {literal(id.name)}"
        + (f" and table.database <=> {literal(id.database)}" if id.database else "")
    )
    return changes.where(of_table).withColumns(texts).withColumns(replaced).drop(*texts)
