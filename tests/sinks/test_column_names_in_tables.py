"""Law: columns of tables have every name that the rules take, in every way to write, and no other.

The rules themselves are in `test_column_rules.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.sinks.column_names import NAMES, RULES
from tests.sinks.databases import Running
from tests.support.delta_target import DeltaTarget
from tests.support.iceberg_target import IcebergTarget

from headrace.changes import TableId, TableSchema
from headrace.errors import SchemaError, SinkError
from headrace.sinks.base import BatchId
from headrace.sinks.column_rules import ColumnRules, spark_folded
from headrace.testing.change_history import Batch, schema_of, table

KINDS = {"delta": DeltaTarget, "iceberg": IcebergTarget}
WAYS: dict[str, dict[str, Any]] = {
    "mirror": {},
    "history": {"stored_as_scd_type": "2"},
    "log": {"stored_as_scd_type": "append"},
}


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Any:
    return KINDS[request.param](spark, tmp_path / "lake")


def kind_of(target: Any) -> str:
    return next(name for name, kind in KINDS.items() if isinstance(target, kind))


def taken_by(rules: ColumnRules) -> list[str]:
    """All names that a target takes, of those that it or Spark has for one the first."""
    taken: dict[str, str] = {}
    for name in NAMES:
        if not rules.problem(name) and not {spark_folded(name), rules.folded(name)} & taken.keys():
            taken |= {spark_folded(name): name, rules.folded(name): name}
    return list(dict.fromkeys(taken.values()))


def refused_by(rules: ColumnRules) -> list[TableSchema]:
    """Tables each of which has a column of a name that a target does not take."""
    names = [name for name in NAMES if rules.problem(name) and "\ud800" not in name]
    return [table(f"n{n}", id="int32", **{name: "string"}) for n, name in enumerate(names)]


def keyed_by_odd_names(names: list[str]) -> TableSchema:
    keys, rest = (names[0], names[-1]), names[1:-1]
    return schema_of(
        TableId("db", "dbo", "keyed"), {**dict.fromkeys(keys, "int32"), **dict.fromkeys(rest, "string")}, keys
    )


def image(schema: TableSchema, id: int, value: str) -> dict[str, str | None]:
    return {c.name: str(id) if c.logical.kind == "int32" else f"{value}{n}" for n, c in enumerate(schema.columns)}


def two_batches(tables: list[TableSchema]) -> tuple[Batch, Batch]:
    """A snapshot of two rows in each table, of which one is changed and one deleted, and another comes."""
    first, second = Batch(*tables), Batch(*tables)
    for schema in tables:
        first.add("r", schema, "00000001/r/1", image(schema, 1, "a"), snapshot="true")
        first.add("r", schema, "00000001/r/2", image(schema, 2, "b"), snapshot="last")
        second.add("u", schema, 10, image(schema, 1, "c"), image(schema, 1, "a"))
        second.add("d", schema, 11, None, image(schema, 2, "b")).add("c", schema, 12, image(schema, 3, "d"))
    return first, second


def rows(target: Any, schema: TableSchema, **options: Any) -> list[tuple[Any, ...]]:
    # In a session of its own: one keeps the catalog that it read first.
    found = target.sink(**options).now(target.spark.newSession(), schema)
    return sorted(tuple(row.asDict()[c.name] for c in schema.columns) for row in found.collect())


@pytest.mark.smoke("delta-mirror")
@pytest.mark.parametrize("way", WAYS)
def test_every_name_that_is_taken_is_a_column_in_every_way_to_write(target: Any, way: str) -> None:
    names, options = taken_by(RULES[kind_of(target)]), WAYS[way]
    keyed = keyed_by_odd_names(names)
    tables = [keyed]
    if way == "mirror":
        tables.append(schema_of(TableId("db", "dbo", "keyless"), {"id": "int32", **dict.fromkeys(names, "string")}, ()))
    first, second = two_batches(tables)
    for number, batch in enumerate((first, second)):
        target.write(batch, number, **options)
    for schema in tables:
        wanted = [tuple(target_value(schema, image(schema, id, value))) for id, value in ((1, "c"), (3, "d"))]
        assert rows(target, schema, **options) == wanted


def target_value(schema: TableSchema, row: dict[str, str | None]) -> list[Any]:
    return [int(str(row[c.name])) if c.logical.kind == "int32" else row[c.name] for c in schema.columns]


def test_every_other_name_is_refused_before_a_table_is_made(target: Any) -> None:
    tables = refused_by(RULES[kind_of(target)])
    batch = Batch(*tables)
    for schema in tables:
        batch.add("c", schema, 1, image(schema, 1, "a"))
    with pytest.raises(SchemaError) as caught:
        target.write(batch)
    errors = [caught.value, *caught.value.others]
    assert {error.table for error in errors} == {schema.id for schema in tables}
    assert not any(target.content(schema) for schema in tables)
    assert not any(target.sink().target(target.spark.newSession(), schema.id).exists for schema in tables)


def test_a_database_has_every_name_that_is_taken_and_refuses_the_others_before_a_table_is_made(
    database: Running, spark: Any
) -> None:
    rules = database.at.dialect.rules
    keyed, refused = keyed_by_odd_names(taken_by(rules)), refused_by(rules)
    first, second = two_batches([keyed])
    for number, batch in enumerate((first, second)):
        database.sink().write(batch.rows(spark), BatchId("p", "checkpoint", number))
    found = database.sink().now(spark, keyed)
    assert found is not None
    wanted = [tuple(target_value(keyed, image(keyed, id, value))) for id, value in ((1, "c"), (3, "d"))]
    assert sorted(tuple(row.asDict()[c.name] for c in keyed.columns) for row in found.collect()) == wanted
    batch = Batch(*refused)
    for schema in refused:
        batch.add("c", schema, 1, image(schema, 1, "a"))
    with pytest.raises(SchemaError) as caught:
        database.sink().write(batch.rows(spark), BatchId("q", "checkpoint", 0))
    assert {error.table for error in (caught.value, *caught.value.others)} == {schema.id for schema in refused}
    assert not any(database.columns(schema.id.name) for schema in refused)


def test_a_name_that_is_no_good_is_refused_where_a_column_comes_later_or_is_renamed(target: Any) -> None:
    bad = next(name for name in NAMES if RULES[kind_of(target)].taken & {name})
    schema = table(id="int32", a="string")
    target.write(Batch(schema).add("c", schema, 1, {"id": "1", "a": "x"}))
    wider, renamed = table(id="int32", a="string", **{bad: "string"}), table(id="int32", **{bad: "string"})
    statement = f"ALTER TABLE t RENAME COLUMN a TO `{bad}`"
    for batch in (
        Batch(wider).add("u", wider, 2, {"id": "1", "a": "y", bad: "z"}),
        Batch().statement(schema, 2, statement),
        Batch(renamed).statement(schema, 2, statement).add("u", renamed, 3, {"id": "1", bad: "z"}),
    ):
        with pytest.raises(SchemaError, match=f"has a column '{bad}'"):
            target.write(batch, 1, schema_change_behavior="evolve")
    assert target.content(schema) == [(1, "x")]


@pytest.mark.parametrize("setting", ["spark.wap.id", "spark.wap.branch"])
def test_a_session_whose_writes_are_staged_is_refused_before_anything(spark: Any, tmp_path: Path, setting: str) -> None:
    target = IcebergTarget(spark.newSession(), tmp_path / "lake")
    target.spark.conf.set(setting, "audit")
    schema = table()
    sink = target.sink()
    rows = Batch(schema).add("c", schema, 1, {"id": "1", "a": "x", "b": "y"}).rows(target.spark)
    with pytest.raises(SinkError, match=rf"has the setting {setting}, by which Iceberg stages"):
        sink.write(rows, BatchId("p", "checkpoint", 0))
    target.spark.conf.unset(setting)
    assert target.content(schema) == []


def test_numbers_with_a_binary_fraction_are_keys(target: Any) -> None:
    tables = [table(kind, key=("k",), k=kind, a="string") for kind in ("float32", "float64")]
    first, second = Batch(*tables), Batch(*tables)
    for schema in tables:
        first.add("c", schema, 1, {"k": "0.5", "a": "x"}).add("c", schema, 2, {"k": "-2", "a": "y"})
        second.add("u", schema, 3, {"k": "0.5", "a": "z"}).add("d", schema, 4, None, {"k": "-2.0"})
    for number, batch in enumerate((first, second)):
        target.write(batch, number)
    assert [target.content(schema) for schema in tables] == [[(0.5, "z")]] * 2


def test_types_that_are_features_of_a_delta_table_can_come_later(spark: Any, tmp_path: Path) -> None:
    target, options = DeltaTarget(spark, tmp_path / "lake"), {"json_columns": "variant"}
    first = table(id="int32", d="date")
    target.write(Batch(first).add("c", first, 1, {"id": "1", "d": "2024-02-29"}), 0, **options)
    later = table(id="int32", d="timestamp(6)", at="timestamp(6)", doc="json")
    row = {"id": "1", "d": "2024-03-01 10:00:00", "at": "2024-02-29 10:00:00", "doc": '{"a":1}'}
    for _ in range(2):
        target.write(Batch(later).add("u", later, 2, row), 1, **options)
    found = target.spark.read.format("delta").load(target.path("t"))
    (read,) = found.selectExpr("id", "cast(d as string)", "cast(at as string)", "to_json(doc)").collect()
    assert tuple(read) == (1, "2024-03-01 10:00:00", "2024-02-29 10:00:00", '{"a":1}')
