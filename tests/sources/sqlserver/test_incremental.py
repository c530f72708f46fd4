"""Rule: an ad-hoc snapshot beside the stream reads every row once, writes nothing to the source, never turns a row back
to what it was, and never brings a deleted one to life."""

from __future__ import annotations

import datetime as dt
import logging
import shutil
from collections import Counter

import pytest
from tests.support.incremental_runs import (
    NOW,
    Gates,
    Run,
    ahead,
    contents,
    create,
    execute,
    in_source,
    mirror,
    read_again,
    rows_of,
    send,
    signal_table,
)

from headrace.errors import CaptureError, DataLossError
from headrace.sources.base import Limit
from headrace.sources.change_tables.connection import StatementError
from headrace.sources.databases import Databases, Offsets
from headrace.sources.signal_files import write_file
from headrace.sources.signals import Signal
from headrace_emulators.sqlserver import EmulatedServer


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A server whose database has only the signal table, as files to be copied."""
    folder = tmp_path_factory.mktemp("empty") / "server"
    with EmulatedServer(folder).create_database("shop", clock=ahead) as made:
        signal_table(made)
    return folder


@pytest.fixture
def database(empty, server):
    if isinstance(server, EmulatedServer):
        shutil.copytree(empty, server.directory, dirs_exist_ok=True)
        with server.database("shop", clock=ahead) as made:
            yield made
    else:
        with server.create_database("shop") as made:
            signal_table(made)
            yield made


@pytest.fixture
def gates(database, monkeypatch):
    made = Gates(database)
    monkeypatch.setattr("headrace.faultpoints.reach", made.reach)
    return made


def test_every_row_is_read_once_chunk_by_chunk_and_then_the_source_rests(database, gates):
    create(database, "t", "id int not null primary key, v int", [(n, n) for n in range(7)])
    run = Run(database)
    run.all()
    execute(database, "shop.dbo.t", type="incremental")
    batches = []
    while (rows := run.batch()) is not None:
        batches.append(rows)
    assert [len(read_again(rows, "id")) for rows in batches if read_again(rows, "id")] == [2, 2, 2, 1]
    rows = [row for batch in batches for row in batch]
    assert read_again(rows, "id") == [(str(n),) for n in range(7)]
    taken = [r for r in rows if r["op"] == "r"]
    assert {r["snapshot"] for r in taken} == {"incremental"}
    assert all(r["transaction"] is None and r["key"] and r["event_time"] == NOW for r in taken)
    # A row of the table follows a schema of its own batch.
    for batch in batches:
        told = [r["table"]["name"] for r in batch if r["op"] == "schema"]
        assert all(r["table"]["name"] in told for r in batch if r["op"] == "r")
    assert run.batch() is None
    assert not run.offset.has_open_requests


def test_rows_stand_after_the_signal_and_everything_of_its_commit(database, gates):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database, snapshot_chunks_per_batch=4)
    run.all()
    execute(database, "dbo.t")
    rows = run.batch()
    signal = next(r for r in rows if r["table"]["name"] == "signals" and r["op"] == "c")
    (row,) = [r for r in rows if r["op"] == "r"]
    assert row["position"] > signal["position"]
    assert dict(row["source"])["commit_lsn"] == run.offset.commit == dict(signal["source"])["commit_lsn"]


def test_several_chunks_and_tables_share_a_batch(database, gates):
    create(database, "t", "id int not null primary key", [(n,) for n in range(3)])
    create(database, "u", "id int not null primary key", [(n,) for n in range(3)])
    create(database, "v", "id int not null primary key")
    run = Run(database, snapshot_chunks_per_batch=3)
    run.all()
    execute(database, "dbo.[tuv]")
    first = run.batch()
    assert read_again(first, "id") == [("0",), ("1",), ("2",), ("0",), ("1",)]
    assert [r["table"]["name"] for r in first if r["op"] == "r"] == ["t", "t", "t", "u", "u"]
    assert read_again(run.all(), "id") == [("2",)]


CHANGES = [
    ("UPDATE dbo.t SET v = 9 WHERE id = 1",),
    ("DELETE FROM dbo.t WHERE id = 1",),
    ("DELETE FROM dbo.t WHERE id = 1", "INSERT INTO dbo.t VALUES (1, 9)"),
    ("UPDATE dbo.t SET id = 7 WHERE id = 1",),
    ("DELETE FROM dbo.t WHERE id = 0", "UPDATE dbo.t SET id = 0 WHERE id = 1"),
    ("INSERT INTO dbo.t VALUES (-1, 0)", "DELETE FROM dbo.t WHERE id = -1"),
]


@pytest.mark.parametrize("moment", ["before the read", "after the read"])
@pytest.mark.parametrize("statements", CHANGES, ids=["update", "delete", "again", "key", "take over", "short life"])
def test_a_key_that_changed_in_the_window_is_left_to_its_change(database, gates, statements, moment):
    create(database, "t", "id int not null primary key, v int", [(0, 0), (1, 0)])
    run = Run(database)
    held = mirror(run.all())
    execute(database, "dbo.t")
    start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
    if moment == "before the read":
        for statement in statements:
            database.execute(statement)
    else:
        gates.at["source.incremental.read"] = statements
    rows = rows_of(run.source, start, end)
    touched = {"0", "1"} if "id = 0" in statements[0] else {"1"} if "-1" not in str(statements) else set()
    assert {id for (id,) in read_again(rows, "id")} == {"0", "1"} - touched
    run.offset = end
    rest = run.all()
    assert contents(mirror(rest, mirror(rows, held)), "t") == in_source(database, "t")


def test_an_update_that_leaves_a_large_value_out_does_not_lose_it(database, gates):
    create(database, "t", "id int not null primary key, v int, note nvarchar(max)", [(1, 1, "long"), (2, 1, "x")])
    run = Run(database)
    run.all()
    execute(database, "dbo.t")
    gates.at["source.incremental.read"] = ["UPDATE dbo.t SET v = 2 WHERE id = 1", "DELETE FROM dbo.t WHERE id = 2"]
    rows = run.all()
    assert read_again(rows, "id", "note") == [("1", "long")]
    (update,) = [r for r in rows if r["op"] == "u"]
    assert update["position"] > next(r["position"] for r in rows if r["op"] == "r")
    assert "note" not in dict(update["after"])


def test_a_restart_goes_on_at_the_chunk_where_it_stopped(database, gates):
    create(database, "t", "id int not null primary key", [(n,) for n in range(9)])
    run = Run(database)
    run.all()
    execute(database, "dbo.t")
    seen = []
    while (rows := run.batch()) is not None:
        seen += read_again(rows, "id")
        run.restarted()
        if len(seen) == 4:
            # The greatest key was fixed when the table was begun: later ones come by the stream alone.
            database.execute("INSERT INTO dbo.t VALUES (50)")
            database.capture()
    assert seen == [(str(n),) for n in range(9)]


def test_a_batch_that_comes_again_reads_the_same_ranges_and_moves_no_key_back(database, gates):
    create(database, "t", "id int not null primary key", [(n,) for n in range(6)])
    run = Run(database, snapshot_chunks_per_batch=2)
    run.all()
    execute(database, "dbo.t")
    start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
    once = {r["key_text"]: r["position"] for r in rows_of(run.source, start, end) if r["op"] == "r"}
    database.execute("DELETE FROM dbo.t WHERE id IN (0, 2)")
    again = {r["key_text"]: r["position"] for r in rows_of(run.source, start, end) if r["op"] == "r"}
    assert set(once) == {'["0"]', '["1"]', '["2"]', '["3"]'}
    assert again == {key: once[key] for key in ('["1"]', '["3"]')}


def test_pause_resume_and_stop(database, gates):
    create(database, "t", "id int not null primary key", [(n,) for n in range(8)])
    create(database, "u", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    execute(database, "dbo.t", "dbo.u")
    assert len(read_again(run.batch(), "id")) == 2
    send(database, "pause-snapshot")
    assert read_again(run.all(), "id") == []
    run.restarted()
    assert run.batch() is None
    send(database, "resume-snapshot", {"type": "incremental"})
    assert read_again(run.batch(), "id") == [("2",), ("3",)]
    send(database, "stop-snapshot", {"data-collections": ["dbo.t"]})
    assert read_again(run.all(), "id") == [("1",)]
    execute(database, "dbo.t")
    assert len(read_again(run.batch(), "id")) == 2
    send(database, "stop-snapshot")
    assert read_again(run.all(), "id") == []


KEYS = {
    "composite": (
        "k1 int not null, k2 varchar(5) not null, v int, primary key (k2, k1)",
        [(n % 3, f"b{n % 2}", n) for n in range(6)],
        ("k2", "k1"),
    ),
    "nullable": ("k int null unique, v int", [(None, 0), (3, 1), (1, 2), (-5, 3)], ("k",)),
    "collation": (
        "k nvarchar(9) collate Latin1_General_CI_AS not null primary key",
        [("b",), ("A",), ("c",), ("B2",), ("a1",), ("_",), ("\u00e4",)],
        ("k",),
    ),
    "guid": (
        "k uniqueidentifier not null primary key",
        [(f"{9 - n}0000000-0000-0000-000{n}-000000000000",) for n in range(5)],
        ("k",),
    ),
    "quoted": ("[a]]b] int not null primary key, [c d] int", [(n, n) for n in range(3)], ("a]b",)),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("size", [1, 3])
def test_keys_of_any_kind_are_cut_by_the_servers_own_order(database, gates, kind, size):
    columns, rows, key = KEYS[kind]
    create(database, "t", columns, rows)
    run = Run(database, incremental_snapshot_chunk_size=size, snapshot_chunks_per_batch=2)
    run.all()
    execute(database, "dbo.t")
    found = read_again(run.all(), *key)
    assert len(found) == len(set(found)) == len(rows)
    names = ", ".join(f"[{name.replace(']', ']]')}]" for name in key)
    expected = database.execute(f"SELECT {names} FROM dbo.t ORDER BY {names}")
    assert found == [tuple(None if v is None else str(v) for v in row) for row in expected]


def test_a_key_whose_case_changes_in_the_window_is_left_to_its_change(database, gates):
    create(database, "t", "k varchar(9) collate Latin1_General_CI_AS not null primary key", [("a",), ("b",)])
    run = Run(database)
    held = mirror(run.all())
    execute(database, "dbo.t")
    gates.at["source.incremental.read"] = ["UPDATE dbo.t SET k = 'A' WHERE k = 'a'"]
    rows = run.all()
    assert read_again(rows, "k") == [("b",)]
    assert contents(mirror(rows, held), "t") == [("A",), ("b",)]


def test_a_filter_chooses_rows_and_chunks_count_only_those(database, gates):
    create(database, "t", "id int not null primary key, kind varchar(5)", [(n, "odd"[: n % 2 * 3]) for n in range(12)])
    run = Run(database)
    run.all()
    condition = {"data-collection": "dbo.t", "filter": "kind = 'odd' or 1 = 0 -- all of them"}
    execute(database, "dbo.t", **{"additional-conditions": [condition]})
    sizes = []
    while (rows := run.batch()) is not None:
        sizes += [len(read_again(rows, "id"))] if read_again(rows, "id") else []
    assert sizes == [2, 2, 2]


def test_a_filter_that_the_server_refuses_ends_that_table_only(database, gates, caplog):
    create(database, "t", "id int not null primary key", [(1,)])
    create(database, "u", "id int not null primary key", [(2,)])
    run = Run(database)
    run.all()
    execute(
        database, "dbo.t", "dbo.u", **{"additional-conditions": [{"data-collection": "dbo.t", "filter": "nothing = 1"}]}
    )
    assert read_again(run.all(), "id") == [("2",)]
    assert [m for m in caplog.messages if "'dbo.t' ends after 0 chunks" in m]


BAD = [
    ("execute-snapshot", '{"data-collections": ["dbo.t"', "not JSON"),
    ("execute-snapshots", "{}", "unknown type"),
    ("execute-snapshot", "{}", "no list"),
    ("execute-snapshot", '{"data-collections": ["dbo.none"]}', "'dbo.none'"),
    ("execute-snapshot", '{"data-collections": ["dbo.keyless"]}', "no key"),
    ("schema-changes", '{"database": "shop"}', "not needed"),
    ("log", '{"message": "hello"}', "hello"),
]


@pytest.mark.parametrize(("type", "data", "said"), BAD, ids=[said for *_, said in BAD])
def test_what_can_not_be_done_is_announced_once_and_streaming_goes_on(database, gates, caplog, type, data, said):
    create(database, "t", "id int not null primary key")
    create(database, "keyless", "a int")
    with database.capture_job(poll=0.02, idle=0.05):
        run = Run(database)
        run.all()
    caplog.clear()
    send(database, type, data, id="mine")
    database.execute("INSERT INTO dbo.t VALUES (1)")
    database.capture()
    rows = run.all()
    assert [r["op"] for r in rows if r["table"]["name"] == "t" and r["op"] != "schema"] == ["c"]
    (record,) = [r for r in caplog.records if r.name == "headrace.sources"]
    assert record.levelno == logging.WARNING
    assert said in record.getMessage()
    assert "'mine'" in record.getMessage()


def test_an_empty_list_and_rows_of_other_programs_do_nothing(database, gates, caplog):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    execute(database)
    send(database, "snapshot-window-open", "x")
    # Only inserts are signals.
    database.execute("UPDATE dbo.signals SET b = 'execute-snapshot', c = '{\"data-collections\": [\"dbo.t\"]}'")
    database.execute("DELETE FROM dbo.signals")
    database.capture()
    assert read_again(run.all(), "id") == []
    assert caplog.messages == []


def test_signals_from_before_the_run_are_history(database, gates):
    create(database, "t", "id int not null primary key", [(1,)])
    execute(database, "dbo.t")
    assert read_again(Run(database).all(), "id") == []


def test_a_table_that_vanishes_half_way_is_said_and_the_others_go_on(database, gates, caplog):
    create(database, "t", "id int not null primary key", [(n,) for n in range(6)])
    create(database, "u", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    execute(database, "dbo.t", "dbo.u")
    assert len(read_again(run.batch(), "id")) == 2
    start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
    database.execute(
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N't', @capture_instance = N'all'"
    )
    database.execute("DROP TABLE dbo.t")
    rows = rows_of(run.source, start, end)
    run.offset = end
    rows += run.all()
    assert read_again(rows, "id") == [("1",)]
    said = [m for m in caplog.messages if "'dbo.t'" in m]
    assert any("went away" in m for m in said)
    assert any("ends after 2 chunks" in m for m in said)


def test_a_schema_that_changes_half_way_is_followed(database, gates):
    create(database, "t", "id int not null primary key", [(n,) for n in range(4)])
    run = Run(database)
    run.all()
    execute(database, "dbo.t")
    assert read_again(run.batch(), "id") == [("0",), ("1",)]
    database.execute("ALTER TABLE dbo.t ADD v int NOT NULL DEFAULT 5")
    database.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL, "
        "@capture_instance = N'second'"
    )
    database.execute("INSERT INTO dbo.t VALUES (9, 9)")
    database.capture()
    rows = run.all()
    images = [dict(r["after"]) for r in rows if r["op"] == "r"]
    # Rows that were read before have the default too, so the read begins once more behind the alteration.
    assert images == [{"id": id, "v": id if id == "9" else "5"} for id in "01239"]
    schemas = {r["schema_id"] for r in rows if r["op"] == "schema"}
    assert {r["schema_id"] for r in rows if r["op"] == "r"} <= schemas


def test_a_capture_job_that_does_not_pass_the_read_fails_the_task_and_the_chunk_comes_again(tmp_path, monkeypatch):
    with EmulatedServer(tmp_path / "server").create_database("shop") as database:
        gates = Gates(database)
        monkeypatch.setattr("headrace.faultpoints.reach", gates.reach)
        signal_table(database)
        create(database, "t", "id int not null primary key", [(1,)])
        run = Run(database, capture_timeout_seconds=1)
        run.all()
        execute(database, "dbo.t")
        start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
        gates.captures = False
        with pytest.raises(CaptureError, match=r"did not pass .* 'dbo\.t' within 1 seconds"):
            rows_of(run.source, start, end)
        gates.captures, database.clock = True, ahead
        assert read_again(rows_of(run.source, start, end), "id") == [("1",)]


@pytest.mark.emulated("makes a login")
def test_a_login_that_may_not_see_scans_learns_of_captured_commits_all_the_same(database, gates):
    EmulatedServer(database.path.parent).add_login("cdc", "secret")
    create(database, "t", "id int not null primary key", [(1,)])
    database.execute("DENY SELECT ON sys.dm_cdc_log_scan_sessions TO cdc")
    run = Run(database, user="cdc", password="secret", capture_timeout_seconds=1)
    run.all()
    execute(database, "dbo.t")
    start, end = run.offset, run.source.advance(run.offset, Limit(), NOW)
    assert read_again(rows_of(run.source, start, end), "id") == [("1",)]


@pytest.mark.parametrize(
    ("refusal", "ends"), [("was deadlocked on lock resources", False), ("Arithmetic overflow error", True)]
)
def test_a_refusal_that_passes_only_holds_the_snapshot_up(database, gates, caplog, monkeypatch, refusal, ends):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    execute(database, "dbo.t")
    with monkeypatch.context() as patch:

        def refused(*_):
            raise StatementError(refusal)

        patch.setattr("headrace.sources.change_tables.incremental.keys", refused)
        assert read_again(run.all(), "id") == []
    assert read_again(run.all(), "id") == ([] if ends else [("1",)])
    assert bool([m for m in caplog.messages if "ends after 0 chunks" in m]) is ends


def test_a_connection_that_breaks_ends_no_snapshot(database, gates, monkeypatch):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    execute(database, "dbo.t")
    with monkeypatch.context() as patch:

        def broken(connection, *_):
            connection.close()
            raise StatementError("Communication link failure")

        patch.setattr("headrace.sources.change_tables.incremental.keys", broken)
        with pytest.raises(StatementError, match="link failure"):
            run.source.advance(run.offset, Limit(), NOW)
    assert read_again(run.all(), "id") == [("1",)]


@pytest.mark.emulated("a server leaves the mark of an idle job when it likes")
@pytest.mark.parametrize("fail", [True, False])
def test_changes_that_are_cleaned_during_the_read_stop_the_run_unless_the_user_goes_on(database, monkeypatch, fail):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database, fail_on_data_loss=str(fail).lower())
    run.all()
    execute(database, "dbo.t")

    def reach(name):
        if name == "source.incremental.wait":
            database.execute("INSERT INTO dbo.t VALUES (2)")
            database.capture()
            database.mark_idle()
            database.cleanup("dbo_t", low_lsn=database.max_lsn())

    monkeypatch.setattr("headrace.faultpoints.reach", reach)
    if fail:
        with pytest.raises(DataLossError, match=r"'dbo\.t'"):
            run.batch()
    else:
        assert read_again(run.batch(), "id") == [("1",)]


@pytest.mark.emulated("stops SQL Server Agent")
def test_no_chunk_is_planned_while_nothing_is_captured_and_that_is_announced_once(database, gates, caplog):
    create(database, "t", "id int not null primary key", [(n,) for n in range(4)])
    run = Run(database)
    run.all()
    execute(database, "dbo.t")
    server = EmulatedServer(database.path.parent)
    server.set_agent(running=False)
    assert read_again(run.all(), "id") == []
    run.restarted()
    assert run.batch() is None
    assert len([m for m in caplog.messages if "Ad-hoc snapshots wait" in m]) == 1
    # What is waiting does not keep a run from ending when everything that is captured is there.
    assert not run.offset.has_open_requests
    server.set_agent(running=True)
    assert len(read_again(run.all(), "id")) == 4


def test_a_blocking_snapshot_reads_a_table_again_while_its_own_stream_waits(database, gates):
    create(database, "t", "id int not null primary key, v int", [(n, 0) for n in range(4)])
    create(database, "u", "id int not null primary key")
    run = Run(database, snapshot_chunk_rows=1)
    held = mirror(run.all())
    execute(database, "dbo.t", type="blocking")
    rows = run.batch()
    database.execute("UPDATE dbo.t SET v = 1 WHERE id = 0")
    database.execute("DELETE FROM dbo.t WHERE id = 3")
    database.execute("INSERT INTO dbo.u VALUES (1)")
    database.capture()
    second = run.batch()
    assert [r["table"]["name"] for r in second if r["op"] == "c"] == ["u"]
    rows += second + run.all()
    of_t = [r["op"] for r in rows if r["table"]["name"] == "t" and r["op"] != "schema"]
    assert Counter(of_t) == {"r": 4, "u": 1, "d": 1} or Counter(of_t) == {"r": 3, "u": 1, "d": 1}
    assert of_t[-2:] == ["u", "d"]
    assert contents(mirror(rows, held), "t") == in_source(database, "t")
    assert run.offset.is_level


def test_files_ask_too_and_are_taken_once(database, gates, tmp_path, caplog):
    create(database, "t", "id int not null primary key", [(1,)])
    folder = tmp_path / "asked"
    run = Run(database, signal_path=folder, signal_data_collection=None)
    run.all()
    assert not run.source.has_signals(run.offset)
    write_file(folder, Signal("f1", "execute-snapshot", '{"data-collections": ["dbo.t"]}'))
    # A run that should end at the head takes it first.
    assert run.source.has_signals(run.offset)
    rows = run.all()
    assert not run.source.has_signals(run.offset)
    assert read_again(rows, "id") == [("1",)]
    run.restarted()
    assert run.batch() is None
    (folder / "9999.json").write_text("{")
    assert read_again(run.all(), "id") == []
    assert [m for m in caplog.messages if "9999.json" in m]
    assert len(list(folder.iterdir())) == 2


def test_a_run_that_should_end_reads_what_was_asked_for_first(database, gates):
    create(database, "t", "id int not null primary key", [(n,) for n in range(4)])
    run = Run(database)
    run.all()
    execute(database, "dbo.t")
    databases, heads = Databases(run.source), {"shop": run.source.head()}
    ends = []
    while run.batch() is not None:
        offsets = Offsets({"shop": run.offset})
        ends.append((offsets.reached(heads), databases.finished(offsets, heads, dt.datetime.now(dt.UTC))))
    assert ends[0] == (True, False)
    assert ends[-1] == (True, True)


@pytest.mark.emulated("sees what was sent by the emulator's log")
def test_nothing_is_written_to_the_source(database, gates, tmp_path, monkeypatch):
    create(database, "t", "id int not null primary key", [(n,) for n in range(3)])
    run = Run(database)
    run.all()
    execute(database, "dbo.t")
    log = tmp_path / "queries"
    monkeypatch.setenv("HEADRACE_EMULATOR_QUERY_LOG", str(log))
    run.all()
    sent = log.read_text()
    assert "FROM [dbo].[t]" in sent
    assert not any(word in sent.upper() for word in ("INSERT ", "UPDATE ", "DELETE ", "MERGE ", "BEGIN TRAN"))


@pytest.mark.emulated("sees what was sent by the emulator's log")
def test_an_idle_source_asks_nothing_about_ad_hoc_snapshots(database, gates, tmp_path, monkeypatch):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    log = tmp_path / "queries"
    monkeypatch.setenv("HEADRACE_EMULATOR_QUERY_LOG", str(log))
    assert run.batch() is None
    assert "signals" not in log.read_text()
    assert "dm_server_services" not in log.read_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dbo.nothing", "not among the captured tables"),
        ("dbo.narrow", "fewer than three"),
        ("x.dbo.signals", "not among"),
    ],
)
def test_a_signal_table_that_is_none_is_refused_at_the_start(database, gates, name, said):
    create(database, "narrow", "a int not null primary key, b int")
    with pytest.raises(CaptureError, match=said):
        Run(database, signal_data_collection=name).batch()


def test_a_signal_is_left_where_the_stream_looks_for_it(database, gates, tmp_path):
    create(database, "t", "id int not null primary key", [(1,)])
    run = Run(database)
    run.all()
    signal = Signal("c1", "execute-snapshot", '{"data-collections": ["dbo.t"]}')
    assert run.source.signal(signal) == ["table dbo.signals of database shop"]
    database.capture()
    assert read_again(run.all(), "id") == [("1",)]
    by_file = Run(database, signal_data_collection=None, signal_path=tmp_path / "asked")
    (place,) = by_file.source.signal(signal)
    assert place.startswith("file ")
    with pytest.raises(Exception, match="no place for signals"):
        Run(database, signal_data_collection=None).source.signal(signal)
