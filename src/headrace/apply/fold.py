"""All changes of a batch become at most one row per key, the last one in position order; a table without a key has its
rows counted instead.

The folded rows of a table with a key are a DataFrame with these columns:

| column | meaning |
|---|---|
| `op` | `upsert` or `delete` |
| `position` | of the last change of the key; a target that holds a later or equal one leaves its row alone |
| `row` | struct of all columns, typed; of a delete only the key columns are filled, unless deleted rows are kept |
| `present` | null: every column is written. Otherwise the columns to write; the target keeps the rest |
| `whole` | false: where the target has no row of that key, or `present` is null, values are missing |

Where deleted rows are kept (`keep_deleted`), a delete's `row` and `present` say what earlier changes of the batch made
of the row that it deletes, and `whole` whether that is all of it: then the row came and went within the batch.

Where changes were laid over one another, there is one column more: `since`, the position of the first that had a part
in the row. If the target's row is as new, that change came late and must not count; then fold again with `known`.

Changes of one key from several sequences stop the query (`headrace.apply.sequence`).

Snapshot rows are upserts like others: what keeps them from winning over a newer change is their position, here and in
the target.

In a table without a key a row is known by all of its values and by how many such rows there are. Its folded rows are
a DataFrame with `op` (`insert` or `delete`), `position`, `occurrences` and `row` (struct of all
columns, typed). An insert stands for one new row and carries its own position; a delete stands for as many rows of
the target as `occurrences` says, equal in every column (NULL equals NULL), and which of them go does not matter: the
oldest position is the habit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.apply.profile import TableProfile
from headrace.apply.sequence import disordered
from headrace.apply.shared_keys import line_facts, may_share_keys, moved_facts, settled
from headrace.changes.refusal import StopReason
from headrace.changes.table import Column
from headrace.changes.typed import laid_over, literal, quote, texts_in_order, typed_columns, typed_struct, typed_value
from headrace.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fold(
    rows: DataFrame,
    table: TableProfile,
    *,
    ignore_nulls: bool = False,
    keep_deleted: bool = False,
    known: DataFrame | None = None,
) -> DataFrame:
    """Fold the changes of one table to at most one row per key: what a mirror of the table has to write.

    Order: by `position`, compared as text; of several changes to one key the last decides, so that a deleted row is
    not brought back by an earlier change. A key change is a delete of the old key and an upsert of the new one. Rows
    up to the last truncate are left out: the caller drops them from the target (`TableProfile.truncate_at`). Lazy and
    pure: the same rows give the same result, and the order of rows in the DataFrame does not matter.

    Keys are compared typed, so that `12.5` and `12.50` are one decimal key.

    Args:
        rows: the batch's change rows with images as maps; rows of other tables are left out.
        table: the profile of the table. Its schema has a key.
        ignore_nulls: nulls of a change say nothing; the target keeps its value.
        keep_deleted: the target keeps deleted rows with the values that they had. A truncate then counts as a delete
            of every key of the batch, and rows before it are not left out.
        known: the keys of the target (`h0`..) with the positions of their rows (`at`). Changes that are no newer are
            left out. By default only the last change of a key is compared with the target, by the caller.
    """
    keep_deleted = keep_deleted and table.may_delete
    wanted = replace(table, truncate_at=None) if keep_deleted else table
    changes = keyed(rows.where(wanted.where), table, ignore_nulls=ignore_nulls)
    if known is not None:
        from pyspark.sql import functions as sf

        same = " and ".join(f"k{number} <=> h{number}" for number in range(len(table.schema.key)))
        changes = changes.join(known, sf.expr(f"{same} and at >= position"), "left_anti")
    if table.partial or ignore_nulls or keep_deleted:
        return _fold_partial(changes, table, keep_deleted=keep_deleted)
    return _fold_whole(changes, table)


def upserts(rows: DataFrame, table: TableProfile) -> DataFrame:
    """The rows of a batch in which no key comes twice (`TableProfile.initial`), in `fold`'s form without its cost."""
    columns = table.schema.columns
    texts = rows.where(table.where).selectExpr("position", f"{texts_in_order('after', columns)} as texts")
    return texts.selectExpr(
        "'upsert' as op",
        "position",
        f"{typed_struct('texts', columns, table.misfit_in_texts)} as row",
        "cast(null as array<string>) as present",
        "true as whole",
    )


def keyed(changes: DataFrame, table: TableProfile, *, ignore_nulls: bool = False) -> DataFrame:
    """One line per change and key: typed key columns `k0`.., what its image is and has, and whether the row arrived
    from another key.

    With `ignore_nulls` an image says nothing of columns that are null in it.
    """
    keys = table.schema.key_columns
    image_values = "map_filter(after, (c, v) -> v is not null)" if ignore_nulls else "after"
    fresh = "false" if ignore_nulls else "op = 'c'"
    newest = "false" if ignore_nulls else _is_newest("after", "schema_id", table)
    whole = f"coalesce(size(after), 0) >= {table.own_columns}"
    if table.given:
        whole += f" or (op in ('r', 'c') and schema_id in ({', '.join(map(literal, sorted(table.given)))}))"
    columns = [
        "position",
        "event_time",
        "op = 'd' as deleted",
        f"{fresh} as fresh",
        f"{image_values} as image",
        f"{whole} as whole",
        f"{newest} as newest",
        "false as arrived",
        *(f"{key_of(column, table)} as k{number}" for number, column in enumerate(keys)),
    ]
    facts = line_facts(table) if may_share_keys(table) else {}
    columns += [f"{expression} as {name}" for name, expression in facts.items()]
    if not table.key_changed:
        lines = changes.selectExpr(*columns)
        return settled(lines, table) if facts else lines
    old_keys = [old_key_of(column, table) for column in keys]
    moved = " or ".join(f"not k{number} <=> o{number}" for number in range(len(keys)))
    names = [f"k{number}" for number in range(len(keys))]
    left, came = ({**facts, **moved_facts("full", table, leaves=leaves)} for leaves in (True, False))
    halves = (
        "position, event_time, true as deleted, false as fresh, cast(null as map<string,string>) as image, "
        f"false as whole, false as newest, false as arrived, {_named(left)}, "
        + ", ".join(f"o{number} as k{number}" for number in range(len(keys))),
        "position, event_time, false as deleted, true as fresh, full as image, "
        f"coalesce(size(full), 0) >= {table.own_columns} as whole, "
        f"{_is_newest('full', 'schema_id', table)} as newest, true as arrived, {_named(came)}, {', '.join(names)}",
    )
    same = ", ".join(("position, event_time, deleted, fresh, image, whole, newest, arrived", *facts, *names))
    lines = (
        changes.selectExpr(
            *columns,
            "before",
            "after",
            "schema_id",
            *(f"{old} as o{number}" for number, old in enumerate(old_keys)),
            "op",
        )
        .selectExpr("*", f"op = 'u' and ({moved}) as has_moved")
        .selectExpr("*", f"if(has_moved, {full_image('image', table, ignore_nulls=ignore_nulls)}, image) as full")
        .selectExpr(
            f"explode(if(has_moved, array(struct({halves[0]}), struct({halves[1]})), array(struct({same})))) as one"
        )
        .selectExpr("one.*")
    )
    return settled(lines, table)


def _named(struct_fields: Mapping[str, str]) -> str:
    return ", ".join(f"{sql} as {name}" for name, sql in struct_fields.items())


def key_of(column: Column, table: TableProfile) -> str:
    """Spark SQL for the typed value of a key column of a change row."""
    return typed_value(_key_value(literal(column.name)), column, table.misfit(column))


def old_key_of(column: Column, table: TableProfile) -> str:
    """Spark SQL for the typed value of a key column before an update."""
    name = literal(column.name)
    text = f"if(map_contains_key(before, {name}), before[{name}], {_key_value(name)})"
    return typed_value(text, column, table.misfit(column))


def full_image(image: str, table: TableProfile, *, ignore_nulls: bool = False) -> str:
    """Spark SQL for the image of a change of key, which takes what it does not say from the image before it."""
    enough = "before is null" if ignore_nulls else f"before is null or size(after) >= {table.own_columns}"
    return f"if({enough}, after, {laid_over('before', image)})"


def _key_value(name: str) -> str:
    """Text of a key column: of the image after, else of the key, else of the image before."""
    return (
        f"case when map_contains_key(after, {name}) then after[{name}] "
        f"when map_contains_key(key, {name}) then key[{name}] else before[{name}] end"
    )


def _is_newest(image: str, schema_id: str, table: TableProfile) -> str:
    """Spark SQL: does the image carry every column of the newest schema?"""
    if not table.partial:
        return "true"
    names = ", ".join(literal(column.name) for column in table.schema.columns)
    return f"coalesce(size(array_except(array({names}), map_keys({image}))) = 0, false)"


def _fold_whole(changes: DataFrame, table: TableProfile) -> DataFrame:
    """Every image is whole: the last change per key is the answer."""
    keys = ", ".join(f"k{number}" for number in range(len(table.schema.key)))
    newest_first = f"over (partition by {keys} order by position desc)"
    numbered, wanted = changes.selectExpr("*", f"row_number() {newest_first} as nth"), "nth = 1"
    if table.decoded:
        # If a neighbour belongs to another sequence, the last change is unknown.
        numbered = numbered.selectExpr("*", f"lead(position) {newest_first} as earlier")
        wanted = f"if({disordered('earlier', 'position')}, {StopReason.NO_ORDER.sql}, nth = 1)"
    last = numbered.where(wanted)
    return with_texts(last, "image", table).selectExpr(
        "if(deleted, 'delete', 'upsert') as op",
        "position",
        f"{row_of(table)} as row",
        "cast(null as array<string>) as present",
        "deleted or whole as whole",
    )


def _fold_partial(changes: DataFrame, table: TableProfile, *, keep_deleted: bool = False) -> DataFrame:
    """Some image lacks columns, or deleted rows keep values: changes of a key are laid over one another in order."""
    from pyspark.sql import functions as sf

    keys = [f"k{number}" for number in range(len(table.schema.key))]
    # After a truncate or a delete there is no row in the target whose values could be kept.
    keeps = "false" if table.truncate_at is not None and not keep_deleted else "true"
    nothing = "cast(map() as map<string,string>) as image"
    # A whole image of an insert says all that there is; columns newer than its schema are null and not the target's.
    alone = "x.newest or (x.fresh and x.whole)"
    upsert = (
        f"false as deleted, if({alone}, x.image, {laid_over('acc.image', 'x.image')}) as image, "
        "acc.whole or x.whole as whole, acc.keeps and not (x.fresh and x.whole) as keeps, "
        "x.newest or (acc.newest and not (x.fresh and x.whole)) as newest, "
        f"if({alone}, x.position, coalesce(acc.since, x.position)) as since"
    )
    state = (
        f"struct(false as deleted, {nothing}, false as whole, {keeps} as keeps, false as newest, "
        "cast(null as string) as since)"
    )
    lines = "collect_list(struct(position, deleted, fresh, coalesce(image, map()) as image, whole, newest))"
    if keep_deleted:
        # A delete leaves the values; what comes after it is another row, which has none of them.
        step = (
            "if(x.deleted, struct(true as deleted, acc.image, acc.whole, acc.keeps, acc.newest, "
            "coalesce(acc.since, x.position) as since), if(acc.deleted, struct(false as deleted, x.image, x.whole, "
            f"false as keeps, x.newest, if({alone}, x.position, acc.since) as since), struct({upsert})))"
        )
        present = (
            "case when s.deleted and not s.whole and not s.keeps then cast(array() as array<string>) "
            "when s.newest or not s.keeps then null else map_keys(s.image) end"
        )
        whole = "s.whole"
        if table.truncate_at is not None:
            # Behind a change at its own position, which it empties too: the sort is stable.
            emptied = f"{literal(table.truncate_at)} as position, true as deleted, false as fresh, {nothing}"
            lines = f"concat({lines}, array(struct({emptied}, false as whole, false as newest)))"
    else:
        gone = f"true as deleted, {nothing}, false as whole, false as keeps, false as newest, x.position as since"
        step = f"if(x.deleted, struct({gone}), struct({upsert}))"
        present = "if(s.deleted or s.newest or not s.keeps, null, map_keys(s.image))"
        whole = "s.deleted or s.whole"
    ordered = f"array_sort({lines}, (a, b) -> if(a.position < b.position, -1, if(a.position > b.position, 1, 0)))"
    unclear = disordered("history[i - 1].position", "history[i].position")
    clear = f"if(exists(sequence(0, size(history) - 1), i -> i > 0 and {unclear}), {StopReason.NO_ORDER.sql}, true)"
    folded = (
        changes.groupBy(*keys)
        .agg(sf.expr(f"{ordered} as history"))
        .where(clear if table.decoded else "true")
        .selectExpr(
            *keys,
            "element_at(history, -1).position as position",
            f"aggregate(history, {state}, (acc, x) -> {step}) as s",
        )
    )
    return with_texts(folded, "s.image", table).selectExpr(
        "if(s.deleted, 'delete', 'upsert') as op",
        "position",
        f"{row_of(table)} as row",
        f"{present} as present",
        f"{whole} as whole",
        "s.since as since",
    )


def with_texts(changes: DataFrame, image: str, table: TableProfile) -> DataFrame:
    """The rows with one column more, `texts`: what an image says, in the order of the table's columns."""
    return changes.selectExpr("*", f"{texts_in_order(image, table.schema.columns)} as texts")


def row_of(table: TableProfile) -> str:
    """The struct of all columns: key columns from the typed key, which every change has, the rest from the `texts`."""
    keys = {name: f"k{number}" for number, name in enumerate(table.schema.key)}
    columns = typed_columns("texts", table.schema.columns, keys, lambda column: table.misfit(column, keys))
    return f"struct({', '.join(columns)})"


def fold_keyless(rows: DataFrame, table: TableProfile) -> DataFrame:
    """Net the changes of one table without a key: which rows to insert, and how many of which to delete.

    Reads and creates add a row, deletes take one away, an update does both. Per distinct row only the difference is
    left, so a row that came and went inside the batch is not seen at all. Rows up to the last truncate are left out
    (`TableProfile.truncate_at`). Lazy and pure. Applying the result twice is not harmless: the caller commits it once.

    Args:
        rows: the batch's change rows with images as maps, whose positions say their sequence (`sequenced`), so that
            none repeats; rows of other tables are left out.
        table: the profile of the table. Its schema has no key.

    Raises:
        SchemaError: an image lacks columns, so rows can't be distinguished.
    """
    if table.partial:
        raise SchemaError(
            f"Table {table.id} has no key and its changes do not carry whole rows, so it can't be mirrored.",
            remedy="Add a key or let the source log whole rows. Until then, use a change log "
            "(sinks that take messages).",
        )
    changes = rows.where(table.where)
    if table.inserts_only:
        texts = changes.selectExpr("position", f"{texts_in_order('after', table.schema.columns)} as texts")
        return texts.selectExpr("'insert' as op", "position", "1L as occurrences", f"{_row(table)} as row")
    values = ", ".join(f"row.{quote(column.name)}" for column in table.schema.columns)
    signed = changes.selectExpr(
        "position",
        "explode(filter(array(struct(1 as sign, after as image), struct(-1 as sign, before as image)), "
        "x -> if(x.sign = 1, op in ('r', 'c', 'u'), op in ('u', 'd')))) as one",
    ).selectExpr("position", "one.sign as sign", f"{texts_in_order('one.image', table.schema.columns)} as texts")
    signed = signed.selectExpr("position", "sign", f"{_row(table)} as row")
    netted = signed.selectExpr(
        "*",
        f"sum(sign) over (partition by {values}) as net",
        f"row_number() over (partition by {values} order by sign desc, position desc) as nth",
    )
    # Deletes take the oldest rows, so the latest inserts stay. A net loss gives one row.
    return netted.where("(net > 0 and sign = 1 and nth <= net) or (net < 0 and nth = 1)").selectExpr(
        "if(net > 0, 'insert', 'delete') as op", "position", "if(net > 0, 1L, -net) as occurrences", "row"
    )


def _row(table: TableProfile) -> str:
    return f"struct({', '.join(typed_columns('texts', table.schema.columns, misfit=table.misfit))})"
