"""Rule: the page on faults names tests that exist."""

import re

from tests.support.clause_pages import ROOT, names_in


def test_every_fault_from_1_to_16_is_shown_by_tests_that_exist():
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|src/headrace/testing)/[\w/]+\.py)::(\w+)`", page)
    assert [(file, test) for file, test in named if test not in names_in(file)] == []
    source = page.partition("## Faults of targets")[0]
    rows = [line for line in source.splitlines() if re.match(r"\| \d+: ", line)]
    assert [int(row[2:].partition(":")[0]) for row in rows] == list(range(1, 17))
    assert all("::test_" in row for row in rows)


def test_every_fault_of_a_target_is_shown_by_a_test_that_exists_or_said_not_to_be():
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").partition("## Faults of targets")[2]
    legend = dict(re.findall(r"^- ([A-Z]): `((?:tests|src/headrace/testing)/[\w/]+\.py::\w+)`$", page, re.MULTILINE))
    rows = {
        int(cells[0].partition(":")[0]): cells[1:]
        for cells in (
            [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if "|" in line
        )
        if cells[0][:1].isdigit()
    }
    assert list(rows) == [1, 2, 3, 4, 5, 6, 7, 8, 14, 17, 19]
    assert {len(cells) for cells in rows.values()} == {6}
    used = {letter for cells in rows.values() for cell in cells for letter in cell.split()} - {"-"}
    assert used == set(legend)
    # What is not shown is explained.
    explained = page.partition("What the letters don't say:")[2]
    gaps = [number for number, cells in rows.items() if "-" in cells]
    assert [n for n in gaps if not re.search(rf"^- (\d+, )*{n}\b|^- .*\b{n}\b.*:", explained, re.MULTILINE)] == []
