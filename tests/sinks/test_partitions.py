"""A table with partitions is what it would be without: rows are told apart as its format computes it, whoever writes,
whatever is in the values, and where a row's values change it moves."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.lake_mirror import made

from headrace.changes import TableId
from headrace.errors import OptionError, SchemaError
from headrace.sinks.lake import collected
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.sinks.lake.iceberg.sink import IcebergSink
from headrace.sinks.lake.key_index import Bounded
from headrace.sinks.lake.partitions import PartitionField, Partitioning, parse_field, partitioning_of
from headrace.testing.change_history import Batch, Model, table

MOMENT = pa.timestamp("us")
OF_VALUES: list[tuple[str, pa.Array, list[Any]]] = [
    ("a", pa.array(["x", None]), ["x", None]),
    ("year(a)", pa.array([dt.date(1969, 12, 31), dt.date(2017, 11, 16), None]), [-1, 47, None]),
    ("month(a)", pa.array([dt.date(1969, 12, 31), dt.date(2017, 11, 16)]), [-1, 574]),
    ("day(a)", pa.array([-1, 86_400_000_000], MOMENT), [-1, 1]),
    ("hour(a)", pa.array([-1, 3_600_000_000, None], MOMENT), [-1, 1, None]),
    ("truncate(10, a)", pa.array([1, -1, -10, None], pa.int32()), [0, -10, -10, None]),
    ("truncate(10, a)", pa.array([-(2**31)], pa.int32()), [2**31 - 2]),
    ("truncate(50, a)", pa.array([Decimal("10.65"), Decimal("-0.05")]), [Decimal("10.50"), Decimal("-0.50")]),
    ("truncate(3, a)", pa.array(["iceberg", "é\U0001f600xyz", ""]), ["ice", "é\U0001f600x", ""]),
    ("truncate(3, a)", pa.array([b"\x01\x02\x03\x04\x05", b""]), [b"\x01\x02\x03", b""]),
    # The hashes are those of Iceberg's specification.
    ("bucket(2147483647, a)", pa.array([34, None], pa.int32()), [2017239379, None]),
    ("bucket(2147483647, a)", pa.array([Decimal("14.20")]), [-500754589 & 0x7FFFFFFF]),
    ("bucket(2147483647, a)", pa.array([dt.date(2017, 11, 16)]), [-653330422 & 0x7FFFFFFF]),
    ("bucket(2147483647, a)", pa.array([dt.datetime(2017, 11, 16, 22, 31, 8)], MOMENT), [-2047944441 & 0x7FFFFFFF]),
    ("bucket(2147483647, a)", pa.array(["iceberg"]), [1210000089]),
    ("bucket(2147483647, a)", pa.array([b"\x00\x01\x02\x03"]), [-188683207 & 0x7FFFFFFF]),
]


@pytest.mark.parametrize(("text", "values", "expected"), OF_VALUES)
def test_a_partition_has_the_value_that_iceberg_computes(text: str, values: pa.Array, expected: list[Any]) -> None:
    field = PartitionField("a", *_parts(text))
    assert field.of(values).to_pylist() == expected


def _parts(text: str) -> tuple[str, int]:
    if text.startswith("bucket(2147483647"):
        return "bucket", 2147483647
    found = parse_field(text)
    assert found.column == "a"
    return found.transform, found.number


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_texts_of_all_lengths_have_the_buckets_that_each_has_alone(kind: pa.DataType) -> None:
    texts = [None if n % 5 == 3 else "é\U0001f600abcdefg"[: n % 9] * (n % 4) for n in range(60)]
    field, values = PartitionField("a", "bucket", 2147483647), pa.array(texts, pa.string()).cast(kind)
    alone = [field.of(values.slice(n, 1))[0].as_py() for n in range(len(values))]
    assert field.of(values).to_pylist() == alone
    assert field.of(values.slice(7)).to_pylist() == alone[7:]
    # As another writer of Murmur 3 has them.
    known = {
        "": 0,
        "a": 0x3C2569B2,
        "ab": 0x9BBFD75F,
        "abc": 0xB3DD93FA,
        "abcd": 0x43ED676A,
        "hello, world": 0x149BBB7F,
    }
    found = field.of(pa.array(known.keys(), pa.string()).cast(kind)).to_pylist()
    assert found == [value & 0x7FFFFFFF for value in known.values()]


def test_rows_are_split_by_all_values_and_keep_their_order() -> None:
    rows = pa.table({"a": ["x", None, "x", "None"], "n": pa.array([1, 1, 2, 1], pa.int32()), "at": [0, 1, 2, 3]})
    fields = (PartitionField("a"), PartitionField("n", "truncate", 10))
    found = {partition.values: part["at"].to_pylist() for partition, part in Partitioning(fields).split(rows)}
    assert found == {("x", 0): [0, 2], (None, 0): [1], ("None", 0): [3]}
    assert [part for _, part in Partitioning().split(rows)] == [rows]
    assert Partitioning(fields).split(rows.slice(0, 0)) == []


def test_a_name_counts_where_there_is_such_a_column() -> None:
    listed = ["region", "bucket(16, t.id)", "day( dbo.t.at )", "other.id"]
    found = partitioning_of(listed, TableId("db", "dbo", "t"), ["id", "at", "region"])
    assert found.ddl == " partitioned by (`region`, bucket(16, `id`), days(`at`))"
    assert partitioning_of(listed, TableId("db", "dbo", "u"), ["id"]).ddl == ""


@pytest.mark.parametrize("text", ["week(at)", "bucket(id)", "bucket(0, id)", "truncate(x, id)", "day()"])
def test_what_is_no_way_to_partition_a_table_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="no way to partition"):
        parse_field(text)


@pytest.mark.parametrize("given", ["a, bucket(16, id),day(at)", ["a", "bucket(16, id)", "day(at)"]])
def test_an_option_lists_columns_and_parts_of_columns(given: Any) -> None:
    sink = IcebergSink.of({"warehouse": "/lake", "partition_by": given})
    assert sink.settings.partition_by == ("a", "bucket(16, id)", "day(at)")


def test_delta_refuses_what_it_can_not_do() -> None:
    with pytest.raises(OptionError, match=r"'day\(at\)' is a part of one"):
        DeltaSink.of({"path": "/lake", "partition_by": "day(at)"})
    with pytest.raises(OptionError, match="has partitions or is clustered"):
        DeltaSink.of({"path": "/lake", "partition_by": "a", "cluster_by_key": True})


WIDE = {
    "region": "string",
    "day": "date",
    "flag": "boolean",
    "number": "int32",
    "amount": "decimal(9,2)",
    "local": "timestamp(6)",
    "instant": "instant(6)",
    "bytes": "bytes",
}
CELLS = {
    "region": ["EU", "a/b=c%20d", "null", "None", "é \U0001f600", ".", "~7e", "x" * 250, " a "],
    "day": ["0001-01-01", "1969-12-31", "9999-12-31"],
    "flag": ["true", "false"],
    "number": ["-2147483648", "-1", "7", "2147483647"],
    "amount": ["-0.05", "10.65", "0.00", "9999999.99", "-9999999.99"],
    "local": ["0001-01-01 00:00:00.000001", "1969-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"],
    "instant": ["1969-12-31T23:59:59.999999Z", "2024-02-29T12:00:00.000000Z"],
    "bytes": ["", "3q2+7w=="],
}
PARTS = {
    "delta": [
        ("region",),
        ("day", "flag"),
        ("number", "amount"),
    ],
    "iceberg": [
        ("region", "truncate(3, region)"),
        ("year(day)", "month(local)", "day(instant)"),
        ("hour(local)", "truncate(10, number)", "truncate(50, amount)"),
        ("bucket(3, region)", "bucket(5, amount)", "bucket(7, instant)"),
        ("day", "flag", "number", "amount", "local", "instant"),
        ("bucket(3, id)", "bucket(4, day)", "bucket(4, bytes)", "truncate(1, bytes)"),
    ],
}


@pytest.mark.smoke("delta-parts0", "iceberg-parts5")
@pytest.mark.parametrize(("kind", "parts"), [(kind, parts) for kind, all_parts in PARTS.items() for parts in all_parts])
def test_random_histories_of_tables_with_partitions_by_all_ways_give_equal_tables(
    spark: Any, tmp_path: Path, kind: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = random.Random(len(parts[0]))
    most = collected.MOST
    key = ("id", "region") if parts == ("region",) else ("id",)
    schema = table("t", key=key, id="int32", **WIDE)
    ways = {
        name: made(kind, spark, tmp_path / name, partition_by=list(parts), index_memory=memory)
        for name, memory in {"by index": 100, "by MERGE": 0, "mixed": 100}.items()
    }
    both, model, at = ways["mixed"].kept._indexes, Model(schema), 0
    for _ in range(4):
        batch = Batch(schema)
        for _ in range(some.randrange(1, 12)):
            cells = {name: some.choice(texts if name in key else [*texts, None]) for name, texts in CELLS.items()}
            if "region" in parts:
                # Spark can't write a folder with such a name.
                cells["region"] = "EU" if len(cells["region"] or "") > 200 else cells["region"]
            image = {"id": str(some.randrange(4)), **cells}
            at += 1
            batch.add(some.choice("uud"), schema, at, image)
            if batch.lines[-1]["op"] == "d":
                batch.lines[-1] |= {"before": image, "after": None}
        model.apply(batch.lines)
        ways["mixed"].kept._indexes = Bounded(0) if some.random() < 0.5 else both
        for name, mirror in ways.items():
            monkeypatch.setattr(collected, "MOST", 0 if name == "mixed" and some.random() < 0.5 else most)
            mirror.bring(batch)
        found = {name: mirror.frame() for name, mirror in ways.items()}
        assert found["by index"] == found["by MERGE"] == found["mixed"]
        assert len(found["mixed"]) == len(model.content())
    assert ways["by index"].kept._indexes.sizes() != {}


@pytest.mark.smoke("index")
@pytest.mark.parametrize(
    ("memory", "most"), [(100, collected.MOST), (0, collected.MOST), (100, 0)], ids=["index", "MERGE", "tasks"]
)
def test_a_partition_of_delta_has_no_empty_text_so_it_stops_or_is_null_where_that_is_said(
    spark: Any, tmp_path: Path, memory: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = table("t", id="int32", region="string")
    monkeypatch.setattr(collected, "MOST", most)
    mirror = made("delta", spark, tmp_path, partition_by="region", index_memory=memory)
    mirror.bring(Batch(schema).add("c", schema, 1, {"id": "1", "region": "EU"}))
    version = mirror.version()
    batch = Batch(schema).add("u", schema, 2, {"id": "1", "region": ""}).add("c", schema, 3, {"id": "2", "region": " "})
    with pytest.raises(SchemaError, match=r"'region'.* value  in the row id=1, for which a partition of a Delta table"):
        mirror.bring(batch)
    assert mirror.version() == version
    nulls = made("delta", spark, tmp_path, partition_by="region", index_memory=memory, unrepresentable="null")
    nulls.number = mirror.number
    nulls.bring(batch)
    assert nulls.kept.nulled() == {schema.id: {"region": 1}}
    assert nulls.target.content(schema) == [(1, None), (2, " ")]


def test_a_key_is_not_null_for_an_empty_text_whoever_made_the_partitions(spark: Any, tmp_path: Path) -> None:
    schema = table("t", key=("region",), id="int32", region="string")
    mirror = made("delta", spark, tmp_path, unrepresentable="null", takeover=True)
    location = mirror.target.path("t")
    spark.sql(
        f"create table delta.`{location}` (id int, region string not null, _headrace_position string) using delta "
        "partitioned by (region)"
    )
    with pytest.raises(SchemaError, match=r"a partition of a Delta table has no place.*a new target"):
        mirror.bring(Batch(schema).add("c", schema, 2, {"id": "1", "region": ""}))
