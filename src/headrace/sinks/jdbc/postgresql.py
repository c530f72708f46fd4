"""PostgreSQL as a target: its SQL, its catalog, loading by COPY, and what a login may not do that mirrors need.

The server's own functions answer (`has_table_privilege` and its like), so that roles, PUBLIC, ownership and
superusers count as they would in a run. Nothing is made and no lock is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.changes.table import Column, TableId, TableSchema
from headrace.changes.types import LogicalType
from headrace.errors import ConnectError, HeadraceError, SinkError
from headrace.permissions import MissingPermission
from headrace.sinks.column_rules import ColumnRules
from headrace.sinks.jdbc.database import Address, Ask, Database, TargetSchema, Troubles
from headrace.sinks.jdbc.dialect import BATCH_OFFSETS, FORMAT_VERSION, Mirror, TableName, TargetDialect
from headrace.sinks.jdbc.text import RowEncoding

if TYPE_CHECKING:
    import pyarrow as pa


_OF_TABLE = ("SELECT", "INSERT", "UPDATE", "DELETE")
_TABLE = (
    "SELECT {}, pg_has_role(c.relowner, 'USAGE') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"
)

_TYPES = {
    "boolean": "boolean",
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "uint64": "numeric(20,0)",
    "float32": "real",
    "float64": "double precision",
    "uuid": "uuid",
    "json": "json",
    "nested": "json",
    "bytes": "bytea",
    "date": "date",
}
_TIMES = {
    "time": "time({}) without time zone",
    "timestamp": "timestamp({}) without time zone",
    "instant": "timestamp({}) with time zone",
    "zoned_timestamp": "timestamp({}) with time zone",
}
_MOST_DIGITS = 1000
_COPY = RowEncoding(
    null=r"\N",
    between="\t",
    end="\n",
    escapes=(("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")),
    bytes_before=r"\\x",
    before_christ=" BC",
)
_WRONG_VALUES = ("22", "23502", "54000")
"""SQLSTATE of data exceptions, of a null in a key, and of a key that is too long for an index."""
_REFUSALS = (*_WRONG_VALUES, "0A", "23", "2BP01", "42", "44", "54", "P0001")
"""SQLSTATE of what is refused of one table, by class or whole: what is not supported (a type that a view uses), a
constraint, a dependent object, a name or a permission, a check option, a limit (columns, the size of a row), a trigger.
"""
_TRANSIENT = ("08", "25P03", "40", "53", "55006", "55P03", "57P", "58")
"""SQLSTATE of transient failures, by class or whole: a connection, a transaction that waited for the driver or met
another one, resources, locks, a server that stops or starts, disks.
"""


def missing_in_postgresql(
    ask: Ask, dialect: TargetDialect, mirrors: Sequence[TableName], progress: TableName
) -> list[MissingPermission]:
    """What is missing, each with its GRANT. None of the tables has to be there yet."""
    (facts,) = ask("SELECT current_user, current_database(), has_database_privilege(current_database(), 'CREATE')", ())
    user, database = dialect.quote(str(facts[0])), dialect.quote(str(facts[1]))
    missing: list[MissingPermission] = []
    # A mirror's schema holds its staging table too, so something is made there in every batch.
    schemas = dict.fromkeys([progress.schema, *(name.schema for name in mirrors)])
    usable = set()
    for schema in schemas:
        allowed = ask(
            "SELECT has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE') "
            "FROM pg_namespace WHERE nspname = %s",
            (schema,),
        )
        if not allowed:
            if not facts[2]:
                missing.append(
                    MissingPermission.of(
                        ["CREATE"],
                        "on the database",
                        f"schema {schema} is not there",
                        f"Run: GRANT CREATE ON DATABASE {database} TO {user}; or CREATE SCHEMA {dialect.quote(schema)} "
                        f"AUTHORIZATION {user}.",
                    )
                )
            continue
        if allowed[0][0]:
            usable.add(schema)
        denied = [name for name, has in zip(("USAGE", "CREATE"), allowed[0], strict=True) if not has]
        if denied:
            missing.append(
                MissingPermission.of(
                    denied,
                    f"on schema {schema}",
                    "mirrors, staging tables and the progress table are created there",
                    f"Run: GRANT {', '.join(denied)} ON SCHEMA {dialect.quote(schema)} TO {user}.",
                )
            )
    for name in dict.fromkeys([progress, *mirrors]):
        if name.schema in usable:
            missing += _of_table(ask, dialect, name, user, evolves=name != progress)
    return missing


def _of_table(
    ask: Ask, dialect: TargetDialect, name: TableName, user: str, *, evolves: bool
) -> list[MissingPermission]:
    """What is missing on a table; nothing where it would be made by the login, whose own it is then."""
    privileges = ", ".join(f"has_table_privilege(c.oid, '{name}')" for name in _OF_TABLE)
    lines = ask(_TABLE.format(privileges), (name.schema, name.name))
    if not lines:
        return []
    *has, owns = lines[0]
    table = dialect.table(name)
    missing = []
    denied = [privilege for privilege, allowed in zip(_OF_TABLE, has, strict=True) if not allowed]
    if denied:
        purpose = "the mirror's rows" if evolves else "which batch each mirror has"
        missing.append(
            MissingPermission.of(denied, f"on {name}", purpose, f"Run: GRANT {', '.join(denied)} ON {table} TO {user}.")
        )
    if evolves and not owns:
        missing.append(
            MissingPermission(
                f"The login does not own {name}, so it can't follow a change of the source's schema.",
                f"Run: ALTER TABLE {table} OWNER TO {user}.",
                required=False,
            )
        )
    return missing


class PostgresDialect(TargetDialect):
    title: ClassVar[str] = "PostgreSQL"
    lacks: ClassVar[Mapping[str, str]] = {"time": "^(-|2[5-9]|[3-9][0-9]|[0-9]{3,}|24:[0-9:.]*[1-9])"}
    rules: ClassVar[ColumnRules] = ColumnRules(
        title,
        frozenset(["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"]),
        folded=str,
        most=63,
        in_bytes=True,
        wrong=(("\0", "which has a zero character"),),
    )

    def column_types(self, schema: TableSchema) -> dict[str, str]:
        """Every type has its own; text where PostgreSQL would cut (more than six fraction digits)."""
        types = {column.name: _type(column.logical) for column in schema.columns}
        # Its json has no equality.
        types |= {name: "text" for name in schema.key if types[name] == "json"}
        return {"": 'text COLLATE "C"', **types}

    def create_schema(self, schema: str) -> str:
        return f"CREATE SCHEMA IF NOT EXISTS {self.quote(schema)}"

    def create_progress(self, progress: TableName) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table(progress)} (target text PRIMARY KEY, owner text NOT NULL, "
            "batch bigint, source_table text NOT NULL, key_columns text NOT NULL, "
            f"written_at timestamp with time zone, {BATCH_OFFSETS} text, {FORMAT_VERSION} integer)"
        )

    def create_table(self, mirror: Mirror) -> list[str]:
        """Create the mirror; its position compares byte by byte, whatever the database's collation."""
        types = self.column_types(mirror.source)
        lines = [
            f"{self.quote(column.name)} {types[column.name]}{' NOT NULL' if column.name in mirror.source.key else ''}"
            for column in mirror.source.columns
        ]
        lines.append(f"{self._position(mirror)} {types['']}")
        if mirror.source.key:
            lines.append(f"PRIMARY KEY ({', '.join(self.quote(name) for name in mirror.source.key)})")
        described = [(column.name, column.comment) for column in mirror.source.columns]
        described.append((mirror.position_column, "Headrace: position of the row's last change"))
        comments = [self._comment(mirror, name, comment) for name, comment in described if comment]
        if mirror.source.comment:
            comments.append(f"COMMENT ON TABLE {self.table(mirror.name)} IS {self.literal(mirror.source.comment)}")
        return [f"CREATE TABLE IF NOT EXISTS {self.table(mirror.name)} ({', '.join(lines)})", *comments]

    def _comment(self, mirror: Mirror, name: str, comment: str) -> str:
        return f"COMMENT ON COLUMN {self.table(mirror.name)}.{self.quote(name)} IS {self.literal(comment)}"

    def literal(self, text: str) -> str:
        """A text as SQL; the form with escapes where there is a backslash, whatever the server's setting."""
        quoted = "'" + text.replace("\0", "").replace("'", "''").replace("\\", "\\\\") + "'"
        return f"E{quoted}" if "\\" in text else quoted

    def add_column(self, mirror: Mirror, column: Column) -> list[str]:
        """Add a column to the mirror; rows that are there have null."""
        kind = self.column_types(mirror.source)[column.name]
        name = column.name or mirror.position_column
        adding = f"ALTER TABLE {self.table(mirror.name)} ADD COLUMN IF NOT EXISTS {self.quote(name)} {kind}"
        return [adding, self._comment(mirror, name, column.comment)] if column.comment else [adding]

    def text_of(self, value: str, column: Column) -> str:
        """Its own text form, in UTC, which Headrace sets for its connections."""
        return f"encode({value}, 'hex')" if column.logical.kind == "bytes" else f"{value}::text"

    def widen_column(self, mirror: Mirror, column: Column) -> str:
        kind = self.column_types(mirror.source)[column.name]
        return f"ALTER TABLE {self.table(mirror.name)} ALTER COLUMN {self.quote(column.name)} TYPE {kind}"

    def create_stage(self, mirror: Mirror) -> list[str]:
        """Recreate the staging table. It is unlogged: after a crash nobody needs its rows."""
        types = self.column_types(mirror.source)
        columns = ", ".join(f"{staged} {types[name]}" for name, staged in mirror.all)
        return [
            self.drop_stage(mirror),
            f"CREATE UNLOGGED TABLE {self.table(mirror.stage)} "
            f"(l text, o char(1), p {types['']}, m text, f {types['']}, n bigint, {columns})",
        ]

    def apply_keyed(self, mirror: Mirror, labels: Sequence[str], *, partial: bool) -> list[str]:
        """Delete, then INSERT .. ON CONFLICT for whole rows; rows with a mask are updated, and inserted where new."""
        target, stage = self.table(mirror.name), f"{self.table(mirror.stage)} s"
        at, older, taken = self._position(mirror), self.older(mirror), self.taken(labels)
        names = ", ".join([*(self.quote(name) for name, _ in mirror.all), at])
        values = ", ".join([*(f"s.{staged}" for _, staged in mirror.all), "s.p"])
        keys = ", ".join(self.quote(name) for name, _ in mirror.key)
        inserting = f"INSERT INTO {target} AS t ({names}) SELECT {values} FROM {stage} WHERE {taken} AND s.o <> 'd'"
        sets = [f"{self.quote(name)} = EXCLUDED.{self.quote(name)}" for name, _ in mirror.rest]
        statements = [
            f"DELETE FROM {target} t USING {stage} WHERE {taken} AND s.o = 'd' AND {self.same_key(mirror)} AND {older}",
            f"{inserting} AND s.m IS NULL ON CONFLICT ({keys}) DO UPDATE SET "
            f"{', '.join([*sets, f'{at} = EXCLUDED.{at}'])} WHERE {self.older(mirror, f'EXCLUDED.{at}')}",
        ]
        if partial:
            kept = [
                f"{self.quote(name)} = {self.chosen(mirror, name, staged, f't.{self.quote(name)}')}"
                for name, staged in mirror.rest
            ]
            statements += [
                f"UPDATE {target} t SET {', '.join([*kept, f'{at} = s.p'])} FROM {stage} "
                f"WHERE {taken} AND s.o <> 'd' AND s.m IS NOT NULL AND {self.same_key(mirror)} AND {older}",
                f"{inserting} AND s.m IS NOT NULL ON CONFLICT ({keys}) DO NOTHING",
            ]
        return statements

    def apply_keyless(self, mirror: Mirror, labels: Sequence[str], *, deletes: bool) -> list[str]:
        """Delete the oldest of equal rows by their place in the table, then insert.

        Rows are compared as arrays of texts: null equals null there, types without an equality (json) have one, and
        the join can hash.
        """
        target, stage = self.table(mirror.name), f"{self.table(mirror.stage)} s"
        at, taken = self._position(mirror), self.taken(labels)
        names = ", ".join([*(self.quote(name) for name, _ in mirror.all), at])
        values = ", ".join([*(f"s.{staged}" for _, staged in mirror.all), "s.p"])
        inserting = f"INSERT INTO {target} ({names}) SELECT {values} FROM {stage} WHERE {taken} AND s.o = 'i'"
        if not deletes:
            return [inserting]
        here = f"ARRAY[{', '.join(f't.{self.quote(name)}::text' for name, _ in mirror.all)}]"
        gone = f"ARRAY[{', '.join(f's.{staged}::text' for _, staged in mirror.all)}]"
        return [
            f"DELETE FROM {target} t USING (SELECT t.ctid AS place, g.n, "
            f"row_number() OVER (PARTITION BY g.whole ORDER BY t.{at} NULLS FIRST) AS nth FROM {target} t "
            f"JOIN (SELECT {gone} AS whole, sum(s.n) AS n FROM {stage} WHERE {taken} AND s.o = 'd' GROUP BY 1) g "
            f"ON {here} = g.whole) x WHERE t.ctid = x.place AND x.nth <= x.n",
            inserting,
        ]


def _type(logical: LogicalType) -> str:
    kind = logical.kind
    if kind in _TIMES:
        return _TIMES[kind].format(logical.digits) if logical.digits <= 6 else "text"
    if kind == "decimal":
        if logical.precision is None or logical.precision > _MOST_DIGITS:
            return "numeric"
        return f"numeric({logical.precision},{logical.scale or 0})"
    return _TYPES.get(kind, "text")


class Postgres(Database):
    """A PostgreSQL server reached with psycopg."""

    default_table_name: ClassVar[str] = "{schema}.{table}"

    def __init__(self, address: Address) -> None:
        super().__init__(address, PostgresDialect())

    def connect(self) -> Any:
        """Open a connection; a transaction begins with the first statement."""
        psycopg = _driver()
        address = self.address
        try:
            return psycopg.connect(
                **{
                    "connect_timeout": "10",
                    "application_name": "headrace",
                    **address.parameters,
                    "host": address.host,
                    "port": address.port,
                    "dbname": address.database,
                    "user": address.user,
                    # An empty one would hide PGPASSWORD and the file of passwords from libpq.
                    "password": address.current_password() or None,
                    # Texts of dates are read and compared; a server's habits must not matter.
                    "options": f"{address.parameters.get('options', '')} -c datestyle=ISO,YMD -c timezone=UTC".strip(),
                }
            )
        except psycopg.Error as failure:
            if "GSSAPI" in str(failure):
                raise ConnectError(
                    f"{address} asks for Kerberos, and this process has no ticket that it takes.",
                    remedy="Run kinit, or name a keytab in the environment variable KRB5_CLIENT_KTNAME; the 'url' must "
                    "have the host that is in the server's principal.",
                ) from None
            raise ConnectError(
                f"{address} can't be reached or refuses the login ({_state(failure)}).",
                remedy="Check the sink's options 'url', 'user' and 'password', and whether the server runs.",
            ) from None

    def default_schema(self, connection: Any) -> str:
        """The first schema of the search path; `public` where the login may use none of them."""
        return str(self.ask(connection, "SELECT coalesce(current_schema(), 'public')")[0][0])

    def has_schema(self, connection: Any, schema: str) -> bool:
        return bool(self.ask(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)))

    def target_schema(self, connection: Any, name: TableName) -> TargetSchema:
        """Columns with types as PostgreSQL writes them, and the primary key."""
        of_table = "c.relname = %s AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)"
        columns = self.ask(
            connection,
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a JOIN pg_class c "
            f"ON c.oid = a.attrelid WHERE {of_table} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            (name.name, name.schema),
        )
        key = self.ask(
            connection,
            "SELECT a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_attribute a "
            f"ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey) WHERE {of_table} AND i.indisprimary",
            (name.name, name.schema),
        )
        return TargetSchema(dict(columns), frozenset(line[0] for line in key))

    def missing_permissions(
        self, connection: Any, mirrors: Sequence[TableName], progress: TableName
    ) -> list[MissingPermission]:
        """Asked of the server's own functions, so that roles, PUBLIC and ownership count."""
        return missing_in_postgresql(partial(self.ask, connection), self.dialect, mirrors, progress)

    def load(self, connection: Any, stage: TableName, columns: Sequence[str], texts: Iterator[pa.Buffer]) -> None:
        names = ", ".join(columns)
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY {self.dialect.table(stage)} ({names}) FROM STDIN") as copy,
        ):
            for text in texts:
                copy.write(memoryview(text))

    def stream(self, connection: Any, query: str, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        with connection.cursor(name="headrace_reading") as cursor:
            cursor.execute(query)
            while lines := cursor.fetchmany(rows):
                yield lines

    def logical_for(self, column: Column) -> LogicalType:
        """Canonical text is what PostgreSQL reads."""
        return column.logical

    @property
    def encoding(self) -> RowEncoding:
        return _COPY

    def troubles(self) -> Troubles:
        return (_driver().Error,)

    def explain(self, failure: Exception, id: TableId, name: TableName) -> HeadraceError:
        """A failure of the driver as our error. PostgreSQL's own message may hold values, so only its code is shown."""
        state = _state(failure)
        if state.startswith(_WRONG_VALUES):
            return self.wrong_value(id, name, state)
        return self.not_written(name, state, is_transient=_is_transient(failure))

    def is_refusal(self, failure: Exception) -> bool:
        """By the class of its SQLSTATE."""
        return _state(failure).startswith(_REFUSALS)


def _state(failure: Exception) -> str:
    return str(getattr(failure, "sqlstate", None) or type(failure).__name__)


def _is_transient(failure: Exception) -> bool:
    state = getattr(failure, "sqlstate", None)
    # psycopg gives a connection that broke no SQLSTATE, but this kind.
    return state.startswith(_TRANSIENT) if state else isinstance(failure, _driver().OperationalError)


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as missing:
        raise SinkError(
            "The jdbc sink needs the Python package 'psycopg' for PostgreSQL, here and on the executors.",
            remedy="pip install 'headrace[postgresql]'.",
        ) from missing
    return psycopg
