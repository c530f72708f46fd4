"""Transforms: what becomes of each change row. Rows in, rows out, and what the target's table then holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.smoke import examples

import headrace
from headrace.apply import fold, profile
from headrace.changes import TableId, TableSchema
from headrace.changes.table_pattern import table_patterns
from headrace.errors import OptionError, SchemaError
from headrace.pipeline.shaping.routes import Route, Routes
from headrace.pipeline.shaping.shape import Shaping
from headrace.pipeline.shaping.transforms import Transform, TransformSettings
from headrace.pipeline.stages import shape
from headrace.sources.sqlserver.options import SqlServerSettings
from headrace.sources.sqlserver.types import NativeType
from headrace.sources.tables.masks import Masks
from headrace.spark.local_rows import local_rows
from headrace.testing.change_history import Batch, Model, pos, schema_of

Image = Mapping[str, str | None]
T = schema_of(
    TableId("db", "dbo", "orders"),
    {"id": "int32", "status": "string", "price": "decimal(10,2)", "n": "int32", "email": "string"},
    ("id",),
)
T = replace(T, columns=tuple(replace(c, length=20) if c.name == "email" else c for c in T.columns))
OPEN = {"id": "1", "status": "open", "price": "12.50", "n": "3", "email": "ann@x.org"}
DRAFT = {**OPEN, "status": "draft"}
NO_STATUS = {name: value for name, value in OPEN.items() if name != "status"}


def transform(**given: Any) -> Transform:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return Transform.of(TransformSettings.parse(named, owner="transform 1"), "transform 1")


def named(schema: TableSchema, table: str) -> TableSchema:
    return replace(schema, id=replace(schema.id, name=table))


def shaped(spark: Any, batch: Batch, *given: Transform, takes: Any = "changes") -> list[Any]:
    rows = Shaping(given, owner="sink 1 (memory)", takes=takes).rows(batch.rows(spark))
    return sorted(rows.selectExpr("*", "map_keys(after) as names").collect(), key=lambda row: row["position"])


FILTER = {
    "a row that matches": (("c", None, OPEN), ("c", None, OPEN)),
    "a row that does not match": (("c", None, DRAFT), None),
    "a row whose column is null matches nothing": (("c", None, {**OPEN, "status": None}), None),
    "a row of a snapshot that matches": (("r", None, OPEN), ("r", None, OPEN)),
    "a row of a snapshot that does not match": (("r", None, DRAFT), None),
    "an update inside": (("u", OPEN, {**OPEN, "n": "4"}), ("u", OPEN, {**OPEN, "n": "4"})),
    "an update outside": (("u", DRAFT, {**DRAFT, "n": "4"}), None),
    "an update that enters is a create": (("u", DRAFT, OPEN), ("c", None, OPEN)),
    "an update that leaves is a delete": (("u", OPEN, DRAFT), ("d", OPEN, None)),
    "an update that enters under a new key": (("u", DRAFT, {**OPEN, "id": "2"}), ("c", None, {**OPEN, "id": "2"})),
    "an update that leaves under a new key deletes the old one": (("u", OPEN, {**DRAFT, "id": "2"}), ("d", OPEN, None)),
    "an update that does not say what was, inside": (("u", None, OPEN), ("u", None, OPEN)),
    "an update that does not say what was, outside: the target may have the row": (
        ("u", None, DRAFT),
        ("d", None, None),
    ),
    "an old image that lacks the column says nothing of it": (
        ("u", {"id": "1"}, DRAFT),
        ("d", {"id": "1"}, None),
    ),
    "a new image that lacks the column has its old value": (
        ("u", OPEN, {"id": "1", "n": "4"}),
        ("u", OPEN, {"id": "1", "n": "4"}),
    ),
    "a new image that lacks the column, outside": (("u", DRAFT, {"id": "1", "n": "4"}), None),
    "what enters is told whole": (
        ("u", DRAFT, {"id": "1", "status": "open"}),
        ("c", None, {**DRAFT, "status": "open"}),
    ),
    "a delete inside": (("d", OPEN, None), ("d", OPEN, None)),
    "a delete outside": (("d", DRAFT, None), None),
    "a delete that says the key only": (("d", {"id": "1"}, None), ("d", {"id": "1"}, None)),
    "a truncate": (("t", None, None), ("t", None, None)),
}


@pytest.fixture(scope="module")
def filtered(spark: Any) -> dict[str, Any]:
    """Each case in a table of its own, all in one batch."""
    batch = Batch()
    for number, (op, before, after) in enumerate(case[0] for case in FILTER.values()):
        schema = named(T, f"t{number}")
        batch.structure(schema).add(op, schema, number + 1, after, before)
    rows = shaped(spark, batch, transform(filter="status <> 'draft'"))
    data = {row["table"]["name"]: row for row in rows if row["op"] != "schema"}
    return {name: data.get(f"t{number}") for number, name in enumerate(FILTER)}


@pytest.mark.parametrize("name", FILTER)
def test_what_a_filter_makes_of_a_change(filtered: dict[str, Any], name: str) -> None:
    (_, expected), found = FILTER[name], filtered[name]
    assert (None if found is None else (found["op"], found["before"], found["after"])) == expected
    image = None if expected is None else expected[2] or expected[1]
    if found is not None and image is not None:
        assert (found["key"], found["key_text"]) == ({"id": image["id"]}, f'["{image["id"]}"]')


def test_what_the_source_says_it_did_not_change_is_known_of_the_old_image(spark: Any) -> None:
    batch = Batch(T)
    before, after = {"id": "1", "n": "3"}, {**DRAFT, "n": "4"}
    batch.add("u", T, 1, after, before)
    batch.lines[-1]["changed"] = ["n"]
    assert [row["op"] for row in shaped(spark, batch, transform(filter="status <> 'draft'"))] == ["schema"]


def test_a_change_that_lacks_what_the_filter_needs_stops_the_batch(spark: Any) -> None:
    from contextlib import ExitStack

    batch = Batch(T).add("u", T, 1, NO_STATUS, {"id": "1"})
    with ExitStack() as cleanup, pytest.raises(SchemaError) as caught:
        shape(batch.rows(spark), Shaping((transform(filter="status = 'open'"),)), cleanup)
    assert str(caught.value) == (
        "A change of table db.dbo.orders does not carry all columns that the filter of its transforms needs "
        "('status'). Let the source send whole rows, or filter by columns that are always there."
    )


@pytest.mark.parametrize("takes", ["changes", "messages"])
@pytest.mark.parametrize("snapshot", ["last", "last_in_data_collection", "incremental"])
def test_tables_learn_the_end_of_a_snapshot_and_what_a_new_filter_leaves_out(
    spark: Any, takes: str, snapshot: str
) -> None:
    batch = Batch(T).add("r", T, 1, OPEN, snapshot="first").add("r", T, 2, {**DRAFT, "id": "2"}, snapshot=snapshot)
    rows = shaped(spark, batch, transform(filter="status = 'open'"), takes=takes)
    found = [(row["op"], row["before"], row["after"], row["snapshot"]) for row in rows if row["op"] != "schema"]
    told = [("d", {**DRAFT, "id": "2"}, None, snapshot)] if takes == "changes" else []
    assert found == [("r", None, OPEN, "first"), *told]


IMAGES: dict[str, tuple[dict[str, Any], Image, Image]] = {
    "columns that are left out": (
        {"exclude_columns": ["email", "n"]},
        OPEN,
        {"id": "1", "status": "open", "price": "12.50"},
    ),
    "the only columns": ({"include_columns": ["price", "id"]}, OPEN, {"id": "1", "price": "12.50"}),
    "a computed column is exact": (
        {"computed_columns": {"total": "price * n"}},
        {**OPEN, "price": "12345678.91"},
        {**OPEN, "price": "12345678.91", "total": "37037036.73"},
    ),
    "a computed column of a null": (
        {"computed_columns": {"total": "price * n"}},
        {**OPEN, "n": None},
        {**OPEN, "n": None, "total": None},
    ),
    "a computed column of columns that are absent is absent": (
        {"computed_columns": {"total": "price * n"}},
        {"id": "1", "status": "x"},
        {"id": "1", "status": "x"},
    ),
    "a constant is always there": ({"computed_columns": {"region": "'eu'"}}, {"id": "1"}, {"id": "1", "region": "eu"}),
    "one that takes a column's name takes its place": (
        {"computed_columns": {"status": "upper(status)"}},
        OPEN,
        {**OPEN, "status": "OPEN"},
    ),
    "a computed column may need one that is left out": (
        {"computed_columns": {"domain": "split_part(email, '@', 2)"}, "include_columns": ["id"]},
        OPEN,
        {"id": "1", "domain": "x.org"},
    ),
    "asterisks": ({"column__mask__with__4__chars": ["email"]}, OPEN, {**OPEN, "email": "****"}),
    "asterisks do not hide a null": (
        {"column__mask__with__4__chars": ["email"]},
        {**OPEN, "email": None},
        {**OPEN, "email": None},
    ),
    "a mask of an absent column": ({"column__mask__with__4__chars": ["email"]}, {"id": "1"}, {"id": "1"}),
    "characters that stay": (
        {"column__truncate__to__2__chars": ["email"]},
        {**OPEN, "email": "é€😀x"},
        {**OPEN, "email": "é€"},
    ),
    "a hash is cut to the column's length": (
        {"column__mask__hash__v2__SHA-256": ["email"], "column_mask_salt": "S"},
        OPEN,
        {**OPEN, "email": hashlib.sha256(b"Sann@x.org").hexdigest()[:20]},
    ),
    "a name with characters of SQL": (
        {"computed_columns": {"it's `x`": "concat(status, ' -- ') -- a comment"}},
        OPEN,
        {**OPEN, "it's `x`": "open -- "},
    ),
}


@pytest.fixture(scope="module")
def images(spark: Any) -> dict[str, Any]:
    """Each case in a table of its own: an update with the same image before and after."""
    batch, given = Batch(), []
    for number, (options, image, _) in enumerate(IMAGES.values()):
        schema = named(T, f"t{number}")
        batch.structure(schema).add("u", schema, number + 1, image, image)
        given.append(transform(tables=f"dbo.t{number}", **options))
    rows = shaped(spark, batch, *given)
    data = {row["table"]["name"]: row for row in rows if row["op"] == "u"}
    return {name: data[f"t{number}"] for number, name in enumerate(IMAGES)}


@pytest.mark.parametrize("name", IMAGES)
def test_both_images_are_transformed_alike(images: dict[str, Any], name: str) -> None:
    expected, row = IMAGES[name][2], images[name]
    assert (row["before"], row["after"]) == (expected, expected)
    assert row["names"] == list(expected)


def test_the_structure_is_transformed_as_the_rows_are(spark: Any) -> None:
    batch = Batch(T).add("c", T, 1, OPEN).add("d", T, 2, None, OPEN)
    # Of a delete without a structure: the table's newest is meant.
    batch.lines[-1]["schema_id"] = None
    steps = [
        transform(computed_columns={"total": "price * n", "due": "date '2024-01-01' + n"}),
        transform(**{"column.mask.hash.v2.SHA-256": ["email"], "column_mask_salt": "S"}),
        transform(exclude_columns=["n"], filter="total > 30"),
    ]
    told, created, deleted = shaped(spark, batch, *steps)
    schema = TableSchema.from_text(told["table_schema"])
    assert [(c.position, c.name, str(c.logical)) for c in schema.columns] == [
        (1, "id", "int32"),
        (2, "status", "string"),
        (3, "price", "decimal(10,2)"),
        (4, "email", "string"),
        (5, "total", "decimal(21,2)"),
        (6, "due", "date"),
    ]
    assert (schema.id, schema.key) == (T.id, ("id",))
    assert {told["schema_id"], created["schema_id"], deleted["schema_id"]} == {schema.fingerprint}
    assert created["after"]["due"] == deleted["before"]["due"] == "2024-01-04"


def test_columns_may_have_the_names_of_a_change_rows_own(spark: Any) -> None:
    names = ("id", "after", "before", "op", "position", "changed", "table")
    schema = schema_of(TableId("db", "dbo", "log"), dict.fromkeys(names, "string"), ("id",))
    image = {name: name.upper() for name in names}
    batch = Batch(schema).add("u", schema, 1, image, {**image, "after": "z"})
    steps = [
        transform(filter="after = 'AFTER' or before = 'never'", computed_columns={"x": "concat(after, op, position)"}),
        transform(computed_columns={"y": "concat(x, changed, table)"}, exclude_columns=["table"]),
    ]
    [_, row] = shaped(spark, batch, *steps)
    kept = {name: text for name, text in image.items() if name != "table"}
    made = {"x": "AFTEROPPOSITION", "y": "AFTEROPPOSITIONCHANGEDTABLE"}
    assert (row["op"], row["before"], row["after"]) == ("c", None, {**kept, **made})


def test_the_names_of_changed_columns_follow(spark: Any) -> None:
    batch = Batch(T)
    for at, changed in enumerate((["n", "email"], ["email"], ["status"], None), 1):
        batch.add("u", T, at, OPEN, OPEN)
        batch.lines[-1]["changed"] = changed
    rows = shaped(spark, batch, transform(computed_columns={"total": "price * n"}, exclude_columns=["email"]))
    assert [row["changed"] for row in rows[1:]] == [["n", "total"], [], ["status"], None]


def test_a_computed_column_takes_from_the_old_image_what_the_new_one_leaves_out(spark: Any) -> None:
    batch = Batch(T).add("u", T, 1, {"id": "1", "n": "4"}, {"id": "1", "price": "2.00", "n": "3"})
    rows = shaped(spark, batch, transform(computed_columns={"total": "price * n"}))
    assert rows[1]["after"] == {"id": "1", "n": "4", "total": "8.00"}
    assert rows[1]["before"] == {"id": "1", "price": "2.00", "n": "3", "total": "6.00"}


def test_a_change_with_some_of_the_columns_of_a_computed_one_stops_the_batch(spark: Any) -> None:
    from contextlib import ExitStack

    batch = Batch(T).add("u", T, 1, {"id": "1", "n": "4"}, {"id": "1"})
    with ExitStack() as cleanup, pytest.raises(SchemaError) as caught:
        shape(batch.rows(spark), Shaping((transform(computed_columns={"total": "price * n"}),)), cleanup)
    assert str(caught.value) == (
        "A change of table db.dbo.orders carries some and not all of the columns of which column 'total' is computed "
        "(price, n). Let the source send whole rows, or leave the column out."
    )


def test_a_value_that_an_expression_does_not_bear_stops_the_batch_and_is_not_told(spark: Any) -> None:
    from contextlib import ExitStack

    batch = Batch(T).add("c", T, 1, {**OPEN, "n": "0", "email": "geheim"})
    given = (transform(computed_columns={"each": "price / n", "mail": "cast(email as int)"}),)
    with ExitStack() as cleanup, pytest.raises(SchemaError) as caught:
        shape(batch.rows(spark), Shaping(given), cleanup)
    assert str(caught.value).startswith("An expression of the transforms can't be computed for a row of the batch (")
    assert "geheim" not in str(caught.value)


def test_a_hash_is_the_same_that_the_source_makes(spark: Any) -> None:
    texts = ["ann@x.org", "é€😀", "", None]
    name = "column.mask.hash.v2.SHA-512"
    given = {"hostname": "x", "database": "d", name: "dbo.orders.email", "column_mask_salt": "Salz"}
    masks = Masks.of(SqlServerSettings.parse(given, owner="source 'sqlserver'"))
    column = TableSchema(T.id, (T.column("email"),))
    by_source = masks.of_table(column, [NativeType("nvarchar", 40, 0, 0)]).apply([pa.array(texts)])[0].to_pylist()
    batch = Batch(T)
    for n, text in enumerate(texts, 1):
        batch.add("c", T, n, {**OPEN, "id": str(n), "email": text})
    rows = shaped(spark, batch, transform(**{name: ["email"], "column_mask_salt": "Salz"}))
    assert [row["after"]["email"] for row in rows[1:]] == by_source


def test_the_salt_stands_in_no_plan_and_no_rows_go_through_a_join_of_rows(spark: Any) -> None:
    given = transform(**{"column.mask.hash.v2.SHA-256": ["email"], "column_mask_salt": "Geheimnis", "filter": "n > 0"})
    rows = Shaping((given,)).rows(Batch(T).add("c", T, 1, OPEN).rows(spark))
    plan = rows._jdf.queryExecution().toString()
    assert "Geheimnis" not in plan + repr(given)
    physical = rows._jdf.queryExecution().executedPlan().toString()
    assert "subquery" not in physical.lower()
    assert (physical.count("BroadcastHashJoin"), physical.count("Join")) == (1, 1)


REFUSED = [
    (
        {"exclude_columns": ["id"]},
        "Transform 1 leaves out column 'id' of table 'dbo.orders', which is in the table's key. "
        "Take it out of 'exclude_columns'.",
    ),
    (
        {"include_columns": ["n"]},
        "Transform 1 leaves out column 'id' of table 'dbo.orders', which is in the table's key. "
        "Add it to 'include_columns'.",
    ),
    (
        {"tables": "dbo.orders", "exclude_columns": ["e_mail"]},
        "Option 'exclude_columns' of transform 1 names column 'e_mail', which table 'dbo.orders' does not have. "
        "Did you mean 'email'?",
    ),
    (
        {"tables": "dbo.orders", "column.mask.with.4.chars": ["mail"]},
        "Option 'column.mask.with.4.chars' of transform 1 names column 'mail', which table 'dbo.orders' does not have. "
        "Did you mean 'email'?",
    ),
    (
        {"column.mask.with.4.chars": ["n"]},
        "Option 'column.mask.with.4.chars' of transform 1 names column 'n' of table 'dbo.orders', whose type int32 has "
        "no characters. Name character columns only; 'exclude_columns' keeps any column back.",
    ),
    (
        {"computed_columns": {"id": "n"}},
        "Transform 1 computes column 'id' of table 'dbo.orders', which is in the table's key. "
        "Give the computed column another name.",
    ),
    (
        {"computed_columns": {"Email": "n"}},
        "Transform 1 computes column 'Email' of table 'dbo.orders', which has 'email'. "
        "Spell it the same to replace that column, or give it another name.",
    ),
    (
        {"filter": "price"},
        "The filter of transform 1 for table 'dbo.orders' is decimal(10,2) and no condition. Write a comparison.",
    ),
    (
        {"filter": "state = 'open'"},
        "The filter of transform 1 for table 'dbo.orders' names `state`, which is not there. "
        "Its columns: `id`, `status`, `price`, `n`, `email`.",
    ),
    (
        {"filter": "op = 'c'"},
        "The filter of transform 1 for table 'dbo.orders' names `op`, which is not there. "
        "Its columns: `id`, `status`, `price`, `n`, `email`.",
    ),
    (
        {"computed_columns": {"x": "n / 3"}},
        "Column 'x' of transform 1 for table 'dbo.orders' takes a number through a double, which loses digits: "
        "(cast(n as double) / cast(3 as double)). "
        "Cast to decimal before (whole numbers divide by 'div'), or write cast(... as double).",
    ),
    (
        {"computed_columns": {"x": "cast(price as decimal(38,9)) + 1"}},
        "Column 'x' of transform 1 for table 'dbo.orders' loses digits, because Spark computes a part of it "
        "with fewer: (cast(price as decimal(38,9)) + cast(1 as decimal(1,0))). "
        "Cast its parts to decimals with fewer digits before.",
    ),
    (
        {"computed_columns": {"x": "-cast(price as decimal(38,9))"}},
        "Column 'x' of transform 1 for table 'dbo.orders' loses digits, because Spark computes a part of it "
        "with fewer: -cast(price as decimal(38,9)). Cast its parts to decimals with fewer digits before.",
    ),
    (
        {"computed_columns": {"x": "price * cast(n as decimal(38,6))"}},
        "Column 'x' of transform 1 for table 'dbo.orders' loses digits, because Spark computes a part of it "
        "with fewer: (price * cast(n as decimal(38,6))). "
        "Cast its parts to decimals with fewer digits before.",
    ),
    (
        {"computed_columns": {"x": "max(n)"}},
        "Column 'x' of transform 1 for table 'dbo.orders' looks at more than one row. "
        "Leave out aggregates, windows, generators and subqueries.",
    ),
    (
        {"filter": "exists (select 1)"},
        "The filter of transform 1 for table 'dbo.orders' looks at more than one row. "
        "Leave out aggregates, windows, generators and subqueries.",
    ),
    (
        {"computed_columns": {"x": "now()"}},
        "Column 'x' of transform 1 for table 'dbo.orders' would be another value when a batch is repeated. "
        "Leave out random numbers, the time of day and who runs it.",
    ),
    (
        {"computed_columns": {"x": "uuid()"}},
        "Column 'x' of transform 1 for table 'dbo.orders' would be another value when a batch is repeated. "
        "Leave out random numbers, the time of day and who runs it.",
    ),
    (
        {"computed_columns": {"x": "array(n)"}},
        "Column 'x' of transform 1 for table 'dbo.orders' is of type array<int>, which no column can have. "
        "Cast it to a plain type, or make it text (to_json).",
    ),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_what_a_transform_can_not_do_with_a_table(spark: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        Shaping((transform(**options),)).structure(T, spark)
    assert str(caught.value) == sentence


def test_an_expression_that_is_none(spark: Any) -> None:
    with pytest.raises(OptionError, match=r"^The filter of transform 1 for table 'dbo.orders' is no expression of "):
        Shaping((transform(filter="n >"),)).structure(T, spark)


def test_rows_whose_structure_is_not_known_are_refused(spark: Any) -> None:
    batch = Batch().add("c", T, 1, OPEN)
    with pytest.raises(SchemaError, match=r"^The structure of table 'db.dbo.orders' is not known: "):
        shaped(spark, batch, transform(exclude_columns=["email"]))


def test_rows_of_a_feed_are_transformed_by_the_structures_that_come_with_them(spark: Any) -> None:
    shared = (
        '"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"sql":"","es":1700000000000,"ts":1,"id":1,'
        '"mysqlType":{"id":"int(11)","amount":"decimal(38,9)","note":"text"},"sqlType":{"id":4,"amount":3,"note":2005}'
    )
    large = "12345678901234567890123456789.123456789"
    inserted, updated = ('{"type":"INSERT","data":[', '{"type":"UPDATE","data":[')
    values = [
        inserted + f'{{"id":"1","amount":"{large}","note":"a"}}],"old":null,{shared}}}',
        updated + f'{{"id":"1","amount":"{large}","note":"b"}}],"old":[{{"note":"a"}}],{shared}}}',
        updated + f'{{"id":"1","amount":"-1.000000000","note":"b"}}],"old":[{{"amount":"{large}"}}],{shared}}}',
        "no message",
    ]
    lines = [("orders", 0, n, value.encode()) for n, value in enumerate(values)]
    messages = local_rows(spark, lines, "topic string, partition int, offset bigint, value binary")
    # One task, because each says a structure before the first row that it has of it.
    decoded = headrace.decode(messages.coalesce(1), format="canal_json")
    steps = (transform(tables="shop.orders", filter="amount > 0", computed_columns={"text": "concat('=', amount)"}),)
    shaping = Shaping(steps, Routes((Route(table_patterns("shop.*"), "{database}_{table}"),)))
    rows = sorted(shaping.rows(decoded).collect(), key=lambda row: row["position"])
    text = f"={large}"
    assert [
        (row["op"], row["table"] and row["table"]["name"], row["after"] and row["after"]["text"]) for row in rows
    ] == [
        ("schema", "shop_orders", None),
        ("c", "shop_orders", text),
        ("u", "shop_orders", text),
        ("d", "shop_orders", None),
        ("error", None, None),
    ]
    schema = TableSchema.from_text(rows[0]["table_schema"])
    assert (schema.id, str(schema.column("text").logical)) == (TableId("shop", "", "shop_orders"), "string")
    assert rows[3]["before"]["text"] == text


IDS = st.integers(1, 3).map(str)
ROWS = st.builds(
    lambda id, status, n: {**OPEN, "id": id, "status": status, "n": n},
    IDS,
    st.sampled_from(["open", "draft", None]),
    st.one_of(st.none(), st.integers(-5, 5).map(str)),
)
STEPS = st.lists(st.tuples(st.sampled_from("iud"), ROWS, st.booleans()), min_size=1, max_size=25)


def history(steps: list[tuple[str, dict[str, str | None], bool]]) -> Batch:
    """Changes that a database could have made; some updates do not say the row before."""
    batch, rows = Batch(T), dict[str, dict[str, str | None]]()
    for at, (step, row, says_before) in enumerate(steps, 1):
        id = str(row["id"])
        before = rows.get(id)
        if step == "d" and before is not None:
            batch.add("d", T, at, None, rows.pop(id))
        elif step != "d" and before is None:
            batch.add("c", T, at, row)
            rows[id] = row
        elif step != "d":
            batch.add("u", T, at, row, before if says_before else None)
            rows[id] = row
    return batch


def content(rows: Any) -> list[tuple[Any, ...]]:
    found = profile(rows)
    if not found:
        return []
    return sorted(tuple(r["row"]) for r in fold(rows, found[0]).where("op = 'upsert'").select("row").collect())


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_transforming_then_folding_is_folding_then_transforming(spark: Any, steps: Any) -> None:
    batch = history(steps)
    given = transform(
        filter="status = 'open' and n > 0",
        computed_columns={"total": "price * n", "size": "if(n > 2, 'big', 'small')"},
        exclude_columns=["price"],
        **{"column.truncate.to.3.chars": ["email"]},
    )
    rows = Shaping((given,)).rows(batch.rows(spark)).persist()
    model = Model(T)
    model.apply(batch.lines)
    expected = [
        "{id}|open|{n}|ann|{total}|{size}".format(
            **row, total=f"{int(row['n']) * 1250 / 100:.2f}", size="big" if int(row["n"]) > 2 else "small"
        )
        for row in model.keyed.values()
        if row["status"] == "open" and row["n"] is not None and int(row["n"]) > 0
    ]
    assert ["|".join(map(str, row)) for row in content(rows)] == sorted(expected)
    rows.unpersist()


def test_positions_stay(spark: Any) -> None:
    batch = Batch(T).add("c", T, 1, OPEN).add("u", T, 2, DRAFT, OPEN).add("u", T, 3, OPEN, DRAFT)
    rows = shaped(spark, batch, transform(filter="status = 'open'"))
    assert [(row["op"], row["position"]) for row in rows[1:]] == [("c", pos(1)), ("d", pos(2)), ("c", pos(3))]
