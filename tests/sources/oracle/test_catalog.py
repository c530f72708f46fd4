"""Rule: what can't be captured of a table is said when the run begins."""

from __future__ import annotations

import pytest
from tests.sources.oracle.runs import Run, data

from headrace.sources.oracle import statements
from headrace.sources.oracle.connection import Connection


def test_what_logminer_does_not_print_is_said_at_the_start(database, caplog):
    long = "A_NAME_OF_MORE_THAN_THIRTY_LETTERS"
    database.run(
        f"CREATE TABLE {long} (ID NUMBER(9) NOT NULL PRIMARY KEY)",
        f"ALTER TABLE {long} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
        f"CREATE TABLE T (ID NUMBER(9) NOT NULL PRIMARY KEY, {long} NUMBER(9))",
        "ALTER TABLE T ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
    )
    Run(database).batch()
    said = [r.message for r in caplog.records if "more than 30 characters" in r.message]
    assert [any(f"SHOP.{name} " in message for message in said) for name in (long, "T", "CUSTOMERS")] == [
        True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["BFILE", "UROWID", "JSON", "VECTOR", "LONG", "BOOLEAN"])
def test_a_column_of_a_type_that_is_not_captured_is_left_out_and_said(database, monkeypatch, caplog, kind):
    rows = Connection.rows

    def told(connection, sql, **parameters):
        found = rows(connection, sql, **parameters)
        # The emulator has no column of such a type; the catalog says that NAME is one.
        if sql == statements.COLUMNS:
            return [(*r[:2], kind, *r[3:]) if r[0] == "NAME" else r for r in found]
        return found

    monkeypatch.setattr(Connection, "rows", told)
    database.run("INSERT INTO CUSTOMERS (ID, NAME, CREDIT) VALUES (1, 'x', 1)")
    run = Run(database)
    rows_read = run.until_level()
    database.run("INSERT INTO CUSTOMERS (ID, NAME, CREDIT) VALUES (2, 'x', 1)")
    rows_read += run.until_level()
    assert [values for _, _, values in data(rows_read)] == [
        {"ID": "1", "CREDIT": "1.00"},
        {"ID": "2", "CREDIT": "1.00"},
    ]
    assert f"Columns of table SHOP.CUSTOMERS that are not captured: NAME ({kind})." in caplog.messages


def test_a_named_table_that_does_not_log_all_its_columns_is_captured_with_the_statement_that_helps(database, caplog):
    database.run("CREATE TABLE PLAIN (ID NUMBER(9) NOT NULL PRIMARY KEY)")
    run = Run(database, tables="SHOP.PLAIN,SHOP.CUSTOMERS")
    run.until_level()
    (said,) = [r.message for r in caplog.records if "does not log all its columns" in r.message]
    assert said.endswith('Run ALTER TABLE "SHOP"."PLAIN" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS.')
    database.run("INSERT INTO PLAIN (ID) VALUES (1)")
    assert data(run.until_level()) == [("c", "PLAIN", {"ID": "1"})]
