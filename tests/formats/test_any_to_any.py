"""Any format becomes any other: what is lost on the way is what the two formats declare, and nothing else.

One set of changes is encoded in every format and sent through a real Kafka broker; what comes back is decoded, which
must give the same changes but for what the format has no place for. All of that is then encoded again in every format
and decoded: what is left must be what both formats have a place for. Values are compared as what they mean.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from headrace import registry
from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.key_text import key_text
from headrace.changes.row import CHANGE_ROW_DDL, spark_schema
from headrace.formats.base import Format
from headrace.formats.convert import decode, encode
from headrace.formats.features import Feature
from headrace.spark.local_rows import local_rows

FORMATS = [
    name for name in registry.built_in_names("format") if registry.find("format", name).encode is not Format.encode
]
TABLE = TableSchema(
    TableId("shop", "dbo", "orders"),
    tuple(
        Column(name, n, LogicalType.parse(kind), native_type=native, nullable=name not in ("id", "part"), large=large)
        for n, (name, kind, native, large) in enumerate(
            [
                ("id", "int32", "int", False),
                ("part", "string", "varchar(20)", False),
                ("amount", "decimal(12,2)", "decimal(12,2)", False),
                ("huge", "decimal(38,10)", "decimal(38,10)", False),
                ("ratio", "float64", "double", False),
                ("count", "int64", "bigint", False),
                ("day", "date", "date", False),
                ("made", "timestamp(6)", "datetime(6)", False),
                ("picture", "bytes", "blob", True),
                ("note", "string", "longtext", True),
            ],
            1,
        )
    ),
    ("id", "part"),
)
FIRST: Mapping[str, str | None] = {
    "id": "1",
    "part": 'é "x" \\ \' 日😀',
    "amount": "12.50",
    "huge": "-1234567890123456789012345678.0123456789",
    "ratio": "0.1",
    "count": "-9223372036854775808",
    "day": "1969-12-31",
    "made": "1969-12-31 23:59:59.999999",
    "picture": "AP8Q",
    "note": "line\nbreak",
}
NULLS: Mapping[str, str | None] = {"id": "2", "part": "b", **dict.fromkeys(list(FIRST)[2:])}
TIME = dt.datetime(2024, 2, 29, 23, 59, 58, 123456, tzinfo=dt.UTC)
CONTROL = {
    "t": Feature.TRUNCATE,
    "begin": Feature.EDGES,
    "end": Feature.EDGES,
    "heartbeat": Feature.HEARTBEAT,
}
PRECISIONS = (
    (Feature.EVENT_MICROSECONDS, 1),
    (Feature.EVENT_MILLISECONDS, 1_000),
    (Feature.EVENT_TIME, 1_000_000),
)
ENCODING: dict[str, dict[str, Any]] = {
    "debezium_json": {
        "topic_prefix": "server",
        "schemas_enable": True,
        "skipped_operations": "none",
        "tombstones_on_delete": False,
    },
    "debezium_avro": {"topic_prefix": "server", "skipped_operations": "none", "tombstones_on_delete": False},
}
DECODING: dict[str, dict[str, Any]] = {"debezium_avro": {"framing": "confluent"}}


def change(number: int, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any]:
    image = after or before
    key = None if image is None else {"id": image["id"], "part": image["part"]}
    data = op in "rcudt"
    return {
        "op": op,
        "table": {"database": "shop", "schema": "dbo", "name": "orders"} if data else None,
        "key": key,
        "key_text": None if key is None else key_text(list(key.values())),
        "before": before,
        "after": after,
        "position": f"{number:020}//",
        "event_time": TIME + dt.timedelta(seconds=number),
        "capture_time": TIME + dt.timedelta(minutes=1),
        "snapshot": "true" if op == "r" else None,
        "transaction": {"id": "77", "total_order": number, "data_collection_order": number}
        if op in ("c", "u", "d")
        else {"id": "77"}
        if op in ("begin", "end")
        else None,
        "source": {"connector": "mysql"},
        "schema_id": TABLE.fingerprint if data else None,
    }


def without(image: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in image.items() if name not in names}


CHANGES = [
    change(1, "r", None, dict(FIRST)),
    change(2, "begin", None, None),
    change(3, "c", None, dict(NULLS)),
    change(4, "u", dict(NULLS), {**NULLS, "amount": "0.00", "note": ""}),
    change(5, "u", without(FIRST, "note", "picture"), without({**FIRST, "amount": "7.25"}, "note", "picture")),
    change(6, "u", dict(FIRST), {**FIRST, "id": "-3"}),
    change(7, "d", dict(NULLS), None),
    change(8, "end", None, None),
    change(9, "t", None, None),
    change(10, "heartbeat", None, None),
]


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


def features(*formats: str) -> frozenset[Feature]:
    """What all of these formats both read and write."""
    kinds = [registry.find("format", name) for name in formats]
    return frozenset.intersection(*(kind.reads & kind.writes for kind in kinds))


def meaning(name: str, text: str | None, kept: frozenset[Feature]) -> Any:
    if text is None:
        return None
    logical = TABLE.column(name).logical
    if logical.kind == "bytes":
        # Spelled in the format's own way where it can't be told from text.
        return text if Feature.BYTES in kept else "bytes"
    if logical.kind == "decimal":
        return Decimal(text)
    return logical.from_text(text)


def image_meaning(image: Mapping[str, Any] | None, kept: frozenset[Feature]) -> Any:
    if image is None:
        return None
    held = image if Feature.ABSENT in kept else dict.fromkeys(FIRST) | dict(image)
    return tuple(sorted((name, repr(meaning(name, value, kept))) for name, value in held.items()))


def event_meaning(op: str, micros: int | None, kept: frozenset[Feature]) -> int | None:
    unit = next((unit for feature, unit in PRECISIONS if feature in kept), None)
    if unit is None or micros is None or op == "heartbeat":
        # A heartbeat is of the moment when it is written.
        return None
    if op == "r" and Feature.READ_TIME not in kept:
        # Some formats write the time of capture where there is no other.
        return None
    # No format says more of a transaction's edges than milliseconds.
    unit = max(unit, 1_000) if op in ("begin", "end") else unit
    return micros // unit * unit


def row_meaning(row: Mapping[str, Any], kept: frozenset[Feature]) -> tuple[Any, ...]:
    op, table = row["op"], row["table"] or {}
    control = op in ("begin", "end", "heartbeat")
    transaction = row["transaction"] or {}
    return (
        op,
        "" if control else table["name"] or "",
        table["schema"] if not control and Feature.SCHEMA_NAME in kept else "",
        table["database"] if not control and Feature.DATABASE in kept else "",
        tuple((row["key"] or {}).items()) if Feature.KEY in kept and not control else (),
        image_meaning(row["before"], kept) if op == "d" or Feature.BEFORE in kept else None,
        image_meaning(row["after"], kept),
        event_meaning(op, row["event_micros"], kept),
        transaction.get("id") if Feature.TRANSACTION in kept else None,
        transaction.get("total_order") if Feature.TRANSACTION_ORDER in kept else None,
    )


def expected(kept: frozenset[Feature], came: frozenset[Feature] | None = None) -> Counter[tuple[Any, ...]]:
    """The changes as far as formats that carry `kept` can say them.

    Args:
        kept: what all of them carry.
        came: what the first of them carries, where there are two.
    """
    found: Counter[tuple[Any, ...]] = Counter()
    for given in CHANGES:
        row = dict(given)
        micros = (row["event_time"] - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        row["event_micros"] = micros
        # What the first one made a create of keeps its time in the second.
        if row["op"] == "r" and Feature.READ in (came or kept) and Feature.READ_TIME not in kept:
            row["event_micros"] = None
        if row["op"] in CONTROL and CONTROL[row["op"]] not in kept:
            continue
        if row["op"] == "r" and Feature.READ not in kept:
            row["op"] = "c"
        moved = row["op"] == "u" and row["before"]["id"] != row["after"]["id"]
        rows = [row]
        if moved and Feature.KEY_CHANGE not in kept:
            old = {"id": row["before"]["id"], "part": row["before"]["part"]}
            order = row["transaction"]["total_order"]
            second = {**row["transaction"], "total_order": order + 1}
            rows = [
                {**row, "op": "d", "key": old, "after": None},
                {**row, "op": "c", "before": None, "transaction": second},
            ]
        for made in rows:
            found[row_meaning(made, kept)] += 1
    return found


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


class Way:
    """Encodes and decodes with what each format needs."""

    def __init__(self, registry_url: str) -> None:
        self.registry = {name: {"registry": registry_url} for name in ("debezium_avro", "qlik_avro")}

    def encode(self, rows: DataFrame, format: str) -> DataFrame:
        return encode(rows, format=format, **ENCODING.get(format, {}), **self.registry.get(format, {}))

    def decode(self, messages: DataFrame, format: str, **options: Any) -> DataFrame:
        given = {**DECODING.get(format, {}), **self.registry.get(format, {}), **options}
        return decode(messages, format=format, **given)


@pytest.fixture(scope="module")
def way() -> Iterator[Way]:
    from headrace_emulators.schema_registry.server import SchemaRegistryServer

    # Each source has other types for the same table.
    with SchemaRegistryServer(level="NONE") as server:
        yield Way(server.url)


def as_messages(messages: DataFrame, first: int = 0) -> DataFrame:
    """Encoded messages as Kafka would give them back, in order, without a broker; offsets begin with `first`."""
    lines = sorted(messages.collect(), key=lambda line: line.position)
    data = [
        (m.topic, 0, n, TIME, m.key, m.value, [(h.key, h.value) for h in m.headers or ()])
        for n, m in enumerate(lines, first)
    ]
    kinds = (
        "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
        "headers array<struct<key:string,value:binary>>"
    )
    return local_rows(messages.sparkSession, data, kinds)


@pytest.fixture(scope="module")
def through_kafka(
    spark: SparkSession, way: Way, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, DataFrame]]:
    """The changes in every format, sent through a broker, as decoded change rows by format."""
    from headrace_emulators.kafka.broker import KafkaBroker

    changes = changes_frame(spark).cache()
    with KafkaBroker(tmp_path_factory.mktemp("broker")) as broker:
        for format in FORMATS:
            messages = way.encode(changes, format).orderBy("position")
            named = messages.selectExpr(f"concat('{format}-', topic) as topic", "key", "value", "headers").coalesce(1)
            kafka = named.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
            kafka.option("includeHeaders", "true").save()
        read = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        sent = read.option("subscribePattern", ".*-.*").option("includeHeaders", "true").load().cache()
        sent.count()
        found = {}
        for format in FORMATS:
            mine = sent.where(f"startswith(topic, '{format}-')")
            mine = mine.withColumn("topic", mine.topic.substr(len(format) + 2, 1000))
            found[format] = way.decode(mine, format).cache()
        yield found


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
