"""DTS records as bytes, made by fastavro, so not by what is tested."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import fastavro
from codec_rows import rows_of
from pyspark.sql import DataFrame, SparkSession

from headrace.formats.codec import KAFKA_COLUMNS
from headrace.formats.dts.schemas import record_schema
from headrace.spark.local_rows import local_rows

DDL = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())
_SPACE = "com.alibaba.dts.formats.avro."
_NEW, _OLD = (fastavro.parse_schema(record_schema(born=born)) for born in (True, False))
_PARTS = ("year", "month", "day", "hour", "minute", "second", "millis")


def integer(text: Any) -> Any:
    return (_SPACE + "Integer", {"precision": 8, "value": str(text)})


def character(value: str | bytes, charset: str = "utf8mb4") -> Any:
    return (_SPACE + "Character", {"charset": charset, "value": value.encode() if isinstance(value, str) else value})


def decimal(text: str) -> Any:
    return (_SPACE + "Decimal", {"value": text, "precision": 0, "scale": 0})


def floating(number: float) -> Any:
    return (_SPACE + "Float", {"value": number, "precision": 0, "scale": 0})


def timestamp(seconds: int, micros: int) -> Any:
    return (_SPACE + "Timestamp", {"timestamp": seconds, "millis": micros})


def _parts(parts: Sequence[int | None]) -> dict[str, int | None]:
    return dict(zip(_PARTS, [*parts, *[None] * (7 - len(parts))], strict=True))


def date_time(*parts: int | None) -> Any:
    return (_SPACE + "DateTime", _parts(parts))


def zoned(zone: str, *parts: int | None) -> Any:
    return (_SPACE + "TimestampWithTimeZone", {"value": _parts(parts), "timezone": zone})


def typed(branch: str, type: str, value: str | bytes) -> Any:
    """A BinaryGeometry, TextGeometry, BinaryObject or TextObject."""
    return (_SPACE + branch, {"type": type, "value": value})


NULL, NONE = "NULL", "NONE"


def record(operation: str, before: Any = None, after: Any = None, **fields: Any) -> dict[str, Any]:
    """A record; the columns are `c0`, `c1`, .. of number 253 unless `fields` says otherwise."""
    values = next((image for image in (after, before) if isinstance(image, list)), None)
    named = None if values is None else [(f"c{n}", 253) for n in range(len(values))]
    source = {"sourceType": fields.pop("source", "MySQL"), "version": "8.0.28"}
    named = fields.pop("fields", named)
    return {
        "version": 0,
        "id": 7,
        "sourceTimestamp": 1_700_000_000,
        "sourcePosition": "72469@78",
        "safeSourcePosition": "72347@78",
        "sourceTxid": "0",
        "source": source,
        "operation": operation,
        "objectName": "db.t",
        "processTimestamps": None,
        "tags": {},
        "fields": named if not isinstance(named, list) else [{"name": n, "dataTypeNumber": k} for n, k in named],
        "beforeImages": before,
        "afterImages": after,
        "bornTimestamp": 1_700_000_001_000,
        **fields,
    }


def encoded(data: dict[str, Any], *, born: bool = True) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _NEW if born else _OLD, data)
    return out.getvalue()


def read(value: bytes) -> dict[str, Any]:
    """A record's bytes, which must be nothing else."""
    stream = io.BytesIO(value)
    data = fastavro.schemaless_reader(stream, _NEW, None, return_record_name=True)
    assert not stream.read()
    assert isinstance(data, dict)
    return data


def kafka(spark: SparkSession, values: Sequence[bytes | dict[str, Any] | None]) -> DataFrame:
    raw = [encoded(v) if isinstance(v, dict) else v for v in values]
    return local_rows(spark, [("t", 0, n, None, None, v, None) for n, v in enumerate(raw)], DDL).coalesce(1)


def decoded(values: Sequence[bytes | dict[str, Any] | None], **options: Any) -> list[Any]:
    """The rows in order, without those that announce structures and those of what is no event."""
    return [row for row in rows_without_spark(values, **options) if row.op is not None and not row.table_schema]


def rows_without_spark(values: Sequence[bytes | dict[str, Any] | None], **options: Any) -> list[Any]:
    """All rows that the codec gives."""
    raw = [encoded(v) if isinstance(v, dict) else v for v in values]
    return rows_of("dts_avro", [("t", 0, n, None, None, v, None) for n, v in enumerate(raw)], **options)
