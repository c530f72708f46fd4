"""Law: a column has any name that a source can give it, or its table is refused before anything of a target is made.

Which names a target takes is decided from the names alone; that what is taken then works is shown by tables whose
columns have all of them, in every way to write.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sinks.column_names import ALL, NAMES, RULES, TAKEN_BY

from headrace.changes.typed import quote, unfit_in_sql
from headrace.errors import SchemaError
from headrace.sinks.column_rules import ColumnRules, spark_folded

ODD = st.text("aAsSkKiIß\u017f\u0130\u0131\u212a_$ {}`\"'.\\%\0\n\U0001f600é", max_size=70)
ANY = st.one_of(st.sampled_from(NAMES), ODD, st.text(max_size=70))


@pytest.mark.parametrize(("name", "targets"), TAKEN_BY, ids=[ascii(name)[:40] for name in NAMES])
def test_each_target_takes_a_name_or_says_why_not(name: str, targets: tuple[str, ...]) -> None:
    assert tuple(target for target, rules in RULES.items() if not rules.problem(name)) == targets


@pytest.mark.parametrize(
    ("one", "other", "targets"),
    [
        ("a", "A", ()),
        ("s", "\u017f", ()),
        ("k", "\u212a", ()),
        ("i", "\u0130", ()),
        ("i", "\u0131", ()),
        ("\u03c3", "\u03c2", ()),
        ("a", "ä", ALL),
        ("ss", "ß", ALL),
        ("a", "a\u0301", ALL),
    ],
)
def test_two_names_that_spark_or_the_target_takes_for_one_are_refused(
    one: str, other: str, targets: tuple[str, ...]
) -> None:
    def takes(rules: ColumnRules) -> bool:
        try:
            rules.refuse("t", (one, other))
        except SchemaError as error:
            assert "differ only in case" in str(error)
            return False
        return True

    assert tuple(target for target, rules in RULES.items() if takes(rules)) == targets


@given(names=st.lists(ANY, max_size=5, unique=True), target=st.sampled_from(ALL))
def test_names_that_are_taken_are_columns_of_their_own(names: list[str], target: str) -> None:
    rules = RULES[target]
    try:
        rules.refuse("t", names, ["_headrace_position"])
    except SchemaError as error:
        assert error.remedy
        return
    for folded in (spark_folded, rules.folded):
        assert len({folded(name) for name in (*names, "_headrace_position")}) == len(names) + 1
    assert not any(rules.folded(name) in rules.taken or rules.problem(name) for name in names)


SPARK_REPLACES = re.compile(r"\$\{(?:(\w+?):)?(\S+?)\}", re.ASCII)
"""What Spark's parser looks for before it parses."""


@given(name=ANY)
def test_no_name_in_spark_sql_is_replaced_by_a_setting(name: str) -> None:
    try:
        quoted = quote(name)
    except SchemaError:
        assert unfit_in_sql(name)
    else:
        assert SPARK_REPLACES.search(quoted) is None
        assert "`" not in quoted[1:-1].replace("``", "")
