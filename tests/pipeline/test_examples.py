"""The examples are pipelines that load."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline import load_pipeline

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=[file.stem for file in EXAMPLES])
def test_examples_load(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SALES_PASSWORD", "hunter2")
    pipeline = load_pipeline(file)
    assert pipeline.name.startswith("sales")
    assert "hunter2" not in repr(pipeline) + repr(pipeline._model)
