"""Rule: the chunks of a snapshot hold each row once, with the values that the server prints, in the order in which it
sorts keys; within the keeper's snapshot they hold one state of the table, and without it what is there now.
"""

from __future__ import annotations

from contextlib import closing, contextmanager

import psycopg
import pytest
from tests.support.postgresql_tables import images, session, settings_of, table_of

from headrace.sources.offset import TableProgress
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.keeper import Keeper
from headrace.sources.postgresql.snapshot_read import more_chunks, read_chunk
from headrace.sources.snapshots.chunks import Chunk

P0 = 0x1000
COMMIT = lsn.commit_before(P0)
RULES = (
    "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
    "CREATE COLLATION de (provider = icu, locale = 'de');"
)


@contextmanager
def exported(database):
    """The snapshot of a place of the log, as the session that makes a slot exports it."""
    with database.connect(replication="database") as walsender:
        # A replication session takes no extended protocol.
        ((_, _, name, _),) = (
            psycopg.ClientCursor(walsender)
            .execute("CREATE_REPLICATION_SLOT point TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')")
            .fetchall()
        )
        yield name


@contextmanager
def keeping(database, *tables, **options):
    with exported(database) as name:
        keeper = Keeper(settings_of(database, **options), name, tables)
    with closing(keeper):
        yield keeper


def chunks_of(connection, table, settings, budget=3):
    """All chunks of a table's snapshot, planned batch by batch."""
    found, progress = [], TableProgress(commit=COMMIT)
    while not progress.done:
        progress = more_chunks(connection, table, progress.behind(), settings, budget)
        lower = progress.lower
        for number, upper in enumerate(progress.bounds, progress.chunk):
            found.append(Chunk(table.id.path, 0, number, lower, upper, COMMIT, None, None))
            lower = upper
    return found


def read(table, chunks, settings, snapshot=None):
    return [image for chunk in chunks for image in images(read_chunk(table, chunk, settings, None, snapshot=snapshot))]


def all_rows(database, table, *, budget=3, **options):
    settings = settings_of(database, **options)
    with session(database) as connection:
        chunks = chunks_of(connection, table, settings, budget)
    return chunks, read(table, chunks, settings)


def test_values_are_those_that_the_server_prints_with_null_apart_from_empty_text(postgres_database):
    texts = ["", "\n", "\r\n", 'say "hi", x', "\\.", "\\N", "NULL", " ", "é\U0001f600", "'", "a\tb", "\\"]
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with postgres_database.connect() as connection:
        for number, text in enumerate([*texts, None]):
            connection.execute("INSERT INTO t VALUES (%s, %s)", (number, text))
    table = table_of(postgres_database)
    _, found = all_rows(postgres_database, table)
    assert found == [{"id": str(n), "v": text} for n, text in enumerate([*texts, None])]


def test_a_table_of_one_column_that_is_null_keeps_its_rows(postgres_database):
    postgres_database.execute("CREATE TABLE t (v text); INSERT INTO t VALUES (NULL), (''), (NULL)")
    table = table_of(postgres_database)
    with keeping(postgres_database, table) as keeper:
        chunks = chunks_of(keeper.connection, table, settings_of(postgres_database))
        assert read(table, chunks, settings_of(postgres_database), keeper.snapshot) == [
            {"v": None},
            {"v": ""},
            {"v": None},
        ]


def test_a_huge_value_is_read_whole(postgres_database):
    postgres_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text);"
        "INSERT INTO t SELECT 1, string_agg(md5(g::text) || E'\\n\"', '') FROM generate_series(1, 1000000) g;"
        "INSERT INTO t VALUES (2, 'small')"
    )
    _, found = all_rows(postgres_database, table_of(postgres_database))
    assert [len(row["v"]) for row in found] == [34_000_000, 5]


def test_values_are_canonical(postgres_database):
    postgres_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, ok bool, b bytea, at timestamptz(3), n numeric(10, 2));"
        "INSERT INTO t VALUES (1, true, '\\x00ff', '2026-01-02 03:04:05.5+02', 12300)"
    )
    _, found = all_rows(postgres_database, table_of(postgres_database))
    assert found == [{"id": "1", "ok": "true", "b": "AP8=", "at": "2026-01-02T01:04:05.500Z", "n": "12300.00"}]


CASES = "CASE WHEN g % 2 = 0 THEN 'A' ELSE 'b' END"
KEYS = {
    "int": ("id int", "SELECT g FROM generate_series(-50, 49) g"),
    "bigint beyond 32 bits": ("id int8", "SELECT g * 10000000000 FROM generate_series(1, 100) g"),
    "numeric with NaN and infinity": (
        "id numeric",
        "SELECT g / 7.0 FROM generate_series(-48, 48) g UNION ALL SELECT unnest('{NaN,Infinity,-Infinity}'::numeric[])",
    ),
    "float": (
        "id float8",
        "SELECT g / 3.0::float8 FROM generate_series(1, 98) g UNION SELECT 'NaN' UNION SELECT '-Infinity'",
    ),
    "text in the database's order": ("id text", "SELECT md5(g::text) || E'\\\\''\"' FROM generate_series(1, 100) g"),
    "text in a language's order": (
        "id text COLLATE de",
        "SELECT chr(97 + g % 26) || chr(CASE WHEN g > 50 THEN 228 ELSE 65 END) || g FROM generate_series(1, 100) g",
    ),
    "text that ignores case": ("id text COLLATE ci", f"SELECT {CASES} || g FROM generate_series(1, 100) g"),
    "char of fixed length": ("id char(10)", "SELECT 'k ' || g FROM generate_series(1, 100) g"),
    "varchar": ("id varchar(20)", "SELECT '#' || g || ',' FROM generate_series(1, 100) g"),
    "uuid": ("id uuid", "SELECT md5(g::text)::uuid FROM generate_series(1, 100) g"),
    "bytea": ("id bytea", "SELECT decode(md5(g::text), 'hex') FROM generate_series(1, 100) g"),
    "timestamptz": (
        "id timestamptz",
        "SELECT '2026-01-01'::timestamptz + g * interval '1.000001 s' FROM generate_series(1, 98) g "
        "UNION SELECT 'infinity' UNION SELECT '0044-03-15 BC'",
    ),
    "date": ("id date", "SELECT '2026-01-01'::date + g FROM generate_series(1, 100) g"),
    "interval": ("id interval", "SELECT g * interval '1 hour' FROM generate_series(1, 100) g"),
    "enum": ("id color", "SELECT unnest(enum_range(NULL::color))"),
    "domain": ("id positive", "SELECT g FROM generate_series(1, 100) g"),
    "array": ("id int[]", "SELECT ARRAY[g % 10, g] FROM generate_series(1, 100) g"),
    "range": ("id int4range", "SELECT int4range(g, g + 5) FROM generate_series(1, 100) g"),
    "composite": ("id pair", "SELECT ROW(g % 7, 'a,\"' || g)::pair FROM generate_series(1, 100) g"),
    "bool and int": ("ok bool, n int", "SELECT g % 2 = 0, g FROM generate_series(1, 100) g"),
    "bit": ("id bit(8)", "SELECT g::bit(8) FROM generate_series(1, 100) g"),
    "inet": ("id inet", "SELECT '10.0.0.0'::inet + g FROM generate_series(1, 100) g"),
    "jsonb": ("id jsonb", "SELECT jsonb_build_object('k', g) FROM generate_series(1, 100) g"),
    "three columns": (
        "a text, b numeric, c uuid",
        "SELECT chr(65 + g % 3), g % 5, md5(g::text)::uuid FROM generate_series(1, 100) g",
    ),
    "citext": ("id public.citext", f"SELECT {CASES} || g FROM generate_series(1, 100) g"),
    "citext behind int": (
        "n int, id public.citext",
        f"SELECT g % 3, {CASES} || g FROM generate_series(1, 100) g",
    ),
    "citext before two": (
        "id public.citext, n int, m text",
        f"SELECT {CASES} || g % 4, g % 5, g FROM generate_series(1, 100) g",
    ),
}  # fmt: skip


@pytest.mark.parametrize("columns, values", KEYS.values(), ids=KEYS)
def test_chunks_by_key_hold_each_row_once_in_the_order_of_the_server(postgres_database, columns, values):
    names = ", ".join(part.split()[0] for part in columns.split(", "))
    postgres_database.execute(
        "CREATE TYPE color AS ENUM ('red', 'green', 'blue', 'a', 'b', 'c', 'd', 'e');"
        "CREATE DOMAIN positive AS int8 CHECK (VALUE > 0);"
        "CREATE TYPE pair AS (n int, t text);" + RULES
    )
    if "citext" in columns:
        if not postgres_database.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'citext'"):
            pytest.skip("the server has no extension citext; install postgresql-contrib")
        postgres_database.execute("CREATE EXTENSION citext SCHEMA public")
    postgres_database.execute(f"CREATE TABLE t ({columns}, PRIMARY KEY ({names})); INSERT INTO t {values}")
    table = table_of(postgres_database)
    rows_each = 3 if "color" in columns else 9
    chunks, found = all_rows(postgres_database, table, snapshot_chunk_rows=rows_each)
    ordered = postgres_database.execute(f"SELECT row_to_json(t)::text FROM (SELECT {names} FROM t) t ORDER BY {names}")
    assert len(chunks) == -(-len(ordered) // rows_each)
    _, whole = all_rows(postgres_database, table, snapshot_chunk_rows=0)
    key = lambda row: tuple(row.values())  # noqa: E731
    assert sorted(found, key=key) == sorted(whole, key=key)
    assert len(found) == len(ordered)
    with session(postgres_database) as connection:
        settings = settings_of(postgres_database, snapshot_chunk_rows=rows_each)
        sizes = [len(read(table, [chunk], settings)) for chunk in chunks_of(connection, table, settings)]
    assert sizes[:-1] == [rows_each] * (len(sizes) - 1)
