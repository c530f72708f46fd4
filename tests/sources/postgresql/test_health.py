"""The health of a PostgreSQL source: what the slot keeps and how much may follow, what waits, and what is lost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.postgresql import PostgresDatabase, log_end, needs_postgres, postgres, settings_of, standby_of

from headrace.sources.health import CaptureState, Health
from headrace.sources.offset import Offset
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.checks import HealthProbe
from headrace.sources.postgresql.connection import connect
from headrace.sources.postgresql.slots import created
from headrace.sources.postgresql.stream_state import LogState, StreamState
from headrace.sources.postgresql.types import TypeCatalog
from headrace.testing.waiting import until


def prepare(database: PostgresDatabase) -> Offset:
    """A table, its publication and slot, and an offset that has all."""
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION {database.name} FOR TABLE t")
    database.execute("CREATE TABLE other (id int PRIMARY KEY)")
    with created(settings_of(database), temporary=False, timeout_s=10):
        pass
    return delivered(database)


def delivered(database: PostgresDatabase) -> Offset:
    with connect(settings_of(database)) as connection:
        state = StreamState(LogState.of(connection, settings_of(database)), "", TypeCatalog())
    end = Offset(source="s", commit=lsn.commit_before(log_end(database)), known=("public.t",), initial=False)
    return state.in_offset(end)


def of_log(offset: Offset, **changes: Any) -> Offset:
    state = StreamState.of(offset)
    return replace(state, log=replace(state.log, **changes)).in_offset(offset)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (lambda offset: replace(offset, commit=lsn.commit_before(2**62)), "it was restored from a backup"),
        (lambda offset: of_log(offset, timeline=7), "a standby was promoted, or a backup restored"),
        (lambda offset: of_log(offset, system="1"), "was written with another server"),
    ],
)
def test_a_restored_server_is_said_as_a_run_says_it(
    postgres_database: PostgresDatabase, after: Callable[[Offset], Offset], words: str
) -> None:
    health = ask(postgres_database, after(prepare(postgres_database)), snapshot_mode="when_needed")
    assert (health.state, health.lost) == (CaptureState.NOT_CAPTURING, ())
    assert words in health.sentence
    assert "new snapshot" in health.remedy


def ask(database: PostgresDatabase, offset: Offset | None, **options: str) -> Health:
    return HealthProbe(settings_of(database, **options)).ask(offset)


def test_before_the_first_batch_it_is_whether_the_server_can_be_read(postgres_database: PostgresDatabase) -> None:
    health = ask(postgres_database, None)
    assert (health.state, health.behind_seconds, health.retained_bytes) == (CaptureState.CAPTURING, 0, None)


def test_without_an_offset_it_is_what_the_slot_keeps(postgres_database: PostgresDatabase) -> None:
    prepare(postgres_database)
    health = ask(postgres_database, None)
    assert health.retained_bytes is not None
    assert (health.state, health.waiting_since, health.quiet_until) == (CaptureState.CAPTURING, None, None)
    assert (
        "max_slot_wal_keep_size sets no bound, so a pipeline that rests long fills the server's disk" in health.sentence
    )


def test_a_server_that_is_away_is_unknown(postgres_database: PostgresDatabase) -> None:
    health = ask(postgres_database, None, port="1")
    assert health.state is CaptureState.UNKNOWN
    assert "can't be reached" in health.sentence


def test_the_oldest_change_that_waits_is_known_and_what_others_write_is_not_one(
    postgres_database: PostgresDatabase,
) -> None:
    offset = prepare(postgres_database)
    health = ask(postgres_database, offset)
    assert (health.state, health.waiting_since, health.lost) == (CaptureState.CAPTURING, None, ())
    assert health.quiet_until == health.checked
    postgres_database.execute("INSERT INTO other SELECT generate_series(1, 1000)")
    health = ask(postgres_database, offset)
    assert (health.waiting_since, health.quiet_until) == (None, health.checked)
    assert health.retained_bytes is not None
    assert health.retained_bytes > 50_000
    postgres_database.execute("INSERT INTO t VALUES (1)")
    postgres_database.execute("INSERT INTO t VALUES (2)")
    health = ask(postgres_database, offset)
    assert health.checked is not None
    assert health.waiting_since is not None
    assert dt.timedelta() < health.checked - health.waiting_since < dt.timedelta(seconds=30)
    assert health.quiet_until is None
    assert ask(postgres_database, delivered(postgres_database)).waiting_since is None


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT pg_drop_replication_slot('{name}')", "is not there any more"),
        (
            "INSERT INTO t VALUES (1); SELECT pg_replication_slot_advance('{name}', pg_current_wal_insert_lsn())",
            "something else has moved it",
        ),
        ("DROP PUBLICATION {name}", "Publication '{name}' is not there any more"),
    ],
)
def test_what_is_lost_is_said_of_all_tables(postgres_database: PostgresDatabase, sql: str, words: str) -> None:
    offset = prepare(postgres_database)
    for statement in sql.split("; "):
        postgres_database.execute(statement.format(name=postgres_database.name))
    health = ask(postgres_database, offset)
    assert (health.state, health.lost, health.at_risk) == (CaptureState.NOT_CAPTURING, ("public.t",), True)
    assert words.format(name=postgres_database.name) in health.sentence
    assert "'snapshot_mode' to when_needed" in health.remedy


@pytest.mark.system
@needs_postgres
def test_how_much_log_may_follow_shrinks_until_the_slot_is_lost() -> None:
    with postgres(max_slot_wal_keep_size="32MB", min_wal_size="32MB", max_wal_size="32MB") as server:
        database = server.new_database()
        offset = prepare(database)
        first = ask(database, offset)
        assert first.headroom_bytes is not None
        assert "; it may keep " in first.sentence
        assert first.headroom_bytes > 0
        assert not first.at_risk
        seen: list[Health] = []

        def write() -> bool:
            database.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t")
            with server.connect("postgres") as connection:
                connection.execute("SELECT pg_switch_wal()")
                seen.append(ask(database, offset))
                connection.execute("CHECKPOINT")
            return bool(ask(database, offset).lost)

        until(write, "the slot is lost")
        lefts = [health.headroom_bytes for health in seen]
        assert all(left is not None for left in lefts)
        assert lefts == sorted(lefts, key=lambda left: -(left or 0))
        last = seen[-1]
        assert (last.at_risk, last.lost) == (True, ())
        assert "more than max_slot_wal_keep_size allows; the next checkpoint may drop it" in last.sentence
        assert "ALTER SYSTEM SET max_slot_wal_keep_size = " in last.remedy
        assert "invalidated" in ask(database, offset).sentence


@pytest.mark.slow
@needs_postgres
def test_a_standby_and_a_server_without_logical_decoding_do_not_capture() -> None:
    with postgres(wal_level="replica") as server:
        database = server.new_database()
        health = ask(database, None)
        assert (health.state, "wal_level" in health.sentence) == (CaptureState.NOT_CAPTURING, True)
        assert "ALTER SYSTEM SET wal_level = logical" in health.remedy
        with standby_of(server) as standby:
            health = ask(database, None, port=str(standby.port))
            assert (health.state, "is a standby" in health.sentence) == (CaptureState.NOT_CAPTURING, True)


def test_a_transaction_that_keeps_the_log_is_named(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.postgresql.checks._MUCH", 0)
    offset = prepare(postgres_database)
    with postgres_database.connect(application_name="nightly load") as busy:
        busy.execute("BEGIN; INSERT INTO other VALUES (1)")
        words = f"for the transaction of process {busy.info.backend_pid} (application 'nightly load'), open for"
        assert words in ask(postgres_database, offset).sentence
    postgres_database.execute("BEGIN; INSERT INTO other VALUES (2); PREPARE TRANSACTION 'job 8'")
    assert "for the prepared transaction 'job 8'," in ask(postgres_database, offset).sentence
