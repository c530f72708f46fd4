"""Routes: which tables a sink gets, under which names, and what is refused because two tables would become one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.apply import profile
from headrace.changes import TableId, TableSchema
from headrace.changes.table_pattern import EVERY_TABLE
from headrace.errors import OptionError, SchemaError
from headrace.pipeline.shaping.routes import Route, Routes, RouteSettings
from headrace.pipeline.shaping.shape import Shaping
from headrace.pipeline.stages import shape
from headrace.testing.change_history import Batch, schema_of, table

ORDERS = TableId("sales", "dbo", "orders")
MYSQL = TableId("shop", "", "orders")


def route(**given: Any) -> Route:
    return Route.of(RouteSettings.parse(given, owner="a route"))


@pytest.mark.parametrize(
    ("tables", "table", "matches"),
    [
        ("dbo.orders", ORDERS, True),
        ("DBO.Orders", ORDERS, True),
        ("sales.dbo.orders", ORDERS, True),
        ("dbo.ord*", ORDERS, True),
        ("sales.*", ORDERS, True),
        ("orders", ORDERS, False),
        ("*.orders", ORDERS, True),
        (["dbo.items", "dbo.orders"], ORDERS, True),
        ("dbo.items, dbo.orders", ORDERS, True),
        (r"re:(sales\.)?dbo\.(orders|items){1,2}", ORDERS, True),
        ("re:dbo", ORDERS, False),
        ("orders", MYSQL, True),
        ("shop.orders", MYSQL, True),
        ("shop.o?ders", MYSQL, True),
    ],
)
def test_which_tables_a_pattern_means(tables: Any, table: TableId, matches: bool) -> None:
    found = Routes((route(tables=tables, to="x", merge=True),), leave_out=True).destination(table)
    assert (found is not None) == matches


@pytest.mark.parametrize(
    ("to", "table", "name"),
    [
        ("all_orders", ORDERS, TableId("sales", "", "all_orders")),
        ("{schema}_{table}", ORDERS, TableId("sales", "", "dbo_orders")),
        ("bronze.{table}", ORDERS, TableId("sales", "bronze", "orders")),
        ("{database}.{schema}_{table}", ORDERS, TableId("sales", "sales", "dbo_orders")),
        ("lake.{database}.{table}", ORDERS, TableId("lake", "sales", "orders")),
        ("{schema}.{table}", MYSQL, TableId("shop", "", "orders")),
        ("{table}", TableId("d", "s", "a.b"), TableId("d", "", "a.b")),
        (None, ORDERS, ORDERS),
    ],
)
def test_names_by_a_template(to: str | None, table: TableId, name: TableId) -> None:
    assert Route(EVERY_TABLE, to, merge=to is not None).name(table) == name


def test_the_first_route_that_matches_decides_and_the_rest_is_kept_or_left_out() -> None:
    found = (route(tables="dbo.orders", to="first"), route(tables="dbo.*", to="{table}_second"))
    kept, left = Routes(found), Routes(found, leave_out=True)
    named = [
        kept.destination(TableId("d", schema, name)) for schema, name in (("dbo", "orders"), ("dbo", "a"), ("x", "a"))
    ]
    assert [one.id for one in named if one is not None] == [
        TableId("d", "", "first"),
        TableId("d", "", "a_second"),
        TableId("d", "x", "a"),
    ]
    assert left.destination(TableId("d", "x", "a")) is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"tables": "dbo.*", "to": "all"},
            "Option 'to' of a route sends all of several tables to 'all'. "
            "Tell them apart by a placeholder ({table}), or say merge: true.",
        ),
        (
            {"to": "{name}"},
            "Option 'to' of a route can't be '{name}'. Write table, schema.table or database.schema.table. "
            "Placeholders: {database}, {schema}, {table}.",
        ),
        (
            {"to": "a..b"},
            "Option 'to' of a route can't be 'a..b'. Write table, schema.table or database.schema.table. "
            "Placeholders: {database}, {schema}, {table}.",
        ),
        ({"merge": "true"}, "Option 'merge' of a route needs 'to'. Say what the tables become."),
        (
            {"tables": "re:("},
            "Option 'tables' can't be 're:(': 're:(' is not a regular expression (missing ), unterminated subpattern "
            f"at position 0). See: {RouteSettings.declared[0].doc}",
        ),
    ],
)
def test_a_route_that_can_not_be(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        route(**given)
    assert str(caught.value) == sentence


def test_two_tables_do_not_become_one_by_chance() -> None:
    with pytest.raises(OptionError, match=r"^Two routes send tables to 'X'. Give one of them another name"):
        Routes((route(tables="dbo.a", to="x"), route(tables="dbo.b", to="X", merge="true")))
    shaping = Shaping(routes=Routes((route(tables="*", to="{table}"),)), owner="sink 1 (delta)")
    shaping.expect([table("a"), table("b")])
    with pytest.raises(OptionError) as caught:
        shaping.expect([schema_of(TableId("db", "other", "A"), {"id": "int32"}, ("id",))])
    assert str(caught.value) == (
        "Tables 'db.dbo.a' and 'db.other.A' would both be 'A' in sink 1 (delta). "
        "Tell them apart in 'to' of their routes ({schema}_{table}), or say merge: true in both."
    )


def shard(number: int, **columns: str) -> TableSchema:
    columns = columns or {"id": "int32", "a": "string"}
    return schema_of(TableId("db", f"shard_{number}", "orders"), columns, ("id",))


ONE = Shaping(routes=Routes((route(tables="shard_*.orders", to="sales.orders", merge="true"),)), owner="sink 1 (delta)")


def test_tables_that_become_one_have_one_structure_and_no_end_of_a_snapshot(spark: Any) -> None:
    batch = Batch(shard(1), shard(2), table("other"))
    for number in (1, 2):
        batch.add("r", shard(number), number, {"id": str(number), "a": "x"}, snapshot="last")
    batch.add("c", table("other"), 3, {"id": "1", "a": "x", "b": "y"})
    rows = ONE.rows(batch.rows(spark)).persist()
    other, orders = profile(rows)
    assert (other.id, other.schema) == (table("other").id, table("other"))
    assert (orders.id, orders.counts) == (TableId("db", "sales", "orders"), {"r": 2})
    # Each table is read for itself, so that none may clear the others' rows away, or be appended unseen.
    assert (orders.initial, orders.snapshot_ended, orders.read_again_from) == (False, False, None)
    assert orders.schema == replace(shard(1), id=TableId("db", "sales", "orders"))
    found = rows.where("op = 'r'").select("table", "schema_id").distinct().collect()
    assert [tuple(row) for row in found] == [(("db", "sales", "orders"), orders.schema.fingerprint)]
    rows.unpersist()


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (schema_of(shard(2).id, {"id": "int32", "a": "string"}, ("id", "a")), "keys (id and id, a)"),
        (shard(2, id="int32", a="int32"), "columns ('a')"),
        (shard(2, id="int32"), "columns ('a')"),
    ],
)
def test_tables_that_differ_do_not_become_one(spark: Any, other: TableSchema, what: str) -> None:
    with pytest.raises(SchemaError) as caught:
        ONE.rows(Batch(shard(1), other).rows(spark))
    assert str(caught.value) == (
        f"Tables 'db.shard_1.orders' and 'db.shard_2.orders' can't both be 'sales.orders': their {what} differ. "
        "Route them to tables of their own, or make them alike by transforms."
    )


def test_a_statement_of_one_table_says_nothing_of_those_that_share_its_target(spark: Any) -> None:
    batch = Batch(shard(1)).statement(shard(1), 2, "ALTER TABLE orders RENAME COLUMN a TO b")
    (told,) = ONE.rows(batch.rows(spark)).where("source is not null").collect()
    assert (told.table.schema, told.source) == ("sales", {"connector": "mysql"})


def test_a_truncate_of_one_of_several_tables_stops_the_batch(spark: Any) -> None:
    from contextlib import ExitStack

    rows = Batch(shard(1)).add("t", shard(1), 1).rows(spark)
    with (
        ExitStack() as cleanup,
        pytest.raises(SchemaError, match=r"^Table db.shard_1.orders was emptied by a truncate"),
    ):
        shape(rows, ONE, cleanup)
    as_messages = Shaping(routes=ONE.routes, takes="messages")
    assert as_messages.rows(rows).where("op = 't'").count() == 1


def test_rows_without_a_table_go_on_and_those_of_left_out_tables_do_not(spark: Any) -> None:
    batch = Batch(table("a"), table("b")).add("c", table("a"), 1, {"id": "1"}).add("c", table("b"), 2, {"id": "1"})
    batch.lines.append({"op": "end", "position": "3", "table": None})
    batch.lines.append({"op": "error", "position": "4", "table": {"database": None, "schema": "", "name": None}})
    shaping = Shaping(routes=Routes((route(tables="dbo.a"),), leave_out=True))
    rows = shaping.rows(batch.rows(spark)).collect()
    found = sorted((row["op"], row["table"] and row["table"]["name"], row["schema_id"]) for row in rows)
    fingerprint = table("a").fingerprint
    others = [("end", None, None), ("error", None, None)]
    assert found == [("c", "a", fingerprint), *others, ("schema", "a", fingerprint)]
