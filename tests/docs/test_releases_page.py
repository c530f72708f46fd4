"""Rule: the page of what ran on which release of Spark says what pytest's results say, of today's libraries."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.release_gaps import GAPS

from headrace.spark.releases import RELEASES

ROOT = Path(__file__).parents[2]
SUITE = """<testsuites>
<testsuite name="PySpark {spark}, Python 3.11, Java 17" timestamp="{at}">{cases}</testsuite>
</testsuites>"""
PASSED = '<testcase classname="tests.{module}" name="{name}"/>'
FAILED = '<testcase classname="tests.{module}" name="{name}"><failure message="no"/></testcase>'
BROKEN = '<testcase classname="tests.{module}" name="{name}"><error message="no"/></testcase>'
SKIPPED = '<testcase classname="tests.{module}" name="{name}"><skipped message="Iceberg has no release"/></testcase>'
DEMO = (
    '<testcase classname="tests.{module}" name="{name}">'
    '<properties><property name="demo" value="mirror equals source: 4 rows"/></properties></testcase>'
)


@pytest.fixture(scope="module")
def releases() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_releases", ROOT / "docs" / "generate_releases.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def results(folder: Path, spark: str, at: str, *cases: tuple[str, str, str]) -> Path:
    """A file as pytest writes it."""
    file = folder / f"{spark}-{at.replace(':', '')}.xml"
    said = "".join(kind.format(module=module, name=name) for kind, module, name in cases)
    file.write_text(SUITE.format(spark=spark, at=at, cases=said), encoding="utf-8")
    return file


def test_results_are_counted_by_room_and_a_later_one_of_a_test_counts(releases: ModuleType, tmp_path: Path) -> None:
    first = [
        (PASSED, "sinks.test_delta.TestDelta", "test_a"),
        (FAILED, "sinks.test_delta.TestDelta", "test_b"),
        (BROKEN, "pipeline.test_run", "test_c"),
        (DEMO, "cli.test_demo_command", "test_d"),
        (PASSED, "test_java", "test_e"),
    ]
    files = [
        results(tmp_path, "4.2.0", "2026-11-25T08:00:00", (SKIPPED, "sinks.test_iceberg", "test_a")),
        results(tmp_path, "4.0.5", "2026-11-25T09:00:00", (PASSED, "sinks.test_delta.TestDelta", "test_b")),
        results(tmp_path, "4.0.5", "2026-11-24T09:00:00", *first),
    ]
    page = releases.page(releases.kept("[]", releases.read(files)))
    lines = page.splitlines()
    assert "| 4.0.5 | 4.0.0 | 4.0.0 | 1.10.1 | 4 | 1 | 0 | mirror equals source | 2026-11-24 |" in lines
    assert "- PySpark 4.0.5, Python 3.11, Java 17: mirror equals source: 4 rows" in lines
    assert "| 4.2.0 | 4.2.0 | 4.4.0 | none | 0 | 0 | 1 | no result | 2026-11-25 |" in lines
    assert "| sinks | 2 passed | 0 passed, 1 gap |" in lines
    assert "| pipeline | 0 passed, 1 failed | not run |" in lines
    assert "| in no folder | 1 passed | not run |" in lines
    assert "- 4.0.5: `tests.pipeline.test_run::test_c`" in lines
    assert "| Iceberg has no release |  | 1 |" in lines


def test_a_release_that_did_not_run_keeps_what_is_on_record(releases: ModuleType, tmp_path: Path) -> None:
    before = [
        results(tmp_path, "4.2.0", "2026-11-24T09:00:00", (PASSED, "sinks.test_a", "a"), (PASSED, "cli.test_b", "b")),
        results(tmp_path, "4.3.0", "2026-11-24T09:00:00", (FAILED, "sinks.test_a", "a")),
    ]
    record = json.dumps([dataclasses.asdict(run) for run in releases.kept("[]", releases.read(before))])
    fresh = releases.read([results(tmp_path, "4.3.1", "2026-11-25T09:00:00", (PASSED, "sinks.test_a", "a"))])
    runs = releases.kept(record, fresh)
    assert [(run.spark, run.date, run.counts, run.failed) for run in runs] == [
        ("4.2.0", "2026-11-24", [2, 0, 0], []),
        ("4.3.1", "2026-11-25", [1, 0, 0], []),
    ]
    assert "| 4.3.1 | no Delta, no Iceberg | 1 passed; 1 folder of tests not run | no result |" in (
        releases.short_table(runs).splitlines()
    )


def test_the_page_and_the_table_are_what_is_on_record(releases: ModuleType) -> None:
    runs = releases.kept(releases.RECORD.read_text(encoding="utf-8"), [])
    assert releases.PAGE.read_text(encoding="utf-8") == releases.page(runs)
    assert releases.short_table(runs) in releases.README.read_text(encoding="utf-8")


def test_the_readme_keeps_all_but_the_table(releases: ModuleType) -> None:
    text = f"before\n{releases._BEGIN}old\n{releases._END}after\n"
    assert releases.put_between(text, "new\n") == f"before\n{releases._BEGIN}new\n{releases._END}after\n"
    with pytest.raises(SystemExit, match="no place for the table"):
        releases.put_between("before\nafter\n", "new\n")


def test_the_page_is_of_the_libraries_that_each_release_takes_now(releases: ModuleType) -> None:
    page = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
    for name, jars in RELEASES.items():
        libraries = [releases._version(jar) for jar in (jars.kafka, jars.delta, jars.iceberg)]
        row = rf"^\| {re.escape(name)}\.\d+ \| {re.escape(' | '.join(libraries))} \|"
        assert re.search(row, page, re.MULTILINE), f"run make matrix: Spark {name} takes other libraries now"


def test_every_pattern_of_a_gap_names_a_test_that_is_there() -> None:
    patterns = {pattern for reasons in GAPS.values() for listed in reasons.values() for pattern in listed}
    for pattern in patterns:
        file, _, rest = pattern.partition("::")
        name = re.match(r"test_\w+", rest)
        assert f"def {name[0] if name else 'test_'}" in (ROOT / file).read_text(encoding="utf-8"), pattern
