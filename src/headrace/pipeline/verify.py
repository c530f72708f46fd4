"""`Pipeline.verify`: the source, or what its topics say from the beginning, against the tables of the sinks."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.apply import TableProfile, carried, no_order, profile
from headrace.changes import arrow_schema
from headrace.changes.one_table import about, raise_together
from headrace.changes.refusal import StopReason
from headrace.changes.table import TableId
from headrace.errors import ConnectError, HeadraceError, OptionError, SinkError
from headrace.pipeline.checkpoint import check_sound
from headrace.pipeline.comparison import Comparison, compare
from headrace.pipeline.model import Model
from headrace.pipeline.recover import recover
from headrace.pipeline.run import RunningPipeline
from headrace.pipeline.shaping.shape import tables_in
from headrace.pipeline.target import Target
from headrace.settings import Settings
from headrace.sinks.base import BatchId, Sink
from headrace.sinks.java_failures import unknown_failure
from headrace.sources.printed_tables import PrintedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Verified:
    """One table of one sink, compared.

    Args:
        table: the table of the source.
        sink: the sink's label.
        comparison: what its rows are like in the columns that both have.
        lacking: columns that the target should have and does not.
    """

    table: TableId
    sink: str
    comparison: Comparison
    lacking: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the target has every column and every row as it should be."""
        return self.comparison.equal and not self.lacking


@dataclass(frozen=True)
class LeftOut:
    """Columns that a table has in the source, that the options do not exclude, and that no sink gets."""

    table: TableId
    columns: tuple[str, ...]


def verify(model: Model, spark: SparkSession, *, most: int) -> Iterator[Verified | LeftOut]:
    """Read the source's tables again and compare them with those that the sinks keep, table by table.

    PostgreSQL, MySQL and MariaDB print and count their tables themselves (`Source.printed_tables`). Another database is
    read by a separate snapshot (`Source.whole_tables`), and topics are read from their beginning, by a checkpoint of
    their own. All of it goes into a temporary folder. The pipeline's state and its sinks stay as they are. What is read
    goes through the transforms and each sink's routes, so a table is compared with what the sink should hold. Where
    changes go on meanwhile, rows that were changed since the sinks' last batch are reported as different: verify when
    the pipeline has caught up.

    Args:
        model: the pipeline.
        spark: a classic session with the pipeline's jars.
        most: how many differing rows of each table to tell.

    Raises:
        OptionError: no sink keeps tables that can be read back.
        HeadraceError: the source can't be read; or, after all other tables, a table can't be compared.
    """
    targets = [target for target in model.targets if target.sink.reads_back != "no"]
    if not targets:
        raise OptionError(
            f"Pipeline '{model.name}' has no sink whose tables can be compared.",
            remedy="verify compares the tables of sinks that can be read back: delta, iceberg and jdbc.",
        )
    check_sound(model.checkpoint, model.source_type, spark)
    folder = Path(tempfile.mkdtemp(prefix="headrace-verify-"))
    try:
        printed = model.source.printed_tables()
        if printed is None:
            rows = _read_whole_tables(model, spark, folder)
        else:
            left_out = _write_printed_tables(printed, model.source_type, folder)
            yield from left_out
            rows = spark.read.parquet(str(folder / "rows"))
        if rows is None:
            return
        rows.persist()
        # As each sink should hold them: transformed and under the names of its routes.
        ways = {target.shaping.key: target.shaping for target in targets}
        found_tables = tables_in(rows) if any(ways) else {}
        shaped = {key: way.rows(rows, found_tables).persist() if key else rows for key, way in ways.items()}
        # What orders changes is the sink's own option.
        orders = {target.label: target.sink.sequenced(shaped[target.shaping.key]) for target in targets}
        tables = {label: profile(ordered) for label, ordered in orders.items()}
        failures: list[Exception] = []
        for id in sorted({table.id for profiles in tables.values() for table in profiles}):
            for target in targets:
                for table in tables[target.label]:
                    if table.id != id:
                        continue
                    try:
                        verified = _verified(orders[target.label], table, target, spark, most)
                    except ConnectError:
                        raise
                    except HeadraceError as failure:
                        # What one table has, or lacks, says nothing of the others.
                        failures.append(about(failure, id))
                    else:
                        yield verified
        for kept in (rows, *shaped.values()):
            kept.unpersist()
        if failures:
            raise_together(failures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_printed_tables(printed: Iterator[PrintedTable], connector: str, folder: Path) -> list[LeftOut]:
    """Keep tables as a source prints them as the change rows of a snapshot, a file each."""
    import pyarrow.parquet as pq

    (folder / "rows").mkdir()
    now, left_out = dt.datetime.now(dt.UTC), []
    for number, table in enumerate(printed):
        with pq.ParquetWriter(folder / "rows" / f"{number:05}.parquet", arrow_schema()) as writer:
            for batch in table.change_rows(connector, now):
                writer.write_batch(batch)
        if table.left_out:
            left_out.append(LeftOut(table.schema.id, table.left_out))
    return left_out


def _read_whole_tables(model: Model, spark: SparkSession, folder: Path) -> DataFrame | None:
    source = model.source
    # A source that takes no snapshots gives its whole log from the beginning instead.
    replaced = [option for option in source.options if option.name in source.whole_tables]
    ours = {option.name: source.whole_tables[option.name] for option in replaced}
    given = model.source_options.items()
    options = {name: value for name, value in given if not any(one.has_name(name) for one in replaced)} | ours
    kept = _Kept(str(folder / "rows"))
    reading = replace(
        model,
        name=f"{model.name} (verify)",
        checkpoint=str(folder / "checkpoint"),
        source=source.replaced(**ours),
        source_options=options,
        targets=(Target("kept", kept, None, "", "rows to compare"),),
        dead_letters=None,
    )
    RunningPipeline(reading, spark, once=True).wait()
    return spark.read.parquet(*kept.folders) if kept.folders else None


def _verified(rows: DataFrame, table: TableProfile, target: Target, spark: SparkSession, most: int) -> Verified:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with carried(rows, table) as whole:
            return _compared(whole, table, target, spark, most)
    except (PySparkException, Py4JError) as failure:
        if StopReason.NO_ORDER in str(failure):
            raise no_order(str(table.id)) from failure
        known = recover(failure)
        raise known or unknown_failure(f"Table {table.id} can't be compared with {target.label}", failure) from failure


def _compared(rows: DataFrame, table: TableProfile, target: Target, spark: SparkSession, most: int) -> Verified:
    from pyspark import StorageLevel

    sink = target.sink
    expected = sink.expected(rows, table)
    columns = tuple(column for column in table.schema.columns if column.name in expected.columns)
    actual = sink.now(spark, replace(table.schema, columns=columns))
    if actual is None:
        raise SinkError(
            f"Table {table.id} is not in {target.label}.",
            remedy="Run the pipeline first, or look at its sink's options.",
        )
    lacking = tuple(name for name in expected.columns if name not in actual.columns)
    unknown_key = next((name for name in lacking if name in table.schema.key), None)
    if unknown_key is not None:
        raise SinkError(
            f"Table {table.id} has no column '{unknown_key}' in {target.label}, which is in its key.",
            remedy="Let the pipeline catch up.",
        )
    expected = expected.drop(*lacking)
    # What is compared is the state of one moment.
    actual = actual.persist(StorageLevel.MEMORY_AND_DISK) if sink.reads_back == "live" else actual
    try:
        return Verified(table.id, target.label, compare(expected, actual, table.schema.key, most=most), lacking)
    finally:
        actual.unpersist()


class _Kept(Sink):
    """Keeps the rows of each batch in a folder of its own."""

    name: ClassVar[str] = "kept"
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    takes: ClassVar[Literal["messages", "changes"]] = "changes"

    def __init__(self, folder: str) -> None:
        super().__init__(Settings())
        self._folder = folder
        self.folders: list[str] = []

    def check(self) -> None:
        """A temporary folder is always there."""

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        folder = f"{self._folder}/{batch.number}"
        rows.write.mode("overwrite").parquet(folder)
        if folder not in self.folders:
            self.folders.append(folder)
