"""Columns of lakehouse tables: the source's comments, JSON as variants, and as many columns as there are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.delta_target import DeltaTarget
from tests.support.iceberg_target import IcebergTarget

from headrace.apply import profile
from headrace.changes import Column, LogicalType
from headrace.errors import OptionError
from headrace.sinks.lake.iceberg.sink import IcebergSink
from headrace.sinks.lake.merge import Values, merge
from headrace.testing.change_history import Batch, table
from headrace.testing.table_target import A, B, T


@pytest.fixture
def delta(spark: Any, tmp_path: Path) -> DeltaTarget:
    return DeltaTarget(spark, tmp_path / "lake")


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.system)])
def target(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Any:
    return (DeltaTarget if request.param == "delta" else IcebergTarget)(spark, tmp_path / "lake")


def described(target: Any) -> tuple[dict[str, tuple[str, str | None]], str | None]:
    """The columns' types and comments, and the table's comment."""
    found = target.sink().target(target.spark.newSession(), T.id)
    columns = {
        field.name: (field.dataType.simpleString(), field.metadata.get("comment")) for field in found.read().schema
    }
    rows = found.session.sql(f"describe table extended {found.sql_name}").collect()
    return columns, next((row["data_type"] for row in rows if row["col_name"] == "Comment"), None)


def test_targets_have_the_sources_comments_also_of_columns_that_are_added(target: Any) -> None:
    said = {"id": "the customer's number", "a": "`A`; it's \\ new\nor ${old}", "b": None}
    columns = tuple(replace(column, comment=said[column.name]) for column in T.columns)
    commented = replace(T, columns=columns, comment="the shop's\ncustomers")
    target.write(Batch(commented).add("c", commented, 1, A), 0)
    more = Column("c", 4, LogicalType("decimal", 10, 2), comment="what they owe; 'net'")
    wider = replace(commented, columns=(*columns, more))
    target.write(Batch(wider).add("u", wider, 2, {**A, "c": "1.50"}), 1)
    found, comment = described(target)
    assert comment == "the shop's\ncustomers"
    assert found["c"] == ("decimal(10,2)", "what they owe; 'net'")
    assert {name: found[name][1] for name in said} == said
    assert found["_headrace_position"] == ("string", "Headrace: position of the row's last change")


WIDE = 200


def wide(width: int) -> Any:
    kinds = ("int64", "string", "decimal(18,4)", "timestamp(6)", "boolean")
    return table("wide", id="int32", **{f"c{n}": kinds[n % len(kinds)] for n in range(width - 1)})


def values(width: int, id: int, number: int) -> dict[str, str | None]:
    made = (str(number), "text", f"{number}.2500", "2024-02-29 10:00:00.000000", "true")
    return {"id": str(id), **{f"c{n}": made[n % len(made)] for n in range(width - 1)}}


@pytest.mark.system
def test_a_table_of_200_columns_is_created_merged_and_gets_more(target: Any) -> None:
    schema, wider = wide(WIDE), wide(WIDE + 5)
    first = Batch(schema)
    for id in (1, 2, 3):
        first.add("r", schema, f"00000001/r/{id}", values(WIDE, id, id), snapshot="true")
    target.write(first, 0)
    part = {"id": "2", "c0": "20", "c197": "30.5000"}
    second = Batch(schema).add("u", schema, 2, values(WIDE, 1, 9)).add("u", schema, 3, part, {"id": "2"})
    target.write(second.add("d", schema, 4, None, {"id": "3"}), 1)
    third = Batch(wider).add("u", wider, 5, values(WIDE + 5, 1, 10)).add("c", wider, 6, values(WIDE + 5, 4, 4))
    target.write(third, 2)
    rows = {row["id"]: row for row in target.rows(wider)}
    assert {id: (row["c0"], row["c5"], str(row["c197"]), row["c200"]) for id, row in rows.items()} == {
        1: (10, 10, "10.2500", 10),
        2: (20, 2, "30.5000", None),
        4: (4, 4, "4.2500", 4),
    }


def test_the_plan_of_a_wide_merge_grows_with_the_columns_and_not_with_their_square(delta: DeltaTarget) -> None:
    """By the text of the statement and of the folded rows' plan, which Spark goes through many times."""

    def sizes(width: int) -> tuple[int, int]:
        schema = wide(width)
        rows = Batch(schema).add("u", schema, 2, {"id": "2", "c0": "7"}, {"id": "2"}).rows(delta.spark)
        (found,) = profile(rows)
        statements: list[str] = []
        plans: list[str] = []

        def sql(text: str) -> None:
            """Takes the statement in place of Spark."""
            statements.append(text)
            folded = delta.spark.table(text.split(" using ")[1].split(" as s")[0])
            plans.append(folded._jdf.queryExecution().optimizedPlan().toJSON())  # type: ignore[attr-defined]

        session = SimpleNamespace(sql=sql, table=delta.spark.table)
        target: Any = SimpleNamespace(session=session, sql_name="t", label="t", small=True)
        names = tuple(column.name for column in schema.columns)
        values = Values(names, ("id",), frozenset(), "_headrace_position", {}, deleted="_headrace_deleted")
        merge(rows, found, target, values)()
        return len(statements[0]), len(plans[0])

    narrow, broad = sizes(50), sizes(200)
    assert all(much < 6 * little for much, little in zip(broad, narrow, strict=True)), (narrow, broad)


DOCUMENTS = [
    # A document, and what its variant is as JSON.
    ('{"b": 1.50, "a": [true, null, "x"]}', '{"a":[true,null,"x"],"b":1.5}'),
    ('{"n": 12345678901234567890123456789012345678}', '{"n":12345678901234567890123456789012345678}'),
    ('{"n": -0.1234567890123456789012345678901234567}', '{"n":-0.1234567890123456789012345678901234567}'),
    ("null", "null"),
    (None, None),
    # No number may pass through a double, and nothing be lost: the text is a string.
    ('{"n": 123456789012345678901234567890123456789}', '"{\\"n\\": 123456789012345678901234567890123456789}"'),
    ('[1, {"n": 0.10000000000000000000000000000000000000001}]', None),
    ('{"n": 1.1e0}', None),
    ('{"a": 1, "a": 2}', None),
    # What looks like such a number inside a text is none.
    ('{"a": "1e5 \\" 2e5", "12e5": 1}', '{"12e5":1,"a":"1e5 \\" 2e5"}'),
]


@pytest.mark.system
def test_json_is_a_variant_whose_numbers_are_exact(delta: DeltaTarget) -> None:
    options = {"json_columns": "variant"}
    schema = table(id="int32", j="json", b="string")
    first = Batch(schema)
    for id, (text, _) in enumerate(DOCUMENTS):
        first.add("r", schema, f"00000001/r/{id}", {"id": str(id), "j": text, "b": None}, snapshot="true")
    delta.write(first, 0, **options)
    last = str(len(DOCUMENTS))
    # By MERGE: one created, some without the document, one whose key changes and that does not carry it.
    second = Batch(schema).add("c", schema, 2, {"id": last, "j": '{"n":1E400}', "b": "x"})
    second.add("u", schema, 3, {"id": "0", "b": "x"}, {"id": "0"}).add("d", schema, 4, None, {"id": "3"})
    second.add("u", schema, 5, {"id": "77", "b": "moved"}, {"id": "7"})
    second.add("u", schema, 6, {"id": "8", "j": '{"n":2}', "b": None})
    for _ in range(2):
        delta.write(second, 1, **options)
    found = delta.spark.read.format("delta").load(delta.path("t"))
    assert found.schema["j"].dataType.simpleString() == "variant"
    read = {row["id"]: row["j"] for row in found.selectExpr("id", "to_json(j) as j").collect()}
    expected = {id: json if json or text is None else _quoted(text) for id, (text, json) in enumerate(DOCUMENTS)}
    del expected[3]
    expected |= {int(last): _quoted('{"n":1E400}'), 8: '{"n":2}', 77: expected.pop(7)}
    assert read == expected
    # A column that comes later is one too, and one that is there stays as it is.
    wider = replace(schema, columns=(*schema.columns, Column("k", 4, LogicalType("json"))))
    third = Batch(wider).add("u", wider, 7, {"id": "8", "j": "[1]", "b": None, "k": "[2]"})
    delta.write(third, 2)
    kinds = delta.spark.read.format("delta").load(delta.path("t")).schema
    assert (kinds["j"].dataType.simpleString(), kinds["k"].dataType.simpleString()) == ("variant", "string")


@pytest.mark.system
@pytest.mark.parametrize("stored_as", ["1", "append"])
def test_verify_compares_variants_by_their_meaning(delta: DeltaTarget, stored_as: str) -> None:
    options = {"json_columns": "variant", "stored_as_scd_type": stored_as}
    schema = table(id="int32", j="json", b="string")
    batch = Batch(schema).add("c", schema, 1, {"id": "1", "j": '{"b": 1.0, "a": 1e5}', "b": None})
    batch.add("c", schema, 2, {"id": "2", "j": '{"b": 1.0, "a": [ ]}', "b": None})
    batch.add("u", schema, 3, {"id": "2", "j": '{"b": 1, "a": []}', "b": "x"})
    delta.write(batch, 0, **options)
    sink, rows = delta.sink(**options), batch.rows(delta.spark)
    (found,) = profile(rows)
    now = sink.now(delta.spark, schema)
    assert now is not None
    left = sorted(tuple(row) for row in now.collect())
    assert left == sorted(tuple(row) for row in sink.expected(rows, found).collect())
    assert left == [(1, _quoted('{"b": 1.0, "a": 1e5}'), None), (2, '{"a":[],"b":1}', "x")]


def test_json_of_keys_and_of_tables_without_a_key_are_strings(delta: DeltaTarget) -> None:
    keyed, keyless = table(key=("j",), j="json", k="json"), table("k", key=(), j="json")
    batch = Batch(keyed, keyless).add("c", keyed, 1, {"j": "1", "k": "1"}).add("c", keyless, 1, {"j": "1"})
    delta.write(batch, 0, json_columns="variant")
    kinds = [delta.spark.read.format("delta").load(delta.path(name)).schema for name in ("t", "k")]
    assert [kind["j"].dataType.simpleString() for kind in kinds] == ["string", "string"]
    assert kinds[0]["k"].dataType.simpleString() == "variant"


def test_variants_are_refused_where_they_can_not_be_kept(delta: DeltaTarget) -> None:
    with pytest.raises(OptionError, match="variants can't be compared"):
        delta.sink(json_columns="variant", stored_as_scd_type="2")
    with pytest.raises(OptionError, match="'iceberg' does not write variants"):
        IcebergSink.of({"warehouse": "/w", "json_columns": "variant"})


@pytest.mark.system
def test_iceberg_3_keeps_deletes_as_vectors_and_replays_change_nothing(spark: Any, tmp_path: Path) -> None:
    target = IcebergTarget(spark, tmp_path / "lake", format_version="3")
    first = Batch(T).add("r", T, "00000001/r/1", A, snapshot="true").add("r", T, "00000001/r/2", B, snapshot="last")
    second = Batch(T).add("u", T, 2, {"id": "1", "b": "w"}).add("d", T, 3, None, B).add("c", T, 4, {**A, "id": "3"})
    third = Batch(T).add("t", T, 5).add("c", T, 6, B)
    contents = [[(1, "x", "y"), (2, "z", None)], [(1, "x", "w"), (3, "x", "y")], [(2, "z", None)]]
    for number, (batch, content) in enumerate(zip((first, second, third), contents, strict=True)):
        for _ in range(2):
            target.write(batch, number)
            assert target.content(T) == content
    found = target.table()
    assert found.exists
    assert found.facts().format == 3
    kinds = found.session.sql(f"select distinct content, file_format from {found.sql_name}.all_delete_files").collect()
    assert [tuple(row) for row in kinds] == [(1, "PUFFIN")]
    assert len(target.snapshots()) == 3
    found.compact()
    assert target.content(T) == contents[-1]


def _quoted(text: str) -> str:
    return json.dumps(text)
