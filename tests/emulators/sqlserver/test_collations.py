"""Keys are ordered, compared and kept apart as their declared collation, type and digits say."""

from __future__ import annotations

import pytest

from headrace_emulators.sqlserver import EmulatedDatabase
from headrace_emulators.sqlserver.errors import DatabaseError, IntegrityError

WORDS = ["b", "A", "a", "B", "coop", "co-op", "é", "e", "E", "É", "_x", "10", "9"]
ORDERS = {
    "Latin1_General_CS_AS": ["_x", "10", "9", "a", "A", "b", "B", "coop", "co-op", "e", "E", "é", "É"],
    "Latin1_General_BIN2": sorted(WORDS),
    "SQL_Latin1_General_CP1_CS_AS": ["_x", "10", "9", "a", "A", "b", "B", "co-op", "coop", "e", "E", "é", "É"],
}


@pytest.mark.parametrize("collation", ORDERS)
def test_texts_are_ordered_by_their_collation(database: EmulatedDatabase, collation: str) -> None:
    database.execute(f"CREATE TABLE dbo.words (w nvarchar(20) COLLATE {collation} NOT NULL PRIMARY KEY)")
    database.load("dbo.words", [(w,) for w in WORDS])
    assert [w for (w,) in database.execute("SELECT w FROM dbo.words ORDER BY w").fetchall()] == ORDERS[collation]
    assert database.execute("SELECT COUNT(*) FROM dbo.words WHERE w = N'A'").fetchval() == 1
    assert database.execute("SELECT COUNT(*) FROM dbo.words WHERE w LIKE N'E%'").fetchval() == 1
    shown = database.execute("SELECT collation_name FROM sys.columns WHERE object_id = OBJECT_ID('dbo.words')")
    assert shown.fetchval() == collation


@pytest.mark.parametrize(
    ("collation", "same", "other"),
    [
        ("", [("Key", "kEY"), ("a", "a  ")], [("e", "é")]),
        ("COLLATE Latin1_General_CI_AI", [("e", "É"), ("N", "ñ")], [("a", "b")]),
        ("COLLATE Latin1_General_CS_AI", [("e", "é")], [("e", "E")]),
        ("COLLATE Latin1_General_CS_AS", [("a", "a ")], [("e", "é"), ("a", "A"), ("coop", "co-op")]),
        ("COLLATE Latin1_General_BIN2", [("a", "a ")], [("a", "A")]),
    ],
)
def test_keys_are_the_same_when_their_collation_says_so(
    database: EmulatedDatabase, collation: str, same: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    database.execute(f"CREATE TABLE dbo.k (k nvarchar(20) {collation} NOT NULL PRIMARY KEY, v int)")
    for first, second in same:
        database.execute("DELETE FROM dbo.k")
        database.execute("INSERT INTO dbo.k VALUES (?, 1)", [first])
        with pytest.raises(IntegrityError) as caught:
            database.execute("INSERT INTO dbo.k VALUES (?, 2)", [second])
        assert caught.value.number == 2627
        assert database.execute("SELECT v FROM dbo.k WHERE k = ?", [second]).fetchval() == 1
    for first, second in other:
        database.execute("DELETE FROM dbo.k")
        database.execute("INSERT INTO dbo.k VALUES (?, 1), (?, 2)", [first, second])
        assert database.execute("SELECT v FROM dbo.k WHERE k = ?", [second]).fetchval() == 2


def test_single_byte_texts_in_a_binary_collation_follow_their_code_page(database: EmulatedDatabase) -> None:
    database.execute("CREATE TABLE dbo.k (k varchar(5) COLLATE Latin1_General_BIN2 PRIMARY KEY, n nvarchar(5)"
                     " COLLATE Latin1_General_BIN2)")  # fmt: skip
    database.load("dbo.k", [("é", "é"), ("€", "€"), ("z", "z")])
    assert [k for (k,) in database.execute("SELECT k FROM dbo.k ORDER BY k").fetchall()] == ["z", "€", "é"]
    assert [k for (k,) in database.execute("SELECT n FROM dbo.k ORDER BY n").fetchall()] == ["z", "é", "€"]


def test_columns_of_different_collations_are_not_compared(database: EmulatedDatabase) -> None:
    database.execute("CREATE TABLE dbo.a (x nvarchar(5), y nvarchar(5) COLLATE Latin1_General_BIN2)")
    with pytest.raises(DatabaseError, match="Cannot resolve the collation conflict") as caught:
        database.execute("SELECT 1 FROM dbo.a WHERE x = y")
    assert caught.value.number == 468
    database.execute("SELECT 1 FROM dbo.a WHERE x = y COLLATE Latin1_General_CI_AS")
    with pytest.raises(DatabaseError, match="Invalid collation") as caught:
        database.execute("CREATE TABLE dbo.b (x nvarchar(5) COLLATE Klingon)")
    assert caught.value.number == 448


def test_guids_are_ordered_by_groups_of_bytes_from_the_end(database: EmulatedDatabase) -> None:
    database.execute("CREATE TABLE dbo.g (g uniqueidentifier PRIMARY KEY)")
    ordered = [
        "FFFFFFFF-FFFF-FFFF-FFFF-000000000001", "00000001-0000-0000-0000-000000000002",
        "00000002-0000-0000-0000-000000000002", "01000000-0000-0000-0000-000000000002",
        "00000000-0100-0000-0000-000000000002", "00000000-0000-0000-0001-000000000002",
        "00000000-0000-0000-0000-010000000000",
    ]  # fmt: skip
    by_bytes = sorted(ordered, key=lambda g: bytes.fromhex(g.replace("-", "")))
    database.load("dbo.g", [(g,) for g in by_bytes])
    found = [str(g) for (g,) in database.execute("SELECT g FROM dbo.g ORDER BY g").fetchall()]
    assert found[0] == ordered[0] and found[-1] == ordered[-1] and found != by_bytes
    after = database.execute("SELECT COUNT(*) FROM dbo.g WHERE g > CAST(? AS uniqueidentifier)", [found[2]])
    assert after.fetchval() == len(ordered) - 3
    assert found[5] == "00000000-0000-0000-0001-000000000002"


def test_decimals_compare_as_numbers_beyond_what_a_double_holds(database: EmulatedDatabase) -> None:
    database.execute("CREATE TABLE dbo.d (d decimal(38,4) PRIMARY KEY)")
    values = ["-10", "-9.5", "9", "10", "12345678901234567890123456789.0001", "12345678901234567890123456789.0002"]
    database.load("dbo.d", [(v,) for v in reversed(values)])
    found = [str(d) for (d,) in database.execute("SELECT d FROM dbo.d ORDER BY d").fetchall()]
    assert found == ["-10.0000", "-9.5000", "9.0000", "10.0000", *values[-2:]]
    sql = "SELECT COUNT(*) FROM dbo.d WHERE d > CAST(? AS decimal(38,4))"
    assert database.execute(sql, [values[-2]]).fetchval() == 1
    assert database.execute("SELECT COUNT(*) FROM dbo.d WHERE d < 9.5").fetchval() == 3
    assert str(database.execute("SELECT MAX(d) FROM dbo.d").fetchval()) == values[-1]
