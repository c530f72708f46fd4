"""What is no redo statement is refused with its place, and with nothing else than the parser's own error."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.sources.oracle.redo_statements import changes, rendered
from tests.support.redo_records import golden

from headrace.errors import FormatError
from headrace.sources.oracle.redo import RedoPiece, RedoRow, RedoSyntaxError, parse, parse_many
from headrace.sources.oracle.redo.parser import parse_afresh

SAMPLES = [case["sql"][:2000] for case in golden("oracle_redo.jsonl") + golden("oracle_redo_extra.jsonl")]

REFUSED = [
    ("", "", "statement"),
    ("   ", "   ", "statement"),
    ("Unsupported", "", "statement"),
    ("commit;", "", "statement"),
    ("select * from dual", "select ", "a column"),
    ("create table t(a number)", "", "statement"),
    ('insert into "S"."T" values (\'1\');', 'insert into "S"."T" ', "("),
    ('insert into "S"."T"("A") values (\'1\',\'2\');', 'insert into "S"."T"("A") values (\'1\'', ")"),
    (
        'insert into "S"."T"("A","B") values (\'it\'\'s\');',
        'insert into "S"."T"("A","B") values (\'it\'\'s\'',
        "value for each",
    ),
    (
        'insert into "S"."T"("A","A") values (\'1\',\'2\');',
        'insert into "S"."T"("A","A") values (\'1\',\'2\');',
        "once",
    ),
    ('insert into "S"."T"("A") values (\'1\') returning', 'insert into "S"."T"("A") values (\'1\') ', "end"),
    ('insert into "S"."T"("A") values (\'1', 'insert into "S"."T"("A") values (', "quote"),
    ('insert into "S"."T"("A") values (\'1\'\')', 'insert into "S"."T"("A") values (', "quote"),
    ('insert into "S"."T"("A") values (F(\'1\');', 'insert into "S"."T"("A") values (F(\'1\')', ") after"),
    ('insert into "S"."T"("A") values (SYSDATE);', 'insert into "S"."T"("A") values (SYSDATE', "( after a function"),
    ('insert into "S"."T"("A") values (:1);', 'insert into "S"."T"("A") values (', "a value"),
    ('insert into "S"."T"("A") values (1 2);', 'insert into "S"."T"("A") values (1 ', ")"),
    ('insert into "S"."T"("A") values (\'a\' || NULL);', 'insert into "S"."T"("A") values (\'a\' || NULL', "("),
    ('insert into "S"."T"("A") values (N \'a\');', 'insert into "S"."T"("A") values (N ', "("),
    ('insert into "S"."T"("A") values (q\'[a]\');', 'insert into "S"."T"("A") values (q', "("),
    ('insert into "S"."T"("A) values (1);', 'insert into "S"."T"(', "a column"),
    ('insert into "S"."T"("A" /* ) values (1);', 'insert into "S"."T"("A" ', ")"),
    ('insert into "S"."T"("") values (1);', 'insert into "S"."T"(', "a column"),
    ('insert into "A"."B"."C"("A") values (\'1\');', "insert into ", "schema"),
    ('update "S"."T" "A" = \'1\';', 'update "S"."T" "A" ', "SET"),
    ('update "S"."T" set "A" IS NULL;', 'update "S"."T" set "A" ', "="),
    ('update "S"."T" a set b."A" = \'1\';', 'update "S"."T" a set ', "this table"),
    (
        'update "S"."T" set "A" = \'1\' where "A" = \'1\' or "A" = \'2\';',
        'update "S"."T" set "A" = \'1\' where "A" = \'1\' ',
        "end",
    ),
    ('delete from "S"."T" where "A" IS NOT NULL;', 'delete from "S"."T" where "A" IS ', "NULL"),
    ('delete from "S"."T" where ("A" = \'1\');', 'delete from "S"."T" where ', "a column"),
    ('delete from "S"."T" where "A" < \'1\';', 'delete from "S"."T" where "A" ', "="),
    (
        'delete from "S"."T" where "A" = \'1\' and "A" = \'2\';',
        'delete from "S"."T" where "A" = \'1\' and "A" = \'2\'',
        "once",
    ),
    ('delete "S"."T";', "delete ", "FROM"),
    (
        "delete from \"it's\".\"T\" where \"it's\" = 'it''s' x;",
        "delete from \"it's\".\"T\" where \"it's\" = 'it''s' ",
        "end",
    ),
    ('update "S"."T" set "A" = :A;', 'update "S"."T" set "A" = ', "a value"),
]


@pytest.mark.parametrize(("sql", "read", "expected"), REFUSED, ids=[sql for sql, _, _ in REFUSED])
def test_an_error_says_where_and_what_was_expected(sql: str, read: str, expected: str) -> None:
    with pytest.raises(RedoSyntaxError) as caught:
        parse(sql)
    assert (sql[: caught.value.position], expected in caught.value.expected) == (read, True), caught.value
    assert f"character {len(read) + 1}:" in str(caught.value)


@pytest.mark.parametrize("sql", ['update "S"."T" set "A" = \'it\'s', "alter table t add a", "delete from 'x'"])
def test_relaxed_quotes_refuse_what_has_no_end_or_is_no_row_change(sql: str) -> None:
    with pytest.raises(RedoSyntaxError):
        parse(sql, relaxed_quotes=True)


def test_an_error_holds_no_value_and_crosses_processes() -> None:
    with pytest.raises(FormatError) as caught:
        parse('insert into "S"."T"("A") values (\'secret\' 4711);')
    assert "secret" not in str(caught.value) and "4711" not in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, RedoSyntaxError)
    assert (str(copy), copy.position, copy.expected) == (
        str(caught.value),
        caught.value.position,
        caught.value.expected,
    )


@pytest.mark.parametrize("end", ["'", "'x", "''';"])
def test_a_literal_without_end_behind_a_known_statement_is_refused(end: str) -> None:
    sql = 'insert into "S"."T"("A","B") values (1,NULL);'
    parse(sql)
    with pytest.raises(RedoSyntaxError):
        parse(sql + end)
    (found,) = parse_many([sql + end])
    assert isinstance(found, RedoSyntaxError)


def test_a_bad_statement_costs_only_its_own_place() -> None:
    good = 'delete from "S"."T";'
    first, bad, last = parse_many([good, "it's", good])
    assert first == last == parse(good)
    assert isinstance(bad, RedoSyntaxError)


def read(sql: str, *, relaxed_quotes: bool = False) -> RedoRow | RedoPiece | None:
    """What is read; None when it is refused. Any other error is the test's failure."""
    try:
        found = parse(sql, relaxed_quotes=relaxed_quotes)
    except RedoSyntaxError as error:
        assert 0 <= error.position <= len(sql)
        return None
    assert isinstance(found, RedoRow | RedoPiece)
    return found


def agrees(sql: str) -> None:
    """The fast way gives what the grammar alone gives, with the same error at the same place, and gives it again."""
    try:
        afresh: RedoRow | RedoPiece | None = parse_afresh(sql)
    except RedoSyntaxError as error:
        afresh = None
        with pytest.raises(RedoSyntaxError) as caught:
            parse(sql)
        assert (caught.value.position, caught.value.expected) == (error.position, error.expected)
    for _ in range(3):
        assert read(sql) == afresh


FRAGMENTS = [
    "insert into ", "update ", "delete from ", '"S"."T"', '"A"', '"it\'s"', "(", ")", ",", " values ", " set ",
    " where ",
    " and ", " = ", " IS NULL", "NULL", " = NULL", ",NULL", "'", "''", "'a'", "N'", "TO_DATE(", "UNISTR('a')",
    " || ", ";", "--", "/*",
    "*/",
    "Unsupported Type", "1", "-", ".", ":", ":=", "DECLARE", " BEGIN ", " END;", "select ", " into loc_c from ",
    " for update", "buf_c := ", "dbms_lob.write(loc_c, ", "dbms_lob.trim(loc_c, ", "XML DOC BEGIN: ", "XML_REDO := ",
    "HEXTORAW(", " Stmt := ", "ROWID", "a", " ", "\n", "\x00", "é",
]  # fmt: skip


@given(st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join)), st.booleans())
@settings(max_examples=examples(1000), deadline=None)
def test_any_text_is_read_or_refused_and_the_fast_way_agrees(sql: str, relaxed: bool) -> None:
    agrees(sql)
    read(sql, relaxed_quotes=relaxed)


@given(st.data())
@settings(max_examples=examples(1000), deadline=None)
def test_a_changed_statement_is_read_or_refused_and_the_fast_way_agrees(data: st.DataObject) -> None:
    sql = data.draw(st.one_of(st.sampled_from(SAMPLES), changes.map(rendered)))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(sql)))
        end = data.draw(st.integers(start, min(len(sql), start + 8)))
        sql = (
            sql[:start]
            + data.draw(st.one_of(st.sampled_from(["", "'", '"', *FRAGMENTS]), st.text(max_size=3)))
            + sql[end:]
        )
    agrees(sql)
    read(sql, relaxed_quotes=data.draw(st.booleans()))


@pytest.mark.parametrize("sql", SAMPLES, ids=lambda sql: sql[:60])
def test_a_statement_that_is_cut_anywhere_is_read_or_refused(sql: str) -> None:
    for end in range(min(len(sql), 300)):
        agrees(sql[:end])
        read(sql[:end], relaxed_quotes=True)


@pytest.mark.parametrize(
    "sql",
    [
        "(" * 200_000,
        'insert into "S"."T"("A") values (' + "F(" * 100_000,
        "'" * 100_000,
        "' " * 100_000,
        "/*" * 100_000,
        "/* " * 100_000,
        '"' * 100_001,
        "-" * 100_000,
        'delete from "S"."T" where "A" = \'' + " " * 200_000 + "x",
        'update "S"."T" set "A" = \'' + "', \"" * 20_000,
        "XML_REDO := '" + "' " * 50_000 + "x",
        "DECLARE " + "x; " * 50_000,
        'insert into "S"."T"("A") values (' + "9" * 100_000 + "x)",
    ],
    ids=lambda sql: sql[:40],
)
def test_long_and_hostile_texts_take_no_long_time(sql: str) -> None:
    assert read(sql) is None
    assert read(sql, relaxed_quotes=True) is None
