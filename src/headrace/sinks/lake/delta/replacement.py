"""A commit of whole rows to a Delta table without a MERGE, which would read the table three times.

It looks once for the rows that go, at nothing but their keys and positions, and writes those that come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.changes.typed import quote
from headrace.sinks.column_rules import spark_folded
from headrace.sinks.lake.delta.log import BatchMark, Transaction
from headrace.sinks.lake.sessions import SMALL_TARGET
from headrace.sinks.lake.whole_rows import WholeRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = ("file_path", "row_index")
"""Fields of Spark's hidden column that say where a row stands."""


def replaced(commit: Transaction, change: WholeRows, mark: BatchMark | None) -> bool:
    """Make the commit. False where only a MERGE can; then nothing happened.

    Args:
        commit: to be made.
        change: what it does.
        mark: what it leaves in the log.
    """
    from pyspark.sql import functions as sf

    if not commit.plain:
        return False
    files = commit.files(change.within)
    there = commit.rows(files)
    coming = change.rows.alias("s").where("s.op = 'upsert'")
    if set(there.columns) != set(change.columns):
        return False
    written = [f"{change.columns[name]} as {quote(name)}" for name in there.columns]
    if not has_types(coming.selectExpr(*written), _types(there)):
        return False
    source = change.rows.selectExpr("position", f"struct({', '.join(f'row.{quote(n)}' for n in change.key)}) as row")
    source = (sf.broadcast(source) if change.sent else source).alias("s")
    # Not by way of the alias: `t._metadata` would be a field of a column `t`.
    wanted = _PLACE if commit.marks_rows else _PLACE[:1]
    places = dict(zip(wanted, _unused(wanted, there.columns), strict=True))
    hidden = (f"_metadata.{field} as {quote(name)}" for field, name in places.items())
    standing = there.selectExpr("*", *hidden).alias("t")
    for condition in change.within:
        standing = standing.where(condition)
    matched = standing.join(source, sf.expr(change.same_key))
    actions: list[Any] = []
    touched: list[Any] = []
    newer = 0
    filled = not files.isEmpty()
    if filled and commit.marks_rows:
        shown = (f"t.{quote(name)} as {field}" for field, name in places.items())
        with _computed(matched.selectExpr(f"{change.older} as older", *shown)) as rows:
            newer = rows.where("not older").count()
            actions = commit.marked(rows.where("older"), files)
    elif filled:
        path = f"t.{quote(places['file_path'])} as file_path"
        by_file = matched.selectExpr(f"{change.older} as older", path).groupBy("file_path")
        lines = by_file.agg(sf.expr("bool_or(older) as some"), sf.expr("count_if(not older) as newer")).collect()
        newer = sum(line["newer"] for line in lines)
        touched = commit.named(files, [line["file_path"] for line in lines if line["some"]])
        actions = [file.remove() for file in touched]
    if newer:
        coming = coming.join(standing, sf.expr(f"{change.same_key} and not ({change.older})"), "left_anti")
    coming = coming.selectExpr(*written)
    if touched:
        gone = sf.expr(f"{change.same_key} and {change.older}")
        coming = commit.rows(commit.sequence(touched)).alias("t").join(source, gone, "left_anti").unionByName(coming)
    if change.few and sum(file.size() for file in touched) <= SMALL_TARGET:
        coming = coming.coalesce(1)
    commit.commit([*actions, *commit.write(coming)], mark)
    return True


@contextmanager
def _computed(rows: DataFrame) -> Iterator[DataFrame]:
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _unused(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    taken = {spark_folded(column) for column in columns}
    end = ""
    while any(name + end in taken for name in names):
        end += "_"
    return [name + end for name in names]


def has_types(rows: DataFrame, columns: Mapping[str, str]) -> bool:
    return _types(rows) == columns


def _types(rows: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in rows.schema}
