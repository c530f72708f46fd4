"""Rule: with `skipped_operations`, BEGIN and END stand around the events that are delivered, and END counts just those,
whatever is skipped: an update that changes the key is a delete and a create. The same for every source."""

from __future__ import annotations

import itertools
import json

import pytest
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing

SETS = ["".join(letters) for n in range(4) for letters in itertools.combinations("cud", n)]


@pytest.fixture(params=[SqlServerDatabase, Db2Database, OracleDatabase], ids=lambda kind: kind.source)
def database(request, tmp_path):
    with closing(request.param(tmp_path / "server")) as made:
        made.create("t", "id int not null primary key, v int", [(n, 0) for n in range(1, 9)])
        yield made


def events(row, skipped):
    """The Debezium events of a row, as (operation, key)."""
    key = dict(row["key"] or [])
    before = dict(row["before"] or [])
    old = {name: before.get(name, text) for name, text in key.items()}
    if row["op"] == "u" and old != key:
        return [op for op in "dc" if op not in skipped]
    return [row["op"]]


@pytest.mark.parametrize("skipped", SETS)
def test_end_counts_what_is_delivered_and_no_transaction_is_empty(database, skipped):
    run = database.run(provide_transaction_metadata=True, skipped_operations=",".join(skipped) or "none")
    run.all()
    statements = [
        ("INSERT INTO {} VALUES (20, 0)",),
        ("UPDATE {} SET v = 1 WHERE id = 1",),
        ("DELETE FROM {} WHERE id = 2",),
        ("UPDATE {} SET id = 30 WHERE id = 3",),
        (
            "UPDATE {} SET id = 40 WHERE id = 4",
            "INSERT INTO {} VALUES (21, 0)",
            "UPDATE {} SET v = 2 WHERE id = 1",
            "DELETE FROM {} WHERE id = 5",
        ),
    ]
    for transaction in statements:
        with database.transaction() as cursor:
            for statement in transaction:
                cursor.execute(statement.format(f"{database.schema}.t"))
    database.capture()
    rows = sorted((row for row in run.all() if row["transaction"]), key=lambda row: row["position"])
    found = 0
    for _, group in itertools.groupby(rows, lambda row: row["transaction"]["id"]):
        begin, *changes, end = group
        assert (begin["op"], end["op"]) == ("begin", "end")
        delivered = [op for row in changes for op in events(row, skipped)]
        assert delivered
        assert not set(delivered) & set(skipped)
        found += len(delivered)
        (counted,) = json.loads(dict(end["source"])["data_collections"])
        assert end["transaction"]["total_order"] == counted["event_count"] == len(delivered)
        places = itertools.accumulate((len(events(row, skipped)) for row in changes), initial=1)
        assert [row["transaction"]["total_order"] for row in changes] == list(places)[:-1]
    # A server may capture the change of a key as an update, or as a delete and an insert.
    assert found >= sum(2 for op in "cud" if op not in skipped)
