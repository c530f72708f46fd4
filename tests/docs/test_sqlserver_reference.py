"""Rule: the page that compares SQL Server capture with its documentation clause by clause names tests that exist, and
leaves no clause without a word on how it is shown."""

import re

import pytest
from tests.support.clause_pages import ROOT, cells, problems

PAGE = ROOT / "docs" / "reference" / "sqlserver.md"
CHAPTERS = [
    "8.2.1", "8.2.1.1", "8.2.1.2", "8.2.2", "8.2.3", "8.2.4", "8.2.5", "8.2.5.1", "8.2.5.2", "8.2.6", "8.2.6.1",
    "8.2.7", "S", "F",
]  # fmt: skip


ROWS = [
    cells(line)
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not re.match(r"\| clause |\|-", line)
]


def test_clauses_are_numbered_without_a_hole_in_every_chapter():
    numbers = {chapter: [] for chapter in CHAPTERS}
    for clause, *_ in ROWS:
        chapter, _, number = clause.partition(" / ")
        numbers[chapter].append(int(number))
    for chapter, found in numbers.items():
        assert found, f"no clause of {chapter}"
        assert found == list(range(1, len(found) + 1)), chapter


def test_every_clause_says_what_is_done_and_which_test_shows_it():
    assert [problem for row in ROWS for problem in problems(row)] == []


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
def test_a_row_that_lacks_something_is_found(row, wrong):
    assert bool(list(problems(cells(row)))) == wrong
