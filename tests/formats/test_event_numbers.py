"""Rule: the counts in messages of a transaction are those of the messages that are written, however a source counts its
events and however a batch is cut into partitions; numbers over commits have one order for all tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace import encode
from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL, spark_schema
from headrace.formats.event_numbers import with_event_numbers
from headrace.spark.local_rows import local_rows

COLUMNS = (Column("id", 1, LogicalType("int32")), Column("v", 2, LogicalType("string")))
TABLES = [TableSchema(TableId("shop", "dbo", name), COLUMNS, ("id",)) for name in ("a", "b")]


def row(
    commit: int, index: int, op: str, table: int, id: int, order: int | None, old: int | None = None
) -> dict[str, Any]:
    images = {
        "c": {"after": {"id": str(id), "v": "x"}},
        "u": {"before": {"id": str(old or id), "v": "x"}, "after": {"id": str(id), "v": "y"}},
        "d": {"before": {"id": str(id), "v": "x"}},
        "r": {"after": {"id": str(id), "v": "x"}},
    }[op]
    of = TABLES[table]
    return {
        "op": op,
        "table": {"database": "shop", "schema": "dbo", "name": of.id.name},
        "key": {"id": str(id)},
        **images,
        "position": f"{commit:08x}/{index:04x}/1",
        "transaction": None
        if order is None
        else {"id": f"t{commit}", "total_order": order, "data_collection_order": 1},
        "source": {"connector": "sqlserver", "commit_lsn": f"{commit:08x}"},
        "schema_id": of.fingerprint,
    }


# The source counts a change of a key as two events, and the sink lacks a table whose change was number 6.
NUMBERED = [
    row(1, 0, "c", 0, 1, 1),
    row(1, 1, "u", 1, 2, 2, old=1),
    row(1, 2, "u", 0, 9, 4, old=1),
    row(1, 3, "d", 1, 2, 7),
    row(2, 0, "u", 0, 5, 1, old=9),
    row(2, 1, "c", 0, 6, 3),
    row(2, 9, "r", 0, 7, None),
]
COUNTS = [(1, 4), (2, 4), (3, 4), (4, 4), (1, 2), (2, 2)]


def frame(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    lines = [tuple(one.get(field.name) for field in spark_schema()) for one in rows]
    return local_rows(spark, lines, CHANGE_ROW_DDL)


def shareplex(value: str) -> tuple[Any, ...] | None:
    meta = json.loads(value)["meta"]
    return (meta["seq"], meta["size"]) if "seq" in meta else None


def qlik(value: str) -> tuple[Any, ...] | None:
    headers = json.loads(value)["headers"]
    number = headers["transactionEventCounter"]
    return None if number is None else (number, headers["transactionLastEvent"], headers["changeSequence"])


FORMATS: list[tuple[str, dict[str, Any], Callable[[str], tuple[Any, ...] | None]]] = [
    ("shareplex_json", {}, shareplex),
    ("qlik_json", {"envelope": False}, qlik),
]


@pytest.mark.parametrize(("format", "options", "said"), FORMATS, ids=[format for format, *_ in FORMATS])
def test_counts_are_those_of_the_messages_whatever_the_partitions_are(
    spark: SparkSession, format: str, options: dict[str, Any], said: Callable[[str], tuple[Any, ...] | None]
) -> None:
    rows = frame(spark, NUMBERED)
    # One partition, and one for each table and place.
    for given in (rows.coalesce(1), rows.repartition(3, "table"), rows.repartition(4, "position")):
        made = encode(given, format=format, schema=TABLES, **options).orderBy("position").collect()
        found = [one for one in (said(message.value.decode()) for message in made) if one is not None]
        assert len(made) == len(NUMBERED)
        if format == "shareplex_json":
            assert found == COUNTS
            continue
        assert [(number, last) for number, last, _ in found] == [(number, number == size) for number, size in COUNTS]
        sequences = [sequence for *_, sequence in found]
        assert sequences == sorted(set(sequences)) and {len(one) for one in sequences} == {35}


def test_a_change_that_was_read_elsewhere_keeps_its_numbers(spark: SparkSession) -> None:
    rows = [{**one, "message": {"topic": "t", "partition": 0, "offset": n}} for n, one in enumerate(NUMBERED)]
    made = with_event_numbers(frame(spark, rows), ("c", "u", "d")).select(
        "event", "transaction_size", "place_in_commit"
    )
    assert {(line.event, line.transaction_size) for line in made.collect()} == {(None, None)}
