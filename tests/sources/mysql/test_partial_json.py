"""Partial updates of JSON in the log of a real MySQL give what SQL answers."""

import pytest
from tests.sources.mysql.logged_rows import read_images, rows_events

from headrace.sources.mysql.types import NativeType
from headrace.sources.mysql.wire_columns import WireColumn

PARTIAL_UPDATE = 39
CHANGES = [
    "a = JSON_SET(a, '$.b.c', 'yy', '$.new', 3)",
    "a = JSON_REMOVE(a, '$.b'), v = 'y'",
    "b = JSON_SET(b, '$[1]', JSON_OBJECT('k', 1.5)), a = JSON_SET(a, '$.\"x y\"', CAST(NULL AS JSON))",
    "b = JSON_REMOVE(b, '$[0]')",
    "b = JSON_ARRAY_INSERT(b, '$[1]', 'in')",
    "b = JSON_ARRAY_APPEND(b, '$', 'end')",
    "a = JSON_REPLACE(a, '$.text', 'é')",
]


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
def test_differences_are_applied_to_the_json_before(mysql_server, image):
    connection = mysql_server.new_database().connect(charset="utf8mb4", autocommit=True)
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, a JSON, v VARCHAR(9), b JSON)")
    first = '{"b": {"c": "x"}, "text": "long enough to be replaced", "n": [1, 2]}'
    cursor.execute("INSERT INTO t VALUES (1, %s, 'x', '[1, 2.5, [\"long enough to be kept\"]]')", [first])
    cursor.execute(f"SET binlog_row_value_options = 'PARTIAL_JSON', binlog_row_image = '{image}'")
    start, answers = mysql_server.log_end[1], []
    for change in CHANGES:
        cursor.execute(f"UPDATE t SET {change}")
        cursor.execute("SELECT a, b FROM t")
        answers.append(cursor.fetchone())
    events = rows_events(mysql_server, start)
    assert PARTIAL_UPDATE in {event.kind for event in events}
    natives = [NativeType("int"), NativeType("json"), NativeType("varchar", charset="utf8mb4"), NativeType("json")]
    columns = [WireColumn(*wire, native) for wire, native in zip(events[0].columns, natives, strict=True)]
    rows = read_images([event.body for event in events], [event.kind for event in events], columns)
    assert len(rows) == len(answers)
    for (_, new), (a, b) in zip(rows, answers, strict=True):
        if image == "FULL":
            assert (new[1], new[3]) == (a, b)
        else:
            assert new.get(1, a) == a
            assert new.get(3, b) == b
