"""Whether the workers of a pipeline's source write rows of a table's first snapshot into files of its target, so that
none of them passes through Spark.

The tables are the same either way, row for row, so each batch of each table may go another way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.changes import TableId, TableSchema
from headrace.changes.table_files import TABLE_FILES
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.sinks.base import BatchId
from headrace.sources.databases import Databases, Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.model import Model

_LOG = logging.getLogger("headrace.pipeline")


def no_first_loads(model: Model, schema: TableSchema | None = None) -> str:
    """Why workers write no files of a pipeline's tables, as the end of a sentence; empty where they do. Makes no
    request.

    Args:
        model: its file.
        schema: the structure of one table; None for what all tables have in common.
    """
    if isinstance(model.source, KafkaTopics):
        return "the source is Kafka"
    if len(model.targets) > 1:
        return "there are several sinks"
    (target,) = model.targets
    if not target.shaping.changes_nothing:
        return f"{target.label} has routes or transforms"
    return Databases(model.source).no_files or target.sink.no_files(schema)


class FirstLoads:
    """Lets the workers of a source write files in those batches that read tables for the first time. Runs in the
    driver.

    Args:
        model: the pipeline.
        offset: the offset in which a batch ends, by its number, as the checkpoint has it.
    """

    def __init__(self, model: Model, offset: Callable[[int], str | None]) -> None:
        self._reason = no_first_loads(model)
        self._model = model
        self._offset = offset
        self._left_out: set[TableId] = set()
        self._told: dict[str, str] = {}
        self.rows = 0
        """About how many rows workers write into files in the batch that is read now."""

    def login(self, spark: SparkSession) -> str:
        """The login that these workers need for that; may hold secrets."""
        return "" if self._reason else self._model.targets[0].sink.storage_login(spark)

    @contextmanager
    def of_batch(self, spark: SparkSession, batch: BatchId, parked: Collection[TableId]) -> Iterator[None]:
        """Tell the tasks that jobs of this thread start meanwhile where rows of the batch's tables may be written.

        Args:
            spark: the session that reads the batch.
            batch: it.
            parked: the tables whose rows nobody asks for.
        """
        out = {*parked, *self._left_out}
        planned = [] if self._reason else [one for one in self._tables(batch.number) if one[0].id not in out]
        tables = [table for table, _ in planned]
        files = None
        if tables:
            files, reasons = self._model.targets[0].sink.table_files(spark, tables, batch)
            self._tell(reasons)
        if files is None:
            yield
            return
        self.rows = sum(rows for _, rows in planned)
        context = spark.sparkContext
        context.setLocalProperty(TABLE_FILES, f"{files.sink} {files.to_text()}")
        try:
            yield
        finally:
            # Rows that are computed again later would be written again, and nobody would name the files.
            context.setLocalProperty(TABLE_FILES, None)  # type: ignore[arg-type]
            self.rows = 0

    def leave_out(self, table: TableId) -> None:
        """From now on the table's rows come as change rows."""
        self._left_out.add(table)

    def _tables(self, number: int) -> Sequence[tuple[TableSchema, int]]:
        """The tables of which the batch reads chunks of their first snapshot, as these were planned, with about how
        many rows these have."""
        assert not isinstance(self._model.source, KafkaTopics)
        offsets = Offsets.from_text(self._offset(number)) or Offsets()
        planned: list[tuple[TableSchema, int]] = []
        size = self._model.source.snapshots.chunk_rows
        for name, source in self._model.source.databases().items():
            end = offsets.of(name)
            chunks = {path: one for path, one in end.tables.items() if one.bounds and not one.read}
            if chunks:
                schemas = [schema for schema in source.schemas(end) if schema.id.path in chunks]
                planned += [(schema, chunks[schema.id.path].rows_of_batch(size)) for schema in schemas]
        return planned

    def _tell(self, reasons: Mapping[str, str]) -> None:
        for table, reason in reasons.items():
            if self._told.get(table) != reason:
                _LOG.info("Rows of table '%s' are written by Spark: %s.", table, reason)
                self._told[table] = reason
