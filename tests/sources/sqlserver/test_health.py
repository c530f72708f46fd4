"""Rule: a source says whether it captures, up to when, and how long clean-up leaves us; the unseen is unknown."""

from __future__ import annotations

import datetime as dt

import pytest

from headrace.errors import CaptureError
from headrace.sources.base import Limit
from headrace.sources.databases import Databases
from headrace.sources.health import CaptureState, Health, combined, span_text
from headrace.sources.offset import Offset
from headrace.sources.reader import source_named
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.checks import HealthProbe
from headrace_emulators.sqlserver import EmulatedServer

ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{}', @role_name = NULL"
DAY = 24 * 3600


def ago(**span):
    return lambda: dt.datetime.now(dt.UTC).replace(tzinfo=None) - dt.timedelta(**span)


@pytest.fixture
def server(tmp_path):
    return EmulatedServer(tmp_path / "server")


@pytest.fixture
def database(server):
    with server.create_database("shop", clock=ago(days=10)) as made:
        made.execute("CREATE TABLE dbo.[t] (id int not null primary key)")
        made.execute(ENABLE.format("t"))
        made.capture()
        yield made


def insert(database, key, **span):
    """A row, committed and captured some time ago."""
    database.clock = ago(**span)
    database.execute("INSERT INTO dbo.t VALUES (?)", (key,))
    database.capture()


def source(database, /, **options):
    path = database.path
    return source_named(
        "sqlserver", {"driver": "emulator", "hostname": str(path.parent), "database": path.stem} | options
    )


def snapshot(source):
    offset = source.advance(Offset.nothing(), Limit(), dt.datetime.now(dt.UTC))
    while (end := source.advance(offset, Limit(), dt.datetime.now(dt.UTC))) != offset:
        offset = end
    return offset


def refusing(database, *refused, answers=()):
    """A probe whose login lacks the permission for some statements; it also counts what was asked.

    Args:
        database: the database.
        refused: statements that the server refuses.
        answers: what the server says to others that the emulator does not know, or says differently.
    """
    made = source(database)
    asked = []

    class Refusing:
        def __init__(self):
            self.real = made._connect()
            self.dialect, self.statements = self.real.dialect, self.real.statements

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.real.close()

        def rows(self, sql, parameters=()):
            asked.append(sql)
            if sql in refused:
                raise CaptureError("VIEW SERVER STATE permission was denied.")
            if sql in dict(answers):
                return dict(answers)[sql]
            return self.real.rows(sql, parameters)

        def row(self, sql, parameters=()):
            return next(iter(self.rows(sql, parameters)), None)

        def value(self, sql, parameters=()):
            return self.real.value(sql, parameters)

    return HealthProbe(Refusing, made.settings), asked


def test_a_job_that_has_just_read_the_log_captures(database):
    insert(database, 1, seconds=0)
    health = source(database).health()
    assert (health.state, health.remedy, health.not_seen) == (CaptureState.CAPTURING, "", ())
    assert health.behind_seconds < 30
    assert health.retention_seconds == 3 * DAY
    assert health.headroom_seconds is None


def test_an_empty_scan_shows_that_an_old_commit_is_the_newest(database):
    insert(database, 1, days=1)
    database.clock = ago(seconds=0)
    database.capture()
    health = source(database).health()
    assert health.state is CaptureState.CAPTURING
    assert health.behind_seconds < 30


def test_the_agent_stopped_is_told_at_once(server, database):
    insert(database, 1, seconds=0)
    watched = source(database)
    assert watched.health().state is CaptureState.CAPTURING
    server.set_agent(running=False)
    health = watched.health()
    assert (health.state, health.sentence) == (CaptureState.NOT_CAPTURING, "SQL Server Agent is stopped.")
    assert health.remedy.startswith("Start the service SQL Server Agent")
    server.set_agent(running=True)
    assert watched.health().state is CaptureState.CAPTURING


def test_a_job_that_no_longer_reads_does_not_capture(database):
    insert(database, 1, minutes=7, seconds=20)
    health = source(database).health()
    assert (health.state, health.sentence) == (
        CaptureState.NOT_CAPTURING,
        "The capture job has not read the log for 7 min.",
    )
    assert "sp_cdc_start_job" in health.remedy


def test_a_job_that_reads_old_commits_lags(database):
    database.clock = ago(hours=2, seconds=20)
    database.execute("INSERT INTO dbo.t VALUES (1)")
    database.clock = ago(seconds=0)
    database.capture()
    health = source(database).health()
    assert (health.state, health.sentence) == (CaptureState.LAGGING, "The capture job is 2 h behind.")
    assert 7190 < health.behind_seconds < 7300


def test_without_sight_of_scans_only_marks_count(database):
    unseen = (statements.AGENT, statements.NEWEST_SCAN)
    insert(database, 1, minutes=8)
    probe, _ = refusing(database, *unseen)
    health = probe.ask(None)
    # An idle server leaves a mark every five minutes, so this may still be one.
    assert health.state is CaptureState.CAPTURING
    assert health.not_seen == (
        "SQL Server Agent (needs VIEW SERVER STATE)",
        "the capture job's scans (needs VIEW DATABASE STATE)",
    )


def test_without_sight_of_scans_what_moves_lags_and_what_stands_does_not_capture(database):
    insert(database, 1, hours=3, seconds=20)
    probe, _ = refusing(database, statements.AGENT, statements.NEWEST_SCAN)
    assert probe.ask(None).sentence == "Nothing was captured for 3 h."
    insert(database, 2, hours=2, seconds=20)
    assert (probe.ask(None).state, probe.ask(None).sentence) == (
        CaptureState.LAGGING,
        "The capture job is 2 h behind.",
    )


def test_what_was_refused_is_not_asked_every_time(database):
    insert(database, 1, seconds=0)
    probe, asked = refusing(database, statements.AGENT, statements.JOBS, statements.JOBS_TABLE)
    first, second = probe.ask(None), probe.ask(None)
    assert asked.count(statements.AGENT) == 1
    assert first.not_seen == second.not_seen
    assert (first.state, first.retention_seconds) == (CaptureState.CAPTURING, None)


def test_jobs_are_looked_up_in_their_table_where_the_procedure_is_refused(database):
    insert(database, 1, seconds=0)
    probe, _ = refusing(database, statements.JOBS)
    health = probe.ask(None)
    assert (health.retention_seconds, health.not_seen) == (3 * DAY, ())


def test_a_login_without_permissions_on_the_server_still_gets_an_answer(database):
    insert(database, 1, seconds=0)
    for view in ("sys.dm_server_services", "sys.dm_cdc_log_scan_sessions"):
        database.execute(f"DENY SELECT ON {view} TO reader")
    health = source(database, user="reader").health()
    assert health.state is CaptureState.CAPTURING
    assert [part.partition(" (")[0] for part in health.not_seen] == ["SQL Server Agent", "the capture job's scans"]


def test_without_sight_of_the_polling_interval_a_minute_is_allowed_for(database):
    unseen = (statements.JOBS, statements.JOBS_TABLE)
    insert(database, 1, seconds=100)
    assert refusing(database, *unseen)[0].ask(None).state is CaptureState.CAPTURING
    assert refusing(database)[0].ask(None).state is CaptureState.NOT_CAPTURING
    insert(database, 2, seconds=170)
    assert refusing(database, *unseen)[0].ask(None).state is CaptureState.NOT_CAPTURING


def jobs(capture=True, continuous=True, polling=5):
    rows = [("id", "cleanup", "job", 0, 0, False, 0, 4320, 5000)]
    return [*rows, ("id", "capture", "job", 500, 10, continuous, polling, 0, 0)] if capture else rows


def test_a_job_on_a_schedule_may_rest(database):
    insert(database, 1, minutes=8)
    resting, _ = refusing(database, answers={statements.JOBS: jobs(continuous=False)})
    assert resting.ask(None).state is CaptureState.CAPTURING
    slow, _ = refusing(database, answers={statements.JOBS: jobs(polling=300)})
    assert slow.ask(None).state is CaptureState.CAPTURING


def test_a_capture_job_that_is_missing_is_told_unless_something_else_captures(database):
    gone = {statements.JOBS: jobs(capture=False), statements.NEWEST_SCAN: []}
    insert(database, 1, hours=1)
    health = refusing(database, answers=gone)[0].ask(None)
    assert health.sentence == "Database 'shop' has no capture job."
    assert "sp_cdc_add_job" in health.remedy
    # Transactional replication reads the log in its place.
    insert(database, 2, seconds=0)
    assert refusing(database, answers=gone)[0].ask(None).state is CaptureState.CAPTURING


def test_a_scan_that_failed_and_one_that_goes_on(database):
    insert(database, 1, hours=1)
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    failed, _ = refusing(database, answers={statements.NEWEST_SCAN: [(now, 0, 0, 3)]})
    assert failed.ask(None).sentence == "The capture job's last scan of the log failed."
    reading, _ = refusing(database, answers={statements.NEWEST_SCAN: [(None, 0, 0, 0)]})
    assert reading.ask(None).state is CaptureState.LAGGING


def test_the_size_of_the_log_is_asked_while_capture_is_not_well(server, database):
    insert(database, 1, seconds=0)
    probe, asked = refusing(database, answers={statements.LOG_USED: [(5 * 2**20,)]})
    assert probe.ask(None).log_used_bytes is None
    assert statements.LOG_USED not in asked
    server.set_agent(running=False)
    assert probe.ask(None).log_used_bytes == 5 * 2**20


def test_a_readable_secondary_is_not_judged_by_its_own_agent(server, database):
    insert(database, 1, seconds=0)
    server.set_agent(running=False)
    health = source(database, application_intent="ReadOnly").health()
    assert health.state is CaptureState.CAPTURING
    assert "primary replica" in health.not_seen[0]


def test_a_database_without_capture_and_one_that_is_not_there(server, database):
    with server.create_database("plain", enable_cdc=False) as plain:
        health = source(plain).health()
    assert health.state is CaptureState.NOT_CAPTURING
    assert "sp_cdc_enable_db" in health.remedy
    health = source(database, hostname="/nowhere").health()
    assert (health.state, health.remedy[:16]) == (CaptureState.UNKNOWN, "Check 'hostname'")
    assert health.sentence.startswith("The source can't be asked: ")


def test_headroom_is_what_clean_up_leaves_to_the_oldest_change_that_waits(database):
    read = source(database)
    offset = snapshot(read)
    insert(database, 1, hours=60)
    insert(database, 2, hours=1)
    health = read.health(offset)
    # datetime counts in 1/300 s, so a commit may stand a moment later than it was.
    assert 12 * 3600 - 60 < health.headroom_seconds < 12 * 3600 + 1
    assert (health.headroom_is_small, health.at_risk) == (True, False)
    health = read.health(snapshot(read))
    assert (health.headroom_seconds, health.waiting_since, health.headroom_is_small) == (3 * DAY, None, False)


def test_headroom_counts_the_table_that_is_furthest_behind(database):
    read = source(database, snapshot_chunk_rows=1, snapshot_chunks_per_batch=1)
    insert(database, 1, hours=71)
    insert(database, 2, hours=70)
    begun = read.advance(Offset.nothing(), Limit(), dt.datetime.now(dt.UTC))
    insert(database, 3, hours=60)
    insert(database, 4, seconds=0)
    assert not begun.is_level
    assert 11 * 3600 < read.health(begun).headroom_seconds < 12 * 3600 + 1


def test_a_change_that_is_older_than_the_retention_is_at_risk(database):
    read = source(database)
    offset = snapshot(read)
    insert(database, 1, days=4)
    assert read.health(offset).at_risk


def test_changes_that_are_needed_and_deleted_are_lost(database):
    read = source(database)
    offset = snapshot(read)
    insert(database, 1, days=5)
    insert(database, 2, seconds=0)
    assert read.health(offset).lost == ()
    database.cleanup(retention=dt.timedelta(days=3))
    health = read.health(offset)
    assert (health.lost, health.headroom_seconds, health.at_risk) == (("dbo.t",), 0.0, True)


def test_initial_only_waits_for_nothing(database):
    read = source(database, snapshot_mode="initial_only")
    offset = snapshot(read)
    insert(database, 1, days=4)
    health = read.health(offset)
    assert (health.headroom_seconds, health.waiting_since, health.lost) == (None, None, ())


def test_several_databases_say_the_worst(server, database):
    insert(database, 1, seconds=0)
    with server.create_database("stock", clock=ago(minutes=9, seconds=20)) as other:
        other.capture()
        healths = Databases(source(database, database="shop,stock")).health(None)
    assert {name: health.state.value for name, health in healths.items()} == {
        "shop": "capturing",
        "stock": "not capturing",
    }
    worst = combined(healths)
    assert worst.state is CaptureState.NOT_CAPTURING
    assert worst.sentence == "Database 'stock': The capture job has not read the log for 9 min."
    assert worst.behind_seconds == healths["stock"].behind_seconds


def test_one_health_and_none():
    assert combined({}) == Health()
    assert combined({"a": Health(sentence="x")}).sentence == "x"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (61, "1 min"),
        (3600, "1 h"),
        (4320, "1 h 12 min"),
        (86400, "1 d"),
        (100000, "1 d 3 h"),
    ],
)
def test_spans_in_words(seconds, text):
    assert span_text(seconds) == text
