"""A target database through its Python driver: asking, running, loading. Knows nothing of Spark.

A `Database` is picklable and cheap; connections are opened where they are used, in the driver and in executors.

Where it is, the sink's options `url`, `user` and `password` say.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.changes.one_table import about
from headrace.changes.table import Column, TableId
from headrace.changes.types import LogicalType
from headrace.errors import HeadraceError, OptionError, SchemaError, SinkError
from headrace.options import is_secret
from headrace.passwords import current_password
from headrace.permissions import MissingPermission
from headrace.sinks.jdbc.dialect import Mirror, TableName, TargetDialect
from headrace.sinks.jdbc.text import RowEncoding, texts

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = {"postgresql": "postgresql", "postgres": "postgresql", "mariadb": "mariadb", "mysql": "mariadb"}
_PORTS = {"postgresql": 5432, "mariadb": 3306}
_OTHERS = {"sqlserver": "SQL Server", "oracle": "Oracle", "db2": "Db2"}
_HOW = "Write it as postgresql://host:port/database or mariadb://host:port/database; `jdbc:` in front is allowed."
_TITLES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB or MySQL"}

Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a query with values, and gives its rows."""


@dataclass(frozen=True)
class Address:
    """A database on a server, and who logs in. Its text form holds no password."""

    kind: str
    host: str
    port: int
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)
    password_command: str = field(default="", repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_TITLES[self.kind]} at {host}:{self.port}/{self.database}"

    def current_password(self) -> str:
        return current_password(self.password, self.password_command)


def parse_address(url: str, user: str | None, password: str | None, password_command: str = "") -> Address:
    """Read the options.

    Raises:
        OptionError: the URL names another kind of database, lacks a part, or holds a secret, which would be shown.
    """
    text = re.sub(r"^jdbc:", "", url.strip(), flags=re.IGNORECASE)
    scheme = text.partition(":")[0].lower()
    if scheme in _OTHERS:
        raise OptionError(
            f"The jdbc sink does not write to {_OTHERS[scheme]}.",
            remedy=_HOW,
        )
    if scheme not in _KINDS:
        # The text itself is not repeated: it may hold a password.
        raise OptionError("Option 'url' of sink 'jdbc' does not name a supported kind of database.", remedy=_HOW)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise OptionError("Option 'url' of sink 'jdbc' is not a valid URL.", remedy=_HOW) from None
    database = unquote(parts.path.removeprefix("/"))
    if not parts.hostname or not database or "/" in database or parts.fragment:
        raise OptionError("Option 'url' of sink 'jdbc' lacks the host or the database.", remedy=_HOW)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    secret = "password" if parts.password is not None else next((name for name in parameters if is_secret(name)), None)
    if secret is not None:
        raise OptionError(
            f"Option 'url' of sink 'jdbc' holds a secret ('{secret}'), which would be shown.",
            remedy="Give it as the sink's option 'password'.",
        )
    inside = parameters.pop("user", None) or (unquote(parts.username) if parts.username else None)
    kind = _KINDS[scheme]
    port = port or _PORTS[kind]
    return Address(kind, parts.hostname, port, database, user or inside, password, parameters, password_command)


Troubles = tuple[type[Exception], ...]
_TEXT = LogicalType("string")
_LOADED_AT_ONCE = 4 << 20


@dataclass(frozen=True)
class TargetSchema:
    """What the catalog says of a table; no columns where there is none.

    Args:
        types: type by column, in order.
        key: the columns of the primary key.
        other_unique: names of further unique indexes, where they matter.
    """

    types: Mapping[str, str]
    key: frozenset[str] = frozenset()
    other_unique: tuple[str, ...] = ()


class Database(ABC):
    """A server and database. All that it raises is a `HeadraceError` inside `explained`.

    Attributes:
        default_table_name: where a source table's mirror lies unless the user says otherwise.

    Args:
        address: where it is.
        dialect: its SQL.
    """

    default_table_name: ClassVar[str]

    def __init__(self, address: Address, dialect: TargetDialect) -> None:
        self.address = address
        self.dialect = dialect

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection. A transaction begins with the first statement.

        Raises:
            ConnectError: the server can't be reached or refuses the login.
            SinkError: the driver is not installed.
        """

    @abstractmethod
    def default_schema(self, connection: Any) -> str:
        """Where a table lies whose name says no schema."""

    @abstractmethod
    def has_schema(self, connection: Any, schema: str) -> bool:
        """Whether the schema is there."""

    @abstractmethod
    def target_schema(self, connection: Any, name: TableName) -> TargetSchema:
        """Ask the catalog for a table."""

    @abstractmethod
    def missing_permissions(
        self, connection: Any, mirrors: Sequence[TableName], progress: TableName
    ) -> list[MissingPermission] | None:
        """What the login may not do that these mirrors need; None where the server can't be asked. Only reads."""

    @abstractmethod
    def load(self, connection: Any, stage: TableName, columns: Sequence[str], texts: Iterator[pa.Buffer]) -> None:
        """Load rows written as `encoding` says into a table."""

    @abstractmethod
    def stream(self, connection: Any, query: str, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a query, so many at a time, however many there are."""

    @abstractmethod
    def logical_for(self, column: Column) -> LogicalType:
        """By which type the column's values are written for this database."""

    @property
    @abstractmethod
    def encoding(self) -> RowEncoding:
        """How rows are written for `load`."""

    @abstractmethod
    def troubles(self) -> Troubles:
        """What the driver raises."""

    @abstractmethod
    def explain(self, failure: Exception, id: TableId, name: TableName) -> HeadraceError:
        """A failure of the driver in our words, without any value of a cell."""

    @abstractmethod
    def is_refusal(self, failure: Exception) -> bool:
        """Whether a failure of the driver, met in work on one table, is surely that table's: the server refuses its
        name, its structure, a statement on it or a row, and takes others. Not so what passes, and what all may meet.
        """

    def ask(self, connection: Any, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with closing(connection.cursor()) as cursor:
            cursor.execute(query, values or None)
            return [tuple(line) for line in cursor.fetchall()]

    def run(self, connection: Any, statements: Iterable[str], values: Sequence[Any] = ()) -> None:
        with closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement, values or None)

    @contextmanager
    def connected(self, id: TableId, name: TableName, *, alone: bool = True) -> Iterator[Any]:
        """A connection for work on one table, and failures of the driver in our words.

        What is not committed at the end is rolled back by the server.

        Args:
            id: the source's table.
            name: its target.
            alone: whether all the work is on that table.
        """
        connection = self.connect()
        try:
            with self.explaining(id, name, alone=alone):
                yield connection
        finally:
            connection.close()

    @contextmanager
    def explaining(self, id: TableId, name: TableName, *, alone: bool = True) -> Iterator[None]:
        """Failures of the driver in our words; those that are surely this table's say so."""
        try:
            yield
        except self.troubles() as failure:
            error = self.explain(failure, id, name)
            # The driver's own error may hold values of cells, so it is not kept as the cause either.
            raise (about(error, id) if alone and self.is_refusal(failure) else error) from None

    def stage(self, connection: Any, mirror: Mirror, label: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Load folded rows into the staging table, under a label of their own; how many there were.

        The caller commits. Runs in executors, or anywhere: the batches' columns are `o`, `p`, `m`, `f`, `n` and then
        the source's columns in order, typed.

        Args:
            connection: an open connection.
            mirror: the target.
            label: letters and digits that no other attempt has.
            batches: the folded rows.
        """
        import pyarrow as pa

        ours = ("o", "p", "m", "f", "n")
        columns = ("l", *ours, *(staged for _, staged in mirror.all))
        types = [_TEXT, _TEXT, _TEXT, _TEXT, _TEXT, LogicalType("int64"), *map(self.logical_for, mirror.source.columns)]
        rows = 0

        def encoded_rows() -> Iterator[pa.Buffer]:
            nonlocal rows
            for batch in batches:
                labels = pa.array([label], pa.string()).take(pa.array([0] * batch.num_rows, pa.int8()))
                labelled = pa.RecordBatch.from_arrays([labels, *batch.columns], list(columns))
                rows += batch.num_rows
                yield from texts(labelled, types, self.encoding, most_bytes=_LOADED_AT_ONCE)

        self.load(connection, mirror.stage, columns, encoded_rows())
        return rows

    def wrong_value(self, id: TableId, name: TableName, code: str) -> SchemaError:
        """A value that the target's column does not take."""
        return SchemaError(
            f"A value of table {id} does not fit its column in {name} of {self.address} ({code}).",
            remedy="Compare the source's column types with the table's, and what the database can hold in them.",
        )

    def not_written(self, name: TableName, code: str, *, is_transient: bool) -> SinkError:
        """Anything else.

        Args:
            name: the table.
            code: the database's.
            is_transient: whether the code stands for a transient failure; only then the sentence says that the batch
                can be repeated.
        """
        remedy = "Look for the code in the database's log."
        return SinkError(
            f"The table {name} of {self.address} can't be written ({code}).",
            remedy=f"{remedy} You can repeat the batch." if is_transient else remedy,
        )
