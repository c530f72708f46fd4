"""Rule: the pages that compare capture with its documentation, clause by clause, say of every clause what is
done, and have a page beside them that names the tests that show it, or says that none does."""

from __future__ import annotations

import pytest
from tests.support.clause_pages import cells, clauses, problems

SOURCES = ("db2", "dts", "mysql", "oracle", "postgresql", "qlik", "sqlserver")


@pytest.mark.parametrize("source", SOURCES)
def test_the_page_of_tests_has_the_same_clauses_in_the_same_order(source: str) -> None:
    assert [row[0] for row in clauses(source, "traceability")] == [row[0] for row in clauses(source, "reference")]


@pytest.mark.parametrize("source", SOURCES)
def test_every_clause_says_what_is_done_and_which_test_shows_it(source: str) -> None:
    rows = zip(clauses(source, "reference"), clauses(source, "traceability"), strict=True)
    assert [problem for said, (_, *shown) in rows for problem in problems([*said, *shown])] == []


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("| F / 1 | It is. | yes | `tests/docs/test_reference.py::test_the_options_page_equals_the_code` |", False),
        ("| F / 1 | It is. | yes | not shown by a test |", False),
        ("| F / 1 | It is. | yes |  |", True),
        ("| F / 1 | It is. | yes |", True),
        ("| F / 1 | It is. |  | not shown by a test |", True),
        ("| F / 1 | It is. | yes | `tests/docs/test_reference.py::test_that_nobody_wrote` |", True),
        ("| F / 1 | It is. | yes | `tests/docs/test_nothing.py::test_the_options_page_equals_the_code` |", True),
    ],
)
def test_a_row_that_lacks_something_is_found(row: str, wrong: bool) -> None:
    assert bool(list(problems(cells(row)))) == wrong
