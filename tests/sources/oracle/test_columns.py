"""Rule: lists of columns, masks, message keys and skipped operations do the same to a row that was read, to its
changes and to a row that is read again; options that are changed between two runs hold from the restart on."""

from __future__ import annotations

import hashlib

import pytest
from tests.sources.oracle.runs import Run, data, image

from headrace.errors import OptionError

COLUMN = r"SHOP\.CUSTOMERS\."
UPDATE = "UPDATE CUSTOMERS SET NAME = :name WHERE ID = :id"


@pytest.fixture
def session(database):
    with database.connect() as made:
        made.execute("INSERT INTO CUSTOMERS (ID, NAME, CREDIT) VALUES (1, 'Ada', '0.50')")
        made.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (2, NULL)")
        made.commit()
        yield made


def hashed(name):
    return hashlib.sha256(b"Salt" + name.encode()).hexdigest()[:50]


SHAPES = [
    ({"column_exclude_list": COLUMN + "NAME"}, {"CREDIT": "0.50"}, {"CREDIT": "0.50"}),
    ({"column_include_list": COLUMN + "NAME"}, {"NAME": "Ada"}, {"NAME": "Bea"}),
    ({"column.mask.with.3.chars": COLUMN + "NAME"}, {"NAME": "***", "CREDIT": "0.50"}, {"NAME": "***"}),
    ({"column.truncate.to.2.chars": COLUMN + "NAME"}, {"NAME": "Ad"}, {"NAME": "Be"}),
    (
        {"column.mask.hash.v2.SHA-256.with.salt.Salt": COLUMN + "NAME"},
        {"NAME": hashed("Ada")},
        {"NAME": hashed("Bea")},
    ),
]


@pytest.mark.parametrize(("options", "old", "new"), SHAPES, ids=[next(iter(c[0])) for c in SHAPES])
def test_a_row_and_its_changes_leave_in_the_same_shape(database, session, options, old, new):
    run = Run(database, **options)
    rows = run.until_level()
    session.execute(UPDATE, id=1, name="Bea")
    session.execute("DELETE FROM CUSTOMERS WHERE ID = 1")
    session.commit()
    rows += run.until_level()
    read, update, delete = (row for row in rows if row["op"] in "rud" and row["key_text"] == '["1"]')
    wanted = ({"ID": "1"} | old, {"ID": "1"} | old | new)
    assert old.items() <= image(read["after"]).items()
    assert old.items() <= image(update["before"]).items()
    assert wanted[1].items() <= image(update["after"]).items()
    assert set(image(update["after"])) == set(image(read["after"])) == set(image(delete["before"]))
    assert "Ada" not in str(rows) or "Ada" in old.values()


def test_null_stays_null_under_a_mask(database, session):
    rows = Run(database, **{"column.mask.with.3.chars": COLUMN + "NAME"}).until_level()
    assert [values["NAME"] for _, _, values in data(rows)] == ["***", None]


def test_message_keys_are_those_that_are_named_and_chunks_follow_the_primary_key(database, session):
    run = Run(database, message_key_columns="SHOP.CUSTOMERS:CREDIT,ID", snapshot_chunk_rows=1)
    rows = run.until_level()
    session.execute(UPDATE, id=1, name="Bea")
    session.commit()
    rows += run.until_level()
    assert [(row["op"], row["key_text"]) for row in rows if row["op"] in "ru"] == [
        ("r", '["0.50","1"]'), ("r", '[null,"2"]'), ("u", '["0.50","1"]'),
    ]  # fmt: skip


def test_operations_that_are_skipped_do_not_count(database, session):
    run = Run(database, skipped_operations="u", provide_transaction_metadata="true")
    run.until_level()
    session.execute(UPDATE, id=1, name="Bea")
    session.execute("DELETE FROM CUSTOMERS WHERE ID = 1")
    session.commit()
    rows = [row for row in run.until_level() if row["op"] != "schema"]
    assert [(row["op"], row["transaction"]["total_order"]) for row in rows] == [("begin", None), ("d", 1), ("end", 1)]


def test_updates_that_change_no_captured_column_are_left_out_where_asked(database, session):
    run = Run(database, skip_messages_without_change="true", column_exclude_list=COLUMN + "NAME")
    run.until_level()
    session.execute(UPDATE, id=1, name="Bea")
    session.execute("UPDATE CUSTOMERS SET CREDIT = '0.75' WHERE ID = 1")
    session.commit()
    assert data(run.until_level()) == [("u", "CUSTOMERS", {"ID": "1", "CREDIT": "0.75"})]


RESTARTS = [
    ({}, {"column.mask.with.3.chars": COLUMN + "NAME"}, {"ID": "1", "NAME": "***", "CREDIT": "0.50"}),
    ({}, {"column_exclude_list": COLUMN + "NAME"}, {"ID": "1", "CREDIT": "0.50"}),
    (
        {"column_exclude_list": COLUMN + "NAME"},
        {"column_exclude_list": COLUMN + "CREDIT"},
        {"ID": "1", "NAME": "Bea"},
    ),
]


@pytest.mark.parametrize(("before", "after", "row"), RESTARTS, ids=["mask", "exclude", "other"])
def test_options_that_were_changed_hold_from_the_restart_on(database, session, before, after, row):
    run = Run(database, **before)
    run.until_level()
    run.batch()
    run.restarted(**after)
    session.execute(UPDATE, id=1, name="Bea")
    session.commit()
    rows = run.until_level()
    assert [values for op, _, values in data(rows) if op == "u"] == [row]
    assert [dict(r["source"]).get("ddl") for r in rows if r["op"] == "schema"] == [None]


REFUSED = [
    ({"column_include_list": ".*ID", "column_exclude_list": ".*NAME"}, "are both given"),
    ({"column.mask.with.3.chars": COLUMN + "CREDIT"}, "no characters"),
    ({"column.mask.with.3.chars": COLUMN + "ID"}, "in the table's key"),
    ({"column.mask.with.3.chars": COLUMN + "NAME", "include_redo_sql": "true"}, "holds all values"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[c[1] for c in REFUSED])
def test_what_can_not_be_done_as_asked_is_refused_before_a_row_leaves(database, session, options, message):
    with pytest.raises(OptionError, match=message):
        Run(database, **options).until_level()
