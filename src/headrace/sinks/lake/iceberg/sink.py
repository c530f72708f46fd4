"""The Iceberg sink: one Iceberg table per source table, kept equal to it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from headrace.changes.dataset import Dataset
from headrace.changes.table import TableId
from headrace.errors import ConnectError, OptionError, SinkError
from headrace.options import folder
from headrace.permissions import Permissions
from headrace.settings import option
from headrace.sinks.folder import absolute, folder_identity, folder_permissions, refuse_read_only
from headrace.sinks.jdbc.database import Address, Database, parse_address
from headrace.sinks.jdbc.mariadb import MariaDb
from headrace.sinks.jdbc.postgresql import Postgres
from headrace.sinks.lake.catalog import (
    UNKNOWN_IN_CATALOG,
    NamedSettings,
    Namespace,
    Naming,
    SessionCatalog,
    escaped,
    hive_dataset,
    identifier,
    metastore_root,
    reach_metastore,
)
from headrace.sinks.lake.iceberg.live_files import LiveFiles
from headrace.sinks.lake.iceberg.rest import reach_rest_catalog
from headrace.sinks.lake.iceberg.table import IcebergFiles, IcebergTable, PreparedIceberg, refuse_without_iceberg
from headrace.sinks.lake.indexed import IndexedTable
from headrace.sinks.lake.key_index import Bounded
from headrace.sinks.lake.layout import TargetLayout
from headrace.sinks.lake.options import IndexSettings, LakeSettings
from headrace.sinks.lake.s3 import of_iceberg, session_login
from headrace.sinks.lake.sessions import can_clone
from headrace.sinks.lake.sink import LakeSink
from headrace.sinks.lake.storage import Location, Storage
from headrace.sinks.lake.table import LakeTable
from headrace.sinks.lake.table_files import LakeFiles
from headrace.sinks.lake.variants import VARIANT
from headrace.spark.jars import ICEBERG
from headrace.spark.releases import require_library

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.apply import TableProfile

_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_WITH_ADDRESS = {
    "jdbc": "the JDBC URL of the catalogue's database",
    "rest": "the server's address, up to where '/v1/config' begins",
    "hive": "the metastore's address, thrift://host:9083",
}
"""The catalogues that are servers, and how each is addressed."""
_ONLY_WITH = {
    "uri": ("rest", "hive", "jdbc"),
    "token": ("rest",),
    "credential": ("rest",),
    "user": ("jdbc",),
    "password": ("jdbc",),
}
_TAKE_ANY_NAME = ("hadoop", "jdbc")
_CATALOGUES: dict[str, tuple[Callable[[Address], Database], str]] = {
    "postgresql": (Postgres, "psycopg"),
    "mariadb": (MariaDb, "pymysql"),
}
"""Databases of catalogues that can be reached without Java, each with the package that does it."""


class IcebergLocation(NamedSettings):
    """In which catalogue the mirrors lie, and how."""

    catalog: str = option(
        "The catalogue's name in Spark. If the session has this catalogue, the sink uses it as it is; otherwise "
        "the options below define it, for this sink only. A mirror is the table `<catalog>.<namespace>.<table_name>`.",
        default="lake",
    )
    catalog_type: str = option(
        "`rest` is a server that speaks Iceberg's REST protocol, `hive` a Hive metastore, `glue` AWS Glue (with "
        "Iceberg's AWS bundle on Spark's class path); `jdbc` keeps the tables' state in a database; `hadoop` keeps it "
        "in folders of the warehouse, for file systems with an atomic rename and one writer.",
        default="hadoop",
        choices=("hadoop", "jdbc", "rest", "hive", "glue"),
    )
    warehouse: str | None = option(
        "The folder that holds the tables; needed unless the session knows the catalogue. Of a `rest` catalogue it is "
        "the warehouse as that server names it, and may be left out.",
        kind=folder,
        default=None,
        aliases=("path",),
        no_folder_with=("catalog_type", "rest"),
    )
    uri: str | None = option(
        "The catalogue's address: `https://host/api/catalog` (`rest`), `thrift://host:9083` (`hive`), or the JDBC URL "
        "of its database (`jdbc:postgresql://host/db`), whose driver must be on Spark's class path.",
        default=None,
    )
    token: str | None = option(
        "The token for a `rest` catalogue.",
        default=None,
    )
    credential: str | None = option(
        "`client:secret` for a `rest` catalogue, which gives a token for it (OAuth 2).",
        default=None,
    )
    user: str | None = option(
        "The user of a `jdbc` catalogue's database.",
        default=None,
    )
    password: str | None = option(
        "The user's password.",
        default=None,
    )
    merge_on_read: bool = option(
        "Whether new tables write delete files instead of rewriting data files. Cheaper to write, more expensive "
        "to read until files are rewritten.",
        default=True,
    )

    format_version: str = option(
        "The format of new tables. `3` keeps deletes as vectors, one for each data file, where `2` has files of "
        "positions; not every reader knows it. A table that is there keeps its format.",
        default="2",
        choices=("2", "3"),
    )


class IcebergSettings(IcebergLocation, IndexSettings, LakeSettings):
    """Of the sink `iceberg`."""


class IcebergSink(LakeSink):
    """Mirrors source tables as Iceberg tables of a catalogue, exactly once.

    A target is created with the source's structure (typed, with comments; the key as identifier fields) and one column
    more, the position of the row's last change. What happens when the source's structure changes is an option.

    Order: per key the change with the last position wins, inside a batch and against what the target holds.
    Idempotence: one snapshot per target and batch, whose summary says pipeline, checkpoint, number and a hash of its
    offsets (`headrace.owner`, `headrace.batch`, `headrace.offsets`, `headrace.target`); a replayed batch finds it and
    changes nothing. It is written to a branch of its own and published only where nothing else has landed since the
    sink looked, so that two runs of one batch at once do not both land. Snapshots may be expired, but not the last of
    ours. Metadata (creation, new columns, owner) comes in commits of its own before the data and is repeatable. Runs in
    the driver, which starts Spark jobs; needs the driver's JVM, so not over Spark Connect.
    """

    name: ClassVar[str] = "iceberg"
    examples: ClassVar[Mapping[str, str]] = {"warehouse": "./warehouse"}
    offered: ClassVar[tuple[str, ...]] = (
        "namespace",
        "stored_as_scd_type",
        "partition_by",
        "delete_mode",
        "schema_change_behavior",
        "compact_every",
    )
    jars: ClassVar[tuple[str, ...]] = (ICEBERG,)
    fault_point: ClassVar[str] = "sink.iceberg"
    files: ClassVar[type[LakeFiles] | None] = IcebergFiles
    settings: IcebergSettings

    def __init__(self, settings: IcebergSettings) -> None:
        super().__init__(settings)
        require_library("Iceberg", "iceberg", ICEBERG)
        if settings.json_columns == VARIANT:
            raise OptionError(
                "The sink 'iceberg' does not write variants: Iceberg can't merge rows that have some.",
                remedy="Set 'json_columns' to string, or use the sink 'delta'.",
            )
        if settings.catalog_type in _WITH_ADDRESS and not settings.uri:
            raise OptionError(
                f"Sink 'iceberg' with catalog_type '{settings.catalog_type}' needs the option 'uri'.",
                remedy=f"Set it to {_WITH_ADDRESS[settings.catalog_type]}.",
            )
        foreign = [
            name for name, kinds in _ONLY_WITH.items() if settings.get(name) and settings.catalog_type not in kinds
        ]
        if foreign:
            kinds = " or ".join(f"'{kind}'" for kind in _ONLY_WITH[foreign[0]])
            raise OptionError(
                f"Option '{foreign[0]}' of sink 'iceberg' has no effect with catalog_type '{settings.catalog_type}'.",
                remedy=f"Set catalog_type to {kinds}, or remove the option.",
                option=foreign[0],
            )
        written = escaped if settings.catalog_type in _TAKE_ANY_NAME else identifier
        self._naming = Naming.of(settings, settings.catalog, written)
        self._catalog = _definition(settings)
        self._indexes: Bounded[IndexedTable[LiveFiles]] = Bounded(settings.index_bytes)

    def check(self) -> None:
        """Whether Iceberg is there and the warehouse can be written. Runs in the driver; creates nothing.

        Raises:
            SinkError: it can't; with a remedy.
        """
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        if spark is not None and can_clone(spark):
            refuse_without_iceberg(spark)
        if self._folder:
            refuse_read_only(self._folder)

    def reach(self) -> str:
        """Whether the catalogue takes the login too, where Python can ask it: a REST catalogue, and a database of
        PostgreSQL, MariaDB or MySQL whose Python driver is here. Of a Hive metastore, whether it answers.
        """
        self.check()
        settings = self.settings
        if settings.uri is None:
            return "Can be used."
        if settings.catalog_type == "rest":
            return reach_rest_catalog(
                settings.uri,
                settings.warehouse,
                token=settings.token,
                credential=settings.credential,
                more=settings.catalog_settings,
            )
        if settings.catalog_type == "hive":
            return reach_metastore(settings.uri)
        return _reach_catalogue(settings.uri, settings.user, settings.password)

    def permissions(self, tables: Sequence[TableId], topics: Sequence[str]) -> Permissions:
        """Whether the warehouse takes a file; one is made and deleted again. A catalogue is not asked."""
        return UNKNOWN_IN_CATALOG if self._folder is None else folder_permissions(self._folder)

    def target(self, session: SparkSession, id: TableId) -> IcebergTable:
        if not can_clone(session):
            raise SinkError(
                "The sink 'iceberg' needs the driver's JVM, which Spark Connect does not provide.",
                remedy="Run the pipeline on a classic Spark session.",
            )
        self._catalog.set_up(session)
        parts = self._naming.parts(id)
        location = f"spark.sql.catalog.{self.settings.catalog}"
        # One that keeps tables would not see what another session of this process did, and can't be closed.
        session.conf.set(f"{location}.cache-enabled", "false")
        # A catalogue of folders takes no comment.
        kind = session.conf.get(f"{location}.type", None)
        namespace = Namespace(parts[:-1], self.settings.create_namespaces)
        if kind == "hadoop":
            namespace = replace(namespace, comment=None)
        return IcebergTable(session, parts, namespace=namespace, indexes=self._indexes)

    def location(self, id: TableId) -> str:
        return ".".join(self._naming.parts(id))

    def places(self, table: TableId | None = None, topic: str | None = None) -> frozenset[str]:
        """The catalogue, or a table's name in it; of a catalogue of folders the table's folder."""
        settings = self.settings
        if settings.catalog_type == "hadoop" and settings.warehouse:
            root = folder_identity(settings.warehouse)
        elif settings.uri is None:
            root = f"catalogue {settings.catalog}"
        elif settings.catalog_type == "hive":
            root = metastore_root(settings.uri)
        else:
            root = f"catalogue {settings.uri.rstrip('/')}"
            root += f"/{settings.warehouse}" if settings.catalog_type == "rest" and settings.warehouse else ""
        return frozenset([root if table is None else self._naming.location(table, root)])

    def dataset(self, table: TableId, topic: str | None = None) -> Dataset | None:
        """The folder in a catalogue of folders, or the table in a Hive metastore; None in others, which alone know the
        folder.
        """
        settings = self.settings
        parts = self._naming.parts(table)
        if settings.catalog_type == "hadoop" and settings.warehouse:
            return Dataset.of_folder("/".join((absolute(settings.warehouse), *parts[1:])))
        return hive_dataset(settings.uri, parts) if settings.catalog_type == "hive" and settings.uri else None

    @property
    def _folder(self) -> str | None:
        return None if self.settings.catalog_type == "rest" else self.settings.warehouse

    def storage_login(self, spark: SparkSession) -> str:
        given, warehouse = self.settings.catalog_settings, self._folder or ""
        bucket = Location.of_name(absolute(warehouse), "file").bucket
        if bucket is None or not given.get("io-impl", "").endswith(".S3FileIO"):
            return session_login(spark, warehouse)
        storage = of_iceberg(given, bucket)
        return storage.login if isinstance(storage, Storage) else ""

    def new_table_properties(self, target: LakeTable) -> dict[str, str]:
        mode = "merge-on-read" if self.settings.merge_on_read else "copy-on-write"
        modes = {f"write.{what}.mode": mode for what in ("merge", "delete", "update")}
        return {"format-version": self.settings.format_version, **modes}

    def _prepared_for_files(
        self, target: LakeTable, table: TableProfile, layout: TargetLayout
    ) -> PreparedIceberg | str:
        assert isinstance(target, IcebergTable)
        facts = target.facts()
        if facts.no_files:
            return facts.no_files
        columns = {column.name: target.column_type(column.type) for column in layout.columns}
        own_types = {column.name: column.type for column in layout.own}
        if facts.columns != columns | own_types:
            return "its target has other columns"
        assert facts.folder is not None
        facts.folder.make()
        position, mark = self.settings.position_column, self.settings.mark
        assert facts.partitioning is not None
        folder, parts = facts.folder, facts.partitioning.parts
        return PreparedIceberg(
            folder, columns, position, mark, parts, facts.ids, {}, required=facts.required, spec=facts.spec
        )


def _definition(settings: IcebergSettings) -> SessionCatalog:
    kind, warehouse = settings.catalog_type, settings.warehouse
    if warehouse is None and kind != "rest":
        return SessionCatalog(
            settings.catalog, remedy="Set the sink's option 'warehouse', or the catalogue in the session's settings."
        )
    given = {
        "type": kind,
        "warehouse": warehouse if kind == "rest" or warehouse is None else absolute(warehouse),
        "uri": settings.uri,
        "token": settings.token,
        "credential": settings.credential,
        "jdbc.user": settings.user,
        "jdbc.password": settings.password,
    }
    if kind == "jdbc":
        # Spark asks a catalogue whether a name is a view, which the database's first layout can't answer.
        given["jdbc.schema-version"] = "V1"
    properties = {name: value for name, value in given.items() if value}
    return SessionCatalog(settings.catalog, _CATALOG, {**properties, **settings.catalog_settings})


def _reach_catalogue(uri: str, user: str | None, password: str | None) -> str:
    """Log in to the database of a catalogue, where it is one that Python can reach here.

    Raises:
        ConnectError: it can't be reached or refuses the login.
    """
    unasked = "Can be used; whether the catalogue's database accepts the login shows when a run starts."
    try:
        # The parameters after `?` are for the JDBC driver.
        address = replace(parse_address(uri, user, password), parameters={})
    except OptionError:
        return unasked
    kind, driver = _CATALOGUES[address.kind]
    if importlib.util.find_spec(driver) is None:
        return unasked
    try:
        kind(address).connect().close()
    except ConnectError as failure:
        raise ConnectError(
            f"The catalogue's database: {failure.message}",
            remedy="Check the sink's options 'uri', 'user' and 'password', and whether the server runs.",
        ) from None
    return "The catalogue's database accepts the login."
