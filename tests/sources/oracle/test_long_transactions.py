"""Rule: a transaction that is open for hours and writes all the time names few ranges, and nothing is mined twice."""

from __future__ import annotations

import itertools
import shutil

import pytest
from tests.sources.oracle.runs import Run, data


def add(connection, *ids):
    for id in ids:
        connection.execute("INSERT INTO CUSTOMERS (ID, NAME) VALUES (:id, 'x')", id=id)


def row(id):
    return {"ID": str(id), "NAME": "x", "CREDIT": None}


@pytest.mark.parametrize("lost", [False, True], ids=["staging is there", "staging is lost"])
def test_a_transaction_that_writes_for_long_names_few_ranges(database, session, mined, lost):
    run = Run(database)
    run.until_level()
    with database.connect() as long:
        mined()
        for id in range(1, 27):
            add(long, 100 + id)
            if id == 12:
                long.execute("SAVEPOINT half")
                add(long, 900)
            if id == 20:
                # What is taken back lies in a range that was put together with others.
                long.execute("ROLLBACK TO SAVEPOINT half")
            add(session, id)
            session.commit()
            assert data(run.until_level()) == [("c", "CUSTOMERS", row(id))]
            assert len(run.offset.log["ranges"]) <= 9
            if id in (10, 17):
                run.restarted()
        mined = mined()
        # Each once, although ranges were put together.
        assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(mined))
        assert len(list((database.directory / "staging").glob("*.parquet"))) <= 11
        long.commit()
    if lost:
        shutil.rmtree(database.directory / "staging")
        run.restarted()
    kept = [*range(101, 113), *range(121, 127)]
    assert data(run.until_level()) == [("c", "CUSTOMERS", row(id)) for id in kept]
    assert run.offset.log["ranges"] == []
