"""Rule: with transaction metadata, events come in commit order over all tables, numbered, between BEGIN and END."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.sqlserver_runs import Run, create, rows_of

from headrace.sources.change_tables import transactions
from headrace_emulators.sqlserver import EmulatedServer


@pytest.fixture
def database(database):
    create(database, "a", "id int not null primary key, v int")
    create(database, "b", "id int not null, v int, primary key (id)")
    create(database, "c", "id int not null primary key")
    return database


def streaming(database, **options):
    run = Run(database, provide_transaction_metadata="true", **options)
    run.all()
    return run


def story(rows):
    """Each row as (op, table, total order, order in its table), END with its counts."""
    found = []
    for row in sorted((r for r in rows if r["op"] not in ("schema", "heartbeat")), key=lambda r: r["position"]):
        block = row["transaction"] or {"total_order": None, "data_collection_order": None}
        if row["op"] == "end":
            counts = json.loads(dict(row["source"])["data_collections"])
            found.append(("end", block["total_order"], {c["data_collection"]: c["event_count"] for c in counts}))
        elif row["op"] == "begin":
            found.append(("begin",))
        else:
            found.append((row["op"], row["table"]["name"], block["total_order"], block["data_collection_order"]))
    return found


def test_events_of_a_transaction_are_numbered_over_tables_and_in_each(database):
    run = streaming(database)
    with database.transaction() as cursor:
        cursor.execute("INSERT INTO dbo.b VALUES (1, 1)")
        cursor.execute("INSERT INTO dbo.a VALUES (1, 1)")
        cursor.execute("UPDATE dbo.b SET v = 2")
    database.execute("DELETE FROM dbo.a")
    database.capture()
    assert story(run.all()) == [
        ("begin",),
        ("c", "b", 1, 1),
        ("c", "a", 2, 1),
        ("u", "b", 3, 2),
        ("end", 3, {"shop.dbo.b": 2, "shop.dbo.a": 1}),
        ("begin",),
        ("d", "a", 1, 1),
        ("end", 1, {"shop.dbo.a": 1}),
    ]


def test_a_snapshot_has_no_transactions(database):
    database.execute("INSERT INTO dbo.c VALUES (1)")
    database.capture()
    rows = Run(database, provide_transaction_metadata="true").all()
    assert story(rows) == [("r", "c", None, None)]


@pytest.mark.parametrize("step", [1, 2, 1000])
def test_numbers_do_not_depend_on_batches_and_ranges(database, step):
    run = streaming(database, commits_per_slice=step, max_commits_per_trigger=3)
    for n in range(5):
        with database.transaction() as cursor:
            cursor.execute(f"INSERT INTO dbo.a VALUES ({n}, 0)")
            cursor.execute(f"INSERT INTO dbo.b VALUES ({n}, 0)")
    database.capture()
    once = [("begin",), ("c", "a", 1, 1), ("c", "b", 2, 1), ("end", 2, {"shop.dbo.a": 1, "shop.dbo.b": 1})]
    assert story(run.all()) == once * 5


def test_a_table_that_comes_in_later_catches_up_without_opening_old_transactions_again(database):
    run = streaming(database, tables="dbo.a")
    database.execute("INSERT INTO dbo.a VALUES (1, 1)")
    database.capture()
    run.all()
    run.with_options(tables="dbo.a,dbo.b")
    with database.transaction() as cursor:
        cursor.execute("INSERT INTO dbo.a VALUES (2, 1)")
        cursor.execute("INSERT INTO dbo.b VALUES (2, 1)")
    database.capture()
    found = story(run.all())
    assert [entry for entry in found if entry[0] in ("begin", "end")] == [("begin",), ("end", 1, {"shop.dbo.a": 1})]
    assert ("r", "b", None, None) in found


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6),
    rows=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_where_driver_batches_end_makes_no_difference(tmp_path_factory, monkeypatch, sizes, rows, seed):
    with EmulatedServer(tmp_path_factory.mktemp("server")).create_database("shop") as database:
        for name in "ab":
            create(database, name, "id int not null primary key")
        run = Run(database, provide_transaction_metadata="true")
        run.all()
        for number, (of_a, of_b) in enumerate(sizes):
            if of_a + of_b:
                with database.transaction() as cursor:
                    for n in range(max(of_a, of_b)):
                        for name, count in (("a", of_a), ("b", of_b)):
                            if n < count:
                                cursor.execute(f"INSERT INTO dbo.{name} VALUES ({number * 10 + n})")
        database.capture()
        start = run.offset
        whole = run.batch()
        if not whole:
            return
        monkeypatch.setattr(transactions, "_LEAST_ROWS", rows)
        monkeypatch.setattr(transactions, "ARROW_ROWS", rows)
        pieces = rows_of(run.source, start, run.offset)
        monkeypatch.undo()
        assert story(pieces) == story(whole)
        data = [row["position"] for row in pieces if row["op"] != "schema"]
        assert data == sorted(data), seed


def test_an_update_that_changes_the_key_counts_twice(database):
    # Only a message key that is not the table's own can change in one update row.
    run = streaming(database, message_key_columns="dbo.a:v")
    with database.transaction() as cursor:
        cursor.execute("INSERT INTO dbo.a VALUES (1, 1)")
        cursor.execute("UPDATE dbo.a SET v = 2")
        cursor.execute("INSERT INTO dbo.c VALUES (1)")
    database.capture()
    assert story(run.all())[1:] == [
        ("c", "a", 1, 1),
        ("u", "a", 2, 2),
        ("c", "c", 4, 1),
        ("end", 4, {"shop.dbo.a": 3, "shop.dbo.c": 1}),
    ]
