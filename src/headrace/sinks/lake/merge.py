"""The one data commit of a lakehouse table and batch: an append or a MERGE, as Spark SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.apply import TableProfile, disordered, fold, fold_keyless, upserts
from headrace.changes.refusal import StopReason
from headrace.changes.table_files import ATTEMPT
from headrace.changes.typed import literal, presence_in_order, quote
from headrace.sinks.base import FilesUnusable
from headrace.sinks.lake import key_ranges
from headrace.sinks.lake.sessions import SMALL, can_clone
from headrace.sinks.lake.variants import as_variant
from headrace.sinks.lake.whole_rows import CollectedRows, WholeRows, collect
from headrace.sinks.misfits import KeptType
from headrace.sinks.table_sink import old_value
from headrace.spark.local_rows import kept_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.sinks.lake.table import LakeTable


KeySpans = tuple[str, str, list[tuple[Any, Any]]]
"""A key column, its Spark type, and between which values the keys of a batch are; none where that can't be said."""
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"

BROADCAST = 250_000
"""Up to how many changes a batch is sent to every task, so that the target is not shuffled to find its rows; less
where rows may have large values, which would be sent too."""


@contextmanager
def seen_by(target: LakeTable, frame: DataFrame) -> Iterator[str]:
    """A name under which the target's session sees a DataFrame of another session."""
    name = f"headrace_{uuid4().hex}"
    frame.createGlobalTempView(name)
    try:
        yield f"global_temp.{name}"
    finally:
        frame.sparkSession.catalog.dropGlobalTempView(name)


@contextmanager
def kept(target: LakeTable, frame: DataFrame) -> Iterator[DataFrame]:
    """The rows in the target's session, computed once: a MERGE reads them several times and must find the same.

    If an executor takes some of them along, the commit fails, and the batch can be repeated. Over Spark Connect Delta
    keeps rows itself.
    """
    session = target.session
    with ExitStack() as cleanup:
        with seen_by(target, frame) as name:
            if not can_clone(session):
                yield session.table(name)
                return
            rows = cleanup.enter_context(kept_rows(session.table(name), eager=True))
        session.conf.set(_MATERIALIZE, "none")
        cleanup.callback(session.conf.unset, _MATERIALIZE)
        yield rows


def key_spans(rows: DataFrame, keys: Sequence[tuple[str, str]], size: int) -> list[KeySpans]:
    """Between which values the keys of folded rows (or events) are, by column. Runs a small Spark job over the rows.

    Args:
        rows: with a column `row`; of more than `SMALL`, only the least and the greatest key count.
        keys: key columns with their Spark types.
        size: about how many there are.
    """
    keys = [key for key in keys if key_ranges.comparable(key[1])]
    if not keys:
        return []
    typed = rows.selectExpr(*(f"{key_ranges.collected(*key)} as k{n}" for n, key in enumerate(keys)))
    if size <= SMALL:
        columns = [column.to_pylist() for column in typed.toArrow().columns]
        spans = [[] if None in values or not values else key_ranges.ranges(values) for values in columns]
    else:
        ends = [f"if(bool_or(k{n} is null), null, struct(min(k{n}), max(k{n}))) as k{n}" for n in range(len(keys))]
        line = typed.selectExpr(*ends).collect()[0]
        spans = [[] if pair is None or pair[0] is None else [tuple(pair)] for pair in line]
    return [(*key, of) for key, of in zip(keys, spans, strict=True)]


def in_spans(all_spans: Sequence[KeySpans], prefix: str = "") -> list[str]:
    """Spark SQL conditions that are true of every row with one of the keys."""
    conditions = (key_ranges.within(f"{prefix}{quote(name)}", kind, spans) for name, kind, spans in all_spans if spans)
    return [condition for condition in conditions if condition]


@dataclass(frozen=True)
class Values:
    """How the columns of a folded row are written.

    Args:
        columns: their names.
        key: names of the key columns.
        nullable: names of those that may be null.
        position: the name of our column.
        kept: columns that the target keeps as another type.
        insert_partial: whether null may stand for what is not known.
        deleted: the name of the column that marks deleted rows; empty where they are removed.
        variants: names of columns with JSON that the target keeps as variants.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    nullable: frozenset[str]
    position: str
    kept: Mapping[str, KeptType]
    insert_partial: bool = False
    deleted: str = ""
    variants: frozenset[str] = frozenset()

    def of(self, name: str) -> str:
        """Spark SQL for a column of the folded row `s.row`."""
        named = (f"concat({literal(f'{key}=')}, cast(s.row.{quote(key)} as string))" for key in self.key)
        row = f"concat_ws(', ', {', '.join(named)})" if self.key else ""
        return self.written(name, f"s.row.{quote(name)}", row)

    def written(self, name: str, value: str, row: str = "") -> str:
        """Spark SQL for a column's value, which is SQL, as the target keeps it; `row` is SQL that names its row."""
        if name in self.variants:
            return as_variant(value)
        return self.kept[name].written(value, row) if name in self.kept else value

    @property
    def nullable_key(self) -> frozenset[str]:
        """Names of the columns of the key that may be null."""
        return self.nullable & {*self.key}

    @property
    def same_key(self) -> str:
        """Spark SQL: do target and source speak of one key?"""
        return " and ".join(
            f"t.{quote(name)} {'<=>' if name in self.nullable else '='} s.row.{quote(name)}" for name in self.key
        )


def append(rows: DataFrame, table: TableProfile, target: LakeTable, values: Values) -> Callable[[], None]:
    """The append of rows that are new for certain: of a first snapshot, or inserts into a table without a key."""
    folded = upserts(rows, table) if table.schema.key else fold_keyless(rows, table)

    def work() -> None:
        with seen_by(target, folded) as source:
            written = {quote(name): values.of(name) for name in values.columns}
            written[quote(values.position)] = "s.position"
            if values.deleted:
                written[quote(values.deleted)] = "false"
            shown = ", ".join(f"{value} as {name}" for name, value in written.items())
            frame = target.session.sql(f"select {shown} from {source} s")
            if table.schema.key and target.append(frame):
                return
            with seen_by(target, frame) as name:
                target.session.sql(
                    f"insert into {target.sql_name} ({', '.join(written)}) select {', '.join(written)} from {name}"
                )

    return work


@contextmanager
def beside_files(rows: DataFrame, table: TableProfile, target: LakeTable, values: Values) -> Iterator[DataFrame | None]:
    """The rows of a first snapshot that the files do not have which hold the others, as the target's session writes
    them; None for none.

    Raises:
        FilesUnusable: they are not those that the attempts left which wrote the files.
    """
    left = table.size - sum(file.rows for file in table.written)
    if not left:
        yield None
        return
    attempts = ", ".join(literal(file.attempt) for file in table.written)
    of_table = rows.where(f"({table.where}) and source['{ATTEMPT}'] in ({attempts})")
    if of_table.count() != left:
        raise FilesUnusable.because(table.id, "rows that belong to them are of another attempt to read them")
    with seen_by(target, upserts(of_table, table)) as source:
        written = {name: values.of(name) for name in values.columns} | {values.position: "s.position"}
        written |= {values.deleted: "false"} if values.deleted else {}
        named = (f"{value} as {quote(name)}" for name, value in written.items())
        yield target.session.sql(f"select {', '.join(named)} from {source} s")


def give_old_values(table: TableProfile, target: LakeTable, values: Values) -> bool:
    """Give the rows of a target the values that they have in columns which were added, one commit without a batch.

    Repeatable: rows that have them are not written again.

    Returns:
        Whether a row lacked one.
    """
    at, given = quote(values.position), False
    columns = {column.name: column for column in table.schema.columns if column.name in values.columns}
    wanted = {name: value for name, value in table.old_values.items() if value.before and name in columns}
    for position in sorted({value.before for value in wanted.values()}):
        sets, same = {}, []
        for name in sorted(name for name, value in wanted.items() if value.before == position):
            written = values.written(name, old_value(wanted[name].text, columns[name], table))
            sets[quote(name)] = written
            # Variants can't be compared, but what one prints can.
            shown = ("to_json({})" if name in values.variants else "{}").format
            same.append(f"{shown(quote(name))} <=> {shown(written)}")
        older = f"({at} is null or {at} < {literal(position)}) and not ({' and '.join(same)})"
        if target.read().where(older).isEmpty():
            continue
        assigned = ", ".join(f"{name} = {written}" for name, written in sets.items())
        target.amend(
            lambda assigned=assigned, older=older: target.session.sql(  # type: ignore[misc]
                f"update {target.sql_name} set {assigned} where {older}"
            )
        )
        given = True
    return given


def merge(
    rows: DataFrame,
    table: TableProfile,
    target: LakeTable,
    values: Values,
    *,
    ignore_nulls: bool = False,
    known: DataFrame | None = None,
) -> Callable[[], None]:
    """The MERGE of a batch into the target of a table with a key.

    It stops with `StopReason.LATE_CHANGE` where the fold took in a change that is no newer than the target's row; then
    it must be made again with `known` (`headrace.apply.fold`).
    """
    folded = fold(rows, table, ignore_nulls=ignore_nulls, keep_deleted=bool(values.deleted), known=known)
    emptied = table.truncate_at is not None
    most = SMALL if any(column.large for column in table.schema.columns) else BROADCAST
    shape = Shape(
        table.size,
        sent=table.size <= most and not emptied,
        keys=() if emptied else tuple((c.name, c.logical.spark_type) for c in table.schema.key_columns),
    )
    some = table.partial or ignore_nulls or (bool(values.deleted) and table.may_delete)
    return merge_folded(
        folded,
        target,
        values,
        partial=some,
        shape=shape,
        emptied_at=table.truncate_at,
        decoded=table.decoded,
        source=table.id.full_path,
    )


@dataclass(frozen=True)
class Shape:
    """What is known of folded rows before they are computed.

    Args:
        size: how many changes they come from.
        sent: they may be sent to every task.
        keys: key columns, with their Spark types, by which rows of the target can be left out.
    """

    size: int
    sent: bool
    keys: tuple[tuple[str, str], ...]


def merge_folded(
    folded: DataFrame,
    target: LakeTable,
    values: Values,
    *,
    partial: bool,
    shape: Shape | None = None,
    emptied_at: str | None = None,
    decoded: bool = False,
    source: str = "",
) -> Callable[[], None]:
    """The MERGE of folded rows (see `headrace.apply.fold`).

    A target row whose position is later or equal is left alone. A change without all columns keeps the target's
    values; where the target has no such row it fails the whole commit, unless null may stand for what is not known.
    Where deleted rows stay, marked, one of them counts as no row for what comes after it.

    Args:
        folded: at most one row per key.
        target: where they go.
        values: how they are written.
        partial: some row lacks columns.
        shape: what is known of them; None where Spark has to find out.
        emptied_at: the position before which rows of the target go that the batch has no row of their key for.
        decoded: some row comes from a message, whose position compares in its sequence only.
        source: the source's table, as messages name it.
    """
    from pyspark.sql import functions as sf

    at = f"t.{quote(values.position)}"
    older = f"({at} is null or {at} < s.position)"
    if decoded:
        older = f"if({disordered(at, 's.position')}, {StopReason.NO_ORDER.sql}, {older})"
    mark = quote(values.deleted) if values.deleted else ""
    dead = f"coalesce(t.{mark}, false)" if mark else ""
    rest = [name for name in values.columns if name not in values.key]
    sets = {quote(name): values.of(name) for name in rest}
    since: list[str] = []
    if partial:
        says = f"{presence_in_order('present', rest)} as says"
        since = [name for name in folded.columns if name == "since"]
        folded = folded.selectExpr("op", "position", "row", says, "whole", *since)
        all_said = f"s.says is null or {dead}" if mark else "s.says is null"
        sets = {
            name: f"if({all_said} or s.says[{index}], {value}, t.{name})"
            for index, (name, value) in enumerate(sets.items())
        }
    inserts = {quote(name): values.of(name) for name in values.columns}
    position_column, missing = quote(values.position), StopReason.ROW_MISSING.sql
    strict = partial and not values.insert_partial
    known = f"s.op = 'delete' or (s.says is not null and not {dead})" if dead else "s.says is not null"
    sets[position_column] = f"if(s.whole or {known}, s.position, {missing})" if strict else "s.position"
    if since:
        sets[position_column] = f"if({at} >= s.since, {StopReason.LATE_CHANGE.sql}, {sets[position_column]})"
    inserts[position_column] = f"if(s.whole, s.position, {missing})" if strict else "s.position"
    gone = when_gone = ""
    if emptied_at is not None:
        gone, when_gone = f"when not matched by source and {_truncated(at, emptied_at)}", literal(emptied_at)
    if mark:
        sets[mark] = inserts[mark] = "s.op = 'delete'"
        marking = f"update set {mark} = true, {position_column} ="
        # Changes that lack columns say nothing of a row that is deleted already.
        again = f"s.op = 'delete' and s.says is not null and {dead}"
        deletes = f"when matched and {older} and {again} then {marking} s.position" if partial else ""
        changed = f"when matched and {older}"
        # A row that came and went within the batch is there, marked; of one that nobody knows there is nothing to keep.
        added = "(s.op = 'upsert' or s.whole)"
        empties = f"{gone} and not {dead} then {marking} {when_gone}" if gone else ""
    else:
        deletes, changed = (f"when matched and {older} and s.op = '{op}'" for op in ("delete", "upsert"))
        deletes, added, empties = f"{deletes} then delete", "s.op = 'upsert'", f"{gone} then delete" if gone else ""

    columns = {**{name: values.of(name) for name in values.columns}, values.position: "s.position"}
    whole = not partial and emptied_at is None and not mark

    def work() -> None:
        if shape is not None and shape.sent and whole and target.no_index() == "":
            collected, comes = collect(folded, columns)
            change = CollectedRows(collected, comes, values.key, values.nullable_key, values.position, decoded, source)
            if target.replace_by_index(change):
                return
        with _source(folded, target, shape) as (rows, within):
            if shape is not None and whole:
                few = shape.size <= SMALL
                joined = WholeRows(rows, values.key, values.same_key, older, columns, within, sent=shape.sent, few=few)
                if target.replace(joined):
                    return
            with seen_by(target, sf.broadcast(rows) if shape is not None and shape.sent else rows) as name:
                on = " and ".join([*within, values.same_key])
                target.session.sql(
                    f"merge into {target.sql_name} as t using {name} as s on {on} "
                    f"{deletes} {changed} then update set "
                    f"{', '.join(f'{name} = {value}' for name, value in sets.items())} "
                    f"when not matched and {added} then insert ({', '.join(inserts)}) "
                    f"values ({', '.join(inserts.values())}) {empties}"
                )

    return work


def merge_keyless(rows: DataFrame, table: TableProfile, target: LakeTable, values: Values) -> Callable[[], None]:
    """The MERGE that deletes and inserts whole rows of a table without a key.

    Which rows of the target go is read from it before: of the rows equal in every column, the ones with the smallest
    positions. A row to delete that is not there is no error, as with a key.
    """
    from pyspark.sql import functions as sf

    folded = fold_keyless(rows, table)
    at = quote(values.position)
    gone = "" if table.gone_before is None else _truncated(f"t.{at}", table.gone_before)
    insert = ", ".join(quote(name) for name in (*values.columns, values.position))
    inserted = ", ".join([*(values.of(name) for name in values.columns), "s.position"])
    names = [quote(name) for name in values.columns]
    here = f"s.op = 'delete' and t.{at} <=> s.position and " + " and ".join(f"t.{n} <=> s.row.{n}" for n in names)

    def work() -> None:
        with seen_by(target, folded) as source:
            session = target.session
            standing = target.read()
            if table.gone_before is not None:
                standing = standing.where(f"not ({_truncated(at, table.gone_before)})")
            numbered = standing.selectExpr(f"struct({', '.join(names)}) as row", f"{at} as position")
            lost = session.table(source).where("op = 'delete'").selectExpr("occurrences", "row as lost")
            equal = " and ".join(f"row.{name} <=> lost.{name}" for name in names)
            same = ", ".join(f"row.{name}" for name in names)
            deletes = (
                numbered.join(sf.broadcast(lost) if table.size <= SMALL else lost, sf.expr(equal))
                .selectExpr("*", f"row_number() over (partition by {same} order by position) as nth")
                .where("nth <= occurrences")
                .selectExpr("'delete' as op", "position", "row")
            )
            inserts = session.table(source).where("op = 'insert'").selectExpr("op", "position", "row")
            with seen_by(target, target.merge_source(inserts.unionByName(deletes))) as both:
                session.sql(
                    f"merge into {target.sql_name} as t using {both} as s on {here} when matched then delete "
                    f"when not matched and s.op = 'insert' then insert ({insert}) values ({inserted})"
                    + (f" when not matched by source and {gone} then delete" if gone else "")
                )

    return work


@contextmanager
def _source(folded: DataFrame, target: LakeTable, shape: Shape | None) -> Iterator[tuple[DataFrame, list[str]]]:
    """The rows in the target's session, and what is true of every target row with a key of theirs."""
    if shape is None:
        yield target.merge_source(folded), []
        return
    with kept(target, folded) as rows:
        # A condition with other keys in each batch would be compiled each time.
        yield rows, [] if target.small else in_spans(key_spans(rows, shape.keys, shape.size), "t.")


def _truncated(at: str, position: str) -> str:
    """Spark SQL: was the target's row there before the truncate?"""
    index = literal(position)
    return f"if({disordered(at, index)}, {StopReason.NO_ORDER.sql}, {at} is null or {at} < {index})"
