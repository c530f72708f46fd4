"""Rule: a run goes on at a standby that took over only when it has everything that was read; otherwise it stops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.captured_postgres import CapturedPostgres
from tests.support.postgresql import PostgresServer, StandbyServer, needs_postgres, postgres, standby_of

from headrace.errors import DataLossError, HeadraceError, PositionMismatch
from headrace.testing.captured_database import Run, data
from headrace.testing.waiting import until

pytestmark = [needs_postgres, pytest.mark.slow, pytest.mark.system]


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[StandbyServer]:
    with standby_of(primary) as server:
        yield server


@pytest.fixture
def database(primary: PostgresServer) -> CapturedPostgres:
    made = CapturedPostgres(primary.new_database())
    made.create("t", "id int not null primary key, v varchar(20)", [(1, "one")])
    return made


def took_over(run: Run, standby: StandbyServer, database: CapturedPostgres, slot: bool = True) -> Run:
    """The same run on the standby, which took over; somebody made the slot there."""
    standby.promote()
    with standby.connect(database.database.name) as connection:
        if slot:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (run.options["slot"],))
    return run.restarted(port=standby.port)


def followed(standby: StandbyServer, database: CapturedPostgres) -> None:
    [(end,)] = database.database.execute("SELECT pg_current_wal_lsn()::text")

    def there() -> bool:
        with standby.connect("postgres") as connection:
            return bool(connection.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (end,)).fetchone()[0])

    until(there, "the standby has everything")


def test_a_standby_that_lacks_what_was_read_stops_the_run(database: CapturedPostgres, standby: StandbyServer) -> None:
    run = database.run()
    run.all()
    followed(standby, database)
    # The standby is cut off, and the run reads more.
    with standby.connect("postgres") as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
    until(
        lambda: (
            database.database.execute("SELECT count(*) FROM pg_stat_replication WHERE application_name = 'walreceiver'")
            == [(0,)]
        ),
        "the standby is cut off",
    )
    database.insert("t", 2, "gone")
    assert [row["id"] for _, _, row in data(run.all())] == ["2"]
    run = took_over(run, standby, database)
    with standby.connect(database.database.name) as connection:
        # As many changes as make the log longer than it was.
        connection.execute("INSERT INTO t SELECT n, 'other' FROM generate_series(3, 5000) n")
    with pytest.raises((DataLossError, PositionMismatch)) as caught:
        run.batch()
    assert caught.value.remedy


def test_a_standby_without_the_slot_stops_the_run(database: CapturedPostgres, standby: StandbyServer) -> None:
    run = database.run()
    run.all()
    followed(standby, database)
    run = took_over(run, standby, database, slot=False)
    with pytest.raises(DataLossError) as caught:
        run.batch()
    assert caught.value.remedy


def test_a_slot_that_was_made_after_changes_of_the_standby_stops_the_run(
    database: CapturedPostgres, standby: StandbyServer
) -> None:
    run = database.run()
    run.all()
    database.insert("t", 2, "not read yet")
    followed(standby, database)
    run = took_over(run, standby, database)
    with pytest.raises(DataLossError):
        run.batch()


def test_a_standby_that_was_not_promoted_is_refused(database: CapturedPostgres, standby: StandbyServer) -> None:
    run = database.run()
    followed(standby, database)
    with pytest.raises(HeadraceError, match="recovery") as caught:
        run.restarted(port=standby.port).batch()
    assert caught.value.remedy
