"""LOBs, XML documents and extended strings, as LogMiner prints them piece by piece."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.sources.oracle.redo_statements import quoted, texts
from tests.support.redo_records import golden

from headrace.sources.oracle.redo import RedoPiece, RedoSyntaxError, parse, unistr_text

DECLARED = (
    "DECLARE \n loc_c CLOB; \n buf_c VARCHAR2(6174); \n loc_b BLOB; \n buf_b RAW(6174); \n loc_nc NCLOB; \n"
    " buf_nc NVARCHAR2(6174); \n e_len NUMBER; \nBEGIN\n"
)


@pytest.mark.parametrize(
    "case", golden("oracle_redo_extra.jsonl"), ids=lambda case: f"{case['mode']}: {case['sql'][:50]}"
)
def test_a_statement_gives_its_piece(case: dict[str, Any]) -> None:
    found = parse(case["sql"], relaxed_quotes=case["mode"] == "relaxed")
    facts = {name: value for name, value in case.items() if name not in ("sql", "mode", "note", "debezium")}
    assert {name: getattr(found, name) for name in facts} == facts


def piece(op: str, **fields: Any) -> RedoPiece:
    return RedoPiece(op, **fields)


def row(op: str, column: str, kind: str | None = None, **fields: Any) -> RedoPiece:
    given = {"schema": "S", "table": "T", "lob_column": column, "lob_kind": kind, "after": {"ID": "1"}} | fields
    return RedoPiece(op, **given)


SELECT = 'select "C" into loc_c from "S"."T" where "ID" = \'1\' for update;'
PIECES = [
    (f"{DECLARED} {SELECT}\nEND;", row("lob_locator", "C", "clob")),
    (f"{DECLARED} {SELECT}\n", row("lob_locator", "C", "clob")),
    (f"BEGIN {SELECT.replace('loc_c', 'loc_nc')} END", row("lob_locator", "C", "nclob")),
    (SELECT.upper(), row("lob_locator", "C", "clob")),
    (
        'select "it\'s" into loc_b from "S"."T" a where a."ID" = \'o\'\'k\' and a."B" IS NULL '
        "and ROWID = 'AAA' for update;",
        row("lob_locator", "it's", "blob", after={"ID": "o'k", "B": None}),
    ),
    ('select "C" into loc_c from "S"."T" for update;', row("lob_locator", "C", "clob", after={})),
    (
        " buf_c := 'it''s; END; dbms_lob.write('; \n  dbms_lob.write(loc_c, 26, 1, buf_c);\n",
        piece("lob_write", lob_kind="clob", offset=1, length=26, text="it's; END; dbms_lob.write("),
    ),
    ("buf_c := ''; dbms_lob.write(loc_c,0,1,buf_c);", piece("lob_write", lob_kind="clob", offset=1, length=0, text="")),
    (
        "buf_nc := UNISTR('\\4E2D') || UNISTR('''\\D83D') || UNISTR('\\DE00\\\\'); "
        "dbms_lob.write(loc_nc, 5, 9, buf_nc);",
        piece("lob_write", lob_kind="nclob", offset=9, length=5, text="中'😀\\"),
    ),
    (
        "buf_nc := N'a'; dbms_lob.write(loc_nc, 1, 1, buf_nc)",
        piece("lob_write", lob_kind="nclob", offset=1, length=1, text="a"),
    ),
    (
        "BUF_B := HEXTORAW('CAfe'); DBMS_LOB.WRITE(LOC_B, 2, 1, BUF_B); END;",
        piece("lob_write", lob_kind="blob", offset=1, length=2, hex="CAfe"),
    ),
    (
        f"{DECLARED} {SELECT}\n\n buf_c := 'x'; \n  dbms_lob.write(loc_c, 1, 3, buf_c);\nEND;",
        row("lob_write", "C", "clob", offset=3, length=1, text="x"),
    ),
    ("  dbms_lob.trim(loc_c, 12);\n", piece("lob_trim", lob_kind="clob", length=12)),
    (f"{DECLARED} {SELECT} dbms_lob.trim(loc_c, 0);\nEND;", row("lob_trim", "C", "clob", length=0)),
    ("  e_len :=  10;\n  dbms_lob.erase(loc_b, e_len, 5);\n", piece("lob_erase", lob_kind="blob", offset=5, length=10)),
    ("dbms_lob.erase(loc, 10, 5)", piece("lob_erase", offset=5, length=10)),
    ('XML DOC BEGIN:  select "C" from "S"."T" where "ID" = \'1\'', row("xml_begin", "C")),
    ('XML DOC BEGIN: select "C" from "S"."T" a where a."ID" = 1 for update;', row("xml_begin", "C")),
    ('update "S"."T" a set a."C" = xmltype( :1 )  where a."ID" = \'1\'', row("xml_begin", "C")),
    ("XML_REDO := NULL", piece("xml_write")),
    ("XML_REDO := HEXTORAW('3c612f3e'):4", piece("xml_write", hex="3c612f3e", length=4)),
    ("XML_REDO := HEXTORAW('3c612f3e):4", piece("xml_write", hex="3c612f3e", length=4)),
    ("XML_REDO := HEXTORAW('')", piece("xml_write", hex="")),
    ("XML_REDO := '<a b=\"1\">it''s</a>':14", piece("xml_write", text='<a b="1">it\'s</a>', length=14)),
    ("XML_REDO := '<a/>'\n amount: 59", piece("xml_write", text="<a/>", length=59)),
    ("XML_REDO := '<a b='c'/>\n'", piece("xml_write", text="<a b='c'/>\n")),
    ("XML_REDO := '<a>cut", piece("xml_write", text="<a>cut")),
    (
        "DECLARE\n Stmt VARCHAR2(4000);\nBEGIN\n "
        "Stmt := 'update \"S\".\"T\" a set a.\"C\" = :C where a.\"ID\" = ''it''''s''';\n",
        row("ext_string_begin", "C", after={"ID": "it's"}),
    ),
    (
        'BEGIN Stmt := \'update "S"."T" set "C" = :1 '
        "where \"D\" = TO_DATE(''1'', ''x'') and \"N\" IS NULL;'; END;",
        row("ext_string_begin", "C", after={"D": "TO_DATE('1', 'x')", "N": None}),
    ),
]


@pytest.mark.parametrize(("sql", "expected"), PIECES, ids=[re.sub(r"\s+", " ", sql)[-60:] for sql, _ in PIECES])
def test_a_piece_says_what_is_written_where(sql: str, expected: RedoPiece) -> None:
    assert parse(sql) == expected
    assert parse(sql, relaxed_quotes=True) == expected


REFUSED = [
    ("DECLARE loc_c CLOB;", "DECLARE loc_c CLOB;"),
    ("BEGIN END;", "BEGIN END;"),
    ("buf_c := 'x';", "buf_c := 'x';"),
    ("dbms_lob.write(loc_c, 1, 1, buf_c);", "dbms_lob.write(loc_c, 1, 1, "),
    ("buf_c := NULL; dbms_lob.write(loc_c, 1, 1, buf_c);", "buf_c := NULL; dbms_lob.write(loc_c, 1, 1, "),
    ("buf_b := HEXTORAW('abc'); dbms_lob.write(loc_b, 1, 1, buf_b);", "buf_b := "),
    ("buf_b := TO_DATE('abc'); dbms_lob.write(loc_b, 1, 1, buf_b);", "buf_b := "),
    ("buf_c := 'x'; dbms_lob.write(loc_c, -1, 1, buf_c);", "buf_c := 'x'; dbms_lob.write(loc_c, "),
    ("buf_c := 'x'; dbms_lob.write(loc_c, 1, amount, buf_c);", "buf_c := 'x'; dbms_lob.write(loc_c, 1, "),
    (f"buf_c := 'x'; dbms_lob.write(loc_c, {'9' * 5000}, 1, buf_c);", "buf_c := 'x'; dbms_lob.write(loc_c, "),
    ("dbms_lob.trim(loc_c, 1); dbms_lob.trim(loc_c, 2);", "dbms_lob.trim(loc_c, 1); "),
    ("dbms_lob.append(loc_c, 1);", "dbms_lob."),
    (f"{SELECT} {SELECT}", f"{SELECT} "),
    ("BEGIN Stmt := 'update \"S\".\"T\" set \"C\" = ''1'''; END;", "BEGIN Stmt := '"),
    (
        "BEGIN Stmt := 'update \"S\".\"T\" set \"C\" = :1 where \"A\" = ''o''''k'' x'; END;",
        "BEGIN Stmt := 'update \"S\".\"T\" set \"C\" = :1 where \"A\" = ''o''''k'' ",
    ),
    ("XML_REDO := HEXTORAW('abc')", "XML_REDO := "),
    ("XML_REDO := 4", "XML_REDO := "),
    ("XML DOC END", "XML DOC "),
]


@pytest.mark.parametrize(("sql", "read"), REFUSED, ids=[sql[:60] for sql, _ in REFUSED])
def test_a_piece_that_does_not_say_enough_is_refused_with_its_place(sql: str, read: str) -> None:
    with pytest.raises(RedoSyntaxError) as caught:
        parse(sql)
    assert sql[: caught.value.position] == read, caught.value


@given(texts, st.integers(0, 10**12), st.integers(0, 10**12))
@settings(max_examples=examples(200), deadline=None)
def test_a_written_piece_is_read_as_it_was(text: str, length: int, offset: int) -> None:
    found = parse(f" buf_c := {quoted(text)}; \n  dbms_lob.write(loc_c, {length}, {offset}, buf_c);\n")
    assert found == piece("lob_write", lob_kind="clob", offset=offset, length=length, text=text)


def as_unistr(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = [int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2)]
    escaped = "".join(
        "\\\\" if unit == 0x5C else chr(unit) if 0x20 <= unit < 0x7F else f"\\{unit:04X}" for unit in pairs
    )
    return f"UNISTR({quoted(escaped)})"


@given(st.lists(st.text(), min_size=1, max_size=4))
@settings(deadline=None)
def test_unistr_is_its_text_in_any_number_of_calls(found: list[str]) -> None:
    assert unistr_text(" || ".join(map(as_unistr, found))) == "".join(found)


@pytest.mark.parametrize(
    "call", ["", "'a'", "UNISTR('a'", "UNISTR('a') || 'b'", "UNISTR('a') UNISTR('b')", "HEXTORAW('00')"]
)
def test_what_is_not_unistr_has_no_text(call: str) -> None:
    assert unistr_text(call) is None
