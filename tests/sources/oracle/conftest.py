"""The emulated database that scenarios run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.emulators.oracle import EmulatedOracle


@pytest.fixture
def database(tmp_path) -> Iterator[EmulatedOracle]:
    with EmulatedOracle(tmp_path / "server") as made:
        made.run(
            "CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME VARCHAR2(50), CREDIT NUMBER(12,2))",
            "ALTER TABLE CUSTOMERS ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
        )
        yield made
