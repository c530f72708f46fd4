"""A snapshot reads every row once, as of one SCN, and what was open then comes whole."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sources.oracle.runs import Run, add, data, row

from headrace.errors import DataLossError
from headrace.sources.base import Limit
from headrace.sources.tables.keys import UniqueKey


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


def test_when_needed_reads_again_what_is_no_longer_in_the_undo_behind_the_changes_meanwhile(database, session):
    session.execute("CREATE TABLE DONE (ID NUMBER(9) NOT NULL PRIMARY KEY)")
    session.execute("INSERT INTO DONE (ID) VALUES (1)")
    add(session, 1, 2, 3)
    session.commit()
    run = Run(
        database,
        tables="SHOP.DONE,SHOP.CUSTOMERS",
        snapshot_mode="when_needed",
        snapshot_chunk_rows=1,
        snapshot_chunks_per_batch=2,
    )
    assert [op for op, *_ in data(run.batch())] == ["r", "r"]
    session.execute("DELETE FROM CUSTOMERS WHERE ID = 1")
    add(session, 4)
    session.commit()
    database.forget_undo()
    rows = []
    for _ in range(6):
        rows += run.batch()
    # A row that was read before and deleted since is deleted; what is done stays as it is.
    assert data(rows) == [
        ("d", "CUSTOMERS", row(1)),
        ("c", "CUSTOMERS", row(4)),
        *(("r", "CUSTOMERS", row(id)) for id in (2, 3, 4)),
    ]
    assert (run.offset.is_level, run.offset.has_open_requests) == (True, False)


@pytest.mark.parametrize("select", [None, "SELECT * FROM SHOP.CUSTOMERS"], ids=["a table", "a statement"])
def test_a_chunk_that_was_planned_before_the_undo_went_is_read_as_it_is(database, session, select):
    add(session, 1, 2)
    session.commit()
    name = "snapshot.select.statement.overrides.SHOP.CUSTOMERS"
    run = Run(database, snapshot_mode="when_needed", **({} if select is None else {name: select}))
    end = run.source.advance(run.offset, Limit(), run.now)
    session.execute("UPDATE CUSTOMERS SET NAME = 'later' WHERE ID = 1")
    session.commit()
    database.forget_undo()
    rows = run.restarted().rows_of(run.offset, end)
    found = sorted(data(rows), key=lambda change: change[2]["ID"])
    assert found == [("r", "CUSTOMERS", row(1, "later")), ("r", "CUSTOMERS", row(2))]
    run.offset = end
    assert data(run.until_level()) == [("u", "CUSTOMERS", row(1, "later"))]
    with pytest.raises(DataLossError, match="UNDO_RETENTION"):
        run.restarted(snapshot_mode="initial").rows_of(run.offset.nothing(), end)


def test_a_table_without_a_key_whose_undo_is_gone_stops_the_run(database, session):
    session.execute("CREATE TABLE LINES (TEXT VARCHAR2(9))")
    session.execute("INSERT INTO LINES (TEXT) VALUES ('x')")
    add(session, 1)
    session.commit()
    options = {"snapshot_chunks_per_batch": 1, "tables": "SHOP.CUSTOMERS,SHOP.LINES"}
    run = Run(database, snapshot_mode="when_needed", **options)
    run.batch()
    add(session, 2)
    session.commit()
    database.forget_undo()
    with pytest.raises(DataLossError, match=r"SHOP\.LINES held at SCN"):
        run.batch()


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_table_that_is_altered_while_its_first_snapshot_is_read_is_read_again_behind_the_definition(
    database, session, mode
):
    add(session, 1, 2)
    session.commit()
    run = Run(database, snapshot_mode=mode, snapshot_chunk_rows=1, snapshot_chunks_per_batch=1)
    run.batch()
    session.execute("ALTER TABLE CUSTOMERS ADD (PHONE VARCHAR2(20))")
    add(session, 3)
    session.commit()
    rows = []
    for _ in range(8):
        rows += run.batch()
    wide = {"PHONE": None}
    assert data(rows) == [
        ("c", "CUSTOMERS", row(3) | wide),
        *(("r", "CUSTOMERS", row(id) | wide) for id in (1, 2, 3)),
    ]


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_chunks_of_a_key_that_holds_null_lose_no_row_and_repeat_none(database, session, monkeypatch, chunk):
    # A key that was enabled with NOVALIDATE; '' is NULL.
    keys = [(1, "b"), (None, "a"), (1, None), (None, None), (2, "a"), (None, ""), (2, None)]
    database.run("CREATE TABLE PLACES (A NUMBER(9), B VARCHAR2(5))")
    database.run("ALTER TABLE PLACES ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    for a, b in keys:
        session.execute("INSERT INTO PLACES (A, B) VALUES (:a, :b)", a=a, b=b)
    session.commit()
    monkeypatch.setattr("headrace.sources.oracle.catalog._keys", lambda *_: [UniqueKey(("A", "B"), primary=True)])
    rows = Run(database, tables="SHOP.PLACES", snapshot_chunk_rows=chunk, snapshot_chunks_per_batch=2).until_level()
    given = Counter((str(a) if a else None, b or None) for a, b in keys)
    assert Counter((row["A"], row["B"]) for _, _, row in data(rows)) == given
