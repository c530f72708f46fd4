"""The Delta sink: one Delta table per source table, kept equal to it."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace import faultpoints
from headrace.apply import TableBatch, survey
from headrace.errors import SchemaError, SinkError
from headrace.options import Option
from headrace.sinks import delta_commit as commit
from headrace.sinks.base import BatchId, Sink
from headrace.sinks.delta_table import MirrorTable, TargetPlan, folder_of
from headrace.sinks.folder import absolute, refuse_read_only
from headrace.sinks.table_sink import (
    MAX_PARALLEL_TABLES,
    MISSING_ROW,
    POSITION_COLUMN,
    TAKEOVER,
    WRONG_VALUE,
    side_by_side,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class _Work:
    """One table of one batch, looked at and ready to be written."""

    session: SparkSession
    table: TableBatch
    mirror: MirrorTable
    plan: TargetPlan


class DeltaSink(Sink):
    """Mirrors source tables as Delta tables, one folder per table, exactly once.

    A target is created with the source's structure (all columns nullable, typed, with comments) and one column more,
    the position of the row's last change. New columns are added; any other change of structure stops the run before a
    row is written.

    Order: per key the change with the last position wins, inside a batch and against what the target holds.
    Idempotence: one data commit per target and batch, with the batch's number in the same Delta transaction; a
    replayed batch leaves the table's version as it is. Metadata (creation, new columns, owner) comes in commits of
    its own before the data and is repeatable. Runs in the driver, which starts Spark jobs. Source of truth for
    progress is Spark's checkpoint; a table only refuses what it already has.
    """

    name: ClassVar[str] = "delta"
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    takes: ClassVar[Literal["messages", "changes"]] = "changes"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "path",
            str,
            "The folder that holds the mirrors. A source table's lies at `<path>/<schema>/<table>`; characters other "
            "than letters, digits, `_`, `-` and `.` are written as `~` and two hex digits.",
        ),
        POSITION_COLUMN,
        TAKEOVER,
        MISSING_ROW,
        Option(
            "deletion_vectors",
            bool,
            "Whether new tables mark rows as deleted instead of rewriting files. Cheaper on big tables, but some "
            "readers (deltalake's `to_pyarrow_table`) can't read such tables.",
            default=False,
        ),
        MAX_PARALLEL_TABLES,
    )

    def check(self) -> None:
        """Whether Delta is there and the folder can be written. Runs in the driver; creates nothing.

        Raises:
            SinkError: it can't; with a remedy.
        """
        from pyspark.sql import SparkSession

        if importlib.util.find_spec("delta") is None:
            raise SinkError(
                "The Delta sink needs the Python package 'delta-spark'.", remedy="pip install 'headrace[delta]'."
            )
        spark = SparkSession.getActiveSession()
        if spark is not None and commit.can_clone(spark):
            _refuse_without_delta(spark)
        refuse_read_only(self.settings["path"])

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Bring the mirrors of all tables in the batch up to its end: tables side by side, each in its own commit.

        When one table fails, others of the batch may be committed; a retry of the batch finds them done and does the
        rest.

        Raises:
            SinkError: a target belongs to another pipeline or checkpoint, or can't be written.
            SchemaError: a target can't carry the structure or a change; nothing of the batch is in that table.
        """
        spark = rows.sparkSession
        tables = survey(rows)
        self._refuse_shared_folders(tables)
        # Every target is looked at before the first is touched.
        workers = self.settings["max_parallel_tables"] if commit.can_clone(spark) else 1
        works = side_by_side(spark, tables, lambda table: self._look(spark, table, batch), workers=workers)
        side_by_side(spark, works, lambda work: self._bring(rows, work, batch), workers=workers)

    def _look(self, spark: SparkSession, table: TableBatch, batch: BatchId) -> _Work:
        session = commit.session_for(spark, table)
        mirror = MirrorTable(session, folder_of(self._base, table.id), self.settings["position_column"])
        with _explained(table, mirror):
            plan = mirror.plan(table, owner=batch.owner, takeover=self.settings["takeover"])
        return _Work(session, table, mirror, plan)

    def _bring(self, rows: DataFrame, work: _Work, batch: BatchId) -> None:
        table, mirror = work.table, work.mirror
        with _explained(table, mirror):
            vectors = "true" if self.settings["deletion_vectors"] else "false"
            mirror.prepare(work.plan, properties={"delta.enableDeletionVectors": vectors})
            if not table.size:
                return
            faultpoints.reach("sink.delta.before_commit")
            if work.plan.append:
                commit.append(rows, table, mirror, batch)
            else:
                with commit.batch_of(work.session, table, batch):
                    if table.schema.key:
                        commit.merge(rows, table, mirror, insert_partial=self.settings["missing_row"] == "insert")
                    else:
                        commit.merge_keyless(rows, table, mirror, work.session)
            faultpoints.reach("sink.delta.after_commit")

    @property
    def _base(self) -> str:
        return absolute(self.settings["path"])

    def _refuse_shared_folders(self, tables: Sequence[TableBatch]) -> None:
        # Without regard to case, because not every file system has it.
        for folder, n in Counter(folder_of(self._base, table.id).lower() for table in tables).items():
            if n > 1:
                raise SinkError(
                    f"{n} tables of the batch would share the folder {folder}.",
                    remedy="Give each source database a sink of its own, with its own 'path'.",
                )


@contextmanager
def _explained(table: TableBatch, mirror: MirrorTable) -> Iterator[None]:
    """Spark's failures as ours: what went wrong with which table, without any value of a cell."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as failure:
        text = str(failure)
        if commit.MISSING_ROW in text:
            raise SchemaError(
                f"An update of table {table.id} does not carry all columns, "
                f"and the Delta table {mirror.path} has no row of its key.",
                remedy="Take a new snapshot of the table, or set the sink's option 'missing_row' to 'insert'.",
            ) from failure
        if any(kind in text for kind in WRONG_VALUE):
            raise SchemaError(
                f"A value of table {table.id} does not fit its column's type in the Delta table {mirror.path}.",
                remedy="Compare the source's column types with the table's; --debug shows Spark's own message.",
            ) from failure
        condition = failure.getCondition() if isinstance(failure, PySparkException) else None
        raise SinkError(
            f"The Delta table {mirror.path} can't be written ({condition or type(failure).__name__}).",
            remedy="--debug shows Spark's own message. The batch can be repeated.",
        ) from failure


def _refuse_without_delta(spark: SparkSession) -> None:
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
    if "DeltaSparkSessionExtension" not in extensions or "DeltaCatalog" not in catalog:
        raise SinkError(
            "This Spark session does not have Delta Lake.",
            remedy="Start it with the delta-spark package, "
            "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
            "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog.",
        )
