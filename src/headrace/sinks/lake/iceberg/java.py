"""Iceberg's own table in the driver's JVM: what it is, and commits of files that pyarrow wrote.

This is Iceberg's public Java API. Spark's commands on tables are made of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.sinks.lake.iceberg.deletes import PARQUET, PUFFIN, Deletes
from headrace.sinks.lake.iceberg.facts import TableFacts
from headrace.sinks.lake.iceberg.live_files import LiveFiles
from headrace.sinks.lake.s3 import hadoop_settings, of_hadoop, of_iceberg, storage_of
from headrace.sinks.lake.storage import Location, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_HADOOP, _OF_ICEBERG, _ANY = "HadoopFileIO", "S3FileIO", "ResolvingFileIO"
"""The file systems of Iceberg's that are known here; the last one is another for each scheme."""
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
        current = self.own.currentSnapshot()
        return None if current is None else int(current.snapshotId())

    def descent(self) -> Iterator[Any]:
        """Its snapshots from the current one back, as far as they were not expired."""
        snapshot = self.own.currentSnapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.own.snapshot(parent)

    @cached_property
    def facts(self) -> TableFacts:
        table = self.own
        snapshot = table.currentSnapshot()
        deletes = None if snapshot is None else snapshot.summary().get(_EQUALITY_DELETES)
        data = str(table.locationProvider().newDataLocation("x")).rpartition("/")[0]
        default_scheme = Location.of_uri(str(self._hadoop.get("fs.defaultFS"))).scheme
        return TableFacts.of(
            str(self._iceberg.SchemaParser.toJson(table.schema())),
            id=str(table.uuid()),
            format=int(table.operations().current().formatVersion()),
            spec=str(self._iceberg.PartitionSpecParser.toJson(table.spec())),
            specs=int(table.specs().size()),
            ordered=table.sortOrder().isSorted(),
            properties=dict(table.properties()),
            data=data,
            default_scheme=default_scheme,
            storage=self._storage(Location.of_name(data, default_scheme)),
            equality_deletes=deletes not in (None, "0"),
        )

    @property
    def _hadoop(self) -> Any:
        return self._session.sparkContext._jsc.hadoopConfiguration()

    def _storage(self, location: Location) -> Storage | str:
        """How Python reaches the table's files as the catalogue's own file system does."""
        return storage_of(location, self._login)

    def _login(self, location: Location, bucket: str) -> Storage | str:
        files = self.own.io()
        kind = str(files.getClass().getSimpleName())
        if kind == _OF_HADOOP:
            settings = hadoop_settings(self._session.sparkContext._jvm, files.conf())
            return of_hadoop(settings, location.scheme, bucket)
        if kind == _ANY:
            kind = str(files.ioClass(f"{location.scheme}://{location.path}").getSimpleName())
        if kind != _OF_ICEBERG:
            return f"its catalogue reaches files by {kind}"
        if files.credentials().size():
            return "its catalogue lends logins"
        return of_iceberg(dict(files.properties()), bucket)

    def advance(self, files: LiveFiles, snapshot: int | None) -> None:
        """Read the table's files on to a snapshot (`LiveFiles.advance`)."""
        if self.own.spec().isPartitioned():
            parser, kind = self._iceberg.SingleValueParser, self.own.spec().partitionType()
            files.partition_of = lambda file: str(parser.toJson(kind, file.partition()))
        files.has_lineage = self.facts.format >= 3
        files.advance(self._iceberg.ManifestFiles, self.own, snapshot)

    def data_file(self, location: str, size: int, partition: str) -> Any:
        """A data file, described by its own footer.

        Args:
            location: where it is.
            size: in bytes.
            partition: its partition's values (`TableFacts.partition_text`).
        """
        return self._described(
            self._in_partition(self._iceberg.DataFiles.builder(self.own.spec()), partition),
            self._iceberg.MetricsConfig.forTable(self.own),
            location,
            size,
        )

    def _in_partition(self, builder: Any, partition: str) -> Any:
        spec = self.own.spec()
        if not spec.isPartitioned():
            return builder
        return builder.withPartition(self._iceberg.SingleValueParser.fromJson(spec.partitionType(), partition))

    def deletes(self, deletes: Deletes, *, new: bool) -> Any:
        """A file of positions, or a vector, that a commit adds or removes.

        Args:
            deletes: which one.
            new: whether it is added.
        """
        builder = self._iceberg.FileMetadata.deleteFileBuilder(self.own.spec()).ofPositionDeletes()
        builder = self._in_partition(builder, deletes.partition)
        paths = list(deletes.rows)
        if len(paths) == 1:
            builder = builder.withReferencedDataFile(paths[0])
        if deletes.offset is None and new:
            metrics = self._iceberg.MetricsConfig.forPositionDelete(self.own)
            return self._described(builder, metrics, deletes.path, deletes.size)
        if deletes.offset is not None:
            builder = builder.withContentOffset(deletes.offset).withContentSizeInBytes(deletes.length)
        builder = builder.withPath(deletes.path).withFormat(PARQUET if deletes.offset is None else PUFFIN)
        return builder.withFileSizeInBytes(deletes.size).withRecordCount(deletes.count).build()

    def _described(self, builder: Any, metrics: Any, location: str, size: int) -> Any:
        known = self._iceberg.parquet.ParquetUtil.fileMetrics(self.own.io().newInputFile(location), metrics)
        return builder.withPath(location).withFormat("parquet").withFileSizeInBytes(size).withMetrics(known).build()

    def gone_file(self, location: str, rows: int, size: int, partition: str) -> Any:
        """A data file of the table that a commit removes."""
        builder = self._iceberg.DataFiles.builder(self.own.spec()).withPath(location).withFormat("parquet")
        builder = self._in_partition(builder, partition)
        return builder.withFileSizeInBytes(size).withRecordCount(rows).build()
