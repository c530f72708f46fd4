"""`headrace.apply_changes` on flat rows and on change rows: AUTO CDC's words, into Delta and Iceberg tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.errors import OptionError, SchemaError
from headrace.spark.local_rows import local_rows
from headrace.testing.change_history import Batch, pos
from headrace.testing.table_target import A, B, T

FLAT = "id int, name string, city string, op string, n bigint"


@pytest.fixture
def iceberg(spark: Any, tmp_path: Path) -> str:
    """The name of a catalogue that the session knows."""
    name = f"lake_{tmp_path.name.replace('-', '_')}"
    location = f"spark.sql.catalog.{name}"
    spark.conf.set(location, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{location}.type", "hadoop")
    spark.conf.set(f"{location}.warehouse", str(tmp_path / "warehouse"))
    spark.conf.set(f"{location}.cache-enabled", "false")
    return name


def apply(spark: Any, target: str, lines: list[Any] | str, **words: Any) -> None:
    """Apply rows, or those of a table, to the target."""
    words = {"apply_as_deletes": "op = 'D'", "except_column_list": ["op", "n"], **words}
    changes = spark.table(lines) if isinstance(lines, str) else local_rows(spark, lines, FLAT)
    headrace.apply_changes(changes, target, ["id"], "n", **words)


def rows(spark: Any, target: str, *columns: str) -> list[Any]:
    found = spark.read.format("delta").load(target) if "/" in target else spark.table(target)
    return sorted((tuple(row) for row in found.selectExpr(*columns).collect()), key=repr)


def test_type_1_keeps_the_newest_row_and_a_late_change_brings_nothing_back(spark: Any, iceberg: str) -> None:
    target = f"{iceberg}.db.people"
    words = {"apply_as_truncates": "op = 'T'"}
    first = [
        (1, "Ann", "Rome", "I", 1),
        (2, "Bob", "Oslo", "I", 2),
        (1, "Ann", "Bern", "U", 5),
        (2, None, None, "D", 6),
    ]
    apply(spark, target, first, **words)
    assert rows(spark, target, "id", "name", "city") == [(1, "Ann", "Bern")]
    late = [(1, "Ann", "late", "U", 3), (2, "Bob", "late", "U", 4), (3, "Cyd", "Kiev", "I", 4)]
    feed = f"{iceberg}.db.feed"
    local_rows(spark, late, FLAT).writeTo(feed).create()
    for lines in (late, feed):
        apply(spark, target, lines, **words)
        assert rows(spark, target, "id", "city") == [(1, "Bern"), (3, "Kiev")]
    apply(spark, target, [(None, None, None, "T", 8), (3, "Cyd", "Lviv", "I", 9), (4, "Dee", "late", "I", 7)], **words)
    assert rows(spark, target, "id", "city") == [(3, "Lviv")]


@pytest.mark.system
def test_type_1_with_nulls_that_say_nothing(spark: Any, tmp_path: Path) -> None:
    target = f"{tmp_path}/people"
    apply(spark, target, [(1, "Ann", "Rome", "I", 1), (2, "Bob", "Oslo", "I", 1)], ignore_null_updates=True)
    apply(
        spark,
        target,
        [(1, None, "Bern", "U", 2), (1, "Anna", None, "U", 3), (2, None, None, "D", 4), (2, "Bo", None, "I", 5)],
        ignore_null_updates=True,
    )
    assert rows(spark, target, "id", "name", "city", "_headrace_position") == [
        (1, "Anna", "Bern", 3),
        (2, "Bo", None, 5),
    ]


@pytest.mark.system
def test_type_2_has_a_late_change_in_its_place(spark: Any, tmp_path: Path) -> None:
    target = f"{tmp_path}/people"
    words = {"stored_as_scd_type": 2, "track_history_except_column_list": ["name"]}
    apply(spark, target, [(1, "Ann", "Rome", "I", 1), (1, "Anna", "Rome", "U", 3), (1, None, None, "D", 7)], **words)
    assert rows(spark, target, "id", "name", "city", "__START_AT", "__END_AT") == [(1, "Anna", "Rome", 1, 7)]
    apply(spark, target, [(1, "Ann", "Bern", "U", 2), (1, "Ann", "Oslo", "U", 9)], **words)
    assert rows(spark, target, "name", "city", "__START_AT", "__END_AT") == [
        ("Ann", "Bern", 2, 3),
        ("Ann", "Oslo", 9, None),
        ("Ann", "Rome", 1, 2),
        ("Anna", "Rome", 3, 7),
    ]


def test_a_stream_of_change_rows_goes_into_a_target_for_each_table_once(spark: Any, tmp_path: Path) -> None:
    from headrace.changes.row import CHANGE_ROW_DDL

    Batch(T).add("c", T, 1, A).add("c", T, 2, B).add("u", T, 3, {**A, "a": "w"}).rows(spark).write.parquet(
        f"{tmp_path}/in"
    )
    stream = spark.readStream.schema(CHANGE_ROW_DDL).parquet(f"{tmp_path}/in")
    target = f"{tmp_path}/lake/{{schema}}/{{table}}"
    for _ in range(2):
        writer = headrace.apply_changes(stream, target, stored_as_scd_type="append")
        query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
        # The batch comes again as after a kill between the commit and Spark's own.
        for file in (tmp_path / "checkpoint" / "commits").glob("*0*"):
            file.unlink()
    found = rows(spark, f"{tmp_path}/lake/dbo/t", "_headrace_position", "_headrace_op")
    assert found == [(pos(1), "c"), (pos(2), "c"), (pos(3), "u")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"keys": []}, "needs keys"),
        ({"keys": ["idd"]}, "keys names 'idd', which is not a column. Did you mean 'id'"),
        ({"column_list": ["name"]}, "The key column 'id' is not among the columns"),
        ({"column_list": ["id"], "except_column_list": ["op"]}, "exclude each other"),
        ({"track_history_column_list": ["name"]}, "needs a history"),
        ({"sequence_by": None}, "needs keys and sequence_by"),
        ({"target": "/x/{tabel}"}, "Placeholders are"),
        ({"stored_as_scd_type": 3}, "can't be '3'"),
        ({"merge_schema": True}, "Unknown option 'merge_schema'"),
    ],
)
def test_words_that_do_not_fit_are_refused(spark: Any, words: dict[str, Any], message: str) -> None:
    given = {"target": "/nowhere/t", "keys": ["id"], "sequence_by": "n", **words}
    with pytest.raises(OptionError, match=message):
        headrace.apply_changes(local_rows(spark, [], FLAT), **given)


def test_a_change_without_a_place_in_the_order_stops(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="no place in the order"):
        apply(spark, f"{tmp_path}/people", [(1, "Ann", "Rome", "I", None)])


def test_a_session_without_ansi_makes_no_key_null(spark: Any, tmp_path: Path) -> None:
    lenient = spark.newSession()
    lenient.conf.set("spark.sql.ansi.enabled", "false")
    target = str(tmp_path / "{schema}" / "{table}")
    for number, id in enumerate(("", "x1", "3000000000")):
        rows = Batch(T).add("c", T, 1, A).add("c", T, 2, {**A, "id": id}).rows(lenient)
        with pytest.raises(
            SchemaError, match=r"A value of table db\.dbo\.t does not fit its column 'id' of type int32"
        ):
            headrace.apply_changes(rows, target, name="p", batch_id=number)
    assert lenient.read.format("delta").load(str(tmp_path / "dbo" / "t")).count() == 0
