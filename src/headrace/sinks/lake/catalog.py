"""Mirrors by name: which catalogue they are in, how a session reaches it, and the namespaces that hold them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.changes.dataset import Dataset
from headrace.changes.table import TableId
from headrace.changes.typed import literal, quote
from headrace.errors import ConnectError, OptionError, SinkError
from headrace.permissions import Permissions
from headrace.settings import Settings, option
from headrace.sinks.lake.names import NamePattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMMENT = "Tables that Headrace keeps equal to their sources"
_CREATING = threading.Lock()
"""Tables of one batch are created side by side, most of them in one namespace."""
_METASTORE_PORT = 9083
_PATIENCE_SECONDS = 10.0


class NamedSettings(Settings):
    """What mirrors in a catalogue are called."""

    namespace: str | None = option(
        "The namespace (schema) of the mirrors in the catalogue, in which `{database}`, `{schema}` and `{table}` stand "
        "for the source's; dots separate levels. Default: the source table's schema (without one, its database).",
        default=None,
    )
    table_name: str = option(
        "The name of a mirror in its namespace, with the same placeholders: `{database}_{table}`.",
        default="{table}",
    )
    create_namespaces: bool = option(
        "Whether a missing namespace is created. Without it, a table whose namespace is missing stops the run.",
        default=True,
    )
    given_to_catalog: Mapping[str, str] = option(
        "Any other setting of the catalogue, by the name that it has there (`catalog.io-impl`, `catalog.scope`).",
        name="catalog.*",
        kind=str,
        default={},
        may_be_empty=True,
    )

    @property
    def catalog_settings(self) -> dict[str, str]:
        """Further settings of the catalogue, by the names that they have there."""
        return {name[len("catalog.") :]: value for name, value in self.given_to_catalog.items()}


@dataclass(frozen=True)
class Naming:
    """What the mirrors of source tables are called in a catalogue.

    Args:
        catalog: the catalogue.
        namespace: a pattern; None for the source's schema, or its database where there are no schemas.
        table: a pattern of one part.
        written: how the source's names are written in it.
    """

    catalog: str
    namespace: NamePattern | None
    table: NamePattern
    written: Callable[[str], str]

    @classmethod
    def of(cls, settings: NamedSettings, catalog: str, written: Callable[[str], str]) -> Naming:
        """As options say.

        Raises:
            OptionError: a pattern is wrong.
        """
        table = NamePattern.parse(settings.table_name, option="table_name")
        if len(table.parts) > 1:
            raise OptionError(
                f"'{settings.table_name}' has more than the name of a table.",
                remedy="Put what stands before the last dot into the options 'catalog' and 'namespace'; "
                "a name with a dot in it stands in backticks.",
                option="table_name",
            )
        pattern = settings.namespace
        namespace = None if pattern is None else NamePattern.parse(pattern, option="namespace")
        return cls(catalog, namespace, table, written)

    def parts(self, id: TableId) -> tuple[str, ...]:
        """Catalogue, namespace and name of a table's mirror.

        Raises:
            SinkError: a part is empty.
        """
        if self.namespace is None:
            levels: tuple[str, ...] = (self.written(id.schema or id.database or "default"),)
        else:
            levels = self.namespace.of(id, self.written)
        return (self.catalog, *levels, *self.table.of(id, self.written))

    def location(self, id: TableId, root: str) -> str:
        """The mirror as `Sink.places` says it: without regard to case, because most catalogues have none."""
        return "/".join((root, *self.parts(id)[1:])).lower()


@dataclass(frozen=True)
class Namespace:
    """Where a table lies in a catalogue.

    Args:
        parts: the catalogue and the levels under it.
        create: whether it may be created.
        comment: what it is created with; a catalogue of folders takes none.
    """

    parts: tuple[str, ...]
    create: bool = True
    comment: str | None = _COMMENT

    def exists(self, session: SparkSession) -> bool:
        """Whether the catalogue has it."""
        return bool(session.catalog.databaseExists(_dotted(self.parts)))

    def require(self, session: SparkSession, label: str) -> None:
        """Stop where it is missing and may not be created.

        Raises:
            SinkError: so it is.
        """
        if not self.create and not self.exists(session):
            raise SinkError(
                f"There is no namespace {'.'.join(self.parts)} for the {label}.",
                remedy="Create it, or set the sink's option 'create_namespaces' to true.",
            )

    def ensure(self, session: SparkSession) -> None:
        """Create it and the levels above it, where they are missing. Repeatable; others may create it meanwhile.

        A namespace that is there is not touched: `create ... if not exists` wants the right to create it all the same.
        """
        comment = f" comment {literal(self.comment)}" if self.comment else ""
        for end in range(2, len(self.parts) + 1):
            level = Namespace(self.parts[:end])
            with _CREATING:
                if not level.exists(session):
                    _create(session, level, comment)


def _create(session: SparkSession, namespace: Namespace, comment: str) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        session.sql(f"create namespace if not exists {_dotted(namespace.parts)}{comment}")
    except (PySparkException, Py4JError):
        # Servers look first and then create, so that of two processes one can fail.
        if not namespace.exists(session):
            raise


@dataclass(frozen=True)
class SessionCatalog:
    """A catalogue of Spark's, which a session has already, or gets from a sink.

    Args:
        name: its name in Spark.
        implementation: the class that Spark makes it from; empty for one that only the session can define.
        settings: its settings, by the names that they have there. Some may be secret.
        remedy: what to set where the session has none.
    """

    name: str
    implementation: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    remedy: str = ""

    def set_up(self, session: SparkSession) -> None:
        """Define it in a session that does not have it.

        Raises:
            SinkError: it can't be defined.
        """
        location = f"spark.sql.catalog.{self.name}"
        if session.conf.get(location, None) is not None:
            return
        if not self.implementation:
            raise SinkError(f"The Spark session has no catalogue '{self.name}'.", remedy=self.remedy)
        session.conf.set(location, self.implementation)
        for name, value in self.settings.items():
            session.conf.set(f"{location}.{name}", value)


_METASTORE_IN_A_FOLDER = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName=metastore_db;create=true",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
}
UNKNOWN_IN_CATALOG = Permissions(
    "The catalogue decides what its login may do, and was not asked; the first write shows it.", known=False
)


def metastore_root(uri: str) -> str:
    """A Hive metastore as `Sink.places` says it, the same for every sink that writes to it."""
    return f"Hive metastore {uri.strip().rstrip('/')}"


def hive_dataset(uri: str, parts: Sequence[str]) -> Dataset:
    """A table of a Hive metastore in lineage.

    Args:
        uri: the metastore's address; the first of several.
        parts: catalogue, namespace and name.
    """
    address = uri.split(",")[0].strip().rstrip("/").removeprefix("thrift://")
    return Dataset(f"hive://{address}", ".".join(parts[1:]))


def hive_session(warehouse: str, uri: str | None, more: Mapping[str, str]) -> dict[str, str]:
    """Settings with which a session of this machine starts that has a Hive metastore as its `spark_catalog`.

    Args:
        warehouse: where its tables lie.
        uri: the metastore's address; without one there is a metastore in the warehouse, for one process at a time.
        more: settings of the metastore's client, by Hive's names.
    """
    settings = {"spark.sql.catalogImplementation": "hive", "spark.sql.warehouse.dir": warehouse}
    client = {"hive.metastore.uris": uri} if uri else _METASTORE_IN_A_FOLDER
    if not uri:
        # Derby's folder and its log; they would be in the folder that this process works in.
        settings["spark.driver.extraJavaOptions"] = f'"-Dderby.system.home={warehouse}"'
    return settings | {f"spark.hadoop.{name}": value for name, value in {**client, **more}.items()}


def reach_metastore(uris: str) -> str:
    """Whether a Hive metastore answers, at one of the addresses that are given with commas between them.

    Raises:
        ConnectError: none does.
        OptionError: it is not an address.
    """
    for uri in uris.split(","):
        address = urlsplit(uri.strip())
        if address.scheme != "thrift" or not address.hostname:
            raise OptionError(
                f"'{uri.strip()}' is not the address of a Hive metastore.",
                remedy=f"Write it as thrift://host:{_METASTORE_PORT}.",
                option="uri",
            )
        try:
            with socket.create_connection((address.hostname, address.port or _METASTORE_PORT), _PATIENCE_SECONDS):
                return "The Hive metastore answers; whether it lets the user in shows when a run starts."
        except OSError as failure:
            reason = failure.strerror or type(failure).__name__
    raise ConnectError(
        f"The Hive metastore at {uris} can't be reached ({reason}).",
        remedy="Check the sink's option 'uri', and whether the metastore runs.",
    )


def _dotted(parts: tuple[str, ...]) -> str:
    return ".".join(quote(part) for part in parts)
