"""Inserts, updates and deletes as LogMiner prints them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.sources.oracle.redo_statements import Cell, Change, Style, changes, names, quoted, rendered, styles, texts
from tests.support.redo_records import golden

from headrace.sources.oracle.redo import RedoRow, RedoShape, RedoSyntaxError, parse, parse_many
from headrace.sources.oracle.redo.parser import forget_shapes, parse_afresh


def facts(row: Any) -> tuple[Any, ...]:
    return row.op, row.schema, row.table, row.before, row.after


@pytest.mark.parametrize("case", golden("oracle_redo.jsonl"), ids=lambda case: case["sql"][:70])
def test_a_statement_gives_its_row(case: dict[str, Any]) -> None:
    row = parse(case["sql"])
    assert facts(row) == (case["op"], case["schema"], case["table"], case["before"], case["after"])


D, T, S = "TO_DATE('2024-01-02', 'YYYY-MM-DD')", '"S"."T"', ("S", "T")
INSERTS = [
    ("(\"A\") values ('')", {"A": ""}),
    ("(\"A\",\"B\") values ('','')", {"A": "", "B": ""}),
    ("(\"A\") values ('''')", {"A": "'"}),
    ("(\"A\",\"B\") values ('''a''','''')", {"A": "'a'", "B": "'"}),
    ("(\"A\",\"B\") values (''',''',',')", {"A": "','", "B": ","}),
    (' ("A" , "B")  values\n( \'1\' , NULL ) ', {"A": "1", "B": None}),
    ('("A") values (null)', {"A": None}),
    ('("A") values (UNSUPPORTED TYPE)', {"A": None}),
    ('("A") values (Unsupported)', {"A": None}),
    ("(\"A\") values (N'e''')", {"A": "e'"}),
    ("(\"A\") values (UNISTR('\\0041')||UNISTR('b'))", {"A": "UNISTR('\\0041') || UNISTR('b')"}),
    ("(\"A\") values (UNISTR('a')  ||\nUNISTR('b')  )", {"A": "UNISTR('a') || UNISTR('b')"}),
    ("(\"A\") values (UNISTR('it''s ( ) || '))", {"A": "UNISTR('it''s ( ) || ')"}),
    ("(\"A\") values ('a' || 'b''' || N'c')", {"A": "ab'c"}),
    ("(\"A\") values ( TO_DATE( '1' ,  'x' ) )", {"A": "TO_DATE( '1' ,  'x' )"}),
    ('("A") values (/* JSON */ EMPTY_BLOB())', {"A": "/* JSON */ EMPTY_BLOB()"}),
    ("(\"A\") values (/* JSON */ HEXTORAW('0A'))", {"A": "/* JSON */ HEXTORAW('0A')"}),
    ("(\"A\") values ('a' /* it's, ) */ )", {"A": "a"}),
    ("(\"A\") values ('x') -- it's over", {"A": "x"}),
    ("(\"A\",\"B\") values (-- 'x',\n'1','2')", {"A": "1", "B": "2"}),
    ("(\"A\") values (F(-- ') || '\n'1'))", {"A": "F(-- ') || '\n'1')"}),
    ("(\"A\") values ('-- no comment /* neither */')", {"A": "-- no comment /* neither */"}),
    ("(\"it's\",\"B\") values ('1','it''s')", {"it's": "1", "B": "it's"}),
    ("(\"'\",\"''\") values ('1','2')", {"'": "1", "''": "2"}),
    ("(\"A\",\"ORA_ARCHIVE_STATE\") values ('1',F('0'))", {"A": "1"}),
    ('(a,"b") values (+1,-.5E-3)', {"A": "+1", "b": "-.5E-3"}),
    ('("A") values (F(G(1), (2)))', {"A": "F(G(1), (2))"}),
    ('("A") values ("S"."F"(:1))', {"A": '"S"."F"(:1)'}),
    ('(T."A","S"."T"."B") values (\'1\',\'2\')', {"A": "1", "B": "2"}),
]


@pytest.mark.parametrize("end", ["", ";", " ;\n"])
@pytest.mark.parametrize(("rest", "after"), INSERTS, ids=[rest for rest, _ in INSERTS])
def test_an_insert_gives_its_values(rest: str, after: dict[str, str | None], end: str) -> None:
    assert facts(parse(f'insert into "S"."T"{rest}{end}')) == ("insert", *S, None, after)


UPDATES = [
    ("set \"A\" = '1'", {}, {"A": "1"}),
    ('set "A" = NULL where "A" = NULL', {"A": None}, {"A": None}),
    ('a set a."A" = \'1\' where a."A" = \'0\' and a."B" IS NULL', {"A": "0", "B": None}, {"A": "1", "B": None}),
    ('"x y" set "x y"."A" = NULL where "x y"."A" = 1', {"A": "1"}, {"A": None}),
    ("set \"A\" = '1' where ROWID = 'AAAR3sAAEAAAACXAAB'", {}, {"A": "1"}),
    ("a set a.\"A\" = '1' where a.rowid = 'AAAR3sAAEAAAACXAAB' and \"B\"='2'", {"B": "2"}, {"B": "2", "A": "1"}),
    ("set \"ROWID\" = '1' where \"ROWID\" = '0'", {"ROWID": "0"}, {"ROWID": "1"}),
    (f'set "A" = {D} where "B" = {D}', {"B": D}, {"B": D, "A": D}),
    ('set "A" = Unsupported Type where "B" = \'1\'', {"B": "1"}, {"B": "1"}),
    ('set "A" = Unsupported Type where "A" = Unsupported Type', {"A": None}, {"A": None}),
    ("set \"A\" = '1', \"ORA_ARCHIVE_STATE\" = '2' where \"ORA_ARCHIVE_STATE\" = '0'", {}, {"A": "1"}),
    ("set \"A\" = '=''s, \"B\" = 2' where \"A\" = ' and '", {"A": " and "}, {"A": '=\'s, "B" = 2'}),
    ('\nSET "A"=\'1\'\nWHERE "A"=\'0\'\tAND "B" Is Null', {"A": "0", "B": None}, {"A": "1", "B": None}),
    ("set a = '1' where b = '2'", {"B": "2"}, {"B": "2", "A": "1"}),
    ('set "A" = XMLType(:1), "B" = 2', {}, {"A": "XMLType(:1)", "B": "2"}),
]


@pytest.mark.parametrize(("rest", "before", "after"), UPDATES, ids=[rest for rest, _, _ in UPDATES])
def test_an_update_lays_its_values_over_those_of_its_conditions(
    rest: str, before: dict[str, str | None], after: dict[str, str | None]
) -> None:
    assert facts(parse(f'update "S"."T" {rest};')) == ("update", *S, before, after)


DELETES = [
    ("", {}),
    ("where \"A\" = '1' and ROWID = 'AAAR3sAAEAAAACXAAB'", {"A": "1"}),
    ("where ROWID = 'AAAR3sAAEAAAACXAAB' and \"A\" = '1'", {"A": "1"}),
    ('"where" where "where"."A" IS NULL', {"A": None}),
    (
        "a where a.\"A\" = UNISTR('\\0041') || UNISTR('''') and a.\"B\"=EMPTY_CLOB()",
        {"A": "UNISTR('\\0041') || UNISTR('''')", "B": "EMPTY_CLOB()"},
    ),
    ('where "A" = \'a;b\' and "B" = \'x\'\'; delete from "S"."T"\'', {"A": "a;b", "B": 'x\'; delete from "S"."T"'}),
]


@pytest.mark.parametrize(("rest", "before"), DELETES, ids=[rest for rest, _ in DELETES])
def test_a_delete_gives_the_values_of_its_conditions(rest: str, before: dict[str, str | None]) -> None:
    assert facts(parse(f'delete from "S"."T" {rest};')) == ("delete", *S, before, None)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ('"S"."T"', ("S", "T")),
        ('"T"', (None, "T")),
        ("s.t", ("S", "T")),
        ('"C##A"."OBJ# 7"', ("C##A", "OBJ# 7")),
        ('"it\'s"."where"', ("it's", "where")),
        ("/* a */ s /* b */ . t", ("S", "T")),
    ],
)
def test_names_without_quotes_are_in_upper_case_and_the_schema_may_be_missing(
    table: str, named: tuple[str | None, str]
) -> None:
    row = parse(f"delete from {table} where ID = '1'")
    assert (row.schema, row.table, row.before) == (*named, {"ID": "1"})


def test_a_shape_says_which_texts_are_calls_and_which_nulls_are_unknown() -> None:
    row = parse(
        f'update "S"."T" set "A" = \'x\', "B" = {D}, "C" = Unsupported Type, "D" = EMPTY_CLOB() '
        f"where \"A\" = {D} and \"C\" = HEXTORAW('0a') and \"E\" = Unsupported Type and \"F\" = 'HEXTORAW(''0a'')';"
    )
    assert isinstance(row, RedoRow)
    calls = (frozenset("AC"), frozenset("BCD"))
    assert row.shape == RedoShape(("A", "B", "C", "D"), *calls, unsupported=frozenset("CE"))
    assert row.before is not None and row.before["F"] == row.before["C"] == "HEXTORAW('0a')"


@given(changes)
@settings(max_examples=examples(300), deadline=None)
def test_a_rendered_change_is_read_as_it_was(change: Change) -> None:
    row = parse(rendered(change))
    assert facts(row) == (change.op, change.schema, change.table, change.before, change.after)


@given(changes, styles)
@settings(max_examples=examples(300), deadline=None)
def test_blanks_case_comments_and_aliases_change_nothing(change: Change, style: Style) -> None:
    row = parse(rendered(change, style))
    assert facts(row) == (change.op, change.schema, change.table, change.before, change.after)


@given(changes, st.data())
@settings(max_examples=examples(300), deadline=None)
def test_any_value_may_be_null(change: Change, data: st.DataObject) -> None:
    def nulled(cells: dict[str, Cell]) -> dict[str, Cell]:
        return {name: Cell("NULL", None) if data.draw(st.booleans()) else cell for name, cell in cells.items()}

    for style in (Style(), Style(equals_null=True), data.draw(styles)):
        other = Change(change.op, change.schema, change.table, nulled(change.old), nulled(change.new))
        sql = rendered(other, style)
        row = parse(sql)
        assert facts(row) == (change.op, change.schema, change.table, other.before, other.after)
        assert row == parse_afresh(sql)


@given(st.lists(changes, max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=examples(100), deadline=None)
def test_what_was_read_before_changes_nothing(found: list[Change], random: Any) -> None:
    statements = [rendered(change) for change in found] * 2
    random.shuffle(statements)
    alone = []
    for sql in statements:
        forget_shapes()
        alone.append(parse(sql))
    forget_shapes()
    assert list(parse_many(statements)) == alone
    assert [parse(sql) for sql in statements] == alone


WORDS = st.text("abc é,.()=\"'", max_size=12).filter(lambda text: "'" not in text[:1] + text[-1:] and "''" not in text)
# What LogMiner can't be asked to tell from the end of a value.
CLEAR = WORDS.filter(lambda text: "'," not in text and "')" not in text and "' " not in text)


@given(st.dictionaries(names, CLEAR, min_size=1, max_size=4), st.dictionaries(names, CLEAR, max_size=4))
@settings(max_examples=examples(200), deadline=None)
def test_relaxed_quotes_need_no_doubling(new: dict[str, str], old: dict[str, str]) -> None:
    def cells(values: dict[str, str]) -> dict[str, Cell]:
        return {name: Cell(f"'{text}'", text) for name, text in values.items()}

    for change in (
        Change("insert", "S", "T", {}, cells(new)),
        Change("update", "S", "T", cells(old), cells(new)),
        Change("delete", "S", "T", cells(old), {}),
    ):
        row = parse(rendered(change), relaxed_quotes=True)
        assert facts(row) == (change.op, "S", "T", change.before, change.after)


@given(changes, styles)
@settings(max_examples=examples(100), deadline=None)
def test_a_well_formed_statement_reads_the_same_with_relaxed_quotes(change: Change, style: Style) -> None:
    sql = rendered(change, style)
    assert parse(sql, relaxed_quotes=True) == parse(sql)


RELAXED = [
    ('insert into "S"."T"("A","B") values (\'the dogs\'\',\'2\');', None, {"A": "the dogs'", "B": "2"}),
    ("insert into \"S\".\"T\"(\"A\",\"B\") values ('it's, d'or','it''s');", None, {"A": "it's, d'or", "B": "it's"}),
    (f'insert into "S"."T"("A","B") values (\'d\'or\',{D});', None, {"A": "d'or", "B": D}),
    ('insert into "S"."T"("A","B") values (UNISTR(\'o\'\'k\'),\'d\'or\');', None, {"A": "UNISTR('o''k')", "B": "d'or"}),
    ('insert into "S"."T"("A","B") values (\'l\'a\',NULL)', None, {"A": "l'a", "B": None}),
    (
        'update "S"."T" set "A" = \'attivita\', del liquido\', "B" = \'field\', does it?\' where "B" = \'x\', y\';',
        {"B": "x', y"},
        {"A": "attivita', del liquido", "B": "field', does it?"},
    ),
    (
        'update "S"."T" a set a."A" = \'where it\'s\' where a."A" = \'this\' and that\' and a."B" IS NULL',
        {"A": "this' and that", "B": None},
        {"A": "where it's", "B": None},
    ),
    ('delete from "S"."T" where "A" = \'d\'or\' and ROWID = \'AAAR3sAAEAAAACXAAB\';', {"A": "d'or"}, None),
]


@pytest.mark.parametrize(("sql", "before", "after"), RELAXED, ids=[sql for sql, _, _ in RELAXED])
def test_a_relaxed_literal_ends_where_something_follows_a_value(sql: str, before: Any, after: Any) -> None:
    row = parse(sql, relaxed_quotes=True)
    assert (row.schema, row.table, row.before, row.after) == (*S, before, after)
    with pytest.raises(RedoSyntaxError):
        parse(sql)


@given(st.lists(texts, min_size=1, max_size=4))
def test_every_literal_is_its_text(found: list[str]) -> None:
    columns = ",".join(f'"C{place}"' for place in range(len(found)))
    row = parse(f'insert into "S"."T"({columns}) values ({",".join(map(quoted, found))});')
    assert row.after is not None and list(row.after.values()) == found
