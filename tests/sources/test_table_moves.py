"""Rule: the changes of one table come again, or are left out, as a signal asks; those of the others go on as ever."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing

from headrace.errors import DataLossError, OptionError
from headrace.sources.base import Limit
from headrace.sources.databases import Databases, Offsets
from headrace.sources.signal_files import write_file
from headrace.sources.signals import Signal, signal_data
from headrace.sources.table_versions import TableMove
from headrace.testing.captured_database import CapturedDatabase, Run, data
from headrace.testing.sources import NOW, Row
from headrace_emulators.sqlserver import EmulatedServer

T = "id int not null primary key, v varchar(20)"


@pytest.fixture(params=[SqlServerDatabase, Db2Database], ids=["sqlserver", "db2"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CapturedDatabase]:
    with closing(request.param(tmp_path / "server")) as made:
        made.create("a", T)
        made.create("b", T)
        yield made


@pytest.fixture
def run(database: CapturedDatabase, tmp_path: Path) -> Run:
    made = database.run(signal_path=str(tmp_path / "signals"))
    made.all()
    return made


def commits(database: CapturedDatabase, table: str, *ids: int) -> None:
    for id in ids:
        database.insert(table, id, "x")
    database.capture()


def ids(rows: list[Row], table: str) -> list[str]:
    return [row["id"] for op, name, row in data(rows) if name == table and op == "c"]


def ask(run: Run, folder: Path, kind: str, table: str, position: str) -> None:
    text = signal_data(f"{kind}-changes", [table], position=position)
    write_file(folder / "signals", Signal("s", f"{kind}-changes", text))


def test_a_table_is_rewound_while_the_other_goes_on(database: CapturedDatabase, run: Run, tmp_path: Path) -> None:
    commits(database, "a", 1)
    commits(database, "b", 1)
    first = run.all()
    place = run.offset.commit
    commits(database, "a", 2, 3)
    commits(database, "b", 2)
    second = run.all()
    ask(run, tmp_path, "rewind", database.named("a"), place)
    commits(database, "a", 4)
    commits(database, "b", 3)
    third = run.restarted().all()
    assert [(ids(rows, "a"), ids(rows, "b")) for rows in (first, second, third)] == [
        (["1"], ["1"]),
        (["2", "3"], ["2"]),
        (["2", "3", "4"], ["3"]),
    ]
    # What comes again is what came.
    again = [row for row in third if ids([row], "a") in (["2"], ["3"])]
    assert again == [row for row in second if ids([row], "a")]
    assert [row for row in third if row["op"] == "gap"] == []
    assert run.offset.is_level
    assert run.offset.skipped == {}


def test_changes_up_to_a_place_are_left_out_which_is_said_and_kept(
    database: CapturedDatabase, run: Run, tmp_path: Path
) -> None:
    commits(database, "a", 1)
    run.all()
    before = run.offset.commit
    commits(database, "a", 2, 3)
    commits(database, "b", 2)
    place = run.source.head()
    commits(database, "a", 4)
    ask(run, tmp_path, "skip", database.named("a"), place)
    rows = run.restarted().all()
    assert (ids(rows, "a"), ids(rows, "b")) == (["4"], ["2"])
    (gap,) = (row for row in rows if row["op"] == "gap")
    assert gap["table"]["name"].lower() == "a"
    assert gap["error"].endswith("are lost: a repair skipped them.")
    kept = run.offset.skipped[database.named("a")]
    assert kept == (before, place)
    commits(database, "a", 5)
    assert ids(run.all(), "a") == ["5"]
    assert run.offset.skipped[database.named("a")] == kept


@pytest.mark.parametrize("kind", ["incremental", "blocking"])
def test_a_table_that_is_read_again_lacks_nothing(
    database: CapturedDatabase, run: Run, tmp_path: Path, kind: str
) -> None:
    commits(database, "a", 1, 2)
    ask(run, tmp_path, "skip", database.named("a"), run.source.head())
    assert ids(run.all(), "a") == []
    assert set(run.offset.skipped) == {database.named("a")}
    text = signal_data("execute-snapshot", [database.named("a")], kind=kind)
    write_file(tmp_path / "signals", Signal("s", "execute-snapshot", text))
    databases, offsets = Databases(run.source), Offsets({"shop": run.offset})
    rows = []
    with database.capturing():
        while (end := databases.advance(offsets, Limit(), NOW)) != offsets:
            rows += run.rows(offsets.of("shop"), end.of("shop"))
            offsets = end
    assert sorted(row["id"] for op, _, row in data(rows) if op == "r") == ["1", "2"]
    assert offsets.of("shop").skipped == {}


def test_the_command_looks_before_it_asks(database: CapturedDatabase, run: Run, tmp_path: Path) -> None:
    commits(database, "a", 1)
    run.all()
    place, a = run.offset.commit, database.named("a")
    commits(database, "a", 2, 3)
    run.all()
    commits(database, "a", 4, 5)

    def planned(kind: Any, to: str, table: str = a) -> Any:
        return run.source.move(TableMove(table, kind, to), run.offset)

    back = planned("rewind", f"0x{place.replace(':', '').upper()}")
    assert (back.move.to, back.at, back.changes) == (place, run.offset.commit, 2)
    assert back.time is not None
    forward = planned("skip", "now")
    assert (forward.at, forward.changes) == (run.offset.commit, 2)
    assert forward.move.to >= run.source.head()


def test_a_time_means_everything_that_was_committed_before_it(tmp_path: Path) -> None:
    with closing(SqlServerDatabase(tmp_path / "server")) as database:
        database.emulated.close()
        database.emulated = EmulatedServer(tmp_path / "old").create_database(
            "shop", clock=lambda: dt.datetime(2025, 7, 1, 11)
        )
        database.create("a", T)
        server: Any = database.emulated
        run = database.run(server_timezone="Europe/Berlin")
        run.all()
        for minute in range(3):
            server.clock = lambda at=dt.datetime(2025, 7, 1, 12, minute): at
            commits(database, "a", minute)
        run.all()
        server.clock = lambda: dt.datetime(2025, 7, 1, 13)

        def changes(time: str) -> int | None:
            return run.source.move(TableMove("dbo.a", "rewind", time), run.offset).changes

        times = ("2025-07-01T10:00:00Z", "2025-07-01T12:00:30+02:00", "2025-07-01T10:02:00.5Z")
        assert [changes(time) for time in times] == [3, 2, 1]
        with pytest.raises(OptionError, match="only, which is not after LSN"):
            changes("2025-07-01T10:02:01Z")


MISTAKES: list[tuple[str, Callable[[Run], str], str]] = [
    ("rewind", lambda run: run.offset.commit, "only, which is not after LSN"),
    ("skip", lambda run: run.offset.commit, "already, so none is left out"),
    ("rewind", lambda run: "yesterday", "'yesterday' is neither an LSN nor a time with its zone. Write an LSN such as"),
    ("rewind", lambda run: "2024-05-01T12:00:00", "is neither an LSN nor a time with its zone"),
    ("rewind", lambda run: "2999-01-01T00:00:00Z", "is in the future"),
    ("skip", lambda run: f"ff{run.offset.commit[2:]}", "is not captured yet; the server has captured up to LSN"),
]


@pytest.mark.parametrize(("kind", "to", "sentence"), MISTAKES, ids=[sentence[:30] for *_, sentence in MISTAKES])
def test_what_can_not_be_done_is_refused(
    database: CapturedDatabase, run: Run, kind: Any, to: Callable[[Run], str], sentence: str
) -> None:
    commits(database, "a", 1)
    run.all()
    with pytest.raises(OptionError) as caught:
        run.source.move(TableMove(database.named("a"), kind, to(run)), run.offset)
    assert sentence in str(caught.value)
    with pytest.raises(OptionError, match=r"'dbo\.none' is not captured"):
        run.source.move(TableMove("dbo.none", kind, "now"), run.offset)


def test_changes_that_were_cleaned_do_not_come_again_and_the_stream_goes_on(
    database: CapturedDatabase, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, a = run.offset.commit, database.named("a")
    commits(database, "a", 1, 2)
    run.all()
    database.clean()
    with pytest.raises(OptionError, match=r"are not all kept: .* Read the table again instead: headrace repair reread"):
        run.source.move(TableMove(a, "rewind", place), run.offset)
    ask(run, tmp_path, "rewind", a, place)
    commits(database, "a", 3)
    assert ids(run.all(), "a") == ["3"]
    assert f"The rewind of table '{a}' is not followed: Changes of table '{a}' after LSN" in caplog.text


def test_a_stream_that_stopped_for_lost_changes_goes_on_when_they_are_skipped(
    database: CapturedDatabase, run: Run, tmp_path: Path
) -> None:
    commits(database, "a", 1, 2)
    database.clean()
    commits(database, "a", 3)
    with pytest.raises(DataLossError):
        run.batch()
    # The clean-up moves all change tables to one place, so what is lost of which table nobody can say.
    tables = [database.named(table) for table in "ab"]
    for table in tables:
        ask(run, tmp_path, "skip", table, run.source.move(TableMove(table, "skip", "now"), run.offset).move.to)
    commits(database, "a", 4)
    commits(database, "b", 1)
    rows = run.restarted().all()
    assert (ids(rows, "a"), ids(rows, "b")) == (["4"], ["1"])
    assert [row["op"] for row in rows if row["op"] == "gap"] == ["gap", "gap"]
    assert set(run.offset.skipped) == set(tables)


def test_a_rewind_stops_at_an_alteration(tmp_path: Path) -> None:
    with closing(SqlServerDatabase(tmp_path / "server")) as database:
        database.create("a", T)
        server: Any = database.emulated
        server.allow_type_changes()
        run = database.run(signal_path=str(tmp_path / "signals"))
        run.all()
        place = run.offset.commit
        commits(database, "a", 1)
        database.execute("ALTER TABLE dbo.a ALTER COLUMN v varchar(30)")
        commits(database, "a", 2)
        run.all()
        with pytest.raises(
            OptionError, match=r"Table 'dbo\.a' was altered at LSN .* Rewind to that LSN, or to a later"
        ):
            run.source.move(TableMove("dbo.a", "rewind", place), run.offset)


def test_the_signal_table_is_not_moved(tmp_path: Path) -> None:
    with closing(SqlServerDatabase(tmp_path / "server")) as database:
        database.create("signals", "a varchar(42) not null primary key, b varchar(32), c varchar(2048)")
        run = database.run(signal_data_collection="dbo.signals")
        run.all()
        place = run.offset.commit
        database.insert("signals", "1", "log", json.dumps({"message": "here"}))
        database.capture()
        run.all()
        with pytest.raises(OptionError, match=r"Table 'dbo\.signals' is the signal table"):
            run.source.move(TableMove("dbo.signals", "rewind", place), run.offset)


def test_a_source_that_can_not_says_so_and_streams_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(OracleDatabase(tmp_path / "server")) as database:
        database.create("a", T)
        run = database.run(signal_path=str(tmp_path / "signals"))
        run.all()
        a = database.named("a")
        with pytest.raises(
            OptionError, match=r"Source 'oracle' can't rewind a single table\. Read the table again: head"
        ):
            run.source.move(TableMove(a, "rewind", run.offset.commit), run.offset)
        ask(run, tmp_path, "skip", a, run.source.head())
        commits(database, "a", 1)
        assert ids(run.all(), "a") == ["1"]
        assert "is not followed: this source can't skip a table. Read it again instead." in caplog.text
