"""Rule: the chunks of a snapshot hold each row once, with the values that the server prints, in the order in which it
sorts keys; a table that is read as it is must be what the offset knows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.postgresql_tables import (
    COMMIT,
    PARTITIONED,
    all_rows,
    chunks_of,
    keeping,
    read,
    rows,
    session,
    settings_of,
    table_of,
)

from headrace.errors import CaptureError
from headrace.sources.offset import TableProgress
from headrace.sources.postgresql.snapshot_read import more_chunks, read_chunk
from headrace.sources.snapshots.chunks import Chunk

OBJECTS = (
    "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
    "CREATE COLLATION de (provider = icu, locale = 'de');"
    "CREATE TYPE color AS ENUM ('red', 'green', 'blue', 'a', 'b', 'c', 'd', 'e');"
    "CREATE DOMAIN positive AS int8 CHECK (VALUE > 0); CREATE TYPE pair AS (n int, t text)"
)


@pytest.fixture(scope="module")
def keys_database(postgres_server):
    database = postgres_server.new_database()
    database.execute(OBJECTS)
    yield database
    database.drop()


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


CASES = "CASE WHEN g % 2 = 0 THEN 'B' ELSE 'a' END"
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
def test_chunks_by_key_hold_each_row_once_in_the_order_of_the_server(keys_database, columns, values):
    names = ", ".join(part.split()[0] for part in columns.split(", "))
    if "citext" in columns:
        if not keys_database.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'citext'"):
            pytest.skip("the server has no extension citext; install postgresql-contrib")
        keys_database.execute("CREATE EXTENSION IF NOT EXISTS citext SCHEMA public")
    keys_database.execute(
        f"DROP TABLE IF EXISTS t; CREATE TABLE t ({columns}, PRIMARY KEY ({names})); INSERT INTO t {values}"
    )
    table = table_of(keys_database)
    rows_each = 3 if "color" in columns else 9
    chunks, found = all_rows(keys_database, table, snapshot_chunk_rows=rows_each)
    ordered = keys_database.execute(f"SELECT row_to_json(t)::text FROM (SELECT {names} FROM t) t ORDER BY {names}")
    assert len(chunks) == -(-len(ordered) // rows_each)
    _, whole = all_rows(keys_database, table, snapshot_chunk_rows=0)
    key = lambda row: tuple(row.values())  # noqa: E731
    assert sorted(found, key=key) == sorted(whole, key=key)
    assert len(found) == len(ordered)
    with session(keys_database) as connection:
        settings = settings_of(keys_database, snapshot_chunk_rows=rows_each)
        sizes = [len(read(table, [chunk], settings)) for chunk in chunks_of(connection, table, settings)]
    assert sizes[:-1] == [rows_each] * (len(sizes) - 1)


def test_a_table_of_one_chunk_has_no_bound_and_an_empty_one_none_at_all(postgres_database):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (v int)")
    table, keyless = table_of(postgres_database), table_of(postgres_database, "u")
    settings = settings_of(postgres_database)
    with session(postgres_database) as connection:
        for empty in (table, keyless):
            progress = more_chunks(connection, empty, TableProgress(commit=COMMIT), settings, 0)
            assert progress.done and progress.empty and not progress.bounds
        postgres_database.execute("INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)")
        for filled in (table, keyless):
            assert more_chunks(connection, filled, TableProgress(commit=COMMIT), settings, 0) == TableProgress(COMMIT)
            progress = more_chunks(connection, filled, TableProgress(commit=COMMIT), settings, 4)
            assert progress.done and not progress.empty and progress.bounds == (None,)


def test_rows_that_come_behind_the_last_key_are_left_to_the_stream(postgres_database):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10)")
    table, settings = table_of(postgres_database), settings_of(postgres_database, snapshot_chunk_rows=4)
    with session(postgres_database) as connection:
        progress = more_chunks(connection, table, TableProgress(commit=COMMIT), settings, 2)
        postgres_database.execute("INSERT INTO t SELECT generate_series(11, 100)")
        last = more_chunks(connection, table, progress.advanced(), settings, 2)
    assert (progress.bounds, progress.done) == ((("4",), ("8",)), False)
    assert (last.bounds, last.done) == ((("10",),), True)


def test_only_the_captured_columns_are_asked_for(postgres_database):
    postgres_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, secret text, v text); INSERT INTO t VALUES (1, 's', 'v')"
    )
    whole = table_of(postgres_database)
    kept = [number for number, column in enumerate(whole.schema.columns) if column.name != "secret"]
    schema = replace(whole.schema, columns=tuple(whole.schema.columns[number] for number in kept))
    table = replace(whole, schema=schema, natives=tuple(whole.natives[number] for number in kept))
    assert all_rows(postgres_database, table)[1] == [{"id": "1", "v": "v"}]


def test_rows_of_tables_that_inherit_are_not_the_tables_own(postgres_database):
    postgres_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE child (more int) INHERITS (t);"
        "INSERT INTO t VALUES (1); INSERT INTO child VALUES (2, 2)"
    )
    assert all_rows(postgres_database, table_of(postgres_database))[1] == [{"id": "1"}]


@pytest.mark.parametrize("key", [" PRIMARY KEY", ""])
def test_a_partitioned_table_is_read_through_its_root(postgres_database, key):
    postgres_database.execute(PARTITIONED.format(key=key))
    table, settings = table_of(postgres_database), settings_of(postgres_database, snapshot_chunk_rows=400)
    with keeping(postgres_database, table) as keeper:
        chunks = chunks_of(keeper.connection, table, settings)
        found = read(table, chunks, settings, keeper.snapshot)
    assert len(chunks) in (8, 9)
    assert sorted(int(row["id"]) for row in found) == list(range(3000))


def test_a_select_of_the_users_own_is_one_chunk_of_the_captured_columns(postgres_database):
    postgres_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'v' FROM generate_series(1, 9) g"
    )
    own = {"snapshot_chunk_rows": 2, "snapshot_select_statement_overrides": "public.t"}
    statement = {
        "snapshot.select.statement.overrides.public.t": "SELECT 1 AS more, * FROM public.t WHERE id > 5 -- half"
    }
    chunks, found = all_rows(postgres_database, table_of(postgres_database), **own, **statement)
    assert [chunk.upper for chunk in chunks] == [None]
    assert found == [{"id": str(id), "v": "v"} for id in range(6, 10)]


def test_a_select_of_the_users_own_that_fails_is_named(postgres_database):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    options = {"snapshot.select.statement.overrides.public.t": "SELECT no_such FROM public.t"}
    with pytest.raises(CaptureError, match=r"for table 'public.t' failed.*no_such"):
        all_rows(postgres_database, table_of(postgres_database), **options)


def test_places_in_the_log_and_marks_stand_on_the_rows(postgres_database):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)")
    table, settings = table_of(postgres_database), settings_of(postgres_database)
    chunk = Chunk(table.id.path, 0, 0, None, None, COMMIT, "first", "last")
    schema, *found = rows(read_chunk(table, chunk, settings, None, snapshot=None))
    assert schema["op"] == "schema"
    assert [row["snapshot"] for row in found] == ["first", "true", "last"]
    assert {row["position"] for row in found} == {chunk.position(0).text}
    assert dict(found[0]["source"]) == {"connector": "postgresql", "lsn": "4096", "sequence": '[null,"4096"]'}


def test_rows_without_a_key_have_places_of_their_own(postgres_database):
    postgres_database.execute("CREATE TABLE t (v int); INSERT INTO t VALUES (1), (1), (1)")
    table, settings = table_of(postgres_database), settings_of(postgres_database)
    with keeping(postgres_database, table) as keeper:
        chunk = Chunk(table.id.path, 0, 0, None, None, COMMIT, None, None)
        _, *found = rows(read_chunk(table, chunk, settings, None, snapshot=keeper.snapshot))
    assert [row["position"] for row in found] == [chunk.position(number).text for number in range(3)]


# The table as it is.

ALTERED = {
    "a column renamed": "ALTER TABLE t RENAME COLUMN v TO w",
    "a column dropped": "ALTER TABLE t DROP COLUMN v",
    "another type": "ALTER TABLE t ALTER COLUMN v TYPE bigint",
    "another length": "ALTER TABLE t ALTER COLUMN s TYPE varchar(20)",
    "gone": "DROP TABLE t",
    "made again": "CREATE TABLE new (LIKE t INCLUDING ALL); DROP TABLE t; ALTER TABLE new RENAME TO t",
    "renamed": "ALTER TABLE t RENAME TO other",
    "its schema gone": "ALTER SCHEMA public RENAME TO private; CREATE SCHEMA public",
}


@pytest.mark.parametrize("statement", ALTERED.values(), ids=ALTERED)
def test_a_table_that_was_altered_is_not_read_as_it_is(postgres_database, statement):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY, v int, s varchar(10)); INSERT INTO t VALUES (1, 1)")
    table, settings = table_of(postgres_database), settings_of(postgres_database)
    postgres_database.execute(statement)
    with pytest.raises(CaptureError, match=r"'public.t' was altered, renamed or dropped before its snapshot was read"):
        read(table, [Chunk(table.id.path, 0, 0, None, None, COMMIT, None, None)], settings)


def test_new_columns_and_domains_are_no_reason_not_to_read_it(postgres_database):
    postgres_database.execute(
        "CREATE DOMAIN small AS numeric(4, 1); CREATE DOMAIN smaller AS small CHECK (VALUE < 9);"
        "CREATE TABLE t (id int PRIMARY KEY, v smaller); INSERT INTO t VALUES (1, 1.5)"
    )
    table = table_of(postgres_database)
    postgres_database.execute("ALTER TABLE t ADD COLUMN more int DEFAULT 5")
    assert all_rows(postgres_database, table)[1] == [{"id": "1", "v": "1.5"}]


def test_row_level_security_is_refused_with_what_mends_it(postgres_database):
    postgres_database.execute(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); ALTER TABLE t ENABLE ROW LEVEL SECURITY;"
        "CREATE ROLE watched LOGIN; GRANT SELECT ON t TO watched"
    )
    try:
        table = table_of(postgres_database)
        with pytest.raises(CaptureError, match=r"row-level security.*ALTER ROLE .*watched.* BYPASSRLS"):
            all_rows(postgres_database, table, user="watched")
        postgres_database.execute("ALTER ROLE watched BYPASSRLS")
        assert all_rows(postgres_database, table, user="watched")[1] == [{"id": "1"}]
    finally:
        postgres_database.execute("DROP OWNED BY watched; DROP ROLE watched")


def test_a_table_that_may_not_be_read_is_refused_with_what_mends_it(postgres_database):
    postgres_database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE ROLE stranger LOGIN")
    try:
        with pytest.raises(CaptureError, match="GRANT SELECT ON"):
            all_rows(postgres_database, table_of(postgres_database), user="stranger")
    finally:
        postgres_database.execute("DROP ROLE stranger")
