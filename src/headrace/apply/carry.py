"""Key changes whose images lack columns: the values under the old key move to the new one.

A source that leaves out large values leaves them out of a change of key too. The row under the new key then needs what
it had under the old one: first from earlier changes in the batch, then from the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from headrace.apply.fold import full_image, key_of, keyed, old_key_of
from headrace.apply.profile import TableProfile
from headrace.apply.standing_rows import Standing, with_standing
from headrace.changes.position import SNAPSHOT_ORDER
from headrace.changes.texts import canonical_text
from headrace.changes.typed import laid_over, literal, quote
from headrace.spark.local_rows import kept_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOTHING = "cast(map() as map<string,string>)"
_TRUE_THEN = "(since is null or since < position) and (until is null or until >= position)"
"""Spark SQL: whether a row of the target is the current one at the position of a change."""


@contextmanager
def carried(rows: DataFrame, table: TableProfile, standing: Standing | None = None) -> Iterator[DataFrame]:
    """The change rows of a batch, in which the key changes of one table carry all columns, as far as they are known.

    Where nothing is known of the old key's row, a change stays as it is: it meets no row of its key in the target.
    Runs a small Spark job where the table has partial images and changes of keys, and a few more where one needs
    another's values; rows of other tables stay as they are. The same rows and the same target give the same result.

    Where messages take rows away from their keys, rows of the target that these keys have come with the changes
    (`headrace.apply.standing_rows`): the transaction may have begun in an earlier batch.

    Args:
        rows: the batch's change rows with images as maps, under the newest names.
        table: the profile of the table.
        standing: gives the target's rows, at least those of the keys that it gets as columns `o0`..: `row`, a struct
            of columns of the source's types; `since` and `until`, the positions between which it is true, None where
            nothing limits it. Without a target it is None.
    """
    with _filled(rows, table, standing) as whole, with_standing(whole, table, standing) as carried_rows:
        yield carried_rows


@contextmanager
def _filled(rows: DataFrame, table: TableProfile, standing: Standing | None) -> Iterator[DataFrame]:
    if not (table.key_changed and table.partial):
        yield rows
        return
    with ExitStack() as cleanup:

        def kept(frame: DataFrame) -> DataFrame:
            return cleanup.enter_context(kept_rows(frame))

        marked = _marked(rows, table)
        lacking = kept(marked.where("_lacks"))
        if lacking.isEmpty():
            yield rows
            return
        settled = marked.where("not _lacks").select(*rows.columns)
        numbers = range(len(table.schema.key))
        keys = [lacking.selectExpr(*(f"_{letter}{n} as o{n}" for n in numbers)) for letter in "ok"]
        stood = None if standing is None else standing(keys[0].unionByName(keys[1]))
        if stood is not None and table.truncate_at is None:
            read = kept(_read_meanwhile(lacking, marked.select(*rows.columns), table, stood))
            if not read.isEmpty():
                settled = settled.unionByName(read.select(*rows.columns))
                same = [f"_k{n}" for n in numbers]
                lacking = kept(lacking.join(read.select("position", *same), ["position", *same], "left_anti"))
        # A row may change its key several times in a batch: each round settles those whose row is settled before.
        while True:
            filled = kept(_round(lacking, settled.unionByName(lacking.select(*rows.columns)), table, stood))
            some, others = filled.selectExpr("bool_or(_known)", "bool_or(not _known)").collect()[0]
            if not some:
                break
            settled = settled.unionByName(filled.where("_known").select(*rows.columns))
            lacking = filled.where("not _known").select(*lacking.columns)
            if not others:
                break
        yield settled.unionByName(lacking.select(*rows.columns))


def _marked(rows: DataFrame, table: TableProfile) -> DataFrame:
    """The rows with whether they change the key and lack columns (`_lacks`), the keys, and the image as far as it is
    known from the change itself."""
    keys = table.schema.key_columns
    moved = " or ".join(f"not _k{n} <=> _o{n}" for n in range(len(keys)))
    return rows.selectExpr(
        "*",
        *(f"if(op = 'u', {key_of(column, table)}, null) as _k{n}" for n, column in enumerate(keys)),
        *(f"if(op = 'u', {old_key_of(column, table)}, null) as _o{n}" for n, column in enumerate(keys)),
        f"{full_image('after', table)} as _full",
    ).selectExpr(
        "*",
        f"coalesce(op = 'u' and {table.where} and ({moved}) and coalesce(size(_full), 0) < {table.own_columns}, false) "
        "as _lacks",
    )


def _read_meanwhile(lacking: DataFrame, changes: DataFrame, table: TableProfile, standing: DataFrame) -> DataFrame:
    """The key changes whose row was read under its new key already, with what was read put into `after`.

    A read stands at the commit at which it began, and sees later ones. It may have found another row under the old key,
    which came there after this one had left. No row comes to a key that has one; so where a read brought one to the new
    key, and no earlier change of the batch takes it away, it is this row or one that came later.
    """
    from pyspark.sql import functions as sf

    columns = table.schema.key_columns
    numbers = range(len(columns))
    data = changes.where(table.where)
    touching = keyed(data.where("op <> 'r'"), table).selectExpr("position as at", *(f"k{n}" for n in numbers))
    in_batch = data.where("op = 'r'").selectExpr(
        *(f"{key_of(column, table)} as h{n}" for n, column in enumerate(columns)),
        "position as since",
        "cast(null as string) as until",
        f"{full_image('after', table)} as stood",
    )
    there = _standing_images(standing, table).unionByName(in_batch).where(f"since rlike '^[^/]*/{SNAPSHOT_ORDER}'")
    here = " and ".join(f"h{n} <=> _k{n}" for n in numbers)
    touched = " and ".join(f"k{n} <=> _k{n}" for n in numbers)
    same = ["position", *(f"_{letter}{n}" for letter in "ko" for n in numbers)]
    rest = [sf.first(name).alias(name) for name in lacking.columns if name not in same]
    return (
        lacking.join(there, sf.expr(f"{here} and {_TRUE_THEN}"))
        .join(touching, sf.expr(f"{touched} and at < position"), "left_anti")
        .groupBy(*same)
        .agg(*rest, sf.expr("max_by(stood, since) as stood"))
        .withColumn("after", sf.expr(laid_over("stood", "_full")))
        .select(*lacking.columns)
    )


def _standing_images(standing: DataFrame, table: TableProfile) -> DataFrame:
    """The target's rows: their keys, between which positions they are true, and their values beside the key."""
    kinds = {field.name: field for field in standing.schema["row"].dataType.fields}  # type: ignore[attr-defined]
    values = ", ".join(
        f"{literal(c.name)}, {canonical_text(f'row.{quote(c.name)}', c)}"
        for c in table.schema.columns
        if c.name in kinds and c.name not in table.schema.key
    )
    return standing.selectExpr(
        *(f"row.{quote(name)} as h{n}" for n, name in enumerate(table.schema.key)),
        "since",
        "until",
        f"{f'map({values})' if values else _NOTHING} as stood",
    )


def _round(lacking: DataFrame, changes: DataFrame, table: TableProfile, standing: DataFrame | None) -> DataFrame:
    """The key changes, with what is known of their rows put into `after`, and whether that is all (`_known`)."""
    from pyspark.sql import functions as sf

    numbers = range(len(table.schema.key))
    lines = keyed(changes.where(table.where), table).selectExpr(
        "position as at",
        "struct(position, deleted, fresh, arrived, coalesce(image, map()) as image, whole) as line",
        *(f"k{n}" for n in numbers),
    )
    same = " and ".join(f"k{n} <=> _o{n}" for n in numbers)
    # After a truncate there is no row in the target whose values could be kept.
    keeps = "false" if table.truncate_at is not None or standing is None else "true"
    begun = f"struct({_NOTHING} as image, {keeps} as keeps, false as waits, false as gone)"
    afresh = "x.fresh and (x.whole or x.arrived)"
    over = laid_over("acc.image", "x.image")
    step = (
        f"if(x.deleted, struct({_NOTHING} as image, false as keeps, false as waits, true as gone), "
        f"struct(if({afresh}, x.image, {over}) as image, acc.keeps and not ({afresh}) as keeps, "
        "if(x.fresh, x.arrived and not x.whole, acc.waits and not x.whole) as waits, false as gone))"
    )
    ordered = "array_sort(collect_list(line), (a, b) -> if(a.position < b.position, -1, 1))"
    names = [f"_{letter}{n}" for letter in "ko" for n in numbers]
    rest = [name for name in lacking.columns if name not in (*names, "position")]
    states = (
        lacking.join(lines, sf.expr(f"{same} and at < position"), "left")
        .groupBy("position", *names)
        .agg(*(sf.first(name).alias(name) for name in rest), sf.expr(f"{ordered} as history"))
        .selectExpr("*", f"aggregate(history, {begun}, (acc, x) -> {step}) as s")
    )
    key_names = f"array({', '.join(literal(name) for name in table.schema.key)})"
    less = f"(c, v) -> not array_contains({key_names}, c)"
    states = states.withColumn("_full", sf.expr(laid_over(f"map_filter(s.image, {less})", "_full")))
    states = states.withColumn("_known", sf.expr(f"not s.waits and not s.gone and size(_full) >= {table.own_columns}"))
    if standing is not None:
        here = " and ".join(f"h{n} <=> _o{n}" for n in numbers)
        needed = f"s.keeps and not s.waits and not _known and {here} and {_TRUE_THEN}"
        states = states.join(_standing_images(standing, table), sf.expr(needed), "left")
        over = laid_over(f"map_filter(stood, {less})", "_full")
        states = states.withColumn("_full", sf.expr(f"if(stood is null, _full, {over})"))
        states = states.withColumn("_known", sf.expr("_known or stood is not null"))
    return states.withColumn("after", sf.expr("if(_known, _full, after)")).select(*lacking.columns, "_known")
