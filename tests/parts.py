"""Run everything that runs on this machine, in parts that each take under an hour, and record it in `docs/tested.md`.

    python -m tests.parts                   # all parts that did not run at this commit yet
    python -m tests.parts systems real      # these parts
    python -m tests.parts --age             # say whether src changed since the record was written

A run that was stopped goes on with the first part that has no result at this commit.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.smoke import WHOLE

from headrace_emulators.engine.archives import MARIADB, POSTGRESQL, RELEASE

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "tested"
PAGE = ROOT / "docs" / "tested.md"
_BEGIN, _END = "<!-- parts: written by make test-all -->\n", "<!-- /parts -->\n"


@dataclass(frozen=True)
class Part:
    """Tests that run together.

    Args:
        name: what it is called.
        what: what it covers, for the page.
        marks: which tests, as pytest's `-m` takes it.
        folders: where they are.
        environment: what they run with; such a part repeats tests of others, on another release.
    """

    name: str
    what: str
    marks: str
    folders: tuple[str, ...] = ("tests",)
    environment: Mapping[str, str] = field(default_factory=dict)


def _rooms(*but: str) -> tuple[str, ...]:
    """The folders and files of `tests` that hold tests, without some of them."""
    names = {file.relative_to(ROOT / "tests").parts[0] for file in (ROOT / "tests").rglob("test_*.py")}
    return tuple(f"tests/{name}" for name in sorted(names - {*but}))


def _faults(*, of_logs: bool) -> tuple[str, ...]:
    """The files of tests that kill pipelines: of databases with a log of their own, or the others."""
    logs = {f"test_kill_{database}.py" for database in ("mysql", "oracle", "postgresql")}
    files = sorted((ROOT / "tests" / "faults").glob("test_*.py"))
    return tuple(f"tests/faults/{file.name}" for file in files if (file.name in logs) == of_logs)


SHORT = "not system and not soak and not live and not real"
"""What `make test` runs."""
_LONG = "soak and not real"
_SYSTEM = "system and not soak and not real"
_OF_POSTGRESQL = (
    "tests/sources/postgresql",
    "tests/emulators/postgresql",
    "tests/contracts/test_capture.py::TestPostgres",
    "tests/contracts/test_capture.py::TestPostgresDefaultIdentity",
)
_WITHOUT_SPARK = "not jvm and not soak and not live and not real"
PARTS = (
    Part("plain", "tests of `make test` that start no JVM", f"not jvm and {SHORT}"),
    Part("spark", "tests of `make test` that start Spark or a broker", f"jvm and {SHORT}"),
    Part("targets", "every kind of target and catalogue", _SYSTEM, ("tests/sinks",)),
    Part(
        "logins",
        "every login of a broker, and other runs of pipelines",
        _SYSTEM,
        ("tests/pipeline",),
    ),
    Part(
        "systems",
        "whole programs, tutorials, every kind of server",
        _SYSTEM,
        _rooms("sinks", "pipeline", "object_store"),
    ),
    Part("object_store", "lake tables in a store that speaks S3 (moto)", _SYSTEM, ("tests/object_store",)),
    Part("real", "Debezium Server on a real MariaDB and PostgreSQL", "real and not soak"),
    Part(
        "kills_of_change_tables",
        "pipelines of change tables, and targets, killed at many points",
        _LONG,
        _faults(of_logs=False),
    ),
    Part("kills_of_logs", "pipelines of database logs, killed at many points", _LONG, _faults(of_logs=True)),
    Part("soak", "other long runs", _LONG, _rooms("faults", "sinks", "sources")),
    Part("soak_of_sinks", "many histories into every target", _LONG, ("tests/sinks",)),
    Part("soak_of_sources", "many changes of every database", _LONG, ("tests/sources",)),
    *(
        Part(
            f"postgresql_{release}",
            f"the source on PostgreSQL {release}, from Maven",
            _WITHOUT_SPARK,
            _OF_POSTGRESQL,
            {RELEASE[POSTGRESQL]: release},
        )
        for release in ("14", "16", "17", "18")
    ),
    Part(
        "mariadb_11",
        "the source on MariaDB 11.4, from Maven",
        _WITHOUT_SPARK,
        ("tests/sources/mysql", "tests/emulators/mysql"),
        {RELEASE[MARIADB]: "11.4"},
    ),
)


@dataclass(frozen=True)
class Result:
    """What came out of a part.

    Args:
        part: its name.
        commit: the commit that it ran at, short.
        date: the day.
        passed, failed, skipped: how many tests.
        seconds: by the clock.
    """

    part: str
    commit: str
    date: str
    passed: int
    failed: int
    skipped: int
    seconds: int


def read(file: Path) -> Result:
    """The result in a file of pytest, whose name has the part and the commit."""
    part, _, commit = file.stem.partition("@")
    suite = next(ET.parse(file).getroot().iter("testsuite"))
    count = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    date = suite.attrib["timestamp"][:10]
    return Result(part, commit, date, passed, failed, count["skipped"], round(float(suite.attrib["time"])))


def table(results: Iterable[Result]) -> str:
    """The newest result of each part, as a table in Markdown."""
    newest = {result.part: result for result in sorted(results, key=lambda result: result.date)}
    rows = ["| part | what | passed | failed | skipped | minutes | commit | on |\n", "|---" * 8 + "|\n"]
    for part in PARTS:
        result = newest.get(part.name)
        ran = (
            f"{result.passed:,} | {result.failed} | {result.skipped} | {result.seconds / 60:.0f} | {result.commit} "
            f"| {result.date} |\n"
            if result
            else "| | | | never | |\n"
        )
        rows.append(f"| {part.name} | {part.what} | {ran}")
    return "".join(rows)


def recorded(page: str) -> list[Result]:
    """The results on a page, which runs on other machines may have written."""
    found = re.findall(
        r"^\| (\w+) \| .*? \| ([\d,]+) \| (\d+) \| (\d+) \| (\d+) \| (\w+) \| (\S+) \|$", page, re.MULTILINE
    )
    return [
        Result(part, commit, date, int(passed.replace(",", "")), int(failed), int(skipped), 60 * int(minutes))
        for part, passed, failed, skipped, minutes, commit, date in found
    ]


def with_table(page: str, results: Sequence[Result]) -> str:
    """The page with a new table; parts without a new result keep what is there."""
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return before + _BEGIN + table([*recorded(page), *results]) + _END + after


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def age() -> str:
    """One sentence on the oldest result, if `src` has changed since; empty else."""
    commits = {result.commit for result in recorded(PAGE.read_text(encoding="utf-8"))}
    for commit in commits:
        try:
            changed = _git("diff", "--stat", commit, "--", "src")
        except (OSError, subprocess.CalledProcessError):
            changed = "unknown"
        if changed:
            return "docs/tested.md is older than the last change of src. `make test-all` renews it."
    return "" if commits else "Nothing was recorded in docs/tested.md yet. `make test-all` does that."


def main(words: Sequence[str]) -> int:
    """Run parts; how many of them failed."""
    if "--age" in words:
        if sentence := age():
            print(f"Note: {sentence}")
        return 0
    unknown = set(words) - {part.name for part in PARTS}
    if unknown:
        print(f"No such part: {', '.join(sorted(unknown))}. There are {', '.join(part.name for part in PARTS)}.")
        return 2
    if _git("status", "--porcelain", "--", "src", "tests"):
        print("Commit your changes of src and tests first: the record names the commit.")
        return 2
    RESULTS.mkdir(parents=True, exist_ok=True)
    commit, failed = _git("rev-parse", "--short=10", "HEAD"), 0
    for part in PARTS:
        file = RESULTS / f"{part.name}@{commit}.xml"
        if (words and part.name not in words) or (file.exists() and not words):
            continue
        print(f"{dt.datetime.now():%H:%M} {part.name}: {part.what}", flush=True)
        pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
        running = file.with_suffix(".part")
        command = [*pytest, "-m", part.marks, f"--junitxml={running}", *part.folders]
        subprocess.run(command, cwd=ROOT, env={**os.environ, WHOLE: "1", **part.environment}, check=False)
        if not running.exists():
            return 1
        running.rename(file)
        result = read(file)
        failed += bool(result.failed)
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), [result]), encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
