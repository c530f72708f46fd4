"""Rule: the page on faults names tests that exist."""

from __future__ import annotations

import re

from tests.support.clause_pages import ROOT, names_in


def test_every_fault_is_shown_by_tests_that_exist() -> None:
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|src/headrace/testing)/[\w/]+\.py)::(\w+)`", page)
    assert named
    assert [(file, test) for file, test in named if test not in names_in(file)] == []
