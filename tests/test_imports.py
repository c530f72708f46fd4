"""Rule: what is imported to plan a batch loads neither numba nor pandas, and runs no kernel.

Spark starts several Python processes for a query before its first batch, and each of them imports the source and the
format.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.changes.images import constant

PROGRAM = """
import importlib, pkgutil, sys
import headrace.formats, headrace.pipeline, headrace.sources
for room in (headrace.formats, headrace.sources, headrace.pipeline):
    for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        importlib.import_module(module.name)
print(sorted({"numba", "pandas"} & set(sys.modules)))
"""


def test_formats_sources_and_pipelines_are_imported_without_numba_and_pandas() -> None:
    # A module that moved warns.
    command = [sys.executable, "-W", "ignore::FutureWarning", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_constant_column_is_what_arrow_makes_of_its_texts() -> None:
    for texts in (["c", None, "é"], [], [None], ["", "x"]):
        assert constant(texts).equals(pa.array(texts, pa.string()))
        constant(texts).validate(full=True)


@pytest.mark.parametrize("bench", sorted(Path(__file__).parents[1].glob("bench/*.py")), ids=lambda file: file.stem)
def test_what_a_bench_imports_of_headrace_is_there(bench: Path) -> None:
    imported = [node for node in ast.walk(ast.parse(bench.read_text())) if isinstance(node, ast.ImportFrom)]
    for node in imported:
        if (node.module or "").split(".")[0] in ("headrace", "headrace_emulators"):
            module = importlib.import_module(str(node.module))
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []
