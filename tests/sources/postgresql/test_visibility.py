"""Rule: a row is read beside the stream only when everything can be seen that the log has up to the batch's end."""

from __future__ import annotations

import threading
import time

import pytest
from tests.support.postgresql import needs_postgres, postgres
from tests.support.postgresql_tables import session

from headrace.sources.postgresql.visibility import Visibility, next_xid
from headrace.testing.waiting import until


@pytest.fixture
def table(postgres_database):
    postgres_database.execute("CREATE TABLE t (v int)")
    return postgres_database


def test_nothing_is_waited_for_where_nobody_writes(table):
    with session(table) as connection, table.connect() as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t")
        begun = time.monotonic()
        assert Visibility().wait_for(connection) is None
        assert time.monotonic() - begun < 1


def test_the_next_number_is_the_one_that_the_next_transaction_has(table):
    with session(table) as connection, table.connect() as writer:
        upto = next_xid(connection)
        assert next_xid(connection) == upto
        ((given,),) = writer.execute("SELECT pg_current_xact_id()::text").fetchall()
        assert upto <= int(given) <= upto + 5
        # Others may have written meanwhile, such as a cleaner; but never before.
        assert next_xid(connection) > int(given)


def test_a_transaction_that_wrote_and_is_open_is_waited_for_and_named(table):
    with session(table) as connection, table.connect(application_name="nightly") as writer:
        writer.execute("BEGIN; INSERT INTO t VALUES (1)")
        ((xid,),) = writer.execute("SELECT pg_current_xact_id()::text").fetchall()
        visibility, begun = Visibility(), time.monotonic()
        sentence = f"Transaction {xid} of session {writer.info.backend_pid} (nightly, user cdc) is open."
        assert visibility.wait_for(connection) == sentence
        assert time.monotonic() - begun >= 2
        # It is waited for once: the stream does not stop two seconds at each batch.
        again = time.monotonic()
        assert visibility.wait_for(connection) == sentence
        assert time.monotonic() - again < 1
        writer.execute("COMMIT")
        until(lambda: visibility.wait_for(connection) is None, "the transaction ended")


def test_the_wait_ends_with_the_transaction(table):
    with session(table) as connection, table.connect() as writer:
        writer.execute("BEGIN; INSERT INTO t VALUES (1)")
        ending = threading.Timer(0.3, writer.execute, ["COMMIT"])
        ending.start()
        assert Visibility().wait_for(connection) is None
        ending.join()
        assert connection.value("SELECT count(*) FROM public.t") == 1


def test_a_prepared_transaction_is_named(table):
    with session(table) as connection:
        table.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'two phases'")
        assert "is prepared as 'two phases' and not ended." in (Visibility().wait_for(connection) or "")
        table.execute("ROLLBACK PREPARED 'two phases'")
        assert Visibility().wait_for(connection) is None


@pytest.mark.slow
@needs_postgres
def test_a_commit_that_waits_for_a_synchronous_standby_is_in_the_log_and_not_seen():
    with postgres() as server:
        database = server.new_database()
        database.execute("CREATE TABLE t (v int)")
        with session(database) as connection, server.changed(synchronous_standby_names="nobody"):
            until(
                lambda: connection.value("SHOW synchronous_standby_names") == "nobody", "the server knows the standby"
            )
            # Commits wait once the checkpointer has read it too, which it does before each checkpoint.
            for _ in range(2):
                database.execute("CHECKPOINT")
            writer = threading.Thread(target=database.execute, args=("INSERT INTO t VALUES (1)",))
            with database.connect() as other:
                other.execute("SET synchronous_commit = local")
                writer.start()
                waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                until(lambda: other.execute(waiting).fetchall(), "the commit waits")
                assert connection.value("SELECT count(*) FROM public.t") == 0
                assert "waits for a synchronous standby" in (Visibility().wait_for(connection) or "")
        writer.join()
