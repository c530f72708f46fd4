"""Programs that a run of the real producers needs, looked for before anything starts."""

from __future__ import annotations

import pytest
from tests.real.debezium_server import java_21

from headrace.errors import ConnectError
from headrace_emulators.mysql import server as mariadb
from headrace_emulators.postgresql import server as postgresql


@pytest.fixture(scope="session")
def installed() -> None:
    """Fail at once, with what to install, rather than leave a test out."""
    for lacking in (mariadb.missing(), postgresql.missing()):
        if lacking:
            raise ConnectError(lacking)
    java_21()
