"""What the log of a real server has of values of every type is what its SQL answers, and what is expected."""

import pyarrow as pa
import pytest
from tests.sources.mysql.logged_rows import read_images, rows_events

from headrace.sources.mysql.types import NativeType
from headrace.sources.mysql.wire_columns import WireColumn

VALUES = {
    "tinyint": {"-128": "-128", "127": "127"},
    "tinyint unsigned": {"255": "255"},
    "smallint": {"-32768": "-32768"},
    "smallint unsigned": {"65535": "65535"},
    "mediumint": {"-8388608": "-8388608", "8388607": "8388607"},
    "mediumint unsigned": {"16777215": "16777215"},
    "int": {"-2147483648": "-2147483648"},
    "int unsigned zerofill": {"4294967295": "4294967295", "42": "42"},
    "bigint": {"-9223372036854775808": "-9223372036854775808", "-1": "-1"},
    "bigint unsigned": {"18446744073709551615": "18446744073709551615"},
    "decimal(65,30)": {
        f"-{'9' * 35}.{'9' * 30}": f"-{'9' * 35}.{'9' * 30}",
        "1e-30": f"0.{'0' * 29}1",
        "-0.5": f"-0.5{'0' * 29}",
        "0": f"0.{'0' * 30}",
    },
    "decimal(12,2)": {"-1.5": "-1.50", "-0.01": "-0.01", "9999999999.99": "9999999999.99", "0": "0.00"},
    "decimal(10,0)": {"-5": "-5", "1234567890": "1234567890"},
    "decimal(9,9)": {"0.123456789": "0.123456789", "-0.000000001": "-0.000000001"},
    "float": {"3.402823466e38": "3.4028235e+38", "16777216": "1.6777216e+07", "0.1": "0.1", "3.25": "3.25"},
    "double": {"1.7976931348623157e308": "1.7976931348623157e+308", "5e-324": "5e-324", "1e15": "1000000000000000.0"},
    "bit(1)": {"b'1'": "true", "b'0'": "false"},
    "bit(10)": {"b'1000000001'": "AQI="},
    "bit(64)": {"0xFFFFFFFFFFFFFFFE": "/v////////8="},
    "year": {"1901": "1901", "2155": "2155", "0": "0"},
    "date": {"'0001-01-01'": "0001-01-01", "'0000-00-00'": "0000-00-00", "'2024-02-31'": "2024-02-31"},
    "time": {"'-838:59:59'": "-838:59:59", "'838:59:59'": "838:59:59", "0": "00:00:00"},
    "time(1)": {"'-00:00:00.1'": "-00:00:00.1", "'10:00:00.6'": "10:00:00.6"},
    "time(3)": {"'-00:00:00.5'": "-00:00:00.500", "'838:59:58.999'": "838:59:58.999"},
    "time(6)": {"'-838:59:58.999999'": "-838:59:58.999999", "'-00:00:00.000001'": "-00:00:00.000001"},
    "datetime": {"'9999-12-31 23:59:59'": "9999-12-31 23:59:59", "'2024-00-10 01:02:03'": "2024-00-10 01:02:03"},
    "datetime(1)": {"'2024-01-01 00:00:00.6'": "2024-01-01 00:00:00.6"},
    "datetime(6)": {"'1000-01-01 00:00:00.000001'": "1000-01-01 00:00:00.000001"},
    "timestamp null": {"'1970-01-01 00:00:01'": "1970-01-01T00:00:01Z", "0": "0000-00-00T00:00:00Z"},
    "timestamp(2) null": {"'2024-02-29 23:59:59.99'": "2024-02-29T23:59:59.99Z"},
    "timestamp(6) null": {"'2038-01-19 03:14:07.999999'": "2038-01-19T03:14:07.999999Z"},
    "char(10)": {"'ab  '": "ab", "'é😀'": "é😀", "''": ""},
    "varchar(50)": {"'é😀'": "é😀", r"'a\0b'": "a\0b"},
    "varchar(300) charset latin1": {"'Ünï €ÿ'": "Ünï €ÿ"},
    "varchar(20) charset gbk": {"'中文'": "中文"},
    "char(5) charset utf16": {"'a😀'": "a😀"},
    "char(36) charset ascii": {"'abc'": "abc"},
    "binary(6)": {"0x0102": "AQIAAAAA", "0x00": "AAAAAAAA", "0xffffffffffff": "////////"},
    "varbinary(300)": {"0xdeadbeef00": "3q2+7wA=", "''": ""},
    "longtext": {"repeat('ö',70000)": "ö" * 70000},
    "blob": {"0x0001": "AAE="},
    "enum('a','x,y','é','o''k') charset latin1": {"'x,y'": "x,y", "'é'": "é", "4": "o'k", "''": ""},
    "set('a','b','c d','é')": {"'a,é'": "a,é", "''": "", "'é,c d,b,a'": "a,b,c d,é"},
    "json": {"'[1, 2.5, null, true, {}]'": "[1, 2.5, null, true, {}]"},
    "geometry": {"ST_GeomFromText('POINT(1 2)')": '{"x":1.0,"y":2.0,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":0}'},
    "polygon": {"ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')": None},
}
OWN = {
    "mariadb": {
        "uuid": {"'123e4567-e89b-12d3-a456-426655440000'": "123e4567-e89b-12d3-a456-426655440000"},
        "inet4": {"'10.0.0.0'": "10.0.0.0", "'0.0.0.0'": "0.0.0.0"},
        "varchar(300) compressed": {"''": "", "'short'": "short", "repeat('é😀',100)": "é😀" * 100, r"'\0x'": "\0x"},
        "varchar(100) compressed charset latin1": {"'Ünï €'": "Ünï €", "repeat('ü',100)": "ü" * 100},
        "varbinary(200) compressed": {"repeat(0x00ff,100)": None, "0x00": "AA==", "''": ""},
        "longtext compressed": {"repeat('ö',70000)": "ö" * 70000},
        "tinytext compressed": {"repeat('t',200)": "t" * 200},
        "blob compressed": {"repeat(0xdeadbeef,1000)": None, "''": ""},
        "inet6": dict.fromkeys(["'::'", "'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:1.2.3.4'", "'1::'"]),
    },
    "mysql": {
        "vector(3)": {"to_vector('[1,2.5,-0.1]')": "[1.0,2.5,-0.1]"},
        "json": {
            """'{"b": "x\\\\u0001\\\\n\\\\"é", "aa": [1e100, -0.5, 18446744073709551615]}'""": None,
            "json_object('d', cast('2024-01-02' as date), 't', cast('-10:00:00.5' as time(1)))": None,
            "json_array(cast('2024-01-02 03:04:05.6' as datetime(1)), cast(1.50 as decimal(5,2)))": None,
            "json_array(1e15, 1e14, 1e-15)": None,
            "json_array(0.0e0, 1e16, 123456789012345678e0, 1e-14, 1.5e-20, -1e0)": None,
            "concat('[', repeat('\"abcdefghij\",', 9000), '70000]')": None,
        },
    },
}


@pytest.fixture
def logged(binlog_server):
    """The columns, the rows of the log, and what SQL answers for each column."""
    declared = VALUES | OWN[binlog_server.name]
    database = binlog_server.new_database()
    connection = database.connect(charset="utf8mb4")
    cursor = connection.cursor()
    cursor.execute("SET sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00'")
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(declared))
    cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    start = binlog_server.log_end[1]
    for row in range(max(map(len, declared.values()))):
        literals = [(list(values) + ["NULL"] * row)[row] for values in declared.values()]
        cursor.execute(f"INSERT INTO t VALUES ({row}, {', '.join(literals)})")
    connection.commit()
    events = rows_events(binlog_server, start)
    cursor.execute(
        "SELECT column_name, column_type, character_set_name FROM information_schema.columns"
        " WHERE table_schema = database() AND table_name = 't' ORDER BY ordinal_position"
    )
    kinds = ["int", *declared]
    natives = [
        (name, NativeType.of_catalog(type_, charset, json=kind == "json"))
        for (name, type_, charset), kind in zip(cursor.fetchall(), kinds, strict=True)
    ]
    wires = [WireColumn(*wire, native) for wire, (_, native) in zip(events[0].columns, natives, strict=True)]
    rows = read_images([event.body for event in events], [event.kind for event in events], wires)
    raw = database.connect(charset="utf8mb4", conv={}, use_unicode=False).cursor()
    raw.execute(f"SELECT {', '.join(native.selected(name) for name, native in natives)} FROM t ORDER BY id")
    answers = list(zip(*raw.fetchall(), strict=True))
    return declared, natives, rows, answers


def test_values_of_every_type_are_as_sql_answers_and_as_expected(logged):
    declared, natives, rows, answers = logged
    for position, (kind, values) in enumerate(declared.items(), 1):
        found = [new[position] for _, new in rows]
        assert natives[position][1].printed_texts(pa.array(answers[position], pa.binary())).to_pylist() == found, kind
        for text, expected in zip(found, values.values(), strict=False):
            assert expected is None or text == expected, kind
        assert found[len(values) :] == [None] * (len(rows) - len(values))
