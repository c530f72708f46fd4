"""What a batch holds: how many rows by table and operation, and what the tasks that read it say of their messages.

Values that messages and tables do not hold are counted by sink, and logged once.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.changes import TableId
from headrace.changes.row import Operation
from headrace.changes.table_files import FOLDED_COUNTS, WRITTEN_ROWS, FoldedPart
from headrace.formats.encoding import OutOfRange
from headrace.observe.messages import MOST_REASONS
from headrace.observe.progress import BatchCount
from headrace.pipeline.target import Target
from headrace.sinks.base import BatchId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_ONE_TASK = (200_000, 256 << 20)
"""The most changes, and bytes of their messages, that one task brings into order for files; more are shuffled, which
costs far more.
"""


@dataclass(frozen=True)
class BatchSummary:
    """What a batch holds.

    Args:
        counts: rows by table and operation.
        out_of_range: values that the format did not hold, where workers of the source encoded.
        message_bytes: the bytes of the messages that those workers made and left to Spark.
        left: why they left them, or some of them, to Spark; empty where all rest in the sink, or none had to be sent.
    """

    counts: Sequence[BatchCount]
    out_of_range: OutOfRange = field(default_factory=OutOfRange)
    message_bytes: int = 0
    left: str = ""

    @property
    def suits_one_task(self) -> bool:
        """Whether one task can bring its messages into order."""
        rows, most = _ONE_TASK
        return self.message_bytes <= most and sum(count.rows for count in self.counts) <= rows


def count_rows(changes: DataFrame, *, several: bool = False) -> list[BatchCount]:
    """Rows by table and operation: one small aggregation, which also computes the persisted batch.

    Args:
        changes: the batch's rows.
        several: whether names of tables begin with their database.
    """
    from pyspark.sql import functions as sf

    named = changes.selectExpr(
        *("table.database", "table.schema", "table.name", "op"),
        # A row that names a file which workers wrote says how many rows of a snapshot it has.
        f"if(op = 'schema', cast(source['{WRITTEN_ROWS}'] as bigint), null) as in_file",
        f"if(op = 'schema', source['{FOLDED_COUNTS}'], null) as folded",
        # Seconds since the epoch, because a timestamp would come back in this machine's time zone.
        *(f"cast({name} as double) as {name}" for name in ("event_time", "capture_time")),
    )
    sums = ("count(1) as n", "max(event_time) as newest", "min(event_time) as oldest")
    files = ("sum(in_file) as in_files", "max(capture_time) as captured", "collect_list(folded) as folded")
    grouped = named.groupBy("database", "schema", "name", "op").agg(*map(sf.expr, (*sums, *files)))
    return _together(count for row in grouped.collect() for count in _counts(row, several=several))


def _counts(row: Row, *, several: bool) -> list[BatchCount]:
    id = None if row["name"] is None else TableId(row["database"] or "", row["schema"] or "", row["name"])
    path = "" if id is None else ".".join(filter(None, (id.database if several else "", id.schema, id.name)))
    times = (_instant(row["newest"]), _instant(row["oldest"]))
    counts = [BatchCount(path, row["op"] or "", row["n"], *times, id)]
    if row["in_files"]:
        captured = _instant(row["captured"])
        counts.append(BatchCount(path, Operation.READ.value, row["in_files"], captured, captured, id))
    for text in row["folded"]:
        folded = FoldedPart.from_source(text)
        oldest, newest = map(_instant, folded.times or (None, None))
        counts += [BatchCount(path, op, count, newest, oldest, id) for op, count in folded.counts.items()]
    return counts


def _together(counts: Iterable[BatchCount]) -> list[BatchCount]:
    """Those of one table and operation as one, in order: of a snapshot some rows may be in files, and others not."""
    summed: dict[tuple[TableId | None, str], BatchCount] = {}
    for one in counts:
        other = summed.setdefault((one.id, one.op), one)
        if other is not one:
            newest = max(filter(None, (one.newest, other.newest)), default=None)
            oldest = min(filter(None, (one.oldest, other.oldest)), default=None)
            summed[one.id, one.op] = replace(one, rows=one.rows + other.rows, newest=newest, oldest=oldest)
    return sorted(summed.values(), key=lambda count: (count.table, count.op))


def _instant(seconds: float | None) -> dt.datetime | None:
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC)


def summary_of_messages(messages: DataFrame, *, several: bool = False) -> BatchSummary:
    """What the tasks of a source report of their changes; also computes the persisted batch.

    Args:
        messages: the batch.
        several: whether names of tables begin with their database.
    """
    seconds = ("cast(newest as double) as last", "cast(oldest as double) as begin")
    rows = messages.where("counted is not null").selectExpr("counted.*").selectExpr("*", *seconds).collect()
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        database = f"{row['database']}." if several and row["database"] else ""
        parts.setdefault((f"{database}{row['table_path'] or ''}", row["op"] or ""), []).append(row)
    counts = []
    for (path, op), lines in sorted(parts.items()):
        newest = max((line["last"] for line in lines if line["last"] is not None), default=None)
        oldest = min((line["begin"] for line in lines if line["begin"] is not None), default=None)
        counts.append(BatchCount(path, op, sum(line["rows"] for line in lines), _instant(newest), _instant(oldest)))
    out_of_range = OutOfRange.of_texts(row["out_of_range"] for row in rows)
    left = min((row["left"] for row in rows if row["left"]), default="")
    return BatchSummary(counts, out_of_range, sum(row["bytes"] for row in rows), left)


def count_reasons(errors: DataFrame) -> dict[str, int]:
    """The commonest reasons of `error` rows; not all, where there are more than `MOST_REASONS`."""
    from pyspark.sql import functions as sf

    grouped = errors.groupBy("error").agg(sf.count("*").alias("n")).orderBy(sf.desc("n"), "error").limit(MOST_REASONS)
    return {row["error"] or "": row["n"] for row in grouped.collect()}


_LOG = logging.getLogger("headrace.pipeline")


_Counts = dict[str, dict[str, int]]
"""How many values by table and column."""


def count_out_of_range(out_of_range: Sequence[tuple[Target, OutOfRange]], batch: BatchId, *, several: bool) -> _Counts:
    """How many values a batch's formats did not hold by table and column; each format that has some is logged.

    Args:
        out_of_range: the sinks, with what was counted for them.
        batch: the batch.
        several: whether names of tables begin with their database.
    """
    for target, lost in out_of_range:
        if lost.values:
            _LOG.warning(
                "Batch %d: the format of %s does not hold some values (%s). Null stands there, or the nearest value "
                "where the column can't be NULL (event.converting.failure.handling.mode). The first is in %s.",
                batch.number,
                target.label,
                _listed(lost.columns),
                lost.first,
            )
    return _named([lost.columns for _, lost in out_of_range], several=several)


def count_nulled(targets: Sequence[Target], batch: BatchId, *, several: bool) -> _Counts:
    """How many values sinks wrote as NULL by table and column; each sink that did is logged.

    Args:
        targets: the sinks that got rows of the batch.
        batch: the batch.
        several: whether names of tables begin with their database.
    """
    nulled_by_sink = []
    for target in targets:
        tables = target.sink.nulled()
        nulled = {(id, name): count for id, columns in tables.items() for name, count in columns.items()}
        nulled_by_sink.append(nulled)
        if nulled:
            _LOG.warning(
                "Batch %d: columns of %s have no place for some values, and NULL stands there (unrepresentable): %s.",
                batch.number,
                target.label,
                _listed(nulled),
            )
    return _named(nulled_by_sink, several=several)


def _listed(columns: Mapping[tuple[TableId, str], int]) -> str:
    lines = sorted((f"{id}.{name}", count) for (id, name), count in columns.items())
    return "; ".join(f"{count:,} in {column}" for column, count in lines)


def _named(sinks: Sequence[Mapping[tuple[TableId, str], int]], *, several: bool) -> _Counts:
    by_table: dict[str, Counter[str]] = {}
    for (id, name), count in (line for columns in sinks for line in columns.items()):
        by_table.setdefault(id.full_path if several else id.path, Counter())[name] += count
    return {table: dict(columns) for table, columns in by_table.items()}
