"""The demo, small: it ends with the proof, and what it leaves can be run again."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.mysql import needs_mariadb
from tests.support.postgresql import needs_postgres
from typer import Typer
from typer.testing import CliRunner

from headrace.pipeline import load_pipeline
from headrace.testing.waiting import PATIENCE
from headrace_emulators.demo.command import demo
from headrace_emulators.engine import programs
from headrace_emulators.engine.archives import RELEASE


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": paths, "HEADRACE_TEST_CODEGEN": "1"}
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, env=environment, timeout=PATIENCE
    )


@pytest.mark.system
@pytest.mark.parametrize("source", ["sqlserver", *(pytest.param(n, marks=pytest.mark.soak) for n in ("db2", "oracle"))])
def test_the_shop_is_mirrored_and_its_pipeline_goes_on(
    spark: Any, tmp_path: Path, source: str, record_property: Callable[[str, object], None]
) -> None:
    folder = tmp_path / "demo"
    chosen = ("--source", source, "--database", "shop")
    done = python("headrace", "demo", *chosen, "--seconds", "3", "--dir", str(folder))
    assert "mirror equals source" in done.stdout, done.stdout + done.stderr
    assert (done.returncode, done.stderr) == (0, "")
    # For the page of what ran on which release of Spark.
    record_property("demo", re.findall("mirror equals source: .* rows", done.stdout)[0])
    batches = sorted((folder / "messages").glob("batch=*"))

    assert load_pipeline(folder / "pipeline.yaml").start(spark, once=True).wait(PATIENCE)
    assert sorted((folder / "messages").glob("batch=*")) == batches

    # What it left is read as it is, without a word about how it is spelled.
    (message, *_) = (file for file in sorted((folder / "messages").rglob("part-*")) if file.stat().st_size)
    decoded = python("headrace", "decode", str(message))
    assert decoded.returncode == 0, decoded.stderr
    assert "Input: records." in decoded.stderr
    assert "debezium_json" in decoded.stderr


@pytest.mark.parametrize(
    "source", [pytest.param("postgresql", marks=needs_postgres), pytest.param("mariadb", marks=needs_mariadb)]
)
@pytest.mark.soak
def test_a_real_server_is_mirrored_and_its_pipeline_goes_on(spark: Any, source: str) -> None:
    # A folder that the server's user may enter, with a short path.
    with tempfile.TemporaryDirectory(prefix="hr-") as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "demo"
        done = python("headrace", "demo", "--source", source, "--seconds", "3", "--dir", str(folder))
        assert "mirror equals source" in done.stdout, done.stdout + done.stderr
        assert (done.returncode, done.stderr) == (0, "")
        batches = sorted((folder / "messages").glob("batch=*"))
        # What it says that one may try now.
        (again,) = (line.strip() for line in done.stdout.splitlines() if line.endswith("server.log 2>&1 &"))
        server = subprocess.Popen(["sh", "-c", f"exec {again.removesuffix(' &')}"], cwd=folder / "server")
        try:
            assert load_pipeline(folder / "pipeline.yaml").start(spark, once=True).wait(PATIENCE)
        finally:
            server.terminate()
            server.wait(PATIENCE)
        assert sorted((folder / "messages").glob("batch=*")) == batches


@pytest.mark.parametrize(
    ("source", "server", "lacking", "package"),
    [
        ("postgresql", "PostgreSQL", "initdb", "postgresql"),
        ("mariadb", "MariaDB", "mariadbd", "mariadb-server"),
    ],
)
def test_a_machine_that_can_run_no_server_is_told_before_anything_is_downloaded_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, server: str, lacking: str, package: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(programs.shutil, "which", lambda name: None)
    monkeypatch.setattr(programs, "_WHERE", ())
    monkeypatch.delenv(RELEASE[server], raising=False)
    command = Typer()
    command.command()(demo)
    result = CliRunner().invoke(command, ["--source", source, "--dir", str(tmp_path / "demo")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"The program {lacking} is needed, and this machine does not have it. Maven has no archive of {server} for "
        f"this machine (linux, riscv64). Run: apt-get install {package}, or use --source sqlserver, "
        "which is emulated.\n"
    )
    assert not (tmp_path / "demo").exists()
