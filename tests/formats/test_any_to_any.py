"""Any format becomes any other: what is lost on the way is what the two formats declare, and nothing else.

One set of changes is encoded in every format and sent through a real Kafka broker; what comes back is decoded, which
must give the same changes but for what the format has no place for. All of that is then encoded again in every format
and decoded: what is left must be what both formats have a place for. Values are compared as what they mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from tests.support.format_ways import FORMATS, Way, as_messages, features

from headrace.changes.row import CHANGE_ROW_DDL, spark_schema
from headrace.formats.features import Feature
from headrace.spark.local_rows import local_rows
from headrace.testing.every_change import CHANGES, CONTROL, TABLE, TIME, expected, row_meaning


def changes_frame(spark: SparkSession) -> DataFrame:
    schema_row = {
        "op": "schema",
        "table": {"database": "shop", "schema": "dbo", "name": "orders"},
        "position": f"{0:020}//",
        "event_time": TIME,
        "capture_time": TIME,
        "source": {"connector": "mysql"},
        "schema_id": TABLE.fingerprint,
        "table_schema": TABLE.to_text(),
    }
    lines = [tuple(row.get(f.name) for f in spark_schema()) for row in [schema_row, *CHANGES]]
    return local_rows(spark, lines, CHANGE_ROW_DDL)


def got(rows: DataFrame, kept: frozenset[Feature]) -> Counter[tuple[Any, ...]]:
    return Counter(row_meaning(row, kept) for row in collected(rows) if row["op"] != "schema")


def collected(rows: DataFrame) -> list[dict[str, Any]]:
    """The rows, with keys in order: a map comes out of Spark without its order."""
    found = [
        row.asDict(recursive=True) for row in rows.selectExpr("*", "unix_micros(event_time) as event_micros").collect()
    ]
    errors = [row["error"] for row in found if row["op"] == "error"]
    assert not errors, errors[0]
    for row in found:
        if row["key"]:
            row["key"] = {name: row["key"][name] for name in TABLE.key if name in row["key"]}
    return found


@pytest.fixture(scope="module")
def way() -> Iterator[Way]:
    from headrace_emulators.schema_registry.server import SchemaRegistryServer

    # Each source has other types for the same table.
    with SchemaRegistryServer(level="NONE") as server:
        yield Way(server.url)


@pytest.fixture(scope="module")
def through_kafka(spark: SparkSession, way: Way, bootstrap: str) -> dict[str, DataFrame]:
    """The changes in every format, sent through a broker, as decoded change rows by format."""
    changes = changes_frame(spark).cache()
    columns = ("key", "value", "headers", "position")
    named = [
        way.encode(changes, format).selectExpr(f"concat('{format}-', topic) as topic", *columns) for format in FORMATS
    ]
    messages = reduce(DataFrame.union, named).coalesce(1).sortWithinPartitions("position")
    kafka = messages.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    kafka.option("includeHeaders", "true").save()
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    sent = read.option("subscribePattern", ".*-.*").option("includeHeaders", "true").load().cache()
    sent.count()
    found = {}
    for format in FORMATS:
        mine = sent.where(f"startswith(topic, '{format}-')")
        mine = mine.withColumn("topic", mine.topic.substr(len(format) + 2, 1000))
        found[format] = way.decode(mine, format).cache()
    return found


@pytest.mark.kafka
@pytest.mark.parametrize("format", FORMATS)
def test_what_comes_back_from_kafka_is_what_was_sent(through_kafka: dict[str, DataFrame], format: str) -> None:
    kept = features(format)
    assert got(through_kafka[format], kept) == expected(kept)


def tagged(sources: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of all sources in one frame; a part of their keys says whose they are."""
    frames = []
    for number, (source, rows) in enumerate(sources.items()):
        images = {
            name: f"if({name} is null, null, transform_values({name}, "
            f"(k, v) -> if(k = 'part', concat(v, '|{source}'), v)))"
            for name in ("key", "before", "after")
        }
        moved = {"position": f"concat('{number:03}', position)"}
        frames.append(rows.selectExpr(*(f"{(images | moved).get(name, name)} as `{name}`" for name in rows.columns)))
    all_rows = frames[0]
    for frame in frames[1:]:
        all_rows = all_rows.unionByName(frame)
    return all_rows.withColumn("key_text", expr("if(key is null, null, to_json(map_values(key)))"))


@pytest.fixture(scope="module")
def everything(through_kafka: dict[str, DataFrame]) -> DataFrame:
    """All of them, collected: planning what made them would take longer than all else."""
    frame = tagged(through_kafka)
    return local_rows(frame.sparkSession, frame.collect(), frame.schema).cache()


def untagged(row: dict[str, Any]) -> str:
    """Whose the row is; its tags are taken off. Rows without images are nobody's."""
    found = ""
    for name in ("key", "before", "after"):
        image = row[name]
        if image and image.get("part"):
            text, _, found = image["part"].rpartition("|")
            row[name] = {**image, "part": text}
    return found


@pytest.mark.kafka
@pytest.mark.parametrize("target", FORMATS)
def test_any_format_becomes_another(everything: DataFrame, way: Way, target: str) -> None:
    there = way.decode(as_messages(way.encode(everything, target)), target)
    lines = [row for row in collected(there) if row["op"] != "schema"]
    found: dict[str, Counter[tuple[Any, ...]]] = {source: Counter() for source in FORMATS}
    controls: Counter[str] = Counter()
    for row in lines:
        source = untagged(row)
        if source:
            found[source][row_meaning(row, features(source, target))] += 1
        else:
            controls[row["op"]] += 1
    wrong = {}
    wanted_controls: Counter[str] = Counter()
    for source in FORMATS:
        wanted = expected(features(source, target), features(source))
        wanted_controls.update(row[0] for row in wanted if row[0] in CONTROL for _ in range(wanted[row]))
        wanted = Counter({row: n for row, n in wanted.items() if row[0] not in CONTROL})
        if found[source] != wanted:
            wrong[source] = {"too much": found[source] - wanted, "missing": wanted - found[source]}
    assert wrong == {}
    assert controls == wanted_controls
