"""The server that scenarios run on: an emulated one, and a real one where the environment names it (docs/live.md).

A test that asks for `server`, or for a `database` of it, is run on both, and is marked `live` on the real one. One that
needs what only the emulator can do says so: `@pytest.mark.emulated("why")`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.server import EXAMPLE, URL, LiveServer, settings_from

from headrace_emulators.sqlserver import EmulatedServer

LIVE = settings_from()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" not in metafunc.fixturenames:
        return
    places = [pytest.param("emulator", id=pytest.HIDDEN_PARAM)]
    if metafunc.definition.get_closest_marker("emulated") is None:
        marks = [pytest.mark.live]
        if LIVE is None:
            marks.append(pytest.mark.skip(f"no SQL Server to run on: set {URL}, for example {EXAMPLE} (docs/live.md)"))
        places.append(pytest.param("live", id="live", marks=marks))
    metafunc.parametrize("place", places)


@pytest.fixture
def place() -> str:
    """Which server it is; each test is given its own by `pytest_generate_tests`."""
    raise AssertionError("the test was not made for any server")


@pytest.fixture
def server(place: str, tmp_path: Path) -> Iterator[EmulatedServer | LiveServer]:
    if place == "emulator":
        yield EmulatedServer(tmp_path / "server")
        return
    assert LIVE is not None
    live = LiveServer(LIVE)
    try:
        yield live
    finally:
        live.close()


@pytest.fixture
def database(server: EmulatedServer | LiveServer) -> Iterator[Any]:
    with server.create_database("shop") as made:
        yield made
