"""Rule: options say which columns, keys and changes are captured, and how values look; snapshot and stream agree."""

from __future__ import annotations

import hashlib
import re

import pytest
from tests.support.sqlserver_runs import NOW, Run, create, data, rows_of

from headrace.errors import CaptureError, OptionError
from headrace.sources.base import Limit
from headrace.sources.reader import source_named
from headrace_emulators.sqlserver import EmulatedServer


@pytest.fixture
def database(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as made:
        yield made


def images(rows):
    return [
        (r["op"], r["before"] and dict(r["before"]), r["after"] and dict(r["after"])) for r in rows if r["op"] in "rcud"
    ]


def keys(rows):
    return [(r["op"], r["key_text"]) for r in rows if r["op"] in "rcud"]


def schema(run):
    [schema] = run.source.tables()
    return schema


CUSTOMERS = "id int not null primary key, name varchar(20), email nvarchar(40), age int"


def customers(database, **options):
    create(database, "customers", CUSTOMERS, [(1, "Ann", "ann@x.org", 30)])
    return Run(database, **options)


def change(database):
    for statement in (
        "INSERT INTO dbo.customers VALUES (2, 'Bob', NULL, 40)",
        "UPDATE dbo.customers SET email = 'b@x.org' WHERE id = 2",
        "DELETE FROM dbo.customers WHERE id = 1",
    ):
        database.execute(statement)
    database.capture()


# Columns.


@pytest.mark.parametrize(
    "options",
    [
        {"column_exclude_list": "dbo.customers.(name|age)"},
        {"column.exclude.list": r"SHOP\.dbo\.customers\.Name,.*\.age"},
        {"column_include_list": "dbo.customers.email"},
        {"column_include_list": "dbo.customers.id,dbo.customers.email"},
    ],
)
def test_columns_that_are_not_wanted_are_in_no_image_and_in_no_schema(database, options):
    run = customers(database, **options)
    rows = run.all()
    change(database)
    rows += run.all()
    assert images(rows) == [
        ("r", None, {"id": "1", "email": "ann@x.org"}),
        ("c", None, {"id": "2", "email": None}),
        ("u", {"id": "2", "email": None}, {"id": "2", "email": "b@x.org"}),
        ("d", {"id": "1", "email": "ann@x.org"}, None),
    ]
    assert [(c.name, c.position) for c in schema(run).columns] == [("id", 1), ("email", 2)]


def test_columns_that_are_not_wanted_are_not_read_from_the_server(database, monkeypatch, tmp_path):
    log = tmp_path / "queries"
    run = customers(database, column_exclude_list=r".*\.email")
    monkeypatch.setenv("HEADRACE_EMULATOR_QUERY_LOG", str(log))
    run.all()
    change(database)
    run.all()
    sent = log.read_text()
    assert "[name]" in sent
    assert "[email]" not in sent


def test_a_pattern_matches_a_whole_name(database):
    run = customers(database, column_exclude_list="customers.email,dbo.customers.mail,dbo.customers.ag")
    assert [c.name for c in schema(run).columns] == ["id", "name", "email", "age"]


def test_key_columns_are_captured_whatever_the_lists_say(database):
    run = customers(database, column_exclude_list="dbo.customers.(id|age|email)")
    assert images(run.all()) == [("r", None, {"id": "1", "name": "Ann"})]


def test_a_table_of_which_nothing_is_left_is_an_error(database):
    create(database, "log", "a int, b int")
    with pytest.raises(OptionError, match=r"No column of table 'dbo\.log' is left"):
        Run(database, column_exclude_list=".*").batch()


def test_both_lists_are_an_error():
    with pytest.raises(OptionError, match="'column_include_list' and 'column_exclude_list' are both given"):
        made(column_include_list="a", column_exclude_list="b")


def made(**options):
    return source_named("sqlserver", {"driver": "emulator", "hostname": "x", "database": "shop", **options})


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("column_exclude_list", "dbo.(t", "not a regular expression"),
        ("column_exclude_list", ["dbo.t.a", ""], "A part of option 'column_exclude_list' is empty"),
        ("message_key_columns", "dbo.t", "schema.table:column"),
        ("message_key_columns", "dbo.t:", "has no name"),
        ("skipped_operations", "c,x", "'x' is none of c, u, d, t"),
        ("snapshot_select_statement_overrides", "dbo.t", "names table 'dbo.t' without a statement"),
        ("snapshot.select.statement.overrides.dbo.t", "DELETE FROM dbo.t", "is no SELECT"),
        ("snapshot.select.statement.overrides.dbo.t", "SELECT 1; DROP TABLE x", "more than one statement"),
        ("snapshot.select.statement.overrides.dbo.t", "WITH x AS (SELECT 1 AS a) SELECT * FROM x", "begins with WITH"),
        ("snapshot.select.statement.overrides.dbo.t", "SELECT ')' FROM (x", "parentheses"),
        ("snapshot.select.statement.overrides.dbo.t", "SELECT 'x FROM t", "does not end"),
        ("column.mask.with.many.chars", "dbo.t.a", "Unknown option 'column.mask.with.many.chars'"),
        ("column.mask.hash.v2.ROT-13.with.salt.S1", "dbo.t.a", "unknown algorithm"),
        ("column.mask.hash.v2.SHA-256", "dbo.t.a", "has no salt"),
    ],
)
def test_what_can_not_be_meant_is_refused_when_the_source_is_made(option, value, said):
    with pytest.raises(OptionError, match=re.escape(said)):
        made(**{option: value})


# Keys.


def test_the_message_key_is_what_the_user_names_in_the_users_order(database):
    run = customers(database, message_key_columns="shop.dbo.other:x;dbo.cust.*:email,name")
    rows = run.all()
    change(database)
    rows += run.all()
    assert keys(rows) == [
        ("r", '["ann@x.org","Ann"]'),
        ("c", '[null,"Bob"]'),
        ("u", '["b@x.org","Bob"]'),
        ("d", '["ann@x.org","Ann"]'),
    ]
    assert [list(dict(r["key"])) for r in rows if r["op"] == "c"] == [["email", "name"]]
    assert [(c.name, c.nullable) for c in schema(run).key_columns] == [("email", True), ("name", True)]
    assert schema(run).primary_key == ("id",)


def test_a_table_that_no_pattern_names_keeps_its_primary_key(database):
    assert schema(customers(database, message_key_columns="dbo.orders:name")).key == ("id",)


def test_a_message_key_that_several_rows_share_loses_none_of_them_in_chunks(database):
    create(database, "t", "id int not null primary key, kind varchar(5)", [(n, "ab"[n % 2]) for n in range(9)])
    run = Run(database, message_key_columns="dbo.t:kind", snapshot_chunk_rows=2, snapshot_chunks_per_batch=2)
    rows = [r for r in run.all() if r["op"] == "r"]
    assert sorted(dict(r["after"])["id"] for r in rows) == [str(n) for n in range(9)]
    assert {r["key_text"] for r in rows} == {'["a"]', '["b"]'}
    assert len({r["position"] for r in rows}) == 5


def test_a_table_without_a_key_can_be_given_one(database):
    create(database, "log", "a int, b varchar(9)", [(1, "x"), (1, "x")])
    run = Run(database, message_key_columns="dbo.log:b")
    with database.capture_job(poll=0.05, idle=0.2):
        assert keys(run.all()) == [("r", '["x"]'), ("r", '["x"]')]


def test_rows_of_a_changed_message_key_carry_the_new_key_and_the_old_one_in_the_image_before(database):
    run = customers(database, message_key_columns="dbo.customers:name")
    run.all()
    database.execute("UPDATE dbo.customers SET name = 'Eve' WHERE id = 1")
    database.capture()
    [row] = [r for r in run.all() if r["op"] == "u"]
    assert row["key"] == [("name", "Eve")]
    assert row["key_text"] == '["Eve"]'
    assert dict(row["before"])["name"] == "Ann"


@pytest.mark.parametrize(("assignment", "events"), [("name = NULL", 2), ("name = 'Eve'", 2), ("age = 1", 1)])
def test_a_change_of_the_message_key_counts_as_two_events_of_its_transaction(database, assignment, events):
    run = customers(database, message_key_columns="dbo.customers:name", provide_transaction_metadata=True)
    run.all()
    database.execute(f"UPDATE dbo.customers SET {assignment} WHERE id = 1")
    database.capture()
    [end] = [r for r in run.all() if r["op"] == "end"]
    assert end["transaction"]["total_order"] == events


def test_an_excluded_primary_key_is_left_out_when_another_key_is_named(database):
    run = customers(database, message_key_columns="dbo.customers:name", column_exclude_list=r".*\.(id|email)")
    with database.capture_job(poll=0.05, idle=0.2):
        assert images(run.all()) == [("r", None, {"name": "Ann", "age": "30"})]
    assert schema(run).primary_key == ()


def test_a_large_column_can_not_be_a_key(database):
    create(database, "t", "id int not null primary key, note nvarchar(max)")
    with pytest.raises(CaptureError, match=r"names column 'note' \(nvarchar\) of table 'dbo\.t'"):
        Run(database, message_key_columns="dbo.t:note").batch()


def test_a_snapshot_goes_on_by_the_chunks_that_it_began_with_when_the_key_is_another(database):
    create(database, "t", "id int not null primary key, name varchar(5) not null", [(n, f"{9 - n}") for n in range(6)])
    run = Run(database, snapshot_chunk_rows=2, snapshot_chunks_per_batch=1)
    rows = run.batch()
    database.execute("CREATE UNIQUE INDEX u ON dbo.t (name)")
    run.with_options(message_key_columns="dbo.t:name")
    rows += run.all()
    assert sorted(dict(r["after"])["id"] for r in rows if r["op"] == "r") == [str(n) for n in range(6)]
    assert {len(r["key"]) for r in rows if r["op"] == "r"} == {1}


def test_a_snapshot_does_not_go_on_without_the_key_of_its_chunks(database):
    create(database, "t", "id int not null primary key, name varchar(5)", [(n, "x") for n in range(6)])
    run = Run(database, snapshot_chunk_rows=2, snapshot_chunks_per_batch=1)
    run.batch()
    run.with_options(message_key_columns="dbo.t:name", column_exclude_list="dbo.t.id")
    with pytest.raises(CaptureError, match=r"Column 'id' of table 'dbo\.t' is not captured any more"):
        run.batch()


def test_the_signal_table_is_captured_as_a_whole_whatever_the_lists_say(database):
    create(database, "signals", "a varchar(42) not null primary key, b varchar(32), c varchar(2048)")
    create(database, "t", "id int not null primary key, a int")
    run = Run(database, signal_data_collection="shop.dbo.Signals", column_include_list="dbo.t.a")
    assert [[c.name for c in schema.columns] for schema in run.source.tables()] == [["a", "b", "c"], ["id", "a"]]


# Masks.

SALT = "CzQMA0cB5K"


@pytest.mark.parametrize(
    ("options", "masked"),
    [
        ({"column.mask.with.6.chars": "dbo.customers.email"}, lambda text: "******"),
        ({"column.mask.with.0.chars": "shop.DBO.customers.email"}, lambda text: ""),
        ({"column.truncate.to.3.chars": "dbo.customers.email"}, lambda text: text[:3]),
        (
            {f"column.mask.hash.v2.SHA-256.with.salt.{SALT}": "dbo.customers.email"},
            lambda text: hashlib.sha256((SALT + text).encode()).hexdigest()[:40],
        ),
        (
            {"column.mask.hash.v2.md5": "dbo.customers.email", "column_mask_salt": SALT},
            lambda text: hashlib.md5((SALT + text).encode()).hexdigest(),
        ),
        (
            # As Spark hands it over.
            {f"column.mask.hash.v2.md5.with.salt.{SALT.lower()}": "dbo.customers.email", "columnmasksalt": SALT},
            lambda text: hashlib.md5((SALT + text).encode()).hexdigest(),
        ),
    ],
)
def test_masked_values_are_masked_in_snapshot_and_stream_before_and_after(database, options, masked):
    run = customers(database, **options)
    rows = run.all()
    change(database)
    rows += run.all()
    first, second = masked("ann@x.org"), masked("b@x.org")
    assert [(op, b and b["email"], a and a["email"]) for op, b, a in images(rows)] == [
        ("r", None, first),
        ("c", None, None),
        ("u", None, second),
        ("d", first, None),
    ]
    assert {a["name"] for _, _, a in images(rows) if a} == {"Ann", "Bob"}


def test_masks_reach_the_rows_of_transactions_and_of_tables_without_a_key(database):
    create(database, "log", "a varchar(9)", [("secret",)])
    run = Run(database, provide_transaction_metadata=True, **{"column.mask.with.2.chars": r".*\.a"})
    with database.capture_job(poll=0.05, idle=0.2):
        rows = run.all()
    database.execute("INSERT INTO dbo.log VALUES ('secret')")
    database.capture()
    rows += run.all()
    assert images(rows) == [("r", None, {"a": "**"}), ("c", None, {"a": "**"})]


@pytest.mark.parametrize(
    ("column", "said"),
    [("age", "whose type int has no characters"), ("id", "which is in the table's key")],
)
def test_a_mask_that_can_not_be_done_stops_before_anything_is_read(database, column, said):
    run = customers(database, **{"column.mask.with.5.chars": f"dbo.customers.{column}"})
    with pytest.raises(OptionError, match=re.escape(said)) as error:
        run.batch()
    assert f"'{column}'" in str(error.value)


def test_two_masks_for_one_column_are_refused_by_name(database):
    hidden = f"column.mask.hash.v2.SHA-256.with.salt.{SALT}"
    run = customers(database, **{"column.truncate.to.9.chars": ".*\\.(name|email)", hidden: r".*\.email"})
    with pytest.raises(OptionError, match="both match column") as error:
        run.batch()
    assert SALT not in str(error.value)


def test_a_masked_uniqueidentifier_is_text_in_the_schema(database):
    guid = "0E984725-C51C-4BF4-9960-E1C80E27ABA0"
    create(database, "t", "id int not null primary key, g uniqueidentifier", [(1, guid)])
    run = Run(database, **{"column.mask.with.3.chars": "dbo.t.g"})
    assert schema(run).column("g").logical.kind == "string"
    assert schema(run).column("g").masked
    assert images(run.all()) == [("r", None, {"id": "1", "g": "***"})]


# Changes.


@pytest.mark.parametrize(("skipped", "left"), [("c", "ud"), ("u", "cd"), ("d", "cu"), ("u,d,t", "c"), ("none", "cud")])
@pytest.mark.parametrize("together", [False, True])
def test_skipped_operations_are_not_read(database, skipped, left, together):
    run = customers(database, skipped_operations=skipped, provide_transaction_metadata=together)
    run.all()
    change(database)
    assert "".join(op for op, _, _ in images(run.all())) == left


def test_the_snapshot_of_a_table_without_a_key_is_right_although_operations_are_skipped(database):
    create(database, "log", "a int", [(1,), (2,)])
    run = Run(database, skipped_operations="c,d")
    end = run.source.advance(run.offset, Limit(), NOW)
    database.execute("DELETE FROM dbo.log WHERE a = 1")
    with database.capture_job(poll=0.05, idle=0.2):
        rows = rows_of(run.source, run.offset, end)
    assert sorted(after["a"] for _, _, after in images(rows)) == ["1", "2"]


def test_an_update_of_columns_that_are_not_captured_gives_no_row(database):
    run = customers(database, column_exclude_list=r".*\.age", skip_messages_without_change=True)
    run.all()
    for statement in (
        "UPDATE dbo.customers SET age = 31",
        "UPDATE dbo.customers SET age = 32, name = 'Anna'",
        "UPDATE dbo.customers SET name = NULL",
        "UPDATE dbo.customers SET age = 33",
    ):
        database.execute(statement)
    database.capture()
    assert [(b["name"], a["name"]) for _, b, a in images(run.all())] == [("Ann", "Anna"), ("Anna", None)]


def test_transactions_count_no_update_that_gives_no_row(database):
    run = customers(
        database, column_exclude_list=r".*\.age", skip_messages_without_change=True, provide_transaction_metadata=True
    )
    run.all()
    with database.transaction() as cursor:
        cursor.execute("UPDATE dbo.customers SET age = 31")
        cursor.execute("UPDATE dbo.customers SET name = 'x'")
    database.execute("UPDATE dbo.customers SET age = 32")
    database.capture()
    rows = [r for r in run.all() if r["op"] != "schema"]
    assert [(r["op"], r["transaction"]["total_order"]) for r in rows] == [("begin", None), ("u", 1), ("end", 1)]


# Snapshots by a statement.


@pytest.mark.parametrize(
    "select",
    [
        "SELECT * FROM dbo.customers WHERE age > 25",
        "SELECT * FROM dbo.customers WHERE age > 25 ORDER BY name DESC; -- the old ones",
        "select top (5) * from [dbo].[customers] where age > 25 order by id",
        "SELECT c.*, 'x' AS more FROM dbo.customers AS c WHERE c.age > 25 -- order by",
        "SELECT id, age, email, name FROM dbo.customers WHERE age = (SELECT MAX(age) FROM dbo.customers)",
    ],
)
def test_a_snapshot_by_a_statement_gives_its_rows_in_one_chunk_and_the_stream_all_changes(database, select):
    run = customers(database, snapshot_chunk_rows=1, **{"snapshot.select.statement.overrides.dbo.customers": select})
    database.execute("INSERT INTO dbo.customers VALUES (5, 'Kid', NULL, 8)")
    database.capture()
    rows = run.all()
    assert images(rows) == [("r", None, {"id": "1", "name": "Ann", "email": "ann@x.org", "age": "30"})]
    assert [r["snapshot"] for r in rows if r["op"] == "r"] == ["last"]
    database.execute("UPDATE dbo.customers SET age = 9 WHERE id = 5")
    database.capture()
    assert [op for op, _, _ in images(run.all())] == ["u"]


def test_statements_are_taken_as_a_mapping_and_as_its_json(database):
    mapping = '{"shop.dbo.CUSTOMERS": "SELECT * FROM dbo.customers WHERE id = 7"}'
    run = customers(database, snapshot_select_statement_overrides=mapping)
    assert data(run.all()) == []
    assert not run.offset.initial


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("SELECT id, name, age FROM dbo.customers", "Invalid column name 'email'"),
        ("SELECT * FROM dbo.nowhere", "nowhere"),
    ],
)
def test_a_statement_that_does_not_do_stops_the_run_and_is_named(database, select, said):
    run = customers(database, **{"snapshot.select.statement.overrides.dbo.customers": select})
    with pytest.raises(
        CaptureError, match=r"'snapshot_select_statement_overrides' for table 'dbo\.customers'"
    ) as error:
        run.batch()
    assert said in str(error.value)


def test_options_may_change_between_runs_and_bring_a_new_schema(database):
    run = customers(database)
    run.all()
    run.with_options(column_exclude_list=r".*\.(name|age)")
    database.execute("UPDATE dbo.customers SET email = 'e' WHERE id = 1")
    database.capture()
    rows = run.all()
    assert [op for op, *_ in keys(rows)] == ["u"]
    assert images(rows) == [("u", {"id": "1", "email": "ann@x.org"}, {"id": "1", "email": "e"})]
