"""Rule: an ad-hoc snapshot is read beside the stream, chunk by chunk, behind all changes up to its batch's end; what
can't be read now waits, and what can't be read at all ends, and both are said.
"""

from __future__ import annotations

import json

import pytest
from tests.support.postgresql_tables import COMMIT, images, rows, session, settings_of, table_of

from headrace.errors import CaptureError, OptionError
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.postgresql.incremental import AdHocPlanner, check_filter, read_incremental
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc


@pytest.fixture
def database(postgres_database):
    postgres_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 9) g;"
        "CREATE TABLE u (v int)"
    )
    return postgres_database


def asked(*tables, kind="incremental", **data):
    return Signal("s", "execute-snapshot", json.dumps({"data-collections": tables, "type": kind, **data}))


class Run:
    """Batches of a stream on which nothing but ad-hoc snapshots happens."""

    def __init__(self, database, *tables, **options):
        self.settings = settings_of(database, incremental_snapshot_chunk_size=4, **options)
        self.planner = AdHocPlanner(self.settings)
        self.database = database
        self.tables = {f"public.{name}": table_of(database, name) for name in tables or ("t",)}
        schemas = {path: table.to_json() for path, table in self.tables.items()}
        self.end = Offset(source="s", commit=COMMIT, known=tuple(self.tables), schemas=schemas, initial=False)
        self.state = AdHoc()

    def batch(self, *signals, budget=2):
        """The chunks of the next batch."""
        self.state = self.planner.requested(self.state.advanced(), self.end, signals)
        with session(self.database) as connection:
            self.state = self.planner.more(connection, self.state, self.end, budget)
        self.state = AdHoc.from_json(self.state.to_json())
        return self.state.chunks()

    def read(self, chunks):
        return [
            batch
            for chunk in chunks
            for batch in read_incremental(self.tables[chunk.table], chunk, COMMIT, self.settings, None)
        ]


def test_a_table_is_read_in_chunks_over_batches(database):
    run = Run(database)
    first, second = run.batch(asked("public.t")), run.batch()
    assert [(chunk.lower, chunk.upper) for chunk in first] == [(None, ("4",)), (("4",), ("8",))]
    assert [(chunk.lower, chunk.upper) for chunk in second] == [(("8",), ("9",))]
    assert run.batch() == []
    assert [row["id"] for row in images(run.read([*first, *second]))] == [str(id) for id in range(1, 10)]


def test_rows_stand_behind_all_changes_of_the_batch(database):
    run = Run(database)
    chunks = run.batch(asked("public.t"))
    schema, *found = rows(run.read(chunks[:1]))
    assert (schema["op"], schema["position"]) == ("schema", chunks[0].schema_position(COMMIT).text)
    assert {(row["op"], row["snapshot"], row["position"]) for row in found} == {
        ("r", "incremental", chunks[0].position(COMMIT).text)
    }
    assert dict(found[0]["source"])["sequence"] == '[null,"4096"]'


def test_what_happened_meanwhile_is_read_and_comes_again_as_changes(database):
    run = Run(database)
    chunks = run.batch(asked("public.t"))
    database.execute("UPDATE t SET v = 'new' WHERE id = 1; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (0, 'new')")
    found = images(run.read(chunks[:1]))
    assert sorted((row["id"], row["v"]) for row in found) == [("0", "new"), ("1", "new"), ("3", "v3"), ("4", "v4")]


def test_only_rows_that_meet_the_filter_are_read(database):
    run = Run(database)
    chunks = run.batch(
        asked(
            "public.t", **{"additional-conditions": [{"data-collection": "public.t", "filter": "id % 2 = 0 -- even"}]}
        )
    )
    assert [chunk.upper for chunk in chunks] == [("8",)]
    assert [row["id"] for row in images(run.read(chunks))] == ["2", "4", "6", "8"]


def test_an_empty_table_ends_at_once(database):
    database.execute("TRUNCATE t")
    run = Run(database)
    assert run.batch(asked("public.t")) == []
    assert run.batch() == [] and run.state.requests == ()


def test_a_table_without_a_key_is_left_to_a_blocking_snapshot(database, caplog):
    run = Run(database, "t", "u")
    assert run.batch(asked("public.u")) == []
    assert "which is skipped: it has no key" in caplog.text
    run.batch(asked("public.u", "public.t", kind="blocking"))
    assert run.state.blocking == ("public.u", "public.t")
    assert [table.id.path for table in run.planner.captured_blocking(run.state, run.end)] == ["public.u", "public.t"]


def test_requests_wait_while_a_transaction_is_open_that_may_be_in_the_log(database, caplog):
    run = Run(database)
    with database.connect(application_name="nightly") as writer:
        writer.execute("BEGIN; INSERT INTO t VALUES (100, 'open')")
        assert run.batch(asked("public.t")) == []
        assert run.batch() == []
        assert caplog.text.count("Ad-hoc snapshots wait. Transaction") == 1
        writer.execute("COMMIT")
    assert len(run.batch()) == 2


def test_requests_wait_while_tables_are_read_as_in_the_first_snapshot(database):
    run = Run(database)
    run.end = Offset(**{**vars(run.end), "tables": {"public.t": TableProgress(COMMIT)}})
    assert run.batch(asked("public.t")) == []


def test_a_request_waits_until_the_stream_has_the_tables_new_definition(database, caplog):
    run = Run(database)
    database.execute("ALTER TABLE t RENAME COLUMN v TO w")
    assert run.batch(asked("public.t")) == []
    assert "waits until the stream has its new definition" in caplog.text
    database.execute("ALTER TABLE t RENAME COLUMN w TO v")
    assert len(run.batch()) == 2


def test_a_request_ends_where_the_server_refuses_its_filter(database, caplog):
    run = Run(database)
    filter = [{"data-collection": "public.t", "filter": "no_such > 1"}]
    assert run.batch(asked("public.t", **{"additional-conditions": filter})) == []
    assert "ends after 0 chunks" in caplog.text and "no_such" in caplog.text
    assert run.batch() == [] and run.state.requests == ()


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE t RENAME COLUMN v TO w", "DROP TABLE t", "ALTER TABLE t RENAME TO x"]
)
def test_a_chunk_of_a_table_that_was_altered_since_is_left_out_and_said(database, caplog, statement):
    run = Run(database)
    chunks = run.batch(asked("public.t"))
    database.execute(statement)
    assert run.read(chunks) == []
    assert "one chunk of it is left out" in caplog.text


def test_a_table_that_may_not_be_read_any_more_stops_the_run(database):
    database.execute("CREATE ROLE former LOGIN; GRANT SELECT ON t TO former")
    try:
        run = Run(database, user="former")
        chunks = run.batch(asked("public.t"))
        database.execute("REVOKE SELECT ON t FROM former")
        with pytest.raises(CaptureError, match=r"permission denied.*GRANT SELECT ON"):
            run.read(chunks)
    finally:
        database.execute("DROP OWNED BY former; DROP ROLE former")


def test_a_filter_is_looked_at_before_it_is_sent(database):
    table = table_of(database)
    with session(database) as connection:
        check_filter(connection, table, "id > 5 AND v LIKE 'v%' -- some")
        with pytest.raises(OptionError, match=r"The server refuses the filter of table 'public.t'.*no_such"):
            check_filter(connection, table, "no_such = 1")
        with pytest.raises(OptionError, match="The server refuses the filter"):
            check_filter(connection, table, "id >")
