"""Rule: a commit that is on its way through a server's log and engine is neither lost nor a reason to stop.

A distributed transaction is on its way for as long as its owner likes, from where it is prepared on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.captured_mysql import CapturedMysql

from headrace.testing.captured_database import data
from headrace.testing.waiting import until
from headrace_emulators.mysql.server import MySqlDatabase

T = "id int not null primary key, v varchar(20)"


@pytest.fixture
def database(mysql_database: MySqlDatabase) -> CapturedMysql:
    return CapturedMysql(mysql_database)


def keys(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["id"]) for _, _, row in data(rows))


def test_what_is_written_and_not_synced_is_waited_for(database: CapturedMysql) -> None:
    database.create("t", T, [(0, "a")])
    run = database.run()
    rows = run.all()

    def write(first: int) -> None:
        for n in range(first, first + 4):
            database.insert("t", n, "a")

    writers = [threading.Thread(target=write, args=(first,)) for first in (1, 11, 21)]
    # MySQL waits for half a second between the write of its log and the sync of it.
    with database.database.server.changed(sync_binlog=1, binlog_group_commit_sync_delay=500_000):
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            rows += run.all()
        for writer in writers:
            writer.join()
    rows += run.all()
    assert keys(rows) == [0, *range(1, 5), *range(11, 15), *range(21, 25)]


@pytest.fixture
def unconfirmed(database: CapturedMysql) -> Iterator[CapturedMysql]:
    """There is no replica to confirm a commit, so the first one hangs behind the log until the time is over."""
    server = database.database.server
    database.create("t", T)
    server.run("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
    server.run("SET GLOBAL rpl_semi_sync_source_timeout = 3000, GLOBAL rpl_semi_sync_source_enabled = ON")
    yield database
    server.run("UNINSTALL PLUGIN rpl_semi_sync_source")


def test_what_was_read_before_its_commit_is_done_is_still_of_the_same_log(unconfirmed: CapturedMysql) -> None:
    run, server = unconfirmed.run(snapshot_mode="no_data"), unconfirmed.database.server
    run.all()
    before = server.log_end
    writer = threading.Thread(target=unconfirmed.insert, args=("t", 1, "a"))
    writer.start()
    until(lambda: server.log_end != before, "the commit is in the log")
    assert keys(run.all()) == [1]
    assert run.all() == []
    assert run.restarted().all() == []
    assert writer.is_alive()
    writer.join()
    unconfirmed.insert("t", 2, "b")
    assert keys(run.all()) == [2]
