"""Rule: a snapshot's lock keeps everybody out, and a statement that waits too long is given up. Only a real server can
show it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.live.server import EXAMPLE, URL, LiveServer, settings_from
from tests.support.sqlserver_statements import table_called

from headrace.changes import TableId
from headrace.errors import CaptureError, ConnectError
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.connection import SqlServerConnection

LIVE = settings_from()
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(LIVE is None, reason=f"no SQL Server to run on: set {URL}, for example {EXAMPLE}"),
]


@pytest.fixture
def connect():
    server = LiveServer(LIVE)
    with server.create_database("shop") as database:
        database.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")

        def connected(**settings):
            return SqlServerConnection(LIVE["driver"], {**database.settings, **settings})

        yield connected
    server.close()


def the_table():
    made = table_called("t")
    return replace(made, schema=replace(made.schema, id=TableId("shop", "dbo", "t")))


@pytest.mark.parametrize("rows", [0, 3])
def test_the_lock_of_a_snapshot_keeps_everybody_out_until_it_is_released(connect, rows):
    with connect() as session, connect() as other:
        for number in range(rows):
            session.run("INSERT INTO dbo.t VALUES (?)", (number,))
        session.begin()
        session.run(statements.lock(the_table()))
        other.run(statements.lock_timeout(0))
        with pytest.raises(CaptureError, match=r"(?i)lock request time ?out"):
            other.rows("SELECT COUNT(*) FROM dbo.t WITH (READCOMMITTEDLOCK)")
        session.end()
        assert other.value("SELECT COUNT(*) FROM dbo.t WITH (READCOMMITTEDLOCK)") == rows


def test_a_statement_that_waits_too_long_is_given_up_soon_after_its_time(connect):
    with connect() as session, connect(query_timeout_ms="3000") as other:
        session.begin()
        session.run(statements.lock(the_table()))
        begun = time.monotonic()
        with pytest.raises(ConnectError, match="No answer from"):
            other.rows("SELECT COUNT(*) FROM dbo.t WITH (READCOMMITTEDLOCK)")
        assert time.monotonic() - begun < 10
