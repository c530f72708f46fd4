"""Rule: a row that is read beside the stream is masked as others are, and not lost to a change that gives no row."""

from __future__ import annotations

import pytest
from tests.support.incremental_runs import Gates, Run, ahead, create, execute, read_again, signal_table

from headrace_emulators.sqlserver import EmulatedServer


@pytest.fixture
def database(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop", clock=ahead) as made:
        signal_table(made)
        create(made, "t", "id int not null primary key, v int, name varchar(9)", [(1, 1, "ann"), (2, 1, "bob")])
        yield made


@pytest.fixture
def gates(database, monkeypatch):
    made = Gates(database)
    monkeypatch.setattr("headrace.faultpoints.reach", made.reach)
    return made


@pytest.mark.parametrize(
    ("options", "statement", "left"),
    [
        ({"skipped_operations": "u"}, "UPDATE dbo.t SET v = 2", {"1", "2"}),
        ({"skipped_operations": "c"}, "UPDATE dbo.t SET v = 2", {"1", "2"}),
        (
            {"skip_messages_without_change": True, "column_exclude_list": r"dbo\.t\.v"},
            "UPDATE dbo.t SET v = 2",
            {"1", "2"},
        ),
        ({"skipped_operations": "u"}, "DELETE FROM dbo.t WHERE id = 1", {"2"}),
        ({"skipped_operations": "d"}, "UPDATE dbo.t SET v = 2 WHERE id = 1", {"2"}),
    ],
)
def test_a_change_that_gives_no_row_takes_no_row_away(database, gates, options, statement, left):
    run = Run(database, **options)
    run.all()
    execute(database, "dbo.t")
    gates.at["source.incremental.read"] = [statement]
    rows = run.all()
    assert {id for (id,) in read_again(rows, "id")} == left


def test_rows_that_are_read_beside_the_stream_are_masked_and_filtered_and_keyed(database, gates):
    run = Run(
        database,
        column_exclude_list=r"dbo\.t\.v",
        message_key_columns="dbo.t:id,v",
        **{"column.mask.with.2.chars": r".*\.name"},
    )
    run.all()
    execute(database, "dbo.t")
    rows = [r for r in run.all() if r["snapshot"] == "incremental"]
    assert [dict(r["after"]) for r in rows] == [
        {"id": "1", "v": "1", "name": "**"},
        {"id": "2", "v": "1", "name": "**"},
    ]
    assert [r["key_text"] for r in rows] == ['["1","1"]', '["2","1"]']
