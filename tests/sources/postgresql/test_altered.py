"""Rule: whatever statements do to structures of tables between changes, and wherever batches are cut, a mirror equals
the source in the end: what an ALTER does to rows is proven harmless, or the table is read again.
"""

from __future__ import annotations

import random
from contextlib import closing

import pytest
from tests.support.altered_postgres import KEYS, Alterations, held
from tests.support.evolving_mirror import EvolvingMirror, follow

from headrace.sources.postgresql.source import PostgresSource
from headrace_emulators.postgresql.server import PostgresServer

_RENAMES = 100
"""The first seed of histories that have renamed columns, so that those that failed before them stay what they were."""


def differs(server: PostgresServer, seed: int) -> str:
    """What is not equal after the history of a seed, with the statements; empty where all is."""
    database = server.new_database()
    slot = f"altered_{seed}"
    options = {
        **database.options,
        "tables": ",".join(f"public.{table}" for table in KEYS),
        "slot": slot,
        "publication_autocreate": "filtered",
        "snapshot_chunk_rows": "5",
        "max_commits_per_trigger": str(seed % 4),
        # The mirror takes the values of columns that were added, and that of other seeds rows that are read again.
        "reread_added_columns": "*" if seed % 5 == 4 else "none",
    }
    mirror = EvolvingMirror(KEYS)
    with closing(Alterations(database, seed, renames=seed >= _RENAMES)) as history:
        follow(history, lambda: PostgresSource.of(options), mirror, seed=seed, steps=6)
        found = mirror.unequal(held(database))
    database.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    database.drop()
    return f"seed {seed}: {found}\n" + "\n".join(history.sent) if found else ""


# Each was unequal once: a table that takes another's name, partitions that went, a read ahead of the stream, a
# name that was another one for a time, a value of an added column beside a rename, a name that no look at the catalog
# showed, of a column that stayed or went, a rename of a table that is read again, a name that a rename freed for a
# new column, and a rename of a column that was rolled back behind a partition that came with its rows.
@pytest.mark.smoke("0", "700025", "710435", "730409")
@pytest.mark.parametrize("seed", [0, 2, 4, 21, 36, 700025, 700270, 700326, 700469, 710124, 710435, 730409])
def test_a_mirror_equals_the_source_after_alterations(postgres_server: PostgresServer, seed: int) -> None:
    assert differs(postgres_server, seed) == ""


@pytest.mark.soak
def test_a_mirror_equals_the_source_after_500_histories_of_alterations(postgres_server: PostgresServer) -> None:
    first = random.randrange(10**6)
    print(f"seeds from {first}")
    assert [text for seed in range(first, first + 500) if (text := differs(postgres_server, seed))] == []
