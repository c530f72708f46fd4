"""Rule: what each database is told, statement by statement, stands in `tests/golden/jdbc`; no name escapes it.

Other tests run the statements.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlglot

from headrace.changes import Column, LogicalType, TableSchema
from headrace.errors import OptionError, SchemaError
from headrace.sinks.jdbc.database import parse_address
from headrace.sinks.jdbc.dialect import POSITION, Mirror, TableName, TargetDialect, holds
from headrace.sinks.jdbc.mariadb import MariaDb, MariaDbDialect
from headrace.sinks.jdbc.postgresql import Postgres, PostgresDialect
from headrace.sinks.jdbc.sink import JdbcSink
from headrace.testing.change_history import table

GOLDEN = Path(__file__).parents[1] / "golden" / "jdbc"
DIALECTS: dict[str, TargetDialect] = {
    "postgresql": PostgresDialect(),
    "mariadb": MariaDbDialect(),
    "mysql": MariaDbDialect("mysql"),
}
PARSED_AS = {"postgresql": "postgres", "mariadb": "mysql", "mysql": "mysql"}
"""The names of their grammars in sqlglot."""
LABELS = ("b2", "a1")


def mirror(schema: TableSchema) -> Mirror:
    return Mirror(TableName("sales", schema.id.name), schema, "_headrace_position")


KEYED = replace(
    table("order lines", key=("id", "line"), id="int64", line="string", note="string", price="decimal(12,2)"),
    comment="it's the lines",
)
KEYED = replace(
    KEYED,
    columns=tuple(
        replace(column, length=40)
        if column.name == "line"
        else replace(column, comment="C:\\ it's")
        if column.name == "note"
        else column
        for column in KEYED.columns
    ),
)
BAG = table("bag", key=(), a="float32", b="bytes", c="json")
KINDS = [
    *("boolean", "int8", "int16", "int32", "int64", "uint64", "float32", "float64", "string", "uuid", "json", "xml"),
    *("decimal", "decimal(10,2)", "decimal(38,10)", "decimal(66,0)", "interval", "nested", "bytes", "date"),
    *("time(0)", "time(3)", "time(7)", "timestamp(0)", "timestamp(6)", "timestamp(7)", "timestamp(9)"),
    *("instant(3)", "instant(9)", "zoned_timestamp(6)", "zoned_timestamp(7)"),
]


def statements(dialect: TargetDialect) -> list[str]:
    keyed, bag = mirror(KEYED), mirror(BAG)
    said = [*dialect.create_table(keyed), dialect.truncate(keyed, "01//"), dialect.count_missing(keyed, LABELS)]
    said += [dialect.count_late(keyed, LABELS), dialect.rename_column(keyed, "note", "it's")]
    newer = Column("note", 3, LogicalType("decimal", 12, 2), comment="new")
    return [
        *said,
        dialect.create_schema("a b"),
        dialect.create_progress(TableName("", "_headrace_progress")),
        *dialect.add_column(keyed, newer),
        *dialect.add_column(bag, POSITION),
        dialect.widen_column(keyed, newer),
        *dialect.create_stage(keyed),
        *dialect.apply_keyed(keyed, LABELS, partial=False),
        *dialect.apply_keyed(keyed, LABELS, partial=True),
        *dialect.create_table(bag),
        *dialect.apply_keyless(bag, LABELS, deletes=True),
        *dialect.apply_keyless(bag, (), deletes=False),
    ]


def types(dialect: TargetDialect) -> list[str]:
    schema = table("types", key=(), **{kind: kind for kind in KINDS})
    return [f"-- {kind}: {text}" for kind, text in dialect.column_types(schema).items() if kind]


@pytest.mark.parametrize("name", DIALECTS)
def test_the_statements_are_the_golden_ones(name: str) -> None:
    dialect = DIALECTS[name]
    made = "\n".join([*types(dialect), *(line.removesuffix(";") + ";" for line in statements(dialect))]) + "\n"
    assert made == (GOLDEN / f"{name}.sql").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PARSED_AS)
def test_the_statements_that_bring_a_batch_in_parse(name: str) -> None:
    changing = [line for line in statements(DIALECTS[name]) if line.split()[0] in ("MERGE", "INSERT", "UPDATE")]
    assert changing
    for line in changing:
        (tree,) = sqlglot.parse(line, read=PARSED_AS[name])
        assert tree is not None and not isinstance(tree, sqlglot.exp.Command)


@pytest.mark.parametrize("name", DIALECTS)
def test_names_and_texts_stay_what_they_are(name: str) -> None:
    dialect = DIALECTS[name]
    odd = "a\"]`';--"
    schema = replace(table(odd, key=(odd,), **{odd: "int32", "b": "string"}), comment=odd)
    for line in dialect.create_table(mirror(schema)):
        rest = line.replace(dialect.quote(odd), "").replace(dialect.literal(odd), "")
        assert "--" not in rest


def test_labels_that_are_no_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="not a label"):
        PostgresDialect().taken(["x' OR '1' = '1"])


@pytest.mark.parametrize(
    ("dialect", "name", "columns", "message"),
    [
        ("postgresql", "t", {"ä" * 32: "int32"}, "does not fit PostgreSQL, which takes 63 bytes"),
        ("postgresql", "x" * 64, {"a": "int32"}, "takes 63 bytes"),
        ("mariadb", "t", {"ä" * 65: "int32"}, "does not fit MariaDB, which takes 64 characters"),
        ("postgresql", "t", {"a": "int32", "A": "int32"}, "differ only in case; Spark can't hold both"),
        ("mariadb", "t", {"a": "int32", "A": "int32"}, "differ only in case; MariaDB can't hold both"),
        ("mariadb", "t", {"a": "int32", "_HEADRACE_position": "int32"}, "Headrace's own"),
        ("postgresql", "t", {"a": "int32", "_headrace_position": "int32"}, "Headrace's own"),
    ],
)
def test_names_that_do_not_fit_are_refused(dialect: str, name: str, columns: dict[str, str], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        DIALECTS[dialect].refuse_names(mirror(table(name, key=(), **columns)))


def test_long_names_that_fit_are_taken() -> None:
    PostgresDialect().refuse_names(mirror(table("x" * 63, key=(), **{"y" * 63: "int32"})))
    MariaDbDialect().refuse_names(mirror(table("ä" * 64, key=(), a="int32")))


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        # Characters of each key column, of which an index entry has 768.
        ((None,), ("varchar(768)",)),
        ((40,), ("varchar(40)",)),
        ((4000,), ("varchar(768)",)),
        ((None, None), ("varchar(384)", "varchar(384)")),
        ((700, 10), ("varchar(700)", "varchar(10)")),
        ((10, None, 20), ("varchar(10)", "varchar(738)", "varchar(20)")),
        ((-1, 0), ("varchar(384)", "varchar(384)")),
    ],
)
def test_texts_of_a_key_get_lengths_that_fit_an_index_of_mariadb(
    lengths: tuple[int | None, ...], expected: tuple[str, ...]
) -> None:
    names = [f"k{n}" for n in range(len(lengths))]
    schema = table(key=tuple(names), **dict.fromkeys(names, "string"))
    schema = replace(schema, columns=tuple(replace(c, length=n) for c, n in zip(schema.columns, lengths, strict=True)))
    found = MariaDbDialect().column_types(schema)
    assert tuple(found[name] for name in names) == expected


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("bigint", "int", True),
        ("int", "bigint", False),
        ("bigint unsigned", "int", False),
        ("decimal(20,0)", "bigint unsigned", True),
        ("numeric(12,4)", "numeric(10,2)", True),
        ("numeric(12,4)", "numeric(10,1)", False),
        ("numeric(10,0)", "integer", True),
        ("numeric(9,0)", "integer", False),
        ("numeric", "numeric(1000,999)", True),
        ("numeric(10,2)", "numeric", False),
        ("double precision", "real", True),
        ("double precision", "integer", False),
        ("varchar(20)", "varchar(10)", True),
        ("varchar(10)", "varchar(20)", False),
        ("longtext", "varchar(20)", True),
        ("text", "integer", False),
        ("timestamp(6) without time zone", "timestamp(3) without time zone", True),
        ("timestamp(6) with time zone", "timestamp(3) without time zone", False),
        ("timestamp without time zone", "timestamp(6) without time zone", True),
        ("timestamp(3) without time zone", "timestamp without time zone", False),
        ("datetime(3)", "datetime", True),
        ("datetime", "datetime(3)", False),
        ("smallint", "tinyint(1)", False),
        ("uuid", "uuid", True),
        ("integer[]", "integer", False),
    ],
)
def test_a_type_that_holds_another_is_known(wide: str, narrow: str, expected: bool) -> None:
    assert holds(wide, narrow) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://h/db", ("postgresql", "h", 5432, "db", None, {})),
        ("postgres://u@h:1/a%20b?sslmode=require", ("postgresql", "h", 1, "a b", "u", {"sslmode": "require"})),
        (
            "JDBC:mysql://[::1]:3307/db?user=x&read_timeout=5",
            ("mariadb", "::1", 3307, "db", "x", {"read_timeout": "5"}),
        ),
    ],
)
def test_addresses_are_read(url: str, expected: tuple[object, ...]) -> None:
    address = parse_address(url, None, "geheim")
    assert (
        address.kind, address.host, address.port, address.database, address.user, dict(address.parameters)
    ) == expected  # fmt: skip
    assert "geheim" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("jdbc:sqlserver://h;databaseName=db;password=geheim", "does not write to SQL Server"),
        ("jdbc:oracle:thin:u/geheim@h:1521/x", "does not write to Oracle"),
        ("jdbc:db2://h:50000/geheim", "does not write to Db2"),
        ("sqlite:///geheim", "does not name a supported kind of database"),
        ("postgresql://h", "lacks the host or the database"),
        ("postgresql:///db", "lacks the host or the database"),
        ("postgresql://h:x/db", "not a valid URL"),
        ("postgresql://u:geheim@h/db", r"holds a secret \('password'\)"),
        ("postgresql://h/db?sslpassword=geheim", r"holds a secret \('sslpassword'\)"),
        ("mariadb://h/db?autocommit=true", "unknown or wrong setting: 'autocommit'"),
    ],
)
def test_addresses_that_can_not_be_are_refused_without_showing_a_secret(url: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        MariaDb(parse_address(url, None, None))
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [("table_name", "{table"), ("table_name", "a.b.c"), ("table_name", "{topic}"), ("progress_table", "{table}")],
)
def test_names_of_tables_that_can_not_be_are_refused(option: str, value: str) -> None:
    given = {"url": "postgresql://h/db", option: value}
    with pytest.raises(OptionError, match="is not a table name"):
        JdbcSink.of(given)


def test_the_password_is_not_shown() -> None:
    given = {"url": "postgresql://h/db", "user": "u", "password": "geheim"}
    assert "geheim" not in repr(JdbcSink.of(given).settings)


@pytest.mark.parametrize(("given", "password"), [(None, None), ("", None), ("secret", "secret")])
def test_without_a_password_postgresqls_own_ways_to_one_stay_open(
    monkeypatch: pytest.MonkeyPatch, given: str | None, password: str | None
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr("psycopg.connect", lambda **options: asked.update(options))
    Postgres(parse_address("postgresql://h/d", "cdc", given)).connect()
    assert asked["password"] == password
