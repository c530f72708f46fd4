"""Iceberg's own table in the driver's JVM: what it is, and commits of files that pyarrow wrote.

This is Iceberg's public Java API. Spark's commands on tables are made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.sinks.lake.iceberg.facts import TableFacts
from headrace.sinks.lake.iceberg.live_files import LiveFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EQUALITY_DELETES = "total-equality-deletes"


class JavaTable:
    """A table that is there.

    Args:
        session: a session with a JVM in this process.
        table: Iceberg's own.
    """

    def __init__(self, session: SparkSession, table: Any) -> None:
        self._session = session
        self.own = table

    @cached_property
    def _iceberg(self) -> Any:
        # Each part of such a name is a question to the JVM.
        jvm: Any = self._session.sparkContext._jvm
        return jvm.org.apache.iceberg

    @property
    def snapshot(self) -> int | None:
        """Where it stands; None where it has no snapshot."""
        found = self.own.currentSnapshot()
        return None if found is None else int(found.snapshotId())

    def descent(self) -> Iterator[Any]:
        """Its snapshots from the current one back, as far as they were not expired."""
        snapshot = self.own.currentSnapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.own.snapshot(parent)

    @cached_property
    def facts(self) -> TableFacts:
        """What the table is."""
        table = self.own
        snapshot = table.currentSnapshot()
        deletes = None if snapshot is None else snapshot.summary().get(_EQUALITY_DELETES)
        specs = table.specs()
        return TableFacts.of(
            str(self._iceberg.SchemaParser.toJson(table.schema())),
            id=str(table.uuid()),
            format=int(table.operations().current().formatVersion()),
            partitioned=specs.size() > 1 or table.spec().isPartitioned(),
            ordered=table.sortOrder().isSorted(),
            properties=dict(table.properties()),
            data=str(table.locationProvider().newDataLocation("x")).rpartition("/")[0],
            default_files=str(self._session.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")),
            equality_deletes=deletes not in (None, "0"),
        )

    def advance(self, files: LiveFiles, snapshot: int | None) -> None:
        """Read the table's files on to a snapshot (`LiveFiles.advance`)."""
        files.advance(self._iceberg.ManifestFiles, self.own, snapshot)

    def data_file(self, location: str, size: int) -> Any:
        """A data file, described by its own footer."""
        return self._described(
            self._iceberg.DataFiles.builder(self.own.spec()),
            self._iceberg.MetricsConfig.forTable(self.own),
            location,
            size,
        )

    def position_deletes(self, location: str, size: int, of: Iterable[str]) -> Any:
        """A file of positions.

        Args:
            location: where it is.
            size: in bytes.
            of: the data files that have the rows.
        """
        builder = self._iceberg.FileMetadata.deleteFileBuilder(self.own.spec()).ofPositionDeletes()
        paths = list(of)
        if len(paths) == 1:
            builder = builder.withReferencedDataFile(paths[0])
        return self._described(builder, self._iceberg.MetricsConfig.forPositionDelete(self.own), location, size)

    def _described(self, builder: Any, metrics: Any, location: str, size: int) -> Any:
        known = self._iceberg.parquet.ParquetUtil.fileMetrics(self.own.io().newInputFile(location), metrics)
        return builder.withPath(location).withFormat("parquet").withFileSizeInBytes(size).withMetrics(known).build()

    def gone_file(self, location: str, rows: int) -> Any:
        """A data file of the table that a commit removes."""
        size = Path(location.removeprefix("file:")).stat().st_size
        builder = self._iceberg.DataFiles.builder(self.own.spec()).withPath(location).withFormat("parquet")
        return builder.withFileSizeInBytes(size).withRecordCount(rows).build()
