"""Rule: the page that compares SQL Server capture with its documentation clause by clause names tests that exist, and
leaves no clause without a word on how it is shown."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from headrace import testing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "sqlserver.md"
NOT_SHOWN = "not shown by a test"
CHAPTERS = [
    "8.2.1", "8.2.1.1", "8.2.1.2", "8.2.2", "8.2.3", "8.2.4", "8.2.5", "8.2.5.1", "8.2.5.2", "8.2.6", "8.2.6.1",
    "8.2.7", "S", "F",
]  # fmt: skip
_TEST = re.compile(r"`((?:tests|src/headrace/testing)/[\w/]+\.py)::(\w+)`")


def cells(line):
    """The cells of a table's line; a bar behind a backslash belongs to the text."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))]


@cache
def names_in(file):
    """The names of the tests of a file, with those of the contracts that it runs; it is parsed and not imported."""
    nodes = list(ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "headrace.testing"]
    contracts = {testing.PLACES[alias.name] for node in imports for alias in node.names}
    return own.union(*(names_in(f"src/{place.replace('.', '/')}.py") for place in contracts))


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


def problems(row):
    """What is wrong with a clause's row."""
    clause, says, does, *rest = row
    if not says.endswith(".") or not does:
        yield f"{clause}: says nothing"
    shown = rest[0] if len(rest) == 1 else ""
    named = _TEST.findall(shown)
    if shown != NOT_SHOWN and (not named or "<br>".join(f"`{file}::{name}`" for file, name in named) != shown):
        yield f"{clause}: its last cell is neither tests nor '{NOT_SHOWN}'"
    for file, name in named:
        if not (ROOT / file).is_file() or name not in names_in(file):
            yield f"{clause}: there is no test {file}::{name}"


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
