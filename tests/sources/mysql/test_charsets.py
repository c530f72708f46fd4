"""Rule: the log's texts in any character set are what the server's own CONVERT makes of them, for every character; what
the server has no character for is U+FFFD and stops nothing.
"""

from __future__ import annotations

import importlib.resources
import random
from typing import Any

import pyarrow as pa
import pytest
from tests.support.captured_mysql import CapturedMysql

from headrace.errors import SchemaError
from headrace.sources.mysql.charsets import texts_of
from headrace.testing.captured_database import data
from headrace_emulators.mysql.charset_tables import NO_CHARACTER, characters, charsets, prepare
from headrace_emulators.mysql.server import MYSQL, MySqlDatabase

SEED = 20260101
LARGEST_FILE = 2_000_000
UNICODE = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}


def read(sequences: list[bytes | None], charset: str) -> list[str | None]:
    found: list[str | None] = texts_of(pa.array(sequences, pa.binary()), charset).to_pylist()
    return found


def different(found: dict[bytes, int], charset: str) -> list[tuple[str, int]]:
    """The characters that are read otherwise than the server says, alone or one behind the other."""
    sequences = list(found)
    alone = zip(sequences, read(list(sequences), charset), strict=True)
    wrong = [(data.hex(), found[data]) for data, text in alone if text != chr(found[data])]
    random.Random(SEED).shuffle(sequences)
    [joined] = read([b"".join(sequences)], charset)
    return wrong or ([("joined", 0)] if joined != "".join(chr(found[data]) for data in sequences) else [])


def test_every_character_of_every_set_is_read_as_the_server_has_it(binlog_database: MySqlDatabase) -> None:
    wrong, known = {}, {}
    with binlog_database.connect() as session, session.cursor() as cursor:
        prepare(cursor)
        for charset, size in charsets(cursor).items():
            found = characters(cursor, charset, size)
            known[charset] = [data for data, point in found.items() if point not in (0, NO_CHARACTER)]
            wrong[charset] = different(found, charset)
        for charset, size in UNICODE.items():
            found = characters(cursor, charset, 2) if size == 2 else {}
            points = {data: point for data, point in found.items() if len(data) == size and point >> 11 != 0x1B}
            wrong[charset] = different(points, charset)
        if binlog_database.server.name == MYSQL:
            wrong["gb18030"] = different(characters(cursor, "gb18030", 2) | four_bytes(cursor), "gb18030")
    assert {charset: some[:5] for charset, some in wrong.items() if some} == {}
    assert len(known) > 30
    changes_are_as_printed(CapturedMysql(binlog_database), known)


def changes_are_as_printed(database: CapturedMysql, known: dict[str, list[bytes]]) -> None:
    """Insert a row with a text of drawn characters of each set: its change has what the server prints."""
    drawn = random.Random(SEED)
    columns = ", ".join(f"`{charset}` TEXT CHARACTER SET {charset}" for charset in known)
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    run = database.run()
    run.all()
    texts = {charset: b"".join(drawn.choices(some, k=60)) for charset, some in known.items()}
    given = ", ".join(f"_{charset} x'{text.hex()}'" for charset, text in texts.items())
    database.execute(f"INSERT INTO t VALUES (1, {given})")
    [(_, *printed)] = database.database.execute("SELECT * FROM t")
    [(_, _, row)] = data(run.all())
    assert [row[charset] for charset in known] == printed


def four_bytes(cursor: Any) -> dict[bytes, int]:
    """The characters of four bytes of GB 18030 in the basic plane, and at both ends of the others."""
    rest = "CHAR(48 + n DIV 1260 USING binary), CHAR(129 + n DIV 10 % 126 USING binary), CHAR(48 + n % 10 USING binary)"
    found = {}
    for first in (0x81, 0x82, 0x83, 0x84, 0x90, 0xE3):
        sequence = f"CONCAT(x'{first:02X}', {rest})"
        cursor.execute(
            f"SELECT HEX(b), HEX(CONVERT(CONVERT(b USING gb18030) USING utf32)) FROM (SELECT {sequence} AS b "
            "FROM headrace_numbers WHERE n < 12600) q"
        )
        for sequence, shown in cursor.fetchall():
            if shown and shown != "0000003F":
                found[bytes.fromhex(sequence)] = int(shown, 16)
    return found


@pytest.mark.parametrize(
    ("charset", "given", "expected"),
    [
        ("latin1", b"a\x80\x81\xff", "a\u20ac\x81\xff"),
        ("ascii", b"a\x80", "a\ufffd"),
        ("swe7", b"[\\]", "\xc4\xd6\xc5"),
        ("sjis", b"a\x81\x5fb", "a\\b"),
        ("big5", b"\xa1\x45\xf9\xfe", "\u2022\ufffd"),
        ("gb18030", b"\xa8\xbc\x81\x35\xf4\x37", "\u1e3f\ue7c7"),
        # No sequence of the set, which a server never stores.
        ("big5", b"\xa1", "\ufffd"),
        ("gbk", b"\x81\x20a", "\ufffd a"),
        ("ujis", b"\x8f\xa1", "\ufffd\ufffd"),
        ("ucs2", b"\xd8\x3d\xde\x00\x00a", "\ufffd\ufffda"),
        ("utf16", b"\xd8\x3d\xde\x00", "\U0001f600"),
    ],
)
def test_what_a_server_shows_as_a_question_mark_is_no_character(charset: str, given: bytes, expected: str) -> None:
    assert read([given], charset) == [expected]


def test_null_and_empty_texts_stay_apart_in_slices_too() -> None:
    values = pa.array([b"x", None, b"", b"\xe4", None, b"y"], pa.binary())
    assert texts_of(values.slice(1, 4), "latin1").to_pylist() == [None, "", "\xe4", None]
    assert texts_of(values.slice(6), "latin1").to_pylist() == []


def test_a_character_set_that_no_server_has_is_refused() -> None:
    with pytest.raises(SchemaError, match="character set 'klingon' can't be read"):
        read([b"a"], "klingon")


def test_bytes_that_are_no_utf_8_are_damaged() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        read([b"a\xff"], "utf8mb4")


def test_the_tables_are_small() -> None:
    tables = importlib.resources.files("headrace.sources.mysql").joinpath("charsets.npz")
    assert len(tables.read_bytes()) < LARGEST_FILE
