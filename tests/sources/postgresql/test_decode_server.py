"""Rule: what a server did to its tables is what the decoder's rows do to a mirror, whatever the windows."""

import datetime as dt
import random
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.sources.postgresql.exact_rows import ExactRows
from tests.support.mirror import Mirror
from tests.support.postgres_changes import KEYS, Changes, held
from tests.support.postgresql import log_end, settings_of

from headrace.sources.postgresql import decode
from headrace.sources.postgresql.catalog import captured_tables
from headrace.sources.postgresql.connection import connect
from headrace.sources.postgresql.decode import WindowDecoder
from headrace.sources.postgresql.slots import copy_reader
from headrace.sources.postgresql.types import TypeCatalog

TIME = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(decode, "BLOCK_ROWS", 100)


def sent(options, start, end):
    """What a copy of the slot sends of a window, with what comes behind it."""
    found = []
    with copy_reader(options, start) as session:
        while not (found and found[-1][:1] == b"k" and int.from_bytes(found[-1][1:9]) >= end):
            found += session.receive(0.1)
    return found


def decoder(connection, options, start, end):
    types = TypeCatalog.of(connection)
    tables = captured_tables(connection, options.database, options, strict=True, types=types)
    known = {oid: table for table in tables.values() for oid in (table.oid, *table.leaves)}
    return WindowDecoder(start, end, known, types, options, options.database, TIME)


def test_a_mirror_of_random_changes_holds_what_the_database_holds(new_postgres_database):
    @settings(max_examples=3)
    @example(2746)
    @given(seed=st.integers(0, 2**32))
    def holds(seed):
        database, rng = new_postgres_database(), random.Random(seed)
        changes, mirror = Changes(database, seed), Mirror(KEYS)
        options = settings_of(database, provide_transaction_metadata="true")
        # The publication has to be there before the slot.
        database.execute(
            f"CREATE PUBLICATION {options.publication_name} FOR ALL TABLES WITH (publish_via_partition_root)"
        )
        database.execute(f"SELECT pg_create_logical_replication_slot('{options.slot}', 'pgoutput')")
        try:
            bounds = [log_end(database)]
            for _ in range(60):
                changes.step()
                if rng.random() < 0.2:
                    bounds.append(log_end(database))
            bounds.append(log_end(database))
            with connect(options) as connection:
                for start, end in pairwise(bounds):
                    payloads = sent(options, start, end)
                    reader = decoder(connection, options, start, end)
                    batches = [*reader.feed(payloads), *reader.finish()]
                    assert reader.finished
                    mirror.take(batches)
                    rows = [row for batch in batches for row in batch.to_pylist()]
                    exact = ExactRows(start, end, reader._table_of, options, TIME).rows(payloads)
                    for row, wanted in zip(rows, exact, strict=True):
                        assert row["position"] == wanted["position"]
                        # What is known of the tables is of the end, so statements lead from there to the beginning.
                        row["source"] = [pair for pair in row["source"] if pair[0] != "ddl"]
                        for name in ("key", "before", "after", "source"):
                            assert row[name] == (None if wanted[name] is None else list(wanted[name].items()))
            assert mirror.differences(held(database)) == {}
        finally:
            changes.close()
            database.execute(f"SELECT pg_drop_replication_slot('{options.slot}')")

    holds()
