"""Rule: whatever a server, database or role sets for its sessions, ours read all rows and may do what they have to."""

from __future__ import annotations

from typing import Any

from tests.support.postgresql import PostgresDatabase, settings_of

from headrace.errors import HeadraceError
from headrace.sources.postgresql.connection import connect, connect_replication

MADE = """
CREATE TABLE t (id int PRIMARY KEY, words text[], made int DEFAULT abs(-1));
INSERT INTO t SELECT g, ARRAY['a'] FROM generate_series(1, 2000) g;
CREATE INDEX words ON t USING gin (words); ANALYZE t;
"""
CASES: list[tuple[dict[str, str], list[str], Any]] = [
    ({"statement_timeout": "10"}, ["SELECT pg_sleep(0.1)::text"], ""),
    (
        {"gin_fuzzy_search_limit": "1", "enable_seqscan": "off", "enable_indexscan": "off"},
        ["SELECT count(*) FROM public.t WHERE words @> '{a}'"],
        2000,
    ),
    ({"default_transaction_read_only": "on"}, ["CREATE PUBLICATION p FOR TABLE public.t", "SELECT 1"], 1),
    ({"quote_all_identifiers": "on"}, ["SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef"], "abs('-1'::integer)"),
    ({"search_path": "nowhere"}, ["SELECT 'public.t'::regclass::text"], "public.t"),
    ({"exit_on_error": "on"}, ["SELECT 1 / 0", "SELECT 1"], 1),
]
"""Settings; statements; the value that the last one gives."""


def test_a_session_reads_all_rows_whatever_the_database_sets(postgres_database: PostgresDatabase) -> None:
    postgres_database.execute(MADE)
    alter = f"ALTER DATABASE {postgres_database.name}"
    wrong = {}
    for given, statements, expected in CASES:
        postgres_database.execute(";".join(f"{alter} SET {name} = '{value}'" for name, value in given.items()))
        with connect(settings_of(postgres_database)) as session:
            found: Any = None
            for statement in statements:
                try:
                    found = session.value(statement)
                except HeadraceError as error:
                    found = error.message
        if found != expected:
            wrong[str(given)] = found
        with postgres_database.server.connect("postgres") as other:
            other.execute(f"{alter} RESET ALL")
    assert not wrong
    with connect_replication(settings_of(postgres_database)) as session:
        assert session.value("SHOW default_transaction_read_only") == "off"
