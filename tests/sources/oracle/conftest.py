"""The emulated database that scenarios run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headrace_emulators.oracle import EmulatedOracle, driver


@pytest.fixture
def database(tmp_path) -> Iterator[EmulatedOracle]:
    with EmulatedOracle(tmp_path / "server") as made:
        made.run(
            "CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME VARCHAR2(50), CREDIT NUMBER(12,2))",
            "ALTER TABLE CUSTOMERS ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
        )
        yield made


@pytest.fixture
def session(database):
    with database.connect() as made:
        yield made


@pytest.fixture
def mined(monkeypatch) -> Callable[[], list[tuple[int, int]]]:
    """The ranges of SCN that were mined since it was last asked."""
    statements: list = []
    monkeypatch.setattr(driver, "QUERY_LOG", statements)

    def ranges():
        found = [(p["low"], p["high"]) for sql, p in statements if "START_LOGMNR" in sql]
        statements.clear()
        return found

    return ranges
