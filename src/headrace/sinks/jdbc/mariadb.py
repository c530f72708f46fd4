"""MariaDB and MySQL as targets: SQL, catalog, loading by INSERTs of many rows, and what a login may not do.

Its DDL is in no transaction, so nothing is tried: `SHOW GRANTS` is read, which lists the login's own permissions and
those of its active roles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.changes.table import Column, TableId, TableSchema
from headrace.changes.types import LogicalType
from headrace.errors import ConnectError, HeadraceError, OptionError, SinkError
from headrace.permissions import MissingPermission
from headrace.sinks.column_rules import ColumnRules, lower_letters
from headrace.sinks.jdbc.database import Address, Ask, Database, TargetSchema, Troubles
from headrace.sinks.jdbc.dialect import BATCH_OFFSETS, FORMAT_VERSION, Mirror, TableName, TargetDialect, stage_of
from headrace.sinks.jdbc.text import RowEncoding
from headrace.wire.mysql_session import WITHOUT_LIMITS

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_MIRROR = ("CREATE", *_ROWS)
_STAGE = ("CREATE", "DROP", "SELECT", "INSERT")
_ALTER = "ALTER"
_ALL = ("ALL PRIVILEGES", "ALL")
_NAME = r"(\*|`(?:[^`]|``)+`)"
_GRANT = re.compile(rf"GRANT (.+?) ON (?:TABLE )?{_NAME}\.{_NAME} TO ", re.IGNORECASE)
_WORD = re.compile(r"([A-Z][A-Z ]*?)\s*(\([^)]*\))?\s*(?:,|$)")

_TYPES = {
    "boolean": "tinyint(1)",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint64": "bigint unsigned",
    "float32": "float",
    "float64": "double",
    "bytes": "longblob",
    "date": "date",
}
_TIMES = {"time": "time", "timestamp": "datetime", "instant": "datetime", "zoned_timestamp": "datetime"}
_MOMENTS = ("instant", "zoned_timestamp")
_KEY_BYTES = 3072
"""How many bytes an index entry of InnoDB may have."""
_FIXED_BYTES = 30
"""The most that a number or a time takes of them."""
_MOST_DIGITS, _MOST_SCALE = 65, 30
_POSITION = "varchar(255) character set ascii collate ascii_bin"
_WIDTH = re.compile(r"\b(tinyint|smallint|mediumint|int|bigint)\((\d+)\)")
_UNICODE = {"mariadb": "utf8mb4_nopad_bin", "mysql": "utf8mb4_0900_bin"}
_VALUES = RowEncoding(
    null="NULL",
    begin="(",
    between=",",
    end="),",
    quote="'",
    escapes=(("\\", "\\\\"), ("'", "''"), ("\0", "\\0")),
    bytes_before="x'",
    bytes_after="'",
    booleans=("1", "0"),
)
_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO"
_WRONG_VALUES = (1048, 1264, 1265, 1292, 1366, 1367, 1406, 1411, 4025)
"""Null in a key, out of range, cut, no such date, no such number, too long, no such time, a check fails."""
_REFUSALS = frozenset(
    [
        *_WRONG_VALUES,
        *(1142, 1143),  # Permissions on a table and a column.
        *(1050, 1051, 1054, 1060, 1061, 1091, 1146, 1347),  # What is there already, or is not.
        *(1059, 1103, 1166),  # Names.
        *(1067, 1068, 1069, 1070, 1071, 1072, 1074, 1117, 1118, 1163, 1170, 1171, 1845, 1846),  # Structures.
        *(1062, 1169, 1216, 1217, 1451, 1452, 1644, 1701, 1834, 3819),  # Constraints, triggers and other tables.
    ]
)
"""What is refused of one table."""
_TRANSIENT = frozenset(
    [
        *(0, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 4031),  # A connection that broke; 0 is PyMySQL's own.
        *(1152, 1158, 1159, 1160, 1161, 1184),  # Its network.
        *(1020, 1180, 1205, 1206, 1213, 1412, 1613, 1614, 1637, 3101, 3572),  # Locks and other transactions.
        *(1021, 1037, 1038, 1040, 1041, 1203, 1226),  # Resources.
        *(1047, 1053, 1317),  # A node that joins its cluster, a server that stops, a session that somebody ended.
    ]
)
"""Numbers of transient failures."""
_DRIVER_TEXTS = ("ssl_ca", "ssl_cert", "ssl_key")
_DRIVER_FLAGS = ("ssl_verify_cert", "ssl_verify_identity")
_DRIVER_SECONDS = ("connect_timeout", "read_timeout", "write_timeout")


class Grants:
    """What a login may do, as the lines of SHOW GRANTS say it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._granted: list[tuple[re.Pattern[str], str | None, frozenset[str]]] = []
        for line in lines:
            match = _GRANT.match(line)
            if match is None:
                continue
            # A permission on some columns only is not a permission on the table.
            privileges = frozenset(word.strip() for word, columns in _WORD.findall(match[1].upper()) if not columns)
            database, table = _unquoted(match[2]), _unquoted(match[3])
            self._granted.append((_pattern(database, exact=table is not None), table, privileges))

    def lacking(self, name: TableName, wanted: Sequence[str]) -> list[str]:
        has: set[str] = set()
        for database, table, privileges in self._granted:
            if database.fullmatch(name.schema) and table in (None, name.name):
                has |= privileges
        return [] if has & set(_ALL) else [name for name in wanted if name not in has]


def _unquoted(name: str) -> str | None:
    return None if name == "*" else name[1:-1].replace("``", "`")


def _pattern(database: str | None, *, exact: bool) -> re.Pattern[str]:
    """A database's name in a grant as an expression: `_` and `%` are wildcards there, unless it is for one table."""
    if database is None:
        return re.compile(".*", re.DOTALL)
    if exact:
        return re.compile(re.escape(database))
    wild = {"_": ".", "%": ".*"}
    parts = re.findall(r"\\.|.", database, re.DOTALL)
    text = "".join(wild.get(part, re.escape(part[1:] if len(part) == 2 else part)) for part in parts)
    return re.compile(text, re.DOTALL)


def missing_in_mariadb(
    ask: Ask, dialect: TargetDialect, mirrors: Sequence[TableName], progress: TableName
) -> list[MissingPermission]:
    """What is missing, for each database with its GRANT. None of the tables has to be there yet."""
    grants = Grants([str(line[0]) for line in ask("SHOW GRANTS", ())])
    name, _, host = str(ask("SELECT CURRENT_USER()", ())[0][0]).rpartition("@")
    user = f"{dialect.literal(name)}@{dialect.literal(host)}"
    there = {
        TableName(str(schema), str(table))
        for schema, table in ask(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')",
            (),
        )
    }
    missing: dict[str, dict[str, TableName]] = {}
    altering: dict[str, TableName] = {}
    for mirror in dict.fromkeys([progress, *mirrors]):
        # A table that is there need not be made; one that the login may not see looks as if it were not there.
        wanted = {mirror: _ROWS if mirror in there else _MIRROR}
        if mirror != progress:
            wanted[stage_of(mirror)] = _STAGE
            if grants.lacking(mirror, (_ALTER,)):
                altering.setdefault(mirror.schema, mirror)
        for table, privileges in wanted.items():
            for privilege in grants.lacking(table, privileges):
                missing.setdefault(mirror.schema, {}).setdefault(privilege, mirror)
    return [*_grants(dialect, missing, user), *_alterations(dialect, altering, user)]


def _grants(
    dialect: TargetDialect, missing: Mapping[str, Mapping[str, TableName]], user: str
) -> list[MissingPermission]:
    return [
        MissingPermission.of(
            list(tables),
            f"in database {schema}",
            f"{next(iter(tables.values()))} and the tables beside it",
            f"Run: GRANT {', '.join(tables)} ON {_granted(dialect, schema)}.* TO {user}.",
        )
        for schema, tables in missing.items()
    ]


def _alterations(dialect: TargetDialect, altering: Mapping[str, TableName], user: str) -> list[MissingPermission]:
    return [
        MissingPermission(
            f"The login lacks the permission ALTER in database {schema}, so it can't follow a change of the source's "
            f"schema ({example} and others).",
            f"Run: GRANT ALTER ON {_granted(dialect, schema)}.* TO {user}.",
            required=False,
        )
        for schema, example in altering.items()
    ]


def _granted(dialect: TargetDialect, schema: str) -> str:
    """A database's name as a GRANT takes it, where an underscore is a wildcard."""
    return dialect.quote(re.sub(r"([\\_%])", r"\\\1", schema))


class MariaDbDialect(TargetDialect):
    """MariaDB 10.6 and newer, MySQL 8.

    Args:
        server: `mariadb` or `mysql`, which have other names for the one collation that tells all texts apart.
    """

    title: ClassVar[str] = "MariaDB"
    lacks: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("float32", "float64"), "(?i)^(nan|[+-]?inf(inity)?)$"),
        **dict.fromkeys(("date", "timestamp", "instant", "zoned_timestamp"), "^[+]?[0-9]{5,}-|^-[0-9]| BC$"),
        "time": "^-?(8(39|[4-9][0-9])|9[0-9]{2}|[0-9]{4,}):",
    }
    rules: ClassVar[ColumnRules] = ColumnRules(
        title,
        # InnoDB's.
        frozenset(["db_row_id", "db_trx_id", "db_roll_ptr", "fts_doc_id"]),
        folded=lower_letters,
        most=64,
        wrong=(
            (r"[ \t\n\v\f\r]\Z", "which ends with a blank"),
            ("[\0\U00010000-\U0010ffff]", "which has a character that MariaDB takes in no name"),
        ),
    )
    folds_names: ClassVar[bool] = True
    mark: ClassVar[str] = "`"

    def __init__(self, server: str = "mariadb") -> None:
        self.collation = _UNICODE[server]

    def literal(self, text: str) -> str:
        """A text as SQL, with the backslash as escape, which Headrace sets for its connections."""
        return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"

    def column_types(self, schema: TableSchema) -> dict[str, str]:
        """Instants are `datetime` in UTC, because `timestamp` ends in 2038; texts of a key have a length."""
        types = {"": _POSITION}
        lengths = _key_lengths(schema)
        for column in schema.columns:
            kind = _type(column.logical)
            if column.name in lengths:
                kind = f"var{'binary' if kind == 'longblob' else 'char'}({lengths[column.name]})"
            types[column.name] = kind
        return types

    def create_schema(self, schema: str) -> str:
        return f"CREATE DATABASE IF NOT EXISTS {self.quote(schema)}"

    @property
    def _table_options(self) -> str:
        return f"ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE {self.collation}"

    def create_progress(self, progress: TableName) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table(progress)} (target varchar(300) PRIMARY KEY, "
            "owner text NOT NULL, batch bigint, source_table text NOT NULL, key_columns text NOT NULL, "
            f"written_at datetime(6), {BATCH_OFFSETS} text, {FORMAT_VERSION} integer) {self._table_options}"
        )

    def create_table(self, mirror: Mirror) -> list[str]:
        """Create the mirror; texts compare byte by byte, so that keys that differ in case or in a space are two."""
        lines = [self._column(mirror, column) for column in mirror.source.columns]
        comment = self.literal("Headrace: position of the row's last change")
        lines.append(f"{self._position(mirror)} {_POSITION} COMMENT {comment}")
        if mirror.source.key:
            lines.append(f"PRIMARY KEY ({', '.join(self.quote(name) for name in mirror.source.key)})")
        else:
            lines.append(f"KEY ({self._position(mirror)})")
        comment = f" COMMENT {self.literal(mirror.source.comment[:2048])}" if mirror.source.comment else ""
        return [
            f"CREATE TABLE IF NOT EXISTS {self.table(mirror.name)} ({', '.join(lines)}) {self._table_options}{comment}"
        ]

    def _column(self, mirror: Mirror, column: Column) -> str:
        kind = self.column_types(mirror.source)[column.name]
        null = "NOT NULL" if column.name in mirror.source.key else "NULL"
        comment = f" COMMENT {self.literal(column.comment[:1024])}" if column.comment else ""
        return f"{self.quote(column.name or mirror.position_column)} {kind} {null}{comment}"

    def add_column(self, mirror: Mirror, column: Column) -> list[str]:
        """Add a column to the mirror; rows that are there have null."""
        adding = f"ALTER TABLE {self.table(mirror.name)} ADD COLUMN {self._column(mirror, column)}"
        if not column.name and not mirror.source.key:
            adding += f", ADD KEY ({self._position(mirror)})"
        return [adding]

    def text_of(self, value: str, column: Column) -> str:
        """Its own text form; instants get the zone that they have, floats the digits of a double, which keep all."""
        kind = column.logical.kind
        if kind == "bytes":
            return f"HEX({value})"
        if kind == "float32":
            return f"CAST(CAST({value} AS DOUBLE) AS CHAR)"
        text = f"CAST({value} AS CHAR)"
        return f"CONCAT({text}, 'Z')" if kind in _MOMENTS and column.logical.digits <= 6 else text

    def widen_column(self, mirror: Mirror, column: Column) -> str:
        return f"ALTER TABLE {self.table(mirror.name)} MODIFY COLUMN {self._column(mirror, column)}"

    def create_stage(self, mirror: Mirror) -> list[str]:
        types = self.column_types(mirror.source)
        columns = ", ".join(f"{staged} {types[name]} NULL" for name, staged in mirror.all)
        mask = f"varchar({max(1, len(mirror.rest))}) character set ascii"
        return [
            self.drop_stage(mirror),
            f"CREATE TABLE {self.table(mirror.stage)} (l varchar(64) character set ascii, "
            f"o char(1) character set ascii, p {_POSITION}, m {mask}, f {_POSITION}, n bigint, {columns}) "
            f"{self._table_options}",
        ]

    def apply_keyed(self, mirror: Mirror, labels: Sequence[str], *, partial: bool) -> list[str]:
        """Delete, then one INSERT .. ON DUPLICATE KEY UPDATE. Our column is set last: the others look at it."""
        target, stage = self.table(mirror.name), f"{self.table(mirror.stage)} s"
        at, taken = self._position(mirror), self.taken(labels)
        names = ", ".join([*(self.quote(name) for name, _ in mirror.all), at])
        values = ", ".join([*(f"s.{staged}" for _, staged in mirror.all), "s.p"])
        older = self.before(f"{target}.{at}", "s.p")
        sets = []
        for name, staged in mirror.rest:
            old = f"{target}.{self.quote(name)}"
            new = self.chosen(mirror, name, staged, old) if partial else f"s.{staged}"
            sets.append(f"{old} = IF({older}, {new}, {old})")
        sets.append(f"{target}.{at} = IF({older}, s.p, {target}.{at})")
        return [
            f"DELETE t FROM {stage} STRAIGHT_JOIN {target} AS t ON {self.same_key(mirror)} "
            f"WHERE {taken} AND s.o = 'd' AND {self.older(mirror)}",
            f"INSERT INTO {target} ({names}) SELECT {values} FROM {stage} WHERE {taken} AND s.o <> 'd' "
            f"ON DUPLICATE KEY UPDATE {', '.join(sets)}",
        ]

    def apply_keyless(self, mirror: Mirror, labels: Sequence[str], *, deletes: bool) -> list[str]:
        """Delete the oldest of equal rows by their positions, which no two rows share, then insert.

        Rows that were there before a takeover get positions first, older than any of a source.
        """
        target, stage = self.table(mirror.name), f"{self.table(mirror.stage)} s"
        at, taken = self._position(mirror), self.taken(labels)
        names = ", ".join([*(self.quote(name) for name, _ in mirror.all), at])
        values = ", ".join([*(f"s.{staged}" for _, staged in mirror.all), "s.p"])
        inserting = f"INSERT INTO {target} ({names}) SELECT {values} FROM {stage} WHERE {taken} AND s.o = 'i'"
        if not deletes:
            return [inserting]
        here = self._whole(mirror, [f"t.{self.quote(name)}" for name, _ in mirror.all])
        gone = self._whole(mirror, [f"s.{staged}" for _, staged in mirror.all])
        return [
            f"UPDATE {target} SET {at} = CONCAT('!', UUID()) WHERE {at} IS NULL",
            f"DELETE t FROM {target} AS t JOIN (SELECT x.p FROM (SELECT t.{at} AS p, g.n, "
            f"ROW_NUMBER() OVER (PARTITION BY g.whole ORDER BY t.{at}) AS nth FROM {target} AS t "
            f"JOIN (SELECT {gone} AS whole, SUM(s.n) AS n FROM {stage} WHERE {taken} AND s.o = 'd' GROUP BY 1) g "
            f"ON {here} = g.whole) x WHERE x.nth <= x.n) y ON t.{at} = y.p",
            inserting,
        ]

    def _whole(self, mirror: Mirror, values: Sequence[str]) -> str:
        """SQL: a fingerprint of a row, in which null equals null."""
        parts = []
        for column, value in zip(mirror.source.columns, values, strict=True):
            if column.logical.kind != "bytes":
                # A float's text has six digits; as a double it has them all.
                exact = f"CAST({value} AS DOUBLE)" if column.logical.kind == "float32" else value
                value = f"CAST({exact} AS CHAR CHARACTER SET utf8mb4)"
            parts.append(f"IFNULL(HEX({value}), '-')")
        return f"SHA2(CONCAT_WS(',', {', '.join(parts)}), 256)"


def _type(logical: LogicalType) -> str:
    kind = logical.kind
    if kind in _TIMES:
        if logical.digits > 6:
            return "longtext"
        return _TIMES[kind] + (f"({logical.digits})" if logical.digits else "")
    if kind == "decimal" and logical.precision is not None:
        scale = logical.scale or 0
        if logical.precision <= _MOST_DIGITS and 0 <= scale <= _MOST_SCALE:
            return f"decimal({logical.precision},{scale})"
    return _TYPES.get(kind, "longtext")


def _key_lengths(schema: TableSchema) -> dict[str, int]:
    """How long the texts and bytes of a key may be: as declared, where an index entry has room for it."""
    open_ended: list[tuple[float, int, str]] = []
    free = _KEY_BYTES
    for column in schema.key_columns:
        kind = _type(column.logical)
        if kind in ("longtext", "longblob"):
            each = 1 if kind == "longblob" else 4
            declared = column.length if column.length and column.length > 0 else None
            open_ended.append((declared * each if declared else float("inf"), each, column.name))
        else:
            free -= _FIXED_BYTES
    lengths = {}
    # The short ones first: what they leave is shared by the others.
    for number, (need, each, name) in enumerate(sorted(open_ended)):
        given = int(min(need, max(free, 0) // (len(open_ended) - number)))
        lengths[name] = max(1, given // each)
        free -= given
    return lengths


class MariaDb(Database):
    """A MariaDB or MySQL server reached with PyMySQL."""

    default_table_name: ClassVar[str] = "{table}"

    def __init__(self, address: Address) -> None:
        super().__init__(address, MariaDbDialect())
        self._parameters = _driver_parameters(address.parameters)

    def connect(self) -> Any:
        """Open a connection; a transaction begins with the first statement."""
        pymysql = _driver()
        address = self.address
        try:
            connection = pymysql.connect(
                **{"connect_timeout": 10, **self._parameters},
                host=address.host,
                port=address.port,
                database=address.database,
                user=address.user,
                password=address.current_password(),
                charset="utf8mb4",
                sql_mode=_MODE,
                # What is read back, such as by verify, is whole.
                init_command=f"SET {WITHOUT_LIMITS}",
                autocommit=False,
            )
        except pymysql.MySQLError as failure:
            raise ConnectError(
                f"{address} can't be reached or refuses the login (error {_code(failure)}).",
                remedy="Check the sink's options 'url', 'user' and 'password', and whether the server runs.",
            ) from None
        self.dialect = MariaDbDialect("mariadb" if "MariaDB" in connection.get_server_info() else "mysql")
        return connection

    def default_schema(self, connection: Any) -> str:
        return self.address.database

    def has_schema(self, connection: Any, schema: str) -> bool:
        return bool(self.ask(connection, "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", (schema,)))

    def target_schema(self, connection: Any, name: TableName) -> TargetSchema:
        """Columns with types without display widths, the primary key, and other unique indexes."""
        schema_and_table = (name.schema, name.name)
        columns = self.ask(
            connection,
            "SELECT column_name, column_type FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            schema_and_table,
        )
        unique = self.ask(
            connection,
            "SELECT index_name, column_name FROM information_schema.statistics "
            "WHERE table_schema = %s AND table_name = %s AND non_unique = 0",
            schema_and_table,
        )
        return TargetSchema(
            {column: _plain(kind) for column, kind in columns},
            frozenset(column for index, column in unique if index == "PRIMARY"),
            tuple(sorted({index for index, _ in unique if index != "PRIMARY"})),
        )

    def missing_permissions(
        self, connection: Any, mirrors: Sequence[TableName], progress: TableName
    ) -> list[MissingPermission] | None:
        """Asked by SHOW GRANTS, which in MariaDB covers roles too. MySQL's answer, which hides them, is not read."""
        if "MariaDB" not in connection.get_server_info():
            return None
        return missing_in_mariadb(partial(self.ask, connection), self.dialect, mirrors, progress)

    def load(self, connection: Any, stage: TableName, columns: Sequence[str], texts: Iterator[pa.Buffer]) -> None:
        """INSERT .. VALUES with many rows at a time. LOAD DATA LOCAL needs a permission that servers seldom grant."""
        begin = f"INSERT INTO {self.dialect.table(stage)} ({', '.join(columns)}) VALUES ".encode()
        for text in texts:
            connection.query(begin + memoryview(text)[:-1])

    def stream(self, connection: Any, query: str, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        from pymysql.cursors import SSCursor

        with connection.cursor(SSCursor) as cursor:
            cursor.execute(query)
            while lines := cursor.fetchmany(rows):
                yield list(lines)

    def logical_for(self, column: Column) -> LogicalType:
        """Canonical text, but instants without `T` and `Z`, which come in UTC, and floats with the digits of a double.

        MariaDB reads a text as a double first, which for the greatest floats would be out of a float's range.
        """
        logical = column.logical
        if logical.kind == "float32":
            return LogicalType("float64")
        if logical.kind in ("instant", "zoned_timestamp") and logical.digits <= 6:
            return LogicalType("timestamp", logical.precision)
        return logical

    @property
    def encoding(self) -> RowEncoding:
        return _VALUES

    def troubles(self) -> Troubles:
        return (_driver().MySQLError,)

    def explain(self, failure: Exception, id: TableId, name: TableName) -> HeadraceError:
        """A failure of the driver as our error. The server's own message may hold values, so only its code is shown."""
        code = _code(failure)
        if code in _WRONG_VALUES:
            return self.wrong_value(id, name, f"error {code}")
        return self.not_written(name, f"error {code}", is_transient=code in _TRANSIENT)

    def is_refusal(self, failure: Exception) -> bool:
        return _code(failure) in _REFUSALS


def _driver_parameters(parameters: Mapping[str, str]) -> dict[str, Any]:
    """The parameters after `?` in the URL, as PyMySQL wants them."""
    options: dict[str, Any] = {}
    for name, value in parameters.items():
        if name in _DRIVER_SECONDS and value.isdigit():
            options[name] = int(value)
        elif name in _DRIVER_FLAGS and value in ("true", "false"):
            options[name] = value == "true"
        elif name in _DRIVER_TEXTS:
            options[name] = value
        else:
            known = ", ".join((*_DRIVER_TEXTS, *_DRIVER_FLAGS, *_DRIVER_SECONDS))
            raise OptionError(
                f"Option 'url' of sink 'jdbc' has an unknown or wrong setting: '{name}'.",
                remedy=f"Known for MariaDB and MySQL: {known}.",
            )
    return options


def _plain(kind: str) -> str:
    """A type without the display width that some servers tell; `tinyint(1)` is a boolean and keeps it."""
    return kind if kind == "tinyint(1)" else _WIDTH.sub(r"\1", kind)


def _code(failure: Exception) -> Any:
    return failure.args[0] if failure.args else type(failure).__name__


def _driver() -> Any:
    try:
        import pymysql
    except ImportError as missing:
        raise SinkError(
            "The jdbc sink needs the Python package 'PyMySQL' for MariaDB and MySQL, here and on the executors.",
            remedy="pip install 'headrace[mariadb]'.",
        ) from missing
    return pymysql
