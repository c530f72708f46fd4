"""Transactions of messages that a batch cuts: what their first part left in the target comes back as lines of the log.

A row comes to a key in one batch, and in the next one the row that was there before leaves it. Whether the row in the
target is the one or the other, its position says (`headrace.apply.transactions`): it names the transaction. So the
target's row at a key that some row leaves is put before the changes of the key, and `headrace.apply.shared_keys`
decides as if the transaction had come in one batch.

Such a row is a create at its position in the target, whose `source` says what it is (`AT_KEY`). Where the target has no
row at the key that the transaction brought there, the line has no content and says `BEFORE` or `FREE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.apply.fold import key_of, old_key_of
from headrace.apply.sequence import END, MARK, SUFFIX
from headrace.apply.transactions import (
    AT_KEY_NAME,
    BEFORE,
    FREE,
    IS_MOVED_PAIR,
    MAY_BE_CUT,
    TRANSACTION,
    WHOLE_DELETES,
    is_of_transaction,
    origin_in,
)
from headrace.changes.texts import canonical_text
from headrace.changes.typed import Misfit, laid_over, literal, quote, typed_value
from headrace.spark.local_rows import kept_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.apply.profile import TableProfile

Standing = Callable[["DataFrame"], "DataFrame | None"]


def needs_target_rows(table: TableProfile) -> bool:
    """Whether a batch of a table may have a row that leaves a key to which another came in an earlier batch."""
    return table.decoded and bool(table.schema.key) and (table.key_changed or table.key_paired)


@contextmanager
def with_standing(rows: DataFrame, table: TableProfile, standing: Standing | None) -> Iterator[DataFrame]:
    """The change rows, and before them the rows that the target has at keys which a row leaves.

    Looks at the target only for changes that are known as one of the key, for deletes in the first transaction of a
    partition, which alone may be cut, and for deletes of a key that gets a row in the same transaction. Runs a small
    Spark job where the table has such changes, and two more where it has any.

    Args:
        rows: the batch's change rows with images as maps, under the newest names.
        table: the profile of the table.
        standing: see `headrace.apply.carried`. A target that is not there has no row.
    """
    if not needs_target_rows(table):
        yield rows
        return
    from pyspark.sql import functions as sf

    numbers = range(len(table.schema.key))
    columns = table.schema.key_columns
    shifted = " or ".join(f"not _k{n} <=> _o{n}" for n in numbers)
    offset = f"substring_index(position, '{END}', -1)"
    touching = (
        rows.where(f"{table.where} and op in ('u', 'd') and {MAY_BE_CUT} and contains(position, '{MARK}')")
        .selectExpr(
            "*",
            *(f"{key_of(column, table)} as _k{n}" for n, column in enumerate(columns)),
            *(f"{old_key_of(column, table)} as _o{n}" for n, column in enumerate(columns)),
            f"{TRANSACTION} as _txn",
        )
        .selectExpr("*", f"(op = 'u' and ({shifted})) as _moved")
    )
    first = (
        rows.where(f"{table.where} and contains(position, '{MARK}')")
        .selectExpr(f"right(position, {SUFFIX}) as _s", f"{offset} as _at", f"{TRANSACTION} as _first")
        .groupBy("_s")
        .agg(sf.expr("min_by(_first, _at) as _first"))
    )
    same = [f"_o{n}" for n in numbers]
    leaving_rows = (
        touching.where("op = 'd' or _moved")
        .selectExpr(*same, "_txn", f"right(position, {SUFFIX}) as _s", f"_moved or {IS_MOVED_PAIR} as _m")
        .join(sf.broadcast(first), "_s")
        .join(_came(rows, table), [*same, "_txn"], "left")
        .where("_m or _txn = _first or _came")
        .select(*same, "_txn")
        .distinct()
    )
    with kept_rows(leaving_rows) as leaving:
        if leaving.isEmpty():
            yield rows
            return
        keys = leaving.selectExpr(*(f"_o{n} as o{n}" for n in numbers))
        stood = None if standing is None else standing(keys)
        stood = _nothing(rows, table) if stood is None else stood
        yield rows.unionByName(_lines(rows, touching, leaving, stood, table))


def _nothing(rows: DataFrame, table: TableProfile) -> DataFrame:
    columns = (f"{literal(c.name)}, cast(null as {c.logical.spark_type})" for c in table.schema.columns)
    none = "cast(null as string)"
    return rows.where("false").selectExpr(
        f"named_struct({', '.join(columns)}) as row", f"{none} as since", f"{none} as until"
    )


def _came(rows: DataFrame, table: TableProfile) -> DataFrame:
    """The keys that get a row from a create, where a delete of another one may be half of a change of key."""
    keys = [f"{key_of(column, table)} as _o{n}" for n, column in enumerate(table.schema.key_columns)]
    creates = f"{table.where} and op = 'c' and {MAY_BE_CUT} and {WHOLE_DELETES} and contains(position, '{MARK}')"
    return rows.where(creates).selectExpr(*keys, f"{TRANSACTION} as _txn", "true as _came").distinct()


def _lines(
    rows: DataFrame, touching: DataFrame, leaving: DataFrame, stood: DataFrame, table: TableProfile
) -> DataFrame:
    """One line per key and transaction that a row leaves in it."""
    from pyspark.sql import functions as sf

    numbers = range(len(table.schema.key))
    same = [f"_o{n}" for n in numbers]
    equal = " and ".join(f"l{name} <=> {name}" for name in same)
    keys = leaving.selectExpr(*(f"{name} as l{name}" for name in same), "_txn as l_txn")
    there = stood.where("until is null").selectExpr(
        "row", "since", *(f"row.{quote(name)} as h{n}" for n, name in enumerate(table.schema.key))
    )
    here = " and ".join(f"h{n} <=> _o{n}" for n in numbers)
    lines = (
        touching.join(sf.broadcast(keys), sf.expr(f"{equal} and l_txn = _txn"), "leftsemi")
        .join(there, sf.expr(here), "left")
        .selectExpr("*", f"{is_of_transaction('since')} as _within")
        .selectExpr("*", f"if(_within, {_as_in_log(table, stood)}, null) as _image")
    )
    rest = [name for name in rows.columns if name not in ("op", "before", "after", "position", "source")]
    first = ", ".join(map(quote, (*rest, "before", "source", "since", "row", "_within")))
    names = ", ".join(map(literal, table.schema.key))
    old = f"map_filter(_keys, (k, v) -> k in ({names}))"
    either = laid_over("coalesce(one.key, map())", "coalesce(one.before, map())")
    content = f"coalesce(_image, {_canonical(table, stood)})"
    kind = f"case when one._within then {origin_in('one.since')} when one.row is null then '{FREE}' else '{BEFORE}' end"
    marker = f"map(cast({literal(AT_KEY_NAME)} as string), {kind})"
    return (
        lines.groupBy(*same, "_txn")
        .agg(
            sf.expr(f"min_by(struct({first}), position) as one"),
            sf.expr("min_by(_image, position) filter (where _image is not null) as _image"),
        )
        .selectExpr("*", f"{either} as _keys")
        .selectExpr(
            *(f"one.{quote(name)} as {quote(name)}" for name in rest),
            "'c' as op",
            "cast(null as map<string,string>) as before",
            f"if(one._within, {laid_over(content, old)}, {old}) as after",
            # Before all changes of the batch, and of no sequence.
            "if(one._within, one.since, '') as position",
            f"map_concat(coalesce(one.source, map()), {marker}) as source",
        )
        .select(*rows.columns)
    )


def _values(table: TableProfile, stood: DataFrame) -> dict[str, str]:
    """Spark SQL for the values of the target's row beside the key, by column."""
    has = {field.name for field in stood.schema["row"].dataType.fields}  # type: ignore[attr-defined]
    return {
        column.name: f"row.{quote(column.name)}"
        for column in table.schema.columns
        if column.name in has and column.name not in table.schema.key
    }


def _as_in_log(table: TableProfile, stood: DataFrame) -> str:
    """Spark SQL for the image of a change that says the same row as the target has; null where none does.

    Typed values are compared: a target keeps no digits as they were written.
    """
    compared = []
    for name, value in _values(table, stood).items():
        column = table.schema.column(name)
        if column.logical.kind != "json":
            text = typed_value(f"x[{literal(name)}]", column, Misfit(null=True))
            compared.append(f"{text} <=> {value}")
    images = "array_compact(array(before, if(_moved, after, null)))"
    same = " and ".join([f"size(x) >= {table.own_columns}", *compared])
    return f"get(filter({images}, x -> {same}), 0)"


def _canonical(table: TableProfile, stood: DataFrame) -> str:
    """Spark SQL for the target's row as an image without its key."""
    values = _values(table, stood)
    pairs = [
        f"{literal(name)}, {canonical_text(f'one.{value}', table.schema.column(name))}"
        for name, value in values.items()
    ]
    return f"map({', '.join(pairs)})" if pairs else "cast(map() as map<string,string>)"
