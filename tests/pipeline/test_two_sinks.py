"""One capture, transformed, to two sinks with routes of their own; the page that shows it runs as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pages import run_page

pytestmark = pytest.mark.system


def test_the_pages_code_runs_as_it_stands(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_page(spark, "routes-and-transforms.md", blocks=4)
    salt = (tmp_path / "routes" / "salt").read_text()
    loaded = names["headrace"].load_pipeline(names["pipeline"])
    assert salt not in repr(loaded._model.targets) and salt not in loaded.hide(f"x {salt}")
