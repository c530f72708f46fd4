"""Run the tests that start Spark on this environment's release of it; write `docs/releases.md` from what came out.

    python docs/generate_releases.py run -n 2           # more words go to pytest; parts of the tests may run one by one
    python docs/generate_releases.py                    # the page, and the table of the README

`make matrix` does both for each release. A test that ran more than once counts as it came out last.
"""

from __future__ import annotations

import datetime as dt
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.spark.java import find_java
from headrace.spark.releases import release_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "releases"
PAGE = ROOT / "docs" / "releases.md"
README = ROOT / "README.md"
TESTS = "jvm and not soak and not live and not real"
DEMO = "demo"
"""The property by which the test of the demo hands over its last line."""

_HEAD = """# What ran on which release of Spark

Written by `make matrix` from the results of pytest; do not edit.

`make matrix` runs every test that starts Spark on each release, the demo among them; where a part of the tests did not
run yet, its cell says so, and a test that ran more than once counts as it came out last. The other tests need no Spark
and run once (`make test`). A declared gap is a test that does not run, or is known not to pass, for the reason that it
names; `tests/release_gaps.py` has those that belong to a release.

"""
_BEGIN, _END = "<!-- releases: written by make matrix -->\n", "<!-- /releases -->\n"


@dataclass(frozen=True)
class Outcome:
    """How one test came out.

    Args:
        room: the folder of `tests` that it is in.
        failed: whether it failed.
        gap: why it did not run or was not expected to pass; empty where it ran.
        at: when its run began.
        demo: what the demo said at its end, if this test ran it.
    """

    room: str
    failed: bool
    gap: str
    at: str
    demo: str = ""


@dataclass
class Run:
    """What ran in one environment, named such as `PySpark 4.2.0, Python 3.11, Java 17`."""

    environment: str
    tests: dict[str, Outcome] = field(default_factory=dict)

    @property
    def spark(self) -> str:
        """The version of PySpark."""
        return self.environment.partition(",")[0].split()[-1]

    @property
    def date(self) -> str:
        """The day of the oldest result."""
        return min(test.at for test in self.tests.values())[:10]

    @property
    def demo(self) -> str:
        """What the demo said at its end."""
        return next((test.demo for test in self.tests.values() if test.demo), "no result")

    def counts(self, room: str = "") -> tuple[int, int, int]:
        """How many tests passed, failed, and are gaps, in one room or in all."""
        found = [test for test in self.tests.values() if room in ("", test.room)]
        failed, gaps = sum(test.failed for test in found), sum(bool(test.gap) for test in found)
        return len(found) - failed - gaps, failed, gaps


def read(files: Iterable[Path]) -> list[Run]:
    """The runs that result files are of, the oldest release first."""
    runs: dict[str, Run] = {}
    suites = [suite for file in files for suite in ET.parse(file).getroot().iter("testsuite")]
    for suite in sorted(suites, key=lambda suite: suite.attrib["timestamp"]):
        run = runs.setdefault(suite.attrib["name"], Run(suite.attrib["name"]))
        for case in suite.iter("testcase"):
            module = case.attrib["classname"]
            run.tests[f"{module}::{case.attrib['name']}"] = _outcome(case, module, suite.attrib["timestamp"])
    return sorted(runs.values(), key=lambda run: [int(number) for number in run.spark.split(".")[:2]])


def _outcome(case: ET.Element, module: str, at: str) -> Outcome:
    parts = module.split(".")
    room = parts[1] if len(parts) > 1 and not parts[1].startswith("test_") else "in no folder"
    failed = case.find("failure") is not None or case.find("error") is not None
    skipped = case.find("skipped")
    gap = "" if failed or skipped is None else skipped.attrib["message"]
    properties = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
    return Outcome(room, failed, gap, at, properties.get(DEMO, ""))


def page(runs: list[Run]) -> str:
    """The page."""
    parts = [_HEAD, _table(("Spark", "Kafka, Avro", "Delta", "Iceberg", "passed", "failed", "gaps", "demo", "run on"))]
    for run in runs:
        jars = release_of(run.spark)
        libraries = [_version(jar) for jar in (jars.kafka, jars.delta, jars.iceberg)]
        counts = [f"{count:,}" for count in run.counts()]
        parts.append(_row((run.spark, *libraries, *counts, _short(run.demo), run.date)))
    parts.append("\nThe environments, and what the demo said at its end:\n\n")
    parts.extend(f"- {run.environment}: {run.demo}\n" for run in runs)
    parts.append("\n## By room\n\nTests passed, by the folder of `tests` that they are in.\n\n")
    parts.append(_table(("tests", *(run.spark for run in runs))))
    for room in sorted({test.room for run in runs for test in run.tests.values()}):
        parts.append(_row((room, *(_said(*run.counts(room)) for run in runs))))
    parts.append("\n## Failed\n\n")
    failed = [(run.spark, name) for run in runs for name, test in sorted(run.tests.items()) if test.failed]
    parts.extend(f"- {spark}: `{name}`\n" for spark, name in failed)
    parts.append("" if failed else "None.\n")
    parts.append("\n## Declared gaps\n\nThose that not every release has:\n\n")
    gaps = [Counter(test.gap for test in run.tests.values() if test.gap) for run in runs]
    parts.append(_table(("why", *(run.spark for run in runs))))
    same = []
    for reason in sorted({reason for counted in gaps for reason in counted}):
        counts = [counted[reason] for counted in gaps]
        if len(set(counts)) == 1:
            same.append(f"- {reason} ({counts[0]})\n")
        else:
            parts.append(_row((reason.replace("|", "\\|"), *(str(count or "") for count in counts))))
    parts.append("\nThe same on all of them, mostly what one kind of sink does not promise:\n\n")
    return "".join(parts + same)


def short_table(runs: list[Run]) -> str:
    """What the README says of it."""
    rows = [_table(("Spark", "with", "tests that start Spark", "demo"))]
    for run in runs:
        jars = release_of(run.spark)
        delta, iceberg = _version(jars.delta), _version(jars.iceberg)
        rows.append(
            _row(
                (
                    run.spark,
                    f"{f'Delta {delta}' if jars.delta else 'no Delta'}, "
                    f"{f'Iceberg {iceberg}' if jars.iceberg else 'no Iceberg'}",
                    _said(*run.counts()),
                    _short(run.demo),
                )
            )
        )
    return "".join(rows)


def _said(passed: int, failed: int, gaps: int) -> str:
    if not passed + failed + gaps:
        return "not run"
    more = [f"{failed:,} failed"] * bool(failed) + [f"{gaps:,} gaps" if gaps > 1 else "1 gap"] * bool(gaps)
    return ", ".join([f"{passed:,} passed", *more])


def _short(demo: str) -> str:
    return demo.partition(":")[0]


def _version(coordinate: str) -> str:
    return coordinate.rpartition(":")[2] or "none"


def _table(names: Iterable[str]) -> str:
    names = list(names)
    return _row(names) + "|---" * len(names) + "|\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def put_between(text: str, table: str) -> str:
    """A text with the table between its two marks."""
    before, _, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise SystemExit(f"{README} has no place for the table: {_BEGIN.strip()} and {_END.strip()}")
    return f"{before}{_BEGIN}{table}{_END}{after}"


def run(words: list[str]) -> int:
    """Run the tests in this environment and keep their results; the answer is pytest's."""
    import pyspark

    java = subprocess.run([str(find_java()), "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "(\d+)', java)
    python = ".".join(platform.python_version_tuple()[:2])
    name = f"PySpark {pyspark.__version__}, Python {python}, Java {found[1] if found else 'unknown'}"
    RESULTS.mkdir(parents=True, exist_ok=True)
    file = RESULTS / f"{pyspark.__version__}-{dt.datetime.now():%Y%m%d-%H%M%S}.xml"
    given = ["-m", TESTS, f"--junitxml={file}", "-o", f"junit_suite_name={name}", *words]
    return subprocess.run([sys.executable, "-m", "pytest", *given], cwd=ROOT).returncode


def write() -> int:
    """Write the page and the table; the answer is 1 where a test failed."""
    runs = read(sorted(RESULTS.glob("*.xml")))
    if not runs:
        raise SystemExit(f"There are no results in {RESULTS}. Run: make matrix")
    PAGE.write_text(page(runs), encoding="utf-8")
    README.write_text(put_between(README.read_text(encoding="utf-8"), short_table(runs)), encoding="utf-8")
    return int(any(run.counts()[1] for run in runs))


if __name__ == "__main__":
    sys.exit(run(sys.argv[2:]) if sys.argv[1:2] == ["run"] else write())
