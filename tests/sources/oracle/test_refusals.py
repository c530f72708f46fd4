"""What can't be captured is said in a sentence with the way out, before anything is lost."""

from __future__ import annotations

import pytest
from tests.sources.oracle.runs import Run, add, data, row

from headrace.errors import CaptureError, ConnectError, OptionError, PositionMismatch
from headrace.sources.health import CaptureState


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


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_database_that_was_restored_is_not_followed(database, session, mode):
    run = Run(database)
    run.until_level()
    database.set_fact("resetlogs", 999)
    run.restarted(snapshot_mode=mode)
    with pytest.raises(PositionMismatch, match="RESETLOGS") as caught:
        run.batch()
    # Status says what the run says.
    health = run.source.health(run.offset)
    assert health.state is CaptureState.NOT_CAPTURING
    assert (health.sentence, health.remedy) == (caught.value.message, caught.value.remedy)


@pytest.mark.parametrize(
    ("fact", "value", "message"),
    [("log_mode", "NOARCHIVELOG", "ARCHIVELOG"), ("supplemental", "NO", "ADD SUPPLEMENTAL LOG DATA")],
)
def test_a_database_that_is_not_set_up_says_the_statement(database, fact, value, message):
    database.set_fact(fact, value)
    run = Run(database)
    health = run.source.health(run.offset)
    for ask in (run.batch, run.source.tables, run.source.missing_permissions):
        with pytest.raises(CaptureError, match=message) as caught:
            ask()
        assert (caught.value.message, caught.value.remedy) == (health.sentence, health.remedy)


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
    rows = run.until_level()
    assert data(rows) == [("error", "CUSTOMERS", None), ("c", "CUSTOMERS", row(2))]
    [error] = [found for found in rows if found["op"] == "error"]
    assert error["error"] == "A change of table SHOP.CUSTOMERS can't be read: LogMiner can't print it."
    assert error["table"]["name"] == "CUSTOMERS"
    assert error["position"] < max(found["position"] for found in rows if found["op"] == "c")
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
