"""Rule: with the catalog as it is, a change of a table that was altered since can't be read; with a dictionary in the
redo logs from before it, it can. The dictionary and all logs behind it are there, or the run says so."""

from __future__ import annotations

import pytest
from tests.sources.oracle.runs import Run, add, data, image, row

from headrace.errors import CaptureError, DataLossError, OptionError
from headrace.sources.oracle.logs import LogFile, dictionaries, is_old, mined_from
from headrace_emulators.oracle import EmulatedOracle


def in_redo(database, **options):
    return Run(database, log_mining_strategy="redo_log_catalog", **options)


def alter_behind(session):
    add(session, 1)
    session.commit()
    session.execute("ALTER TABLE CUSTOMERS ADD (PHONE VARCHAR2(20))")
    session.execute("INSERT INTO CUSTOMERS (ID, NAME, PHONE) VALUES (2, 'y', '555')")
    session.commit()


def test_with_the_catalog_as_it_is_a_change_from_before_a_definition_stops_the_run(database, session):
    run = Run(database)
    run.until_level()
    alter_behind(session)
    with pytest.raises(CaptureError, match=r"UNKNOWN\.OBJ# \d+ can't be read: .*LogMiner knows no names") as caught:
        run.until_level()
    assert "redo_log_catalog" in caught.value.remedy


def test_with_a_dictionary_in_the_logs_it_is_read_and_the_definition_comes_between(database, session):
    run = in_redo(database)
    run.until_level()
    alter_behind(session)
    session.execute("ALTER TABLE CUSTOMERS DROP COLUMN CREDIT")
    session.execute("INSERT INTO CUSTOMERS (ID, NAME, PHONE) VALUES (3, 'z', '556')")
    session.commit()
    rows = [r for r in run.until_level() if r["op"] == "c" or "ddl" in image(r["source"] or [])]
    assert [r["op"] for r in rows] == ["c", "schema", "c", "schema", "c"]
    assert data(rows)[0] == ("c", "CUSTOMERS", row(1))
    assert [values.get("PHONE") for _, _, values in data(rows)] == [None, "555", "556"]
    # Both definitions tell the structure that the catalog knows, which is the newest.
    assert [('"PHONE"' in r["table_schema"], '"CREDIT"' in r["table_schema"]) for r in rows if r["op"] == "schema"] == [
        (True, False)
    ] * 2


def test_a_run_that_stopped_at_such_a_change_goes_on_with_the_other_strategy_where_a_dictionary_is(database, session):
    database.run("BEGIN DBMS_LOGMNR_D.BUILD(OPTIONS => DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); END;")
    run = Run(database)
    run.until_level()
    alter_behind(session)
    with pytest.raises(CaptureError):
        run.until_level()
    rows = run.restarted(log_mining_strategy="redo_log_catalog").until_level()
    assert [values["ID"] for _, _, values in data(rows)] == ["1", "2"]


def test_without_a_dictionary_from_before_the_place_of_the_stream_the_run_says_so(database, session):
    run = Run(database)
    run.until_level()
    add(session, 1)
    session.commit()
    with pytest.raises(DataLossError, match=r"whole dictionary from before SCN .* or there never was one"):
        run.restarted(log_mining_strategy="redo_log_catalog").batch()
    rows = run.restarted(snapshot_mode="when_needed").until_level()
    assert [(op, values["ID"]) for op, _, values in data(rows) if op != "gap"] == [("r", "1")]


def test_a_transaction_that_is_older_than_the_dictionary_is_waited_for_and_then_said(database, session):
    add(session, 1)
    with pytest.raises(CaptureError, match=r"open that began at SCN .* before the dictionary") as caught:
        in_redo(database).batch()
    assert "when it has ended" in caught.value.remedy
    session.commit()
    assert data(in_redo(database).until_level()) == [("r", "CUSTOMERS", row(1))]


def test_the_dictionary_is_written_again_so_that_old_logs_may_go(database, session):
    run = in_redo(database, dictionary_logs=3)
    run.until_level()
    for id in range(12):
        add(session, id)
        session.commit()
        database.switch_log()
        assert data(run.until_level()) == [("c", "CUSTOMERS", row(id))]
        # What is mined when the next one is written needs the one before.
        database.delete_archived(keep=10)
    with database.connect() as other:
        found = other.execute("SELECT COUNT(*) FROM V$ARCHIVED_LOG WHERE DICTIONARY_BEGIN = 'YES'").fetchall()[0][0]
    assert 3 <= found <= 6


def test_logs_that_go_behind_the_dictionary_are_a_loss(database, session):
    run = in_redo(database)
    run.until_level()
    add(session, 1)
    session.commit()
    database.switch_log()
    database.delete_archived()
    with pytest.raises(DataLossError):
        run.restarted().until_level()
    rows = run.restarted(fail_on_data_loss=False).until_level()
    assert [r["op"] for r in rows if r["op"] != "schema"] == ["gap"]
    add(session, 2)
    session.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(2))]


def test_a_pluggable_databases_dictionary_is_written_from_the_root(tmp_path):
    with EmulatedOracle(tmp_path / "server", "CDB1", pdb="ORCLPDB1") as database:
        database.run("CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL PRIMARY KEY)")
        run = in_redo(database, pdb="ORCLPDB1")
        run.until_level()
        database.run("INSERT INTO CUSTOMERS (ID) VALUES (2)")
        assert [(op, values["ID"]) for op, _, values in data(run.until_level())] == [("c", "2")]


def test_hybrid_is_refused_with_what_does_the_same(database):
    with pytest.raises(OptionError, match="redo_log_catalog follows definitions"):
        Run(database, log_mining_strategy="hybrid")


def log(sequence, begins=False, ends=False, thread=1):
    first = sequence * 10
    return LogFile(thread, sequence, first, first + 10, "", begins_dictionary=begins, ends_dictionary=ends)


WHOLE = [log(1, begins=True), log(2), log(3, ends=True), log(4), log(5, begins=True, ends=True), log(6)]


@pytest.mark.parametrize(
    ("archived", "low", "begin"),
    [(WHOLE, 39, 9), (WHOLE, 58, 9), (WHOLE, 59, 49), (WHOLE, 99, 49), (WHOLE[:3] + WHOLE[5:], 99, 9)],
    ids=[
        "the one that just ended",
        "one that is not whole yet is not used",
        "the newest",
        "later",
        "the newest is gone",
    ],
)
def test_what_is_mined_begins_with_the_newest_dictionary_that_is_whole_before_it(archived, low, begin):
    assert mined_from(archived, low) == begin


@pytest.mark.parametrize(("archived", "low"), [(WHOLE, 38), ([], 99), ([WHOLE[0], WHOLE[2]], 99), (WHOLE[1:4], 99)])
def test_a_dictionary_that_is_late_or_has_a_hole_is_none(archived, low):
    with pytest.raises(DataLossError):
        mined_from(archived, low)


def test_a_dictionary_is_old_when_more_logs_of_its_thread_were_filled(database):
    assert [len(dictionaries(found)) for found in (WHOLE, [], WHOLE[:2])] == [2, 0, 0]
    assert [is_old(WHOLE[:4], most) for most in (0, 1)] == [True, False]
    assert is_old([], 99)
    assert not is_old([*WHOLE, log(6, thread=2), log(7, thread=2)], 1)
