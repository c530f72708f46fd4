"""Rule: committed work only, in commit order, whole transactions per batch; what was taken back is left out."""

from __future__ import annotations

import datetime as dt

import pytest
from tests.sources.oracle.runs import Run, add, data, image, row

from headrace_emulators.oracle.redo_log import Scripted


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


def test_the_time_of_a_change_is_that_of_its_commit(database, session):
    run = Run(database)
    run.until_level()
    session.session.script = Scripted(time="2026-01-01 00:00:00")
    add(session, 1)
    session.session.script = Scripted(time="2026-01-01 00:05:00")
    session.commit()
    (change,) = [r for r in run.until_level() if r["op"] == "c"]
    assert change["event_time"] == dt.datetime(2026, 1, 1, 0, 5, tzinfo=dt.UTC)
