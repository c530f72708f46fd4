"""What DDL statements say of column names, and what the columns of older structures are called after them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.apply.column_names import Step, after_steps, names_now, renamed_keys, renames_in_order, steps_of
from headrace.errors import SchemaError
from headrace.testing.change_history import table


def told(*steps: Step) -> list[str]:
    return [f"{step.name}>{step.to}" if step.kind == "rename" else f"{step.kind} {step.name}" for step in steps]


def steps(*texts: str) -> tuple[Step, ...]:
    found = []
    for text in texts:
        kind, _, name = text.partition(" ")
        old, _, new = text.partition(">")
        found.append(Step("rename", old, new) if new else Step(kind, name))  # type: ignore[arg-type]
    return tuple(found)


@pytest.mark.parametrize(
    ("connector", "text", "expected"),
    [
        ("mysql", "ALTER TABLE t RENAME COLUMN a TO b", ["a>b"]),
        ("mysql", "/* job 7 */ alter table `s`.`t` rename column a to `b c` -- done", ["a>b c"]),
        ("mysql", "ALTER TABLE t CHANGE COLUMN a b VARCHAR(20) NOT NULL DEFAULT 'x, y' AFTER z", ["a>b"]),
        ("mysql", "ALTER TABLE t CHANGE a b int, DROP c, ADD COLUMN d int, MODIFY e text", ["drop c", "a>b", "add d"]),
        ("mysql", "ALTER TABLE t CHANGE a a bigint", []),
        ("mysql", "ALTER ONLINE TABLE t RENAME COLUMN a TO b, ALGORITHM=INPLACE, LOCK=NONE", ["a>b"]),
        # All clauses speak of the names before the statement.
        ("mysql", "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO c", ["b>c", "a>b"]),
        ("mysql", "ALTER TABLE t ADD b int, RENAME COLUMN b TO c, DROP COLUMN c", ["drop c", "b>c", "add b"]),
        ("mysql", "ALTER TABLE t RENAME TO u, RENAME INDEX i TO j, DROP INDEX k, DROP PRIMARY KEY, ADD KEY l (a)", []),
        ("mysql", "ALTER TABLE t ADD (c decimal(3,1), d int)", ["add c", "add d"]),
        ("mariadb", "ALTER TABLE IF EXISTS t RENAME COLUMN IF EXISTS a TO b", ["a>b"]),
        # Under ANSI_QUOTES.
        ("mariadb", 'ALTER TABLE "t" RENAME COLUMN "a" TO "b c"', ["a>b c"]),
        ("mysql", 'ALTER TABLE "s"."t" CHANGE "a" "b" int DEFAULT "x", DROP "c"', ["drop c", "a>b"]),
        ("oracle", 'ALTER TABLE "HR"."EMP" RENAME COLUMN "a" TO b', ["a>B"]),
        ("oracle", "ALTER TABLE HR.EMP DROP (A, B)", ["drop A", "drop B"]),
        ("postgresql", 'ALTER TABLE ONLY public.t RENAME A TO "B"', ["a>B"]),
        ("postgresql", "ALTER TABLE t ALTER COLUMN a TYPE int, DROP COLUMN IF EXISTS b CASCADE", ["drop b"]),
        ("db2", "ALTER TABLE s.t ADD COLUMN z INT RENAME COLUMN a TO b DROP COLUMN q", ["drop Q", "A>B", "add Z"]),
        ("sqlserver", "ALTER TABLE [dbo].[t] DROP COLUMN [x y]", ["drop x y"]),
        (None, "alter table `t` rename column `to` to `column`", ["to>column"]),
        ("mysql", "ALTER TABLE t RENAME COLUMN a TO b; ALTER TABLE t RENAME COLUMN b TO c", ["a>b", "b>c"]),
        # What can't be read, or is about several tables, is no evidence.
        ("mysql", "ALTER TABLE t CHANGE a b int; ALTER TABLE u CHANGE c d int", []),
        ("mysql", "ALTER TABLE t RENAME COLUMN 'a", []),
        ("mysql", "RENAME TABLE a TO b", []),
        ("mysql", "CREATE TABLE t (a int, b int)", []),
        ("mysql", "", []),
    ],
)  # fmt: skip
def test_what_a_statement_does_to_names(connector: str | None, text: str, expected: list[str]) -> None:
    assert told(*steps_of(text, connector)) == expected


STOP = "stop"


@pytest.mark.parametrize(
    ("names", "done", "final", "expected"),
    [
        ("a", ["a>b"], "b", {"a": "b"}),
        ("b", ["a>b"], "b", {}),
        # The statement is older than the structure, or came twice.
        ("a", ["a>b"], "a", {}),
        ("a", ["a>b", "b>c"], "c", {"a": "c"}),
        ("b", ["a>b", "b>c"], "c", {"b": "c"}),
        ("a", ["a>b", "b>a"], "a", {}),
        ("a b", ["b>c", "a>b"], "b c", {"a": "b", "b": "c"}),
        ("a c", ["b>c", "a>b"], "b c", {"a": "b"}),
        ("a d", ["a>b", "c>d"], "b d", {"a": "b"}),
        ("b c", ["a>b", "c>d"], "b d", {"c": "d"}),
        ("a b", ["drop b", "a>b"], "b", {"a": "b", "b": None}),
        ("a", ["drop b", "a>b"], "b", {"a": "b"}),
        ("a", ["a>b", "add a"], "a b", {"a": "b"}),
        ("a b", ["a>b", "add a"], "a b", {}),
        ("a", ["a>b", "drop b"], "", {"a": None}),
        # A column that was dropped and added again is the same one by its name.
        ("a c", ["a>b", "drop c", "add c"], "b c", {"a": "b"}),
        ("b c", ["a>b", "drop c", "add c"], "b c", {}),
        # A target that kept an old column, and a column that is not captured.
        ("old a", ["a>b"], "b", {"a": "b"}),
        ("a b", ["a>b"], "b", {}),
        ("a", ["x>y", "a>b"], "b", {"a": "b"}),
        # Letter case counts only where names need it.
        ("A", ["a>b"], "B", {"A": "B"}),
        ("A a", ["a>b"], "A b", {"a": "b"}),
        # The same names mean other columns now.
        ("a b", ["a>t", "b>a", "t>b"], "a b", STOP),
        ("a b", ["drop b", "a>b", "add a"], "a b", STOP),
        # Nobody knows where the other column comes from.
        ("a", ["a>b"], "a b", STOP),
        # Nothing is known of the columns now: what fits is done.
        ("a z", ["a>b"], None, {"a": "b"}),
        ("b z", ["a>b"], None, {}),
        ("a b", ["a>t", "b>a", "t>b"], None, STOP),
    ],
)
def test_where_columns_are_now(names: str, done: list[str], final: str | None, expected: Any) -> None:
    last = None if final is None else final.split()
    if expected == STOP:
        with pytest.raises(SchemaError, match=r"can.t follow the renamed columns of table db\.t"):
            names_now(names.split(), steps(*done), last, of="db.t")
    else:
        assert names_now(names.split(), steps(*done), last, of="db.t") == expected


def test_a_swap_in_one_statement_is_not_guessed() -> None:
    swap = steps_of("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", "mysql")
    with pytest.raises(SchemaError, match="take a new snapshot"):
        names_now(["id", "a", "b"], swap, ["id", "a", "b"], of="db.t")


def test_names_stay_where_they_are_other_columns_of_a_table_that_is_read_again() -> None:
    text = "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a, RENAME COLUMN c TO d"
    swap = steps_of(text, "mysql", captured=True)
    assert names_now(["id", "a", "b", "c"], swap, ["id", "a", "b", "d"], of="db.t") == {"c": "d"}
    assert names_now(["id", "a", "b", "d"], swap, ["id", "a", "b", "d"], of="db.t") == {}
    assert names_now(["id", "a", "b"], swap, None, of="db.t") == {}
    again = steps_of("ALTER TABLE t DROP a, ADD a INT; ALTER TABLE t RENAME COLUMN a TO b, RENAME b TO a", "mysql")
    # One of the columns is not here yet.
    assert names_now(["id", "a"], swap, ["id", "b", "a"], of="db.t") == {}
    captured = [replace(step, captured=True) for step in again]
    assert names_now(["id", "a", "b"], captured, ["id", "a", "b"], of="db.t") == {}
    gone = steps_of("ALTER TABLE t DROP a; ALTER TABLE t RENAME COLUMN b TO a", "mysql", captured=True)
    assert names_now(["id", "a", "b"], gone, ["id", "a"], of="db.t") == {"a": None, "b": "a"}
    renamed = steps_of(
        "ALTER TABLE t RENAME a TO b, RENAME b TO a; ALTER TABLE t RENAME b TO c", "mysql", captured=True
    )
    assert names_now(["id", "a", "b"], renamed, ["id", "c", "a"], of="db.t") == {"a": "c", "b": "a"}


def test_a_column_that_is_shown_before_the_statement_that_adds_it_hides_no_rename() -> None:
    renamed = steps_of("ALTER TABLE t RENAME COLUMN a TO b", "mysql", captured=True)
    assert names_now(["id", "a"], renamed, ["id", "a", "b"], of="db.t") == {"a": "b"}
    assert names_now(["id", "b"], renamed, ["id", "a", "b"], of="db.t") == {}


def test_a_structure_follows_the_statements_after_it() -> None:
    found = after_steps(table(), steps("id>nr", "a>name", "drop b", "add c"))
    assert ([column.name for column in found.columns], found.key) == (["nr", "name"], ("nr",))


def test_names_that_a_given_structure_does_not_have_are_found_too() -> None:
    assert renamed_keys(["c"], steps("a>b", "b>c"), ["c"], of="t", given=True) == {"a": "c", "b": "c"}
    assert renamed_keys(["c"], steps("a>b", "b>c"), ["c"], of="t") == {}
    assert renamed_keys(["a", "b"], steps("drop b", "a>b"), ["b"], of="t") == {"a": "b", "b": "b/gone"}


def test_renames_are_done_so_that_no_name_is_taken() -> None:
    assert list(renames_in_order({"a": "b", "b": "c", "c": "d"})) == [("c", "d"), ("b", "c"), ("a", "b")]
