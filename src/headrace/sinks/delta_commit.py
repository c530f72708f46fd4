"""The one data commit of a Delta target and batch: an append or a MERGE with its number in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.apply import TableBatch, fold, fold_keyless, upserts
from headrace.changes.typed import literal, quote
from headrace.sinks.base import BatchId
from headrace.sinks.delta_table import MirrorTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_STATE_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_SMALL = 20_000
MISSING_ROW = "HEADRACE_ROW_MISSING"
"""Stands in Spark's error when a change without all columns met no row of its key in the target."""


def application_id(batch: BatchId, table: TableBatch) -> str:
    """Under which name a Delta table remembers the batches of a pipeline and checkpoint."""
    return f"headrace/{batch.owner}/{table.id.full_path}"


def session_for(spark: SparkSession, table: TableBatch) -> SparkSession:
    """A session for the work on one table: the same cached data, but settings of its own.

    Where there is nothing to clone (Spark Connect) it is the session itself; the caller then writes one table after
    another.
    """
    if not can_clone(spark):
        return spark
    own = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    cores = spark.sparkContext.defaultParallelism
    # The log of a small table would be spread over 50 tasks otherwise, which takes longer than a small batch itself.
    if own.conf.get(_STATE_PARTITIONS, None) is None:
        own.conf.set(_STATE_PARTITIONS, str(max(2, min(50, cores))))
    if table.size <= _SMALL and cores < int(own.conf.get("spark.sql.shuffle.partitions") or 200):
        own.conf.set("spark.sql.shuffle.partitions", str(cores))
    return own


def can_clone(spark: SparkSession) -> bool:
    """Whether commits can have sessions of their own, and so run side by side."""
    return hasattr(spark, "_jsparkSession")


@contextmanager
def batch_of(session: SparkSession, table: TableBatch, batch: BatchId) -> Iterator[None]:
    """Let the session's next MERGE carry the batch's number, and do nothing if the table has it already.

    MERGE has no options: it takes application and version from the session's settings.
    """
    session.conf.set(_APP_ID, application_id(batch, table))
    session.conf.set(_VERSION, str(batch.number))
    try:
        yield
    finally:
        session.conf.unset(_APP_ID)
        session.conf.unset(_VERSION)


def append(rows: DataFrame, table: TableBatch, mirror: MirrorTable, batch: BatchId) -> None:
    """Append rows that are new for certain: of a first snapshot, or inserts into a table without a key."""
    folded = upserts(rows, table) if table.schema.key else fold_keyless(rows, table)
    columns = [f"row.{quote(c.name)} as {quote(c.name)}" for c in table.schema.columns]
    folded.selectExpr(*columns, f"position as {quote(mirror.position_column)}").write.format("delta").mode(
        "append"
    ).option("txnAppId", application_id(batch, table)).option("txnVersion", str(batch.number)).save(mirror.path)


def merge(rows: DataFrame, table: TableBatch, mirror: MirrorTable, *, insert_partial: bool) -> None:
    """Merge the folded batch into the target of a table with a key.

    A target row whose position is later or equal is left alone. A change without all columns keeps the target's
    values; where the target has no such row it fails the whole commit, unless `insert_partial` says that null may
    stand for what is not known.
    """
    from pyspark.sql import functions as sf

    source = fold(rows, table)
    if table.size <= _SMALL and table.truncate_at is None:
        source = sf.broadcast(source)
    at = f"t.{quote(mirror.position_column)}"
    older = f"({at} is null or {at} < s.position)"
    same = " and ".join(
        f"t.{quote(c.name)} {'<=>' if c.nullable else '='} s.row.{quote(c.name)}" for c in table.schema.key_columns
    )
    rest = [c.name for c in table.schema.columns if c.name not in table.schema.key]
    missing = f"raise_error('{MISSING_ROW}')"
    own = quote(mirror.position_column)
    updates: dict[str, str | Column] = {quote(name): f"s.row.{quote(name)}" for name in rest}
    inserts: dict[str, str | Column] = {quote(c.name): f"s.row.{quote(c.name)}" for c in table.schema.columns}
    if table.partial:
        updates = {
            name: f"if(s.present is null or array_contains(s.present, {literal(plain)}), {value}, t.{name})"
            for (name, value), plain in zip(updates.items(), rest, strict=True)
        }
    strict = table.partial and not insert_partial
    updates[own] = f"if(s.whole or s.present is not null, s.position, {missing})" if strict else "s.position"
    inserts[own] = f"if(s.whole, s.position, {missing})" if strict else "s.position"
    merging = (
        mirror.open()
        .alias("t")
        .merge(source.alias("s"), same)
        .whenMatchedDelete(f"{older} and s.op = 'delete'")
        .whenMatchedUpdate(f"{older} and s.op = 'upsert'", set=updates)
        .whenNotMatchedInsert("s.op = 'upsert'", values=inserts)
    )
    if table.truncate_at is not None:
        merging = merging.whenNotMatchedBySourceDelete(_truncated(at, table))
    merging.execute()


def merge_keyless(rows: DataFrame, table: TableBatch, mirror: MirrorTable, spark: SparkSession) -> None:
    """Delete and insert whole rows of a table without a key, in one MERGE.

    Which rows of the target go is read from it before: of the rows equal in every column, the ones with the smallest
    positions. A row to delete that is not there is no error, as with a key.
    """
    from pyspark.sql import functions as sf

    folded = fold_keyless(rows, table)
    names = [quote(c.name) for c in table.schema.columns]
    at = quote(mirror.position_column)
    target = spark.read.format("delta").load(mirror.path)
    standing = target if table.truncate_at is None else target.where(f"not ({_truncated(at, table)})")
    numbered = standing.selectExpr(f"struct({', '.join(names)}) as row", f"{at} as position")
    gone = folded.where("op = 'delete'").selectExpr("occurrences", "row as lost")
    equal = " and ".join(f"row.{name} <=> lost.{name}" for name in names)
    values = ", ".join(f"row.{name}" for name in names)
    deletes = (
        numbered.join(sf.broadcast(gone) if table.size <= _SMALL else gone, sf.expr(equal))
        .selectExpr("*", f"row_number() over (partition by {values} order by position) as nth")
        .where("nth <= occurrences")
        .selectExpr("'delete' as op", "position", "row")
    )
    source = folded.where("op = 'insert'").selectExpr("op", "position", "row").unionByName(deletes)
    here = f"s.op = 'delete' and t.{at} <=> s.position and " + " and ".join(f"t.{n} <=> s.row.{n}" for n in names)
    inserts: dict[str, str | Column] = {n: f"s.row.{n}" for n in names}
    merging = (
        mirror.open()
        .alias("t")
        .merge(source.alias("s"), here)
        .whenMatchedDelete()
        .whenNotMatchedInsert("s.op = 'insert'", values=inserts | {at: "s.position"})
    )
    if table.truncate_at is not None:
        merging = merging.whenNotMatchedBySourceDelete(_truncated(f"t.{at}", table))
    merging.execute()


def _truncated(at: str, table: TableBatch) -> str:
    """Spark SQL: was the target's row there before the truncate?"""
    return f"{at} is null or {at} < {literal(table.truncate_at or '')}"
