"""Mirrors by name: which catalogue they are in, how a session reaches it, and the namespaces that hold them.

Names of mirrors come from patterns, and are escaped so that two names never become one.
"""

from __future__ import annotations

import re
import socket
import string
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACEHOLDERS = frozenset({"database", "schema", "table"})
_PLAIN_IN_PATH = re.compile(r"[\w\-.]", re.ASCII)
_PLAIN_IN_NAME = re.compile(r"\w", re.ASCII)
_LIKE_ESCAPE = re.compile(r"_[xX][0-9a-fA-F]{4}")
_PART = r"(?:`(?:[^`]|``)+`|[^.`]+)"
_DOTTED = re.compile(rf"{_PART}(?:\.{_PART})*")


def escaped(name: str) -> str:
    """One name as one segment of a path: letters, digits, `_`, `-` and inner dots stay, other bytes become `~` and two
    hex digits, so that no file system or URL takes part of a name for something else.
    """
    out = []
    for index, letter in enumerate(name):
        # A leading dot would hide the folder, or leave it.
        plain = _PLAIN_IN_PATH.fullmatch(letter) and (index or letter != ".")
        out.append(letter if plain else "".join(f"~{byte:02x}" for byte in letter.encode()))
    return "".join(out)


def identifier(name: str) -> str:
    """One name as every catalogue takes it: letters, digits and `_` of ASCII stay, any other character becomes
    `_x0020_`, with its code point in hex digits.

    A `_` that reads like the beginning of such an escape is written as one, so that two names never become one.
    """
    out = []
    for index, letter in enumerate(name):
        plain = _PLAIN_IN_NAME.fullmatch(letter) and not _LIKE_ESCAPE.match(name, index)
        out.append(letter if plain else f"_x{ord(letter):04x}_")
    return "".join(out)


@dataclass(frozen=True)
class NamePattern:
    """A name in a catalogue with `{database}`, `{schema}` and `{table}` in it.

    Args:
        text: as the user wrote it.
        parts: what stands between its dots.
    """

    text: str
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, *, option: str) -> NamePattern:
        """Read a pattern. A part in backticks may have dots in it.

        Args:
            text: the pattern.
            option: the option that it is given by, for messages.

        Raises:
            OptionError: it has an empty part, or a placeholder that does not exist.
        """
        quoted_parts = re.findall(_PART, text) if _DOTTED.fullmatch(text) else []
        parts = tuple(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in quoted_parts)
        if not parts or not all(_is_sound(part) for part in parts):
            raise OptionError(
                f"'{text}' is not a valid {option}.",
                remedy="Write names with dots between them, one with a dot in backticks. "
                "Placeholders are {database}, {schema} and {table}.",
                option=option,
            )
        return cls(text, parts)

    def of(self, id: TableId, written: Callable[[str], str]) -> tuple[str, ...]:
        """The parts of the name that a table has.

        Args:
            id: the table, by its name in the sink.
            written: how the table's own names are written; the rest stands as it is.

        Raises:
            SinkError: a part is empty, because the table has no schema, say.
        """
        values = {"database": written(id.database), "schema": written(id.schema), "table": written(id.name)}
        parts = tuple(part.format(**values) for part in self.parts)
        if not all(parts):
            raise SinkError(
                f"'{self.text}' gives table {id.path or 'of flat rows'} an empty name.",
                remedy="Leave out the placeholder that is empty: databases without schemas have no {schema}, "
                "flat rows have none of them.",
            )
        return parts


def _is_sound(part: str) -> bool:
    try:
        fields = [(name, how, kind) for _, name, how, kind in string.Formatter().parse(part) if name is not None]
    except ValueError:
        return False
    return bool(part.strip()) and all(name in PLACEHOLDERS and not how and not kind for name, how, kind in fields)


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
