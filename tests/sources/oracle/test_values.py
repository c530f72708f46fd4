"""Rule: a value has the same canonical text from a snapshot and from redo, whatever its type, however its statement is
cut; what the redo does not say is absent, and `''` is NULL."""

from __future__ import annotations

import base64
import random

import pytest
from tests.sources.oracle.runs import Run, data, image

from headrace.errors import CaptureError
from headrace.sources.oracle.types import NativeType, Unreadable
from headrace_emulators.oracle import EmulatedOracle

TYPES = [
    # declaration, given, canonical text, logical type
    ("NUMBER(2)", 7, "7", "int8"),
    ("NUMBER(4)", -1234, "-1234", "int16"),
    ("NUMBER(9)", 0, "0", "int32"),
    ("NUMBER(18)", 10**17, "1" + "0" * 17, "int64"),
    ("NUMBER(19)", "9" * 19, "9" * 19, "decimal(19,0)"),
    ("NUMBER(38)", "-" + "9" * 38, "-" + "9" * 38, "decimal(38,0)"),
    ("NUMBER(5,-3)", 12345678, "12346000", "int32"),
    ("NUMBER(12,2)", "0.5", "0.50", "decimal(12,2)"),
    ("NUMBER(12,2)", "-12.34", "-12.34", "decimal(12,2)"),
    ("NUMBER(3,5)", "0.00123", "0.00123", "decimal(5,5)"),
    ("NUMBER", "123456789012345678901234567890.123456789", "123456789012345678901234567890.123456789", "decimal"),
    ("NUMBER", "-.5", "-0.5", "decimal"),
    ("NUMBER(*,1)", "3.5", "3.5", "decimal(38,1)"),
    ("INTEGER", 5, "5", "decimal(38,0)"),
    ("FLOAT(126)", "1.25", "1.25", "decimal"),
    ("BINARY_FLOAT", 0.1, "0.1", "float32"),
    ("BINARY_DOUBLE", 1e22, "1e+22", "float64"),
    ("BINARY_DOUBLE", float("inf"), "Infinity", "float64"),
    ("CHAR(5)", "a", "a    ", "string"),
    ("VARCHAR2(40)", "it's || 'x', ''; --", "it's || 'x', ''; --", "string"),
    ("VARCHAR2(40)", "UNISTR('\\4E2D')", "UNISTR('\\4E2D')", "string"),
    ("VARCHAR2(40)", "Zoë 😀\n", "Zoë 😀\n", "string"),
    ("VARCHAR2(40)", "", None, "string"),
    ("NVARCHAR2(40)", "中文 '😀' \\", "中文 '😀' \\", "string"),
    ("DATE", "2024-02-29 23:59:59", "2024-02-29 23:59:59", "timestamp(0)"),
    ("TIMESTAMP(0)", "2024-02-29 23:59:59", "2024-02-29 23:59:59", "timestamp(0)"),
    ("TIMESTAMP", "2024-02-29 23:59:59.12", "2024-02-29 23:59:59.120000", "timestamp(6)"),
    ("TIMESTAMP(9)", "2024-02-29 23:59:59.123456789", "2024-02-29 23:59:59.123456789", "timestamp(9)"),
    (
        "TIMESTAMP(3) WITH TIME ZONE",
        "2024-01-01 08:00:00.5 +05:30",
        "2024-01-01T08:00:00.500+05:30",
        "zoned_timestamp(3)",
    ),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "2024-01-01 08:00:00 +02:00", "2024-01-01T06:00:00.000000Z", "instant(6)"),
    ("INTERVAL YEAR(2) TO MONTH", "+01-06", "+01-06", "interval"),
    ("INTERVAL DAY(2) TO SECOND(6)", "+03 04:05:06.789000", "+03 04:05:06.789000", "interval"),
    ("RAW(8)", b"\xde\xad\x00", base64.b64encode(b"\xde\xad\x00").decode(), "bytes"),
    ("CLOB", "small", "small", "string"),
    ("CLOB", "it's " * 2000, "it's " * 2000, "string"),
    ("BLOB", b"\x00\xff" * 9, base64.b64encode(b"\x00\xff" * 9).decode(), "bytes"),
    ("BLOB", bytes(range(256)) * 30, base64.b64encode(bytes(range(256)) * 30).decode(), "bytes"),
    ("XMLTYPE", "<a>é" + "x" * 3000 + "</a>", "<a>é" + "x" * 3000 + "</a>", "xml"),
]


@pytest.mark.parametrize(("declared", "given", "text", "logical"), TYPES)
def test_a_value_is_the_same_in_the_snapshot_in_an_insert_and_in_an_update(tmp_path, declared, given, text, logical):
    with EmulatedOracle(tmp_path / "server") as database:
        database.run(f"CREATE TABLE T (ID NUMBER(3) NOT NULL PRIMARY KEY, V {declared})")
        with database.connect() as session:
            session.execute("INSERT INTO T (ID, V) VALUES (1, :v)", v=given)
            session.commit()
            run = Run(database, lob_enabled=True)
            rows = run.until_level()
            assert str(run.source.tables()[0].column("V").logical) == logical
            session.execute("INSERT INTO T (ID, V) VALUES (2, :v)", v=given)
            session.execute("INSERT INTO T (ID) VALUES (3)")
            session.commit()
            session.execute("UPDATE T SET V = :v WHERE ID = 3", v=given)
            session.commit()
            session.execute("UPDATE T SET V = NULL WHERE ID = 3")
            session.commit()
            rows += run.until_level()
    found = [(op, values["ID"], values["V"]) for op, _, values in data(rows)]
    assert found == [("r", "1", text), ("c", "2", text), ("c", "3", None), ("u", "3", text), ("u", "3", None)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40, 4000])
def test_statements_cut_at_any_byte_are_the_same(tmp_path, size):
    with EmulatedOracle(tmp_path / "server", csf_bytes=size) as database:
        database.run("CREATE TABLE T (ID NUMBER(3) NOT NULL PRIMARY KEY, V VARCHAR2(60), W NVARCHAR2(20))")
        run = Run(database)
        run.until_level()
        with database.connect() as session:
            session.execute("INSERT INTO T (ID, V, W) VALUES (1, :v, :w)", v="it''s 😀 é", w="中 x")
            session.execute("UPDATE T SET V = 'y' WHERE ID = 1")
            session.commit()
        assert [values for _, _, values in data(run.until_level())] == [
            {"ID": "1", "V": "it''s 😀 é", "W": "中 x"},
            {"ID": "1", "V": "y", "W": "中 x"},
        ]


def test_a_long_result_with_cut_statements_is_put_together_over_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.sources.oracle.mining._BATCH", 3)
    with EmulatedOracle(tmp_path / "server", csf_bytes=25) as database:
        database.run("CREATE TABLE T (ID NUMBER(6) NOT NULL PRIMARY KEY, V VARCHAR2(60))")
        run = Run(database)
        run.until_level()
        texts = ["x" * random.Random(n).randrange(60) or None for n in range(40)]
        with database.connect() as session:
            for number, text in enumerate(texts):
                session.execute("INSERT INTO T (ID, V) VALUES (:n, :v)", n=number, v=text)
            session.commit()
        assert [values["V"] for _, _, values in data(run.until_level())] == texts


@pytest.fixture
def lobs(tmp_path):
    with EmulatedOracle(tmp_path / "server") as database:
        database.run("CREATE TABLE T (ID NUMBER(3) NOT NULL PRIMARY KEY, NAME VARCHAR2(9), TEXT CLOB, DATA BLOB)")
        with database.connect() as session:
            yield database, session


def test_a_large_value_that_does_not_change_is_absent(lobs):
    database, session = lobs
    session.execute("INSERT INTO T (ID, NAME, TEXT, DATA) VALUES (1, 'a', :t, :d)", t="t" * 9000, d=b"d" * 9000)
    session.commit()
    run = Run(database, lob_enabled=True)
    run.until_level()
    session.execute("UPDATE T SET NAME = 'b' WHERE ID = 1")
    session.commit()
    session.execute("UPDATE T SET TEXT = :t WHERE ID = 1", t="u" * 9000)
    session.execute("DELETE FROM T WHERE ID = 1")
    session.commit()
    name, text, gone = [r for r in run.until_level() if r["op"] != "schema"]
    assert image(name["after"]) == {"ID": "1", "NAME": "b"}
    assert image(name["before"]) == {"ID": "1", "NAME": "a"}
    assert (text["op"], image(text["after"])["TEXT"], text["changed"]) == ("u", "u" * 9000, ["TEXT"])
    assert "TEXT" not in image(text["before"]) and "DATA" not in image(text["after"])
    assert image(gone["before"]) == {"ID": "1", "NAME": "b"}


def test_a_row_and_the_pieces_of_its_values_that_follow_are_one_change(lobs):
    database, session = lobs
    run = Run(database, lob_enabled=True)
    run.until_level()
    session.execute("INSERT INTO T (ID, NAME) VALUES (1, 'a')")
    session.execute("UPDATE T SET TEXT = :t WHERE ID = 1", t="t" * 9000)
    session.execute("UPDATE T SET NAME = 'b' WHERE ID = 1")
    session.commit()
    first, second = [r for r in run.until_level() if r["op"] != "schema"]
    assert (first["op"], image(first["after"])["TEXT"]) == ("c", "t" * 9000)
    assert (second["op"], image(second["after"])) == ("u", {"ID": "1", "NAME": "b"})


def test_large_values_are_left_out_everywhere_unless_asked_for(lobs):
    database, session = lobs
    session.execute("INSERT INTO T (ID, NAME, TEXT) VALUES (1, 'a', 'small')")
    session.commit()
    run = Run(database)
    rows = run.until_level()
    session.execute("UPDATE T SET TEXT = :t, NAME = 'b' WHERE ID = 1", t="u" * 9000)
    session.commit()
    rows += run.until_level()
    assert [values for _, _, values in data(rows)] == [{"ID": "1", "NAME": "a"}, {"ID": "1", "NAME": "b"}]


def test_pieces_of_a_row_that_was_taken_back_are_left_out_with_it(lobs):
    database, session = lobs
    run = Run(database, lob_enabled=True)
    run.until_level()
    session.execute("INSERT INTO T (ID, NAME) VALUES (1, 'a')")
    session.execute("SAVEPOINT S")
    session.execute("INSERT INTO T (ID, NAME, TEXT) VALUES (2, 'b', :t)", t="t" * 9000)
    session.execute("ROLLBACK TO S")
    session.commit()
    assert [values["ID"] for _, _, values in data(run.until_level())] == ["1"]


@pytest.mark.parametrize(
    ("declared", "printed"),
    [
        (NativeType("NUMBER", 22, 9, 0), "12x"),
        (NativeType("NUMBER", 22, 9, 0), "1.5"),
        (NativeType("DATE"), "29-FEB-24"),
        (NativeType("TIMESTAMP(3)", 11, None, 3), "2024-02-29 23:59:59.1234"),
        (NativeType("RAW", 8), "XY"),
        (NativeType("BINARY_DOUBLE"), "one"),
    ],
)
def test_a_value_that_is_not_printed_as_its_type_is_refused_without_telling_it(declared, printed):
    with pytest.raises(Unreadable) as refused:
        declared.from_redo(printed, False)
    assert printed not in str(refused.value)


@pytest.mark.parametrize(
    ("declared", "call", "text"),
    [
        (NativeType("DATE"), "TO_DATE('2024-01-02 03:04:05', 'YYYY-MM-DD HH24:MI:SS')", "2024-01-02 03:04:05"),
        (NativeType("TIMESTAMP(6)", 11, None, 6), "TO_TIMESTAMP('2024-01-02 03:04:05.')", "2024-01-02 03:04:05.000000"),
        (NativeType("CLOB"), "EMPTY_CLOB()", ""),
        (NativeType("NCHAR", 2), "UNISTR('\\4E2D') || UNISTR('\\6587')", "中文"),
        (NativeType("TIMESTAMP(0) WITH TIME ZONE", 13, None, 0), "TO_TIMESTAMP_TZ('2024-01-02 03:04:05 +00:00')",
         "2024-01-02T03:04:05Z"),
    ],
)  # fmt: skip
def test_calls_are_read_by_the_type_of_their_column(declared, call, text):
    assert declared.from_redo(call, True) == text


def test_the_continuation_of_an_extended_string_stops_the_run(database, session):
    run = Run(database, lob_enabled=True)
    run.until_level()
    session.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (1, 'a')")
    session.execute("UPDATE CUSTOMERS SET NAME = 'b' WHERE ID = 1")
    session.commit()
    # As a value of more than 4000 bytes begins and goes on; of the second nobody has told the form.
    begin = (
        "DECLARE Stmt VARCHAR2(99); BEGIN Stmt := "
        """'update "SHOP"."CUSTOMERS" a set a."NAME" = :NAME where a."ID" = ''1'''; END;"""
    )
    for old, code, sql in ((1, 91, begin), (3, 92, "b")):
        database._connection.execute(
            'UPDATE "sys.redo" SET operation_code = ?, sql_redo = ? WHERE operation_code = ?', (code, sql, old)
        )
    with pytest.raises(CaptureError, match=r"SHOP\.CUSTOMERS can't be read"):
        run.until_level()
