"""Replication slots: made at a moment that a snapshot shares, read by copies, moved only by acknowledgements; and what
is said when one can't be made, can't be read or has lost changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.support.postgresql import PostgresDatabase, PostgresServer, log_end, needs_postgres, postgres, settings_of

from headrace.errors import CaptureError, DataLossError, HeadraceError
from headrace.sources.connection import LostConnection
from headrace.sources.postgresql import slots
from headrace.sources.postgresql.connection import ReplicationConnection, connect
from headrace.sources.postgresql.refusals import PostgresError
from headrace.sources.postgresql.slots import SlotState, SlotWaits, copy_reader, created
from headrace.testing.waiting import until

OWN = "Made by Headrace for replication slot"


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> PostgresDatabase:
    """With a table and a publication that Headrace made."""
    prepare(postgres_database)
    return postgres_database


def prepare(database: PostgresDatabase) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute(f"CREATE PUBLICATION {database.name} FOR TABLE t")
    database.execute(f"COMMENT ON PUBLICATION {database.name} IS '{OWN} {database.name}'")


def make_slot(database: PostgresDatabase) -> int:
    """A slot named as the database; where it begins."""
    with created(settings_of(database), temporary=False, timeout_s=10) as made:
        return made.boundary


def slot_names(database: PostgresDatabase) -> list[str]:
    return [
        name
        for (name,) in database.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE database = current_database() ORDER BY 1"
        )
    ]


def state_of(database: PostgresDatabase) -> SlotState | None:
    with connect(settings_of(database)) as connection:
        return SlotState.of(connection, database.name)


def rows_of(session: ReplicationConnection, end: int) -> int:
    """How many rows the stream has before a place."""
    rows = 0
    while True:
        for payload in session.receive(1):
            if payload[0] == ord("k") and int.from_bytes(payload[1:9], "big") >= end:
                return rows
            rows += payload[:1] == b"w" and payload[25:26] == b"I"


# Making one.


@pytest.mark.parametrize("temporary", [False, True])
def test_the_snapshot_has_what_the_stream_has_not(database: PostgresDatabase, temporary: bool) -> None:
    database.execute("INSERT INTO t VALUES (1, 'before')")
    settings = settings_of(database)
    with created(settings, temporary=temporary, timeout_s=10) as made:
        database.execute("INSERT INTO t VALUES (2, 'after')")
        assert slot_names(database) == [made.name]
        with connect(settings) as connection:
            connection.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.run(f"SET TRANSACTION SNAPSHOT '{made.snapshot}'")
            assert connection.rows("SELECT id FROM public.t") == [(1,)]
    if temporary:
        until(lambda: not slot_names(database), "the slot is gone")
        return
    assert made.name == settings.slot
    with copy_reader(settings, made.boundary) as reader:
        assert rows_of(reader, log_end(database)) == 1


def test_a_slot_whose_snapshot_could_not_be_used_is_dropped(database: PostgresDatabase) -> None:
    with pytest.raises(ZeroDivisionError), created(settings_of(database), temporary=False, timeout_s=10):
        1 / 0  # noqa: B018
    assert slot_names(database) == []


def test_a_start_that_was_killed_before_its_first_batch_begins_again(database: PostgresDatabase) -> None:
    make_slot(database)
    database.execute("INSERT INTO t VALUES (1, 'x')")
    assert make_slot(database) >= log_end(database) - 4096
    assert slot_names(database) == [database.name]


def test_a_slot_that_gave_batches_is_not_made_again(database: PostgresDatabase) -> None:
    boundary = make_slot(database)
    with connect(settings_of(database)) as connection:
        slots.advance(connection, database.name, boundary)
    with pytest.raises(CaptureError) as caught:
        make_slot(database)
    assert str(caught.value) == (
        f"Replication slot '{database.name}' is there already, but this pipeline has no checkpoint that goes on from "
        "it. Name another one with the option 'slot', or, if nothing needs it, run: SELECT "
        f"pg_drop_replication_slot('{database.name}');"
    )


def test_a_slot_beside_a_publication_of_the_users_own_is_not_made_again(database: PostgresDatabase) -> None:
    database.execute(f"COMMENT ON PUBLICATION {database.name} IS 'mine'")
    make_slot(database)
    with pytest.raises(CaptureError, match="is there already"):
        make_slot(database)


def test_an_open_transaction_in_the_way_is_named(database: PostgresDatabase) -> None:
    with database.connect(application_name="nightly load") as busy:
        busy.execute("BEGIN")
        busy.execute("INSERT INTO t VALUES (1, 'x')")
        with pytest.raises(SlotWaits) as caught, created(settings_of(database), temporary=False, timeout_s=0.5):
            pass
        pid = busy.info.backend_pid
        assert f"waits for the transaction of pid {pid} (application 'nightly load'), which has" in str(caught.value)
        assert f"End it (SELECT pg_terminate_backend({pid});), or raise 'slot_creation_timeout_s'." in str(caught.value)
        until(lambda: not slot_names(database), "the slot is gone")
        busy.execute("ROLLBACK")
    assert make_slot(database)


def test_a_prepared_transaction_in_the_way_is_named(database: PostgresDatabase) -> None:
    database.execute("BEGIN; INSERT INTO t VALUES (1, 'x'); PREPARE TRANSACTION 'job 7'")
    with pytest.raises(SlotWaits) as caught, created(settings_of(database), temporary=True, timeout_s=0.5):
        pass
    assert "prepared transaction 'job 7'" in caught.value.message
    assert "ROLLBACK PREPARED 'job 7';" in caught.value.remedy


# Moving it.


def test_an_acknowledgement_only_goes_forward(database: PostgresDatabase) -> None:
    begin = make_slot(database)
    database.execute("INSERT INTO t VALUES (1, 'x')")
    end = log_end(database)
    with connect(settings_of(database)) as connection:
        for boundary, confirmed in ((begin, begin), (end, end), (begin, end)):
            slots.advance(connection, database.name, boundary)
            state = SlotState.of(connection, database.name)
            assert state is not None
            assert state.confirmed == confirmed


def test_reading_moves_no_slot_and_leaves_none(database: PostgresDatabase) -> None:
    begin = make_slot(database)
    database.execute("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 1000) g")
    end = log_end(database)
    settings = settings_of(database)
    with copy_reader(settings, begin) as one, copy_reader(settings, begin) as other:
        with connect(settings) as connection:
            slots.advance(connection, database.name, begin)
        assert (rows_of(one, end), rows_of(other, end)) == (1000, 1000)
        assert len(slot_names(database)) == 3
    state = state_of(database)
    assert state is not None
    assert (state.confirmed, state.active_pid) == (begin, None)
    until(lambda: slot_names(database) == [database.name], "the copies are gone")


def test_copies_are_made_while_acknowledgements_move_the_slot(database: PostgresDatabase) -> None:
    make_slot(database)
    settings, stop = settings_of(database), threading.Event()

    def acknowledge() -> None:
        with connect(settings) as connection:
            while not stop.is_set():
                slots.advance(connection, database.name, log_end(database))

    thread = threading.Thread(target=acknowledge)
    thread.start()
    try:
        for number in range(30):
            database.execute(f"INSERT INTO t VALUES ({number}, 'x')")
            with copy_reader(settings, 1 << 62):
                pass
    finally:
        stop.set()
        thread.join()


# What can't be read.


def dropped(database: PostgresDatabase) -> None:
    database.execute(f"SELECT pg_drop_replication_slot('{database.name}')")


def made_again(database: PostgresDatabase) -> None:
    dropped(database)
    database.execute("INSERT INTO t VALUES (1, 'x')")
    database.execute(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")


def moved(database: PostgresDatabase) -> None:
    database.execute("INSERT INTO t VALUES (1, 'x')")
    database.execute(f"SELECT pg_replication_slot_advance('{database.name}', pg_current_wal_lsn())")


def of_another_plugin(database: PostgresDatabase) -> None:
    dropped(database)
    database.execute(f"SELECT pg_create_logical_replication_slot('{database.name}', 'test_decoding')")


def physical(database: PostgresDatabase) -> None:
    dropped(database)
    database.execute(f"SELECT pg_create_physical_replication_slot('{database.name}', true)")


def with_two_phases(database: PostgresDatabase) -> None:
    dropped(database)
    database.execute(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput', false, true)")


def of_another_database(database: PostgresDatabase) -> None:
    dropped(database)
    with database.server.connect("live") as other:
        other.execute(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")


CHANGED: dict[Callable[[PostgresDatabase], None], tuple[type[HeadraceError], str]] = {
    dropped: (DataLossError, "is not there any more, and with it the changes since the last batch"),
    made_again: (DataLossError, "it was made again, or something else has moved it"),
    moved: (DataLossError, "it was made again, or something else has moved it"),
    of_another_plugin: (CaptureError, "belongs to the output plugin 'test_decoding', so it can't be read here"),
    physical: (CaptureError, "is a slot of physical replication, so it can't be read here"),
    with_two_phases: (CaptureError, r"sends prepared transactions before their commit \(two_phase\), so it can't"),
    of_another_database: (CaptureError, "belongs to database 'live', so it can't be read here"),
}


@pytest.mark.parametrize("change", CHANGED, ids=lambda change: change.__name__)
def test_a_slot_that_is_another_one_now_is_not_read(
    database: PostgresDatabase, change: Callable[[PostgresDatabase], None]
) -> None:
    begin = make_slot(database)
    change(database)
    kind, sentence = CHANGED[change]
    try:
        words = f"^Replication slot '{database.name}' .*{sentence}"
        with pytest.raises(kind, match=words), copy_reader(settings_of(database), begin):
            pass
    finally:
        with database.server.connect("live") as other:
            other.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
                (database.name,),
            )


@contextmanager
def own_server(**settings: str) -> Iterator[tuple[PostgresServer, PostgresDatabase]]:
    with postgres(**settings) as server:
        database = server.new_database()
        prepare(database)
        yield server, database


def lose(server: PostgresServer, database: PostgresDatabase) -> None:
    """Write until the server drops the log that the slot keeps."""

    def write() -> bool:
        database.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1, 'x' FROM t")
        with server.connect("postgres") as connection:
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
        state = state_of(database)
        return state is not None and state.is_lost

    until(write, "the slot is lost")


@pytest.mark.slow
@needs_postgres
def test_a_lost_slot_is_no_passing_trouble() -> None:
    with own_server(max_slot_wal_keep_size="1MB", min_wal_size="32MB", max_wal_size="32MB") as (server, database):
        begin = make_slot(database)
        settings = settings_of(database)
        with pytest.raises(DataLossError) as caught, copy_reader(settings, begin) as reader:
            lose(server, database)
            database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender'")
            while True:
                reader.receive(1)
        with connect(settings) as connection:
            reason = " (wal_removed)" if connection.version >= 170000 else ""
        assert str(caught.value) == (
            f"The server invalidated replication slot '{database.name}'{reason}: changes that were not read are gone. "
            "Set 'snapshot_mode' to when_needed, so that all tables are read again, or 'fail_on_data_loss' to false, "
            "so that the run goes on with a new slot and a gap. "
            "A larger max_slot_wal_keep_size keeps the log for longer."
        )
        with pytest.raises(DataLossError, match="invalidated"), copy_reader(settings, begin):
            pass
        with connect(settings) as connection, pytest.raises(PostgresError):
            slots.advance(connection, database.name, log_end(database))


def test_a_reader_that_is_ended_while_the_slot_is_good_may_try_again(database: PostgresDatabase) -> None:
    begin = make_slot(database)
    with (
        pytest.raises(LostConnection, match="The server ended a session"),
        copy_reader(settings_of(database), begin) as reader,
    ):
        database.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            "WHERE database = current_database() AND temporary"
        )
        while True:
            reader.receive(1)


@pytest.mark.slow
@needs_postgres
def test_without_a_free_slot_one_reader_streams_the_slot_itself() -> None:
    with own_server(max_replication_slots="1", wal_sender_timeout="1s") as (_, database):
        begin = make_slot(database)
        database.execute("INSERT INTO t VALUES (1, 'x')")
        settings, end = settings_of(database), log_end(database)
        with copy_reader(settings, begin) as reader:
            assert rows_of(reader, end) == 1
            with pytest.raises(CaptureError) as caught, copy_reader(settings, begin):
                pass
            assert f"is in use by process {reader.pid} (application 'headrace/{database.name}')" in str(caught.value)
            leave = threading.Timer(0.3, reader.close)
            leave.start()
            # It waits for a reader that is just leaving.
            with copy_reader(settings, begin) as next_reader:
                assert rows_of(next_reader, end) == 1
            leave.join()
        state = state_of(database)
        assert state is not None
        assert state.confirmed == begin
        full = pytest.raises(PostgresError, match="all replication slots are in use")
        with full as caught, created(settings, temporary=True, timeout_s=1):
            pass
        assert "ALTER SYSTEM SET max_replication_slots" in caught.value.remedy


@pytest.mark.slow
@needs_postgres
def test_a_server_without_logical_decoding_says_how_to_switch_it_on() -> None:
    with own_server(wal_level="replica") as (_, database):
        with pytest.raises(CaptureError, match="wal_level") as caught:
            make_slot(database)
        assert "ALTER SYSTEM SET wal_level = logical; and restart the server" in caught.value.remedy


@pytest.mark.slow
@needs_postgres
def test_senders_that_are_used_up_are_named() -> None:
    with own_server(max_wal_senders="1") as (_, database):
        begin = make_slot(database)
        until(lambda: not database.execute("SELECT 1 FROM pg_stat_replication"), "the sender is free")
        settings, refused = settings_of(database), pytest.raises(HeadraceError, match="All of max_wal_senders")
        with copy_reader(settings, begin), refused as caught, copy_reader(settings, begin):
            pass
        assert "ALTER SYSTEM SET max_wal_senders" in caught.value.remedy
