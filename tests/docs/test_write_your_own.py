"""The page "Write your own source, format or sink" shows a package that works: its blocks are the package's files."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
from toy_litelog import install

from headrace.testing.waiting import PATIENCE

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "toy_package"
BLOCK = re.compile(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_blocks_of_the_page_are_the_files_of_the_package() -> None:
    page = (ROOT / "docs" / "write-your-own.md").read_text("utf-8")
    shown = dict(BLOCK.findall(page))
    assert shown == {name: (PACKAGE / name).read_text("utf-8") for name in shown}
    assert shown.keys() >= {file.name for file in PACKAGE.iterdir() if file.is_file()}


def test_a_source_of_a_log_takes_less_than_seven_hundred_lines() -> None:
    files = (PACKAGE / "toy_litelog").glob("*.py")
    lines = {file.stem: len(file.read_text("utf-8").splitlines()) for file in files}
    assert sum(count for name, count in lines.items() if name not in ("install", "test_litelog")) < 700


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as an installer leaves it: its modules, and the entry points of its `pyproject.toml`."""
    target = tmp_path_factory.mktemp("site-packages")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text("utf-8"))
    for module in project["tool"]["setuptools"]["py-modules"]:
        shutil.copy(PACKAGE / f"{module}.py", target)
    for package in project["tool"]["setuptools"]["packages"]:
        shutil.copytree(PACKAGE / package, target / package)
    name, version = project["project"]["name"], project["project"]["version"]
    facts = target / f"{name.replace('-', '_')}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line
        for group, entries in project["project"]["entry-points"].items()
        for line in (f"[{group}]", *(f"{entry} = {place}" for entry, place in entries.items()))
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return target


def headrace(installed: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    # Nothing of the tests is on the path.
    others = [path for path in sys.path if path and not Path(path).is_relative_to(ROOT / "tests")]
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        input=given,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), *others])},
        cwd=installed,
        timeout=PATIENCE,
    )


def test_the_command_line_decodes_the_format_of_an_installed_package(installed: Path) -> None:
    lines = "u,shop,dbo,orders,*id=1,-id=1,-v=a,+id=1,+v\nnothing of the kind\n"
    done = headrace(installed, "decode", "--format", "csv_line", "--json", given=lines)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, [row["op"] for row in rows]) == (1, ["u", "error"])
    assert rows[0]["after"] == {"id": "1", "v": None}


def test_an_option_that_an_installed_format_does_not_have_is_an_error_that_names_the_nearest(installed: Path) -> None:
    done = headrace(installed, "decode", "--format", "csv_line", "-o", "topics=x", given="r\n")
    assert done.returncode == 2
    assert "Unknown option 'topics' for format 'csv_line'. Did you mean 'topic'?" in done.stderr


@pytest.mark.jvm
def test_a_pipeline_runs_through_the_parts_of_an_installed_package(installed: Path, tmp_path: Path) -> None:
    one, two, other = {"id": "1", "v": "a, b"}, {"id": "2", "v": None}, {"id": "1", "v": "c"}
    changes = [
        [{"op": "c", "before": None, "after": one}, {"op": "c", "before": None, "after": two}],
        [{"op": "u", "before": one, "after": other}],
        [{"op": "d", "before": two, "after": None}],
    ]
    time = "2026-05-01T12:00:00+00:00"
    commits = [{"commit": number, "time": time, "changes": found} for number, found in enumerate(changes, 1)]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(commit) + "\n" for commit in commits))
    pipeline = {
        "source": {"type": "journal", "path": str(tmp_path / "orders.jsonl"), "columns": ["id", "v"]},
        "format": {"type": "csv_line"},
        "sink": {"type": "sqlite", "path": str(tmp_path / "messages.db")},
        "pipeline": {"name": "toy", "checkpoint": str(tmp_path / "checkpoint")},
    }
    (tmp_path / "pipeline.yaml").write_text(json.dumps(pipeline))
    done = headrace(installed, "run", str(tmp_path / "pipeline.yaml"), "--once")
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "messages.db") as connection:
        messages = connection.execute("SELECT topic, key, value FROM messages ORDER BY rowid").fetchall()
    assert [(topic, key.decode(), value.decode()) for topic, key, value in messages] == [
        ("orders", '["1"]', 'c,,,orders,*id=1,+id=1,"+v=a, b"'),
        ("orders", '["2"]', "c,,,orders,*id=2,+id=2,+v"),
        ("orders", '["1"]', 'u,,,orders,*id=1,-id=1,"-v=a, b",+id=1,+v=c'),
        ("orders", '["2"]', "d,,,orders,*id=2,-id=2,-v"),
    ]


@pytest.mark.jvm
def test_a_database_is_captured_by_the_source_of_an_installed_package(installed: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, v TEXT)")
        connection.execute("INSERT INTO orders VALUES (1, 'a'), (2, NULL)")
    install.capture(path, "orders")
    pipeline = {
        "source": {"type": "litelog", "path": path},
        "format": {"type": "csv_line"},
        "sink": {"type": "sqlite", "path": str(tmp_path / "messages.db")},
        "pipeline": {"name": "toy", "checkpoint": str(tmp_path / "checkpoint")},
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(pipeline))
    assert headrace(installed, "run", str(file), "--once").returncode == 0
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE orders SET v = 'b' WHERE id = 2")
        connection.execute("DELETE FROM orders WHERE id = 1")
    assert headrace(installed, "run", str(file), "--once").returncode == 0
    assert "capturing" in headrace(installed, "status", str(file)).stdout
    with closing(sqlite3.connect(tmp_path / "messages.db")) as connection:
        values = [value.decode() for (value,) in connection.execute("SELECT value FROM messages ORDER BY rowid")]
    assert values == [
        "r,shop,main,orders,*id=1,+id=1,+v=a",
        "r,shop,main,orders,*id=2,+id=2,+v",
        "u,shop,main,orders,*id=2,-id=2,-v,+id=2,+v=b",
        "d,shop,main,orders,*id=1,-id=1,-v=a",
    ]
