"""Rule: a commit's local time becomes the instant that it was, through every change of the server's clock, however the
commits are cut into batches and slices; and where the server's zone comes from."""

import datetime as dt
import logging
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.support.sqlserver_runs import Run, create

from headrace.errors import OptionError
from headrace.observe.completeness import of_tables
from headrace.sources.base import Limit
from headrace.sources.change_tables import clock, lsn
from headrace.sources.change_tables.clock import CommitClock, ServerZone
from headrace.sources.change_tables.connection import PassingRefusal, StatementError
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.dialect import SqlServer
from headrace.sources.sqlserver.options import SqlServerSettings
from headrace_emulators.sqlserver import EmulatedServer

VIENNA, NEW_YORK, LORD_HOWE = "Europe/Vienna", "America/New_York", "Australia/Lord_Howe"


def at(text):
    return dt.datetime.fromisoformat(text)


def utc(text):
    return at(text).replace(tzinfo=dt.UTC)


def local_times(*texts):
    return pa.array([at(text) for text in texts], pa.timestamp("us"))


# Names of zones.


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("Europe/Vienna", "Europe/Vienna"),
        ("UTC", "UTC"),
        ("+02:00", "+02:00"),
        ("-05:30", "-05:30"),
        ("W. Europe Standard Time", "Europe/Berlin"),
        (" w. europe standard time ", "Europe/Berlin"),
        ("Eastern Standard Time", "America/New_York"),
    ],
)
def test_zones_are_named_by_iana_by_windows_or_by_an_offset(text, zone):
    assert clock.parse_timezone(text) == zone


@pytest.mark.parametrize("text", ["", "Europe", "Europe/Atlantis", "2 hours", "+2", "Never Standard Time", "../etc"])
def test_what_names_no_zone_is_refused(text):
    with pytest.raises(ValueError, match="no time zone is called"):
        clock.parse_timezone(text)


# Pure functions.


@pytest.mark.parametrize(
    ("zone", "times", "hours"),
    [
        (VIENNA, ["2026-10-25 02:30"], [("2026-10-25 02:00", "2026-10-25 03:00")]),
        (VIENNA, ["2026-10-25 02:00"], [("2026-10-25 02:00", "2026-10-25 03:00")]),
        (VIENNA, ["2026-10-25 02:59:59.997"], [("2026-10-25 02:00", "2026-10-25 03:00")]),
        (VIENNA, ["2026-10-25 01:59:59.997", "2026-10-25 03:00"], []),
        (VIENNA, ["2026-03-29 02:30"], []),
        (NEW_YORK, ["2026-11-01 01:30", "2026-11-01 01:31"], [("2026-11-01 01:00", "2026-11-01 02:00")]),
        (NEW_YORK, ["2026-03-08 02:30"], []),
        (LORD_HOWE, ["2026-04-05 01:45"], [("2026-04-05 01:30", "2026-04-05 02:00")]),
        (
            VIENNA,
            ["2026-10-25 02:10", "2025-10-26 02:50", "2026-10-25 02:40"],
            [("2025-10-26 02:00", "2025-10-26 03:00"), ("2026-10-25 02:00", "2026-10-25 03:00")],
        ),
        ("+02:00", ["2026-10-25 02:30"], []),
    ],
)
def test_the_hours_that_a_clock_shows_twice(zone, times, hours):
    found = clock.repeated_hours(local_times(*times), zone)
    assert found == [clock.RepeatedHour(at(begin), at(end)) for begin, end in hours]


@pytest.mark.parametrize(
    ("zone", "local", "first", "second"),
    [
        (VIENNA, "2026-10-25 01:59", "2026-10-24 23:59", None),
        (VIENNA, "2026-10-25 02:00", "2026-10-25 00:00", "2026-10-25 01:00"),
        (VIENNA, "2026-10-25 02:59", "2026-10-25 00:59", "2026-10-25 01:59"),
        (VIENNA, "2026-10-25 03:00", "2026-10-25 02:00", None),
        (VIENNA, "2026-03-29 01:59", "2026-03-29 00:59", None),
        (VIENNA, "2026-03-29 02:30", "2026-03-29 01:00", None),
        (VIENNA, "2026-03-29 03:00", "2026-03-29 01:00", None),
        (NEW_YORK, "2026-11-01 01:30", "2026-11-01 05:30", "2026-11-01 06:30"),
        (NEW_YORK, "2026-11-01 02:00", "2026-11-01 07:00", None),
        (NEW_YORK, "2026-03-08 01:59", "2026-03-08 06:59", None),
        (NEW_YORK, "2026-03-08 03:00", "2026-03-08 07:00", None),
        ("-05:30", "2026-11-01 01:30", "2026-11-01 07:00", None),
    ],
)
def test_what_a_local_time_can_mean(zone, local, first, second):
    readings = [reading[0].as_py() for reading in clock.readings(local_times(local), zone)]
    assert readings == [utc(first), utc(second or first)]


@pytest.mark.parametrize(
    ("begun", "ended", "instant"),
    [
        ("2026-10-25 02:30", "2026-10-25 00:31", "2026-10-25 00:30"),
        ("2026-10-25 02:50", "2026-10-25 01:05", "2026-10-25 00:50"),
        ("2026-10-25 02:30", "2026-10-25 01:31", "2026-10-25 01:30"),
        ("2026-10-25 01:59", "2026-10-25 01:31", "2026-10-24 23:59"),
    ],
)
def test_a_transaction_began_at_the_last_reading_before_its_end(begun, ended, instant):
    found = clock.begin_instants(local_times(begun), VIENNA, pa.array([utc(ended)]))
    assert found.to_pylist() == [utc(instant)]


def test_times_that_are_missing_stay_missing():
    times = pa.array([None, at("2026-10-25 02:30")], pa.timestamp("us"))
    turn = clock.Turn(clock.RepeatedHour(at("2026-10-25 02:00"), at("2026-10-25 03:00")), "a", "a")
    assert clock.repeated_hours(times, VIENNA) == [turn.hour]
    found = clock.to_instants(times, VIENNA, pa.array(["a", "a"]), (turn,))
    assert found.to_pylist() == [None, utc("2026-10-25 01:30")]


# Commits in the order of their LSNs.


@pytest.fixture(scope="module")
def mapping(tmp_path_factory):
    """A database whose mapping of commits the test writes itself."""
    with EmulatedServer(tmp_path_factory.mktemp("server")).create_database("shop") as made:
        yield made


def instants(mapping, zone, times, *, slices=((0, None),)):
    """What local times in the order of commits mean, read in slices of commits."""
    mapping.execute("DELETE FROM cdc.lsn_time_mapping")
    rows = [(f"0x{0x10000 + n:020x}", time.isoformat(" ", "milliseconds")) for n, time in enumerate(times)]
    values = ", ".join(f"({number}, '{time}', '{time}', 0x01, {number})" for number, time in rows)
    mapping.execute(
        "INSERT INTO cdc.lsn_time_mapping (start_lsn, tran_begin_time, tran_end_time, tran_id, tran_begin_lsn) "
        f"VALUES {values}"
    )
    commits = [lsn.to_text(bytes.fromhex(number[2:])) for number, _ in rows]
    found = []
    with Run(mapping).source._connect() as connection:
        for low, high in slices:
            server = CommitClock(connection, zone)
            part = server.ends(pa.array(commits[low:high]), pa.array(times[low:high], pa.timestamp("us")))
            found += part.to_pylist()
    return found


@pytest.mark.parametrize(
    ("zone", "night", "times", "expected"),
    [
        # Autumn: the clock is seen to go back.
        (VIENNA, "2026-10-25", "01:59 02:00 02:30 02:59 02:00 02:30 02:59 03:00", "-1 0 30 59 60 90 119 120"),
        (VIENNA, "2026-10-25", "02:30 02:05 02:40", "30 65 100"),
        (VIENNA, "2026-10-25", "02:59:59.997 02:00:00.003 03:00", "59:59.997 60:00.003 120"),
        # Commits of the same milliseconds in another order than their times.
        (VIENNA, "2026-10-25", "02:30:00.010 02:30:00.003 02:31", "30:00.010 30:00.003 31"),
        (
            VIENNA,
            "2026-10-25",
            "02:58 02:59:59.993 02:00:00.003 02:59:59.997 02:00:00.007 02:01 02:59:59.997 03:00:00.003 02:59:59.993",
            "58 59:59.993 60:00.003 59:59.997 60:00.007 61 119:59.997 120:00.003 119:59.993",
        ),
        (VIENNA, "2026-10-25", "02:30 03:00:00.003 02:59:59.997", "30 120:00.003 119:59.997"),
        # Nothing shows which reading is meant: the first, so nothing is complete too early.
        (VIENNA, "2026-10-25", "02:10 02:20 03:10", "10 20 130"),
        # Spring: nothing is repeated.
        (VIENNA, "2026-03-29", "01:59 03:00 03:30", "59 60 90"),
        (NEW_YORK, "2026-03-08", "01:59 03:00 03:30", "419 420 450"),
        (NEW_YORK, "2026-11-01", "00:59 01:00 01:59 01:00 01:30 02:00", "299 300 359 360 390 420"),
    ],
)
def test_the_second_reading_begins_where_times_go_back(mapping, zone, night, times, expected):
    shown = [at(f"{night} {time}") for time in times.split()]
    begin = utc(f"{night} 00:00")
    minutes = [part.partition(":") for part in expected.split()]
    meant = [begin + dt.timedelta(minutes=int(m), seconds=float(s or 0)) for m, _, s in minutes]
    assert instants(mapping, zone, shown) == meant
    each = [(n, n + 1) for n in range(len(shown))]
    assert instants(mapping, zone, shown, slices=each) == meant
    for upto in range(1, len(shown) + 1):
        # What is not captured yet changes nothing of what is.
        assert instants(mapping, zone, shown[:upto]) == meant[:upto]


@settings(max_examples=examples(40), deadline=None)
@given(
    night=st.sampled_from([(VIENNA, "2026-10-25 01:00"), (NEW_YORK, "2026-11-01 06:00"), (VIENNA, "2026-03-29 01:00")]),
    before=st.integers(1, 7_200),
    gaps=st.lists(st.integers(10, 290_000) | st.integers(200_000, 290_000), min_size=20, max_size=60),
    cut=st.integers(1, 19),
)
def test_instants_follow_the_commits_through_any_night(mapping, night, before, gaps, cut):
    zone, change = night
    meant = [utc(change) - dt.timedelta(seconds=before)]
    for gap in gaps:
        meant.append(meant[-1] + dt.timedelta(milliseconds=gap - gap % 10))
    shown = [time.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for time in meant]
    assert instants(mapping, zone, shown, slices=[(0, cut), (cut, None)]) == meant


# The source.


@pytest.fixture
def night(tmp_path):
    """A night of commits, one every twenty minutes of the hour that comes twice; and when they truly were."""
    begin = utc("2026-10-24 23:50")
    with EmulatedServer(tmp_path / "server").create_database("shop") as made:
        made.clock = lambda: at("2026-10-24 12:00")
        create(made, "t", "id int not null primary key")
        times = [begin + dt.timedelta(minutes=20 * number) for number in range(9)]

        def commit():
            for number, time in enumerate(times):
                shown = time.astimezone(ZoneInfo(VIENNA)).replace(tzinfo=None)
                made.clock = lambda shown=shown: shown
                made.execute(f"INSERT INTO dbo.t VALUES ({number})")
                made.capture()

        yield made, commit, times


@pytest.mark.parametrize(
    "options",
    [
        {"commits_per_slice": 2},
        {"max_commits_per_trigger": 1},
        {"max_commits_per_trigger": 4, "commit_time": "begin"},
        {"provide_transaction_metadata": "true", "commits_per_slice": 3},
    ],
    ids=["slices", "batches", "begin", "transactions"],
)
def test_a_night_with_a_repeated_hour_has_the_same_instants_however_it_is_cut(night, options):
    database, commit, times = night
    run = Run(database, server_timezone="W. Europe Standard Time", snapshot_mode="no_data", **options)
    run.batch()
    commit()
    assert [row["event_time"] for row in run.all() if row["op"] == "c"] == times
    assert (run.offset.commit_time, run.offset.clock) == (times[-1], "Europe/Berlin")


def test_a_backlog_over_a_clock_change_is_never_called_complete_too_early(night):
    database, commit, times = night
    run = Run(database, server_timezone=VIENNA, snapshot_mode="no_data", max_commits_per_trigger=1)
    run.batch()
    commit()
    for time in times:
        # Long after.
        end = run.source.advance(run.offset, Limit(), utc("2026-10-26 12:00"))
        assert of_tables(end) == {"dbo.t": time}
        run.offset = end


def test_a_commit_whose_reading_can_no_longer_be_told_is_still_the_same_commit(night):
    database, commit, times = night
    run = Run(database, server_timezone=VIENNA, snapshot_mode="no_data", max_commits_per_trigger=6)
    run.batch()
    commit()
    run.batch()
    assert run.offset.commit_time == times[5] == utc("2026-10-25 01:30")
    database.execute("DELETE FROM cdc.lsn_time_mapping WHERE start_lsn < ?", (lsn.to_bytes(run.offset.commit),))
    assert [row["event_time"] for row in run.all() if row["op"] == "c"][-2:] == times[-2:]


def test_outside_of_a_repeated_hour_nothing_more_is_asked(night, monkeypatch, tmp_path):
    database, _, _ = night
    run = Run(database, server_timezone=VIENNA, snapshot_mode="no_data")
    run.batch()
    database.clock = lambda: at("2026-10-25 03:00")
    database.execute("INSERT INTO dbo.t VALUES (1)")
    database.capture()
    log = tmp_path / "queries"
    monkeypatch.setenv("HEADRACE_EMULATOR_QUERY_LOG", str(log))
    assert [row["event_time"] for row in run.all() if row["op"] == "c"] == [utc("2026-10-25 02:00")]
    assert "peak" not in log.read_text()


def test_health_reads_the_repeated_hour_in_the_order_of_commits(night):
    database, commit, times = night
    commit()
    # 02:30 for the second time; the emulator's clock is in UTC.
    database.execute("DELETE FROM cdc.lsn_time_mapping WHERE tran_end_time >= '2026-10-25 03:00'")
    source = Run(database, server_timezone=VIENNA).source
    assert source.health().captured_until == times[6] == utc("2026-10-25 01:50")


# The server's zone.


class Server:
    """A server that answers what is asked of its clock."""

    dialect, statements = SqlServer(), statements

    def __init__(self, major, edition, zone, minutes=120):
        self.version, self.zone, self.minutes, self.asked = (major, edition), zone, minutes, []

    def rows(self, sql, parameters=()):
        self.asked.append(sql)
        if sql == statements.TIME_AND_CLOCK:
            return [(at("2026-07-01 12:00"), self.minutes)]
        if sql == statements.SERVER_VERSION:
            return [self.version]
        if isinstance(self.zone, Exception):
            raise self.zone
        return [(self.zone,)]

    def value(self, sql, parameters=()):
        return self.rows(sql, parameters)[0][0]


def zone_of(**options):
    return ServerZone(SqlServerSettings.parse({"hostname": "h", "database": "d"} | options, owner="the source"))


@pytest.mark.parametrize(
    ("server", "zone"),
    [
        (Server(16, 3, "W. Europe Standard Time"), "Europe/Berlin"),
        (Server(17, 2, "Eastern Standard Time", -240), "America/New_York"),
        (Server(12, 5, "UTC", 0), "UTC"),
        (Server(12, 8, "Romance Standard Time"), "Europe/Paris"),
    ],
    ids=["2022", "2025", "Azure SQL Database", "Azure SQL Managed Instance"],
)
def test_a_server_that_can_say_its_zone_is_asked_once(server, zone, caplog):
    found = zone_of()
    assert [found.of(server) for _ in range(3)] == [zone] * 3
    assert server.asked.count(statements.SERVER_ZONE) == 1
    assert server.asked.count(statements.TIME_AND_CLOCK) == 1
    assert caplog.records == []


@pytest.mark.parametrize(
    ("server", "asked"),
    [
        (Server(15, 3, "W. Europe Standard Time"), 0),
        (Server(None, None, "W. Europe Standard Time"), 0),
        (Server(16, 3, "Nowhere Standard Time"), 1),
        (Server(16, 3, None), 1),
        (Server(16, 3, StatementError("It does not compile.")), 1),
        # Daylight saving is switched off in Windows.
        (Server(16, 3, "W. Europe Standard Time", 60), 1),
    ],
    ids=["2019", "unknown version", "unknown zone", "no zone", "refused", "a clock that is in another zone"],
)
def test_a_server_that_can_not_has_its_present_offset_and_a_warning(server, asked, caplog, request):
    found = zone_of(database=request.node.name)
    shown = f"+0{server.minutes // 60}:00"
    with caplog.at_level(logging.WARNING, "headrace.sources"):
        assert [found.of(server) for _ in range(2)] == [shown] * 2
    assert server.asked.count(statements.SERVER_ZONE) == asked
    assert len(caplog.records) == 1
    assert "may be an hour off. Set 'server_timezone'." in caplog.text
    server.minutes -= 60
    assert found.of(server) == f"+0{server.minutes // 60}:00"


def test_a_server_that_is_too_busy_to_say_its_zone_is_asked_again():
    server, found = Server(16, 3, PassingRefusal("It was too busy.")), zone_of()
    with pytest.raises(PassingRefusal):
        found.of(server)
    server.zone = "W. Europe Standard Time"
    assert found.of(server) == "Europe/Berlin"


def test_a_zone_that_is_given_is_not_asked_for():
    server = Server(16, 3, "UTC")
    assert zone_of(server_timezone="Eastern Standard Time").of(server) == "America/New_York"
    assert server.asked == []
    with pytest.raises(OptionError, match="no time zone is called"):
        zone_of(server_timezone="Nowhere Standard Time")


def test_the_emulated_server_says_that_it_is_in_utc(night):
    run = Run(night[0], snapshot_mode="no_data")
    run.batch()
    assert run.offset.clock == "UTC"
