"""Rule: a table that is captured no longer, or not whole, is named until the options leave it out, and stops none of
the others; when it is whole again, it is read again.
"""

from __future__ import annotations

import pytest
from tests.sources.oracle.runs import Run, add, data, row

from headrace.errors import CaptureError, DataLossError

OFF = "ALTER TABLE CUSTOMERS DROP SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
ON = "ALTER TABLE CUSTOMERS ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
WAYS = {
    "dropped, named": ("SHOP.CUSTOMERS,SHOP.OTHERS", "DROP TABLE CUSTOMERS"),
    "dropped, not named": ("", "DROP TABLE CUSTOMERS"),
    "no logging, named": ("SHOP.CUSTOMERS,SHOP.OTHERS", OFF),
    "no logging, not named": ("", OFF),
}


@pytest.fixture
def others(database):
    """A second table, which stays."""
    database.run(
        "CREATE TABLE OTHERS (ID NUMBER(4) NOT NULL PRIMARY KEY)",
        "ALTER TABLE OTHERS ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
    )


def begun(database, tables, **options):
    run = Run(database, tables=tables, **options)
    run.until_level()
    return run


def lose(session, statement):
    session.execute(statement)
    session.execute("INSERT INTO OTHERS (ID) VALUES (1)")
    session.commit()


@pytest.mark.parametrize(("tables", "statement"), WAYS.values(), ids=WAYS)
def test_it_is_named_in_log_offset_and_health_and_the_others_go_on(
    database, session, others, caplog, tables, statement
):
    run = begun(database, tables)
    lose(session, statement)
    assert data(run.until_level()) == [("c", "OTHERS", {"ID": "1"})]
    assert [*run.offset.uncaptured] == ["SHOP.CUSTOMERS"]
    assert run.source.health(run.offset).uncaptured == ("SHOP.CUSTOMERS",)
    assert caplog.text.count("Table 'SHOP.CUSTOMERS' is not captured any more.") == 1
    caplog.clear()
    run.restarted()
    there = [schema.id.name for schema in run.source.tables(run.offset.tables_seen)]
    assert there == (["CUSTOMERS", "OTHERS"] if statement == OFF and tables else ["OTHERS"])
    run.batch()
    assert caplog.text.count("Table 'SHOP.CUSTOMERS' is not captured any more.") == 1
    assert [*run.offset.uncaptured] == ["SHOP.CUSTOMERS"]


def test_a_dropped_table_is_seen_before_a_run_sees_it(database, session, others):
    run = begun(database, "SHOP.CUSTOMERS,SHOP.OTHERS")
    session.execute("DROP TABLE CUSTOMERS")
    assert run.source.health(run.offset).uncaptured == ("SHOP.CUSTOMERS",)
    run.restarted()
    assert [schema.id.name for schema in run.source.tables(run.offset.tables_seen)] == ["OTHERS"]
    with pytest.raises(CaptureError, match=r"no table 'SHOP\.TYPO'"):
        run.restarted(tables="SHOP.CUSTOMERS,SHOP.TYPO").source.tables(run.offset.tables_seen)


@pytest.mark.parametrize("statement", ["DROP TABLE CUSTOMERS", OFF])
def test_a_run_stops_for_it_where_the_user_wants_that(database, session, others, statement):
    run = begun(database, "SHOP.CUSTOMERS,SHOP.OTHERS", on_table_lost="fail")
    lose(session, statement)
    with pytest.raises(CaptureError, match=r"Table 'SHOP\.CUSTOMERS' is not captured any more\."):
        run.until_level()


def test_it_is_named_until_the_options_leave_it_out(database, session, others):
    run = begun(database, "SHOP.CUSTOMERS,SHOP.OTHERS")
    lose(session, "DROP TABLE CUSTOMERS")
    run.until_level()
    run.restarted(tables="SHOP.OTHERS")
    assert run.source.health(run.offset).uncaptured == ()
    session.execute("INSERT INTO OTHERS (ID) VALUES (2)")
    session.commit()
    run.until_level()
    assert run.offset.uncaptured == {}


@pytest.mark.parametrize("tables", ["SHOP.CUSTOMERS,SHOP.OTHERS", ""], ids=["named", "not named"])
def test_when_it_logs_its_columns_again_the_gap_is_said_and_it_is_read_again(database, session, others, caplog, tables):
    add(session, 1)
    session.commit()
    run = begun(database, tables)
    lose(session, OFF)
    run.until_level()
    session.execute("UPDATE CUSTOMERS SET NAME = 'y' WHERE ID = 1")
    session.commit()
    run.until_level()
    session.execute(ON)
    session.commit()
    rows = run.until_level()
    found = [(r["op"], r["table"]["name"]) for r in rows if r["op"] != "schema"]
    assert found == [("gap", "CUSTOMERS"), ("r", "CUSTOMERS")]
    assert data(rows)[-1] == ("r", "CUSTOMERS", row(1, "y"))
    assert "rows that were deleted meanwhile go from tables that mirror it" in caplog.text
    assert (run.offset.uncaptured, run.source.health(run.offset).uncaptured) == ({}, ())


def test_a_stream_that_reads_no_tables_stops_when_one_comes_back(database, session, others):
    run = begun(database, "SHOP.CUSTOMERS,SHOP.OTHERS", snapshot_mode="no_data")
    lose(session, OFF)
    run.until_level()
    session.execute(ON)
    session.commit()
    with pytest.raises(DataLossError, match=r"Table 'SHOP\.CUSTOMERS' was not captured for a time"):
        run.until_level()
    run.restarted(fail_on_data_loss="false")
    assert [r["op"] for r in run.until_level() if r["op"] != "schema"] == ["gap"]


def test_one_that_was_dropped_and_made_again_is_followed_and_read_and_that_is_said(database, session, others, caplog):
    run = begun(database, "SHOP.CUSTOMERS,SHOP.OTHERS")
    for seen in (True, False):
        lose(session, "DROP TABLE CUSTOMERS") if seen else session.execute("DROP TABLE CUSTOMERS")
        if seen:
            run.until_level()
        session.execute("CREATE TABLE CUSTOMERS (CODE VARCHAR2(5) NOT NULL PRIMARY KEY)")
        session.execute("INSERT INTO CUSTOMERS (CODE) VALUES ('a')")
        session.commit()
        assert data(run.until_level()) == [("c", "CUSTOMERS", {"CODE": "a"}), ("r", "CUSTOMERS", {"CODE": "a"})]
        assert caplog.text.count("Table 'SHOP.CUSTOMERS' was dropped and made again. It is read again") == 1
        caplog.clear()
        assert run.offset.uncaptured == {}
