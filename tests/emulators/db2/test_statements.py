"""Rule: the emulated Db2 answers as Db2 is documented to, and refuses what it does not know with a code and a name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from headrace_emulators.db2 import EmulatedDb2, connect
from headrace_emulators.db2.driver import (
    DataError,
    IntegrityError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)


@pytest.fixture
def server(tmp_path):
    return EmulatedDb2(tmp_path / "server")


@pytest.fixture
def database(server):
    with server.create_database("shop") as made:
        made.execute("CREATE TABLE S.T (ID INTEGER NOT NULL PRIMARY KEY, A DECIMAL(7,2), B VARCHAR(5), C TIMESTAMP)")
        made.execute("INSERT INTO S.T VALUES (1, 1.5, 'one', '2024-01-02-03.04.05.678901'), (2, NULL, 'two', NULL)")
        yield made


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT ID FROM S.T ORDER BY A", [(1,), (2,)]),
        ("SELECT ID FROM S.T ORDER BY A DESC", [(2,), (1,)]),
        ('SELECT t."B" FROM "S"."T" AS t WHERE t.ID = 1', [("one",)]),
        ("SELECT A + 1, A * 2 FROM S.T WHERE ID = 1", [(Decimal("2.50"), Decimal("3.00"))]),
        ("SELECT COUNT(*), MAX(B), MIN(ID) FROM S.T", [(2, "two", 1)]),
        ("SELECT B FROM S.T WHERE B LIKE 'o%'", [("one",)]),
        ("SELECT B FROM S.T WHERE B = 'one  '", [("one",)]),
        ("SELECT B FROM S.T WHERE A IS NULL OR ID BETWEEN 5 AND 9", [("two",)]),
        ("SELECT VARCHAR_FORMAT(C, 'YYYY-MM-DD HH24:MI:SS.FF3') FROM S.T WHERE ID = 1", [("2024-01-02 03:04:05.678",)]),
        ("SELECT CHAR(CAST('2024-02-29' AS DATE), ISO) FROM SYSIBM.SYSDUMMY1", [("2024-02-29",)]),
        ("SELECT CHAR(CAST('01.02.03' AS TIME), JIS) FROM SYSIBM.SYSDUMMY1", [("01:02:03",)]),
        ("SELECT HEX(X'00ff') FROM SYSIBM.SYSDUMMY1", [("00FF",)]),
        ("SELECT CAST(1.999 AS INTEGER), CAST('2.5' AS DECIMAL(3,1)) FROM SYSIBM.SYSDUMMY1", [(1, Decimal("2.5"))]),
        ("SELECT CASE WHEN ID = 1 THEN 'a' ELSE 'b' END FROM S.T ORDER BY ID", [("a",), ("b",)]),
        ("SELECT x.n FROM (SELECT ROW_NUMBER() OVER (ORDER BY ID DESC) AS n, ID FROM S.T) AS x WHERE x.ID = 1", [(2,)]),
        ("SELECT ID FROM S.T ORDER BY ID FETCH FIRST 1 ROWS ONLY WITH UR", [(1,)]),
        ("SELECT u.ID FROM S.T AS t JOIN S.T AS u ON u.ID = t.ID + 1", [(2,)]),
        ("SELECT 1 FROM SYSIBM.SYSDUMMY1 WHERE EXISTS (SELECT 1 FROM S.T WHERE ID = 9)", []),
    ],
)  # fmt: skip
def test_a_query_answers(database, sql, expected):
    assert database.execute(sql).fetchall() == expected


@pytest.mark.parametrize(
    ("sql", "kind", "code"),
    [
        ("SELECT ID FROM S.NOPE", ProgrammingError, -204),
        ("SELECT NOPE FROM S.T", ProgrammingError, -206),
        ("SELEC 1", NotSupportedError, -142),
        ("SELECT FROM WHERE", ProgrammingError, -104),
        ("INSERT INTO S.T (A) VALUES (1)", IntegrityError, -407),
        ("INSERT INTO S.T (ID) VALUES (1)", IntegrityError, -803),
        ("INSERT INTO S.T (ID, B) VALUES (3, 'too long')", DataError, -433),
        ("INSERT INTO S.T (ID, A) VALUES (3, 123456.1)", DataError, -413),
        ("INSERT INTO S.T (ID, C) VALUES (3, 'yesterday')", DataError, -180),
        ("INSERT INTO S.T (ID) VALUES (99999999999)", DataError, -413),
        ("UPDATE S.T SET A = A / 0", DataError, -801),
        ("CREATE TABLE S.T (X INTEGER)", ProgrammingError, -601),
        ("SELECT SOUNDEX(B) FROM S.T", NotSupportedError, -142),
        ("SELECT ID FROM S.T LIMIT 1", NotSupportedError, -142),
        ("SELECT ID FROM S.T UNION SELECT ID FROM S.T", NotSupportedError, -142),
        ("MERGE INTO S.T USING S.T", NotSupportedError, -142),
        ("CREATE TABLE S.U (X GEOMETRY)", ProgrammingError, -104),
        ("CALL ASNCDC.NOPE('S', 'T')", ProgrammingError, -204),
    ],
)
def test_what_is_wrong_or_not_known_is_refused_with_its_code(database, sql, kind, code):
    with pytest.raises(kind) as caught:
        database.execute(sql).fetchall()
    assert caught.value.number == code
    assert f"SQLCODE={code}" in str(caught.value)


def test_a_statement_that_fails_leaves_nothing(database):
    with pytest.raises(IntegrityError):
        database.execute("INSERT INTO S.T (ID) VALUES (7), (1)")
    assert database.execute("SELECT COUNT(*) FROM S.T").fetchone() == (2,)


def test_the_driver_gives_python_values(database):
    database.execute(
        "CREATE TABLE S.V (A SMALLINT, B DECIMAL(5,2), C DATE, D TIME, E TIMESTAMP, F BLOB(9),"
        " G VARCHAR(3) FOR BIT DATA, H DOUBLE, I DECFLOAT, J XML)"
    )
    moments = (dt.date(2024, 1, 2), dt.time(3, 4, 5), dt.datetime(2024, 1, 2, 3, 4, 5, 6))
    database.execute(
        "INSERT INTO S.V VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (1, Decimal("1.5"), *moments, b"\1", b"\2", 0.5, "1E+5", "<a/>"),
    )
    cursor = database.execute("SELECT * FROM S.V")
    assert [column[0] for column in cursor.description] == list("ABCDEFGHIJ")
    [row] = cursor.fetchall()
    assert row[:5] == (1, Decimal("1.50"), *moments)
    assert (bytes(row[5]), *row[6:]) == (b"\1", b"\2", 0.5, "1E+5", "<a/>")


def test_logins_and_databases_are_checked(server, database):
    settings = {"hostname": str(server.directory), "database": "shop"}
    assert connect(settings).cursor().execute("SELECT 1 FROM SYSIBM.SYSDUMMY1").fetchall() == [(1,)]
    with pytest.raises(OperationalError, match="SQL1013N"):
        connect({**settings, "database": "nope"})
    with pytest.raises(OperationalError, match="SQL1336N"):
        connect({**settings, "hostname": "/nowhere"})
    server.add_login("cdc", "right")
    with pytest.raises(OperationalError, match="SQL30082N"):
        connect({**settings, "user": "cdc", "password": "wrong"})
    connect({**settings, "user": "cdc", "password": "right"}).close()


def test_transactions_hold_until_they_are_committed(database):
    other = database.connect()
    other.set_autocommit(False)
    other.cursor().execute("INSERT INTO S.T (ID) VALUES (5)")
    assert database.execute("SELECT COUNT(*) FROM S.T").fetchone() == (2,)
    other.rollback()
    other.cursor().execute("INSERT INTO S.T (ID) VALUES (6)")
    other.set_autocommit(True)
    assert database.execute("SELECT MAX(ID) FROM S.T").fetchone() == (6,)
    other.close()


@pytest.mark.parametrize(
    ("ending", "holds"),
    [
        (" WITH RR USE AND KEEP SHARE LOCKS", True),
        (" WITH RS USE AND KEEP UPDATE LOCKS", True),
        (" WITH CS", False),
        ("", False),
    ],
)
def test_a_read_that_keeps_its_locks_holds_writers_off_until_its_transaction_ends(database, ending, holds):
    reader, writer = database.connect(), database.connect()
    reader.set_autocommit(False)
    read = reader.cursor()
    read.execute(f"SELECT ID FROM S.T ORDER BY ID{ending}")
    assert read.fetchall() == [(1,), (2,)]
    write = writer.cursor()
    write.execute("SET CURRENT LOCK TIMEOUT 0")
    insert = "INSERT INTO S.T (ID, B) VALUES (3, 'x')"
    if holds:
        with pytest.raises(InternalError, match="timeout"):
            write.execute(insert)
        reader.commit()
    write.execute(insert)
    assert database.execute("SELECT COUNT(*) FROM S.T").fetchall() == [(3,)]
