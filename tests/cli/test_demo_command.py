"""The demo, small: it ends with the proof, and what it leaves can be run again."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.postgresql import needs_postgres
from typer import Typer
from typer.testing import CliRunner

from headrace.pipeline import load_pipeline
from headrace.testing.waiting import PATIENCE
from headrace_emulators.demo.command import demo
from headrace_emulators.postgresql.server import private_server


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": paths, "HEADRACE_TEST_CODEGEN": "1"}
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, env=environment, timeout=PATIENCE
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", ["sqlserver", *(pytest.param(n, marks=pytest.mark.soak) for n in ("db2", "oracle"))])
def test_the_shop_is_mirrored_and_its_pipeline_goes_on(spark: Any, tmp_path: Path, source: str) -> None:
    folder = tmp_path / "demo"
    chosen = ("--source", source, "--database", "shop")
    done = python("headrace", "demo", *chosen, "--seconds", "3", "--dir", str(folder))
    assert "mirror equals source" in done.stdout, done.stdout + done.stderr
    assert (done.returncode, done.stderr) == (0, "")
    batches = sorted((folder / "messages").glob("batch=*"))

    assert load_pipeline(folder / "pipeline.yaml").start(spark, once=True).wait(PATIENCE)
    assert sorted((folder / "messages").glob("batch=*")) == batches

    # What it left is read as it is, without a word about how it is spelled.
    (message, *_) = (file for file in sorted((folder / "messages").rglob("part-*")) if file.stat().st_size)
    decoded = python("headrace", "decode", str(message))
    assert decoded.returncode == 0, decoded.stderr
    assert "Input: records." in decoded.stderr
    assert "debezium_json" in decoded.stderr


@needs_postgres
@pytest.mark.soak
def test_a_real_postgresql_is_mirrored_and_its_pipeline_goes_on(spark: Any) -> None:
    # A folder that the server's user may enter, with a short path.
    with tempfile.TemporaryDirectory(prefix="hr-") as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "demo"
        done = python("headrace", "demo", "--source", "postgresql", "--seconds", "3", "--dir", str(folder))
        assert "mirror equals source" in done.stdout, done.stdout + done.stderr
        assert (done.returncode, done.stderr) == (0, "")
        batches = sorted((folder / "messages").glob("batch=*"))
        server = private_server(folder / "server")
        server.start()
        try:
            assert load_pipeline(folder / "pipeline.yaml").start(spark, once=True).wait(PATIENCE)
        finally:
            server.stop()
        assert sorted((folder / "messages").glob("batch=*")) == batches


def test_without_an_installed_postgresql_the_demo_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_emulators.postgresql.server.PROGRAMS", (("no-such-server", "postgresql"),) * 3)
    command = Typer()
    command.command()(demo)
    result = CliRunner().invoke(command, ["--source", "postgresql", "--dir", str(tmp_path / "demo")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "The program no-such-server is needed, and this machine does not have it. Run: apt-get install postgresql\n"
    )
