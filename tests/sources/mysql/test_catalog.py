"""Which tables of a server are captured, and how the catalog shows them."""

from __future__ import annotations

import pytest

from headrace.changes import TableId
from headrace.errors import CaptureError
from headrace.sources.mysql.captured_table import MysqlTable, tables_of
from headrace.sources.mysql.catalog import Catalog, estimated_rows, means
from headrace.sources.mysql.connection import Connection
from headrace.sources.mysql.options import MysqlSettings
from headrace_emulators.mysql.server import MARIADB, MySqlDatabase


def settings_of(database: MySqlDatabase, **options: str) -> MysqlSettings:
    return MysqlSettings.parse({**database.options, **options}, owner="source 'mysql_cdc'")


def captured(database: MySqlDatabase, *, strict: bool = True, **options: str) -> dict[str, MysqlTable]:
    settings = settings_of(database, **options)
    with Connection(settings) as connection:
        found = Catalog(connection, settings).captured(strict=strict)
    return {path.partition(".")[2]: table for path, table in found.items()}


def only(database: MySqlDatabase) -> MysqlTable:
    [table] = captured(database).values()
    return table


@pytest.mark.parametrize(
    "definition, key, chunk_key",
    [
        ("b INT, a INT, PRIMARY KEY (a, b)", ("a", "b"), ("a", "b")),
        ("a INT NOT NULL, b INT NOT NULL, UNIQUE (b), PRIMARY KEY (a)", ("a",), ("a",)),
        ("a INT NOT NULL, b INT, UNIQUE (b), UNIQUE (a)", ("a",), ("a",)),
        ("a INT, UNIQUE (a)", (), ()),
        ("a VARCHAR(99) NOT NULL, UNIQUE (a(5))", (), ()),
        ("`a,b` INT NOT NULL, `c``d` INT NOT NULL, UNIQUE (`c``d`, `a,b`)", ("c`d", "a,b"), ("c`d", "a,b")),
        ("a INT", (), ()),
    ],
)
def test_the_key_is_the_primary_key_or_a_unique_one_of_whole_columns_that_are_never_null(
    binlog_database: MySqlDatabase, definition: str, key: tuple[str, ...], chunk_key: tuple[str, ...]
) -> None:
    binlog_database.run(f"CREATE TABLE t ({definition})")
    table = only(binlog_database)
    assert (table.schema.key, table.chunk_key) == (key, chunk_key)


def test_columns_say_what_the_server_does_to_them(binlog_database: MySqlDatabase) -> None:
    binlog_database.run(
        "CREATE TABLE t (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY COMMENT 'numbers', a INT DEFAULT 7, "
        "v INT AS (a + 1) VIRTUAL, s INT AS (a + 1) STORED, h INT INVISIBLE, e ENUM('x','y,z') NOT NULL, j JSON, "
        "n TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) COMMENT 'about'"
    )
    table = only(binlog_database)
    columns = {column.name: column for column in table.schema.columns}
    assert list(columns) == ["id", "a", "v", "s", "h", "e", "j", "n"] and table.schema.comment == "about"
    assert [name for name, column in columns.items() if column.generated] == ["v", "s"]
    assert [name for name, column in columns.items() if column.identity] == ["id"]
    assert [name for name, column in columns.items() if not column.nullable] == ["id", "e", "n"]
    assert columns["id"].comment == "numbers" and columns["a"].default_expression == "7"
    assert [str(columns[name].logical) for name in ("id", "j", "n")] == ["uint64", "json", "instant(0)"]
    assert columns["e"].enum_values == ("x", "y,z")
    assert tables_of.one(table.to_json()) == table


def test_a_view_is_not_captured_and_says_why(binlog_database: MySqlDatabase) -> None:
    binlog_database.run("CREATE TABLE t (id INT PRIMARY KEY); CREATE VIEW v AS SELECT * FROM t")
    assert list(captured(binlog_database)) == ["t"]
    with pytest.raises(CaptureError, match=r"v' is a view"):
        captured(binlog_database, tables=f"{binlog_database.name}.v")


def test_a_sequence_is_not_captured(mariadb_database: MySqlDatabase) -> None:
    mariadb_database.run("CREATE TABLE t (id INT PRIMARY KEY); CREATE SEQUENCE s")
    assert list(captured(mariadb_database)) == ["t"]


def test_json_is_known_by_its_check_where_the_server_has_no_such_type(mariadb_database: MySqlDatabase) -> None:
    mariadb_database.run("CREATE TABLE t (id INT PRIMARY KEY, j JSON, `k``k` JSON, l LONGTEXT CHECK (l <> ''))")
    kinds = {column.name: str(column.logical) for column in only(mariadb_database).schema.columns}
    assert kinds == {"id": "int32", "j": "json", "k`k": "json", "l": "string"}
    assert mariadb_database.server.name == MARIADB


def test_a_named_table_that_is_not_there_is_an_error(binlog_database: MySqlDatabase) -> None:
    binlog_database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    with pytest.raises(CaptureError, match="shows this login no table"):
        captured(binlog_database, tables=f"{binlog_database.name}.ordrs")
    assert captured(binlog_database, strict=False, tables=f"{binlog_database.name}.ordrs") == {}


def test_a_server_without_a_table_to_capture_is_an_error(binlog_database: MySqlDatabase) -> None:
    with pytest.raises(CaptureError, match="shows this login no table to capture"):
        captured(binlog_database)


@pytest.mark.parametrize(
    "databases, path, meant",
    [
        ("re:sho.+", "shop2.orders", True),
        ("sho.*", "shop2.orders", True),
        ("shop", "shop.orders", True),
        ("shop", "shop2.orders", False),
        ("sh*", "shop2.orders", True),
        ("other,shop", "shop.orders", True),
    ],
)
def test_the_databases_of_the_options_say_which_tables_are_meant(databases: str, path: str, meant: bool) -> None:
    settings = MysqlSettings.parse({"databases": databases}, owner="source 'mysql_cdc'")
    assert means(settings, path) is meant


DEFAULTS = [
    # a type with its default; the canonical text
    ("VARCHAR(40) DEFAULT 'a''b\\\\c\\nd\"'", "a'b\\c\nd\""),
    ("VARCHAR(40) CHARACTER SET latin1 DEFAULT 'é'", "é"),
    ("VARCHAR(40) DEFAULT '😀'", None),
    ("VARCHAR(40) DEFAULT 'NULL'", "NULL"),
    ("VARCHAR(40) DEFAULT 'current_timestamp()'", "current_timestamp()"),
    ("VARCHAR(40) DEFAULT (LOWER('A'))", None),
    ("VARCHAR(40) DEFAULT NULL", None),
    ("VARCHAR(40) NOT NULL DEFAULT ''", ""),
    ("INT DEFAULT -5", "-5"),
    ("INT DEFAULT (1 + 2)", None),
    ("INT(5) ZEROFILL DEFAULT 7", "7"),
    ("TINYINT(1) DEFAULT TRUE", "1"),
    ("DECIMAL(8,3) DEFAULT 1.5", "1.500"),
    ("DECIMAL(20,0) DEFAULT 12345678901234567890", "12345678901234567890"),
    ("FLOAT DEFAULT 0.1", "0.1"),
    ("DOUBLE DEFAULT 1e-5", "1e-05"),
    ("BIT(1) DEFAULT b'1'", "true"),
    ("BIT(10) DEFAULT b'1000000001'", "AQI="),
    ("DATE DEFAULT '2020-02-02'", "2020-02-02"),
    ("DATETIME(3) DEFAULT '2020-01-01 00:00:00.5'", "2020-01-01 00:00:00.500"),
    ("DATETIME DEFAULT CURRENT_TIMESTAMP", None),
    ("TIMESTAMP(3) NOT NULL DEFAULT '2020-01-01 00:00:00.5'", "2020-01-01T00:00:00.500Z"),
    ("TIME DEFAULT '-100:00:01'", "-100:00:01"),
    ("YEAR DEFAULT 2020", "2020"),
    ("ENUM('a,b','c') DEFAULT 'a,b'", "a,b"),
    ("SET('a','b') DEFAULT 'b,a'", "a,b"),
]


def test_a_default_that_is_a_constant_has_its_canonical_text(binlog_database: MySqlDatabase) -> None:
    columns = ", ".join(f"c{number} {declared}" for number, (declared, _) in enumerate(DEFAULTS))
    binlog_database.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    found = {column.name: column.default for column in only(binlog_database).schema.columns}
    assert found == {"id": None, **{f"c{number}": text for number, (_, text) in enumerate(DEFAULTS)}}


def test_bytes_are_a_default_where_the_catalog_shows_them_whole(
    mariadb_database: MySqlDatabase, mysql_database: MySqlDatabase
) -> None:
    for database, wanted in ((mariadb_database, "YWJj"), (mysql_database, None)):
        database.run("CREATE TABLE t (a BINARY(3) DEFAULT 'abc', b VARBINARY(3) DEFAULT x'00ff')")
        assert [column.default for column in only(database).schema.columns] == [wanted, None]


def test_the_server_says_about_how_many_rows_a_table_has(binlog_database: MySqlDatabase) -> None:
    binlog_database.run(
        "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3); CREATE TABLE e (a INT)"
    )
    binlog_database.run("ANALYZE TABLE t, e")
    tables = [TableId(binlog_database.name, "", name) for name in ("t", "e", "gone")]
    with Connection(settings_of(binlog_database)) as connection:
        assert estimated_rows(connection, tables) == {f"{binlog_database.name}.t": 3}
        assert estimated_rows(connection, []) == {}


def test_a_login_that_sees_no_table_is_told_so(binlog_database: MySqlDatabase) -> None:
    with pytest.raises(CaptureError, match=r"shows this login no table, so none is 'nothing\.\*'"):
        captured(binlog_database, databases="nothing", tables="nothing.*")
