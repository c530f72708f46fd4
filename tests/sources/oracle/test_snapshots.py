"""A snapshot reads every row once, as of one SCN, and what was open then comes whole."""

from __future__ import annotations

import pytest
from tests.sources.oracle.runs import Run, add, data, row

from headrace.errors import DataLossError


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
