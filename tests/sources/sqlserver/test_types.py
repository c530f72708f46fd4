"""Rule: SQL Server's types mean, are fetched and default as spec section 12 says.

The expected values are Debezium's own records.
"""

import pyarrow as pa
import pytest

from headrace.sources.sqlserver.types import NativeType, constant_default


def native(name, max_length=4, precision=10, scale=0):
    return NativeType(name, max_length, precision, scale)


@pytest.mark.parametrize(
    ("given", "logical", "jdbc", "length", "scale"),
    [
        (native("int"), "int32", 4, 10, 0),
        (native("bit", 1, 1), "boolean", -7, 1, None),
        (native("tinyint", 1, 3), "int16", -6, 3, 0),
        (native("bigint", 8, 19), "int64", -5, 19, 0),
        (native("real", 4, 24), "float32", 7, 24, None),
        (native("float", 8, 53), "float64", 8, 53, None),
        (native("decimal", 17, 38, 10), "decimal(38,10)", 3, 38, 10),
        (native("numeric", 9, 18, 0), "decimal(18,0)", 2, 18, 0),
        (native("money", 8, 19, 4), "decimal(19,4)", 3, 19, 4),
        (native("smallmoney", 4, 10, 4), "decimal(10,4)", 3, 10, 4),
        (native("char", 5), "string", 1, 5, None),
        (native("nvarchar", 40), "string", -9, 20, None),
        (native("varchar", -1), "string", 12, 2147483647, None),
        (native("nvarchar", -1), "string", -9, 1073741823, None),
        (native("ntext", 16), "string", -16, 1073741823, None),
        (native("varbinary", -1), "bytes", -3, 2147483647, None),
        (native("image", 16), "bytes", -4, 2147483647, None),
        (native("date", 3, 10, 0), "date", 91, 10, 0),
        (native("time", 3, 8, 0), "time(0)", 92, 8, 0),
        (native("time", 5, 16, 7), "time(7)", 92, 16, 7),
        (native("datetime", 8, 23, 3), "timestamp(3)", 93, 23, 3),
        (native("smalldatetime", 4, 16, 0), "timestamp(0)", 93, 16, 0),
        (native("datetime2", 6, 19, 0), "timestamp(0)", 93, 19, 0),
        (native("datetime2", 8, 27, 7), "timestamp(7)", 93, 27, 7),
        (native("datetimeoffset", 8, 26, 0), "zoned_timestamp(0)", -155, 26, 0),
        (native("datetimeoffset", 10, 34, 7), "zoned_timestamp(7)", -155, 34, 7),
        (native("uniqueidentifier", 16), "uuid", 1, 36, None),
        (native("xml", -1), "xml", -16, 2147483647, None),
    ],
)
def test_a_type_means_what_the_recorded_schema_says(given, logical, jdbc, length, scale):
    assert (str(given.logical), given.jdbc_type, given.length, given.shown_scale) == (logical, jdbc, length, scale)


@pytest.mark.parametrize(
    ("given", "sql"),
    [
        (native("int"), "d.[c]"),
        (native("datetime2", 8, 26, 6), "d.[c]"),
        (native("datetime2", 8, 27, 7), "CONVERT(varchar(27), d.[c], 121)"),
        (native("datetimeoffset", 10, 34, 7), "CONVERT(varchar(34), d.[c], 121)"),
        (native("money", 8, 19, 4), "CONVERT(decimal(19,4), d.[c])"),
        (native("uniqueidentifier", 16), "CONVERT(char(36), d.[c])"),
    ],
)
def test_what_the_driver_would_cut_is_fetched_as_the_servers_own_text(given, sql):
    assert given.projection("d.[c]") == sql


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2018-07-13 12:23:45.4560000 +11:00", "2018-07-13T12:23:45.4560000+11:00"),
        ("2018-07-13 12:23:45 -05:30", "2018-07-13T12:23:45-05:30"),
        ("2018-07-13 12:23:45.1 +00:00", "2018-07-13T12:23:45.1Z"),
        (None, None),
    ],
)
def test_a_datetimeoffset_keeps_its_offset(text, canonical):
    assert native("datetimeoffset", 10, 34, 7).texts(pa.array([text], pa.string())).to_pylist() == [canonical]


@pytest.mark.parametrize(
    ("given", "expression", "default"),
    [
        (native("bit", 1), "((1))", "true"),
        (native("tinyint", 1), "((255))", "255"),
        (native("smallint", 2), "((-1))", "-1"),
        (native("bigint", 8), "((9000000000.))", "9000000000"),
        (native("real", 4, 24), "((1.5))", "1.5"),
        (native("decimal", 9, 18, 5), "((1.5))", "1.50000"),
        (native("numeric", 9, 10, 2), "((7))", "7.00"),
        (native("money", 8, 19, 4), "((1.25))", "1.2500"),
        (native("varchar", 20), "('it''s')", "it's"),
        (native("nvarchar", 40), "(N'\u65e5\u672c')", "\u65e5\u672c"),
        (native("binary", 4), "(0x01020304)", "AQIDBA=="),
        (native("varbinary", 8), "(0x0A)", "Cg=="),
        (native("date", 3), "('2019-02-03')", "2019-02-03"),
        (native("time", 5, 16, 7), "('01:02:03.1234567')", "01:02:03.1234567"),
        (native("time", 3, 8, 0), "('01:02:03')", "01:02:03"),
        (native("datetime", 8, 23, 3), "('2019-02-03 01:02:03.123')", "2019-02-03 01:02:03.123"),
        (native("smalldatetime", 4, 16, 0), "('2019-02-03 01:02:00')", "2019-02-03 01:02:00"),
        (native("datetime2", 8, 27, 7), "('2019-02-03 01:02:03.1234567')", "2019-02-03 01:02:03.1234567"),
        (
            native("datetimeoffset", 10, 34, 7),
            "('2019-02-03 01:02:03.1234567 +09:00')",
            "2019-02-03T01:02:03.1234567+09:00",
        ),
        (native("int"), "(NULL)", None),
        (native("int"), None, None),
        (native("datetime2", 8, 23, 3), "(getdate())", None),
        (native("uniqueidentifier", 16), "('0E984725-C51C-4BF4-9960-E1C80E27ABA0')", None),
        (native("int"), "((1)+(2))", None),
    ],
)
def test_a_constant_default_is_read_and_a_function_is_not_guessed(given, expression, default):
    assert constant_default(expression, given) == default


@pytest.mark.parametrize("name", ["sql_variant", "geometry", "geography"])
def test_a_type_that_cannot_be_captured_is_known_as_such(name):
    assert not native(name).supported


@pytest.mark.parametrize(
    ("given", "declaration"),
    [
        (native("nvarchar", 40), "nvarchar(20)"),
        (native("varchar", -1), "varchar(max)"),
        (native("decimal", 9, 18, 5), "decimal(18,5)"),
        (native("datetime2", 8, 27, 7), "datetime2(7)"),
        (native("int"), "int"),
        (native("uniqueidentifier", 16), "uniqueidentifier"),
    ],
)
def test_a_key_value_is_bound_with_its_columns_own_type(given, declaration):
    assert given.declaration == declaration
