"""The Delta sink: one Delta table per source table, kept equal to it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace.changes.table import TableId
from headrace.errors import SinkError
from headrace.options import folder
from headrace.permissions import Permissions
from headrace.settings import Settings, option
from headrace.sinks.folder import absolute, folder_identity, folder_permissions, refuse_read_only
from headrace.sinks.lake.delta.table import DeltaTable, folder_of
from headrace.sinks.lake.options import LakeSettings
from headrace.sinks.lake.sink import LakeSink, can_clone
from headrace.spark.jars import DELTA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DeltaPlace(Settings):
    """Where the mirrors lie, and how."""

    path: str = option(
        "The folder for the mirrors. The mirror of a source table is at `<path>/<schema>/<table>`, of a database "
        "without schemas at `<path>/<database>/<table>`; characters "
        "other than letters, digits, `_`, `-` and `.` are written as `~` and two hex digits.",
        kind=folder,
    )
    deletion_vectors: bool = option(
        "Whether new tables mark rows as deleted instead of rewriting files. Cheaper on big tables, but some "
        "readers (deltalake's `to_pyarrow_table`) can't read such tables.",
        default=False,
    )


class DeltaSettings(DeltaPlace, LakeSettings):
    """Of the sink `delta`."""


class DeltaSink(LakeSink):
    """Mirrors source tables as Delta tables, one folder per table, exactly once.

    A target is created with the source's structure (all columns nullable, typed, with comments) and one column more,
    the position of the row's last change. What happens when the source's structure changes is an option.

    Order: per key the change with the last position wins, inside a batch and against what the target holds.
    Idempotence: one data commit per target and batch, with the batch's number in the same Delta transaction; a
    replayed batch leaves the table's version as it is. Metadata (creation, new columns, owner) comes in commits of
    its own before the data and is repeatable. Runs in the driver, which starts Spark jobs. Source of truth for
    progress is Spark's checkpoint; a table only refuses what it already has.
    """

    name: ClassVar[str] = "delta"
    examples: ClassVar[Mapping[str, str]] = {"path": "./lake"}
    offered: ClassVar[tuple[str, ...]] = ("stored_as_scd_type", "schema_change_behavior", "deletion_vectors")
    jars: ClassVar[tuple[str, ...]] = (DELTA,)
    fault_point: ClassVar[str] = "sink.delta"
    settings: DeltaSettings

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
        if spark is not None and can_clone(spark):
            _refuse_without_delta(spark)
        refuse_read_only(self.settings.path)

    def permissions(self, tables: Sequence[TableId], topics: Sequence[str]) -> Permissions:
        """Whether the folder takes a file; one is made and deleted again."""
        return folder_permissions(self.settings.path)

    def target(self, session: SparkSession, id: TableId) -> DeltaTable:
        """The table in its folder."""
        return DeltaTable(session, self.place(id))

    def place(self, id: TableId) -> str:
        """The folder."""
        return folder_of(absolute(self.settings.path), id)

    def places(self, table: TableId | None = None, topic: str | None = None) -> frozenset[str]:
        """The folder, or a table's folder in it."""
        root = folder_identity(self.settings.path)
        # Without regard to case, because not every file system has it.
        return frozenset([root if table is None else folder_of(root, table).lower()])

    def new_table_properties(self) -> dict[str, str]:
        """Whether there are deletion vectors."""
        return {"delta.enableDeletionVectors": "true" if self.settings.deletion_vectors else "false"}


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
