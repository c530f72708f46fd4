"""Guards: a server that is not where a pipeline left it stops the pipeline before a row is wrong, with a sentence that
says what happened and what to do. The server itself would answer each of these with silence.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.postgresql import (
    PostgresDatabase,
    log_end,
    needs_postgres,
    postgres,
    settings_of,
    standby_of,
)

from headrace.errors import CaptureError, DataLossError, HeadraceError, PositionMismatch
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.connection import connect
from headrace.sources.postgresql.guards import ServerState, judge, require_same_log
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.publication import Member, PublicationState
from headrace.sources.postgresql.refusals import Endpoint
from headrace.sources.postgresql.slots import AFTER_LOSS, SlotState, created
from headrace.sources.postgresql.stream_state import LogState
from headrace.testing.waiting import until

SETTINGS = PostgresSettings(database="shop")
BEFORE = LogState("77", 1, "headrace", "headrace", 9, members={100: 1, 200: 2})
SLOT = SlotState("headrace", database="shop", restart=0x4000, confirmed=0x5000, wal_status="reserved")
PUBLICATION = PublicationState("headrace", 9, members={100: Member(1, '"public"."a"'), 200: Member(2, '"public"."b"')})
NOW = ServerState(Endpoint("db:5432", "shop", "cdc", replicates=False), "77", False, 1, 0x9000, (), SLOT, PUBLICATION)
BOUNDARY = 0x6000
NEW_CHECKPOINT = "Use another checkpoint, which begins with a new snapshot."


@pytest.mark.parametrize(
    "now",
    [
        NOW,
        replace(NOW, slot=replace(SLOT, confirmed=BOUNDARY, wal_status="extended")),
        replace(NOW, slot=replace(SLOT, wal_status="unreserved", safe_bytes=-5)),
        replace(NOW, timeline=3, switches=((1, BOUNDARY), (2, 0x7000))),
        replace(NOW, flushed=BOUNDARY),
        replace(NOW, publication=replace(PUBLICATION, members={100: Member(1, "a"), 300: Member(7, "c")})),
    ],
)
def test_a_server_that_still_has_all_is_read_on(now: ServerState) -> None:
    judge(now, BEFORE, BOUNDARY, SETTINGS)


STOPS: list[tuple[str, ServerState, type[HeadraceError], str]] = [
    (
        "another server",
        replace(NOW, system="88"),
        PositionMismatch,
        "The checkpoint was written with another server than 'db:5432': its system identifier was 77, here it is 88. "
        f"Set 'hostname' and 'port' to the server that it belongs to. {NEW_CHECKPOINT}",
    ),
    (
        "standby",
        replace(NOW, in_recovery=True),
        CaptureError,
        "Server 'db:5432' is a standby, whose log can't be read. Set 'hostname' to the primary server.",
    ),
    (
        "promoted before it had all",
        replace(NOW, timeline=2, switches=((1, BOUNDARY - 1),)),
        PositionMismatch,
        "Changes were read up to 0/6000 on timeline 1, which server 'db:5432' left at 0/5FFF: a standby was promoted, "
        f"or a backup restored, without the last of them. {NEW_CHECKPOINT}",
    ),
    (
        "an older timeline",
        replace(NOW, timeline=2, switches=()),
        PositionMismatch,
        "Changes were read up to 0/6000 on timeline 1, which server 'db:5432' left before it had them: a standby was "
        f"promoted, or a backup restored, without the last of them. {NEW_CHECKPOINT}",
    ),
    (
        "restored",
        replace(NOW, flushed=BOUNDARY - 1),
        PositionMismatch,
        "Changes were read up to 0/6000, but the log of server 'db:5432' ends at 0/5FFF: it was restored from a "
        f"backup. {NEW_CHECKPOINT}",
    ),
    (
        "slot dropped",
        replace(NOW, slot=None),
        DataLossError,
        "Replication slot 'headrace' is not there any more, and with it the changes since the last batch. "
        f"{AFTER_LOSS}",
    ),
    (
        "slot lost",
        replace(NOW, slot=replace(SLOT, wal_status="lost")),
        DataLossError,
        "The server invalidated replication slot 'headrace': changes that were not read are gone. "
        f"{AFTER_LOSS} A larger max_slot_wal_keep_size keeps the log for longer.",
    ),
    (
        "slot invalidated (17)",
        replace(NOW, slot=replace(SLOT, invalidated="idle_timeout")),
        DataLossError,
        "The server invalidated replication slot 'headrace' (idle_timeout): changes that were not read are gone. "
        f"{AFTER_LOSS} A larger max_slot_wal_keep_size keeps the log for longer.",
    ),
    (
        "slot moved or made again",
        replace(NOW, slot=replace(SLOT, confirmed=BOUNDARY + 1)),
        DataLossError,
        "Replication slot 'headrace' begins at 0/6001, and the next batch at 0/6000: it was made again, or something "
        f"else has moved it, and the changes between are gone. Give each pipeline a slot of its own. {AFTER_LOSS}",
    ),
    (
        "slot of another plugin",
        replace(NOW, slot=replace(SLOT, plugin="wal2json")),
        CaptureError,
        "Replication slot 'headrace' belongs to the output plugin 'wal2json', so it can't be read here. Name another "
        "one with the option 'slot'; it is made at the first start.",
    ),
    (
        "publication dropped",
        replace(NOW, publication=None),
        DataLossError,
        "Publication 'headrace' is not there any more, so the server can't decode the changes before. " + AFTER_LOSS,
    ),
    (
        "publication made again",
        replace(NOW, publication=replace(PUBLICATION, oid=10)),
        DataLossError,
        "Publication 'headrace' was dropped and made again, so the server can't decode the changes before. "
        + AFTER_LOSS,
    ),
    (
        "fewer operations",
        replace(NOW, publication=replace(PUBLICATION, operations=("insert", "update"))),
        DataLossError,
        "Publication 'headrace' does not publish delete, truncate any more. Run: ALTER PUBLICATION \"headrace\" SET "
        f"(publish = 'insert, update, delete, truncate'); {AFTER_LOSS}",
    ),
    (
        "partitions under other names",
        replace(NOW, publication=replace(PUBLICATION, via_root=False)),
        DataLossError,
        "Publication 'headrace' names the tables of partitions in another way than before. Run: ALTER PUBLICATION "
        f'"headrace" SET (publish_via_partition_root = true); {AFTER_LOSS}',
    ),
]


@pytest.mark.parametrize(("now", "kind", "sentence"), [case[1:] for case in STOPS], ids=[case[0] for case in STOPS])
def test_a_server_that_is_not_where_it_was_left_stops_the_run(
    now: ServerState, kind: type[HeadraceError], sentence: str
) -> None:
    with pytest.raises(kind) as caught:
        judge(now, BEFORE, BOUNDARY, SETTINGS)
    assert type(caught.value) is kind
    assert str(caught.value) == sentence


def test_a_promoted_server_that_has_all_is_read_on_under_its_own_timeline() -> None:
    now = replace(NOW, timeline=3, switches=((1, BOUNDARY), (2, 0x7000)))
    log = judge(now, BEFORE, BOUNDARY, SETTINGS)
    assert log == replace(BEFORE, timeline=3)
    # Behind the place where the timelines changed, too.
    assert judge(now, log, BOUNDARY + 0x2000, SETTINGS) == log


def test_a_table_that_was_out_of_the_publication_is_known_by_its_membership() -> None:
    assert replace(BEFORE, members={100: 1, 200: 5, 300: 6}).rejoined(BEFORE) == {200, 300}
    assert BEFORE.rejoined(replace(BEFORE, members={})) == set(), "all tables were in it"


def test_another_publication_by_name_is_refused() -> None:
    with pytest.raises(DataLossError, match="The option 'publication' names 'other', but the checkpoint was written"):
        judge(NOW, BEFORE, BOUNDARY, SETTINGS.replaced(publication="other"))


def test_the_state_of_the_log_comes_back_from_a_checkpoint() -> None:
    assert LogState.from_json(BEFORE.to_json()) == BEFORE


# A real server.


class Reader:
    """A pipeline that has read a database up to a boundary."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self.settings = settings_of(database)
        database.execute(f"CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION {database.name} FOR TABLE t")
        with created(self.settings, temporary=False, timeout_s=10) as made:
            self.boundary = made.boundary
        with connect(self.settings) as connection:
            self.state = LogState.of(connection, self.settings)

    def require(self, **options: str) -> None:
        settings = settings_of(self.database, **options)
        with connect(settings) as connection:
            require_same_log(connection, settings, self.state, lsn.commit_before(self.boundary))

    def read_on(self) -> None:
        self.database.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1, 'x' FROM t")
        self.boundary = log_end(self.database)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT pg_drop_replication_slot('{name}')", "is not there any more"),
        ("SELECT pg_replication_slot_advance('{name}', pg_current_wal_lsn())", "made again, or something else"),
        ("DROP PUBLICATION {name}", "Publication '{name}' is not there any more"),
        (
            "DROP PUBLICATION {name}; CREATE PUBLICATION {name} FOR TABLE t",
            "Publication '{name}' was dropped and made again",
        ),
        ("ALTER PUBLICATION {name} SET (publish = 'insert')", "does not publish update, delete, truncate"),
    ],
)
def test_what_happens_to_slot_and_publication_is_found(
    postgres_database: PostgresDatabase, sql: str, words: str
) -> None:
    reader = Reader(postgres_database)
    postgres_database.execute("INSERT INTO t VALUES (1, 'x')")
    reader.require()
    postgres_database.execute(sql.format(name=postgres_database.name))
    with pytest.raises(DataLossError, match=words.format(name=postgres_database.name)):
        reader.require()


def test_a_table_that_was_taken_out_and_put_in_again_is_seen(postgres_database: PostgresDatabase) -> None:
    reader, name = Reader(postgres_database), postgres_database.name
    postgres_database.execute(f"ALTER PUBLICATION {name} DROP TABLE t; ALTER PUBLICATION {name} ADD TABLE t")
    reader.require()
    [(oid,)] = postgres_database.execute("SELECT 't'::regclass::oid::bigint")
    with connect(reader.settings) as connection:
        assert LogState.of(connection, reader.settings).rejoined(reader.state) == {oid}


def test_a_role_without_rights_on_tables_can_ask(postgres_database: PostgresDatabase) -> None:
    postgres_database.execute("DROP ROLE IF EXISTS asker; CREATE ROLE asker LOGIN REPLICATION")
    Reader(postgres_database).require(user="asker")


@pytest.mark.slow
@needs_postgres
def test_a_standby_is_refused_and_a_promoted_one_only_read_where_it_has_all() -> None:
    with postgres() as primary:
        reader = Reader(primary.new_database())
        with standby_of(primary) as standby, standby.connect(reader.database.name) as follower:

            def answers(question: str) -> bool:
                return bool(follower.execute(question).fetchone()[0])

            reader.read_on()
            place = lsn.to_server(reader.boundary)
            until(lambda: answers(f"SELECT pg_last_wal_replay_lsn() >= '{place}'"), "the standby has it")
            reader.require()
            with pytest.raises(CaptureError, match="is a standby"):
                reader.require(port=str(standby.port))
            had_all = reader.boundary
            with standby.changed(primary_conninfo=""):
                until(lambda: answers("SELECT count(*) = 0 FROM pg_stat_wal_receiver"), "it is cut off")
                reader.read_on()
                standby.promote()
            with pytest.raises(PositionMismatch, match="a standby was promoted, or a backup restored"):
                reader.require(port=str(standby.port))
            # With all that was read it is the same log, but the slot did not come along.
            reader.boundary = had_all
            with pytest.raises(DataLossError, match="is not there any more"):
                reader.require(port=str(standby.port))
