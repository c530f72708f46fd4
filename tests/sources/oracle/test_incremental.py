"""Rule: an ad-hoc snapshot is read beside the stream, each chunk as of the SCN where its batch ends, behind the changes
up to it and before those after it; what was read again stands where it has to, also after a kill."""

from __future__ import annotations

import json

import pytest
from tests.sources.oracle.runs import Run, data, image

from headrace.errors import CaptureError, OptionError
from headrace.sources.signals import Signal

SIGNALS = "CREATE TABLE SIGNALS (ID VARCHAR2(42) NOT NULL PRIMARY KEY, TYPE VARCHAR2(32), DATA VARCHAR2(2048))"
ASK = "INSERT INTO SIGNALS VALUES (:id, :type, :data)"
ROWS = 6


@pytest.fixture
def session(database):
    with database.connect() as made:
        made.execute(SIGNALS)
        for id in range(ROWS):
            made.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (:id, 'old')", id=id)
        made.commit()
        yield made


def begun(database, **options):
    given = {
        "signal_data_collection": "SHOP.SIGNALS", "incremental_snapshot_chunk_size": 2,
        "snapshot_chunks_per_batch": 1, **options,
    }  # fmt: skip
    run = Run(database, **{name: value for name, value in given.items() if value is not None})
    run.until_level()
    return run


def ask(session, type="execute-snapshot", id="s1", **data):
    session.execute(ASK, id=id, type=type, data=json.dumps({"data-collections": ["SHOP.CUSTOMERS"], **data}))
    session.commit()


def finished(run):
    """The rows of all batches until nothing is asked for and the log is at its end."""
    rows = run.until_level()
    while run.offset.has_open_requests or run.source.has_signals(run.offset):
        rows += run.batch()
    return rows


def read(rows):
    return [image(row["after"])["ID"] for row in rows if row["snapshot"] == "incremental"]


def named(row):
    return row["table"]["name"] == "CUSTOMERS"


def held(rows):
    """What the table holds after rows in the order of positions."""
    found = {}
    for row in sorted((r for r in rows if r["op"] in "rcud" and named(r)), key=lambda row: row["position"]):
        if row["op"] == "d":
            found.pop(row["key_text"], None)
        else:
            found[row["key_text"]] = image(row["after"])["NAME"]
    return found


def test_a_row_of_the_signal_table_has_a_table_read_again_in_chunks(database, session):
    run = begun(database)
    ask(session)
    rows = finished(run)
    assert read(rows) == [str(id) for id in range(ROWS)]
    assert [row["op"] for row in rows if row["snapshot"] == "incremental"] == ["r"] * ROWS
    assert len({row["position"] for row in rows if row["snapshot"] == "incremental"}) == ROWS / 2


def test_what_the_first_snapshot_finds_in_the_signal_table_is_history(database, session):
    ask(session)
    assert read(finished(begun(database))) == []


def test_a_chunk_stands_behind_what_is_in_it_and_before_what_follows(database, session):
    run = begun(database)
    rows = []
    ask(session)
    for change in range(6):
        session.execute("UPDATE CUSTOMERS SET NAME = :name", name=f"v{change}")
        session.commit()
        rows += run.batch()
    rows += finished(run)
    seen = {}
    for row in sorted(
        (r for r in rows if r["op"] in "rcud" and r["table"]["name"] == "CUSTOMERS"), key=lambda r: r["position"]
    ):
        key, name = row["key_text"], image(row["after"])["NAME"]
        if row["op"] == "r":
            # What is read is what the changes before it left.
            assert name == seen[key]
        seen[key] = name
    assert read(rows) == [str(id) for id in range(ROWS)]
    assert set(held(rows).values()) == {"v5"}


def test_deleted_rows_never_come_back_and_new_ones_are_not_lost(database, session):
    run = begun(database)
    rows = []
    ask(session)
    for id in range(ROWS):
        session.execute("DELETE FROM CUSTOMERS WHERE ID = :id", id=id)
        session.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (:id, 'new')", id=id + 100)
        session.commit()
        rows += run.batch()
    rows += finished(run)
    assert held(rows) == {f'["{id + 100}"]': "new" for id in range(ROWS)}


def test_the_same_offsets_read_the_same_chunk_however_much_later(database, session):
    run = begun(database)
    ask(session)
    start = run.offset
    first = []
    while not first:
        start = run.offset
        first = [row for row in run.batch() if row["snapshot"] == "incremental"]
    session.execute("UPDATE CUSTOMERS SET NAME = 'later'")
    session.commit()
    again = Run(database, **{"signal_data_collection": "SHOP.SIGNALS"}).rows_of(start, run.offset)
    assert [row for row in again if row["snapshot"] == "incremental"] == first


def test_a_chunk_whose_moment_is_no_longer_in_the_undo_is_read_as_it_is(database, session, caplog):
    run = begun(database)
    ask(session)
    rows = []
    while not read(rows):
        start = run.offset
        rows = run.batch()
    end = run.offset
    session.execute("UPDATE CUSTOMERS SET NAME = 'later'")
    session.commit()
    database.forget_undo()
    again = run.rows_of(start, end)
    assert read(again) == read(rows)
    assert "is read as it is now" in caplog.text


def test_a_column_that_is_dropped_before_its_chunk_is_read_leaves_the_chunk_out_and_says_so(database, session, caplog):
    run = begun(database)
    ask(session)
    rows = []
    while not read(rows):
        start = run.offset
        rows = run.batch()
    session.execute("ALTER TABLE CUSTOMERS DROP COLUMN CREDIT")
    assert read(run.rows_of(start, run.offset)) == []
    assert "Ask for it again" in caplog.text


def test_a_table_that_is_altered_meanwhile_is_read_on_behind_the_definition(database, session):
    run = begun(database)
    ask(session)
    rows = run.batch()
    session.execute("ALTER TABLE CUSTOMERS ADD (EXTRA VARCHAR2(5))")
    session.execute("UPDATE CUSTOMERS SET EXTRA = 'e'")
    session.commit()
    rows += finished(run)
    assert sorted(read(rows)) == [str(id) for id in range(ROWS)]
    extras = {image(row["after"])["ID"]: image(row["after"]).get("EXTRA") for row in rows if row["op"] in "ru"
              and row["table"]["name"] == "CUSTOMERS"}  # fmt: skip
    assert set(extras.values()) == {"e"}


def test_a_killed_run_goes_on_at_the_chunk_where_it_stopped(database, session):
    run = begun(database)
    ask(session)
    rows = []
    for _ in range(20):
        rows += run.restarted().batch()
        if not run.offset.has_open_requests and read(rows):
            break
    assert read(rows) == [str(id) for id in range(ROWS)]


def test_a_filter_chooses_the_rows(database, session):
    run = begun(database)
    ask(session, **{"additional-conditions": [{"data-collection": "SHOP.CUSTOMERS", "filter": "ID >= 3"}]})
    assert read(finished(run)) == ["3", "4", "5"]


def test_a_filter_that_the_server_refuses_ends_the_snapshot_and_not_the_run(database, session, caplog):
    run = begun(database)
    ask(session, **{"additional-conditions": [{"data-collection": "SHOP.CUSTOMERS", "filter": "NO_SUCH = 3"}]})
    assert read(finished(run)) == []
    assert "ends after 0 chunks" in caplog.text
    ask(session, id="s2")
    assert len(read(finished(run))) == ROWS


def test_snapshots_are_paused_resumed_and_stopped(database, session):
    run = begun(database)
    ask(session)
    rows = []
    while not read(rows):
        rows += run.batch()
    ask(session, "pause-snapshot", "s2")
    rows += run.until_level()
    for _ in range(3):
        rows += run.batch()
    paused = read(rows)
    assert len(paused) < ROWS
    ask(session, "resume-snapshot", "s3")
    rows += run.until_level()
    ask(session, "stop-snapshot", "s4")
    rows += finished(run)
    assert len(paused) < len(read(rows)) < ROWS


def test_a_blocking_snapshot_holds_the_stream_up_and_reads_one_moment(database, session):
    run = begun(database, snapshot_chunk_rows=2)
    session.execute(
        ASK, id="b", type="execute-snapshot", data='{"type": "blocking", "data-collections": ["SHOP.CUSTOMERS"]}'
    )
    session.commit()
    rows = run.batch()
    session.execute("UPDATE CUSTOMERS SET NAME = 'later'")
    session.commit()
    rows += finished(run)
    shown = [(op, values["NAME"]) for op, name, values in data(rows) if name == "CUSTOMERS"]
    assert shown == [("r", "old")] * ROWS + [("u", "later")] * ROWS


def test_a_signal_that_was_taken_back_asks_for_nothing(database, session):
    run = begun(database)
    session.execute("SAVEPOINT A")
    session.execute(ASK, id="s1", type="execute-snapshot", data='{"data-collections": ["SHOP.CUSTOMERS"]}')
    session.execute("ROLLBACK TO A")
    session.execute(ASK, id="s2", type="log", data='{"message": "here"}')
    session.commit()
    assert read(finished(run)) == []


def test_a_file_asks_too_and_an_idle_database_answers_it(database, session):
    folder = database.directory / "signals"
    run = begun(database, signal_data_collection=None, signal_path=folder)
    run.source.signal(Signal("f", "execute-snapshot", '{"data-collections": ["SHOP.CUSTOMERS"]}'))
    assert run.source.has_signals(run.offset)
    assert read(finished(run)) == [str(id) for id in range(ROWS)]
    assert not run.source.has_signals(run.offset)


def test_a_signal_is_inserted_into_the_signal_table(database, session):
    run = begun(database)
    assert run.source.signal(Signal("x", "execute-snapshot", '{"data-collections": ["SHOP.CUSTOMERS"]}')) == [
        "table SHOP.SIGNALS of database ORCL"
    ]
    assert len(read(finished(run))) == ROWS


def test_several_ranges_that_are_mined_by_tasks_hold_signals_too(database, session):
    run = begun(database, mining_range_scns=3, mining_sessions=3)
    for number in range(4):
        session.execute("UPDATE CUSTOMERS SET NAME = 'n' WHERE ID = :id", id=number)
        session.commit()
    ask(session)
    for number in range(4):
        session.execute("UPDATE CUSTOMERS SET NAME = 'm' WHERE ID = :id", id=number)
        session.commit()
    assert sorted(read(finished(run))) == [str(id) for id in range(ROWS)]


REFUSED = [
    ({"signal_data_collection": "SHOP.NOTHING"}, CaptureError, "is not among the captured tables"),
    ({"signal_data_collection": "SHOP.NARROW"}, CaptureError, "fewer than three captured columns"),
]


@pytest.mark.parametrize(("options", "error", "message"), REFUSED, ids=[c[2] for c in REFUSED])
def test_a_signal_table_that_can_be_none_is_refused_at_the_start(database, session, options, error, message):
    session.execute("CREATE TABLE NARROW (ID NUMBER(9) PRIMARY KEY, T VARCHAR2(5))")
    with pytest.raises(error, match=message):
        begun(database, **options)


def test_without_a_place_for_signals_asking_is_refused(database, session):
    with pytest.raises(OptionError, match="no place for signals"):
        begun(database, signal_data_collection=None).source.signal(Signal("x", "log", "{}"))
