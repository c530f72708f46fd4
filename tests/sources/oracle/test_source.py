"""Rule: committed work only, in commit order, whole transactions per batch; what is replayed has the same bytes; a
range of the log is mined once, and what staging lost is mined again."""

from __future__ import annotations

import itertools
import shutil

import pytest
from tests.sources.oracle.runs import Run, data, image

from headrace.emulators.oracle import EmulatedOracle
from headrace.errors import CaptureError, ConnectError, DataLossError, OptionError, PositionMismatch
from headrace.sources.oracle.connection import Connection, OracleError

INSERT = "INSERT INTO CUSTOMERS (ID, NAME, CREDIT) VALUES (:id, :name, :credit)"


def add(connection, *ids, name="x"):
    for id in ids:
        connection.execute(INSERT, id=id, name=name, credit="0.50")


def row(id, name="x", credit="0.50"):
    return {"ID": str(id), "NAME": name, "CREDIT": credit}


# Snapshots.


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100])
def test_a_snapshot_in_chunks_reads_every_row_once(database, session, chunk):
    add(session, *range(5))
    session.commit()
    rows = Run(database, snapshot_chunk_rows=chunk, snapshot_chunks_per_batch=2).until_level()
    assert data(rows) == [("r", "CUSTOMERS", row(id)) for id in range(5)]
    marks = [r["snapshot"] for r in rows if r["op"] == "r"]
    assert (marks[0], marks[-1]) == ("first", "last")


def test_a_snapshot_sees_one_moment_however_many_batches_it_takes(database, session):
    add(session, 1, 2, 3)
    session.commit()
    run = Run(database, snapshot_chunk_rows=1, snapshot_chunks_per_batch=1)
    rows = run.batch()
    session.execute("UPDATE CUSTOMERS SET NAME = 'later'")
    add(session, 4)
    session.commit()
    rows += run.until_level()
    assert data(rows) == [
        *(("r", "CUSTOMERS", row(id)) for id in (1, 2, 3)),
        *(("u", "CUSTOMERS", row(id, "later")) for id in (1, 2, 3)),
        ("c", "CUSTOMERS", row(4)),
    ]


def test_a_transaction_that_was_open_at_the_snapshot_comes_whole(database, session):
    add(session, 1)
    session.commit()
    add(session, 2)
    with database.connect() as other:
        add(other, 3)
        run = Run(database)
        rows = run.batch()
        add(session, 4)
        session.commit()
        other.rollback()
    rows += run.until_level()
    assert data(rows) == [("r", "CUSTOMERS", row(1)), ("c", "CUSTOMERS", row(2)), ("c", "CUSTOMERS", row(4))]


def test_without_a_snapshot_only_changes_come(database, session):
    add(session, 1)
    session.commit()
    run = Run(database, snapshot_mode="no_data")
    assert run.until_level() == []
    add(session, 2)
    session.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(2))]


def test_a_snapshot_whose_undo_is_gone_stops_and_says_what_to_raise(database, session):
    add(session, 1, 2, 3)
    session.commit()
    run = Run(database, snapshot_chunk_rows=1, snapshot_chunks_per_batch=1)
    run.batch()
    add(session, 4)
    session.commit()
    database.forget_undo()
    with pytest.raises(DataLossError, match="UNDO_RETENTION"):
        run.until_level()


# Transactions.


def test_commits_come_in_their_order_and_not_in_that_of_their_changes(database, session):
    run = Run(database)
    run.until_level()
    with database.connect() as other:
        add(session, 1)
        add(other, 2)
        add(session, 3)
        other.commit()
        session.commit()
    rows = run.until_level()
    assert data(rows) == [("c", "CUSTOMERS", row(id)) for id in (2, 1, 3)]
    assert [r["position"] for r in rows] == sorted(r["position"] for r in rows)


def test_what_is_rolled_back_never_comes(database, session):
    run = Run(database)
    run.until_level()
    add(session, 1)
    session.rollback()
    assert run.until_level() == []


def test_the_bound_on_commits_cuts_between_transactions(database, session):
    run = Run(database, max_commits_per_trigger=2)
    run.until_level()
    for id in (1, 3, 5):
        add(session, id, id + 1)
        session.commit()
    sizes = []
    while not sizes or sizes[-1]:
        sizes.append(len(data(run.batch())))
    assert sizes[:2] == [4, 2]


UNDONE = [
    (
        "a row inserted after the savepoint",
        ["insert 1", "savepoint", "insert 2", "back", "insert 3"],
        [("c", row(1)), ("c", row(3))],
    ),
    (
        "the same row updated twice and taken back once",
        ["insert 1", "update 1 a", "savepoint", "update 1 b", "back"],
        [("c", row(1)), ("u", row(1, "a"))],
    ),
    ("everything", ["savepoint", "insert 1", "update 1 a", "back"], []),
    (
        "a delete",
        ["insert 1", "savepoint", "delete 1", "back", "update 1 z"],
        [("c", row(1)), ("u", row(1, "z"))],
    ),
    (
        "and done again",
        ["insert 1", "savepoint", "update 1 a", "back", "update 1 b"],
        [("c", row(1)), ("u", row(1, "b"))],
    ),
]


@pytest.mark.parametrize(("actions", "expected"), [c[1:] for c in UNDONE], ids=[c[0] for c in UNDONE])
def test_what_is_taken_back_to_a_savepoint_is_left_out(database, session, actions, expected):
    run = Run(database)
    run.until_level()
    for action in actions:
        word, *rest = action.split()
        if word == "insert":
            add(session, int(rest[0]))
        elif word == "update":
            session.execute("UPDATE CUSTOMERS SET NAME = :name WHERE ID = :id", id=int(rest[0]), name=rest[1])
        elif word == "delete":
            session.execute("DELETE FROM CUSTOMERS WHERE ID = :id", id=int(rest[0]))
        else:
            session.execute("SAVEPOINT S" if word == "savepoint" else "ROLLBACK TO S")
    session.commit()
    assert [(op, values) for op, _, values in data(run.until_level())] == expected


def test_work_of_sys_and_of_excluded_users_is_left_out(database, session):
    run = Run(database, users_excluded="ROBOT")
    run.until_level()
    for id, user in enumerate(("SYS", "ROBOT", "SHOP")):
        with database.connect(user) as other:
            other.execute("INSERT INTO SHOP.CUSTOMERS (ID, NAME) VALUES (:id, :name)", id=id, name=user)
            other.commit()
    assert [values["NAME"] for _, _, values in data(run.until_level())] == ["SHOP"]


def test_a_key_that_changes_is_one_update_with_both_keys(database, session):
    add(session, 1)
    session.commit()
    run = Run(database)
    run.until_level()
    session.execute("UPDATE CUSTOMERS SET ID = 2 WHERE ID = 1")
    session.commit()
    (update,) = [r for r in run.until_level() if r["op"] == "u"]
    assert (image(update["before"])["ID"], image(update["after"])["ID"]) == ("1", "2")
    assert (update["key_text"], update["changed"]) == ('["2"]', ["ID"])


def followed(held, rows):
    """A table by key after rows in the order of their positions, as who follows by key has it."""
    for r in sorted(rows, key=lambda r: r["position"]):
        if r["op"] in ("d", "u"):
            held.pop(image(r["before"])["ID"], None)
        if r["op"] in ("c", "u", "r"):
            held[image(r["after"])["ID"]] = image(r["after"])["NAME"]
    return held


@pytest.mark.parametrize(
    "statement",
    ["UPDATE CUSTOMERS SET ID = ID + 1", "UPDATE CUSTOMERS SET ID = 4 - ID", "UPDATE CUSTOMERS SET ID = 1 + ID % 3"],
    ids=["shift", "swap", "circle"],
)
def test_rows_that_take_over_each_others_keys_are_none_lost(database, session, statement):
    for id in (1, 2, 3):
        add(session, id, name=f"was {id}")
    session.commit()
    run = Run(database)
    held = followed({}, run.until_level())
    session.execute(statement)
    session.commit()
    held = followed(held, run.until_level())
    assert held == {str(r["ID"]): r["NAME"] for r in database.rows("SHOP", "CUSTOMERS")}


def test_transactions_have_edges_and_counts_where_asked(database, session):
    run = Run(database, provide_transaction_metadata=True)
    run.until_level()
    add(session, 1, 2)
    session.execute("UPDATE CUSTOMERS SET ID = 9 WHERE ID = 2")
    add(session, 3)
    session.commit()
    rows = [r for r in run.until_level() if r["op"] != "schema"]
    assert [r["op"] for r in rows] == ["begin", "c", "c", "u", "c", "end"]
    orders = [(r["transaction"]["total_order"], r["transaction"]["data_collection_order"]) for r in rows]
    # A change of key is a delete and an insert.
    assert orders == [(None, None), (1, 1), (2, 2), (3, 3), (5, 5), (5, None)]
    assert (
        image(rows[-1]["source"])["data_collections"] == '[{"data_collection":"ORCL.SHOP.CUSTOMERS","event_count":5}]'
    )


# Replays, staging and the log.


def test_a_replay_has_the_same_bytes_also_in_a_new_process_and_with_staging_lost(database, session):
    run = Run(database)
    run.until_level()
    start = run.offset
    with database.connect() as other:
        add(other, 7)
        for id in (1, 2):
            add(session, id)
            session.commit()
        rows = run.batch(acknowledge=False)
        end = run.offset
        assert run.rows_of(start, end) == rows
        run.restarted()
        assert run.rows_of(start, end) == rows
        shutil.rmtree(run.options["staging_location"])
        assert run.restarted().rows_of(start, end) == rows
        shutil.rmtree(run.options["staging_location"])
        other.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(7))]


def test_a_damaged_range_is_mined_again(database, session):
    run = Run(database)
    run.until_level()
    start = run.offset
    add(session, 1)
    session.commit()
    rows = run.batch(acknowledge=False)
    for file in (database.directory / "staging").glob("*.json"):
        file.write_bytes(b"damaged")
    assert run.restarted().rows_of(start, run.offset) == rows


def test_a_transaction_that_is_open_for_long_costs_no_mining_again(database, session, mined):
    run = Run(database)
    run.until_level()
    with database.connect() as long:
        add(long, 100)
        low = int(run.offset.log["mined"])
        mined()
        for id in range(1, 6):
            add(session, id)
            session.commit()
            assert data(run.until_level()) == [("c", "CUSTOMERS", row(id))]
        mined = mined()
        # Side by side and each once.
        assert mined[0][0] == low + 1
        assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(mined))
        # Only the range that has a row of it is still needed, wherever the stream is.
        assert len(run.offset.log["ranges"]) == 1
        add(long, 101)
        long.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(100)), ("c", "CUSTOMERS", row(101))]
    assert run.offset.log["ranges"] == []


def test_staging_forgets_what_is_delivered(database, session):
    run = Run(database)
    run.until_level()
    for id in range(4):
        add(session, id)
        session.commit()
        run.until_level()
    run.source.acknowledge(run.offset)
    assert not list((database.directory / "staging").iterdir())


def test_ranges_are_mined_side_by_side_by_tasks_each_once(database, session, mined):
    run = Run(database, mining_range_scns=10, mining_sessions=3)
    run.until_level()
    for id in range(40):
        add(session, id)
        session.commit()
    mined()
    rows, most = [], 0
    head = run.source.head()
    while run.offset.commit < head:
        rows += run.batch(acknowledge=False)
        most = max(most, len(run.offset.log["mining"]))
    assert data(rows) == [("c", "CUSTOMERS", row(id)) for id in range(40)]
    mined = mined()
    assert most == 3
    assert sorted(set(mined)) == sorted(mined)


def test_logs_are_followed_through_switches_and_archives(database, session):
    run = Run(database)
    run.until_level()
    for id in range(8):
        add(session, id)
        session.commit()
        database.switch_log()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(id)) for id in range(8)]


def test_missing_logs_stop_the_run_and_say_what_to_do(database, session):
    run = Run(database)
    run.until_level()
    add(session, 1)
    session.commit()
    database.switch_log()
    database.delete_archived()
    with pytest.raises(DataLossError, match=r"Restore the archived logs .* or take a new snapshot"):
        run.until_level()


def test_only_archived_logs_where_asked(database, session):
    database.switch_log()
    run = Run(database, archive_log_only=True, snapshot_mode="no_data")
    run.batch()
    add(session, 1)
    session.commit()
    assert run.batch() == []
    database.switch_log()
    rows = []
    for _ in range(3):
        rows += run.batch()
    assert data(rows) == [("c", "CUSTOMERS", row(1))]


def test_several_redo_threads_come_as_one_stream_in_the_order_of_commits(tmp_path):
    with EmulatedOracle(tmp_path / "server", threads=2) as database:
        database.run("CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME VARCHAR2(50))")
        run = Run(database, rac_nodes="instance:2")
        run.until_level()
        with database.connect(instance=1) as one, database.connect(instance=2) as two:
            for id in range(6):
                node = (one, two)[id % 2]
                node.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (:id, 'x')", id=id)
                node.commit()
                database.switch_log(1 + id % 2)
        rows = run.until_level()
        assert [values["ID"] for _, _, values in data(rows)] == ["0", "1", "2", "3", "4", "5"]
        assert [image(r["source"])["redo_thread"] for r in rows if r["op"] == "c"] == ["1", "2"] * 3
        assert set(run.offset.log["commit_scn"]) == {"1", "2"}


def test_a_thread_that_lags_holds_the_stream_where_it_is(tmp_path):
    with EmulatedOracle(tmp_path / "server", threads=2) as database:
        database.run("CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME VARCHAR2(50))")
        run = Run(database)
        with database.connect(instance=2) as two:
            two.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (1, 'first')")
            two.commit()
            run.until_level()
            database.run("INSERT INTO CUSTOMERS (ID, NAME) VALUES (2, 'not yet')")
            # What thread 2 wrote since is not known yet.
            assert data(run.batch()) == []
            two.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (3, 'last')")
            two.commit()
            two.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (4, 'later')")
            two.commit()
        assert [v["NAME"] for _, _, v in data(run.until_level())] == ["not yet", "last"]


# Tables and structures.


def test_a_truncate_is_an_event_without_key_and_images(database, session):
    add(session, 1)
    session.commit()
    run = Run(database)
    run.until_level()
    session.execute("TRUNCATE TABLE CUSTOMERS")
    add(session, 2)
    session.commit()
    truncate, create = [r for r in run.until_level() if r["op"] != "schema"]
    assert [truncate[name] for name in ("op", "key", "before", "after")] == ["t", None, None, None]
    assert (create["op"], image(create["after"])["ID"]) == ("c", "2")


def test_a_column_that_is_added_comes_with_the_definition_before_it(database, session):
    run = Run(database)
    run.until_level()
    add(session, 1)
    session.commit()
    session.execute("ALTER TABLE CUSTOMERS ADD (PHONE VARCHAR2(20))")
    session.execute("INSERT INTO CUSTOMERS (ID, NAME, PHONE) VALUES (2, 'y', '555')")
    session.commit()
    rows = run.until_level()
    assert data(rows) == [
        ("c", "CUSTOMERS", row(1)),
        ("c", "CUSTOMERS", {"ID": "2", "NAME": "y", "CREDIT": None, "PHONE": "555"}),
    ]
    definitions = [r for r in rows if r["op"] == "schema" and "ddl" in image(r["source"])]
    assert [image(r["source"])["ddl"] for r in definitions] == ["ALTER TABLE CUSTOMERS ADD (PHONE VARCHAR2(20))"]
    assert '"PHONE"' in definitions[0]["table_schema"]
    creates = [r for r in rows if r["op"] == "c"]
    assert creates[0]["position"] < definitions[0]["position"] < creates[1]["position"]
    assert creates[0]["schema_id"] != creates[1]["schema_id"] == definitions[0]["schema_id"]


def test_a_column_that_is_dropped_is_gone_from_what_follows(database, session):
    run = Run(database)
    run.until_level()
    session.execute("ALTER TABLE CUSTOMERS DROP COLUMN CREDIT")
    session.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (1, 'x')")
    session.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", {"ID": "1", "NAME": "x"})]


def test_a_table_that_is_created_is_captured_from_its_first_row_on(database, session):
    run = Run(database)
    run.until_level()
    session.execute("CREATE TABLE NEWS (ID NUMBER(4) NOT NULL PRIMARY KEY, TEXT VARCHAR2(20))")
    session.execute("INSERT INTO NEWS (ID, TEXT) VALUES (1, 'first')")
    session.commit()
    assert data(run.until_level()) == [("c", "NEWS", {"ID": "1", "TEXT": "first"})]


def test_a_table_that_the_options_name_later_comes_in_with_a_snapshot(database, session):
    session.execute("CREATE TABLE NEWS (ID NUMBER(4) NOT NULL PRIMARY KEY, TEXT VARCHAR2(20))")
    session.execute("INSERT INTO NEWS (ID, TEXT) VALUES (1, 'old')")
    session.commit()
    run = Run(database, tables="SHOP.CUSTOMERS")
    run.until_level()
    # Open while the table is not captured yet, and long before the run that takes it in.
    session.execute("INSERT INTO NEWS (ID, TEXT) VALUES (2, 'open')")
    with database.connect() as other:
        add(other, 1)
        other.commit()
    run.until_level()
    run.restarted(tables="SHOP.CUSTOMERS,SHOP.NEWS")
    rows = run.until_level()
    session.commit()
    rows += run.until_level()
    assert data(rows) == [("r", "NEWS", {"ID": "1", "TEXT": "old"}), ("c", "NEWS", {"ID": "2", "TEXT": "open"})]


def test_a_table_that_is_dropped_and_made_again_goes_on_with_its_new_structure(database, session):
    run = Run(database)
    run.until_level()
    session.execute("DROP TABLE CUSTOMERS")
    session.execute("CREATE TABLE CUSTOMERS (CODE VARCHAR2(5) NOT NULL PRIMARY KEY)")
    session.execute("INSERT INTO CUSTOMERS (CODE) VALUES ('a')")
    session.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", {"CODE": "a"})]


def test_a_pluggable_database_is_captured_from_the_root(tmp_path):
    with EmulatedOracle(tmp_path / "server", "CDB1", pdb="ORCLPDB1") as database:
        database.run("CREATE TABLE CUSTOMERS (ID NUMBER(9) NOT NULL PRIMARY KEY)")
        database.run("INSERT INTO CUSTOMERS (ID) VALUES (1)")
        run = Run(database, pdb="ORCLPDB1")
        rows = run.until_level()
        database.run("INSERT INTO CUSTOMERS (ID) VALUES (2)")
        rows += run.until_level()
        assert [(op, values["ID"]) for op, _, values in data(rows)] == [("r", "1"), ("c", "2")]
        assert {r["table"]["database"] for r in rows} == {"ORCLPDB1"}


# What is refused.


def test_a_change_that_does_not_say_its_key_stops_and_names_the_statement(database, session):
    run = Run(database)
    add(session, 1)
    session.commit()
    run.until_level()
    session.execute("DELETE FROM CUSTOMERS WHERE ID = 1")
    session.commit()
    # As LogMiner prints it without supplemental logging.
    database._connection.execute(
        "UPDATE \"sys.redo\" SET sql_redo = 'delete from \"SHOP\".\"CUSTOMERS\" where ROWID = ''A'';'"
        " WHERE operation_code = 2"
    )
    with pytest.raises(CaptureError, match=r"ADD SUPPLEMENTAL LOG DATA \(ALL\) COLUMNS"):
        run.until_level()


def test_a_database_that_was_restored_is_not_followed(database, session):
    run = Run(database)
    run.until_level()
    database.set_fact("resetlogs", 999)
    with pytest.raises(PositionMismatch, match="RESETLOGS"):
        run.restarted().batch()


@pytest.mark.parametrize(
    ("fact", "value", "message"),
    [("log_mode", "NOARCHIVELOG", "ARCHIVELOG"), ("supplemental", "NO", "ADD SUPPLEMENTAL LOG DATA")],
)
def test_a_database_that_is_not_set_up_says_the_statement(database, fact, value, message):
    database.set_fact(fact, value)
    with pytest.raises(CaptureError, match=message):
        Run(database).batch()


def test_a_table_that_is_not_there_is_named_with_the_nearest(database):
    with pytest.raises(CaptureError, match=r"no table 'SHOP.CUSTOMER'.*Did you mean 'SHOP.CUSTOMERS'"):
        Run(database, tables="SHOP.CUSTOMER").batch()


def test_a_server_that_is_not_there_is_a_connect_error(database, tmp_path):
    run = Run(database)
    run.options["hostname"] = str(tmp_path / "nowhere")
    with pytest.raises(ConnectError, match="Check 'hostname'"):
        run.restarted().batch()


def test_without_a_staging_location_the_run_says_so(database):
    with pytest.raises(OptionError, match="staging_location"):
        Run(database, staging_location="").batch()


@pytest.mark.parametrize("mode", ["fail", "warn", "skip"])
def test_a_change_that_logminer_cannot_print_stops_or_is_left_out_as_the_options_say(database, session, mode, caplog):
    run = Run(database, unreadable_changes=mode)
    run.until_level()
    add(session, 1, 2)
    session.commit()
    database._connection.execute(
        "UPDATE \"sys.redo\" SET operation_code = 255, sql_redo = NULL, info = 'Unsupported'"
        " WHERE sql_redo LIKE 'insert%''1''%' AND operation_code = 1"
    )
    if mode == "fail":
        with pytest.raises(CaptureError, match=r"SHOP.CUSTOMERS can't be read.*'unreadable_changes'"):
            run.until_level()
        return
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(2))]
    assert ("can't be read" in caplog.text) == (mode == "warn")


@pytest.mark.parametrize(
    ("tables", "excluded", "found"),
    [
        ("SHOP.*", "", ["CUSTOMERS", "CUSTOMERS_OLD", "ORDERS"]),
        ("shop.cust*", "", ["CUSTOMERS", "CUSTOMERS_OLD"]),
        ("SHOP.ORDERS,SHOP.CUSTOMERS", "", ["ORDERS", "CUSTOMERS"]),
        (r"SHOP\.(ORDERS|CUSTOMERS)", "", ["CUSTOMERS", "ORDERS"]),
        ("re:SHOP.CUST[A-Z]+", "", ["CUSTOMERS"]),
        ("SHOP.*", "*.*_OLD", ["CUSTOMERS", "ORDERS"]),
        # Without a list those that log all their columns.
        ("", "", ["CUSTOMERS"]),
    ],
)
def test_tables_are_chosen_as_globs_or_as_debezium_writes_them(database, tables, excluded, found):
    for name in ("CUSTOMERS_OLD", "ORDERS"):
        database.run(f"CREATE TABLE {name} (ID NUMBER(9) NOT NULL PRIMARY KEY)")
    run = Run(database, tables=tables, tables_excluded=excluded)
    assert [schema.id.name for schema in run.source.tables()] == found


# What is asked before a run.


@pytest.mark.parametrize(
    ("wanted", "right", "grant"),
    [
        ("V$THREAD", "SELECT on V_$THREAD", "Run as SYS: GRANT SELECT ON V_$THREAD TO C##MINER;"),
        (
            "V$LOGFILE",
            "SELECT on V_$LOG and V_$LOGFILE",
            "Run as SYS: GRANT SELECT ON V_$LOG TO C##MINER; GRANT SELECT ON V_$LOGFILE TO C##MINER;",
        ),
        (
            '"SHOP"."CUSTOMERS"',
            "SELECT and FLASHBACK on SHOP.CUSTOMERS",
            'Run: GRANT SELECT, FLASHBACK ON "SHOP"."CUSTOMERS" TO C##MINER;',
        ),
    ],
)
def test_a_right_that_is_missing_comes_with_its_grant(database, monkeypatch, wanted, right, grant):
    source = Run(database).source
    source.connect()
    assert source.missing_rights() == []
    rows = Connection.rows

    def refused(connection, sql, **parameters):
        if wanted in sql:
            error = OracleError("ORA-00942: table or view does not exist")
            error.number = 942
            raise error
        return rows(connection, sql, **parameters)

    monkeypatch.setattr(Connection, "rows", refused)
    (found,) = source.missing_rights()
    assert (right in found.right, found.grant, found.required) == (True, grant, True)


def test_a_preview_mines_nothing_and_shows_new_tables(database, session, mined):
    add(session, 1)
    session.commit()
    database.run(
        "CREATE TABLE ORDERS (ID NUMBER(9) NOT NULL PRIMARY KEY)",
        "ALTER TABLE ORDERS ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
    )
    run = Run(database, tables="SHOP.CUSTOMERS")
    assert run.source.preview(run.offset, run.now).known == ("SHOP.CUSTOMERS",)
    run.until_level()
    add(session, 2)
    session.commit()
    mined()
    found = run.restarted(tables="SHOP.*").source.preview(run.offset, run.now)
    assert mined() == []
    assert found.known == ("SHOP.CUSTOMERS", "SHOP.ORDERS")
    assert [path for path, progress in found.tables.items() if not progress.done] == ["SHOP.ORDERS"]
