"""Partitions and sizes as Kafka's own classes give them, in the JVM of the tests' session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.changes.refusal import StopReason
from headrace.formats.base import MESSAGE_DDL
from headrace.sinks.kafka.limits import batch_size, checked, estimated_size, quickly_checked, sentence_of
from headrace.sinks.kafka.partitions import _spark_hash, murmur2, partition_of, task_of
from headrace.sinks.kafka.sink import in_order
from headrace.sinks.kafka.topics import Topic
from headrace.spark.local_rows import local_rows
from headrace.testing.change_history import pos

KEYS = (
    b"",
    b"\0",
    b"a",
    b"abcd",
    b'{"id":1004}',
    "Zürich 東京 😀".encode(),
    b"\xff",
    b"\xed\xa0\x80",
    b"\0\0\0\0\x07\xfe",
)
# What Kafka's own tests expect of Utils.murmur2.
KNOWN = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}


def hashes(spark: Any, keys: list[bytes]) -> list[int]:
    frame = local_rows(spark, [(n, key) for n, key in enumerate(keys)], "n int, key binary")
    return [row["h"] for row in frame.selectExpr("n", f"{murmur2('key')} as h").orderBy("n").collect()]


def test_known_hashes(spark: Any) -> None:
    assert hashes(spark, list(KNOWN)) == [number & 0x7FFFFFFF for number in KNOWN.values()]


@settings(max_examples=8)
@given(st.lists(st.one_of(st.binary(max_size=80), st.text(max_size=40).map(str.encode)), max_size=80))
def test_the_hash_of_any_key_is_kafkas(spark: Any, keys: list[bytes]) -> None:
    everything = [*KEYS, *keys]
    kafka = spark._jvm.org.apache.kafka.common.utils.Utils
    assert hashes(spark, everything) == [kafka.toPositive(kafka.murmur2(bytearray(key))) for key in everything]


def test_partitions_are_those_of_kafkas_partitioner(spark: Any) -> None:
    rows = [(topic, None, key) for topic in ("one", "many", "others") for key in KEYS]
    counts = {"one": 1, "many": 7, "others": 12}
    frame = local_rows(spark, rows, "topic string, partition int, key binary")
    builtin = spark._jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
    got = frame.selectExpr("topic", "key", f"{partition_of(counts, 5)} as p").collect()
    assert len(got) == len(rows)
    for row in got:
        assert row["p"] == builtin.partitionForKey(bytearray(row["key"]), counts[row["topic"]])


def test_a_named_partition_stays_and_no_key_goes_round_with_the_batches(spark: Any) -> None:
    rows = [(1, "t", 2, b"k"), (2, "t", None, None), (3, "t", None, None), (4, "u", None, None)]
    frame = local_rows(spark, rows, "n int, topic string, partition int, key binary")
    for batch, expected in ((0, [2, 0, 0, 0]), (5, [2, 1, 1, 2]), (4_000_000_007, [2, 3, 3, 2])):
        sql = partition_of({"t": 4, "u": 3}, batch)
        assert [row["p"] for row in frame.orderBy("n").selectExpr(f"{sql} as p").collect()] == expected


def test_a_spark_task_gets_its_share_of_partitions(spark: Any) -> None:
    from pyspark.sql.functions import expr

    numbers = [0, 1, 2, 77, 2**31 - 1]
    frame = local_rows(spark, [(n,) for n in numbers], "n int").selectExpr("n", "hash(n) as h")
    assert {row["n"]: row["h"] for row in frame.collect()} == {n: _spark_hash(n) for n in numbers}
    for tasks in (1, 3, 8):
        frame = spark.range(24).selectExpr("'t' as topic", "cast(id as int) as partition")
        parts = frame.repartition(tasks, expr(task_of(tasks))).rdd.glom().collect()
        assert [len(part) for part in parts] == [24 // tasks] * tasks


def test_each_partition_is_in_one_task_in_position_order(spark: Any) -> None:
    rows = [("t", None, f"k{n % 29}".encode() if n % 4 else None, str(n).encode(), None, pos(n)) for n in range(80)]
    frame = local_rows(spark, rows, MESSAGE_DDL).repartition(3, "position")
    parts = in_order(frame, 1, {"t": Topic(4, None)}).rdd.glom().collect()
    home: dict[int, int] = {}
    last: dict[int, int] = {}
    for task, part in enumerate(parts):
        for row in part:
            assert home.setdefault(row["partition"], task) == task
            assert last.get(row["partition"], -1) < int(row["value"])
            last[row["partition"]] = int(row["value"])
            assert row["key"] is not None or row["partition"] == 1
    assert set(home) == {0, 1, 2, 3}
    assert sum(len(part) for part in parts) == 80


HEADERS = [("a", b"x" * 70), ("é" * 40, None), ("n", b"")]
SIZES = [
    (None, None, None),
    (b"", b"", []),
    (b"k" * 63, b"v" * 64, [("h", b"v")]),
    (None, b"v" * 8191, HEADERS),
    (b"k" * 8192, b"v" * 1_100_000, HEADERS),
]


def test_sizes_are_those_of_kafkas_records(spark: Any) -> None:
    kafka = spark._jvm.org.apache.kafka.common
    none = kafka.record.CompressionType.NONE
    frame = local_rows(
        spark,
        [(n, *row) for n, row in enumerate(SIZES)],
        "n int, key binary, value binary, headers array<struct<key:string,value:binary>>",
    )
    got = frame.orderBy("n").selectExpr(f"{estimated_size()} as most", f"{batch_size()} as least").collect()
    for (key, value, headers), row in zip(SIZES, got, strict=True):
        made = spark._jvm.java.util.ArrayList()
        for name, content in headers or []:
            made.add(kafka.header.internals.RecordHeader(name, None if content is None else bytearray(content)))
        array = spark.sparkContext._gateway.new_array(kafka.header.Header, len(made))
        for n, header in enumerate(made):
            array[n] = header
        given_key = None if key is None else bytearray(key)
        given_value = None if value is None else bytearray(value)
        estimate = kafka.record.AbstractRecords.estimateSizeInBytesUpperBound
        assert row["most"] == estimate(2, none, given_key, given_value, array)
        record = kafka.record.SimpleRecord(0, given_key, given_value, array)
        records = spark.sparkContext._gateway.new_array(kafka.record.SimpleRecord, 1)
        records[0] = record
        assert (
            row["least"]
            == kafka.record.MemoryRecords.withRecords(kafka.compress.Compression.NONE, records).sizeInBytes()
        )


@pytest.mark.parametrize(
    ("producer", "limit", "value", "size", "named"),
    [
        ({}, None, 1_048_577, 1_048_674, "the producer's max.request.size of 1048576. Nothing"),
        ({"max.request.size": "2000000"}, 1_000_000, 1_000_000, 1_000_081, "its max.message.bytes of 1000000. Nothing"),
        ({"max.request.size": "500"}, 1_000_000, 500, 595, "the producer's max.request.size of 500. Nothing"),
        ({"max.request.size": "2000000", "compression.type": "zstd"}, 9, 2_000_000, 2_000_097, "of 2000000. Nothing"),
    ],
)
def test_a_message_that_is_too_large_is_named(
    spark: Any, producer: dict[str, str], limit: int | None, value: int, size: int, named: str
) -> None:
    from pyspark.errors import PySparkException

    sql = checked("0", producer, {"orders": limit})
    select = (
        "select 'orders' as topic, cast('{{\"id\":\\n7}}' as binary) as key, "
        "cast(repeat('x', {0}) as binary) as value, cast(null as array<struct<key:string,value:binary>>) as headers"
    )
    assert spark.sql(select.format(value - 200)).selectExpr(sql).collect()[0][0] == 0
    quick = quickly_checked("0", producer, {"orders": limit})
    assert spark.sql(select.format(min(value - 20_000, value // 2) if value > 20_000 else value // 5)).selectExpr(
        quick
    ).collect() == [(0,)]
    with pytest.raises(PySparkException, match=StopReason.MAYBE_TOO_LARGE):
        spark.sql(select.format(value)).selectExpr(quick).collect()
    with pytest.raises(PySparkException) as failure:
        spark.sql(select.format(value)).selectExpr(sql).collect()
    sentence = sentence_of(str(failure.value))
    assert sentence is not None
    assert sentence.startswith(f'A Kafka message for topic orders (key {{"id":?7}}) has {size} bytes, more than ')
    assert named in sentence
    assert "Raise " in sentence
