"""Rule: a SELECT of the user's stands for a table in its snapshot, as of the snapshot's SCN; changes come as ever."""

from __future__ import annotations

import pytest
from tests.sources.oracle.runs import Run, add, data, row

from headrace.errors import CaptureError, DataLossError, OptionError
from headrace.sources.oracle.connection import Connection, OracleError

WHERE = "SELECT * FROM SHOP.CUSTOMERS WHERE ID > 1 -- the rest is history"
NAME = "snapshot.select.statement.overrides.SHOP.CUSTOMERS"


@pytest.fixture
def run(database, session):
    session.execute("CREATE TABLE MARKS (ID NUMBER(9) NOT NULL PRIMARY KEY)")
    add(session, 1, 2, 3)
    session.execute("INSERT INTO MARKS (ID) VALUES (1)")
    session.commit()

    def made(select, **options):
        return Run(
            database,
            snapshot_select_statement_overrides="SHOP.CUSTOMERS",
            **{NAME: select, "snapshot_chunks_per_batch": 1, "tables": "SHOP.MARKS,SHOP.CUSTOMERS", **options},
        )

    return made


def test_its_rows_are_read_in_one_chunk_as_they_were_at_the_snapshots_scn(run, session):
    reader = run(WHERE, snapshot_chunk_rows=1)
    rows = reader.batch()
    session.execute("UPDATE CUSTOMERS SET NAME = 'later'")
    session.execute("DELETE FROM CUSTOMERS WHERE ID = 2")
    session.commit()
    rows += reader.until_level()
    assert data(rows) == [
        ("r", "MARKS", {"ID": "1"}),
        *(("r", "CUSTOMERS", row(id)) for id in (2, 3)),
        *(("u", "CUSTOMERS", row(id, "later")) for id in (1, 2, 3)),
        ("d", "CUSTOMERS", row(2, "later")),
    ]


def test_one_that_gives_nothing_is_an_empty_snapshot(run):
    rows = run("SELECT * FROM SHOP.CUSTOMERS WHERE ID > 9").until_level()
    assert data(rows) == [("r", "MARKS", {"ID": "1"})]
    assert [r["snapshot"] for r in rows if r["op"] == "schema"] == [None, "last_in_data_collection"]


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("SELECT ID FROM SHOP.CUSTOMERS", "for table 'SHOP.CUSTOMERS' failed.*CREDIT|NAME"),
        ("SELECT * FROM SHOP.NOWHERE", "for table 'SHOP.CUSTOMERS' failed"),
    ],
)
def test_one_that_fails_is_named_with_what_it_must_give(run, select, message):
    with pytest.raises(CaptureError, match=message) as caught:
        run(select).until_level()
    assert "every captured column" in caught.value.remedy


def test_one_that_is_no_select_is_refused_before_anything_is_asked(run):
    with pytest.raises(OptionError, match="is no SELECT"):
        run("DELETE FROM SHOP.CUSTOMERS")


def test_undo_that_is_gone_is_said_as_for_the_table_itself(run, database, session):
    reader = run(WHERE)
    reader.batch()
    add(session, 4)
    session.commit()
    database.forget_undo()
    with pytest.raises(DataLossError, match="UNDO_RETENTION"):
        reader.until_level()


def test_the_permission_that_it_needs_is_checked_before_a_run(run, monkeypatch):
    source = run(WHERE).source
    assert source.missing_permissions() == []
    ran = Connection.run

    def refused(connection, sql, **parameters):
        if "DBMS_FLASHBACK" in sql:
            error = OracleError("ORA-06550: PLS-00201: identifier 'SYS.DBMS_FLASHBACK' must be declared")
            error.number = 6550
            raise error
        ran(connection, sql, **parameters)

    monkeypatch.setattr(Connection, "run", refused)
    (found,) = source.missing_permissions()
    assert found.remedy == "Run as SYS: GRANT EXECUTE ON DBMS_FLASHBACK TO C##MINER;"
    with pytest.raises(CaptureError) as caught:
        run(WHERE, tables="SHOP.CUSTOMERS").batch()
    assert "GRANT EXECUTE ON DBMS_FLASHBACK" in caught.value.remedy
