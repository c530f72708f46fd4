"""The Delta sink: one Delta table per source table, kept equal to it."""

from __future__ import annotations

import importlib.util
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace.changes.dataset import Dataset
from headrace.changes.table import TableId
from headrace.errors import OptionError, SinkError
from headrace.options import OTHER_NAMES, Goes, folder
from headrace.permissions import Permissions
from headrace.settings import option
from headrace.sinks.folder import absolute, folder_identity, folder_permissions, refuse_read_only
from headrace.sinks.lake.catalog import (
    UNKNOWN_IN_CATALOG,
    NamedSettings,
    Namespace,
    Naming,
    SessionCatalog,
    hive_dataset,
    hive_session,
    identifier,
    metastore_root,
    reach_metastore,
)
from headrace.sinks.lake.delta.actions import indexed_columns
from headrace.sinks.lake.delta.facts import VECTORS
from headrace.sinks.lake.delta.live_files import LiveFiles
from headrace.sinks.lake.delta.table import DeltaFiles, DeltaTable, PreparedDelta, folder_of
from headrace.sinks.lake.indexed import IndexedTable
from headrace.sinks.lake.key_index import Bounded
from headrace.sinks.lake.layout import TargetLayout
from headrace.sinks.lake.options import IndexSettings, LakeSettings
from headrace.sinks.lake.partitions import IDENTITY, parse_field
from headrace.sinks.lake.s3 import session_login
from headrace.sinks.lake.sessions import can_clone
from headrace.sinks.lake.sink import LakeSink
from headrace.sinks.lake.table import LakeTable
from headrace.sinks.lake.table_files import LakeFiles
from headrace.sinks.lake.variants import VARIANT
from headrace.spark.jars import DELTA
from headrace.spark.releases import require_library

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.apply import TableProfile

_READ_VECTORS = ("spark", "databricks", "fabric", "trino", "duckdb", "snowflake", "bigquery")
_READ_NO_VECTORS = ("deltalake", "polars", "presto", "other")


_INTERVAL, _LOG_RETENTION = "delta.checkpointInterval", "delta.logRetentionDuration"
_SESSION_DEFAULT = "spark.databricks.delta.properties.defaults."
_LEAST_COMMITS, _MOST_COMMITS = 80, 120
"""Between two checkpoints of a table's log."""


class DeltaLocation(NamedSettings):
    """Where the mirrors lie, and how."""

    path: str | None = option(
        "The folder for the mirrors, if they have no names in a catalogue. The mirror of a source table is at "
        "`<path>/<schema>/<table>`, of a database "
        "without schemas at `<path>/<database>/<table>`; characters "
        "other than letters, digits, `_`, `-` and `.` are written as `~` and two hex digits.",
        kind=folder,
        default=None,
    )
    catalog: str | None = option(
        "The catalogue for the mirrors, if they have names: `spark_catalog`, or another one of the session. A mirror "
        "is the table `<catalog>.<namespace>.<table_name>`. Set either this or `path`.",
        default=None,
    )
    catalog_type: str = option(
        "`session` uses the catalogue as the Spark session has it. `hive` is for `headrace run`, which starts Spark "
        "itself: `spark_catalog` is then a Hive metastore.",
        default="session",
        choices=("session", "hive"),
    )
    uri: str | None = option(
        "With `catalog_type: hive`: the metastore's address, `thrift://host:9083`. Without it, Spark keeps a metastore "
        "of its own for one process in the folder `warehouse`.",
        default=None,
    )
    warehouse: str | None = option(
        "With `catalog_type: hive`: the folder that holds the tables of namespaces which are created.",
        kind=folder,
        default=None,
    )
    readers: tuple[str, ...] = option(
        "What reads the tables besides Spark; it decides whether new tables mark rows as deleted (deletion vectors) or "
        "rewrite files. By default they mark them, which costs a batch a fraction, and small batches then go by an "
        "index of keys (`index_memory`). deltalake (`to_pyarrow_table`, `to_pandas`), polars and presto can't read "
        "such tables: with one of them, or with `other` for a reader that is not listed, files are rewritten.",
        default=(),
        choices=(*_READ_VECTORS, *_READ_NO_VECTORS),
        names=OTHER_NAMES,
    )
    deletion_vectors: bool | None = option(
        "Whether new tables mark rows as deleted instead of rewriting files. By default `readers` says it.",
        default=None,
        goes=Goes("0.3", "Name what reads the tables in 'readers'."),
    )


class DeltaSettings(DeltaLocation, IndexSettings, LakeSettings):
    @property
    def marks_rows(self) -> bool:
        """Whether new tables mark rows as deleted."""
        if self.deletion_vectors is not None:
            return self.deletion_vectors
        if self.json_columns == VARIANT:
            # Delta's reader of tables with deletion vectors can't copy variants.
            return False
        return not any(reader in _READ_NO_VECTORS for reader in self.readers)


class DeltaSink(LakeSink):
    """Mirrors source tables as Delta tables, in folders or under names of a catalogue, exactly once.

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
    offered: ClassVar[tuple[str, ...]] = (
        "stored_as_scd_type",
        "delete_mode",
        "schema_change_behavior",
        "readers",
        "compact_every",
    )
    jars: ClassVar[tuple[str, ...]] = (DELTA,)
    fault_point: ClassVar[str] = "sink.delta"
    files: ClassVar[type[LakeFiles] | None] = DeltaFiles
    settings: DeltaSettings

    def __init__(self, settings: DeltaSettings) -> None:
        super().__init__(settings)
        # A platform has its own.
        if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
            require_library("Delta Lake", "delta", DELTA)
        _refuse_two_places(settings)
        _refuse_partitions(settings)
        self._indexes: Bounded[IndexedTable[LiveFiles]] = Bounded(settings.index_bytes)
        self._naming = None if settings.catalog is None else Naming.of(settings, settings.catalog, identifier)

    def check(self) -> None:
        """Whether Delta is there, and the folder can be written or the session has the catalogue. Runs in the driver;
        creates nothing.

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
            _refuse_without_delta(spark, named=self._naming is not None)
            self._refuse_without_catalog(spark)
        for location in (self.settings.path, self.settings.warehouse):
            if location is not None:
                refuse_read_only(location)

    def reach(self) -> str:
        """What `check` looks at, and whether a Hive metastore answers."""
        self.check()
        if self._naming is None:
            return "Can be used."
        if self.settings.uri is not None:
            return reach_metastore(self.settings.uri)
        return f"Can be used; whether Spark reaches catalogue '{self.settings.catalog}' shows when a run starts."

    def permissions(self, tables: Sequence[TableId], topics: Sequence[str]) -> Permissions:
        """Whether the folder takes a file; one is made and deleted again. A catalogue is not asked."""
        location = self.settings.path or self.settings.warehouse
        if location is None:
            return UNKNOWN_IN_CATALOG
        return folder_permissions(location)

    @property
    def session_settings(self) -> Mapping[str, str]:
        """Spark's Hive support, where a Hive metastore is the catalogue."""
        settings = self.settings
        if settings.catalog_type != "hive" or settings.warehouse is None:
            return {}
        return hive_session(absolute(settings.warehouse), settings.uri, settings.catalog_settings)

    def target(self, session: SparkSession, id: TableId) -> DeltaTable:
        """The table in its folder, or under its name.

        Raises:
            SinkError: the session does not have the catalogue.
        """
        if self._naming is None:
            return DeltaTable(session, self.location(id), indexes=self._indexes)
        if can_clone(session):
            self._refuse_without_catalog(session)
        parts = self._naming.parts(id)
        namespace = Namespace(parts[:-1], self.settings.create_namespaces)
        return DeltaTable(session, parts, namespace=namespace, indexes=self._indexes)

    def location(self, id: TableId) -> str:
        if self._naming is not None:
            return ".".join(self._naming.parts(id))
        return folder_of(absolute(self.settings.path or ""), id)

    def places(self, table: TableId | None = None, topic: str | None = None) -> frozenset[str]:
        settings = self.settings
        if self._naming is not None:
            metastore = settings.uri or settings.warehouse if settings.catalog_type == "hive" else None
            root = f"catalogue {settings.catalog}" if metastore is None else metastore_root(metastore)
            return frozenset([root if table is None else self._naming.location(table, root)])
        root = folder_identity(settings.path or "")
        # Without regard to case, because not every file system has it.
        return frozenset([root if table is None else folder_of(root, table).lower()])

    def dataset(self, table: TableId, topic: str | None = None) -> Dataset | None:
        """The folder, or the table in a Hive metastore; None in another catalogue, which alone knows the folder."""
        if self._naming is None:
            return Dataset.of_folder(self.location(table))
        return hive_dataset(self.settings.uri, self._naming.parts(table)) if self.settings.uri else None

    def storage_login(self, spark: SparkSession) -> str:
        """That of the session for the option `path` or `warehouse`; a catalogue alone knows other folders."""
        return session_login(spark, self.settings.path or self.settings.warehouse or "")

    def new_table_properties(self, target: LakeTable) -> dict[str, str]:
        """Whether there are deletion vectors, how often a commit writes a checkpoint of the log, and how long the log
        stays.

        Delta's own default, every tenth commit, costs half of the CPU of small batches. The tables of a pipeline are
        committed in step: intervals that differ keep their checkpoints from all falling into one batch.

        The log of a version is of no use without its data files. By Delta's default it stays for thirty days, which
        at a commit a second are 2.6 million files in one folder.
        """
        some = zlib.crc32(target.location.encode()) % (_MOST_COMMITS - _LEAST_COMMITS)
        unless_session = {_INTERVAL: str(_LEAST_COMMITS + some)}
        if self.settings.vacuum_retain_hours is not None:
            unless_session[_LOG_RETENTION] = f"interval {self.settings.vacuum_retain_hours} hours"
        of_session = target.session.conf
        return {VECTORS: "true" if self.settings.marks_rows else "false"} | {
            name: value
            for name, value in unless_session.items()
            if of_session.get(_SESSION_DEFAULT + name.removeprefix("delta."), None) is None
        }

    def _prepared_for_files(self, target: LakeTable, table: TableProfile, layout: TargetLayout) -> PreparedDelta | str:
        assert isinstance(target, DeltaTable)
        facts = target.facts()
        if isinstance(facts, str) or facts.no_files:
            return facts if isinstance(facts, str) else facts.no_files
        columns = {column.name: column.type for column in layout.columns}
        own_types = {column.name: column.type for column in layout.own}
        if facts.columns != columns | own_types:
            return "its target has other columns"
        assert facts.folder is not None
        indexed = indexed_columns(facts.inside, facts.properties)
        position, mark = self.settings.position_column, self.settings.mark
        return PreparedDelta(
            facts.folder,
            columns,
            position,
            mark,
            facts.partitioning.parts,
            facts.numbers,
            facts.names,
            indexed=indexed,
        )

    def _refuse_without_catalog(self, spark: SparkSession) -> None:
        """Stop where the session can't keep tables under these names.

        Raises:
            SinkError: it has no such catalogue, or keeps its names in memory only.
        """
        if self.settings.catalog is None:
            return
        if self.settings.catalog != "spark_catalog":
            SessionCatalog(
                self.settings.catalog,
                remedy=f"Set spark.sql.catalog.{self.settings.catalog} where the session is started, for example in "
                "spark-defaults.conf, or choose another 'catalog'.",
            ).set_up(spark)
            return
        kind = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
        delta = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
        if kind == "in-memory" and "DeltaCatalog" in delta:
            raise SinkError(
                "This Spark session keeps the names of its tables in memory, where they end with it.",
                remedy="Start it with Hive support (spark.sql.catalogImplementation=hive); for headrace run set "
                "the sink's option 'catalog_type' to 'hive'.",
            )


def _refuse_partitions(settings: DeltaSettings) -> None:
    parts = [text for text in settings.partition_by if parse_field(text).transform != IDENTITY]
    if parts:
        raise OptionError(
            f"Delta tables are partitioned by columns, and '{parts[0]}' is a part of one.",
            remedy="Name a column, or set 'cluster_by_key' instead of 'partition_by'.",
            option="partition_by",
        )
    if settings.partition_by and settings.cluster_by_key:
        raise OptionError(
            "A Delta table has partitions or is clustered, and both 'partition_by' and 'cluster_by_key' are set.",
            remedy="Remove one of them.",
            option="partition_by",
        )


def _refuse_two_places(settings: DeltaSettings) -> None:
    if (settings.path is None) == (settings.catalog is None):
        problem = (
            "has both options, 'path' and 'catalog'"
            if settings.path
            else "needs one of the options 'path' and 'catalog'"
        )
        raise OptionError(
            f"Sink 'delta' {problem}.",
            remedy="Set 'path' for tables in folders, or 'catalog' for tables with names.",
            option="catalog" if settings.path else "",
        )
    if settings.catalog is None:
        given = [name for name in ("namespace", "uri", "warehouse") if settings.get(name) is not None]
        given += ["table_name"] if settings.table_name != "{table}" else []
        given += ["catalog_type"] if settings.catalog_type != "session" else []
        if given:
            raise OptionError(
                f"Option '{given[0]}' of sink 'delta' is for tables with names, and 'path' is set.",
                remedy="Set 'catalog' in place of 'path', or remove it.",
                option=given[0],
            )
    elif settings.catalog_type == "hive":
        if settings.catalog != "spark_catalog" or settings.warehouse is None:
            raise OptionError(
                "Sink 'delta' with catalog_type 'hive' needs 'warehouse', and spark_catalog as its 'catalog'.",
                remedy="Set catalog: spark_catalog, and warehouse to the folder for the tables.",
                option="catalog_type",
            )
    elif settings.uri or settings.warehouse or settings.catalog_settings:
        raise OptionError(
            "Options 'uri', 'warehouse' and 'catalog.*' of sink 'delta' define a catalogue, and catalog_type "
            "'session' takes it as the session has it.",
            remedy="Set catalog_type to 'hive', or remove them.",
            option="catalog_type",
        )


def _refuse_without_delta(spark: SparkSession, *, named: bool) -> None:
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        # Delta is a part of Spark there.
        return
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
    # A table with a name needs Delta in its own catalogue, which may be another one.
    if "DeltaSparkSessionExtension" not in extensions or ("DeltaCatalog" not in catalog and not named):
        raise SinkError(
            "This Spark session does not have Delta Lake.",
            remedy="Start it with the delta-spark package, "
            "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
            "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog.",
        )
