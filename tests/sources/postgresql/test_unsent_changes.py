"""What a statement does to all rows of a table at once, and the server sends no row of it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from tests.support.captured_postgres import CapturedPostgres

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.sources.offset import Offset
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.connection import Connection
from headrace.sources.postgresql.source import PostgresSource
from headrace.sources.postgresql.stream_state import LogState, StreamState
from headrace.sources.postgresql.types import CatalogType, TypeCatalog
from headrace.sources.postgresql.unsent_changes import Leaf, TableFiles, change_of
from headrace.sources.snapshots.ad_hoc import with_reads_settled
from headrace.sources.tables.rewrites import Rewrite
from headrace.testing.captured_database import image, replay
from headrace_emulators.postgresql.server import PostgresDatabase


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> CapturedPostgres:
    return CapturedPostgres(postgres_database, "DEFAULT")


class Case(NamedTuple):
    """A table, what is altered, and whether it is read again then."""

    create: str
    alter: str
    read_again: bool = True


_PLAIN = "CREATE TABLE {t} (id int PRIMARY KEY, v text, n int); INSERT INTO {t} VALUES (1, 'one', 1), (2, 'two', 2)"
_PARTS = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
    "CREATE TABLE {t}_a PARTITION OF {t} FOR VALUES FROM (0) TO (10);"
    "CREATE TABLE {t}_b PARTITION OF {t} FOR VALUES FROM (10) TO (20);"
    "INSERT INTO {t} VALUES (1, 'one'), (11, 'eleven')"
)
_MOOD = "CREATE TYPE {t}_mood AS ENUM ('low', 'high');"
_ADDRESS = "CREATE TYPE {t}_address AS (street text, zip int);"
CASES = {
    "defaulted": Case(_PLAIN, "ALTER TABLE {t} ADD w int DEFAULT 7"),
    "volatile": Case(_PLAIN, "ALTER TABLE {t} ADD w int DEFAULT (random() * 1000)::int"),
    "volatile_once": Case(_PLAIN, "ALTER TABLE {t} ADD w float DEFAULT random(); ALTER TABLE {t} ALTER w DROP DEFAULT"),
    "identity": Case(_PLAIN, "ALTER TABLE {t} ADD w int GENERATED ALWAYS AS IDENTITY"),
    "converted": Case(_PLAIN, "ALTER TABLE {t} ALTER v TYPE int USING length(v)"),
    "same_type": Case(_PLAIN, "ALTER TABLE {t} ALTER v TYPE text USING upper(v)"),
    "same_type_no_text": Case(
        "CREATE TABLE {t} (id int PRIMARY KEY, n int); INSERT INTO {t} VALUES (1, 1)",
        "ALTER TABLE {t} ALTER n TYPE int USING n + 1",
    ),
    "hidden": Case(
        """CREATE TABLE {t} (id int PRIMARY KEY, body jsonb); INSERT INTO {t} VALUES (1, '{"a": 1, "secret": 2}')""",
        "ALTER TABLE {t} ALTER body TYPE jsonb USING body - 'secret'",
    ),
    "dropped_and_added": Case(_PLAIN, "ALTER TABLE {t} DROP n, ADD n int DEFAULT 9"),
    "dropped_and_added_empty": Case(_PLAIN, "ALTER TABLE {t} DROP n; ALTER TABLE {t} ADD n int"),
    "names_swapped": Case(
        "CREATE TABLE {t} (id int PRIMARY KEY, a int, b int); INSERT INTO {t} VALUES (1, 1, 2)",
        "ALTER TABLE {t} RENAME a TO c; ALTER TABLE {t} RENAME b TO a; ALTER TABLE {t} RENAME c TO b",
    ),
    "expression": Case(
        "CREATE TABLE {t} (id int PRIMARY KEY, net int, gross int GENERATED ALWAYS AS (net * 2) STORED);"
        "INSERT INTO {t} VALUES (1, 10)",
        "ALTER TABLE {t} ALTER gross DROP EXPRESSION",
    ),
    "label": Case(
        _MOOD + "CREATE TABLE {t} (id int PRIMARY KEY, m {t}_mood); INSERT INTO {t} VALUES (1, 'low')",
        "ALTER TYPE {t}_mood RENAME VALUE 'low' TO 'sad'",
    ),
    "label_in_domain": Case(
        _MOOD + "CREATE DOMAIN {t}_moods AS {t}_mood[]; CREATE TABLE {t} (id int PRIMARY KEY, m {t}_moods);"
        "INSERT INTO {t} VALUES (1, '{low,high}')",
        "ALTER TYPE {t}_mood RENAME VALUE 'low' TO 'x'; ALTER TYPE {t}_mood ADD VALUE 'low' BEFORE 'x'",
    ),
    "label_in_range": Case(
        _MOOD + "CREATE TYPE {t}_r AS RANGE (subtype = {t}_mood, multirange_type_name = {t}_rs);"
        "CREATE TABLE {t} (id int PRIMARY KEY, m {t}_r, several {t}_rs);"
        "INSERT INTO {t} VALUES (1, '[low,high]', '{[low,high]}')",
        "ALTER TYPE {t}_mood RENAME VALUE 'low' TO 'sad'",
    ),
    "attribute": Case(
        _ADDRESS + "CREATE TABLE {t} (id int PRIMARY KEY, a {t}_address); INSERT INTO {t} VALUES (1, '(Ash,13)')",
        "ALTER TYPE {t}_address RENAME ATTRIBUTE zip TO code; ALTER TYPE {t}_address ADD ATTRIBUTE city text",
    ),
    "attribute_in_array": Case(
        _ADDRESS + "CREATE TABLE {t} (id int PRIMARY KEY, a {t}_address[]);"
        "INSERT INTO {t} VALUES (1, ARRAY['(Ash,13)'::{t}_address])",
        "ALTER TYPE {t}_address DROP ATTRIBUTE zip; ALTER TYPE {t}_address ADD ATTRIBUTE zip int",
    ),
    "partition": Case(
        _PARTS,
        "CREATE TABLE {t}_c (LIKE {t} INCLUDING ALL); INSERT INTO {t}_c VALUES (21, 'more');"
        "ALTER TABLE {t} ATTACH PARTITION {t}_c FOR VALUES FROM (20) TO (30)",
    ),
    "partition_in_steps": Case(
        _PARTS,
        "CREATE TABLE {t}_c (v text, id int PRIMARY KEY); INSERT INTO {t}_c VALUES ('more', 21); COMMIT; BEGIN;"
        "ALTER TABLE {t} ATTACH PARTITION {t}_c FOR VALUES FROM (20) TO (30)",
    ),
    "partition_and_a_rename_that_is_rolled_back": Case(
        _PARTS,
        "CREATE TABLE {t}_c (LIKE {t} INCLUDING ALL); INSERT INTO {t}_c VALUES (21, 'more');"
        "ALTER TABLE {t} ATTACH PARTITION {t}_c FOR VALUES FROM (20) TO (30); COMMIT; BEGIN;"
        "ALTER TABLE {t} RENAME v TO w; ROLLBACK; BEGIN",
    ),
    "partition_away_and_back": Case(
        _PARTS,
        "ALTER TABLE {t} DETACH PARTITION {t}_a; INSERT INTO {t}_a VALUES (2, 'meanwhile');"
        "ALTER TABLE {t} ATTACH PARTITION {t}_a FOR VALUES FROM (0) TO (10)",
    ),
    "partition_away_and_back_without_rows": Case(
        _PARTS,
        "ALTER TABLE {t} DETACH PARTITION {t}_a; DELETE FROM {t}_a; COMMIT; VACUUM {t}_a; BEGIN;"
        "ALTER TABLE {t} ATTACH PARTITION {t}_a FOR VALUES FROM (0) TO (10)",
    ),
    "partitions_of_a_partition": Case(
        _PARTS,
        "CREATE TABLE {t}_c (LIKE {t} INCLUDING ALL) PARTITION BY RANGE (id);"
        "CREATE TABLE {t}_c1 PARTITION OF {t}_c FOR VALUES FROM (20) TO (25); INSERT INTO {t}_c VALUES (21, 'more');"
        "ALTER TABLE {t} ATTACH PARTITION {t}_c FOR VALUES FROM (20) TO (30)",
    ),
    "partition_converted": Case(_PARTS, "ALTER TABLE {t} ALTER v TYPE text USING upper(v)"),
    # What changes no row reads nothing again.
    "nullable": Case(_PLAIN, "ALTER TABLE {t} ADD w int; INSERT INTO {t} VALUES (9, 'nine', 9, 9)", False),
    "vacuumed": Case(_PLAIN, "COMMIT; VACUUM FULL {t}; BEGIN", False),
    "vacuumed_no_text": Case(
        "CREATE TABLE {t} (id int PRIMARY KEY, n int); INSERT INTO {t} VALUES (1, 1)",
        "COMMIT; VACUUM FULL {t}; BEGIN",
        False,
    ),
    "vacuumed_with_missing_values": Case(
        _PLAIN + "; ALTER TABLE {t} ADD w int DEFAULT 5", "COMMIT; VACUUM FULL {t}; BEGIN", False
    ),
    "clustered": Case(_PLAIN, "CLUSTER {t} USING {t}_pkey; ALTER TABLE {t} ADD w int", False),
    "set_default": Case(_PLAIN, "ALTER TABLE {t} ALTER v SET DEFAULT 'x', ALTER v SET STATISTICS 50", False),
    "emptied": Case(_PLAIN, "ALTER TABLE {t} ADD w int; TRUNCATE {t}; INSERT INTO {t} VALUES (7, 'x', 7, 7)", False),
    "longer": Case(
        "CREATE TABLE {t} (id int PRIMARY KEY, v varchar(10), p numeric(8,2)); INSERT INTO {t} VALUES (1, 'x', 1.25)",
        "ALTER TABLE {t} ALTER v TYPE varchar(20), ALTER p TYPE numeric(12,2); ALTER TABLE {t} ALTER v TYPE text",
        False,
    ),
    "label_more": Case(
        _MOOD + "CREATE TABLE {t} (id int PRIMARY KEY, m {t}_mood); INSERT INTO {t} VALUES (1, 'low')",
        "ALTER TYPE {t}_mood ADD VALUE 'worst' BEFORE 'low'",
        False,
    ),
    "attribute_elsewhere": Case(
        _ADDRESS + _PLAIN + "; CREATE TABLE {t}_other (a {t}_address)",
        "ALTER TYPE {t}_address RENAME ATTRIBUTE zip TO code",
        False,
    ),
    "partition_made": Case(
        _PARTS,
        "CREATE TABLE {t}_c PARTITION OF {t} FOR VALUES FROM (20) TO (30); INSERT INTO {t} VALUES (21, 'more')",
        False,
    ),
    "partition_without_rows": Case(
        _PARTS,
        "CREATE TABLE {t}_c (LIKE {t}); ALTER TABLE {t} ATTACH PARTITION {t}_c FOR VALUES FROM (20) TO (30)",
        False,
    ),
    "partition_vacuumed": Case(_PARTS, "COMMIT; VACUUM FULL {t}_a; BEGIN", False),
    # Rows went, which the end of a read takes from copies.
    "partition_dropped": Case(_PARTS, "DROP TABLE {t}_a"),
    "partition_detached": Case(_PARTS, "ALTER TABLE {t} DETACH PARTITION {t}_a"),
    "partition_emptied": Case(_PARTS, "TRUNCATE {t}_a"),
}


def _run_script(database: CapturedPostgres, script: str) -> None:
    """Statements in one transaction, unless they end it."""
    with database.database.connect() as connection:
        for statement in ("BEGIN", *script.split(";"), "COMMIT"):
            if statement.strip():
                connection.execute(statement)


def _create(database: CapturedPostgres, cases: Mapping[str, Case]) -> None:
    for name, case in cases.items():
        _run_script(database, case.create.replace("{t}", name))
        database.execute(f"ALTER PUBLICATION shop ADD TABLE {name}")
    database.execute("ANALYZE")


def _on_server(database: CapturedPostgres, table: str) -> list[dict[str, Any]]:
    """The rows as the server makes JSON of them, single values as texts."""
    found = [dict(row) for (row,) in database.database.execute(f"SELECT to_jsonb(t) FROM {table} t ORDER BY id")]
    return [{name: _comparable(value) for name, value in row.items()} for row in found]


def _comparable(value: Any) -> Any:
    return value if value is None or isinstance(value, list | dict) else str(value)


def _held(rows: list[dict[str, Any]], table: str, like: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What copies of a table hold, with the columns that the server has now."""
    mine = [row for row in rows if row["table"] and row["table"]["name"] == table]
    emptied = max((row["position"] for row in mine if row["op"] == "t"), default="")
    mine = [row for row in mine if row["position"] > emptied]
    nested = {name for row in like for name, value in row.items() if isinstance(value, list | dict)}
    found = []
    for row in sorted(replay(mine).values(), key=lambda row: int(row["id"])):
        values = {name: row.get(name) for name in (like[0] if like else {})}
        found.append({n: json.loads(v) if v and n in nested else v for n, v in values.items()})
    return found


def _differences(
    database: CapturedPostgres, rows: list[dict[str, Any]], cases: Mapping[str, Case]
) -> dict[str, tuple[Any, Any]]:
    found = {}
    for name in cases:
        there = _on_server(database, name)
        if (held := _held(rows, name, there)) != there:
            found[name] = (held, there)
    return found


def _read_again(rows: list[dict[str, Any]]) -> set[str]:
    return {row["table"]["name"] for row in rows if row["op"] == "r"}


@pytest.mark.system
@pytest.mark.parametrize("waiting", [False, True], ids=["between batches", "while changes wait"])
def test_copies_are_as_the_server_whatever_a_statement_does_to_all_rows(
    database: CapturedPostgres, *, waiting: bool
) -> None:
    _create(database, CASES)
    run = database.run(incremental_snapshot_chunk_size=2)
    rows = run.all()
    assert _differences(database, rows, CASES).keys() <= {"expression"}
    for name, case in CASES.items():
        if waiting:
            _run_script(database, f"UPDATE {name} SET id = id WHERE id = 1")
        _run_script(database, case.alter.replace("{t}", name))
        if waiting:
            _run_script(database, f"UPDATE {name} SET id = id WHERE id = 1")
    later = (run.restarted() if waiting else run).all()
    assert _read_again(later) == {name for name, case in CASES.items() if case.read_again}
    assert _differences(database, rows + later, CASES) == {}
    assert run.all() == []


def test_a_table_that_was_altered_and_emptied_is_not_read_again_and_its_truncate_is_sent(
    database: CapturedPostgres,
) -> None:
    database.create("t", "id int, v text", [(1, "one")])
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    run = database.run()
    run.all()
    database.execute("ALTER TABLE t ADD w int")
    database.execute("TRUNCATE t")
    database.insert("t", 2, "two", 3)
    assert [row["op"] for row in run.all() if row["op"] in "rcudt"] == ["t", "c"]


@pytest.mark.system
def test_fifty_tables_that_one_migration_alters_are_read_once_each_and_the_stream_goes_on(
    database: CapturedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{n:02}" for n in range(50)]
    _run_script(
        database, ";".join(f"CREATE TABLE {name} AS SELECT g AS id FROM generate_series(1, 3) g" for name in names)
    )
    _run_script(database, ";".join(f"ALTER TABLE {name} ADD PRIMARY KEY (id)" for name in names))
    _run_script(database, ";".join(f"ALTER PUBLICATION shop ADD TABLE {name}" for name in names))
    database.create("orders", "id int primary key", [(0,)])
    run = database.run()
    rows = run.all()
    sent: list[str] = []
    plans: list[int] = []
    for method in ("rows", "run"):
        send = getattr(Connection, method)
        monkeypatch.setattr(Connection, method, lambda *args, send=send: (sent.append(args[1]), send(*args))[1])
    advance = PostgresSource.advance

    def counted(source: PostgresSource, start: Offset, *args: Any) -> Offset:
        sent.clear()
        end = advance(source, start, *args)
        plans.append(len(sent))
        return with_reads_settled(start, end)

    monkeypatch.setattr(PostgresSource, "advance", counted)
    script = (f"ALTER TABLE {name} ADD v int DEFAULT 7; ALTER TABLE {name} ADD w int DEFAULT 8" for name in names)
    _run_script(database, ";".join(script))
    found: list[list[dict[str, Any]]] = []
    while not found or run.offset.has_open_requests:
        assert len(found) < 40, "the queue has no end"
        database.insert("orders", len(found) + 1)
        found.append(run.batch())
        assert [image(row)["id"] for row in found[-1] if row["op"] == "c"] == [str(len(found))], "the stream goes on"
    read = [row["table"]["name"] for batch in found for row in batch if row["op"] == "r"]
    assert Counter(read) == dict.fromkeys(names, 3)
    assert all(len({row["table"]["name"] for row in batch if row["op"] == "r"}) <= 4 for batch in found)
    assert max(plans) <= 80
    assert run.offset.unequal == {}
    rows += [row for batch in found for row in batch]
    assert all(held["w"] == "8" for (name, _), held in replay(rows).items() if name != "orders")


def test_a_table_is_read_again_only_after_the_changes_from_before_the_statement(database: CapturedPostgres) -> None:
    database.create("t", "id int not null primary key, v text", [(1, "one")])
    # Changes from before the statement come in batches after the one whose plan sees the catalog.
    run = database.run(max_commits_per_trigger=1)
    rows = run.all()
    for key, value in ((2, "two"), (3, "three"), (4, "four")):
        database.insert("t", key, value)
    database.execute("ALTER TABLE t DROP COLUMN v, ADD COLUMN v text DEFAULT 'new'")
    rows += run.all()
    held = replay(rows)
    assert [held[key]["v"] for key in sorted(held)] == ["new"] * 4


def test_with_warn_the_log_says_so(database: CapturedPostgres, caplog: pytest.LogCaptureFixture) -> None:
    database.create("t", "id int primary key, v text", [(1, "one")])
    run = database.run(on_rewrite="warn")
    run.all()
    database.execute("ALTER TABLE t ADD w int DEFAULT 7")
    with caplog.at_level(logging.WARNING):
        assert [row for row in run.all() if row["op"] == "r"] == []
    assert "Rows of table 'public.t' may have changed without a change in the log: column 'w' was added" in caplog.text


def test_an_offset_of_an_earlier_release_makes_no_table_be_read_again(database: CapturedPostgres) -> None:
    _create(database, {name: CASES[name] for name in ("same_type", "label", "partition", "emptied")})
    run = database.run()
    run.all()
    run.offset = _as_earlier(run.offset)
    assert [row for row in run.restarted().all() if row["op"] == "r"] == []
    _run_script(database, CASES["same_type"].alter.replace("{t}", "same_type"))
    assert _read_again(run.all()) == {"same_type"}


def _as_earlier(offset: Offset) -> Offset:
    """An offset without what earlier releases did not write."""
    data = json.loads(json.dumps({"schemas": dict(offset.schemas), "log": dict(offset.log)}))
    for table in data["schemas"].values():
        del table["numbers"], table["last"]
    del data["log"]["visible"]
    data["log"]["types"] = {oid: known[:9] for oid, known in data["log"]["types"].items()}
    return replace(offset, schemas=data["schemas"], log=data["log"])


def test_what_the_proof_needs_makes_an_offset_hardly_larger() -> None:
    table = _table(*((f"column_{n}", _INT, n) for n in range(1, 101)))
    tables = {f"public.t{n}": replace(table, schema=replace(table.schema, id=_named(n)), oid=n) for n in range(1000)}
    files = TableFiles({n: n + 50_000 for n in range(1000)}, "1234567:1234599:1234570,1234580")
    types = TypeCatalog({50_000 + n: _TYPES.types[50000] for n in range(20)})
    state = StreamState(LogState("1", 1, "slot", "pub", 7, members={n: n for n in range(1000)}), "c", types, files)
    offset = Offset("postgresql:db", "0001", schemas={p: t.to_json() for p, t in tables.items()}, log=state.to_json())
    assert len(offset.to_text()) < 1.05 * len(_as_earlier(offset).to_text())


def _named(number: int) -> TableId:
    return TableId("db", "public", f"t{number}")


# Without a server.

_TEXT, _INT, _TIME, _ZONED = 25, 23, 1114, 1184
_TYPES = TypeCatalog({50000: CatalogType("mood", "e", labels=("low", "high"), numbers=(1, 2))})


def _table(*columns: tuple[str, int, int], leaves: tuple[int, ...] = (7,), last: int = 0) -> PostgresTable:
    """A table of columns with names, types and numbers."""
    natives = tuple(_TYPES.resolve(oid) for _, oid, _ in columns)
    found = tuple(
        Column(name, place, LogicalType("string"), native.name)
        for place, ((name, _, _), native) in enumerate(zip(columns, natives, strict=True), 1)
    )
    numbers = tuple(number for *_, number in columns)
    schema = TableSchema(TableId("db", "public", "t"), found)
    return PostgresTable(schema, natives, oid=7, leaves=leaves, numbers=numbers, last=last or max(numbers))


A, B = ("a", _INT, 1), ("b", _TEXT, 2)
DEFAULT = Leaf(written=frozenset("c"), filled={"c": "t"})
ALTERED = Leaf(written=frozenset("b"), rewritten=True)


@pytest.mark.parametrize(
    ("old", "new", "leaves", "found"),
    [
        (_table(A, B), _table(A, B), [Leaf()], None),
        (_table(A, B), _table(A, B), [Leaf(written=frozenset("b"))], None),
        (_table(A, B), _table(A, B), [Leaf(rewritten=True)], None),
        (_table(A, B), _table(A, B), [ALTERED], "its rows were rewritten by ALTER TABLE"),
        (_table(A, B), _table(A), [ALTERED], None),
        (_table(A, B), _table(A, ("c", _TEXT, 3)), [DEFAULT], "column 'b' is gone and column 'c' was added"),
        (_table(A, B), _table(A, ("c", _TEXT, 2)), [Leaf(written=frozenset("c"))], None),
        (_table(A, B, last=3), _table(A, B, ("c", _TEXT, 3)), [Leaf()], "column 'c' was not captured before"),
        (_table(A, B), _table(A, ("b", _TEXT, 3)), [Leaf()], "column 'b' is another column than the one that had"),
        (_table(A, B), _table(A, B, ("c", _TEXT, 3)), [ALTERED], "column 'c' was added with values"),
        (_table(A, ("b", _TIME, 2)), _table(A, ("b", _ZONED, 2)), [Leaf()], "column 'b' has another type"),
        (_table(A, ("b", 1043, 2)), _table(A, B), [Leaf()], None),
        (_table(A, ("b", 50000, 2)), _table(A, ("b", 50000, 2)), [Leaf()], "label 'low'"),
        (_table(A, leaves=(8, 9)), _table(A, leaves=(8,)), [Leaf()], "a partition was detached or dropped"),
        (_table(A, leaves=(8,)), _table(A, leaves=(8,)), [Leaf("t_a", emptied=True)], "partition 't_a' was emptied"),
        (_table(A), _table(A), [Leaf("t", emptied=True)], None),
    ],
)
def test_what_facts_of_the_catalog_prove(
    old: PostgresTable, new: PostgresTable, leaves: list[Leaf], found: str | None
) -> None:
    change = change_of(old, new, leaves, {50000: "label 'low' of type mood has another name or is gone"})
    if found is None:
        assert change is None
    else:
        assert change is not None and found in change.reason and change.constants == {}


@pytest.mark.parametrize(
    ("leaves", "constants"),
    [
        ([DEFAULT], {"c": "true"}),
        ([DEFAULT, DEFAULT], {"c": "true"}),
        # A leaf that has another value, or none, is not proven.
        ([DEFAULT, Leaf(filled={"c": "f"})], {}),
        ([DEFAULT, Leaf()], {}),
        # One that a later transaction altered may have had another name.
        ([DEFAULT, replace(DEFAULT, altered=frozenset("c"))], {}),
        ([Leaf("t_b", attached=True, filled={"c": "t"})], {}),
    ],
)
def test_a_default_that_all_rows_have_is_a_constant(leaves: list[Leaf], constants: dict[str, str]) -> None:
    old, new = _table(A, leaves=(8, 9)), _table(A, ("c", 16, 3), leaves=(8, 9))
    change = change_of(old, new, leaves, {})
    assert change is not None and change == Rewrite("public.t", change.reason, constants)


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        (CatalogType("m", "e", labels=("a", "b")), CatalogType("m", "e", labels=("a", "x", "b")), ""),
        (CatalogType("m", "e", labels=("a", "b")), CatalogType("m", "e", labels=("x", "b")), "label 'a' of type m"),
        # 'a' was renamed to 'x', and another label is 'a' now.
        (
            CatalogType("m", "e", labels=("a", "b"), numbers=(1, 2)),
            CatalogType("m", "e", labels=("a", "x", "b"), numbers=(3, 1, 2)),
            "label 'a' of type m",
        ),
        (
            CatalogType("c", "c", fields=(("x", 23, -1),), numbers=(1,)),
            CatalogType("c", "c", fields=(("x", 23, -1),), numbers=(2,)),
            "type c has other attributes",
        ),
        (
            CatalogType("c", "c", fields=(("x", 23, -1),)),
            CatalogType("c", "c", fields=(("x", 23, -1),), numbers=(2,)),
            "",
        ),
    ],
)
def test_what_changes_in_a_type(before: CatalogType, now: CatalogType, change: str) -> None:
    assert before.changed_by(now).startswith(change) and bool(before.changed_by(now)) == bool(change)
    assert CatalogType.from_json(json.loads(json.dumps(now.to_json()))).numbers == now.numbers
