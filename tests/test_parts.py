"""Rule: the record of what ran keeps what is known of each part, and takes what a new run says."""

from __future__ import annotations

from itertools import chain, combinations
from pathlib import Path

from tests.parts import PARTS, ROOT, SHORT, Result, read, recorded, with_table

from headrace_emulators.engine.archives import RELEASE, find_archive

SERVERS = {variable: server for server, variable in RELEASE.items()}
PAGE = "Before.\n<!-- parts: written by make test-all -->\n<!-- /parts -->\nAfter.\n"


def test_a_page_keeps_the_newest_result_of_each_part() -> None:
    old, new = Result("real", "1a", "2026-01-02", 1234, 0, 5, 600), Result("real", "2b", "2026-02-03", 1240, 1, 5, 660)
    other = Result("plain", "1a", "2026-01-02", 9, 0, 0, 60)
    page = with_table(with_table(PAGE, [old, other]), [new])
    assert recorded(page) == [other, new]
    assert page.startswith("Before.\n") and page.endswith("After.\n")
    assert page.count("| never |") == len(PARTS) - 2


def test_a_result_is_read_from_what_pytest_wrote(tmp_path: Path) -> None:
    file = tmp_path / "real@1a.xml"
    counts = 'tests="12" failures="1" errors="1" skipped="3" time="59.7" timestamp="2026-01-02T03:04:05"'
    file.write_text(f'<testsuites><testsuite name="pytest" {counts}></testsuite></testsuites>')
    assert read(file) == Result("real", "1a", "2026-01-02", 7, 2, 3, 60)


def test_make_test_runs_what_the_first_parts_run() -> None:
    assert f'tests.side_by_side "{SHORT}"' in (ROOT / "Makefile").read_text("utf-8")


def test_each_kind_of_test_is_in_one_part_wherever_it_stands() -> None:
    def holds(marks: str, chosen: set[str]) -> bool:
        return bool(eval(marks, {name: name in chosen for name in ("jvm", "system", "soak", "live", "real")}))

    files = {f"{file.relative_to(ROOT)}" for file in (ROOT / "tests").rglob("test_*.py")}
    for chosen in chain.from_iterable(combinations(("jvm", "system", "soak", "real"), size) for size in range(5)):
        if {"soak", "real"} <= {*chosen}:
            # Only `make soak` runs producers for so long.
            continue
        parts = [part for part in PARTS if holds(part.marks, set(chosen)) and not part.environment]
        for file in files:
            where = [part.name for part in parts if any(f"{file}/".startswith(f"{folder}/") for folder in part.folders)]
            assert len(where) == 1, (file, chosen, where)


def test_each_release_of_a_server_runs_what_is_there() -> None:
    for part in PARTS:
        if part.environment:
            assert all((ROOT / folder.partition("::")[0]).exists() for folder in part.folders)
            assert all(find_archive(SERVERS[name], release) for name, release in part.environment.items())
