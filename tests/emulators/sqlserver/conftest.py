"""Databases of the emulator, each in a folder of its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_emulators.sqlserver import EmulatedDatabase, EmulatedServer


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = dt.datetime(2024, 5, 6, 7, 8, 9, 123456)

    def __call__(self) -> dt.datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += dt.timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(tmp_path: Path) -> EmulatedServer:
    return EmulatedServer(tmp_path / "server")


@pytest.fixture
def database(server: EmulatedServer, clock: Clock) -> Iterator[EmulatedDatabase]:
    with server.create_database("testDB", clock=clock) as made:
        yield made


@pytest.fixture
def items(database: EmulatedDatabase) -> EmulatedDatabase:
    """A captured table dbo.items(id, name, amount)."""
    database.execute(
        "CREATE TABLE dbo.items (id int NOT NULL PRIMARY KEY, name varchar(20) NULL, amount decimal(9,2) NULL)"
    )
    database.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'items', @role_name = NULL")
    database.capture()
    return database
