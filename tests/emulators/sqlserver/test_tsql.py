"""T-SQL gives here what it gives on a server: each row is a statement and its result."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from headrace_emulators.sqlserver import EmulatedDatabase
from headrace_emulators.sqlserver.errors import DatabaseError, NotSupportedError

D = Decimal

VALUES: list[tuple[str, Any]] = [
    ("SELECT 7 / 2", 3),
    ("SELECT -7 / 2", -3),
    ("SELECT 7 % 4", 3),
    ("SELECT 1.5 + 1", D("2.5")),
    ("SELECT CAST(10 AS decimal(9,2)) / 4", D("2.500000000000")),
    ("SELECT 1e0 / 4", 0.25),
    ("SELECT 'a' + N'b'", "ab"),
    ("SELECT ISNULL(NULL, 'x')", "x"),
    ("SELECT COALESCE(NULL, NULL, 3)", 3),
    ("SELECT LEN('ab  ')", 2),
    ("SELECT DATALENGTH(N'ab')", 4),
    ("SELECT CASE WHEN 'ABC' = 'abc  ' THEN 1 ELSE 0 END", 1),
    ("SELECT CASE WHEN 'ABC' = 'abc' COLLATE Latin1_General_BIN2 THEN 1 ELSE 0 END", 0),
    ("SELECT CASE WHEN 'e' = 'é' THEN 1 ELSE 0 END", 0),
    ("SELECT CASE WHEN 'Xyz' LIKE 'x[a-y]%' THEN 1 ELSE 0 END", 1),
    ("SELECT CONVERT(char(27), CAST('2018-07-13 11:23:45.1234567' AS datetime2(7)), 121)",
     "2018-07-13 11:23:45.1234567"),
    ("SELECT CONVERT(varchar(34), CAST('2018-07-13 12:23:45.456 +11:00' AS datetimeoffset(3)), 121)",
     "2018-07-13 12:23:45.456 +11:00"),
    ("SELECT CONVERT(varchar(40), CAST('2018-07-13 12:23:45.456 +11:00' AS datetimeoffset(3)), 127)",
     "2018-07-13T01:23:45.456Z"),
    ("SELECT CONVERT(varchar(23), CAST('2018-07-13 12:00:00' AS datetime), 126)", "2018-07-13T12:00:00"),
    ("SELECT CONVERT(varchar(23), CAST('2018-07-13 12:00:00.5' AS datetime), 126)", "2018-07-13T12:00:00.500"),
    ("SELECT CONVERT(varchar(30), CAST('2018-07-13 12:34:40' AS smalldatetime), 121)", "2018-07-13 12:35:00.000"),
    ("SELECT CONVERT(varchar(30), CAST('12:34:56.7' AS time(3)))", "12:34:56.700"),
    ("SELECT CAST('2018-07-13T12:23:45.998' AS datetime)", dt.datetime(2018, 7, 13, 12, 23, 45, 997000)),
    ("SELECT CAST('2018-07-13T12:23:45.999' AS datetime)", dt.datetime(2018, 7, 13, 12, 23, 46)),
    ("SELECT CAST('2018-07-13' AS date)", dt.date(2018, 7, 13)),
    ("SELECT CAST('0e984725-c51c-4bf4-9960-e1c80e27aba0' AS uniqueidentifier)", "0E984725-C51C-4BF4-9960-E1C80E27ABA0"),
    ("SELECT CONVERT(char(36), CAST('0e984725-c51c-4bf4-9960-e1c80e27aba0' AS uniqueidentifier))",
     "0E984725-C51C-4BF4-9960-E1C80E27ABA0"),
    ("SELECT CONVERT(varchar(22), 0x00AB, 1)", "0x00AB"),
    ("SELECT CONVERT(varbinary(10), '0x00AB', 1)", b"\x00\xab"),
    ("SELECT CONVERT(varchar(22), 0x00AB, 2)", "00AB"),
    ("SELECT CONVERT(binary(4), 0x01)", b"\x01\x00\x00\x00"),
    ("SELECT CAST(258 AS binary(4))", b"\x00\x00\x01\x02"),
    ("SELECT CAST(12.345 AS decimal(9,2))", D("12.35")),
    ("SELECT CAST('12.5' AS money)", D("12.5000")),
    ("SELECT CONVERT(varchar(20), CAST(5.323 AS money))", "5.32"),
    ("SELECT CAST(1.9 AS int)", 1),
    ("SELECT CAST('true' AS bit)", True),
    ("SELECT CAST(1 AS char(3))", "1  "),
    ("SELECT TRY_CONVERT(int, 'x')", None),
    ("SELECT DATEPART(TZOFFSET, SYSDATETIMEOFFSET())", 0),
    ("SELECT CURRENT_TIMEZONE_ID()", "UTC"),
    ("SELECT CURRENT_TIMEZONE()", "(UTC) Coordinated Universal Time"),
    ("SELECT DATEADD(month, 1, CAST('2020-01-31' AS date))", dt.date(2020, 2, 29)),
    ("SELECT DATEDIFF(day, '2020-01-01 23:59:00', '2020-01-02 00:01:00')", 1),
    ("SELECT TODATETIMEOFFSET(CAST('2020-01-01 10:00:00' AS datetime2(0)), 60)",
     dt.datetime(2020, 1, 1, 10, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
    ("SELECT DB_NAME()", "testDB"),
    ("SELECT DB_NAME(DB_ID('testDB'))", "testDB"),
    ("SELECT OBJECT_NAME(OBJECT_ID('dbo.t'))", "t"),
    ("SELECT OBJECT_SCHEMA_NAME(OBJECT_ID('[dbo].[t]'), DB_ID())", "dbo"),
    ("SELECT OBJECT_ID('dbo.nothing')", None),
    ("SELECT SERVERPROPERTY('EngineEdition')", 3),
    ("SELECT HAS_PERMS_BY_NAME('dbo.t', 'OBJECT', 'SELECT')", 1),
    ("SELECT COUNT_BIG(*) FROM t", 3),
    ("SELECT MAX(d) FROM t", D("100.00")),
    ("SELECT MIN(name) FROM t", "a"),
    ("SELECT SUM(d) FROM t", D("111.50")),
    ("SELECT AVG(id) FROM t", 2),
    ("SELECT COUNT(DISTINCT name) FROM t", 1),
    ("SELECT sys.fn_cdc_increment_lsn(0x000000000000000000FF)", bytes.fromhex("00000000000000000100")),
    ("SELECT [testDB].sys.fn_cdc_decrement_lsn(0x00000000000000000100)", bytes.fromhex("000000000000000000FF")),
    ("SELECT sys.fn_cdc_get_min_lsn('nothing')", b"\x00" * 10),
    ("SELECT QUOTENAME('a]b')", "[a]]b]"),
]  # fmt: skip

ROWS: list[tuple[str, list[object], list[tuple[Any, ...]]]] = [
    ("SELECT TOP (2) id FROM t ORDER BY id DESC", [], [(3,), (2,)]),
    ("SELECT TOP (?) id FROM t WHERE id >= ? ORDER BY id", [1, 2], [(2,)]),
    ("SELECT id FROM t ORDER BY id OFFSET ? ROWS FETCH NEXT 1 ROWS ONLY", [1], [(2,)]),
    ("SELECT id FROM [testDB].[dbo].[t] AS x WITH (NOLOCK) WHERE x.[id] IN (1, 3) ORDER BY x.id", [], [(1,), (3,)]),
    ("SELECT id FROM t ORDER BY d", [], [(1,), (2,), (3,)]),
    ("SELECT id FROM t WHERE d > 9.5 ORDER BY id", [], [(2,), (3,)]),
    ("SELECT id FROM t WHERE d > ? ORDER BY id", [D("9.99")], [(2,), (3,)]),
    ("SELECT id FROM t WHERE name = 'A  ' ORDER BY id", [], [(1,), (2,)]),
    ("SELECT id FROM t WHERE name IS NULL", [], [(3,)]),
    ("SELECT id FROM t ORDER BY name, id", [], [(3,), (1,), (2,)]),
    ("SELECT id FROM t WHERE w = '2020-01-01T10:00:00'", [], [(1,)]),
    ("SELECT id FROM t WHERE w > ?", [dt.datetime(2020, 1, 1, 10)], [(2,)]),
    ("SELECT id FROM t WHERE w BETWEEN CAST('2020-01-01' AS date) AND '2020-01-01 10:00:00.0000000'", [], [(1,)]),
    ("SELECT id FROM t ORDER BY g", [], [(3,), (2,), (1,)]),
    ("SELECT id FROM t WHERE o = '2020-01-01 09:00:00 +00:00'", [], [(2,)]),
    ("SELECT name, COUNT(*) FROM t WHERE name IS NOT NULL GROUP BY name", [], [("a", 2)]),
    ("WITH r AS (SELECT id, ROW_NUMBER() OVER (PARTITION BY name ORDER BY id DESC) AS n FROM t) SELECT id FROM r"
    " WHERE n = 1 ORDER BY id",
     [], [(2,), (3,)]),
    ("SELECT id FROM t WHERE id = 1 UNION ALL SELECT id FROM t WHERE id = 3 ORDER BY id", [], [(1,), (3,)]),
    ("SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM t AS u WHERE u.id = t.id + 2)", [], [(1,)]),
    ("SELECT v.n FROM (VALUES (1), (2)) AS v(n) WHERE v.n > 1", [], [(2,)]),
    ("SELECT a.id, b.id FROM t AS a LEFT JOIN t AS b ON b.id = a.id + 1 ORDER BY a.id", [], [(1, 2), (2, 3), (3,
     None)]),
    ("SET NOCOUNT ON; SELECT 1 AS one", [], [(1,)]),
    ("SELECT name FROM sys.databases WHERE name = N'TESTDB'", [], [("testDB",)]),
]  # fmt: skip


@pytest.fixture
def table(database: EmulatedDatabase) -> EmulatedDatabase:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name varchar(10), d decimal(9,2), w datetime2(7), g uniqueidentifier, o"
        " datetimeoffset(0))"
    )
    database.execute(
        "INSERT INTO t VALUES (1, 'a', 1.5, '2020-01-01 10:00', '00000000-0000-0000-0000-030000000000', '2020-01-01"
        " 10:00 +00:00'),"
        " (2, 'A', 10, '2020-01-02', 'FFFFFFFF-0000-0000-0000-020000000000', '2020-01-01 10:00 +01:00'),"
        " (3, NULL, 100, NULL, 'FFFFFFFF-FFFF-FFFF-0000-010000000000', NULL)"
    )
    return database


@pytest.mark.parametrize(("sql", "expected"), VALUES)
def test_a_value_is_what_a_server_gives(table: EmulatedDatabase, sql: str, expected: Any) -> None:
    value = table.execute(sql).fetchval()
    assert value == expected and type(value) is type(expected)


@pytest.mark.parametrize(("sql", "parameters", "expected"), ROWS)
def test_rows_are_what_a_server_gives(
    table: EmulatedDatabase, sql: str, parameters: list[object], expected: list[Any]
) -> None:
    assert table.execute(sql, parameters).fetchall() == expected


ERRORS: list[tuple[str, int]] = [
    ("SELECT * FROM dbo.missing", 208),
    ("SELECT missing FROM t", 207),
    ("SELECT x.id FROM t", 4104),
    ("SELECT * FROM cdc.fn_cdc_get_all_changes_gone(0x00, 0x00, N'all')", 208),
    ("INSERT INTO t (id) VALUES (1)", 2627),
    ("INSERT INTO t (id) VALUES (NULL)", 515),
    ("INSERT INTO t (id, name) VALUES (9, '12345678901')", 2628),
    ("INSERT INTO t (id) VALUES (3000000000)", 8115),
    ("INSERT INTO t (id, d) VALUES (9, 12345678.5)", 8115),
    ("INSERT INTO t (id, w) VALUES (9, 'yesterday')", 241),
    ("INSERT INTO t (id, g) VALUES (9, 'no guid')", 245),
    ("SELECT CAST('x' AS int)", 245),
    ("SELECT 1 / 0", 8134),
    ("CREATE TABLE t (id int)", 2714),
    ("EXEC sys.sp_nothing", 2812),
    ("EXEC sys.sp_cdc_enable_table 'dbo', 'missing', @role_name = NULL", 22931),
    ("COMMIT", 3902),
]


@pytest.mark.parametrize(("sql", "number"), ERRORS)
def test_an_error_has_the_servers_number(table: EmulatedDatabase, sql: str, number: int) -> None:
    with pytest.raises(DatabaseError) as caught:
        table.execute(sql).fetchall()
    assert caught.value.number == number
    assert table.execute("SELECT COUNT(*) FROM t").fetchval() == 3


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM t FOR JSON AUTO",
        "MERGE INTO t USING t AS s ON 1 = 1",
        "SELECT SOUNDEX('a')",
        "BACKUP DATABASE x TO DISK = 'y'",
    ],
)
def test_what_is_not_emulated_is_named(table: EmulatedDatabase, sql: str) -> None:
    with pytest.raises(NotSupportedError, match="can't translate"):
        table.execute(sql)


def test_an_update_from_a_join_and_a_delete_of_some_rows(table: EmulatedDatabase) -> None:
    table.execute("CREATE TABLE s (id int PRIMARY KEY, name varchar(10))")
    table.execute("INSERT INTO s SELECT id, 'new' FROM t WHERE id < 3")
    assert (
        table.execute("UPDATE x SET name = s.name FROM t AS x JOIN s ON s.id = x.id WHERE s.id > ?", [1]).rowcount == 1
    )
    assert table.execute("DELETE x FROM t AS x JOIN s ON s.id = x.id WHERE x.name = 'new'").rowcount == 1
    assert table.execute("DELETE TOP (1) FROM t").rowcount == 1
    assert table.execute("SELECT COUNT(*) FROM t").fetchval() == 1


def test_identities_count_and_can_be_given(database: EmulatedDatabase) -> None:
    database.execute("CREATE TABLE i (id int IDENTITY(10, 5) PRIMARY KEY, v int DEFAULT 3)")
    database.execute("INSERT INTO i (v) VALUES (1), (DEFAULT)")
    database.execute("INSERT INTO i DEFAULT VALUES")
    with pytest.raises(DatabaseError) as caught:
        database.execute("INSERT INTO i (id) VALUES (1)")
    assert caught.value.number == 544
    database.execute(
        "SET IDENTITY_INSERT dbo.i ON; INSERT INTO i (id, v) VALUES (100, 9); SET IDENTITY_INSERT dbo.i OFF"
    )
    database.execute("INSERT INTO i (v) VALUES (4)")
    assert database.execute("SELECT id, v FROM i ORDER BY id").fetchall() == [
        (10, 1),
        (15, 3),
        (20, 3),
        (100, 9),
        (105, 4),
    ]


def test_columns_can_be_added_changed_and_renamed(table: EmulatedDatabase) -> None:
    table.execute("ALTER TABLE t ADD extra int NOT NULL DEFAULT 7")
    table.execute("ALTER TABLE t ALTER COLUMN name nvarchar(50) NULL")
    table.execute("ALTER TABLE t ALTER COLUMN extra varchar(5) NOT NULL")
    table.execute("EXEC sp_rename 'dbo.t.extra', 'more', 'COLUMN'")
    table.execute("EXEC sp_rename 'dbo.t', 't2'")
    assert table.execute("SELECT id, name, more FROM t2 WHERE id = 1").fetchall() == [(1, "a", "7")]
    found = table.execute("SELECT c.name, u.name, c.max_length FROM sys.columns AS c JOIN sys.types AS u ON"
    " u.user_type_id = c.user_type_id"
                          " WHERE c.object_id = OBJECT_ID('dbo.t2') AND c.name IN ('name', 'more') ORDER BY c.column_id"
    ).fetchall()  # fmt: skip
    assert found == [("name", "nvarchar", 100), ("more", "varchar", 5)]


def test_change_functions_check_their_range(database: EmulatedDatabase) -> None:
    database.execute("CREATE TABLE f (id int PRIMARY KEY)")
    database.execute("EXEC sys.sp_cdc_enable_table 'dbo', 'f', @role_name = NULL")
    database.capture()
    call = "SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_f({}, {}, N'{}')"
    low, high = "sys.fn_cdc_get_min_lsn('dbo_f')", "sys.fn_cdc_get_max_lsn()"
    assert database.execute(call.format(low, high, "all")).fetchall() == []
    database.execute("INSERT INTO f VALUES (1)")
    database.capture()
    assert len(database.execute(call.format(low, high, "all update old")).fetchall()) == 1
    for bad in (
        (f"sys.fn_cdc_decrement_lsn({low})", high, "all"),
        (high, low, "all"),
        (low, f"sys.fn_cdc_increment_lsn({high})", "all"),
        (low, high, "some"),
    ):
        with pytest.raises(DatabaseError) as caught:
            database.execute(call.format(*bad)).fetchall()
        assert caught.value.number == 313


def test_a_union_may_have_a_thousand_members(table: EmulatedDatabase) -> None:
    parts = [f"SELECT {i} AS n WHERE EXISTS (SELECT 1 FROM t WHERE id = {i % 5})" for i in range(1000)]
    rows = table.execute(f"SELECT x.n FROM ({' UNION ALL '.join(parts)}) AS x").fetchall()
    assert [n for (n,) in rows] == [i for i in range(1000) if 1 <= i % 5 <= 3]
