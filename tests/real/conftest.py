"""Programs that a run of the real producers needs, looked for before anything starts."""

from __future__ import annotations

import pytest
from tests.real.debezium_server import java_21

from headrace_emulators.engine.programs import program

PROGRAMS = {
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "postgres": "postgresql",
    "initdb": "postgresql",
    "psql": "postgresql-client",
}


@pytest.fixture(scope="session")
def installed() -> None:
    """Fail at once, with what to install, rather than leave a test out."""
    for name, package in PROGRAMS.items():
        program(name, package)
    java_21()
