"""Every type keeps its values, and comes through the Arrow fetch as the real driver gives it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace_emulators.sqlserver import EmulatedDatabase

D = Decimal
CASES: list[tuple[str, Any, pa.DataType, Any]] = [
    ("bit", True, pa.bool_(), True),
    ("tinyint", 255, pa.uint8(), 255),
    ("smallint", -32768, pa.int16(), -32768),
    ("int", 2147483647, pa.int32(), 2147483647),
    ("bigint", -(2**63), pa.int64(), -(2**63)),
    ("real", 1.1, pa.float32(), pytest.approx(1.1, rel=1e-7)),
    ("float", 1.1, pa.float64(), 1.1),
    ("float(24)", 0.5, pa.float32(), 0.5),
    ("decimal(38,10)", D("9999999999999999999999999999.9999999999"), pa.decimal128(38, 10),
     D("9999999999999999999999999999.9999999999")),
    ("numeric(5,2)", "-1.005", pa.decimal128(5, 2), D("-1.01")),
    ("numeric", 7, pa.decimal128(18, 0), D("7")),
    ("money", "922337203685477.5807", pa.decimal128(19, 4), D("922337203685477.5807")),
    ("smallmoney", "-214748.3648", pa.decimal128(10, 4), D("-214748.3648")),
    ("char(5)", "ab", pa.large_string(), "ab   "),
    ("varchar(20)", "it's", pa.large_string(), "it's"),
    ("nchar(4)", "é", pa.large_string(), "é   "),
    ("nvarchar(20)", "日本 😀", pa.large_string(), "日本 😀"),
    ("nvarchar(max)", "x" * 100_000, pa.large_string(), "x" * 100_000),
    ("text", "t", pa.large_string(), "t"),
    ("ntext", "ü", pa.large_string(), "ü"),
    ("xml", "<a/>", pa.large_string(), "<a/>"),
    ("binary(4)", b"\xff", pa.large_binary(), b"\xff\0\0\0"),
    ("varbinary(8)", b"\0\xff", pa.large_binary(), b"\0\xff"),
    ("varbinary(max)", b"", pa.large_binary(), b""),
    ("image", b"\xca\xfe", pa.large_binary(), b"\xca\xfe"),
    ("date", dt.date(1, 1, 1), pa.date32(), dt.date(1, 1, 1)),
    ("time(0)", "23:59:58.6", pa.time64("ns"), dt.time(23, 59, 59)),
    ("time(6)", dt.time(1, 2, 3, 4), pa.time64("ns"), dt.time(1, 2, 3, 4)),
    ("datetime", "2019-02-03 01:02:03.124", pa.timestamp("us"), dt.datetime(2019, 2, 3, 1, 2, 3, 123000)),
    ("datetime", "2019-02-03 01:02:03.126", pa.timestamp("us"), dt.datetime(2019, 2, 3, 1, 2, 3, 127000)),
    ("smalldatetime", "2079-06-06 23:59:20", pa.timestamp("us"), dt.datetime(2079, 6, 6, 23, 59)),
    ("datetime2(0)", "0001-01-01 00:00:00.4", pa.timestamp("us"), dt.datetime(1, 1, 1)),
    ("datetime2(3)", "9999-12-31T23:59:59.999", pa.timestamp("us"), dt.datetime(9999, 12, 31, 23, 59, 59, 999000)),
    ("datetime2(7)", "2262-04-11 23:47:16.8547759", pa.timestamp("us"), dt.datetime(2262, 4, 11, 23, 47, 16, 854775)),
    ("datetimeoffset(7)", "2018-07-13 12:23:45.4567891 +11:00", pa.timestamp("us", "+00:00"),
     dt.datetime(2018, 7, 13, 1, 23, 45, 456789, tzinfo=dt.UTC)),
    ("datetimeoffset(0)", "2018-07-13 12:23:45 -05:30", pa.timestamp("us", "+00:00"), dt.datetime(2018, 7, 13, 17, 53,
     45, tzinfo=dt.UTC)),
    ("uniqueidentifier", "0e984725-c51c-4bf4-9960-e1c80e27aba0", pa.large_string(),
     "0E984725-C51C-4BF4-9960-E1C80E27ABA0"),
    ("sysname", "n", pa.large_string(), "n"),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "given", "arrow", "expected"), CASES)
def test_a_value_survives_table_change_table_and_arrow(
    database: EmulatedDatabase, declared: str, given: Any, arrow: pa.DataType, expected: Any
) -> None:
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {declared} NULL)")
    database.execute("EXEC sys.sp_cdc_enable_table 'dbo', 't', @role_name = NULL")
    database.execute("INSERT INTO t VALUES (1, ?), (2, NULL)", [given])
    database.capture()
    for sql in (
        "SELECT v FROM t ORDER BY id",
        "SELECT v FROM cdc.dbo_t_CT ORDER BY id",
        "WITH q AS (SELECT * FROM t) SELECT q.v FROM q ORDER BY id",
    ):
        table = database.execute(sql).arrow_reader().read_all()
        assert table.schema.field("v").type == arrow
        assert table["v"].to_pylist() == [expected, None]
    assert database.execute("SELECT v FROM t WHERE v IS NULL").fetchall() == [(None,)]


def test_the_seventh_digit_comes_by_convert_only(database: EmulatedDatabase) -> None:
    database.execute("CREATE TABLE t (v datetime2(7))")
    database.execute("INSERT INTO t VALUES ('2020-01-02 03:04:05.1234567')")
    reader = database.execute("SELECT v, CONVERT(char(27), v, 121) AS text FROM t").arrow_reader()
    assert reader.read_all().to_pylist() == [
        {"v": dt.datetime(2020, 1, 2, 3, 4, 5, 123456), "text": "2020-01-02 03:04:05.1234567"}
    ]


def test_arrow_batches_are_streamed(database: EmulatedDatabase) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(10))")
    database.load("t", [(i, f"v{i}") for i in range(1000)])
    reader = database.execute("SELECT id, v FROM t ORDER BY id").arrow_reader(300)
    assert reader.schema.names == ["id", "v"]
    assert [batch.num_rows for batch in reader] == [300, 300, 300, 100]


def test_an_empty_result_keeps_its_types(database: EmulatedDatabase) -> None:
    table = (
        database.execute("SELECT start_lsn, tran_end_time FROM cdc.lsn_time_mapping WHERE 1 = 0")
        .arrow_reader()
        .read_all()
    )
    assert table.num_rows == 0 and table.schema.types == [pa.large_binary(), pa.timestamp("us")]


def test_a_bulk_load_stores_what_an_insert_stores(database: EmulatedDatabase) -> None:
    kept = [c for c in CASES if c[0] != "nvarchar(max)"]
    columns = ", ".join(f"c{i} {c[0]} NULL" for i, c in enumerate(kept))
    for name in ("a", "b"):
        database.execute(f"CREATE TABLE {name} ({columns})")
    values = [c[1] for c in kept]
    database.execute(f"INSERT INTO a VALUES ({', '.join('?' * len(values))})", values)
    database.load("dbo.b", [values, [None] * len(values)])
    read = [database.session.storage.sqlite.execute(f'SELECT * FROM "dbo.{name}"').fetchall() for name in ("a", "b")]
    assert read[1][:1] == read[0] and read[1][1] == (None,) * len(values)
