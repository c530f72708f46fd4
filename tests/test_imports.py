"""Rule: what is imported to plan a batch loads neither numba nor pandas, and runs no kernel.

Spark starts several Python processes for a query before its first batch, and each of them imports the source and the
format.
"""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa

from headrace.changes.constant import constant

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
