"""What a server's catalog says of tables: which are captured, their columns, keys, defaults and partitions; and what
the log says of them, which wins.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

import pytest
from tests.support.postgresql import PostgresDatabase, require_release

from headrace.errors import CaptureError, OptionError
from headrace.sources.postgresql.captured_table import PostgresTable, tables_of
from headrace.sources.postgresql.catalog import captured_tables, catalog_state, estimated_rows
from headrace.sources.postgresql.connection import connect
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.relation import Relation, RelationColumn, table_of
from headrace.sources.postgresql.types import BUILT_IN, NativeType, TypeCatalog
from headrace.testing.waiting import until


def settings(database: PostgresDatabase, /, **options: str) -> PostgresSettings:
    return PostgresSettings.parse({**database.options, **options}, owner="source 'postgresql'")


def captured(database: PostgresDatabase, /, **options: str) -> dict[str, PostgresTable]:
    given = settings(database, **options)
    with connect(given) as connection:
        return captured_tables(connection, database.name, given, strict=True)


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> PostgresDatabase:
    return postgres_database


def test_columns_have_their_types_and_what_they_declare(database: PostgresDatabase) -> None:
    require_release(database, 15, "scales are below 0")
    database.execute(
        """
        CREATE DOMAIN money2 AS numeric(14,2) NOT NULL;
        CREATE TYPE mood AS ENUM ('sad', 'x,y');
        CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, s serial, n numeric(5,-2), v varchar(20),
          m money2, e mood, es mood[], sums numeric(10,3)[], ts timestamp(3),
          twice bigint GENERATED ALWAYS AS (id * 2) STORED);
        COMMENT ON TABLE t IS 'all'; COMMENT ON COLUMN t.v IS 'a text';
        """
    )
    table = captured(database)["public.t"]
    described = {
        column.name: (column.native_type, str(column.logical), column.length, column.scale, column.nullable)
        for column in table.schema.columns
    }
    assert described == {
        "id": ("int8", "int64", None, None, False),
        "s": ("int4", "int32", None, None, False),
        "n": ("numeric", "decimal(7,0)", 5, -2, True),
        "v": ("varchar", "string", 20, None, True),
        "m": ("numeric", "decimal(14,2)", 14, 2, False),
        "e": ("mood", "string", None, None, True),
        "es": ("_mood", "nested", None, None, True),
        "sums": ("_numeric", "nested", 10, 3, True),
        "ts": ("timestamp", "timestamp(3)", None, 3, True),
    }
    assert [column.name for column in table.schema.columns if column.identity] == ["id", "s"]
    assert [column.name for column in table.schema.columns if column.large] == ["v", "es", "sums"]
    assert table.schema.column("e").enum_values == table.schema.column("es").enum_values == ("sad", "x,y")
    assert (table.schema.comment, table.schema.column("v").comment) == ("all", "a text")
    assert table.columns[-1] == "twice"
    assert tables_of.one(json.loads(json.dumps(table.to_json()))) == table


@pytest.mark.parametrize(
    ("declared", "canonical"),
    [
        ("int DEFAULT 7", "7"),
        ("int DEFAULT -7", "-7"),
        ("numeric(8,3) DEFAULT 1.5", "1.500"),
        ("numeric(5,-2) DEFAULT 12345", "12300"),
        ("float8 DEFAULT 1e20", "1e+20"),
        ("bool DEFAULT true", "true"),
        ("text DEFAULT 'it''s'", "it's"),
        (r"text DEFAULT E'back\\slash'", "back\\slash"),
        ("char(3) DEFAULT 'a'", "a  "),
        ("varchar(9) DEFAULT ''", ""),
        ("bytea DEFAULT '\\x00ff'", "AP8="),
        ("timestamp(3) DEFAULT '2020-01-01 00:00:00.12345'", "2020-01-01 00:00:00.123"),
        ("timestamptz DEFAULT '2021-03-04 05:06:07+02'", "2021-03-04T03:06:07.000000Z"),
        ("date DEFAULT 'infinity'", "infinity"),
        ("interval DEFAULT '1 day'", "1 day"),
        ("jsonb DEFAULT '{}'", "{}"),
        ("int[] DEFAULT '{1,2}'", "[1,2]"),
        ("bit(3) DEFAULT B'101'", "101"),
        ("public.\"Odd Enum\" DEFAULT 'a b'", "a b"),
        ("text DEFAULT NULL", None),
        ("int DEFAULT 1 + 2", None),
        ("text DEFAULT 'a' || 'b'", None),
        ("date DEFAULT current_date", None),
        ("timestamptz DEFAULT now()", None),
        ("text DEFAULT lower('A')", None),
        # No row can have it, and other columns have theirs all the same.
        ("money2 DEFAULT 'NaN'", "NaN"),
    ],
)
def test_a_default_that_is_a_constant_is_what_the_column_would_hold(
    database: PostgresDatabase, declared: str, canonical: str | None
) -> None:
    if ",-" in declared:
        require_release(database, 15, "scales are below 0")
    database.execute(
        f"""
        CREATE DOMAIN money2 AS numeric(14,2) CHECK (VALUE > 0 AND VALUE <> 'NaN');
        CREATE TYPE "Odd Enum" AS ENUM ('a b');
        CREATE TABLE t (id int PRIMARY KEY, c {declared}, after int DEFAULT 5);
        """
    )
    schema = captured(database)["public.t"].schema
    assert (schema.column("c").default, schema.column("after").default) == (canonical, "5")


@pytest.mark.parametrize(
    ("ddl", "options", "key", "chunk_key"),
    [
        ("CREATE TABLE t (b int, a int, PRIMARY KEY (a, b))", {}, ("a", "b"), ("a", "b")),
        ("CREATE TABLE t (a int NOT NULL UNIQUE, b int UNIQUE)", {}, ("a",), ("a",)),
        ("CREATE TABLE t (a int, b int)", {}, (), ()),
        ("CREATE TABLE t (a int NOT NULL); CREATE UNIQUE INDEX ON t (a) WHERE a > 0", {}, (), ()),
        ("CREATE TABLE t (a text NOT NULL); CREATE UNIQUE INDEX ON t (lower(a))", {}, (), ()),
        ("CREATE TABLE t (a int, b int, PRIMARY KEY (a) INCLUDE (b))", {}, ("a",), ("a",)),
        # Deletes say the columns of the index only.
        (
            "CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL); CREATE UNIQUE INDEX i ON t (b); "
            "ALTER TABLE t REPLICA IDENTITY USING INDEX i",
            {},
            ("b",),
            ("b",),
        ),
        ("CREATE TABLE t (a int PRIMARY KEY, b text)", {"message_key_columns": "public.t:b"}, None, None),
        (
            "CREATE TABLE t (a int PRIMARY KEY, b text); ALTER TABLE t REPLICA IDENTITY FULL",
            {"message_key_columns": "public.t:b"},
            ("b",),
            ("a",),
        ),
    ],
)
def test_the_key_is_the_primary_key_else_what_identifies_rows(
    database: PostgresDatabase,
    ddl: str,
    options: dict[str, str],
    key: tuple[str, ...] | None,
    chunk_key: tuple[str, ...] | None,
) -> None:
    database.execute(ddl)
    if key is None:
        with pytest.raises(CaptureError, match="whose value is missing in changes that leave it as it was"):
            captured(database, **options)
        return
    table = captured(database, **options)["public.t"]
    assert (table.schema.key, table.chunk_key) == (key, chunk_key)


def test_the_options_choose_tables_and_columns_and_mask_values(database: PostgresDatabase) -> None:
    database.execute(
        "CREATE SCHEMA sales; CREATE TABLE sales.b (id int PRIMARY KEY, v text, secret text); "
        "CREATE TABLE sales.a (id int PRIMARY KEY, v text); CREATE TABLE public.c (id int PRIMARY KEY); "
        "CREATE TEMP TABLE gone (id int); CREATE UNLOGGED TABLE public.fast (id int); CREATE VIEW public.w AS SELECT 1"
    )
    assert list(captured(database)) == ["public.c", "sales.a", "sales.b"]
    assert list(captured(database, tables="sales.b,public.*")) == ["sales.b", "public.c"]
    assert list(captured(database, tables="sales.*", tables_excluded="sales.a")) == ["sales.b"]
    hiding = {"column_exclude_list": "sales.b.v", "column.mask.with.3.chars": "sales.b.secret"}
    table = captured(database, tables="sales.b", **hiding)["sales.b"]
    assert [(column.name, column.masked) for column in table.schema.columns] == [("id", False), ("secret", True)]
    assert table.protected == ("v", "secret")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("public.nosuch", "has no table 'public.nosuch'"),
        ("public.fast", 'is unlogged, so its changes are not in the log. Run: ALTER TABLE "public"."fast" SET LOGGED;'),
        ("public.w", "'public.w' is a view, and only tables have changes in the log"),
        ("public.parts_1", "is a partition of 'public.parts', under whose name its changes come"),
    ],
)
def test_a_named_table_that_cannot_be_captured_stops_with_what_mends_it(
    database: PostgresDatabase, named: str, message: str
) -> None:
    database.execute(
        "CREATE UNLOGGED TABLE fast (id int); CREATE VIEW w AS SELECT 1; CREATE TABLE t (id int PRIMARY KEY); "
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id); "
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)"
    )
    with pytest.raises(CaptureError) as raised:
        captured(database, tables=named)
    assert message in str(raised.value)


_PARTS = """
CREATE TABLE parts (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE low (v text, id int NOT NULL);
ALTER TABLE parts ATTACH PARTITION low FOR VALUES FROM (0) TO (10);
CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id);
CREATE TABLE high_1 PARTITION OF high FOR VALUES FROM (10) TO (20);
"""


@pytest.mark.parametrize(
    ("publication", "tables"),
    [
        ("", {"public.parts": ("low", "high_1")}),
        ("CREATE PUBLICATION s FOR TABLE parts WITH (publish_via_partition_root)", {"public.parts": ("low", "high_1")}),
        ("CREATE PUBLICATION s FOR TABLE parts", {"public.high_1": ("high_1",), "public.low": ("low",)}),
        ("CREATE PUBLICATION s FOR TABLE low WITH (publish_via_partition_root)", {"public.low": ("low",)}),
    ],
)
def test_rows_of_partitions_are_in_the_table_under_whose_name_they_are_published(
    database: PostgresDatabase, publication: str, tables: dict[str, tuple[str, ...]]
) -> None:
    database.execute(_PARTS + publication)
    oids = {str(name): oid for name, oid in database.execute("SELECT relname, oid::bigint FROM pg_class")}
    found = captured(database, slot="s")
    assert {path: table.leaves for path, table in found.items()} == {
        path: tuple(oids[name] for name in names) for path, names in tables.items()
    }


def test_a_partitioned_table_says_of_old_rows_what_all_its_partitions_say(database: PostgresDatabase) -> None:
    database.execute(_PARTS + "ALTER TABLE low REPLICA IDENTITY FULL")
    assert captured(database)["public.parts"].identity == "d"
    database.execute("ALTER TABLE high_1 REPLICA IDENTITY FULL")
    table = captured(database)["public.parts"]
    assert (table.identity, table.schema.column("v").large) == ("f", False)


def test_only_what_the_publication_has_is_captured(database: PostgresDatabase) -> None:
    require_release(database, 15, "publications leave out columns")
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v text, w text); CREATE TABLE b (id int PRIMARY KEY); "
        "CREATE PUBLICATION s FOR TABLE a (id, w)"
    )
    found = captured(database, slot="s")
    assert {path: [column.name for column in table.schema.columns] for path, table in found.items()} == {
        "public.a": ["id", "w"]
    }
    assert list(captured(database, slot="s", tables="public.b")) == ["public.b"]
    disabled = {"slot": "s", "publication_autocreate": "disabled"}
    with pytest.raises(
        CaptureError, match=r'does not have table .* ALTER PUBLICATION "s" ADD TABLE ONLY "public"."b";'
    ):
        captured(database, tables="public.b", **disabled)
    with pytest.raises(CaptureError, match="has no publication 'other'"):
        captured(database, publication="other", **disabled)


def test_rows_are_estimated_also_where_the_server_never_analysed_a_table(database: PostgresDatabase) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY) WITH (autovacuum_enabled = false);"
        "CREATE TABLE counted (id int PRIMARY KEY) WITH (autovacuum_enabled = false); "
        "CREATE TABLE empty (id int PRIMARY KEY)"
    )
    database.execute("INSERT INTO t SELECT generate_series(1, 70)")
    database.execute("INSERT INTO counted SELECT generate_series(1, 5)")
    database.execute("ANALYZE counted")
    tables = captured(database).values()
    with connect(settings(database)) as connection:
        # The server takes such counts in a moment after a commit.
        until(lambda: estimated_rows(connection, tables).get("public.t", 0), "what was written is counted")
        assert estimated_rows(connection, tables) == {"public.t": 70, "public.counted": 5, "public.empty": 0}


def test_a_table_without_columns_stops_a_start_and_not_a_run(database: PostgresDatabase) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE nothing ()")
    given = settings(database)
    with connect(given) as connection:
        assert list(captured_tables(connection, database.name, given, strict=False)) == ["public.t"]
        with pytest.raises(OptionError, match=r"No column of table 'public.nothing' is left"):
            captured_tables(connection, database.name, given, strict=True)


_CHANGES = (
    "ALTER TABLE t ADD COLUMN w text",
    "ALTER TABLE t RENAME COLUMN w TO x",
    "ALTER TABLE t DROP COLUMN x",
    "ALTER TABLE t ALTER COLUMN v TYPE varchar(9)",
    "ALTER TABLE t ALTER COLUMN v SET NOT NULL",
    "ALTER TABLE t ALTER COLUMN v SET DEFAULT 'x'",
    "ALTER TABLE t ALTER COLUMN v SET DEFAULT 'y'",
    "ALTER TABLE t REPLICA IDENTITY FULL",
    "CREATE UNIQUE INDEX i ON t (n)",
    "ALTER TABLE t REPLICA IDENTITY USING INDEX i",
    "ALTER TABLE t DROP CONSTRAINT t_pkey",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE u SET SCHEMA extra",
    "ALTER SCHEMA extra RENAME TO more",
    "CREATE TABLE another (id int)",
    "DROP TABLE another",
    "ALTER TYPE mood ADD VALUE 'ok'",
    "ALTER TYPE mood RENAME VALUE 'sad' TO 'sadder'",
    "ALTER TYPE mood RENAME TO moods",
    "ALTER TYPE pair RENAME ATTRIBUTE a TO c",
    "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)",
    "ALTER TABLE parts DETACH PARTITION parts_2",
    "ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (20) TO (30)",
    "CREATE PUBLICATION p",
    "ALTER PUBLICATION p ADD TABLE parts",
    "ALTER PUBLICATION p SET (publish_via_partition_root = true)",
    "ALTER PUBLICATION p ADD TABLES IN SCHEMA public",
    "ALTER PUBLICATION p DROP TABLE parts",
)


def test_the_state_of_the_catalog_is_another_one_after_each_change(database: PostgresDatabase) -> None:
    database.execute(
        """
        CREATE TYPE mood AS ENUM ('sad'); CREATE TYPE pair AS (a int, b mood); CREATE SCHEMA extra;
        CREATE TABLE t (id int PRIMARY KEY, v text, n int NOT NULL DEFAULT 1, e mood, p pair);
        CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
        """
    )
    oids = [table.oid for table in captured(database).values()]
    with connect(settings(database)) as connection, database.connect() as other:
        state = catalog_state(connection, oids)
        for statement in _CHANGES:
            if "TABLES IN SCHEMA" in statement and connection.version < 150000:
                continue
            other.execute(statement)
            before, state = state, catalog_state(connection, oids)
            assert state != before, statement


def test_the_state_of_the_catalog_is_the_same_while_rows_come_and_statistics_are_made(
    database: PostgresDatabase,
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    oids = [table.oid for table in captured(database).values()]
    with connect(settings(database)) as connection, database.connect() as other:
        state = catalog_state(connection, oids)
        other.execute("INSERT INTO t SELECT n, repeat('x', 5000) FROM generate_series(1, 100) n")
        other.execute("CREATE TEMP TABLE x (a int, b text)")
        other.execute("ANALYZE")
        assert catalog_state(connection, oids) == state


def relations(database: PostgresDatabase, *, take: bool = True) -> Iterator[Relation]:
    """The RELATION messages of the slot `r` and the publication `s`, read without our decoder."""
    for (data,) in database.execute(
        f"SELECT data FROM pg_logical_slot_{'get' if take else 'peek'}_binary_changes('r', NULL, NULL, "
        "'proto_version', '1', 'publication_names', 's')"
    ):
        if data[:1] == b"R":
            yield _relation(bytes(data[1:]))


def _relation(data: bytes) -> Relation:
    (oid,) = struct.unpack_from(">I", data)
    schema, name, rest = data[4:].split(b"\0", 2)
    (count,) = struct.unpack_from(">H", rest, 1)
    identity, rest = chr(rest[0]), rest[3:]
    columns = []
    for _ in range(count):
        flags = rest[0]
        column, rest = rest[1:].split(b"\0", 1)
        kind, typmod = struct.unpack_from(">Ii", rest)
        columns.append(RelationColumn(column.decode(), kind, typmod, flags == 1))
        rest = rest[8:]
    return Relation(oid, schema.decode(), name.decode(), identity, tuple(columns))


_TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN money2 AS numeric(14,2) NOT NULL;
CREATE TABLE keyed (b int, a varchar(9), m money2 DEFAULT 1, e mood DEFAULT 'ok', es mood[],
  g int GENERATED ALWAYS AS (1) STORED, PRIMARY KEY (a, b));
COMMENT ON COLUMN keyed.e IS 'how';
CREATE TABLE full_ (id serial PRIMARY KEY, v text); ALTER TABLE full_ REPLICA IDENTITY FULL;
CREATE TABLE keyless (id int, v text); ALTER TABLE keyless REPLICA IDENTITY FULL;
CREATE TABLE by_index (id int PRIMARY KEY, c int NOT NULL, d text NOT NULL); CREATE UNIQUE INDEX i ON by_index (d, c);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX i;
CREATE TABLE added (id int, v text);
"""
_INSERTS = """
INSERT INTO keyed (a, b) VALUES ('x', 1); INSERT INTO full_ (v) VALUES ('x'); INSERT INTO keyless VALUES (1);
INSERT INTO by_index VALUES (1, 2, 'x'); INSERT INTO added VALUES (1); INSERT INTO parts VALUES (5, 'x'), (15, 'y');
"""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"column_exclude_list": "public.*.v", "column.mask.with.3.chars": "public.by_index.v"},
        {"message_key_columns": "public.full_:v"},
    ],
)
@pytest.mark.parametrize("via_root", ["true", "false"])
def test_a_table_in_the_log_is_the_same_as_in_the_catalog_while_nothing_was_altered(
    database: PostgresDatabase, options: dict[str, str], via_root: str
) -> None:
    database.execute(_TABLES + _PARTS)
    database.execute(
        f"CREATE PUBLICATION s FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = {via_root})"
    )
    database.execute("SELECT pg_create_logical_replication_slot('r', 'pgoutput')")
    database.execute(_INSERTS)
    given = settings(database, slot="s", unmatched_patterns="warn", **options)
    with connect(given) as connection:
        types = TypeCatalog.of(connection)
        known = captured_tables(connection, database.name, given, strict=True)
    by_oid = {table.oid: table for table in known.values()}
    found = {
        r.oid: table_of(r, [by_oid[r.oid]], types, given, database.name) for r in relations(database) if r.oid in by_oid
    }
    assert found == by_oid
    assert all(found[oid].schema.fingerprint == by_oid[oid].schema.fingerprint for oid in found)


def test_rows_follow_the_log_where_the_catalog_is_newer(database: PostgresDatabase) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL DEFAULT 1, v varchar(5) NOT NULL, gone text, w text); "
        "COMMENT ON COLUMN t.n IS 'a number'; CREATE PUBLICATION s FOR TABLE t"
    )
    database.execute("SELECT pg_create_logical_replication_slot('r', 'pgoutput')")
    database.execute("INSERT INTO t VALUES (1, 2, 'x')")
    database.execute(
        "ALTER TABLE t DROP COLUMN gone; ALTER TABLE t ALTER COLUMN v TYPE text; ALTER TABLE t RENAME COLUMN w TO x; "
        "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD COLUMN new int PRIMARY KEY DEFAULT 1; "
        "ALTER TABLE t RENAME TO u"
    )
    given = settings(database, slot="s")
    with connect(given) as connection:
        types = TypeCatalog.of(connection)
        (known,) = captured_tables(connection, database.name, given, strict=True).values()
    (relation,) = relations(database)
    table = table_of(relation, [known], types, given, database.name)
    assert table.id.path == "public.t"
    assert [(column.name, column.native_type, column.length, column.nullable) for column in table.schema.columns] == [
        ("id", "int4", None, False),
        ("n", "int4", None, False),
        # The catalog has another type under this name: nothing else is known of the column.
        ("v", "varchar", 5, True),
        ("gone", "text", None, True),
        ("w", "text", None, True),
    ]
    assert (table.schema.column("n").default, table.schema.column("n").comment) == ("1", "a number")
    assert (table.schema.key, table.chunk_key) == (("id",), ())


@pytest.mark.parametrize("option", ["column_exclude_list", "column.mask.with.3.chars"])
def test_a_protected_column_that_had_another_name_for_a_while_does_not_come_in_clear(
    database: PostgresDatabase, option: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, secret text, v text); CREATE PUBLICATION s FOR TABLE t")
    database.execute("SELECT pg_create_logical_replication_slot('r', 'pgoutput')")
    for statement in ("RENAME secret TO bare", "ADD w text", "RENAME bare TO secret"):
        database.execute(f"ALTER TABLE t {statement}")
        database.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t")

    def read(pattern: str) -> list[tuple[str, ...]]:
        given = settings(database, slot="s", **{option: pattern})
        with connect(given) as connection:
            types = TypeCatalog.of(connection)
            (known,) = captured_tables(connection, database.name, given, strict=True).values()
        found = relations(database, take=False)
        return [table_of(relation, [known], types, given, database.name).protected for relation in found]

    with pytest.raises(OptionError) as raised:
        read("public.t.secret")
    assert str(raised.value) == (
        "Changes of table 'public.t' have a column 'bare', which may be column 'secret' under another name, and no "
        "option keeps its values back. Name it in the option that names 'secret' too, with 'optional:' before it, "
        "until those changes are read."
    )
    assert read("public.t.secret,optional:public.t.bare") == [("bare",), ("bare",), ("secret",)]


def test_built_in_types_have_the_numbers_and_ways_of_the_server(database: PostgresDatabase) -> None:
    rows = database.execute(
        "SELECT oid::bigint, typname::text, typtype::text, typlen = -1 AND typstorage <> 'p', typdelim::text, "
        "CASE WHEN typinput = 'array_in'::regproc THEN typelem::bigint ELSE 0 END FROM pg_type "
        "WHERE typtype IN ('b', 'r', 'm')"
    )
    there = {oid: rest for oid, *rest in rows}
    for oid, known in BUILT_IN.items():
        delimiter = BUILT_IN[known.element].delimiter if known.element else known.delimiter
        assert there[oid] == [known.name, known.kind, known.variable, delimiter, known.element]


def test_all_other_types_are_read_from_the_catalog(database: PostgresDatabase) -> None:
    database.execute(
        """
        CREATE EXTENSION hstore; CREATE TYPE mood AS ENUM ('sad', 'x,y'); CREATE DOMAIN money2 AS numeric(14,2);
        CREATE DOMAIN price AS money2; CREATE TYPE pair AS (a int, "b c" price[]);
        CREATE TYPE span AS RANGE (subtype = int);
        CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE holder (one t, many t[]);
        """
    )
    with connect(settings(database)) as connection:
        types = TypeCatalog.of(connection)
    numbers = dict(database.execute("SELECT typname::text, oid::bigint FROM pg_type"))

    def native(name: str) -> NativeType:
        return types.resolve(numbers[name])

    price = types.resolve(1700, (14 << 16 | 2) + 4)
    assert native("price") == native("money2") == price
    assert (native("mood").labels, native("_mood").enum_values) == (("sad", "x,y"), ("sad", "x,y"))
    assert [(name, field.name, field.element) for name, field in native("pair").fields] == [
        ("a", "int4", None),
        ("b c", "_numeric", price),
    ]
    assert native("_t").element == native("t") and native("t").fields == (("id", types.resolve(23)),)
    assert (native("span").kind, str(native("hstore").logical)) == ("r", "nested")
    # Tables whose rows are no column's values are not types that a column has.
    assert numbers["holder"] not in types.types and numbers["pg_class"] not in types.types
