"""The demo, small: it ends with the proof, and what it leaves can be run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline import load_pipeline
from headrace.testing.waiting import PATIENCE


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
