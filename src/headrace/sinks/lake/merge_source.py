"""The source of a MERGE: rows that the target's session sees, computed once, and where their keys are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.changes.typed import quote
from headrace.sinks.lake import key_ranges
from headrace.sinks.lake.sessions import SMALL, can_clone
from headrace.spark.local_rows import kept_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.sinks.lake.table import LakeTable

KeySpans = tuple[str, str, list[tuple[Any, Any]]]
"""A key column, its Spark type, and between which values the keys of a batch are; none where that can't be said."""
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"


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
        rows: with a column `row`; of more than `SMALL` only the ends are looked at.
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
