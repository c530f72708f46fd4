"""Which tables of a server are captured, and how the catalog shows them."""

from __future__ import annotations

import pytest

from headrace.errors import CaptureError
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.catalog import Catalog, means
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
    assert MysqlTable.from_json(table.to_json()) == table


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
    with pytest.raises(CaptureError, match="has no table"):
        captured(binlog_database, tables=f"{binlog_database.name}.ordrs")
    assert captured(binlog_database, strict=False, tables=f"{binlog_database.name}.ordrs") == {}


def test_a_server_without_a_table_to_capture_is_an_error(binlog_database: MySqlDatabase) -> None:
    with pytest.raises(CaptureError, match="no table to capture"):
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
