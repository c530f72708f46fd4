"""Which tables are captured, and how they look, follows the definitions in the log."""

from __future__ import annotations

from tests.sources.oracle.runs import Run, add, data, image, row

from headrace_emulators.oracle import EmulatedOracle


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
    run = Run(database, log_mining_strategy="redo_log_catalog")
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
    assert data(run.until_level()) == [("c", "CUSTOMERS", {"CODE": "a"}), ("r", "CUSTOMERS", {"CODE": "a"})]


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


def test_tables_come_and_go_with_their_logging_where_none_is_named(database, session, caplog):
    add(session, 1)
    session.commit()
    database.run("CREATE TABLE OLD (ID NUMBER(4) NOT NULL PRIMARY KEY)", "INSERT INTO OLD (ID) VALUES (1)")
    run = Run(database, tables=None)
    assert data(run.until_level()) == [("r", "CUSTOMERS", row(1))]
    session.execute("ALTER TABLE CUSTOMERS DROP SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    add(session, 2)
    session.commit()
    session.execute("ALTER TABLE OLD ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    session.execute("INSERT INTO OLD (ID) VALUES (2)")
    session.commit()
    rows = run.until_level()
    # What it held before comes by a snapshot behind the batch, since no log that is read has it.
    assert data(rows) == [("c", "OLD", {"ID": "2"}), ("r", "OLD", {"ID": "1"}), ("r", "OLD", {"ID": "2"})]
    told = [(r["table"]["name"], image(r["source"])["change"]) for r in rows if "ddl" in image(r["source"] or [])]
    assert told == [("CUSTOMERS", "DROP"), ("OLD", "CREATE")]
    assert "Table 'SHOP.CUSTOMERS' is not captured any more. Its changes are missing" in caplog.text


def test_a_named_table_that_stops_logging_its_columns_is_captured_on_with_a_warning(database, session, caplog):
    run = Run(database, tables="SHOP.CUSTOMERS")
    run.until_level()
    session.execute("ALTER TABLE CUSTOMERS DROP SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    add(session, 1)
    session.commit()
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(1))]
    assert "Table 'SHOP.CUSTOMERS' is not captured any more. It does not log all its columns" in caplog.text
