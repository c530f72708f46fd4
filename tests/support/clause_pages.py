"""Pages that compare a source with its documentation, clause by clause, and those that name the tests."""

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

from headrace import testing

ROOT = Path(__file__).parents[2]


NOT_SHOWN = "not shown by a test"


_TEST = re.compile(r"`((?:tests|src/headrace/testing)/[\w/]+\.py)::(\w+)`")


def cells(line):
    """The cells of a table's line; a bar behind a backslash belongs to the text."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))]


def clauses(source, folder):
    """The rows of a source's page of clauses: for readers in `reference`, with names of tests in `traceability`."""
    lines = (ROOT / "docs" / folder / f"{source}.md").read_text(encoding="utf-8").splitlines()
    found, is_clauses = [], False
    for before, line in pairwise(["", *lines]):
        if not before.startswith("|"):
            # Other tables of a page are no clauses.
            is_clauses = line.startswith("| clause ")
        elif is_clauses and line.startswith("|") and not line.startswith("|-"):
            found.append(cells(line))
    return found


@cache
def names_in(file):
    """The names of the tests of a file, with those of the contracts that it runs; it is parsed and not imported."""
    nodes = list(ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    bases = {
        base.id for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases if isinstance(base, ast.Name)
    }
    imports = [(node.module, alias.name) for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    contracts = {testing.PLACES[name] for module, name in imports if module == "headrace.testing"}
    # A contract may itself build on another.
    contracts |= {module for module, name in imports if module.startswith("headrace.testing.") and name in bases}
    return own.union(*(names_in(f"src/{place.replace('.', '/')}.py") for place in contracts))


def problems(row):
    """What is wrong with a clause: its number, what it says, what is done, and what shows it."""
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
