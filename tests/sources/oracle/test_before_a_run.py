"""What is reported about a database before a run: missing permissions, what a run would begin with."""

from __future__ import annotations

import pytest
from tests.sources.oracle.runs import Run, add

from headrace.sources.oracle.connection import Connection, OracleError


@pytest.mark.parametrize(
    ("wanted", "permission", "grant"),
    [
        ("V$THREAD", "SELECT on V_$THREAD", "Run as SYS: GRANT SELECT ON V_$THREAD TO C##MINER;"),
        (
            "V$LOGFILE",
            "SELECT on V_$LOG and V_$LOGFILE",
            "Run as SYS: GRANT SELECT ON V_$LOG TO C##MINER; GRANT SELECT ON V_$LOGFILE TO C##MINER;",
        ),
        (
            '"SHOP"."CUSTOMERS"',
            "SELECT, FLASHBACK on SHOP.CUSTOMERS",
            'Run: GRANT SELECT, FLASHBACK ON "SHOP"."CUSTOMERS" TO C##MINER;',
        ),
    ],
)
def test_a_permission_that_is_missing_comes_with_its_grant(database, monkeypatch, wanted, permission, grant):
    source = Run(database).source
    source.connect()
    assert source.missing_permissions() == []
    rows = Connection.rows

    def refused(connection, sql, **parameters):
        if wanted in sql:
            error = OracleError("ORA-00942: table or view does not exist")
            error.number = 942
            raise error
        return rows(connection, sql, **parameters)

    monkeypatch.setattr(Connection, "rows", refused)
    (found,) = source.missing_permissions()
    assert (permission in found.sentence, found.remedy, found.required) == (True, grant, True)


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
