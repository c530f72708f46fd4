"""Rule: the page that compares Db2 capture with its documentation, clause by clause, names tests that exist."""

from __future__ import annotations

import re

from tests.support.clause_pages import ROOT, cells, problems

PAGE = ROOT / "docs" / "reference" / "db2.md"
CHAPTERS = ["E", "C", "S", "V"]
ROWS = [
    cells(line)
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not re.match(r"\| clause |\|-", line)
]


def test_clauses_are_numbered_without_a_hole_in_every_chapter() -> None:
    numbers: dict[str, list[int]] = {chapter: [] for chapter in CHAPTERS}
    for clause, *_ in ROWS:
        chapter, _, number = clause.partition(" / ")
        numbers[chapter].append(int(number))
    assert {chapter: found == list(range(1, len(found) + 1)) for chapter, found in numbers.items()} == dict.fromkeys(
        CHAPTERS, True
    )


def test_every_clause_says_what_is_done_and_which_test_shows_it() -> None:
    assert [problem for row in ROWS for problem in problems(row)] == []
