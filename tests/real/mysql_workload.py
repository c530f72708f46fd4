"""Tables of every type of MariaDB, and random transactions over them; the same seed gives the same statements."""

from __future__ import annotations

import random
from collections.abc import Iterator

VALUES: dict[str, tuple[str, ...]] = {
    "tinyint": ("0", "-128", "127"),
    "tinyint(1)": ("0", "1", "-5"),
    "tinyint unsigned": ("0", "255"),
    "smallint": ("-32768", "32767"),
    "smallint unsigned": ("0", "65535"),
    "mediumint": ("-8388608", "8388607"),
    "mediumint unsigned": ("0", "16777215"),
    "int": ("0", "-2147483648", "2147483647"),
    "int unsigned zerofill": ("0", "4294967295", "7"),
    "bigint": ("0", "-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("0", "9223372036854775807", "18446744073709551615"),
    "decimal(12,2)": ("0", "-9999999999.99", "0.1"),
    "decimal(65,30)": ("1e-30", "99999999999999999999999999999999999"),
    "decimal(10,0)": ("0", "-9999999999"),
    "decimal(20,4) unsigned": ("0", "9999999999999999.9999"),
    "float": ("0", "-0e0", "3.40282e38", "0.1", "16777216", "123456.7"),
    "float(7,3)": ("1234.567", "-0.001"),
    "double": ("0", "2.2250738585072014e-308", "1.7976931348623157e308", "0.1", "1e15", "1e-5"),
    "double(10,2)": ("12345678.91", "-0.01"),
    "bit(1)": ("b'1'", "b'0'"),
    "bit(10)": ("b'1000000001'", "b'0'"),
    "bit(64)": ("b'1'", f"b'{'1' * 64}'"),
    "boolean": ("true", "false"),
    "char(10)": ("''", "'çé😀 end'"),
    "varchar(100)": ("''", "'tab\tquote'' back\\\\'", "'trail  '"),
    "varchar(50) character set latin1": ("'é'", "''"),
    "varchar(50) character set utf16": ("'é😀'",),
    "tinytext": ("''", "'t'"),
    "text": ("''", "'line\n\\\\N'", "'\\0 \"x\"'"),
    "mediumtext": ("repeat('m', 70000)",),
    "longtext": ("repeat('é', 300)",),
    "binary(5)": ("x'00'", "x'0102030405'", "x'ff00'"),
    "varbinary(20)": ("x''", "x'00ff00'"),
    "tinyblob": ("x'00'",),
    "blob": ("x''", "x'00ff10'"),
    "longblob": ("repeat(x'ff00', 500)",),
    "date": ("'2024-02-29'", "'1969-12-31'", "'9999-12-31'"),
    "datetime": ("'2024-02-29 12:34:56'", "'1969-12-31 23:59:59'", "'9999-12-31 23:59:59'"),
    "datetime(3)": ("'2024-02-29 12:34:56.789'", "'1969-12-31 23:59:59.999'"),
    "datetime(6)": ("'2024-02-29 12:34:56.789012'", "'1600-01-01 00:00:00.000001'"),
    "timestamp null": ("'2024-02-29 12:34:56'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"),
    "timestamp(3) null": ("'2024-02-29 12:34:56.789'", "'2024-02-29 12:34:56'"),
    "timestamp(6) null": ("'2024-02-29 12:34:56.789012'", "'2024-02-29 12:34:56.1'"),
    "time": ("'00:00'", "'838:59:59'", "'-838:59:59'", "'-00:00:01'"),
    "time(3)": ("'23:59:59.999'", "'-00:00:00.5'"),
    "time(6)": ("'838:59:58.999999'", "'-12:34:56.000001'"),
    "year": ("1901", "2155", "2024"),
    "enum('sad','ok','é')": ("'sad'", "'é'"),
    "set('a','b','c d')": ("'a'", "'c d,a'", "''"),
    "json": ('\'{"b": 1.10,  "a": [null, "😀"]}\'', "'null'"),
    "point": ("point(1.25, -2.5)", "point(0, 0)"),
    "geometry": ("point(1, 2)", "st_geomfromtext('LINESTRING(0 0,1 1.5)')", "st_geomfromtext('POINT(3 4)', 4326)"),
    "linestring": ("st_geomfromtext('LINESTRING(0 0,1 1.5,2 2)')",),
    "polygon": ("st_geomfromtext('POLYGON((0 0,1 0,1 1,0 0))')",),
    "multipoint": ("st_geomfromtext('MULTIPOINT(0 0,1 1)')",),
    "geometrycollection": ("st_geomfromtext('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')",),
}
"""Literals by type."""
LATE: dict[str, tuple[str, ...]] = {
    "bigint unsigned": ("9223372036854775808", "10000000000000000000"),
    "date": ("'0000-00-00'", "'2024-00-10'", "'0001-02-03'", "'1582-10-10'", "'0099-12-31'"),
    "datetime": ("'0000-00-00 00:00:00'", "'2024-02-00 10:00:00'", "'0001-02-03 04:05:06'", "'1582-10-10 00:00:00'"),
    "datetime(3)": ("'0000-00-00'", "'0001-01-01 00:00:00.001'"),
    "datetime(6)": ("'0000-00-00'", "'0001-01-01 00:00:00.000001'", "'0070-01-01 00:00:00'"),
    "timestamp null": ("'0000-00-00 00:00:00'",),
    "timestamp(6) null": ("'0000-00-00 00:00:00'",),
    "year": ("0",),
    "enum('sad','ok','é')": ("1", "3"),
}
"""Literals that only the log brings to Debezium: its snapshot stops at some, and reads others by another calendar."""
DEFAULTS = {
    "d_now": "timestamp NOT NULL DEFAULT current_timestamp()",
    "d_now6": "timestamp(6) NOT NULL DEFAULT current_timestamp(6) ON UPDATE current_timestamp(6)",
    "d_stamp": "datetime DEFAULT current_timestamp()",
    "d_sum": "int DEFAULT (1 + 2)",
    "d_uuid": "char(36) DEFAULT (uuid())",
    "d_text": "varchar(20) NOT NULL DEFAULT 'it'",
    "d_quote": "varchar(20) DEFAULT 'it''s'",
    "d_empty": "varchar(20) NOT NULL DEFAULT ''",
    "d_bool": "boolean NOT NULL DEFAULT true",
    "d_num": "decimal(8,3) NOT NULL DEFAULT 1.5",
    "d_minus": "int DEFAULT -5",
    "d_small": "smallint NOT NULL DEFAULT 3",
    "d_tiny": "tinyint(1) NOT NULL DEFAULT 0",
    "d_big": "bigint unsigned NOT NULL DEFAULT 7",
    "d_float": "float DEFAULT 0.1",
    "d_double": "double DEFAULT 1.25",
    "d_date": "date DEFAULT '2020-02-02'",
    "d_zero": "date NOT NULL DEFAULT '0000-00-00'",
    "d_time": "time DEFAULT '01:02:03'",
    "d_time6": "time(6) DEFAULT '01:02:03.5'",
    "d_moment": "datetime(6) NOT NULL DEFAULT '2020-02-02 01:02:03.000004'",
    "d_zoned": "timestamp NOT NULL DEFAULT '2020-02-02 01:02:03'",
    "d_year": "year NOT NULL DEFAULT 2020",
    "d_enum": "enum('a','b') NOT NULL DEFAULT 'b'",
    "d_set": "set('a','b','c') NOT NULL DEFAULT 'a,c'",
    "d_bit": "bit(1) NOT NULL DEFAULT b'1'",
    "d_bits": "bit(4) DEFAULT b'0101'",
    "d_null": "varchar(10) DEFAULT NULL",
    "d_binary": "binary(3) NOT NULL DEFAULT 'abc'",
    "d_text_type": "text DEFAULT 'long'",
    "g_stored": "int GENERATED ALWAYS AS (d_minus * 2) STORED",
    "g_virtual": "varchar(30) GENERATED ALWAYS AS (concat(d_text, 'x')) VIRTUAL",
}
COLUMNS = {f"c{n}": kind for n, kind in enumerate(VALUES)}
REQUIRED = {f"r{n}": kind for n, kind in enumerate(VALUES) if not kind.endswith(" null")}


def _declared(columns: dict[str, str], end: str = "") -> str:
    return ", ".join(f"{name} {kind}{end}" for name, kind in columns.items())


SCHEMA = f"""
create table every_value (id int primary key, {_declared(COLUMNS)});
create table defaults (id int auto_increment primary key, v text, {_declared(DEFAULTS)});
create table required (id bigint primary key, v text, {_declared(REQUIRED, " NOT NULL")});
create table by_index (code varchar(400) character set latin1 not null, n int, unique key (code));
create table two_keys (a varchar(20), b bigint, kt timestamp(6), kn decimal(10,2), v text, primary key (kn, b, a, kt));
create table keyless (a int, v text);
create table `Mixed Case` (`Id` int primary key, `dot.ted` int, `1st` text, `order` text);
create table emptied (id int primary key, v text);
create table parts (id int primary key, v text comment 'about') partition by hash (id) partitions 3;
create table altered (id int primary key, v text);
create table marker (id int primary key);
insert into marker values (1);
"""
ALTERED = (
    "ALTER TABLE altered ADD COLUMN added_{n} INT NOT NULL DEFAULT {n}",
    "ALTER TABLE altered ADD added_{n} VARCHAR(30) CHARACTER SET latin1 DEFAULT 'é' AFTER id",
    "ALTER TABLE altered MODIFY v MEDIUMTEXT COMMENT 'no {n}'",
    "ALTER TABLE altered ADD UNIQUE INDEX by_{n} (id)",
    "CREATE TABLE made_{n} (id INT UNSIGNED PRIMARY KEY AUTO_INCREMENT, e ENUM('x','y') DEFAULT 'y', b BLOB)",
    "CREATE INDEX index_{n} ON altered (id)",
    "ALTER TABLE altered RENAME COLUMN v TO w_{n}, ALGORITHM=INSTANT; ALTER TABLE altered CHANGE w_{n} v MEDIUMTEXT",
    "CREATE TABLE made_{n} LIKE altered",
    "CREATE TABLE gone_{n} (id INT); DROP TABLE gone_{n}",
    "CREATE TABLE early_{n} (id INT PRIMARY KEY, v TEXT); RENAME TABLE early_{n} TO late_{n}",
)
"""Statements that change structures; each stands alone, `{n}` is a number of its own."""


class Workload:
    """Random transactions.

    Args:
        seed: of the random numbers.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._next = 10
        self._ids: dict[str, list[int]] = {}
        self._literals = VALUES

    def every_value(self) -> Iterator[list[str]]:
        """Transactions that have every value at least once."""
        for number in range(max(map(len, self._literals.values()))):
            some = {n: _at(self._literals[k], number) for n, k in COLUMNS.items() if k in self._literals}
            yield [self._insert("every_value", some)]
            if self._literals is VALUES:
                yield [self._insert("required", {n: _at(VALUES[k], number) for n, k in REQUIRED.items()})]
                yield [self._insert("defaults", {}), self._insert("every_value", {})]

    def transactions(self, count: int) -> Iterator[list[str]]:
        """The statements of each; first some that have every value that only the log brings."""
        self._literals = LATE
        yield from self.every_value()
        self._literals = {kind: (*values, *LATE.get(kind, ())) for kind, values in VALUES.items()}
        for number in range(count):
            if number % 12 == 11:
                yield [self._altered(number // 12)]
            else:
                yield [line for _ in range(self._rng.choice((1, 1, 2, 4))) for line in self._statements()]

    def _altered(self, number: int) -> str:
        return ALTERED[number % len(ALTERED)].format(n=number)

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

    def _some(self, share: float) -> dict[str, str]:
        rng = self._rng
        return {n: rng.choice([*self._literals[k], "NULL"]) for n, k in COLUMNS.items() if rng.random() < share}

    def _statements(self) -> list[str]:
        rng = self._rng
        tables = ("every_value", "every_value", "defaults", "required", "by_index", "two_keys", "keyless",
                  "`Mixed Case`", "emptied", "parts", "altered")  # fmt: skip
        table = rng.choice(tables)
        if table == "by_index":
            self._next += 1
            code = f"'c{self._next}'"
            change = rng.choice(("UPDATE by_index SET n = 2", "UPDATE by_index SET code = concat(code, 'é')"))
            return [
                f"INSERT INTO by_index VALUES ({code}, 1)",
                rng.choice((f"{change} WHERE code = {code}", f"DELETE FROM by_index WHERE code = {code}")),
            ]
        if table == "two_keys":
            self._next += 1
            where = f"WHERE b = {self._next}"
            return [
                f"INSERT INTO two_keys VALUES ('a', {self._next}, '2024-01-01 00:00:00.5', 1.10, 'v')",
                rng.choice((f"UPDATE two_keys SET v = 'w' {where}", f"UPDATE two_keys SET kn = 2.2, v = 'm' {where}",
                            f"DELETE FROM two_keys {where}")),
            ]  # fmt: skip
        if table == "keyless":
            number = rng.randrange(5)
            return [
                rng.choice((f"INSERT INTO keyless VALUES ({number}, 'v{rng.random()}')",
                            f"UPDATE keyless SET v = 'w{rng.random()}' WHERE a = {number}",
                            f"DELETE FROM keyless WHERE a = {number}"))
            ]  # fmt: skip
        key = "`Id`" if table.startswith("`") else "id"
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
        if table == "every_value":
            return self._some(0.5)
        if table == "required":
            return {name: self._rng.choice(self._literals[kind]) for name, kind in REQUIRED.items()}
        if table == "defaults":
            return {}
        return {"`1st`": "'x'"} if table.startswith("`") else {"v": f"'v{self._rng.random()}'"}

    def _changed(self, table: str) -> str:
        if table == "every_value":
            some = self._some(0.1) or {"c7": str(self._rng.randrange(10**6))}
        elif table.startswith("`"):
            some = {"`dot.ted`": str(self._rng.randrange(10**6))}
        else:
            some = {"v": f"'w{self._rng.random()}'"}
        return ", ".join(f"{name} = {value}" for name, value in some.items())


def _at(values: tuple[str, ...], number: int) -> str:
    return values[number % len(values)]
