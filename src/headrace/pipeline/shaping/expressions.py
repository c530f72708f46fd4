"""Expressions that users write in Spark SQL: read by Spark itself, before any row is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.changes import Column, LogicalType
from headrace.changes.typed import quote
from headrace.errors import OptionError
from headrace.formats.given import logical_type
from headrace.spark.local_rows import local_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAYS_FLOAT = re.compile(r"\b(double|float|real)\b", re.IGNORECASE)
_CAST_TO_FLOAT = re.compile(r" as (double|float)\)")
# What Spark takes for deterministic, because it is one value per query, and is another one when a batch is repeated.
_OF_THE_MOMENT = re.compile(
    r"\b(current_timestamp|current_date|current_time|current_timezone|current_user|current_catalog|current_database|"
    r"current_schema|session_user|user|now|curdate|localtimestamp|version)\(",
    re.IGNORECASE,
)
_UNITS = frozenset(
    ["microsecond", "millisecond", "second", "minute", "hour", "day", "dayofyear", "week", "month", "quarter", "year"]
)
"""What stands in functions of time as a name does."""
_SCALA_DIGITS = 34
_NAMED = re.compile(r"with name (`[^`]*(?:``[^`]*)*`(?:\.`[^`]*`)*) cannot be resolved")


@dataclass(frozen=True)
class Expression:
    """An expression that was read.

    Args:
        sql: in parentheses, fit to stand in a larger expression.
        columns: the columns that it needs, in the table's order.
        logical: what its value means.
    """

    sql: str
    columns: tuple[str, ...]
    logical: LogicalType


def read_expression(spark: SparkSession, text: str, columns: Sequence[Column], owner: str) -> Expression:
    """Have Spark read an expression over a table's columns. Runs no job.

    Args:
        spark: a classic session.
        text: the expression.
        columns: what it may name, as typed columns.
        owner: what it is, for messages (`The filter of transform 1 for table 'dbo.a'`).

    Raises:
        OptionError: Spark can't read it, it is more than an expression over one row, it would be another value when a
            batch is repeated, it takes an exact number through a double or rounds one unasked, or its type has no place
            in a table.
    """
    from pyspark.errors import ParseException, PySparkException
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    fields = StructType()
    for column in columns:
        kind = StructType.fromDDL(f"x {column.logical.spark_type}")
        assert isinstance(kind, StructType)
        fields.add(column.name, kind.fields[0].dataType)
    # The end of the line ends a comment, too.
    sql = f"({text}\n)"
    try:
        frame = local_rows(spark, [], fields).select(sf.expr(sql))
        kind = frame.schema.fields[0].dataType
        plan: Any = frame._jdf.queryExecution().analyzed()
    except ParseException as error:
        raise OptionError(f"{owner} is no expression of Spark SQL: {text}.", remedy=_first_line(error)) from error
    except PySparkException as error:
        raise _refused(owner, error, columns) from error
    if plan.nodeName() != "Project" or plan.child().nodeName() != "LocalRelation" or not plan.subqueriesAll().isEmpty():
        raise OptionError(
            f"{owner} looks at more than one row.",
            remedy="Leave out aggregates, windows, generators and subqueries.",
        )
    resolved = re.sub(r"#\d+L?", "", plan.projectList().apply(0).toString())
    if not plan.deterministic() or _OF_THE_MOMENT.search(resolved):
        raise OptionError(
            f"{owner} would be another value when a batch is repeated.",
            remedy="Leave out random numbers, the time of day and who runs it.",
        )
    if _CAST_TO_FLOAT.search(resolved) and not _SAYS_FLOAT.search(text):
        raise OptionError(
            f"{owner} takes a number through a double, which loses digits: {resolved.rpartition(' AS ')[0]}.",
            remedy="Cast to decimal before (whole numbers divide by 'div'), or write cast(... as double).",
        )
    cut = _rounded(plan.projectList().apply(0), spark)
    if cut is not None:
        raise OptionError(
            f"{owner} loses digits, because Spark computes a part of it with fewer: {re.sub(r'#[0-9]+L?', '', cut)}.",
            remedy="Cast its parts to decimals with fewer digits before.",
        )
    try:
        logical = logical_type(kind, "")
    except OptionError:
        raise OptionError(
            f"{owner} is of type {kind.simpleString()}, which no column can have.",
            remedy="Cast it to a plain type, or make it text (to_json).",
        ) from None
    return Expression(sql, _columns_of(plan, columns), logical)


def unknown_column(text: str, columns: Iterable[str]) -> str | None:
    """A name in an expression that is none of the columns, as far as can be said without Spark.

    Null where all are, and where the text can't be read: Spark decides when a run begins.
    """
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one(text, read="spark")
    except SqlglotError:
        return None
    known = {name.casefold() for name in columns} | _UNITS
    known |= {name.name.casefold() for function in tree.find_all(exp.Lambda) for name in function.expressions}
    names = (column.parts[0].name for column in tree.find_all(exp.Column))
    return next((name for name in names if name.casefold() not in known), None)


def _rounded(node: Any, spark: SparkSession) -> str | None:
    """The first part of an expression that Spark rounds without being asked to; None where none is. Division always
    is rounded, to the digits of its type."""
    kind, inner = _scale(node), node.children()
    children = [inner.apply(n) for n in range(inner.size())]
    scales = [_scale(child) for child in children]
    name = node.getClass().getSimpleName()
    if kind is not None and None not in scales[:2]:
        exact = [scale for scale in scales[:2] if scale is not None]
        if name in ("Add", "Subtract") and kind < max(exact):
            return str(node.toString())
        # Spark negates in Scala's arithmetic, which has 34 digits.
        if name in ("UnaryMinus", "Abs") and node.dataType().precision() > _SCALA_DIGITS:
            return str(node.toString())
        if name == "Multiply" and kind < sum(exact):
            return str(node.toString())
        jvm: Any = spark._jvm
        asked = jvm.org.apache.spark.sql.catalyst.expressions.Cast.USER_SPECIFIED_CAST()
        if name == "Cast" and kind < exact[0] and node.getTagValue(asked).isEmpty():
            return str(node.toString())
    return next((cut for child in children if (cut := _rounded(child, spark)) is not None), None)


def _scale(node: Any) -> int | None:
    """The digits after the point of a decimal; None for other types."""
    kind = node.dataType()
    return int(kind.scale()) if kind.typeName().startswith("decimal") else None


def _columns_of(plan: Any, columns: Sequence[Column]) -> tuple[str, ...]:
    references = plan.references().toSeq()
    # By the letters of the expression, which may have another case than the table's.
    named = {references.apply(n).name() for n in range(references.size())}
    folded = {name.casefold() for name in named}
    return tuple(c.name for c in columns if c.name in named or c.name.casefold() in folded)


def _refused(owner: str, error: Exception, columns: Sequence[Column]) -> OptionError:
    missing = _NAMED.search(str(error))
    if missing is not None:
        names = ", ".join(quote(column.name) for column in columns)
        return OptionError(f"{owner} names {missing[1]}, which is not there.", remedy=f"Its columns: {names}.")
    return OptionError(f"{owner} can't be computed.", remedy=_first_line(error))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return re.sub(r"^\[[A-Z_.0-9]+\] ", "", re.sub(r"\s*SQLSTATE: \w+.*$", "", text))
