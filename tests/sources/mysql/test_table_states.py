"""Rule: a change of structure is harmless where the statements and both structures prove it, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mysql_tables import table

from headrace.sources.mysql.alterations import Unproven, actions_of
from headrace.sources.mysql.altered_tables import altered_tables
from headrace.sources.mysql.statements import Named, read_statement
from headrace.sources.mysql.table_states import TableStatement, states_of
from headrace.sources.mysql.types import keeps_values


def statement(text, position="1"):
    found = read_statement(text)

    def whole(named):
        return Named(named.database or "d", named.name)

    tables = tuple(map(whole, found.tables))
    renamed = tuple((whole(old), whole(new)) for old, new in found.renamed)
    return TableStatement(position, type(found)(found.meaning, tables, renamed, found.xid, found.words), text)


def followed(before, texts, after, **options):
    texts = [texts] if isinstance(texts, str) else texts
    return states_of("d.t", before, [statement(text) for text in texts], after, **options)


A = table("a int", "b varchar(10)")


def plus(*columns):
    """The same table with more columns at its end."""
    return table("a int", "b varchar(10)", *columns)


@pytest.mark.parametrize(
    ("before", "texts", "after"),
    [
        # Indexes, comments, defaults, options.
        (A, "ALTER TABLE t ADD INDEX (a), ADD UNIQUE KEY u (b(3)), DROP INDEX x, RENAME INDEX y TO z", A),
        (A, "CREATE UNIQUE INDEX i ON t (a)", A),
        (A, "DROP INDEX i ON t", A),
        (A, "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0), ADD FOREIGN KEY (a) REFERENCES o (id)", A),
        (A, "ALTER TABLE t DROP FOREIGN KEY f, DROP CONSTRAINT c, DROP KEY k", A),
        (A, "ALTER TABLE t COMMENT 'IGNORE', ALTER a SET DEFAULT 5, ALTER COLUMN b DROP DEFAULT", A),
        (A, "ALTER TABLE t AUTO_INCREMENT = 100 ROW_FORMAT=DYNAMIC, DEFAULT CHARACTER SET = latin1 COLLATE x", A),
        (A, "ALTER TABLE t ENGINE=InnoDB, ALGORITHM=INPLACE, LOCK=NONE", A),
        (A, "ALTER TABLE t FORCE", A),
        (A, "ALTER ONLINE TABLE IF EXISTS d.t WAIT 5 ORDER BY a", A),
        (A, "ALTER TABLE t ALTER INDEX i INVISIBLE, ALTER COLUMN a SET INVISIBLE", A),
        (A, "SET STATEMENT max_statement_time=1 FOR ALTER TABLE t FORCE", A),
        (A, "CREATE TABLE IF NOT EXISTS t (id INT)", A),
        # Partitions that keep their rows.
        (A, "ALTER TABLE t ADD PARTITION (PARTITION p VALUES LESS THAN (5))", A),
        (A, "ALTER TABLE t REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (5))", A),
        (A, "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 4", A),
        (A, "ALTER TABLE t REMOVE PARTITIONING", A),
        # A rename or a drop alone.
        (A, "ALTER TABLE t RENAME COLUMN a TO c", table("c int", "b varchar(10)")),
        (A, "ALTER TABLE t CHANGE a c INT", table("c int", "b varchar(10)")),
        (A, "ALTER TABLE t DROP a, DROP COLUMN IF EXISTS x", table("b varchar(10)")),
        (A, ["ALTER TABLE t RENAME COLUMN a TO c", "ALTER TABLE t RENAME COLUMN c TO a"], A),
        # A column without values.
        (A, "ALTER TABLE t ADD c INT", plus("c int")),
        (A, "ALTER TABLE t ADD COLUMN `c` INT(10) UNSIGNED NULL DEFAULT NULL COMMENT 'x' AFTER a",
            table("a int", "c int unsigned", "b varchar(10)")),
        (A, "ALTER TABLE t ADD (c INT, d TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, INDEX (c))",
            plus("c int", "d text")),
        (A, "ALTER TABLE t ADD c TIMESTAMP NULL", plus("c timestamp")),
        (A, "ALTER TABLE t ADD c DATETIME ON UPDATE CURRENT_TIMESTAMP", plus("c datetime")),
        (A, "ALTER TABLE t ADD c INT REFERENCES o (id)", plus("c int")),
        (A, "ALTER TABLE t ADD c INT NOT NULL DEFAULT 5, DROP a", None),
        (A, ["ALTER TABLE t ADD c INT NOT NULL DEFAULT 5", "ALTER TABLE t DROP c"], A),
        # Options leave the new column out.
        (A, "ALTER TABLE t ADD secret INT NOT NULL DEFAULT 5", A),
        # What keeps every value.
        (A, "ALTER TABLE t MODIFY a INT FIRST", table("a int", "b varchar(10)")),
        (A, "ALTER TABLE t MODIFY a BIGINT, MODIFY b VARCHAR(20)", table("a bigint", "b varchar(20)")),
        (A, "ALTER TABLE t MODIFY b TEXT", table("a int", "b text")),
        (table("a int !"), "ALTER TABLE t MODIFY a INT", table("a int")),
        (table("a int unsigned"), "ALTER TABLE t CHANGE a a BIGINT UNSIGNED", table("a bigint unsigned")),
        (table("a decimal(8,2)"), "ALTER TABLE t MODIFY a DECIMAL(12,4)", table("a decimal(12,4)")),
        (table("a enum('x','y')"), "ALTER TABLE t MODIFY a ENUM('x','y','z')", table("a enum('x','y','z')")),
        (table("a set('x')"), "ALTER TABLE t MODIFY a SET('x','y')", table("a set('x','y')")),
        (table("a datetime"), "ALTER TABLE t MODIFY a DATETIME(6)", table("a datetime(6)")),
        (table("a varchar(5) %utf8mb3"), "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", table("a varchar(5)")),
        (table("a int !"), "ALTER TABLE t ADD PRIMARY KEY (id, a)", table("a int !", key=("id", "a"))),
        (A, "ALTER TABLE t DROP PRIMARY KEY", table("a int", "b varchar(10)", key=())),
    ],
)  # fmt: skip
def test_what_is_proven_harmless_leads_to_nothing(before, texts, after):
    if after is None:
        # A column that came with values and one that went.
        after = table("b varchar(10)", "c int ! =5")
        assert followed(before, texts, after).rewrite.constants == {"c": "5"}
    else:
        assert followed(before, texts, after).rewrite is None


@pytest.mark.parametrize(
    ("before", "texts", "after", "reason"),
    [
        (A, "ALTER IGNORE TABLE t ADD UNIQUE (a)", A, "IGNORE"),
        (A, "ALTER IGNORE TABLE t COMMENT 'x'", A, "IGNORE"),
        (A, "ALTER TABLE t ADD c CHAR(36) NOT NULL DEFAULT (UUID())", plus("c char(36) !"), "'c' was added"),
        (A, "ALTER TABLE t ADD c INT AS (id * 2) STORED", plus("c int @"), "'c' was added"),
        (A, "ALTER TABLE t ADD c INT GENERATED ALWAYS AS (id * 2)", plus("c int @"), "'c' was added"),
        (A, "ALTER TABLE t ADD c INT NOT NULL", plus("c int !"), "'c' was added"),
        (A, "ALTER TABLE t ADD c TIMESTAMP", plus("c timestamp ! =now()"), "'c' was added"),
        (A, "ALTER TABLE t ADD c DATETIME DEFAULT NOW()", plus("c datetime"), "'c' was added"),
        (A, "ALTER TABLE t ADD c INT AUTO_INCREMENT UNIQUE", plus("c int ! +"), "'c' was added"),
        (A, "ALTER TABLE t ADD c SERIAL", plus("c bigint unsigned ! +"), "ADD c"),
        (A, ["ALTER TABLE t ADD c INT DEFAULT 5", "ALTER TABLE t ALTER c SET DEFAULT 6"], plus("c int =6"), "'c'"),
        (A, ["ALTER TABLE t ADD c INT", "ALTER TABLE t MODIFY c INT NOT NULL"], plus("c int !"), "'c'"),
        # Other values, or none.
        (A, "ALTER TABLE t MODIFY b VARCHAR(4) NOT NULL", table("a int", "b varchar(4) !"), "'b' was declared again"),
        (A, "ALTER TABLE t MODIFY a INT NOT NULL", table("a int !", "b varchar(10)"), "'a' was declared again"),
        (A, "ALTER TABLE t MODIFY a SMALLINT", table("a smallint", "b varchar(10)"), "'a'"),
        (A, "ALTER TABLE t MODIFY a INT UNSIGNED", table("a int unsigned", "b varchar(10)"), "'a'"),
        (A, "ALTER TABLE t MODIFY b VARBINARY(10)", table("a int", "b varbinary(10)"), "'b'"),
        (A, "ALTER TABLE t MODIFY b CHAR(10)", table("a int", "b char(10)"), "'b'"),
        (A, "ALTER TABLE t MODIFY b VARCHAR(10) CHARACTER SET latin1", table("a int", "b varchar(10) %latin1"), "'b'"),
        (A, "ALTER TABLE t CONVERT TO CHARACTER SET latin1", table("a int", "b varchar(10) %latin1"), "'b' got"),
        (A, "ALTER TABLE t MODIFY a INT AS (id) STORED", table("a int @", "b varchar(10)"), "'a' is computed"),
        (table("a int @"), "ALTER TABLE t MODIFY a INT AS (id + 1)", table("a int @"), "'a' is computed"),
        (table("a int @"), "ALTER TABLE t MODIFY a INT", table("a int"), "'a'"),
        (A, "ALTER TABLE t MODIFY a INT AUTO_INCREMENT", table("a int +", "b varchar(10)"), "'a'"),
        (table("a decimal(10,4)"), "ALTER TABLE t MODIFY a DECIMAL(12,2)", table("a decimal(12,2)"), "'a'"),
        (table("a decimal(10,2)"), "ALTER TABLE t MODIFY a DECIMAL(11,4)", table("a decimal(11,4)"), "'a'"),
        (table("a datetime(6)"), "ALTER TABLE t MODIFY a DATETIME(3)", table("a datetime(3)"), "'a'"),
        (table("a enum('x','y')"), "ALTER TABLE t MODIFY a ENUM('y','x')", table("a enum('y','x')"), "'a'"),
        (table("a enum('x','y')"), "ALTER TABLE t MODIFY a ENUM('x')", table("a enum('x')"), "'a'"),
        (table("a float"), "ALTER TABLE t MODIFY a DOUBLE", table("a double"), "'a'"),
        (A, "ALTER TABLE t ENGINE=MyISAM", A, "engine myisam"),
        (A, "ALTER TABLE t ADD PRIMARY KEY (a)", table("a int !", "b varchar(10)", key=("a",)), "'a' may have"),
        # Names that belong to other columns.
        (A, "ALTER TABLE t DROP COLUMN a, ADD COLUMN a INT", table("b varchar(10)", "a int"), "'a' is another"),
        (A, ["ALTER TABLE t DROP a", "ALTER TABLE t ADD a INT"], table("b varchar(10)", "a int"), "'a' is another"),
        (A, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", table("b int", "a varchar(10)"), "is another"),
        (A, "ALTER TABLE t RENAME COLUMN a TO c, ADD COLUMN a INT", table("c int", "b varchar(10)", "a int"), "'a' is"),
        (A, "ALTER TABLE t DROP b, RENAME COLUMN a TO b", table("b int"), "'b' is another one"),
        (A, "ALTER TABLE t RENAME COLUMN secret TO c", plus("c int"), "'c' was not captured"),
        # Partitions, versions, and what is not understood.
        (A, "ALTER TABLE t DROP PARTITION p", A, "DROP PARTITION p"),
        (A, "ALTER TABLE t TRUNCATE PARTITION p", A, "TRUNCATE PARTITION"),
        (A, "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", A, "EXCHANGE PARTITION"),
        (A, "ALTER TABLE u EXCHANGE PARTITION p WITH TABLE t", A, "exchanged"),
        (A, "ALTER TABLE t CONVERT PARTITION p TO TABLE u", A, "CONVERT PARTITION"),
        (A, "ALTER TABLE t IMPORT TABLESPACE", A, "IMPORT TABLESPACE"),
        (A, "ALTER TABLE t ADD SYSTEM VERSIONING", A, "ADD SYSTEM VERSIONING"),
        (A, "ALTER TABLE t DROP SYSTEM VERSIONING", A, "DROP SYSTEM VERSIONING"),
        (A, "ALTER TABLE t FROBNICATE a", A, "FROBNICATE"),
        (A, "ALTER TABLE t ADD c INT FROBNICATED", plus("c int"), "ADD c INT"),
        (A, "ALTER TABLE t ADD c INT", plus("d int"), "do not lead to the columns"),
        # Other tables.
        (A, "RENAME TABLE t TO _t_del, _t_gho TO t", plus("c int"), "'d._t_gho' came in"),
        (A, "RENAME TABLE t TO o, n TO t", A, "'d.n' came in its place"),
        (A, "CREATE OR REPLACE TABLE t (id INT)", A, "made or dropped"),
        (A, ["DROP TABLE t", "CREATE TABLE t (id INT)"], A, "made or dropped"),
        (A, "DROP DATABASE d", A, "made or dropped"),
        (A, ["RENAME TABLE t TO o", "CREATE TABLE t LIKE o"], A, "got another name"),
        (None, "ALTER TABLE t MODIFY a BIGINT", table("a bigint", "b varchar(10)"), "is not known"),
    ],
)  # fmt: skip
def test_what_is_not_proven_is_said(before, texts, after, reason):
    rewrite = followed(before, texts, after).rewrite
    assert rewrite is not None and rewrite.path == "d.t"
    assert reason in rewrite.reason
    assert rewrite.constants == {}


def test_where_old_rows_may_have_the_value_under_another_name_or_the_options_change_it_nothing_is_proven_of_it():
    add = "ALTER TABLE t ADD c INT NOT NULL DEFAULT 5"
    renamed = followed(A, [add, "ALTER TABLE t RENAME COLUMN c TO d"], plus("d int ! =5")).rewrite
    masked = followed(A, add, table("a int", "b varchar(10)", "c int ! =5", protected=("c",))).rewrite
    assert (renamed.constants, masked.constants) == ({}, {})


@pytest.mark.parametrize(
    ("text", "column", "constants"),
    [
        ("ADD c INT NOT NULL DEFAULT 5", "c int ! =5", {"c": "5"}),
        ("ADD c INT DEFAULT -5", "c int =-5", {"c": "-5"}),
        ("ADD c BOOLEAN DEFAULT TRUE", "c tinyint(1) =1", {"c": "1"}),
        ("ADD c VARCHAR(9) DEFAULT 'it''s'", "c varchar(9) =it's", {"c": "it's"}),
        ("ADD c DECIMAL(8,2) DEFAULT 1.5", "c decimal(8,2) =1.50", {"c": "1.50"}),
        ("ADD c ENUM('x','y') DEFAULT 'y'", "c enum('x','y') =y", {"c": "y"}),
        ("ADD c DATETIME DEFAULT '2024-01-01'", "c datetime =2024-01-01T00:00:00", {}),
        ("ADD c INT DEFAULT 5, DROP PARTITION p", "c int =5", {}),
        ("ADD c INT DEFAULT 5, ADD d INT AS (id)", "c int =5", {}),
    ],
)
def test_a_literal_default_is_the_value_of_all_rows_from_before(text, column, constants):
    more = ["d int @"] if "ADD d" in text else []
    rewrite = followed(A, f"ALTER TABLE t {text}", plus(column, *more)).rewrite
    assert rewrite.constants == constants


@pytest.mark.parametrize(
    ("before", "after", "is_harmless"),
    [("h1", "h1", True), ("h1", "h2", False), ("", "", False), ("h1", "", False)],
)
@pytest.mark.parametrize(
    "text",
    [
        "RENAME TABLE t TO _t_del, _t_gho TO t",
        "RENAME TABLE `d`.`t` TO `d`.`_t_old`, `d`.`_t_new` TO `d`.`t`",
        "RENAME TABLE t TO _t_20240131_del, _t_gho TO t",
    ],
)
def test_a_tools_swap_is_harmless_where_columns_and_unique_keys_are_the_same(text, before, after, is_harmless):
    seen = followed(table("a int", structure=before), text, table("a int", structure=after))
    assert (seen.rewrite is None) is is_harmless


def test_columns_between_statements_are_those_of_both_catalogs_and_of_the_statements():
    texts = [
        "ALTER TABLE t RENAME COLUMN u TO v",
        "ALTER TABLE t ADD n BIGINT NOT NULL FIRST, ADD s VARCHAR(5) AFTER id",
        "ALTER TABLE t DROP n, RENAME COLUMN v TO w",
    ]
    before, after = table("u uuid", "a int"), table("s varchar(5) %latin1", "w uuid", "a int")
    first, second, last = followed(before, texts, after).states
    assert [(c.name, n.kind) for c, n in zip(first.schema.columns, first.natives, strict=True)] == [
        ("id", "int"), ("v", "uuid"), ("a", "int"),
    ]  # fmt: skip
    assert [(c.name, n.kind, n.charset) for c, n in zip(second.schema.columns, second.natives, strict=True)] == [
        ("n", "bigint", None), ("id", "int", None), ("s", "varchar", "latin1"), ("v", "uuid", None),
        ("a", "int", None),
    ]  # fmt: skip
    assert not second.schema.columns[0].nullable
    assert second.schema.key == ("id",)
    assert last is after


@pytest.mark.parametrize(
    ("texts", "unknown"),
    [
        (["ALTER TABLE t FROBNICATE a", "ALTER TABLE t DROP b"], [0]),
        (["ALTER TABLE t ADD s VARCHAR(5)", "ALTER TABLE t DROP s"], [0]),
        (["RENAME TABLE t TO o, n TO t", "ALTER TABLE t DROP b"], [0]),
        (["ALTER TABLE t DROP PRIMARY KEY", "ALTER TABLE t ADD PRIMARY KEY (a)"], [0]),
        (["ALTER TABLE t FROBNICATE a", "ALTER TABLE t COMMENT 'x'"], []),
    ],
)
def test_what_nothing_explains_between_statements_is_not_known(texts, unknown):
    after = A if "COMMENT" in texts[1] or "DROP s" in texts[1] else table("a int !", key=("a",))
    states = followed(A, texts, after).states
    assert [number for number, state in enumerate(states) if state is None] == unknown


def test_nothing_is_known_behind_statements_that_the_catalog_may_be_ahead_of():
    seen = followed(A, ["ALTER TABLE t ADD s VARCHAR(5)", "ALTER TABLE t ADD n INT"], None)
    assert seen.states == (None, None)
    assert seen.rewrite is None
    (state,) = followed(A, "ALTER TABLE t MODIFY a BIGINT", None).states
    assert [native.kind for native in state.natives] == ["int", "bigint", "varchar"]


def test_texts_have_the_character_set_that_a_later_statement_shows_to_be_the_tables():
    texts = ["ALTER TABLE t ADD s VARCHAR(5)", "ALTER TABLE t MODIFY s VARCHAR(9)"]
    after = table("a int", "s varchar(9) %latin1")
    first, _ = followed(table("a int"), texts, after).states
    assert [(n.kind, n.length, n.charset) for n in first.natives[2:]] == [("varchar", 5, "latin1")]
    for other in ("CHARACTER SET utf8mb4", "COLLATE utf8mb4_bin"):
        assert followed(table("a int"), [texts[0], f"{texts[1]} {other}"], after).states[0] is None


def test_numbers_have_no_character_set_that_a_statement_could_change():
    texts = ["ALTER TABLE t ADD n BIGINT", "ALTER TABLE t CONVERT TO CHARACTER SET latin1", "ALTER TABLE t DROP n"]
    state = followed(table("a int"), texts, table("a int")).states[1]
    assert [(c.name, n.kind) for c, n in zip(state.schema.columns, state.natives, strict=True)] == [
        ("id", "int"), ("a", "int"), ("n", "bigint"),
    ]  # fmt: skip
    assert followed(A, [*texts, "ALTER TABLE t MODIFY b CHAR(3)"], table("a int", "b char(3)")).states[1] is None


def test_a_column_that_gets_the_name_of_one_that_went_away_before_is_said():
    without = table("b varchar(10)")
    gone = followed(A, "ALTER TABLE t DROP a", without)
    assert (gone.rewrite, gone.dropped) == (None, ("a",))
    again = followed(without, "ALTER TABLE t ADD A INT", table("b varchar(10)", "A int"), dropped=gone.dropped)
    assert "'A' is another one than before" in again.rewrite.reason and again.dropped == ()
    assert followed(without, "ALTER TABLE t FORCE", without, dropped=("a",)).dropped == ("a",)


TYPES = (
    *("tinyint", "int", "bigint", "int unsigned", "decimal(5,2)", "decimal(9,4)", "varchar(3)", "varchar(9)", "text"),
    *("char(3)", "enum('a')", "enum('a','b')", "datetime", "datetime(3)", "varbinary(3)", "blob", "year", "float"),
)


@given(st.sampled_from(TYPES), st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_what_keeps_values_is_an_order(a, b, c):
    one, two, three = (table(f"v {kind}").natives[1] for kind in (a, b, c))
    assert keeps_values(one, one)
    assert not (keeps_values(one, two) and keeps_values(two, one)) or one == two
    assert not (keeps_values(one, two) and keeps_values(two, three)) or keeps_values(one, three)


@given(
    st.text("`'\"/*!-# ();,.aADD\n\\5", max_size=40), st.sampled_from(["", "ADD ", "MODIFY a ", "DROP ", "ADD c INT "])
)
def test_any_text_is_read_and_a_clause_that_is_not_understood_is_not_proven(text, clause):
    actions = actions_of(f"ALTER TABLE t {clause}{text}")
    assert actions is not None
    is_unproven = any(isinstance(action, Unproven) for action in actions)
    named = read_statement("ALTER TABLE d.t FORCE")
    read = states_of("d.t", A, [TableStatement("1", named, f"ALTER TABLE t {clause}{text}")], A)
    assert read.rewrite is not None or not is_unproven


def test_what_the_catalog_shows_stays_unsure_as_long_as_the_log_has_statements_behind_the_window() -> None:
    def unsure(*later):
        return altered_tables({"d.t": A}, {"d.t"}, {"d.t": A}, [], [statement(text) for text in later], "0").unsure

    assert unsure("ALTER TABLE t RENAME COLUMN x TO a") == ("d.t",)
    assert unsure() == ()
