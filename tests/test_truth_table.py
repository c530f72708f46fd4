"""Rule: the table of SQL Server scenarios says what was shown on which server, and hides no failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.truth_table import AREAS, TruthTable, table

ROOT = Path(__file__).parents[1]
SOURCE, HEALTH = (next(a.file for a in AREAS if a.title == title) for title in ("snapshot and stream", "health"))


def report(nodeid: str, outcome: str = "passed", when: str = "call", live: bool = False) -> pytest.TestReport:
    keywords = {"live": 1} if live else {}
    return pytest.TestReport(nodeid, ("", 0, ""), keywords, outcome, None, when)


def printed(*reports: pytest.TestReport) -> list[str]:
    plugin = TruthTable()
    for one in reports:
        plugin.pytest_runtest_logreport(one)
    return list(table(list(plugin._scenarios.values())))


def test_every_area_is_a_file_of_tests() -> None:
    assert [area.file for area in AREAS if not (ROOT / area.file).is_file()] == []


def test_scenarios_stand_in_words_with_their_variants_and_servers() -> None:
    lines = printed(
        report(f"{SOURCE}::test_rows_come_once[1]", when="setup"),
        report(f"{SOURCE}::test_rows_come_once[1]"),
        report(f"{SOURCE}::test_rows_come_once[2-a[b]]"),
        report(f"{SOURCE}::test_it_ends", live=True),
        report(f"{SOURCE}::test_it_ends"),
        report(f"{SOURCE}::test_of_another_day", "skipped", "setup", live=True),
        report("tests/changes/test_row.py::test_something_else"),
    )
    assert [" ".join(line.split()) for line in lines] == [
        "scenario emulator live server",
        "snapshot and stream",
        "rows come once yes, 2 not run",
        "it ends yes yes",
        "of another day not run not run",
        "emulator: 2 scenarios passed, 0 failed, 1 not run",
        "live server: 1 scenarios passed, 0 failed, 2 not run",
    ]


def test_failures_have_a_line_of_their_own_even_where_scenarios_stand_together() -> None:
    lines = printed(
        report(f"{HEALTH}::test_well"),
        report(f"{HEALTH}::test_ill[1]"),
        report(f"{HEALTH}::test_ill[2]", "failed"),
        report(f"{HEALTH}::test_without_a_server", "failed", "setup"),
        report(f"{HEALTH}::test_left_behind"),
        report(f"{HEALTH}::test_left_behind", "failed", "teardown"),
    )
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "health: 4 scenarios NO, 3 of 5 failed not run",
        "ill NO, 1 of 2 failed not run",
        "without a server NO, failed not run",
        "left behind NO, failed not run",
        "emulator: 1 scenarios passed, 3 failed, 0 not run",
        "live server: 0 scenarios passed, 0 failed, 4 not run",
    ]


def test_nothing_is_printed_when_no_scenario_ran(capsys: pytest.CaptureFixture[str]) -> None:
    TruthTable().pytest_terminal_summary(None)
    assert capsys.readouterr().out == ""
