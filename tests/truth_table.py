"""What the scenarios of SQL Server capture showed, as a table in the test summary: on the emulator, on a live server.

A scenario is a test function; its name is the scenario in words, and its parameters are its variants. A test that is
marked `live` counts for the live server, any other for the emulator, so the same function may count for both. Areas of
many small variations take one line together, but for what failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

EMULATOR, LIVE = "emulator", "live server"
SERVERS = (EMULATOR, LIVE)
_FOLDER = "tests/sources/sqlserver/"


@dataclass(frozen=True)
class Area:
    """The scenarios of one test file.

    Args:
        title: what they are about.
        file: where they are, from the root.
        together: whether they take one line together.
    """

    title: str
    file: str
    together: bool = False


AREAS = (
    Area("snapshot and stream", f"{_FOLDER}test_source.py"),
    Area("tables, locks and times", f"{_FOLDER}test_tables_and_times.py"),
    Area("modes, isolation, several databases", f"{_FOLDER}test_modes.py"),
    Area("schemas that change", f"{_FOLDER}test_schema_changes.py"),
    Area("transactions", f"{_FOLDER}test_transactions.py"),
    Area("ad-hoc snapshots", f"{_FOLDER}test_incremental.py"),
    Area("columns, keys, masks, statements", f"{_FOLDER}test_table_options.py", together=True),
    Area("health", f"{_FOLDER}test_health.py", together=True),
    Area("events as Debezium recorded them", "tests/streaming/test_recorded_events.py"),
)


@dataclass
class Scenario:
    """The outcomes of one scenario.

    Args:
        area: what it is about.
        words: the scenario in words.
        outcomes: for each server the outcome of each variant, by its id.
    """

    area: Area
    words: str
    outcomes: dict[str, dict[str, str]] = field(default_factory=lambda: {server: {} for server in SERVERS})

    def counts(self, server: str) -> Counter[str]:
        """How many variants passed, failed and were skipped on a server."""
        return Counter(self.outcomes[server].values())


class TruthTable:
    """A pytest plugin that collects the outcomes and prints the table, when any scenario ran."""

    def __init__(self) -> None:
        self._areas = {area.file: area for area in AREAS}
        self._scenarios: dict[tuple[str, str], Scenario] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test's outcome: that of its call, or of its setup or teardown where that went wrong."""
        file, _, test = report.nodeid.partition("::")
        area = self._areas.get(file)
        if area is None or (report.when != "call" and report.passed):
            return
        name = test.partition("[")[0]
        scenario = self._scenarios.setdefault((file, name), Scenario(area, in_words(name)))
        scenario.outcomes[LIVE if "live" in report.keywords else EMULATOR][report.nodeid] = report.outcome

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        if not self._scenarios:
            return
        terminalreporter.section("SQL Server scenarios")
        for line in table(list(self._scenarios.values())):
            terminalreporter.write_line(line)


def in_words(name: str) -> str:
    """A test's name as a sentence's words."""
    return name.removeprefix("test_").replace("_", " ")


def verdict(counts: Counter[str]) -> str:
    """What is shown on one server, with the number of variants where there are several."""
    ran = counts["passed"] + counts["failed"]
    if not ran:
        return "not run"
    if counts["failed"]:
        return f"NO, {counts['failed']} of {ran} failed" if ran > 1 else "NO, failed"
    return f"yes, {ran}" if ran > 1 else "yes"


def table(scenarios: Sequence[Scenario]) -> Iterator[str]:
    """The table's lines: areas in the order of `AREAS`, scenarios in the order in which they ran."""
    rows: list[tuple[str, ...]] = [("scenario", *SERVERS)]
    for area in AREAS:
        mine = [scenario for scenario in scenarios if scenario.area == area]
        if not mine:
            continue
        if area.together:
            sums = (sum((s.counts(server) for s in mine), Counter[str]()) for server in SERVERS)
            rows.append((f"{area.title}: {len(mine)} scenarios", *map(verdict, sums)))
        else:
            rows.append((area.title, *("" for _ in SERVERS)))
        shown = [s for s in mine if not area.together or any(s.counts(server)["failed"] for server in SERVERS)]
        rows += [(f"  {s.words}", *(verdict(s.counts(server)) for server in SERVERS)) for s in shown]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for server in SERVERS:
        counts = [scenario.counts(server) for scenario in scenarios]
        failed = sum(bool(c["failed"]) for c in counts)
        passed = sum(bool(c["passed"]) and not c["failed"] for c in counts)
        yield f"{server}: {passed} scenarios passed, {failed} failed, {len(counts) - passed - failed} not run"
