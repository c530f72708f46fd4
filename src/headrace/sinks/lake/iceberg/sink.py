"""The Iceberg sink: one Iceberg table per source table, kept equal to it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from headrace.changes.table import TableId
from headrace.errors import ConnectError, OptionError, SinkError
from headrace.options import folder
from headrace.permissions import Permissions
from headrace.settings import Settings, option
from headrace.sinks.folder import absolute, folder_identity, folder_permissions, refuse_read_only
from headrace.sinks.jdbc.address import Address, parse_address
from headrace.sinks.jdbc.database import Database
from headrace.sinks.jdbc.mariadb.dialect import MariaDb
from headrace.sinks.jdbc.postgresql.dialect import Postgres
from headrace.sinks.lake.delta.table import escaped
from headrace.sinks.lake.iceberg.table import IcebergTable, refuse_without_iceberg
from headrace.sinks.lake.options import LakeSettings
from headrace.sinks.lake.sink import LakeSink, can_clone
from headrace.spark.jars import ICEBERG
from headrace.spark.releases import running_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_CATALOGUES: dict[str, tuple[Callable[[Address], Database], str]] = {
    "postgresql": (Postgres, "psycopg"),
    "mariadb": (MariaDb, "pymysql"),
}
"""Databases of catalogues that can be reached without Java, each with the package that does it."""


class IcebergPlace(Settings):
    """In which catalogue the mirrors lie, and how."""

    catalog: str = option(
        "The catalogue's name in Spark. If the session has this catalogue, the sink uses it as it is; otherwise "
        "the options below define it, for this sink only.",
        default="lake",
    )
    catalog_type: str = option(
        "`hadoop` keeps the tables' state in folders of the warehouse, for file systems with an atomic rename and "
        "one writer; `jdbc` keeps it in a database.",
        default="hadoop",
        choices=("hadoop", "jdbc"),
    )
    warehouse: str | None = option(
        "The folder that holds the tables; needed unless the session knows the catalogue.",
        kind=folder,
        default=None,
        aliases=("path",),
    )
    uri: str | None = option(
        "The JDBC URL of the catalogue's database (`jdbc:postgresql://host/db`); its driver must be "
        "on Spark's class path.",
        default=None,
    )
    user: str | None = option(
        "The user of the catalogue's database.",
        default=None,
    )
    password: str | None = option(
        "The user's password.",
        default=None,
    )
    namespace: str | None = option(
        "The namespace of the mirrors. Default: the source table's schema (without one, its database). Characters "
        "other than letters, digits, `_`, `-` and `.` are written as `~` and two hex digits.",
        default=None,
    )
    merge_on_read: bool = option(
        "Whether new tables write delete files instead of rewriting data files. Cheaper to write, more expensive "
        "to read until files are rewritten.",
        default=True,
    )


class IcebergSettings(IcebergPlace, LakeSettings):
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
    offered: ClassVar[tuple[str, ...]] = ("namespace", "stored_as_scd_type", "schema_change_behavior")
    jars: ClassVar[tuple[str, ...]] = (ICEBERG,)
    fault_point: ClassVar[str] = "sink.iceberg"
    settings: IcebergSettings

    def __init__(self, settings: IcebergSettings) -> None:
        super().__init__(settings)
        if not ICEBERG:
            raise OptionError(
                f"Iceberg has no release for Spark {running_version()}.",
                remedy="Use Spark 4.0 or 4.1, or name a jar that suits in HEADRACE_ICEBERG_PACKAGE.",
            )
        if settings.catalog_type == "jdbc" and not settings.uri:
            raise OptionError(
                "Sink 'iceberg' with catalog_type 'jdbc' needs the option 'uri'.",
                remedy="Set it to the JDBC URL of the catalogue's database.",
            )

    def check(self) -> None:
        """Whether Iceberg is there and the warehouse can be written. Runs in the driver; creates nothing.

        Raises:
            SinkError: it can't; with a remedy.
        """
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        if spark is not None and can_clone(spark):
            refuse_without_iceberg(spark)
        if self.settings.warehouse:
            refuse_read_only(self.settings.warehouse)

    def reach(self) -> str:
        """Whether the catalogue's database takes the login too, where it is PostgreSQL, MariaDB or MySQL and its Python
        driver is here; it is asked by that."""
        self.check()
        settings = self.settings
        if settings.catalog_type != "jdbc" or settings.uri is None:
            return "Can be used."
        return _reach_catalogue(settings.uri, settings.user, settings.password)

    def permissions(self, tables: Sequence[TableId], topics: Sequence[str]) -> Permissions:
        """Whether the warehouse takes a file; one is made and deleted again."""
        if not self.settings.warehouse:
            return Permissions(
                "The session's settings define its tables' location, which was not checked.", known=False
            )
        return folder_permissions(self.settings.warehouse)

    def target(self, session: SparkSession, id: TableId) -> IcebergTable:
        """The table in the catalogue."""
        if not can_clone(session):
            raise SinkError(
                "The sink 'iceberg' needs the driver's JVM, which Spark Connect does not provide.",
                remedy="Run the pipeline on a classic Spark session.",
            )
        self._set_up(session)
        return IcebergTable(session, self._names(id))

    def place(self, id: TableId) -> str:
        """The name in the catalogue."""
        return ".".join(self._names(id))

    def places(self, table: TableId | None = None, topic: str | None = None) -> frozenset[str]:
        """The catalogue, or a table's name in it; of a catalogue of folders the table's folder."""
        settings = self.settings
        if settings.catalog_type == "hadoop" and settings.warehouse:
            root = folder_identity(settings.warehouse)
        else:
            root = f"Iceberg catalogue {settings.uri or settings.catalog}"
        return frozenset([root if table is None else "/".join((root, *self._names(table)[1:])).lower()])

    def _names(self, id: TableId) -> tuple[str, str, str]:
        namespace = self.settings.namespace or escaped(id.schema or id.database or "default")
        return self.settings.catalog, namespace, escaped(id.name)

    def new_table_properties(self) -> dict[str, str]:
        """Format 2, which has deletes; and how changes are written."""
        mode = "merge-on-read" if self.settings.merge_on_read else "copy-on-write"
        return {"format-version": "2", "write.merge.mode": mode, "write.delete.mode": mode, "write.update.mode": mode}

    def _set_up(self, session: SparkSession) -> None:
        settings = self.settings
        place = f"spark.sql.catalog.{settings.catalog}"
        if session.conf.get(place, None) is not None:
            return
        if not settings.warehouse:
            raise SinkError(
                f"The Spark session has no catalogue '{settings.catalog}'.",
                remedy="Set the sink's option 'warehouse', or the catalogue in the session's settings.",
            )
        session.conf.set(place, _CATALOG)
        session.conf.set(f"{place}.type", settings.catalog_type)
        session.conf.set(f"{place}.warehouse", absolute(settings.warehouse))
        # A catalogue that keeps tables would not see what another session of this process did.
        session.conf.set(f"{place}.cache-enabled", "false")
        if settings.catalog_type == "jdbc":
            # Spark asks a catalogue whether a name is a view, which the database's first layout can't answer.
            session.conf.set(f"{place}.jdbc.schema-version", "V1")
            login = {"uri": settings.uri, "jdbc.user": settings.user, "jdbc.password": settings.password}
            for name, value in login.items():
                if value:
                    session.conf.set(f"{place}.{name}", value)


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
