"""Rule: `make test` fails when one of its processes does, and shows what each printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.side_by_side import exit_code

OK, FAILED, STOPPED, WRONG_USE, NOTHING = 0, 1, 2, 4, 5
KILLED = -9


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((OK, OK), OK), ((OK, FAILED), FAILED), ((FAILED, OK), FAILED), ((NOTHING, OK), OK), ((OK, NOTHING), OK),
        ((NOTHING, FAILED), FAILED), ((NOTHING, NOTHING), NOTHING), ((FAILED, WRONG_USE), WRONG_USE),
        ((OK, KILLED), KILLED), ((NOTHING, STOPPED), STOPPED),
    ],
)  # fmt: skip
def test_no_failure_is_lost_and_a_process_without_a_chosen_test_is_none(codes: tuple[int, int], expected: int) -> None:
    assert exit_code(codes) == expected


def test_arguments_reach_all_processes_and_all_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "test_both.py"
    spark = "@pytest.mark.jvm\ndef test_on_{}(): raise AssertionError\n"
    of_sinks = f"@pytest.mark.sinks\n{spark.format('spark_sinks')}"
    tests = ("import pytest\n", "def test_plain(): pass\n", spark.format("spark"), spark.format("kafka"), of_sinks)
    file.write_text("\n".join(tests))
    words = ("not soak", str(file), "--rootdir", str(tmp_path), "-c", "/dev/null", "-k", "plain or spark")
    done = subprocess.run(
        [sys.executable, "-m", "tests.side_by_side", *words],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == FAILED, done.stdout + done.stderr
    for printed in (
        "1 passed, 3 deselected",
        "test_on_spark ",
        "test_on_spark_sinks ",
        "1 failed, 3 deselected",
        "Without a JVM: all passed.",
    ):
        assert printed in done.stdout
