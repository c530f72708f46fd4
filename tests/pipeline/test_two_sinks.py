"""One capture, transformed, to two sinks with routes of their own; the page that shows it runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "routes-and-transforms.md"


def test_the_pages_code_runs_as_it_stands(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        # The session of the suite, because a second one in the same process would be the first one anyway.
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["spark"].sparkContext is spark.sparkContext
    salt = (tmp_path / "routes" / "salt").read_text()
    loaded = names["headrace"].load_pipeline(names["pipeline"])
    assert salt not in repr(loaded._model.targets) and salt not in loaded.hide(f"x {salt}")
