"""History (SCD type 2) and change logs in lakehouse tables.

A history is two tables: the target with the versions, and beside it (`..._unseen`, made when first needed) the events
that versions do not show. The second is written first. An event that it has too early changes nothing: it comes again
with the batch, and one event counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.apply import history
from headrace.apply.column_names import Step
from headrace.apply.history import NEW, STORED, newest
from headrace.changes.refusal import StopReason
from headrace.changes.typed import literal, quote
from headrace.sinks.base import BatchId
from headrace.sinks.evolution import TargetColumn
from headrace.sinks.lake.layout import TargetLayout
from headrace.sinks.lake.merge import KeySpans, Shape, Values, in_spans, key_spans, merge_folded, seen_by
from headrace.sinks.lake.sessions import SMALL
from headrace.sinks.lake.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

START, END = "__START_AT", "__END_AT"
UNSEEN = "_headrace_unseen"
_AT, _DELETED, _PRESENT, _WHOLE = "_headrace_at", "_headrace_deleted", "_headrace_present", "_headrace_whole"
UNSEEN_COLUMNS = (_AT, _DELETED, _PRESENT, _WHOLE)
"""Our columns in the table beside a history."""


@dataclass(frozen=True)
class History:
    """What is to be brought into a history.

    Args:
        events: the batch's events (see `headrace.apply.history`), in any session.
        truncates: where the table was emptied: one column, `at`; None for nowhere.
        values: how columns are written; its position is not used.
        columns: the columns with their types.
        tracked: names of the columns whose changes make a version.
        source: the source's name.
        read_again_from: the position from which the whole table was read again, which ends with this batch.
        size: about how many changes there are; many where that is not known.
    """

    events: DataFrame
    truncates: DataFrame | None
    values: Values
    columns: tuple[TargetColumn, ...]
    tracked: tuple[str, ...]
    source: str
    read_again_from: str | None = None
    size: int = SMALL + 1

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        types = {column.name: column.type for column in self.columns}
        return tuple((name, types[name]) for name in self.values.key)


def columns(sequence: str) -> tuple[TargetColumn, ...]:
    """The columns of a history beside the source's, for a sequence of this type."""
    return (
        TargetColumn(START, sequence, "Headrace: since which change the version is true"),
        TargetColumn(END, sequence, "Headrace: until which change; null for now"),
    )


def bring(target: LakeTable, work: History, batch: BatchId | None, properties: dict[str, str]) -> None:
    """Rebuild the versions of every key of the batch, in one data commit of the target.

    Late and repeated events change nothing but what they truly change: versions are a function of the set of events.
    """
    from pyspark import StorageLevel

    beside = target.companion(UNSEEN)
    with seen_by(target, work.events) as name:
        session = target.session
        new = session.table(name).drop("origin", "common").selectExpr("*", f"{NEW} as origin", "false as common")
        emptied = work.truncates is not None
        with seen_by(target, _key_positions(work)) as positions:
            # What was emptied or read again may have any key.
            some = not emptied and work.read_again_from is None and not target.small
            spans = key_spans(new, work.keys, work.size) if some else []
            ordered = _ordered(target, beside, work, new, session.table(positions), emptied, spans).persist(
                StorageLevel.MEMORY_AND_DISK
            )
            try:
                kept = history.unseen(ordered)
                if emptied:
                    kept = kept.unionByName(_truncate_events(session.table(positions), kept))
                if not kept.isEmpty():
                    _keep(beside, kept, work, batch, properties)
                versions = history.versions(ordered, work.values.key)
                target.commit(batch, work.source, _merging(target, versions, work, spans))
            finally:
                ordered.unpersist()


def bring_newest(target: LakeTable, work: History, batch: BatchId | None, *, ignore_nulls: bool) -> None:
    """Bring the newest row of every key of the batch into a target without history.

    Deletes and truncates are kept beside it, so that a change older than one brings no row back.

    Args:
        target: where the rows go; it has the position column.
        work: what the batch says.
        batch: which batch it is.
        ignore_nulls: whether nulls of a change leave the target's value.
    """
    from pyspark.sql import functions as sf

    beside, session, key = target.companion(UNSEEN), target.session, work.values.key
    fields = ", ".join(f"row.{quote(name)} as {quote(name)}" for name in key)
    with seen_by(target, work.events) as name, seen_by(target, _key_positions(work)) as positions:
        events, emptied = session.table(name), session.table(positions)
        gone = events.where("deleted").selectExpr("at", "deleted", "present", "whole", "row")
        if work.truncates is not None:
            gone = gone.unionByName(_truncate_events(emptied, gone))
        if not gone.isEmpty():
            _keep(beside, gone, work, batch, {})
        keys = events.selectExpr(f"struct({fields}) as k").distinct()
        all_events = events
        if work.truncates is not None:
            at = quote(work.values.position)
            rows = target.read()
            standing = rows.selectExpr(f"{_row(work, rows)} as row", f"{at} as at")
            last = emptied.agg(sf.max("at").alias("last"))
            older = standing.join(last, sf.expr("at is null or at < last"), "left_semi")
            keys = keys.unionByName(older.selectExpr(f"struct({fields}) as k")).distinct()
            all_events = all_events.unionByName(_everywhere(emptied, keys, events, work))
        if beside.exists:
            stored = _stored(beside, work)
            lost = stored.where("row is not null and deleted").drop("origin").selectExpr("*", f"{STORED} as origin")
            same = sf.expr(f"struct({fields}) <=> k")
            all_events = all_events.unionByName(lost.join(keys, same, "left_semi"))
            before = stored.where("row is null").select("at")
            all_events = all_events.unionByName(_everywhere(before, keys, events, work))
        folded = newest(all_events, key, work.values.columns, ignore_nulls=ignore_nulls)
        shape = Shape(work.size, sent=False, keys=work.keys)
        target.commit(batch, work.source, merge_folded(folded, target, work.values, partial=ignore_nulls, shape=shape))


def append_first(target: LakeTable, work: History, batch: BatchId | None) -> None:
    """Append the versions of a first snapshot, in which no key comes twice."""

    def step() -> None:
        with seen_by(target, work.events) as source:
            names = ", ".join(quote(name) for name in (*work.values.columns, START, END))
            # The end is written too: not every table takes a row that lacks a column.
            written = ", ".join([*(work.values.of(name) for name in work.values.columns), "s.at", "null"])
            target.session.sql(f"insert into {target.sql_name} ({names}) select {written} from {source} s")

    target.commit(batch, work.source, step)


def append_changes(
    target: LakeTable, changes: DataFrame, names: tuple[str, ...], source: str, batch: BatchId | None
) -> None:
    """Append rows of a change log, whose columns have these names."""

    def step() -> None:
        with seen_by(target, changes) as view:
            columns = ", ".join(quote(name) for name in names)
            target.session.sql(f"insert into {target.sql_name} ({columns}) select {columns} from {view}")

    target.commit(batch, source, step)


def rename_unseen(target: LakeTable, steps: tuple[Step, ...], source: str, final: list[str] | None) -> None:
    """Rename columns in the table beside a history, also where its rows name them. Repeatable.

    Args:
        target: the history.
        steps: what happened to names.
        source: the source table's name.
        final: the source's columns now; None where they are not known.
    """
    beside = target.companion(UNSEEN)
    if not steps or not beside.exists:
        return
    own_columns = frozenset(UNSEEN_COLUMNS)
    plan = beside.plan_names(source, steps, None, own_columns=own_columns, final=final, stored_as=UNSEEN, takeover=True)
    if plan is None:
        return
    cases = " ".join(f"when {literal(old)} then {literal(new)}" for old, new in plan.evolution.rename)
    names = ", ".join(literal(old) for old, _ in plan.evolution.rename)
    beside.session.sql(
        f"update {beside.sql_name} set {_PRESENT} = transform({_PRESENT}, c -> case c {cases} else c end) "
        f"where arrays_overlap({_PRESENT}, array({names}))"
    )
    beside.prepare(plan, properties={})


def _ordered(
    target: LakeTable,
    beside: LakeTable,
    work: History,
    new: DataFrame,
    positions: DataFrame,
    emptied: bool,
    spans: list[KeySpans],
) -> DataFrame:
    """All that is known of the batch's keys, put in order."""
    from pyspark.sql import functions as sf

    key = work.values.key
    fields = ", ".join(f"row.{quote(name)} as {quote(name)}" for name in key)
    keys = new.selectExpr(f"struct({fields}) as k")
    shown = _versions(target, work, spans)
    if emptied:
        # A truncate ends every version that is open there.
        first = positions.agg(sf.min("at").alias("first"))
        open_ones = shown.join(first, sf.expr("end is null or end > first"), "left_semi")
        keys = keys.unionByName(open_ones.selectExpr(f"struct({fields}) as k"))
    keys = keys.distinct()
    same = sf.expr(f"struct({fields}) <=> k")
    events = new.unionByName(history.shown_events(shown.join(keys, same, "left_semi"), key))
    everywhere = positions if emptied else None
    if work.read_again_from is not None:
        gone = _not_read_again(shown, new, beside, work, work.read_again_from)
        events = events.unionByName(gone)
        lost = gone.selectExpr(f"struct({fields}) as k")
        events = events.unionByName(history.shown_events(shown.join(lost, same, "left_semi"), key))
        keys = keys.unionByName(lost)
    if beside.exists:
        stored = _stored(beside, work)
        of_keys = stored.where("row is not null").join(keys, same, "left_semi")
        events = events.unionByName(of_keys)
        older = stored.where("row is null").select("at")
        everywhere = older if everywhere is None else everywhere.unionByName(older)
    if everywhere is not None:
        events = events.unionByName(_everywhere(everywhere, keys, new, work))
    return history.ordered(events, key, work.values.columns, work.tracked)


def _not_read_again(shown: DataFrame, new: DataFrame, beside: LakeTable, work: History, since: str) -> DataFrame:
    """Deletes of the keys that a read of the whole table did not find, at its beginning."""
    from pyspark.sql import functions as sf

    fields = ", ".join(f"row.{quote(name)} as {quote(name)}" for name in work.values.key)
    later = f"at.position >= {literal(since)}"
    keys = new.where(later).selectExpr(f"struct({fields}) as k")
    if beside.exists:
        stored = _stored(beside, work).where(f"row is not null and {later}")
        keys = keys.unionByName(stored.selectExpr(f"struct({fields}) as k"))
    open_ones = shown.where(f"end is null and start.position < {literal(since)}")
    at = f"named_struct('position', {literal(since)}, 'event_time', cast(null as timestamp)) as at"
    return open_ones.join(keys.distinct(), sf.expr(f"struct({fields}) <=> k"), "left_anti").selectExpr(
        at,
        "true as deleted",
        "row",
        "cast(null as array<string>) as present",
        "true as whole",
        f"{NEW} as origin",
        "false as common",
    )


def _everywhere(positions: DataFrame, keys: DataFrame, like: DataFrame, work: History) -> DataFrame:
    types = {field.name: field.dataType for field in like.schema["row"].dataType.fields}  # type: ignore[attr-defined]
    fields = ", ".join(
        f"k.{quote(name)} as {quote(name)}"
        if name in work.values.key
        else f"cast(null as {types[name].simpleString()}) as {quote(name)}"
        for name in work.values.columns
    )
    return positions.crossJoin(keys).selectExpr(
        "at",
        "true as deleted",
        f"struct({fields}) as row",
        "cast(null as array<string>) as present",
        "false as whole",
        f"{STORED} as origin",
        "true as common",
    )


def _key_positions(work: History) -> DataFrame:
    """Where the batch empties the table; no row for nowhere."""
    return work.events.limit(0).select("at") if work.truncates is None else work.truncates


def _versions(target: LakeTable, work: History, spans: list[KeySpans]) -> DataFrame:
    rows = target.read().where(" and ".join(["true", *in_spans(spans)]))
    return rows.selectExpr(f"{_row(work, rows)} as row", f"{START} as start", f"{END} as end")


def _row(work: History, rows: DataFrame) -> str:
    """Spark SQL for the columns as the source's types have them; null where the table has no such column yet."""
    have = {name.lower() for name in rows.columns}
    fields = ", ".join(
        f"cast({quote(c.name) if c.name.lower() in have else 'null'} as {c.type}) as {quote(c.name)}"
        for c in work.columns
    )
    return f"struct({fields})"


def _stored(beside: LakeTable, work: History) -> DataFrame:
    rows = beside.read()
    return rows.selectExpr(
        f"{_AT} as at",
        f"{_DELETED} as deleted",
        # A truncate has no key, which a table with a key column that may be null could not tell from a row.
        f"if({_WHOLE} is null, null, {_row(work, rows)}) as row",
        f"{_PRESENT} as present",
        f"{_WHOLE} as whole",
        f"{STORED} as origin",
        "false as common",
    )


def _truncate_events(positions: DataFrame, like: DataFrame) -> DataFrame:
    row = like.schema["row"].dataType.simpleString()
    return positions.selectExpr(
        "at",
        "true as deleted",
        "cast(null as array<string>) as present",
        "cast(null as boolean) as whole",
        f"cast(null as {row}) as row",
    )


def _keep(beside: LakeTable, kept: DataFrame, work: History, batch: BatchId | None, properties: dict[str, str]) -> None:
    """Write events that versions do not show beside the target, each once."""
    at_type = kept.schema["at"].dataType.simpleString()
    added_columns = (
        TargetColumn(_AT, at_type, "Headrace: where the event stands in the order"),
        TargetColumn(_DELETED, "boolean"),
        TargetColumn(_PRESENT, "array<string>"),
        TargetColumn(_WHOLE, "boolean"),
    )
    columns = tuple(TargetColumn(c.name, c.type) for c in work.columns)
    layout = TargetLayout(
        work.source, columns, work.values.key, added_columns, "Headrace: what the history does not show", UNSEEN
    )
    plan = beside.plan(
        layout,
        batch,
        takeover=True,
        behavior="lenient",
        rows=True,
        first_read=False,
        first_read_ends=False,
        append_only=True,
    )
    beside.prepare(plan, properties=properties)
    if plan.done:
        return
    names = ", ".join(quote(c.name) for c in (*columns, *added_columns))
    values = ", ".join([*(f"s.row.{quote(c.name)}" for c in columns), "s.at", "s.deleted", "s.present", "s.whole"])
    same = " and ".join(f"t.{quote(name)} <=> s.row.{quote(name)}" for name in work.values.key)

    def step() -> None:
        with seen_by(beside, beside.merge_source(kept)) as source:
            beside.session.sql(
                f"merge into {beside.sql_name} t using {source} s on t.{_AT} = s.at and {same} "
                f"and t.{_WHOLE} <=> s.whole when not matched then insert ({names}) values ({values})"
            )

    beside.commit(batch, f"{work.source}/{UNSEEN}", step)


def _merging(target: LakeTable, versions: DataFrame, work: History, spans: list[KeySpans]) -> Callable[[], None]:
    """The MERGE that makes the target's versions those that were found."""
    from pyspark.sql import functions as sf

    values = work.values
    fields = ", ".join(f"row.{quote(name)} as {quote(name)}" for name in values.key)
    known = "known" if not values.insert_partial else "true"
    wanted = versions.selectExpr(f"struct({fields}) as k", "row", "start", "end", f"{known} as known").alias("w")
    keys = wanted.select("k").distinct()
    shown = (
        _versions(target, work, spans)
        .selectExpr(f"struct({fields}) as k", "row", "start", "end")
        .join(sf.broadcast(keys), "k", "left_semi")
    )
    rest = ", ".join(f"{quote(name)} = {values.of(name)}" for name in values.columns if name not in values.key)
    names = ", ".join(quote(name) for name in (*values.columns, START, END))
    inserted = ", ".join([*(values.of(name) for name in values.columns), "s.start", "s.end"])
    on = " and ".join([*in_spans(spans, "t."), values.same_key])

    def step() -> None:
        joined = wanted.join(shown.alias("h"), sf.expr("w.k <=> h.k and w.start <=> h.start"), "full_outer").selectExpr(
            "coalesce(w.row, h.row) as row",
            "coalesce(w.start, h.start) as start",
            "w.end as end",
            "w.start is null as gone",
            f"if(w.known = false, {StopReason.ROW_MISSING.sql}, true) as known",
            "h.start is not null and w.row <=> h.row and w.end <=> h.end as same",
        )
        with seen_by(target, target.merge_source(joined.where("not same and known"))) as source:
            target.session.sql(
                f"merge into {target.sql_name} t using {source} s on {on} and t.{START} = s.start "
                f"when matched and s.gone then delete when matched then update set "
                f"{rest + ', ' if rest else ''}{END} = s.end "
                f"when not matched and not s.gone then insert ({names}) values ({inserted})"
            )

    return step
