"""Changes that wait in the log while their table, or a type of it, is altered: each is read by the structure that was
true when it was made.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.support.captured_postgres import CapturedPostgres

from headrace.apply.column_names import steps_of
from headrace.changes import TableSchema
from headrace.sources.base import Limit
from headrace.sources.postgresql.stream_state import StreamState
from headrace_emulators.postgresql.server import PostgresDatabase


class Case(NamedTuple):
    """A table, statements of which each is a transaction, and what its changes are."""

    create: str
    statements: tuple[str, ...]
    changes: list[dict[str, str | None]]
    keys: list[list[str]]
    kinds: list[str]
    """The logical type of the last column, change by change."""
    steps: tuple[str, ...] = ()
    """What happened to the names of columns, as table sinks read it."""


_FULL = "ALTER TABLE {t} REPLICA IDENTITY FULL"
_TWO = "CREATE TABLE {t} (id int PRIMARY KEY, v text); " + _FULL
CASES = {
    "key_renamed": Case(
        _TWO,
        ("INSERT INTO {t} VALUES (1, 'a')", "ALTER TABLE {t} RENAME id TO nr", "INSERT INTO {t} VALUES (2, 'b')"),
        [{"id": "1", "v": "a"}, {"nr": "2", "v": "b"}],
        [["id"], ["nr"]],
        ["string", "string"],
        ("rename id nr",),
    ),
    "key_renamed_twice": Case(
        _TWO,
        (
            "INSERT INTO {t} VALUES (1, 'a')",
            "ALTER TABLE {t} RENAME id TO x",
            "INSERT INTO {t} VALUES (2, 'b')",
            "ALTER TABLE {t} RENAME x TO y",
            "INSERT INTO {t} VALUES (3, 'c')",
        ),
        # No look at the catalog showed x.
        [{"id": "1", "v": "a"}, {"y": "2", "v": "b"}, {"y": "3", "v": "c"}],
        [["id"], ["y"], ["y"]],
        ["string"] * 3,
        ("rename id y",),
    ),
    "key_replaced": Case(
        "CREATE TABLE {t} (id int PRIMARY KEY, v text NOT NULL); " + _FULL,
        (
            "INSERT INTO {t} VALUES (1, 'a')",
            "ALTER TABLE {t} DROP id, ADD PRIMARY KEY (v)",
            "INSERT INTO {t} VALUES ('b')",
        ),
        [{"id": "1", "v": "a"}, {"v": "b"}],
        [["id"], ["v"]],
        ["string"] * 2,
        ("drop id",),
    ),
    "key_widened": Case(
        _TWO,
        ("INSERT INTO {t} VALUES (1, 'a')", "ALTER TABLE {t} ALTER id TYPE bigint", "INSERT INTO {t} VALUES (2, 'b')"),
        [{"id": "1", "v": "a"}, {"id": "2", "v": "b"}],
        [["id"], ["id"]],
        ["string"] * 2,
    ),
    "domain_dropped": Case(
        "CREATE DOMAIN {t}_d AS int; CREATE TABLE {t} (id int PRIMARY KEY, v {t}_d)",
        (
            "INSERT INTO {t} VALUES (1, 1)",
            "ALTER TABLE {t} ALTER v TYPE bigint",
            "DROP DOMAIN {t}_d",
            "INSERT INTO {t} VALUES (2, 2)",
        ),
        [{"id": "1", "v": "1"}, {"id": "2", "v": "2"}],
        [["id"], ["id"]],
        ["int32", "int64"],
    ),
    "domain_for_a_while": Case(
        "CREATE TABLE {t} (id int PRIMARY KEY, v bytea)",
        (
            r"CREATE DOMAIN {t}_d AS bytea; ALTER TABLE {t} ALTER v TYPE {t}_d",
            r"INSERT INTO {t} VALUES (1, '\x0102')",
            "ALTER TABLE {t} ALTER v TYPE bytea; DROP DOMAIN {t}_d",
        ),
        [{"id": "1", "v": "AQI="}],
        [["id"]],
        ["bytes"],
    ),
    "array_of_dropped_enum": Case(
        "CREATE TYPE {t}_e AS ENUM ('a', 'b'); CREATE TABLE {t} (id int PRIMARY KEY, v {t}_e[])",
        (
            "INSERT INTO {t} VALUES (1, '{a,b}')",
            "ALTER TABLE {t} ALTER v TYPE text USING v::text; DROP TYPE {t}_e",
        ),
        [{"id": "1", "v": '["a","b"]'}],
        [["id"]],
        ["nested"],
    ),
    "composite_dropped": Case(
        "CREATE TYPE {t}_c AS (street text, zip int); CREATE TABLE {t} (id int PRIMARY KEY, v {t}_c)",
        (
            "INSERT INTO {t} VALUES (1, '(Ash,13)')",
            "ALTER TABLE {t} DROP v; DROP TYPE {t}_c",
            "INSERT INTO {t} VALUES (2)",
        ),
        [{"id": "1", "v": '{"street":"Ash","zip":13}'}, {"id": "2"}],
        [["id"], ["id"]],
        ["nested", "int32"],
        ("drop v",),
    ),
    "attribute_renamed": Case(
        "CREATE TYPE {t}_c AS (street text, zip int); CREATE TABLE {t} (id int PRIMARY KEY, v {t}_c)",
        (
            "INSERT INTO {t} VALUES (1, '(Ash,13)')",
            "ALTER TYPE {t}_c RENAME ATTRIBUTE zip TO code",
        ),
        [{"id": "1", "v": '{"street":"Ash","zip":13}'}],
        [["id"]],
        ["nested"],
    ),
    "attributes": Case(
        "CREATE TYPE {t}_c AS (street text, zip int); CREATE TABLE {t} (id int PRIMARY KEY, v {t}_c[])",
        (
            "INSERT INTO {t} VALUES (1, ARRAY['(Ash,13)'::{t}_c])",
            "ALTER TYPE {t}_c ADD ATTRIBUTE city text",
            "INSERT INTO {t} VALUES (2, ARRAY['(Elm,14,Ely)'::{t}_c])",
        ),
        [
            {"id": "1", "v": '[{"street":"Ash","zip":13}]'},
            {"id": "2", "v": '[{"street":"Elm","zip":14,"city":"Ely"}]'},
        ],
        [["id"], ["id"]],
        ["nested"] * 2,
    ),
    "labels": Case(
        "CREATE TYPE {t}_e AS ENUM ('low', 'high'); CREATE TABLE {t} (id int PRIMARY KEY, v {t}_e)",
        (
            "INSERT INTO {t} VALUES (1, 'low')",
            "ALTER TYPE {t}_e RENAME VALUE 'low' TO 'sad'",
            "INSERT INTO {t} VALUES (2, 'sad')",
        ),
        [{"id": "1", "v": "low"}, {"id": "2", "v": "sad"}],
        [["id"], ["id"]],
        ["string"] * 2,
    ),
    "renamed_dropped_added": Case(
        "CREATE TABLE {t} (id int PRIMARY KEY, a text, b text, c text)",
        (
            "INSERT INTO {t} VALUES (1, 'a', 'b', 'c')",
            "ALTER TABLE {t} RENAME a TO d; ALTER TABLE {t} DROP b, ADD e text",
            "INSERT INTO {t} VALUES (2, 'a', 'c', 'e')",
        ),
        [{"id": "1", "a": "a", "b": "b", "c": "c"}, {"id": "2", "d": "a", "c": "c", "e": "e"}],
        [["id"], ["id"]],
        ["string"] * 2,
        ("drop b", "rename a d", "add e"),
    ),
    "renamed_after_the_last_row": Case(
        "CREATE TABLE {t} (id int PRIMARY KEY, a text)",
        ("INSERT INTO {t} VALUES (1, 'a')", "ALTER TABLE {t} RENAME a TO d"),
        [{"id": "1", "a": "a"}],
        [["id"]],
        ["string"],
        ("rename a d",),
    ),
    "another_column_of_the_name": Case(
        "CREATE TABLE {t} (id int PRIMARY KEY, a text, b text)",
        ("INSERT INTO {t} VALUES (1, 'a', 'b')", "ALTER TABLE {t} DROP a, ADD a text"),
        [{"id": "1", "a": "a", "b": "b"}],
        [["id"]],
        ["string"],
    ),
}


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> CapturedPostgres:
    return CapturedPostgres(postgres_database, "DEFAULT")


def _run_script(database: CapturedPostgres, script: str) -> None:
    """Statements in one transaction."""
    with database.transaction() as cursor:
        cursor.execute(script)


def _changes(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["op"] in "cud" and row["table"]["name"] == name]


def _kinds(rows: list[dict[str, Any]], changes: list[dict[str, Any]]) -> list[str]:
    schemas = {row["schema_id"]: TableSchema.from_text(row["table_schema"]) for row in rows if row["op"] == "schema"}
    return [schemas[row["schema_id"]].columns[-1].logical.kind for row in changes]


def _steps(rows: list[dict[str, Any]], name: str) -> tuple[str, ...]:
    """What schema rows say of the names of columns, without repetitions."""
    schemas = (row for row in rows if row["op"] == "schema" and row["table"]["name"] == name)
    texts = [dict(row["source"]).get("ddl") for row in sorted(schemas, key=lambda row: row["position"])]
    found = [step for text in texts if text for step in steps_of(text, "postgresql")]
    return tuple(dict.fromkeys(f"{step.kind} {step.name} {step.to}".strip() for step in found))


def test_each_change_is_read_by_the_structure_that_was_true_when_it_was_made(database: CapturedPostgres) -> None:
    for name, case in CASES.items():
        _run_script(database, case.create.replace("{t}", name))
        database.execute(f"ALTER PUBLICATION shop ADD TABLE {name}")
    run = database.run()
    run.all()
    for name, case in CASES.items():
        for statement in case.statements:
            _run_script(database, statement.replace("{t}", name))
    rows = run.restarted().all()
    found = {name: _changes(rows, name) for name in CASES}
    assert {name: [dict(row["after"]) for row in of] for name, of in found.items()} == {
        name: case.changes for name, case in CASES.items()
    }
    assert {name: [[key for key, _ in row["key"]] for row in of] for name, of in found.items()} == {
        name: case.keys for name, case in CASES.items()
    }
    assert {name: _kinds(rows, of) for name, of in found.items()} == {name: case.kinds for name, case in CASES.items()}
    assert {name: _steps(rows, name) for name in CASES} == {name: case.steps for name, case in CASES.items()}
    for _ in range(2):
        database.execute("SELECT pg_logical_emit_message(true, 'any', 'any')")
        run.all(Limit(follows=True))
    assert not StreamState.of(run.offset).earlier


_TYPES = (
    "INSERT INTO t VALUES (1, 'a'); INSERT INTO u VALUES (1, 'a')",
    r"ALTER TABLE t ALTER v TYPE bytea USING '\x01'",
    r"INSERT INTO t VALUES (2, '\x02'); INSERT INTO u VALUES (2, 'b')",
    "ALTER TABLE t ALTER v TYPE text USING 'c'",
    "INSERT INTO t VALUES (3, 'c')",
    r"ALTER TABLE t ALTER v TYPE bytea USING '\x01'",
)


@pytest.mark.parametrize("options", [{}, {"signal_prefix": "signals"}], ids=["at the first row", "to the end"])
def test_a_batch_ends_before_a_column_gets_values_of_another_kind(
    database: CapturedPostgres, options: dict[str, str]
) -> None:
    database.create("t", "id int primary key, v text")
    database.create("u", "id int primary key, v text")
    run = database.run(**options)
    run.all()
    for statement in _TYPES:
        _run_script(database, statement)
    run = run.restarted()
    batches = []
    while rows := run.batch():
        schemas = {
            row["schema_id"]: TableSchema.from_text(row["table_schema"]) for row in rows if row["op"] == "schema"
        }
        changes = sorted((row for row in rows if row["op"] in "cu"), key=lambda row: row["position"])
        kinds = [(row["table"]["name"], schemas[row["schema_id"]].columns[-1].logical.kind) for row in changes]
        batches += [kinds] if kinds else []
    assert batches == [
        [("t", "string"), ("u", "string")],
        [("t", "bytes"), ("u", "string")],
        [("t", "string")],
    ]


def test_a_renamed_column_is_reported_though_no_row_of_its_table_comes(database: CapturedPostgres) -> None:
    database.create("t", "id int primary key, v text", [(1, "a")])
    run = database.run()
    run.all()
    database.execute("ALTER TABLE t RENAME v TO w")
    assert _steps(run.all(), "t") == ("rename v w",)
    assert run.all() == []
