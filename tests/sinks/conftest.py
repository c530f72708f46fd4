"""The rows made by hand (`change_history`) on the path, and database servers that are started once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.databases import KINDS, Running, fresh_database, serving

sys.path.append(str(Path(__file__).parents[1] / "apply"))


@pytest.fixture(scope="session", params=KINDS)
def database_server(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    with serving(request.param) as server:
        yield request.param, server


@pytest.fixture
def database(database_server: tuple[str, Any]) -> Running:
    return fresh_database(*database_server)


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets fault points, each for its first time only."""

    def armed(points: str) -> None:
        folder = tmp_path / "faults"
        folder.mkdir(exist_ok=True)
        monkeypatch.setenv("HEADRACE_FAULT_DIR", str(folder))
        monkeypatch.setenv("HEADRACE_FAULTPOINTS", points)

    return armed
