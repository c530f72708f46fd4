"""Rule: the page on faults names tests that exist."""

import re

from tests.docs.test_sqlserver_reference import ROOT, names_in


def test_every_fault_from_1_to_16_is_shown_by_tests_that_exist():
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert [(file, test) for file, test in named if test not in names_in(file)] == []
    rows = [line for line in page.splitlines() if re.match(r"\| \d+: ", line)]
    assert [int(row[2:].partition(":")[0]) for row in rows] == list(range(1, 17))
    assert all("::test_" in row for row in rows)
