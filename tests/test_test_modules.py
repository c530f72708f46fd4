"""Rule: what several tests need is in `tests/support`; no test module imports another one, and nobody a `conftest`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent


def imported(file: Path) -> Iterator[str]:
    """The last parts of the names of modules that a file imports."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.rpartition(".")[2]
            yield from (alias.name for alias in node.names)


def test_no_test_module_is_imported() -> None:
    modules = {file.stem for file in TESTS.rglob("test_*.py")} | {"conftest"}
    # The scenarios of the emulator run on a real server, too.
    files = [file for file in TESTS.rglob("*.py") if file.name != "test_live_server.py"]
    found = {(str(file.relative_to(TESTS)), name) for file in files for name in imported(file) if name in modules}
    assert found == set()
