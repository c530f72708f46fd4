"""Run the tests that start Spark on this environment's release of it; write `docs/releases.md` from what came out.

    python docs/generate_releases.py run -n 2           # more words go to pytest; parts of the tests may run one by one
    python docs/generate_releases.py                    # the page, and the table of the README

`make matrix` does both for each release. A test that ran more than once counts as it came out last. A release that did
not run keeps what `docs/releases.json` has of it.
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.spark.java import find_java
from headrace.spark.releases import release_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "releases"
PAGE = ROOT / "docs" / "releases.md"
RECORD = ROOT / "docs" / "releases.json"
"""What ran on each release, as the page and the table say it."""
README = ROOT / "README.md"
TESTS = "jvm and not soak and not live and not real"
DEMO = "demo"
"""The property by which the test of the demo hands over its last line."""

_HEAD = """# What ran on which release of Spark

Written by `make matrix` from the results of pytest; do not edit.

`make matrix` runs every test that starts Spark on each release, the demo among them, and `make matrix SPARKS=4.3` on
that one alone; the others keep what they have. Where a part of the tests did not run, its cell says so, and a test that
ran more than once counts as it came out last. The other tests need no Spark
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
    """What ran in one environment.

    Args:
        environment: such as `PySpark 4.2.0, Python 3.11, Java 17`.
        date: the day of the oldest result.
        rooms: how many tests passed, failed, and are gaps, by room.
        demo: what the demo said at its end.
        failed: the names of the tests that failed.
        gaps: how many tests are gaps, by the reason.
    """

    environment: str
    date: str
    rooms: dict[str, list[int]]
    demo: str = "no result"
    failed: list[str] = field(default_factory=list)
    gaps: dict[str, int] = field(default_factory=dict)

    @property
    def spark(self) -> str:
        """The version of PySpark."""
        return self.environment.partition(",")[0].split()[-1]

    @property
    def release(self) -> str:
        """Its release, such as 4.2."""
        return self.spark.rpartition(".")[0]

    @property
    def counts(self) -> list[int]:
        """How many tests passed, failed, and are gaps, in all rooms."""
        return [sum(numbers) for numbers in zip(*self.rooms.values(), strict=True)]

    @classmethod
    def of_tests(cls, environment: str, tests: Mapping[str, Outcome]) -> Run:
        """What tests, by their names, say together."""
        rooms: dict[str, list[int]] = {}
        for test in tests.values():
            kind = 1 if test.failed else 2 if test.gap else 0
            rooms.setdefault(test.room, [0, 0, 0])[kind] += 1
        return cls(
            environment,
            min(test.at for test in tests.values())[:10],
            dict(sorted(rooms.items())),
            next((test.demo for test in tests.values() if test.demo), "no result"),
            sorted(name for name, test in tests.items() if test.failed),
            dict(sorted(Counter(test.gap for test in tests.values() if test.gap).items())),
        )


def read(files: Iterable[Path]) -> list[Run]:
    """The runs that result files are of."""
    runs: dict[str, dict[str, Outcome]] = {}
    suites = [suite for file in files for suite in ET.parse(file).getroot().iter("testsuite")]
    for suite in sorted(suites, key=lambda suite: suite.attrib["timestamp"]):
        tests = runs.setdefault(suite.attrib["name"], {})
        for case in suite.iter("testcase"):
            module = case.attrib["classname"]
            tests[f"{module}::{case.attrib['name']}"] = _outcome(case, module, suite.attrib["timestamp"])
    return [Run.of_tests(environment, tests) for environment, tests in runs.items()]


def kept(text: str, fresh: Iterable[Run]) -> list[Run]:
    """What is on record, with fresh runs in place of those of their release; the oldest release first."""
    runs = {run.release: run for run in (*(Run(**one) for one in json.loads(text)), *fresh)}
    return sorted(runs.values(), key=lambda run: [int(number) for number in run.release.split(".")])


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
        counts = [f"{count:,}" for count in run.counts]
        parts.append(_row((run.spark, *libraries, *counts, _short(run.demo), run.date)))
    parts.append("\nThe environments, and what the demo said at its end:\n\n")
    parts.extend(f"- {run.environment}: {run.demo}\n" for run in runs)
    parts.append("\n## By room\n\nTests passed, by the folder of `tests` that they are in.\n\n")
    parts.append(_table(("tests", *(run.spark for run in runs))))
    for room in _rooms(runs):
        parts.append(_row((room, *(_said(*run.rooms.get(room, (0, 0, 0))) for run in runs))))
    parts.append("\n## Failed\n\n")
    failed = [(run.spark, name) for run in runs for name in run.failed]
    parts.extend(f"- {spark}: `{name}`\n" for spark, name in failed)
    parts.append("" if failed else "None.\n")
    parts.append("\n## Declared gaps\n\nThose that not every release has:\n\n")
    parts.append(_table(("why", *(run.spark for run in runs))))
    same = []
    for reason in sorted({reason for run in runs for reason in run.gaps}):
        met = [run.gaps.get(reason, 0) for run in runs]
        if len(set(met)) == 1:
            same.append(f"- {reason} ({met[0]})\n")
        else:
            parts.append(_row((reason.replace("|", "\\|"), *(str(count or "") for count in met))))
    if same:
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
                    _said(*run.counts) + _unrun(len(_rooms(runs)) - len(run.rooms)),
                    _short(run.demo),
                )
            )
        )
    return "".join(rows)


def _rooms(runs: Iterable[Run]) -> list[str]:
    return sorted({room for run in runs for room in run.rooms})


def _said(passed: int, failed: int, gaps: int) -> str:
    if not passed + failed + gaps:
        return "not run"
    more = [f"{failed:,} failed"] * bool(failed) + [f"{gaps:,} gaps" if gaps > 1 else "1 gap"] * bool(gaps)
    return ", ".join([f"{passed:,} passed", *more])


def _unrun(rooms: int) -> str:
    return "" if not rooms else f"; {rooms} {'folder' if rooms == 1 else 'folders'} of tests not run"


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
    """Write the record, the page and the table; the answer is 1 where a test failed."""
    fresh = read(sorted(RESULTS.glob("*.xml")))
    if not fresh:
        raise SystemExit(f"There are no results in {RESULTS}. Run: make matrix")
    runs = kept(RECORD.read_text(encoding="utf-8"), fresh)
    RECORD.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(runs), encoding="utf-8")
    README.write_text(put_between(README.read_text(encoding="utf-8"), short_table(runs)), encoding="utf-8")
    return int(any(run.failed for run in runs))


if __name__ == "__main__":
    sys.exit(run(sys.argv[2:]) if sys.argv[1:2] == ["run"] else write())
