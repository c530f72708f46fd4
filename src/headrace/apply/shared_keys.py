"""Keys that two rows hold for a time: the row that moves in stays when the row that was there before leaves.

A database that checks keys at the end of a statement or of a transaction logs `SET id = id + 1` row by row, in any
order: with 1 to 2 before 2 to 3, key 2 has two rows until the second change, and that one is not about the row that
has just come. So each key has a set of rows while a transaction goes on. An image after a change adds a row to
it, and an image before a change removes the row that equals it. What is in the set at the end came in the transaction
and stays; an image before a change that removes nothing is the row that the key had before the transaction.

This needs to know what goes. Where an image before is not whole or not to be trusted, the last change of a key decides
as ever: the row that came is the one that goes, as with `1 to 9, 2 to 1, 9 to 2`. Messages of databases that check
keys only after a statement stop the batch there, unless the row that went on is the one that came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.apply.sequence import MARK, SUFFIX
from headrace.apply.transactions import (
    AT_KEY,
    BEFORE,
    CHANGED,
    CHECKS_EACH_ROW,
    FREE,
    FROM_MESSAGE,
    IS_MOVED_PAIR,
    MOVED,
    TRANSACTION,
    WHOLE_DELETES,
)
from headrace.changes.refusal import refusal
from headrace.changes.typed import literal
from headrace.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.apply.profile import TableProfile


_ARRIVAL, _STAY, _LEAVE = "'arrival'", "'stay'", "'leave'"


def may_share_keys(table: TableProfile) -> bool:
    """Whether a batch may have a key that two rows hold for a time."""
    # A row that left its key in messages may have come to it in an earlier batch.
    arrives = table.decoded or table.counts.get("c", 0) > 0
    return table.key_changed or (table.key_paired and arrives and table.counts.get("d", 0) > 0)


FACTS = ("txn", "kind", "moved", "content", "was", "went_on", "decoded", "late_check", "at_key")
"""Columns of a line for `settled`: see `line_facts`, `moved_facts`."""


def line_facts(table: TableProfile) -> dict[str, str]:
    """Spark SQL over a change row for what `settled` has to know of it, by name; of a change of key see `moved_facts`.

    | fact | meaning |
    |---|---|
    | `txn` | the transaction; null where it is unknown |
    | `kind` | a row comes to the key, stays at it or leaves it |
    | `moved` | the change is known to be one of the key |
    | `content` | the row that is there after the change, without its key; null where that is not known as a whole |
    | `was` | the row that the change is about, likewise |
    | `went_on` | of a row that leaves for another key, what it is there |
    | `decoded` | the change comes from a message |
    | `late_check` | the source may check keys after a whole statement or transaction |
    | `at_key` | the row is none of the batch's: the target has it, or may have it (`headrace.apply.standing_rows`) |
    """
    counts = f"(not {FROM_MESSAGE} or op = 'u' or {IS_MOVED_PAIR} or {WHOLE_DELETES})"
    trusted = f"(not ({FROM_MESSAGE} and {CHECKS_EACH_ROW}) or {_says_more(table)})"
    return {
        "txn": f"if({FROM_MESSAGE} or contains(position, '{MARK}'), {TRANSACTION}, substring_index(position, '/', 1))",
        "kind": f"case op when 'd' then {_LEAVE} when 'c' then {_ARRIVAL} else {_STAY} end",
        "moved": f"{IS_MOVED_PAIR} or {AT_KEY} <=> '{MOVED}'",
        "content": f"if(op in ('c', 'u'), {content_of('after', table)}, null)",
        "was": f"if(op in ('d', 'u') and {counts} and {trusted}, {content_of('before', table)}, null)",
        "went_on": "cast(null as string)",
        "decoded": FROM_MESSAGE,
        "late_check": f"if({FROM_MESSAGE}, not {CHECKS_EACH_ROW}, source['connector'] <=> 'postgresql')",
        "at_key": AT_KEY,
    }


def moved_facts(image: str, table: TableProfile, *, leaves: bool) -> dict[str, str]:
    """The facts of one half of a change of key, over the facts of the change itself.

    Args:
        image: the row under its new key.
        table: the profile of the table.
        leaves: whether it is the half at the old key.
    """
    here = content_of(image, table)
    nothing = "cast(null as string)"
    given = {"kind": _LEAVE if leaves else _ARRIVAL, "moved": "true"}
    if leaves:
        given |= {"content": nothing, "went_on": here}
    else:
        given |= {"content": here, "was": nothing}
    return {name: given.get(name, name) for name in FACTS}


def settled(lines: DataFrame, table: TableProfile) -> DataFrame:
    """The lines of `keyed` without changes that concern another row than the one that a key has in the end.

    Lazy and pure. A transaction whose end is in another batch is taken as far as it goes; of one whose beginning is in
    another batch, rows of the target say what it did there. These rows go.

    Args:
        lines: the lines, with the `FACTS`, which go.
        table: the profile of the table.
    """
    from pyspark.sql import functions as sf

    keys = [f"k{number}" for number in range(len(table.schema.key))]
    rest = [name for name in lines.columns if name not in (*keys, "txn")]
    in_order = f"array_sort(collect_list(struct({', '.join(rest)})), "
    in_order += "(a, b) -> if(a.position < b.position, -1, if(a.position > b.position, 1, 0)))"
    last = "element_at(log, -1)"
    other = f"coalesce(x.at_key in ('{BEFORE}', '{FREE}'), false)"
    settled_here = f"filter(log, x -> not {other})"
    contested = (
        f"{last}.kind = {_LEAVE} and exists(log, x -> x.kind = {_ARRIVAL}) and (txn is not null or "
        f"({last}.moved and exists(log, x -> x.moved and x.kind = {_ARRIVAL}))) and size(array_distinct("
        f"transform(log, x -> if(contains(x.position, '{MARK}'), right(x.position, {SUFFIX}), '')))) = 1"
    )
    lacks = f"(x.kind <> {_LEAVE} and x.content is null) or (x.kind <> {_ARRIVAL} and x.was is null)"
    unclear = (
        f"exists(log, x -> x.kind = {_LEAVE} and x.moved and x.decoded and x.late_check and x.was is null "
        f"and exists(log, y -> y.kind = {_ARRIVAL} and (y.moved or y.at_key <=> '{CHANGED}') "
        "and y.position < x.position and (occupied or not coalesce(y.content = x.went_on, false))))"
    )
    # A row that came with the transaction in an earlier batch goes on, or an equal one does; another one may be there.
    equal = (
        f"{last}.moved and size(net.stays) = 0 and size(net.gone) = 0 and exists(log, x -> x.at_key <=> '{MOVED}') "
        f"and not exists(log, x -> x.at_key is null and x.kind = {_ARRIVAL})"
    )
    # The row from before the transaction left, and what takes nothing away and adds nothing brought it back.
    was_there = "x.was is not null and not exists(slice(log, 1, i), y -> y.content <=> x.was)"
    back = f"get(filter(log, (x, i) -> {was_there}), 0).was"
    stays = (
        f"case when {equal} then {refusal(literal(_cut(str(table.id))), SchemaError)} "
        # Where two rows stay, one of them leaves later; the target has room for the one that came last.
        "when size(net.stays) > 0 and size(net.gone) <= 1 "
        "then get(filter(reverse(log), x -> array_contains(net.stays, x.content)), 0).content "
        f"when size(net.stays) = 0 and size(net.gone) = 0 then {back} end"
    )
    last_of = "array_max(transform(log, (x, i) -> if(x.content = stays, i + 1, 0)))"
    # Messages may come twice: what leaves after it came for the last time is gone.
    sent_twice = f"exists(slice(log, {last_of} + 1, size(log)), x -> x.decoded and x.was <=> stays)"
    # Rows came and left: the key has the row that it had before, or none.
    same_again = (
        "size(net.stays) = 0 and size(net.gone) = 0 and (had or (not exists(log, x -> x.decoded) "
        "and exists(log, x -> x.moved or x.late_check)))"
    )
    kept = (
        f"case when net is null then log when stays is not null and not {sent_twice} then slice(log, 1, {last_of}) "
        f"when stays is null and {same_again} then slice(log, 1, 0) else log end"
    )
    stop = refusal(literal(_sentence(str(table.id))), SchemaError)
    return (
        lines.groupBy(*keys, "txn")
        .agg(sf.expr(f"{in_order} as log"))
        .selectExpr(
            *keys,
            "txn",
            f"{settled_here} as log",
            f"exists(log, x -> {other}) as had",
            f"exists(log, x -> x.at_key <=> '{BEFORE}') as occupied",
        )
        .selectExpr(*keys, "log", "had", "occupied", f"{contested} as contested", f"exists(log, x -> {lacks}) as lacks")
        .selectExpr(
            *keys,
            "log",
            "had",
            f"case when not contested then null when not lacks then {_NET} when {unclear} then {stop} end as net",
        )
        .selectExpr(*keys, "log", "had", "net", f"{stays} as stays")
        .selectExpr(*keys, f"explode(filter({kept}, x -> x.at_key is null)) as line")
        .selectExpr(*(f"line.{name}" for name in rest if name not in FACTS), *keys)
    )


def _net() -> str:
    """Spark SQL for the rows that a log adds (`stays`) and takes away (`gone`) beyond what it does the other way."""
    changes = (
        "array_sort(flatten(transform(log, x -> filter(array(struct(x.was as image, -1 as n), "
        "struct(x.content as image, 1 as n)), y -> y.image is not null))))"
    )
    none = "cast(array() as array<string>)"
    lists = (
        "if(acc.n > 0, concat(acc.stays, array(acc.image)), acc.stays) as stays, "
        "if(acc.n < 0, concat(acc.gone, array(acc.image)), acc.gone) as gone"
    )
    return (
        f"aggregate({changes}, struct(cast(null as string) as image, 0 as n, {none} as stays, {none} as gone), "
        "(acc, x) -> if(acc.image <=> x.image, struct(acc.image as image, acc.n + x.n as n, acc.stays as stays, "
        f"acc.gone as gone), struct(x.image as image, x.n as n, {lists})), acc -> struct({lists}))"
    )


_NET = _net()


def content_of(image: str, table: TableProfile) -> str:
    """Spark SQL for what a whole image says beside its key, as text that is equal for equal rows; else null."""
    keys = ", ".join(map(literal, table.schema.key))
    entries = f"array_sort(map_entries(map_filter({image}, (k, v) -> k not in ({keys}))))"
    return f"if(coalesce(size({image}), 0) >= {table.own_columns}, md5(to_json({entries})), null)"


def _says_more(table: TableProfile) -> str:
    """Spark SQL: does the image before say more than the key, or is there no more to say? Debezium fills the rest with
    null, the default or 0."""
    if len(table.schema.columns) == len(table.schema.key):
        return "true"
    sure = [
        literal(column.name)
        for column in table.schema.columns
        if column.name not in table.schema.key
        and column.nullable
        and column.default is None
        and column.default_expression is None
    ]
    return f"coalesce(exists(array({', '.join(sure)}), n -> before[n] is not null), false)" if sure else "false"


def _sentence(table: str) -> str:
    return (
        f"Table {table} has rows that take over each other's keys in one transaction, and the images before these "
        "changes lack columns, so Headrace can't tell which row left a key. Let the producer write whole images before "
        "a change (GoldenGate: GETUPDATEBEFORES and LOGALLSUPCOLS), and read the table into a new target."
    )


def _cut(table: str) -> str:
    return (
        f"Table {table} has rows that take over each other's keys in one transaction, of which an earlier batch has "
        "the beginning, and a row that left a key in this batch equals the one that came to it before, so Headrace "
        "can't tell whether another row is still there. Read the table into a new target with a new checkpoint and "
        "batches that hold the transaction as a whole (max_offsets_per_trigger)."
    )
