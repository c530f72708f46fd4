"""Rule: what a server prints of its tables and what a snapshot reads of them are the same rows, read by two ways that
share no statement and no conversion. `headrace verify` holds mirrors against the first.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from typing import Any

import pytest
from tests.real.database_texts import plain

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import CaptureError
from headrace.sources.base import Source
from headrace.sources.mysql.source import MysqlSource
from headrace.sources.mysql.types import NativeType
from headrace.sources.postgresql.source import PostgresSource
from headrace.sources.printed_tables import PrintedTable
from headrace.sources.tables.masks import Masks
from headrace.testing.sources import SourceRun
from headrace_emulators.mysql.server import MARIADB, MySqlDatabase
from headrace_emulators.postgresql.server import PostgresDatabase

_NOW = dt.datetime(2026, 11, 26, tzinfo=dt.UTC)
Lines = dict[str, Counter[str]]

POSTGRES = """
CREATE TYPE mood AS ENUM ('low', 'it''s "fine"'); CREATE TYPE pair AS (n int, t text);
CREATE TABLE numbers (id int PRIMARY KEY, a smallint, b bigint, c numeric(30, 10), d numeric, e real, f float8, g money,
  h bool, i bit(1), j bit(9), k varbit, l oid);
INSERT INTO numbers VALUES
  (1, -32768, 9223372036854775807, 12345678901234567890.1234567891, 1e-20, 0.1, 0.1, '$1,234.50', true, '1',
   '101010101', '10', 4294967295),
  (2, 0, 0, 0, 0, -0.0, 'NaN', '-$0.01', false, '0', '000000000', '', 0),
  (3, null, null, null, null, null, null, null, null, null, null, null, null),
  (4, 1, 1, 1, 'NaN', '-Infinity', 5e-324, 0, true, '1', '000000001', '1', 1);
CREATE TABLE texts (id int PRIMARY KEY, a char(6), b varchar(9), c text, d bytea, e json, f jsonb, g uuid, h mood,
  i xml, j pair, k inet, l tsvector);
INSERT INTO texts VALUES
  (1, 'ab', '', E'tab\\t"quotes", \\\\N and\\nlines', '\\x00ff', '{"b": 1,  "a": 1.10}', '{"b": 1, "a": 1.10}',
   'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'it''s "fine"', '<a>1</a>', '(1,"x, y")', '::1/64', 'a b'),
  (2, '', 'NULL', 'NULL', '', 'null', 'null', null, 'low', null, '(,)', '10.0.0.1', '');
CREATE TABLE times (id int PRIMARY KEY, a date, b time(3), c timestamp(2), d timestamptz, e interval, f timetz);
INSERT INTO times VALUES
  (1, '2024-02-29', '23:59:59.999', '2024-02-29 23:59:59.99', '2024-02-29 23:59:59.999999+05:30',
   '1 year -2 days 03:04:05.6', '12:00:00+02'),
  (2, '0044-03-15 BC', '24:00:00', 'infinity', '-infinity', '0', '00:00:00-12'),
  (3, '9999-12-31', null, '0001-01-01', '0001-01-01 00:00:00+00', null, null);
CREATE TABLE lists (id int PRIMARY KEY, a int[], b text[], c numeric(9, 2)[], d mood[], e timestamptz[], f pair[]);
INSERT INTO lists VALUES (1, '{1,NULL,3}', '{a,"b,c",NULL,"NULL"}', '{1.50,2}', '{low}',
  '{"2024-01-01 00:00:00+00"}', ARRAY[ROW(1, 'x')::pair]), (2, '{}', '{{a},{b}}', null, null, null, null);
CREATE TABLE parts (id int, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
INSERT INTO parts VALUES (1, '2024-05-05');
CREATE TABLE base (id int PRIMARY KEY); INSERT INTO base VALUES (1);
CREATE TABLE derived () INHERITS (base); INSERT INTO derived VALUES (2);
CREATE TABLE bare (v text); INSERT INTO bare VALUES ('a'), ('a'), (NULL);
CREATE TABLE nothing (id int PRIMARY KEY)
"""
MYSQL = [
    "CREATE TABLE numbers (id INT PRIMARY KEY, a TINYINT UNSIGNED, b INT(8) UNSIGNED ZEROFILL, c BIGINT UNSIGNED, "
    "d BIGINT, e DECIMAL(30,10), f DECIMAL(6,2) UNSIGNED ZEROFILL, g FLOAT, h DOUBLE, i BIT(1), j BIT(12), k YEAR)",
    "INSERT INTO numbers VALUES (1, 255, 42, 18446744073709551615, -9223372036854775808, 12345678901234567890.5, 1.5, "
    "0.1, 0.1, b'1', b'101010101', 2024), (2, 0, 0, 0, 0, 0, 0, -0.0, -0e0, b'0', b'0', 0), "
    "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), "
    "(4, 1, 1, 1, 1, -0.0000000001, 9999.99, 3.4028e38, 5e-324, b'1', b'111111111111', 1901)",
    "CREATE TABLE texts (id INT PRIMARY KEY, a CHAR(6), b VARCHAR(20) CHARACTER SET latin1, c TEXT CHARACTER SET gbk, "
    "d TEXT CHARACTER SET utf8mb4, e VARBINARY(9), f BLOB, g ENUM('low', 'it''s', 'x,y') CHARACTER SET utf8mb4, "
    "h SET('a', 'b c') CHARACTER SET latin1, i JSON, j BINARY(4), k VARCHAR(9) CHARACTER SET ucs2, "
    "l TEXT CHARACTER SET cp1251)",
    "INSERT INTO texts VALUES (1, 'ab ', 'é€', '中文', 'tab\\t\\\\ \U0001f600', x'00ff', x'0001', 'it''s', 'a,b c', "
    "'{\"b\": 1, \"a\": [1.10, null]}', x'01', 'ж', 'ж'), (2, '', '', '', '', '', '', 'low', '', 'null', x'', '', ''), "
    "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "CREATE TABLE times (id INT PRIMARY KEY, a DATE, b TIME(3), c DATETIME(6), d TIMESTAMP(2) NULL, e DATETIME)",
    "INSERT INTO times VALUES (1, '2024-02-29', '-838:59:59', '2024-02-29 23:59:59.999999', '2024-02-29 23:59:59.99', "
    "'9999-12-31 23:59:59'), (2, '0000-00-00', '00:00:00.001', '0000-00-00', '1970-01-01 00:00:01', '2024-00-00')",
    "CREATE TABLE shapes (id INT PRIMARY KEY, a POINT, b POLYGON)",
    "INSERT INTO shapes VALUES (1, ST_GeomFromText('POINT(1.5 -2)', 4326), "
    "ST_GeomFromText('POLYGON((0 0, 1 0, 1 1, 0 0))'))",
    "CREATE TABLE bare (v VARCHAR(9)) ENGINE=InnoDB",
    "INSERT INTO bare VALUES ('a'), ('a'), (NULL)",
    "CREATE TABLE nothing (id INT PRIMARY KEY)",
]
MARIADB_TYPES = [
    "CREATE TABLE own (id INT PRIMARY KEY, a UUID, b INET6, c VARCHAR(90) COMPRESSED)",
    "INSERT INTO own VALUES (1, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '::1', repeat('x', 90))",
]


def read(source: Source) -> Lines:
    """The rows that a snapshot reads, by table."""
    found: Lines = {}
    for row in SourceRun(lambda: source).all():
        if row["op"] == "r":
            add(found, row)
    return found


def printed(source: Source) -> Lines:
    """The rows that the server prints, by table."""
    found: Lines = {}
    tables = source.printed_tables()
    assert tables is not None
    for table in tables:
        for batch in table.change_rows(source.name, _NOW):
            for row in batch.to_pylist():
                if row["op"] == "r":
                    add(found, row)
    return found


def add(found: Lines, row: dict[str, Any]) -> None:
    line = {name: None if text is None else plain(text) for name, text in row["after"]}
    found.setdefault(row["table"]["name"], Counter())[json.dumps(line)] += 1


def differences(one: Lines, other: Lines) -> dict[str, tuple[Any, Any]]:
    """Lines that only one of them has, by table."""
    return {
        name: (sorted(one.get(name, Counter()) - other.get(name, Counter())), sorted(lines - one.get(name, Counter())))
        for name, lines in other.items()
        if lines != one.get(name)
    }


def left_out(source: Source) -> dict[str, tuple[str, ...]]:
    tables = source.printed_tables()
    assert tables is not None
    return {table.schema.id.name: table.left_out for table in tables if table.left_out}


def test_postgresql_prints_what_a_snapshot_reads(postgres_database: PostgresDatabase) -> None:
    postgres_database.execute(POSTGRES)
    options = {**postgres_database.options, "slot": f"p_{postgres_database.name}", "snapshot_chunk_rows": "0"}
    seen = read(PostgresSource.of({**options, "snapshot_mode": "initial_only"}))
    assert seen.keys() == {"numbers", "texts", "times", "lists", "parts", "base", "derived", "bare"}
    assert differences(seen, printed(PostgresSource.of(options))) == {}


def test_mariadb_and_mysql_print_what_a_snapshot_reads(binlog_database: MySqlDatabase) -> None:
    of_server = MARIADB_TYPES if binlog_database.server.name == MARIADB else []
    with binlog_database.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for statement in [*MYSQL, *of_server]:
            cursor.execute(statement)
        connection.commit()
    options = {**binlog_database.options, "snapshot_chunk_rows": "0"}
    seen = read(MysqlSource.of({**options, "snapshot_mode": "initial_only"}))
    assert seen.keys() == {"numbers", "texts", "times", "shapes", "bare", *(["own"] if of_server else [])}
    assert differences(seen, printed(MysqlSource.of(options))) == {}


def test_a_limit_of_the_server_does_not_hide_rows_from_what_it_prints(mariadb_database: MySqlDatabase) -> None:
    mariadb_database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    mariadb_database.run("INSERT INTO t VALUES (1), (2), (3)")
    with mariadb_database.server.changed(sql_select_limit=2, max_join_size=1, sql_big_selects=0):
        assert sum(printed(MysqlSource.of(mariadb_database.options))["t"].values()) == 3


def test_columns_that_are_not_captured_are_named_unless_the_options_exclude_them(
    postgres_database: PostgresDatabase,
) -> None:
    postgres_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int GENERATED ALWAYS AS (a * 2) STORED, c int);"
        "CREATE PUBLICATION shop FOR TABLE t (id, a, c)"
    )
    options = {**postgres_database.options, "publication": "shop", "publication_autocreate": "disabled"}
    assert left_out(PostgresSource.of(options)) == {"t": ("b",)}
    assert left_out(PostgresSource.of({**options, "column_exclude_list": r"public\.t\.(b|c)"})) == {}


def test_rows_that_the_server_counts_and_does_not_give_are_an_error() -> None:
    schema = TableSchema(TableId("", "s", "t"), (Column("id", 1, LogicalType("int32"), "int"),), ("id",))
    masks = Masks().of_table(schema, (NativeType("int"),))
    table = PrintedTable(schema, 3, (), iter([[("1",), ("2",)]]), (None,), masks)
    with pytest.raises(CaptureError, match=r"counts 3 rows in table 's\.t' and gives 2"):
        list(table.change_rows("toy", _NOW))
