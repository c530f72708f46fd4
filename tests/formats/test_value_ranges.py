"""Rule: no format loses a value at the ends of its type in silence.

Every format writes the first and last dates, times, numbers and what is no number as they are. The one wire type that
holds less than its column, Debezium's nanoseconds, has null there, or the nearest value where the column can't be NULL;
such values are counted with table, column and key. In a key they stop the query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from codec_rows import arrow_format, as_kafka, change_batch, events_of, sent
from pyspark.sql import DataFrame, SparkSession
from tests.support.format_ways import ENCODING, FORMATS, TIME, Way, as_messages

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL, spark_schema
from headrace.changes.typed import typed
from headrace.formats.codec import Facts, run_codec
from headrace.formats.convert import format_named
from headrace.formats.encoding import OutOfRange
from headrace.spark.local_rows import local_rows

BEYOND_NANOSECONDS = [
    ("timestamp(7)", "0001-01-01 00:00:00.0000000"),
    ("timestamp(7)", "9999-12-31 23:59:59.9999999"),
    ("timestamp(9)", "9999-12-31 23:59:59.999999999"),
    ("timestamp(9)", "1677-09-21 00:12:43.145224191"),
    ("timestamp(9)", "2262-04-11 23:47:16.854775808"),
]
HELD = [
    ("date", "0001-01-01"), ("date", "9999-12-31"),
    ("timestamp(0)", "0001-01-01 00:00:00"), ("timestamp(0)", "9999-12-31 23:59:59"),
    ("timestamp(3)", "0001-01-01 00:00:00.000"), ("timestamp(3)", "9999-12-31 23:59:59.999"),
    ("timestamp(6)", "0001-01-01 00:00:00.000000"), ("timestamp(6)", "9999-12-31 23:59:59.999999"),
    ("timestamp(9)", "1677-09-21 00:12:43.145225000"), ("timestamp(9)", "2262-04-11 23:47:16.854775807"),
    ("instant(6)", "0001-01-01T00:00:00.000000Z"), ("instant(6)", "9999-12-31T23:59:59.999999Z"),
    ("instant(9)", "9999-12-31T23:59:59.999999999Z"),
    ("zoned_timestamp(7)", "0001-01-01T00:00:00.0000001+14:00"),
    ("zoned_timestamp(7)", "9999-12-31T23:59:59.9999999-14:00"),
    ("time(7)", "23:59:59.9999999"), ("time(0)", "24:00:00"),
    ("time(6)", "-838:59:59.000000"), ("time(6)", "838:59:59.999999"),
    ("decimal(38,0)", "-" + "9" * 38), ("decimal(38,38)", "-0." + "9" * 38),
    ("decimal(65,30)", "9" * 35 + "." + "9" * 30), ("decimal", "9" * 45 + "." + "1" * 45),
    ("uint64", str(2**64 - 1)), ("int64", str(-(2**63))), ("int32", str(2**31 - 1)),
    ("int16", "-32768"), ("int8", "-128"),
    ("float32", "NaN"), ("float32", "-Infinity"), ("float32", "3.4028235e+38"),
    ("float64", "NaN"), ("float64", "Infinity"), ("float64", "1.7976931348623157e+308"), ("float64", "5e-324"),
    ("interval", "P178000000Y"), ("interval", "-P1Y2M3DT4H5M6.789S"),
]  # fmt: skip


@pytest.fixture(scope="module")
def way() -> Iterator[Way]:
    from headrace_emulators.schema_registry.server import SchemaRegistryServer

    with SchemaRegistryServer(level="NONE") as server:
        yield Way(server.url)


def table(values: Sequence[tuple[str, str]], *, nullable: bool = True, key: tuple[str, ...] = ("id",)) -> TableSchema:
    columns = [Column(f"c{n}", n + 2, LogicalType.parse(kind), nullable=nullable) for n, (kind, _) in enumerate(values)]
    identity = Column("id", 1, LogicalType("int32"), nullable=False)
    return TableSchema(TableId("shop", "dbo", "t"), (identity, *columns), key)


def lines(schema: TableSchema, values: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """The structure, and one row with a value per column."""
    image = {"id": "1", **{f"c{n}": text for n, (_, text) in enumerate(values)}}
    key = {name: image[name] for name in schema.key}
    common = {
        "table": {"database": "shop", "schema": "dbo", "name": "t"},
        "event_time": TIME,
        "capture_time": TIME,
        "schema_id": schema.fingerprint,
        "source": {"connector": "sqlserver"},
    }
    told = {**common, "op": "schema", "position": "0//", "table_schema": schema.to_text()}
    row = {**common, "op": "c", "position": "1//", "key": key, "key_text": "[1]", "after": image}
    return [told, row]


def changes(spark: SparkSession, schema: TableSchema, values: Sequence[tuple[str, str]]) -> DataFrame:
    names = [field.name for field in spark_schema()]
    rows = [tuple(line.get(name) for name in names) for line in lines(schema, values)]
    return local_rows(spark, rows, CHANGE_ROW_DDL)


def meaning(kind: str, text: str | None) -> str:
    """What a text means, whatever its spelling: zeros that end a fraction say nothing, nor does the Z of an instant."""
    if text is None:
        return "NULL"
    if kind.startswith("float"):
        return repr((np.float32 if kind == "float32" else np.float64)(text))
    if kind.startswith(("int", "uint", "decimal")) and kind[:8] not in ("interval", "instant("):
        return str(Decimal(text))
    clock = text.replace(" ", "T").removesuffix("Z")
    return re.sub(r"\.?0*(?=$|[+-]\d\d:\d\d$)", "", clock) if "." in clock and kind != "interval" else clock


WITH_REGISTRY = ("debezium_avro", "qlik_avro")


def there_and_back(request: pytest.FixtureRequest, format: str, schema: TableSchema, values: Any) -> list[Any]:
    """The row as it comes out of a format; only a registry needs a driver that asks it."""
    if format in WITH_REGISTRY:
        spark, way = request.getfixturevalue("spark"), request.getfixturevalue("way")
        messages = as_messages(way.encode(changes(spark, schema, values), format))
        rows: list[Any] = way.decode(messages, format, schema=[schema]).collect()
        return rows
    written = sent(format, change_batch(lines(schema, values)), [schema], **ENCODING.get(format, {}))
    return events_of(format, as_kafka(written), schema=[schema])


@pytest.mark.parametrize(
    "format", [pytest.param(f, marks=[pytest.mark.jvm] if f in WITH_REGISTRY else []) for f in FORMATS]
)
def test_the_ends_of_every_type_come_back_or_are_counted(request: pytest.FixtureRequest, format: str) -> None:
    values = HELD + BEYOND_NANOSECONDS
    schema = table(values)
    decoded = [row for row in there_and_back(request, format, schema, values) if row["op"] != "schema"]
    assert [row["op"] for row in decoded] == ["c"]
    found = decoded[0]["after"]
    for n, (kind, text) in enumerate(values):
        lost = format.startswith("debezium") and (kind, text) in BEYOND_NANOSECONDS
        assert meaning(kind, found[f"c{n}"]) == ("NULL" if lost else meaning(kind, text)), (kind, text, found[f"c{n}"])


@pytest.mark.parametrize("format", [f for f in FORMATS if f not in WITH_REGISTRY])
def test_values_that_a_format_does_not_hold_are_counted_by_table_and_column(format: str) -> None:
    values = [BEYOND_NANOSECONDS[1], HELD[8], BEYOND_NANOSECONDS[2]]
    schema = table(values)
    told, row = lines(schema, values)
    other = {**row, "key": {"id": "2"}, "after": {**row["after"], "id": "2", "c0": None}}
    codecs = arrow_format(format, **ENCODING.get(format, {}))
    encoder = codecs.encoder(codecs.prepare_encoding(Facts((schema,))))
    batch = change_batch([told, row, other]).append_column("has_types", pa.array([True] * 3))
    assert len(list(run_codec(encoder, [batch]))) > 0
    lost = {(schema.id, "c0"): 1, (schema.id, "c2"): 2}
    counted = encoder.out_of_range
    assert counted.columns == (lost if format == "debezium_json" else {})
    assert OutOfRange.of_texts([counted.to_text(), None, counted.to_text()]) == counted.plus(counted)


@pytest.mark.parametrize("images", ["maps", "structs"])
def test_what_nanoseconds_do_not_hold_is_counted_and_the_first_is_named(spark: SparkSession, images: str) -> None:
    # The nanoseconds of a typed column are a text, those of microseconds a number.
    values = [*BEYOND_NANOSECONDS, HELD[8], ("timestamp(6)", "9999-12-31 23:59:59.999999")]
    schema = table(values)
    rows = changes(spark, schema, values)
    options: dict[str, Any] = {"topic_prefix": "s", "time_precision_mode": "nanoseconds"}
    if images == "structs":
        rows, options["schema"] = typed(rows.where("op = 'c'"), schema), schema
    batch = format_named("debezium_json", options).encode_batch(rows)
    written = [json.loads(m.value)["after"] for m in batch.messages.collect() if b'"op":"c"' in bytes(m.value)]
    assert [list(after.values()).count(None) for after in written] == [len(BEYOND_NANOSECONDS) + 1]
    assert batch.out_of_range() == OutOfRange(
        {(schema.id, f"c{n}"): 1 for n in (0, 1, 2, 3, 4, 6)}, 'table dbo.t, column c0, key ["1"]'
    )


def test_where_a_column_has_no_null_the_nearest_value_stands(spark: SparkSession) -> None:
    schema = table(BEYOND_NANOSECONDS, nullable=False)
    batch = format_named("debezium_json", {"topic_prefix": "s", "include_schema_changes": False}).encode_batch(
        changes(spark, schema, BEYOND_NANOSECONDS)
    )
    (message,) = batch.messages.collect()
    first, last = -(2**63), 2**63 - 1
    assert list(json.loads(message.value)["after"].values()) == [1, first, last, last, first, last]
    assert batch.out_of_range().values == len(BEYOND_NANOSECONDS)


def test_in_a_key_it_stops_the_query(spark: SparkSession) -> None:
    values = BEYOND_NANOSECONDS[1:2]
    schema = table(values, nullable=False, key=("id", "c0"))
    batch = format_named("debezium_json", {"topic_prefix": "s"}).encode_batch(changes(spark, schema, values))
    with pytest.raises(Exception, match=r"table shop.dbo.t, column 'c0', key .* can't be written as .*NanoTimestamp"):
        batch.messages.collect()


def test_a_table_that_holds_all_its_values_is_not_watched(spark: SparkSession) -> None:
    schema = table(HELD[:8])
    batch = format_named("debezium_json", {"topic_prefix": "s"}).encode_batch(changes(spark, schema, HELD[:8]))
    assert (batch.observation, batch.out_of_range()) == (None, OutOfRange())
