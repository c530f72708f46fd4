"""Rule: the page that compares MySQL and MariaDB capture with its documentation names tests that exist, and leaves
no clause without a word on how it is shown."""

import re
from pathlib import Path

from tests.support.clause_pages import cells, problems

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mysql.md"
CHAPTERS = [str(number) for number in range(1, 5)]
ROWS = [
    cells(line)
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not re.match(r"\| clause |\|-", line)
]


def test_clauses_are_numbered_without_a_hole_in_every_chapter():
    for chapter in CHAPTERS:
        found = [int(row[0].partition(" / ")[2]) for row in ROWS if row[0].partition(" / ")[0] == chapter]
        assert found == list(range(1, len(found) + 1)) != [], chapter


def test_every_clause_says_what_is_done_and_which_test_shows_it():
    assert [problem for row in ROWS for problem in problems(row)] == []
