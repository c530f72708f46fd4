"""History (SCD type 2): the versions of every key, rebuilt from what is known of it.

An event is a change of one key, typed. Events of one table are a DataFrame with these columns:

| column | meaning |
|---|---|
| `at` | its place in the order: any type that compares; one event per key and `at` |
| `deleted` | the key's row went away; `row` has the key columns only |
| `row` | struct of all columns |
| `present` | null: `row` says every column. Otherwise the columns it says; the rest is as it was |
| `whole` | it says all columns that the source had then, so that nothing is missing where it is the first |
| `origin` | `STORED`, `VISIBLE` or `NEW`: of one key and `at` the least counts, but a delete before an upsert |
| `common` | it is known elsewhere (a truncate concerns every key), so that it need not be kept for this one |

The versions of a key are a pure function of its events, whatever order they came in. A target shows most of them: a
version starts where an event was, and ends where the next one or a delete was. What it does not show (deletes that
ended nothing, changes of columns without history, changes that did not say all columns) is kept beside it (`unseen`),
so that the versions can always be rebuilt when a late change comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.apply.fold import keyed, row_of, with_texts
from headrace.apply.profile import TableProfile
from headrace.apply.sequence import disordered
from headrace.changes.refusal import StopReason
from headrace.changes.typed import literal, presence_in_order, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STORED, VISIBLE, NEW = 0, 1, 2
AT = "struct(position, event_time)"
"""The order of change rows: by position. The time is included so that a version shows since when it is true."""


def change_events(rows: DataFrame, table: TableProfile, *, ignore_nulls: bool = False) -> DataFrame:
    """The events of one table with a key in a batch of change rows; truncates are `truncates`.

    A key change is a delete of the old key and an upsert of the new one. Lazy and pure.

    Args:
        rows: the batch's change rows with images as maps; rows of other tables are left out.
        table: the profile of the table. Its schema has a key.
        ignore_nulls: nulls of an update say nothing.
    """
    events = keyed(rows.where(replace(table, truncate_at=None).where), table, ignore_nulls=ignore_nulls)
    says_all = "newest or (fresh and whole)"
    present = f"if(deleted or {says_all}, null, map_keys(image))" if table.partial or ignore_nulls else "null"
    return with_texts(events, "image", table).selectExpr(
        f"{AT} as at",
        "deleted",
        f"{row_of(table)} as row",
        f"cast({present} as array<string>) as present",
        "whole",
        f"{NEW} as origin",
        "false as common",
    )


def truncates(rows: DataFrame, table: TableProfile) -> DataFrame:
    """The places in the order where the table was emptied: one column, `at`."""
    return rows.where(f"op = 't' and {table.same}").selectExpr(f"{AT} as at")


def shown_events(versions: DataFrame, key: Sequence[str]) -> DataFrame:
    """The events that a target shows.

    Args:
        versions: its rows as `row`, `start`, `end`.
        key: names of the key columns.
    """
    keys = _keys(key)
    placed = versions.selectExpr("*", f"lead(start) over (partition by {keys} order by start) as following")
    return placed.selectExpr(
        "inline(if(end is null or end <=> following, array(struct(start as at, false as deleted, row)), "
        "array(struct(start as at, false as deleted, row), struct(end as at, true as deleted, row))))"
    ).selectExpr(
        "at",
        "deleted",
        "row",
        "cast(null as array<string>) as present",
        "true as whole",
        f"{VISIBLE} as origin",
        "false as common",
    )


def ordered(events: DataFrame, key: Sequence[str], columns: Sequence[str], tracked: Sequence[str]) -> DataFrame:
    """Events put in order: each with its whole row, and with the number of the version that it belongs to (`run`).

    Adds `run`, `n` (events of the run), `opens` (a delete: it ends a version), `known` (false: columns are missing
    because nothing before said them). An event that changes no tracked column belongs to the version before it.

    Events of a key whose positions are of several sequences stop the query (`headrace.apply.sequence`).

    Args:
        events: all that is known of the keys.
        key: names of the key columns.
        columns: names of all columns, in order.
        tracked: names of those whose changes make a version.
    """
    keys = _keys(key)
    one = events.selectExpr(
        "*", f"row_number() over (partition by {keys}, at order by deleted desc, origin, common, row desc) as nth"
    ).where("nth = 1")
    position = events.schema["at"].dataType
    if "position" in getattr(position, "names", ()):
        earlier = f"lag(at.position) over (partition by {keys} order by at)"
        unclear = disordered("earlier_position", "at.position", strict=True)
        one = one.selectExpr("*", f"{earlier} as earlier_position")
        one = one.where(f"if({unclear}, {StopReason.NO_ORDER.sql}, true)").drop("earlier_position")
    lives = one.selectExpr(
        "*",
        f"sum(cast(deleted as int)) over (partition by {keys} order by at) as life",
        f"{presence_in_order('present', columns)} as says",
    )
    since = f"over (partition by {keys}, life order by at)"
    fields = ", ".join(
        f"row.{quote(name)} as {quote(name)}"
        if name in key
        else f"last(if(deleted or not coalesce(says[{index}], true), null, "
        f"struct(row.{quote(name)} as v)), true) {since}.v as {quote(name)}"
        for index, name in enumerate(columns)
    )
    filled = lives.selectExpr(
        "at",
        "deleted",
        "row as told",
        "present",
        "whole",
        "common",
        f"struct({fields}) as row",
        f"coalesce(max(not deleted and whole) {since}, false) as known",
    )
    watched = ", ".join(f"row.{quote(name)} as {quote(name)}" for name in tracked)
    watched = f"struct({watched})" if watched else "'nothing'"
    before = f"lag(struct(deleted, {watched} as watched)) over (partition by {keys} order by at)"
    marked = filled.selectExpr("*", f"{watched} as watched", f"{before} as earlier")
    new = "deleted or earlier is null or earlier.deleted or not (watched <=> earlier.watched)"
    runs = marked.selectExpr("*", f"sum(if({new}, 1, 0)) over (partition by {keys} order by at) as run")
    return runs.selectExpr(
        "at",
        "deleted",
        "told",
        "present",
        "whole",
        "common",
        "row",
        "known",
        "run",
        f"count(*) over (partition by {keys}, run) as n",
        "deleted and earlier is not null and not earlier.deleted as ends",
    )


def versions(ordered_events: DataFrame, key: Sequence[str]) -> DataFrame:
    """The versions of each key: `row`, `start`, `end` (null for the one that is true now), `known`."""
    from pyspark.sql import functions as sf

    keys = _keys(key)
    grouped = (
        ordered_events.selectExpr(f"struct({keys}) as k", "*")
        .groupBy("k", "run")
        .agg(
            sf.expr("min(at) as start"),
            sf.expr("max_by(row, at) as row"),
            sf.expr("bool_or(deleted) as deleted"),
            sf.expr("bool_and(known) as known"),
        )
    )
    return (
        grouped.selectExpr("*", "lead(start) over (partition by k order by start) as end")
        .where("not deleted")
        .select("row", "start", "end", "known")
    )


def newest(events: DataFrame, key: Sequence[str], columns: Sequence[str], *, ignore_nulls: bool) -> DataFrame:
    """At most one row per key, as `headrace.apply.fold` gives them; `position` is the event's place in the order.

    Args:
        events: what is known of the keys; each says all columns, or with `ignore_nulls` those that are not null.
        key: names of the key columns.
        columns: names of all columns.
        ignore_nulls: columns without a value since the last delete keep the target's values.
    """
    keys = _keys(key)
    if ignore_nulls:
        present = ", ".join(f"if(row.{quote(name)} is null, null, {literal(name)})" for name in columns)
        fresh = f"coalesce(bool_or(deleted) over (partition by {keys}), false)"
        events = ordered(events, key, columns, columns).selectExpr(
            "at", "deleted", "row", f"if({fresh}, null, array_compact(array({present}))) as present"
        )
    order = "order by at desc, deleted desc, row desc"
    last = events.selectExpr("*", f"row_number() over (partition by {keys} {order}) as nth").where("nth = 1")
    return last.selectExpr("if(deleted, 'delete', 'upsert') as op", "at as position", "row", "present", "true as whole")


def unseen(ordered_events: DataFrame) -> DataFrame:
    """The events that the versions do not show: `at`, `deleted`, `present`, `whole`, `row` (as told)."""
    return ordered_events.where(
        "not common and ((deleted and not ends) or (not deleted and (present is not null or n > 1)))"
    ).selectExpr("at", "deleted", "present", "whole", "told as row")


def _keys(key: Sequence[str]) -> str:
    return ", ".join(f"row.{quote(name)}" for name in key)
