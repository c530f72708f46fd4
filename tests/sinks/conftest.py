"""Database servers that are started once, and fault points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.databases import KINDS, Running, fresh_database, serving

from headrace.testing.faults import arming


@pytest.fixture(scope="session", params=KINDS)
def database_server(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    with serving(request.param) as server:
        yield request.param, server


@pytest.fixture
def database(database_server: tuple[str, Any]) -> Running:
    return fresh_database(*database_server)


@pytest.fixture
def large_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lakehouse tables are merged as if they were large, with conditions by which files are skipped."""
    monkeypatch.setattr("headrace.sinks.lake.table.SMALL_TARGET", -1)


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return arming(tmp_path, monkeypatch)
