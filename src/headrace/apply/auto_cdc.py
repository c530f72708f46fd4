"""AUTO CDC's words on any DataFrame of changes: which rows are deletes, what orders them, which columns count.

From a flat DataFrame (one row per change, its columns the table's) come the events of `headrace.apply.history`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.apply.history import NEW
from headrace.changes.refusal import StopReason
from headrace.changes.typed import literal, quote
from headrace.errors import OptionError
from headrace.registry import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class FlatChanges:
    """A batch of changes of one table, understood. `events` and `truncates` are as `headrace.apply.history` has them.

    Args:
        events: upserts and deletes.
        truncates: one column `at`; None where nothing can be one.
        key: names of the key columns.
        columns: names and types of the columns to write, in order; the key's among them.
        sequence: the type of `at`.
    """

    events: DataFrame
    truncates: DataFrame | None
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    sequence: str


def flat_changes(
    df: DataFrame,
    *,
    keys: Sequence[str | Column],
    sequence_by: str | Column,
    ignore_null_updates: bool,
    apply_as_deletes: str | Column | None,
    apply_as_truncates: str | Column | None,
    column_list: Sequence[str | Column] | None,
    except_column_list: Sequence[str | Column] | None,
) -> FlatChanges:
    """Understand a flat DataFrame of changes. Only builds plans; the words are those of `headrace.apply_changes`.

    Raises:
        OptionError: a column does not exist, or words exclude each other.
    """
    from pyspark.sql import functions as sf

    if not keys:
        raise OptionError("apply_changes needs keys.", remedy="Name the columns that identify a row.")
    if column_list is not None and except_column_list is not None:
        raise OptionError("column_list and except_column_list exclude each other.", remedy="Give one of them.")
    key = _names(df, keys, "keys")
    if except_column_list is not None:
        left_out = set(_names(df, except_column_list, "except_column_list"))
        wanted = [name for name in df.columns if name not in left_out]
    else:
        wanted = list(df.columns) if column_list is None else list(_names(df, column_list, "column_list"))
    if missing := [name for name in key if name not in wanted]:
        raise OptionError(
            f"The key column '{missing[0]}' is not among the columns to write.", remedy="Keep the key in column_list."
        )
    fields = ", ".join(f"{quote(name)} as {quote(name)}" for name in wanted)
    filled = ", ".join(f"if({quote(name)} is null, null, {literal(name)})" for name in wanted)
    given_columns = f"array_compact(array({filled}))" if ignore_null_updates else "cast(null as array<string>)"
    at = _expression(sequence_by)
    flat = df.select(
        sf.when(at.isNull(), sf.expr(StopReason.SEQUENCE_MISSING.sql)).otherwise(at).alias("at"),
        _flag(apply_as_deletes).alias("deleted"),
        sf.expr(f"struct({fields})").alias("row"),
        sf.expr(given_columns).alias("given"),
        _flag(apply_as_truncates).alias("emptied"),
    )
    events = flat.where("not emptied").selectExpr(
        "at",
        "deleted",
        "row",
        "if(deleted, null, given) as present",
        "true as whole",
        f"{NEW} as origin",
        "false as common",
    )
    types = {field.name: field.dataType.simpleString() for field in df.schema}
    return FlatChanges(
        events=events,
        truncates=None if apply_as_truncates is None else flat.where("emptied").select("at"),
        key=key,
        columns=tuple((name, types[name]) for name in wanted),
        sequence=flat.schema["at"].dataType.simpleString(),
    )


def _expression(given: str | Column) -> Column:
    from pyspark.sql import functions as sf

    return sf.expr(given) if isinstance(given, str) else given


def _flag(given: str | Column | None) -> Column:
    from pyspark.sql import functions as sf

    return sf.lit(False) if given is None else sf.coalesce(_expression(given), sf.lit(False))


def _names(df: DataFrame, given: Sequence[str | Column], word: str) -> tuple[str, ...]:
    names = []
    for one in given:
        name: Any = one if isinstance(one, str) else df.select(one).columns[0]
        if name not in df.columns:
            raise OptionError(f"{word} names '{name}', which is not a column.", remedy=did_you_mean(name, df.columns))
        names.append(name)
    return tuple(names)
