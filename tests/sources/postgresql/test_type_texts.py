"""Values of every type as a server copies them, and as canonical texts: the server itself says by other functions what
they are.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from tests.support.postgresql import PostgresDatabase, PostgresServer, require_release

from headrace.changes import LogicalType
from headrace.sources.postgresql.connection import connect
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.types import TypeCatalog

_ROWS = 1_000
_CHARACTERS = "'a', '\"', '\\', ',', '{', '}', '(', ')', ' ', E'\\n', E'\\t', 'NULL', '', 'é', '😀', '=>', E'\\x01'"
_RANDOM_TEXT = (
    f"(SELECT coalesce(string_agg((ARRAY[{_CHARACTERS}])[1 + floor(random() * 17)::int], ''), '') "
    "FROM generate_series(1, floor(random() * 5)::int + 0 * g))"
)
_DAYS = "(random() * 3652000)::int"
_MICROSECONDS = "(random() * 1e12)::bigint * interval '1 microsecond'"
_MOMENT = "'YYYY-MM-DD HH24:MI:SS.US'"


def _finite(shown: str) -> str:
    """The server's text of a moment; what no calendar type holds, as it is printed."""
    return f"CASE WHEN isfinite(v) AND v >= '0001-01-01' AND v < '10000-01-01' THEN {shown} ELSE v::text END"


def _cut(digits: int) -> str:
    left = 6 - digits + (0 if digits else 1)
    return _finite(f"left(to_char(v, {_MOMENT}), -{left})" if left else f"to_char(v, {_MOMENT})")


def _instant(digits: int) -> str:
    left = 6 - digits + (0 if digits else 1)
    shown = "to_char(v AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US')"
    return _finite(f"{f'left({shown}, -{left})' if left else shown} || 'Z'")


def _nested(element: str) -> str:
    return f"CASE WHEN v IS NULL THEN NULL ELSE to_jsonb(ARRAY(SELECT {element} FROM unnest(v) x)) END"


_NUMERICS = "'NaN', '0', '-0.10', '123456789012345678901234567890.123456789012345678901234567890'"
_EDGES = "'infinity', '-infinity', '4713-01-01 BC', '0001-01-01', '9999-12-31', '0044-03-15 BC'"
_SAME = "v::text"

# The type, values, a random value (of g, the row's number), and the server's own answer. JSON is compared as such.
TYPES = [
    ("smallint", "'-32768', '0', '32767'", "(random() * 30000)::int", _SAME),
    ("integer", "'-2147483648'", "(random() * 2e9)::int", _SAME),
    ("bigint", "'-9223372036854775808', '9223372036854775807'", "(random() * 9e18)::bigint", _SAME),
    ("oid", "'0', '4294967295'", "(random() * 4e9)::bigint::oid", _SAME),
    ("xid8", "'18446744073709551615'", "(random() * 9e18)::bigint::text::xid8", _SAME),
    ("numeric", f"'Infinity', '-Infinity', {_NUMERICS}", "(random() * 1e6)::numeric / (1 + g)", _SAME),
    ("numeric(12,2)", "'NaN', '9999999999.99', '-0.01'", "(random() * 1e9)::numeric", _SAME),
    ("numeric(65,30)", _NUMERICS, "random()::numeric / g", _SAME),
    ("numeric(5,-2)", "'12345', '-9999900'", "(random() * 9e6)::numeric", _SAME),
    ("numeric(2,4)", "'0.0012', '-0.0099'", "random()::numeric / 110", _SAME),
    ("money", "'-92233720368547758.08', '1234567.5'", "(random() * 1e9)::numeric::money", "v::numeric::text"),
    ("boolean", "'t', 'f'", "random() < 0.5", _SAME),
    ("char(7)", "'', 'é'", "left(" + _RANDOM_TEXT + ", 7)", "rpad(v, 7)"),
    ("varchar(9)", "''", "left(" + _RANDOM_TEXT + ", 9)", "v"),
    ("text", "'', 'NULL'", _RANDOM_TEXT, "v"),
    ("name", "'a'", f"left({_RANDOM_TEXT}, 9)::name", "v::text"),
    ("citext", "'MiXed'", f"{_RANDOM_TEXT}::citext", "v::text"),
    ('"char"', "'x'", "chr(65 + g % 26)::\"char\"", "v::text"),
    ("bytea", "'', '\\x00'", f"decode(md5(random()::text), 'hex') || convert_to({_RANDOM_TEXT}, 'UTF8')",
     "translate(encode(v, 'base64'), E'\\n', '')"),
    ("date", f"'5874897-12-31', {_EDGES}", f"date '0001-01-01' + {_DAYS}", _finite("to_char(v, 'YYYY-MM-DD')")),
    ("time", "'00:00', '24:00', '01:02:03.45'", f"(time '00:00' + {_MICROSECONDS})",
     "to_char(v::interval, 'HH24:MI:SS.US')"),
    ("time(2)", "'24:00', '01:02:03.4'", f"(time '00:00' + {_MICROSECONDS})",
     "left(to_char(v::interval, 'HH24:MI:SS.US'), -4)"),
    ("time(0)", "'01:02:03.4'", f"(time '00:00' + {_MICROSECONDS})", "to_char(v::interval, 'HH24:MI:SS')"),
    ("timetz", "'01:02:03.5-15:59:59', '24:00+05:30'", f"(time '00:00' + {_MICROSECONDS})::timetz", _SAME),
    ("timestamp", f"'294276-12-31 23:59:59.999999', {_EDGES}",
     f"timestamp '0001-01-01' + {_DAYS} * interval '1 day' + {_MICROSECONDS}", _cut(6)),
    ("timestamp(3)", f"'2026-01-02 03:04:05', {_EDGES}",
     f"timestamp '2000-01-01' + {_DAYS} / 1000 * interval '1 day' + {_MICROSECONDS}", _cut(3)),
    ("timestamp(0)", _EDGES, f"timestamp '2000-01-01' + {_MICROSECONDS}", _cut(0)),
    ("timestamptz", f"'294276-12-31 23:59:59.999999+00', '2026-01-02 03:04:05+05:30', {_EDGES}",
     f"timestamptz '0001-01-02' + {_DAYS} * interval '1 day' + {_MICROSECONDS}", _instant(6)),
    ("timestamptz(1)", _EDGES, f"timestamptz '2000-01-01' + {_MICROSECONDS}", _instant(1)),
    ("timestamptz(0)", _EDGES, f"timestamptz '2000-01-01' + {_MICROSECONDS}", _instant(0)),
    ("interval", "'1 year 2 days -04:05:06.7', '0'", f"(g - 500) * interval '1 day' - {_MICROSECONDS}", _SAME),
    ("uuid", "'123E4567-e89b-12d3-a456-426655440000'", "gen_random_uuid()", _SAME),
    ("json", "'{\"b\": 1.10,  \"a\": 1}'", f"to_json({_RANDOM_TEXT})", _SAME),
    ("jsonb", "'{\"b\": 1.10,  \"a\": 1}'", f"to_jsonb({_RANDOM_TEXT})", _SAME),
    ("xml", "'<r a=\"1\">t&amp;é</r>'", "xmlelement(name a, g)", _SAME),
    ("mood", "'sad', 'x,y'", "(ARRAY['sad', 'x,y'])[1 + g % 2]::mood", _SAME),
    ("price", "'1.5'", "(random() * 1e9)::numeric", _SAME),
    ("inet", "'10.0.0.1', '10.0.0.1/24', '::1'", "inet '10.0.0.0' + g", "host(v) || CASE WHEN masklen(v) < "
     "CASE family(v) WHEN 4 THEN 32 ELSE 128 END THEN '/' || masklen(v) ELSE '' END"),
    ("cidr", "'10.1.0.0/16'", "set_masklen(inet '10.0.0.0', 8)::cidr", _SAME),
    ("macaddr", "'08-00-2b-01-02-03'", "macaddr '08:00:2b:01:02:03'", _SAME),
    ("bit(1)", "'0', '1'", "(g % 2)::bit(1)", _SAME),
    ("varbit", "'', '00101'", "g::bit(12)::varbit", _SAME),
    ("point", "'(1.5,-2)'", "point(g, 0.1)", _SAME),
    ("int4range", "'[1,5]', '(,3)', 'empty'", "int4range(g, g + 2)", _SAME),
    ("tstzrange", "'[2026-01-01,)'", "tstzrange('2026-01-01', NULL)", _SAME),
    ("int4multirange", "'{[1,3),[5,8)}'", "int4multirange(int4range(g, g + 2))", _SAME),
    ("ltree", "'a.b.c'", "('n' || g)::ltree", _SAME),
    ("tsvector", "'a b:2'", "to_tsvector('simple', 'n' || g)", _SAME),
    ("pg_lsn", "'16/B374D848'", "pg_lsn '0/0' + g", _SAME),
    ("regclass", "'pg_class'", "'pg_type'::regclass", _SAME),
    ("int2vector", "'', '1 2'", "'3 4'::int2vector", _nested("x")),
    ("int[]", "'{}', '{1,NULL,3}', '{{1,2},{3,4}}'", "ARRAY[g, NULL, -g]", "to_jsonb(v)"),
    ("text[]", "'{}', '{NULL,\"NULL\"}'", f"ARRAY[{_RANDOM_TEXT}, NULL, {_RANDOM_TEXT}]", "to_jsonb(v)"),
    ("text[]", "'{{a,b},{c,d}}'", f"ARRAY[ARRAY[{_RANDOM_TEXT}], ARRAY[{_RANDOM_TEXT}]]", "to_jsonb(v)"),
    ("boolean[]", "'{t,f,NULL}'", "ARRAY[g % 2 = 0]", "to_jsonb(v)"),
    ("float8[]", "'{1,1.5,1e300,NULL}'", "ARRAY[random(), random() * 1e20]", "to_jsonb(v)"),
    ("numeric(10,3)[]", "'{1.5,NaN,NULL}'", "ARRAY[random()::numeric]", _nested("x::text")),
    ("price[]", "'{1.5,NULL}'", "ARRAY[random()::numeric]::price[]", _nested("x::text")),
    ("timestamp(3)[]", "'{2026-01-02 03:04:05.1}'", f"ARRAY[timestamp '2000-01-01' + {_MICROSECONDS}]",
     _nested("left(to_char(x, 'YYYY-MM-DD HH24:MI:SS.US'), -3)")),
    ("bytea[]", "'{NULL}'", f"ARRAY[convert_to({_RANDOM_TEXT}, 'UTF8')]", _nested("encode(x, 'base64')")),
    ("jsonb[]", "'{NULL}'", f"ARRAY[jsonb_build_object('k', {_RANDOM_TEXT})]", _nested("x::text")),
    ("mood[]", "'{\"x,y\",NULL,sad}'", "ARRAY['x,y'::mood]", "to_jsonb(v)"),
    ("box[]", "'{(1,1),(0,0);(3,3),(2,2)}'", "ARRAY[box(point(g, 1), point(0, 0))]", _nested("x::text")),
    ("pair", "'(,)', '(1,\"\")'", f"ROW(g, {_RANDOM_TEXT})::pair", "to_jsonb(v)"),
    ("pair[]", "'{NULL,\"(,)\"}'", f"ARRAY[ROW(g, {_RANDOM_TEXT})::pair]", "to_jsonb(v)"),
    ("deep", "'(\"(1,a)\",\"{}\",)'", f"ROW(ROW(g, {_RANDOM_TEXT})::pair, ARRAY[{_RANDOM_TEXT}], true)::deep",
     "to_jsonb(v)"),
    ("hstore", "'', 'a=>NULL'", f"hstore('k' || {_RANDOM_TEXT}, {_RANDOM_TEXT})", "hstore_to_jsonb(v)"),
]  # fmt: skip


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    found = postgres_server.new_database()
    found.execute(
        """
        CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION ltree;
        CREATE TYPE mood AS ENUM ('sad', 'x,y'); CREATE DOMAIN price AS numeric(14,2);
        CREATE TYPE pair AS (a int, "b c" text); CREATE TYPE deep AS (p pair, ts text[], ok boolean);
        """
    )
    yield found
    found.drop()


def _read(database: PostgresDatabase, declared: str, listed: str, random: str, truth: str) -> tuple[pa.Array, pa.Array]:
    """Canonical texts and the server's answers."""
    given = PostgresSettings.parse(database.options, owner="source 'postgresql'")
    with database.connect() as made:
        made.execute("DROP TABLE IF EXISTS t")
        made.execute(f"CREATE TABLE t (n int, v {declared})")
        made.execute(f"INSERT INTO t SELECT 0, x::{declared} FROM unnest(ARRAY[{listed}]) x UNION ALL SELECT 0, NULL")
        made.execute(f"INSERT INTO t SELECT g, {random} FROM generate_series(1, {_ROWS}) g")
    query = f"COPY (SELECT v, {truth} FROM public.t ORDER BY n) TO STDOUT (FORMAT csv, NULL '\\N')"
    with connect(given) as connection:
        # What the truth calls are functions of extensions, too; texts must not depend on it.
        connection.run("SET search_path = pg_catalog, public")
        text = b"".join(connection.copy(query)).decode()
        types = TypeCatalog.of(connection)
        ((oid, typmod),) = connection.rows(
            "SELECT atttypid::bigint, atttypmod FROM pg_attribute WHERE attrelid = 'public.t'::regclass AND attnum = 2"
        )
    rows = list(csv.reader(io.StringIO(text, newline="")))
    printed, answers = (pa.array([None if row[n] == "\\N" else row[n] for row in rows], pa.string()) for n in (0, 1))
    assert printed.null_count == answers.null_count == 1
    return types.resolve(int(oid), int(typmod)).texts(printed), answers


@pytest.mark.parametrize(("declared", "listed", "random", "truth"), TYPES, ids=[case[0] for case in TYPES])
def test_canonical_texts_are_what_the_server_itself_says(
    database: PostgresDatabase, declared: str, listed: str, random: str, truth: str
) -> None:
    if declared in ("numeric(5,-2)", "numeric(2,4)"):
        require_release(database, 15, "scales are beyond the precision")
    texts, answers = _read(database, declared, listed, random, truth)
    if "jsonb(" in truth:
        assert [_json(text) for text in texts.to_pylist()] == [_json(text) for text in answers.to_pylist()]
    else:
        assert texts.to_pylist() == answers.to_pylist()


def _json(text: str | None) -> object:
    return None if text is None else json.loads(text, parse_int=float)


@pytest.mark.parametrize(
    ("declared", "kind", "width"), [("real", "float32", np.float32), ("float8", "float64", np.float64)]
)
def test_binary_numbers_have_the_fewest_digits_that_are_the_same_number(
    database: PostgresDatabase, declared: str, kind: str, width: type[np.floating]
) -> None:
    listed = (
        "'NaN', 'Infinity', '-Infinity', '0', '-0', '1e15', '1e16', '123456', '1234567', '0.0001', '0.00001', '1e-30'"
    )
    random = f"((random() - 0.5) * power(10, floor(random() * 60 - 30)))::{declared}"
    # As many digits as the number has in all, which the server makes without its shortest form.
    texts, answers = _read(database, declared, listed, random, "(v::float8)::text")
    logical = LogicalType(kind)
    wanted = [None if text is None else logical.to_text(width(float(text))) for text in answers.to_pylist()]
    assert texts.to_pylist() == wanted
