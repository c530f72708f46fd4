"""Tables of every type, and random transactions over them; the same seed gives the same statements."""

from __future__ import annotations

import random
from collections.abc import Iterator

VALUES: dict[str, tuple[str, ...]] = {
    "smallint": ("0", "-32768", "32767"),
    "integer": ("0", "-2147483648", "2147483647"),
    "bigint": ("0", "-9223372036854775808", "9223372036854775807"),
    "oid": ("0", "4294967295"),
    "numeric": ("0", "1.50", "-0.00000000000000000001", "1e40", "'NaN'", "'Infinity'"),
    "numeric(12,2)": ("0", "-9999999999.99", "0.1", "'NaN'"),
    "numeric(65,30)": ("1e-30", "99999999999999999999999999999999999"),
    "numeric(2,4)": ("0.0099", "-0.0001"),
    "real": ("0", "'-0'", "3.4028235e38", "1e-45", "0.1", "'NaN'", "'-Infinity'", "16777216", "123456"),
    "double precision": ("0", "5e-324", "1.7976931348623157e308", "0.1", "'Infinity'", "1e15", "1e-5"),
    "money": ("1234.5", "-0.01", "92233720368547758.07"),
    "boolean": ("true", "false"),
    "char(10)": ("''", "'çé😀 end'"),
    "varchar(100)": ("''", "'tab\tquote''\\ back'"),
    "text": ("''", "'line\n\\N'", "'\\u0001 \"x\"'"),
    '"char"': ("'x'", "''"),
    "citext": ("'CiText'",),
    "bytea": ("''", "'\\x00ff10'"),
    "date": ("'2024-02-29'", "'0044-03-15 BC'", "'infinity'", "'-infinity'", "'5874897-12-31'", "'1582-10-10'"),
    "time": ("'00:00'", "'24:00'", "'12:34:56.1'"),
    "time(0)": ("'23:59:59'", "'24:00'"),
    "time(3)": ("'23:59:59.999'",),
    "timetz": ("'23:59:59.999999+05:30'", "'24:00:00+00'", "'00:00:00.5-12'"),
    "timestamp": ("'2024-02-29 12:34:56.7'", "'0044-03-15 10:00:00.123456 BC'", "'infinity'", "'9999-12-31 23:59:59'"),
    "timestamp(0)": ("'2000-01-01'", "'4713-01-01 BC'", "'-infinity'"),
    "timestamp(3)": ("'2024-02-29 12:34:56.789'", "'294276-12-31 23:59:59.999'"),
    "timestamptz": ("'2024-02-29 12:34:56.7+05'", "'0044-03-15 10:00 UTC BC'", "'infinity'", "'12000-01-01 00:00 UTC'"),
    "timestamptz(0)": ("'2024-02-29 12:34:56.7+05'",),
    "timestamptz(3)": ("'2024-02-29 12:34:56.7+05'", "'1969-12-31 23:59:59.999 UTC'"),
    "interval": ("'1 year 2 mons -3 days 04:05:06.789'", "'-00:00:00.000001'", "'100000:00'", "'0'", "'-1 year'"),
    "uuid": ("'123e4567-e89b-12d3-a456-426655440000'",),
    "json": ('\'{"b": 1.10,  "a": [null, "😀"]}\'', "'null'"),
    "jsonb": ('\'{"b": 1.10,  "a": [null, "😀"]}\'', "'[]'"),
    "xml": ("'<r a=\"1\">t&amp;é</r>'",),
    "inet": ("'192.168.1.5/24'", "'::1'"),
    "cidr": ("'10.1.0.0/16'",),
    "macaddr": ("'08:00:2b:01:02:03'",),
    "macaddr8": ("'08:00:2b:01:02:03:04:05'",),
    "bit(1)": ("B'1'", "B'0'"),
    "bit(10)": ("B'1000000001'", "B'0000000000'"),
    "varbit": ("B'1011'", "B''"),
    "varbit(20)": ("B'11111111111111111111'",),
    "mood": ("'sad'", "'x,y'"),
    "hstore": ('\'a=>1, b=>NULL, "c d"=>"q\\"uote"\'', "''"),
    "ltree": ("'a.b.c'", "''"),
    "int4range": ("'[1,10)'", "'empty'"),
    "numrange": ("'(1.5,2.50]'",),
    "tsrange": ("'[2024-01-01, 2024-01-02 00:00:00.5)'",),
    "tstzrange": ("'[2024-01-01 00:00+00,)'",),
    "daterange": ("'[2024-01-01,2024-02-01)'",),
    "point": ("'(1.25,-2.5)'", "'(0,0)'"),
    "posint": ("1", "2147483647"),
    "money2": ("999999999999.99", "-0.01"),
    "integer[]": ("'{1,NULL,-5}'", "'{}'", "'[0:2]={1,2,3}'"),
    "bigint[]": ("'{9223372036854775807}'",),
    "text[]": ('\'{a,"",NULL,"NULL","c,d","q\\"uote"}\'', "'{}'"),
    "varchar(5)[]": ("'{abc,NULL}'",),
    "numeric(10,3)[]": ("'{1.500,NULL,-0.001}'",),
    "numeric[]": ("'{1.5,100000000000000000000,0.00001}'",),
    "boolean[]": ("'{t,f,NULL}'",),
    "real[]": ("'{0.1,NULL,1e20}'",),
    "double precision[]": ("'{1.5,NaN,Infinity}'", "'{1e-5,12345678}'"),
    "timestamp[]": ("'{2024-01-01 00:00:00.123456}'",),
    "timestamp(3)[]": ("'{2024-01-01 00:00:00.123}'",),
    "timestamptz[]": ("'{2024-01-01 00:00:00.5+02}'",),
    "date[]": ("'{2024-02-29,1969-12-31}'",),
    "time[]": ("'{12:34:56.789}'",),
    "uuid[]": ("'{123e4567-e89b-12d3-a456-426655440000}'",),
    "jsonb[]": ('\'{"{\\"a\\": 1}",[1]}\'',),
    "bytea[]": ("'{\"\\\\x00ff\",NULL}'",),
    "mood[]": ("'{sad,\"x,y\"}'",),
    "inet[]": ("'{10.0.0.1,::1/64}'",),
    "smallint[]": ("'{1,-2}'",),
    "oid[]": ("'{1,4294967295}'",),
}
"""Literals by type."""
DEFAULTS = {
    "d_now": "timestamptz NOT NULL DEFAULT now()",
    "d_stamp": "timestamp DEFAULT CURRENT_TIMESTAMP",
    "d_uuid": "uuid NOT NULL DEFAULT gen_random_uuid()",
    "d_sum": "integer DEFAULT (1 + 2)",
    "d_text": "text NOT NULL DEFAULT 'it'",
    "d_lower": "varchar(20) DEFAULT lower('ABC')",
    "d_bool": "boolean NOT NULL DEFAULT true",
    "d_num": "numeric(8,3) NOT NULL DEFAULT 1.5",
    "d_float": "double precision DEFAULT 1.25",
    "d_date": "date DEFAULT '2020-02-02'",
    "d_time": "time DEFAULT '01:02:03.5'",
    "d_interval": "interval NOT NULL DEFAULT '1 day'",
    "d_json": "jsonb DEFAULT '{}'",
    "d_mood": "mood DEFAULT 'ok'",
    "d_null": "text DEFAULT NULL",
    "d_array": "integer[] DEFAULT '{1,2}'",
    "d_bits": "bit(4) DEFAULT B'0101'",
    "d_small": "smallint NOT NULL DEFAULT 3",
    "d_zoned": "timestamptz DEFAULT CURRENT_TIMESTAMP",
    "d_day": "date NOT NULL DEFAULT CURRENT_DATE",
    "d_cast": "date DEFAULT now()::date",
    "d_user": "text DEFAULT CURRENT_USER",
    "d_joined": "text DEFAULT 'a' || 'b'",
    "d_minus": "integer DEFAULT -5",
    "d_minus_num": "numeric(6,2) NOT NULL DEFAULT -1.5",
    "d_quote": "varchar(20) DEFAULT 'it''s'",
    "d_free": "numeric DEFAULT 2.50",
    "d_bytes": "bytea DEFAULT '\\x00ff'",
    "d_char": "char(5) DEFAULT 'ab'",
    "d_money": "money DEFAULT 1.5",
    "d_oid": "oid DEFAULT 7",
    "d_inet": "inet DEFAULT '10.0.0.1'",
    "d_xml": "xml DEFAULT '<a/>'",
    "d_bit": "bit(1) NOT NULL DEFAULT B'1'",
    "d_real": "real DEFAULT 0.1",
    "d_fixed": "uuid DEFAULT '123e4567-e89b-12d3-a456-426655440000'",
    "d_citext": "citext DEFAULT 'x'",
    "d_timetz": "timetz DEFAULT '01:02:03+00'",
    "d_domain": "posint DEFAULT 4",
    "s_big": "bigserial",
    "s_always": "integer GENERATED ALWAYS AS IDENTITY",
}
REQUIRED = {
    "r_int": "integer", "r_big": "bigint", "r_small": "smallint", "r_text": "text", "r_bool": "boolean",
    "r_num": "numeric(12,2)", "r_free": "numeric", "r_real": "real", "r_date": "date", "r_time": "time",
    "r_stamp": "timestamp", "r_zoned": "timestamptz", "r_uuid": "uuid", "r_json": "json", "r_bytes": "bytea",
    "r_interval": "interval", "r_mood": "mood", "r_array": "integer[]", "r_bit": "bit(1)", "r_bits": "bit(10)",
    "r_timetz": "timetz", "r_xml": "xml", "r_oid": "oid", "r_money": "money", "r_inet": "inet", "r_point": "point",
}  # fmt: skip
"""Columns without NULL and without a default."""
COLUMNS = {f"c{n}": kind for n, kind in enumerate(VALUES)}
BIG = {
    "big_text": "text", "big_bytes": "bytea", "big_json": "json", "big_jsonb": "jsonb", "big_texts": "text[]",
    "big_ints": "integer[]", "big_bigs": "bigint[]", "big_hstore": "hstore", "big_xml": "xml", "big_char": "varchar",
    "big_dates": "date[]", "big_floats": "double precision[]", "big_uuids": "uuid[]", "big_bytes_list": "bytea[]",
}  # fmt: skip


def _declared(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


SCHEMA = f"""
CREATE EXTENSION hstore; CREATE EXTENSION ltree; CREATE EXTENSION citext;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'x,y', 'é');
CREATE DOMAIN posint AS integer CHECK (VALUE > 0); CREATE DOMAIN money2 AS numeric(14,2);
CREATE TABLE every (id integer PRIMARY KEY, {_declared(COLUMNS)});
CREATE TABLE every_full (id integer PRIMARY KEY, {_declared(COLUMNS)}); ALTER TABLE every_full REPLICA IDENTITY FULL;
CREATE TABLE defaults (id serial PRIMARY KEY, v text, {_declared(DEFAULTS)});
CREATE TABLE required (id bigint PRIMARY KEY, v text, {_declared({n: f"{k} NOT NULL" for n, k in REQUIRED.items()})});
CREATE TABLE large (id integer PRIMARY KEY, note text, {_declared(BIG)});
CREATE TABLE large_full (id integer PRIMARY KEY, note text, {_declared(BIG)});
ALTER TABLE large_full REPLICA IDENTITY FULL;
CREATE TABLE by_index (id integer PRIMARY KEY, code varchar(400) NOT NULL, n integer);
CREATE UNIQUE INDEX by_code ON by_index (code); ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_code;
CREATE TABLE two_keys (a varchar(20), b bigint, kt timestamptz, kn numeric(10,2), v text, PRIMARY KEY (kn, b, a, kt));
CREATE TABLE keyless (a integer, v text); ALTER TABLE keyless REPLICA IDENTITY FULL;
CREATE TABLE "Mixed Case" ("Id" integer PRIMARY KEY, "dot.ted" integer, "1st" text, "order" text);
CREATE TABLE emptied (id integer PRIMARY KEY, v text); CREATE TABLE emptied_too (id integer PRIMARY KEY);
CREATE TABLE marker (id integer PRIMARY KEY);
{"".join(f"ALTER TABLE {t} ALTER {c} SET STORAGE EXTERNAL;" for t in ("large", "large_full") for c in BIG)}
INSERT INTO marker VALUES (1);
CREATE PUBLICATION live FOR ALL TABLES;
"""
_LARGE = {
    "text": "repeat(md5(random()::text), 80)", "varchar": "repeat(md5(random()::text), 80)",
    "bytea": "convert_to(repeat(md5(random()::text), 80), 'UTF8')",
    "json": "to_json(repeat(md5(random()::text), 80))", "jsonb": "to_jsonb(repeat(md5(random()::text), 80))",
    "text[]": "ARRAY[repeat(md5(random()::text), 80), NULL, 'y']",
    "integer[]": "(SELECT array_agg(n) FROM generate_series(1, 900) n)",
    "bigint[]": "(SELECT array_agg(n::bigint) FROM generate_series(1, 900) n)",
    "hstore": "hstore('k', repeat(md5(random()::text), 80))",
    "xml": "xmlelement(name a, repeat(md5(random()::text), 80))",
    "date[]": "(SELECT array_agg(date '2024-01-01' + n) FROM generate_series(1, 900) n)",
    "double precision[]": "(SELECT array_agg(n / 8.0::double precision) FROM generate_series(1, 900) n)",
    "uuid[]": "(SELECT array_agg(md5(n::text)::uuid) FROM generate_series(1, 300) n)",
    "bytea[]": "ARRAY[convert_to(repeat(md5(random()::text), 80), 'UTF8')]",
}  # fmt: skip


class Workload:
    """Random transactions.

    Args:
        seed: of the random numbers.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._next = 10
        self._ids: dict[str, list[int]] = {}

    def transactions(self, count: int) -> Iterator[list[str]]:
        """The statements of each; first some that have every value at least once."""
        yield from self.every_value()
        for _ in range(count):
            made = [statement for _ in range(self._rng.randint(1, 6)) for statement in self._statements()]
            if self._rng.random() < 0.2:
                undone = [s for s in self._statements() if "pg_logical" not in s]
                made += ["SAVEPOINT s", *undone, "ROLLBACK TO s"] if not _creates(undone) else []
            yield made

    def every_value(self) -> Iterator[list[str]]:
        """Transactions after which each type has had each of its values."""
        for place in range(max(len(values) for values in VALUES.values())):
            row = {name: VALUES[kind][place % len(VALUES[kind])] for name, kind in COLUMNS.items()}
            yield [self._insert(table, row) for table in ("every", "every_full")]

    def _insert(self, table: str, values: dict[str, str], key: str = "id") -> str:
        self._next += 1
        self._ids.setdefault(table, []).append(self._next)
        names = ", ".join((key, *values))
        return f"INSERT INTO {table} ({names}) VALUES ({', '.join((str(self._next), *values.values()))})"

    def _id(self, table: str, *, take: bool = False) -> int | None:
        ids = self._ids.get(table)
        if not ids:
            return None
        at = self._rng.randrange(len(ids))
        return ids.pop(at) if take else ids[at]

    def _some(self, columns: dict[str, str], share: float) -> dict[str, str]:
        rng = self._rng
        return {n: rng.choice([*VALUES[kind], "NULL"]) for n, kind in columns.items() if rng.random() < share}

    def _statements(self) -> list[str]:
        rng = self._rng
        table = rng.choice(
            ["every", "every", "every_full", "defaults", "required", "large", "large", "large_full", "by_index",
             "two_keys", "keyless", '"Mixed Case"', "emptied", "message"]
        )  # fmt: skip
        if table == "message":
            inside = rng.choice(("true", "false"))
            content = rng.choice(("'é text'", "'\\x00ff01'::bytea", "''"))
            return [f"SELECT pg_logical_emit_message({inside}, 'app', {content})"]
        if table == "emptied" and rng.random() < 0.3:
            self._ids["emptied"] = []
            return ["TRUNCATE emptied, emptied_too"]
        key = '"Id"' if table.startswith('"') else "id"
        if table == "keyless":
            number = rng.randrange(5)
            return [
                rng.choice(
                    [
                        f"INSERT INTO keyless VALUES ({number}, 'v{rng.random()}')",
                        f"UPDATE keyless SET v = 'w' WHERE a = {number}",
                        f"DELETE FROM keyless WHERE a = {number}",
                    ]
                )
            ]
        if table == "two_keys":
            self._next += 1
            return [
                f"INSERT INTO two_keys VALUES ('a', {self._next}, '2024-01-01 00:00:00.5+00', 1.10, 'v')",
                rng.choice(
                    [
                        f"UPDATE two_keys SET v = 'w' WHERE b = {self._next}",
                        f"UPDATE two_keys SET kn = 2.2, v = 'm' WHERE b = {self._next}",
                        f"DELETE FROM two_keys WHERE b = {self._next}",
                    ]
                ),
            ]
        kind = rng.choices(("insert", "update", "delete", "move"), (4, 4, 2, 1))[0]
        id = self._id(table, take=kind in ("delete", "move"))
        if kind == "insert" or id is None:
            return [self._insert(table, self._inserted(table), key)]
        if kind == "delete":
            return [f"DELETE FROM {table} WHERE {key} = {id}"]
        if kind == "move":
            self._next += 1
            self._ids[table].append(self._next)
            return [f"UPDATE {table} SET {key} = {self._next} WHERE {key} = {id}"]
        return [f"UPDATE {table} SET {self._changed(table)} WHERE {key} = {id}"]

    def _inserted(self, table: str) -> dict[str, str]:
        rng = self._rng
        if table.startswith("every"):
            return self._some(COLUMNS, 0.5)
        if table == "required":
            return {name: rng.choice(_of_required(kind)) for name, kind in REQUIRED.items()}
        if table.startswith("large"):
            return {name: _LARGE[kind] for name, kind in BIG.items() if rng.random() < 0.8} | {"note": "'n'"}
        if table == "by_index":
            return {"code": f"'c{self._next}'", "n": "1"}
        return {} if table == "defaults" else {"v": "'v'"} if table == "emptied" else {'"1st"': "'x'"}

    def _changed(self, table: str) -> str:
        rng = self._rng
        if table.startswith("every"):
            some = self._some(COLUMNS, 0.1) or {"c1": "5"}
        elif table.startswith("large"):
            name = rng.choice(list(BIG))
            some = {"note": f"'n{rng.random()}'"} | ({name: _LARGE[BIG[name]]} if rng.random() < 0.3 else {})
        elif table == "by_index":
            some = {"n": "n + 1"} if rng.random() < 0.5 else {"code": "code || 'x'"}
        elif table in ("defaults", "required"):
            some = {"v": "'w'"}
        else:
            some = {"v": "'w'"} if table == "emptied" else {'"dot.ted"': "7"}
        return ", ".join(f"{name} = {value}" for name, value in some.items())


def _of_required(kind: str) -> list[str]:
    # What the wire can't hold may not stand in a column without NULL.
    return [value for value in VALUES[kind] if value not in ("'NaN'", "'Infinity'")]


def _creates(statements: list[str]) -> bool:
    """Whether statements change what the workload keeps in mind of the tables."""
    return any(
        not s.startswith("UPDATE") or " SET id = " in s or '"Id" = ' in s.split(" WHERE ")[0] for s in statements
    )
