"""The Avro schema of a DTS record: the only one that Alibaba DTS writes."""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import Any

from headrace.formats.avro_records import enum, optional, record

_NAMESPACE = "com.alibaba.dts.formats.avro"

SOURCE_TYPES = (
    "MySQL", "Oracle", "SQLServer", "PostgreSQL", "MongoDB", "Redis", "DB2", "PPAS", "DRDS", "HBASE", "HDFS", "FILE",
    "OTHER",
)  # fmt: skip
OPERATIONS = (
    "INSERT", "UPDATE", "DELETE", "DDL", "BEGIN", "COMMIT", "ROLLBACK", "ABORT", "HEARTBEAT", "CHECKPOINT", "COMMAND",
    "FILL", "FINISH", "CONTROL", "RDB", "NOOP", "INIT",
)  # fmt: skip

Branch = IntEnum(
    "Branch",
    "NULL INTEGER CHARACTER DECIMAL FLOAT TIMESTAMP DATE_TIME ZONED BINARY_GEOMETRY TEXT_GEOMETRY BINARY_OBJECT "
    "TEXT_OBJECT EMPTY",
    start=0,
)
"""The branches of a value's union."""


_record, _enum = partial(record, namespace=_NAMESPACE), partial(enum, namespace=_NAMESPACE)


def _values() -> list[Any]:
    parts = ("year", "month", "day", "hour", "minute", "second", "millis")
    date_time = _record("DateTime", *((part, optional("int")) for part in parts))
    for field in date_time["fields"]:
        field["default"] = None
    return [
        "null",
        _record("Integer", ("precision", "int"), ("value", "string")),
        _record("Character", ("charset", "string"), ("value", "bytes")),
        _record("Decimal", ("value", "string"), ("precision", "int"), ("scale", "int")),
        _record("Float", ("value", "double"), ("precision", "int"), ("scale", "int")),
        _record("Timestamp", ("timestamp", "long"), ("millis", "int")),
        date_time,
        _record("TimestampWithTimeZone", ("value", f"{_NAMESPACE}.DateTime"), ("timezone", "string")),
        _record("BinaryGeometry", ("type", "string"), ("value", "bytes")),
        _record("TextGeometry", ("type", "string"), ("value", "string")),
        _record("BinaryObject", ("type", "string"), ("value", "bytes")),
        _record("TextObject", ("type", "string"), ("value", "string")),
        _enum("EmptyObject", ("NULL", "NONE")),
    ]


def record_schema(*, born: bool = True) -> dict[str, Any]:
    """The schema of a record, as Avro's JSON.

    Args:
        born: with `bornTimestamp` at the end, as newer writers write it.
    """
    values = _values()
    names = ["null", *(f"{_NAMESPACE}.{branch['name']}" for branch in values[1:])]
    field = _record("Field", ("name", "string"), ("dataTypeNumber", "int"))
    record = _record(
        "Record",
        ("version", "int"),
        ("id", "long"),
        ("sourceTimestamp", "long"),
        ("sourcePosition", "string"),
        ("safeSourcePosition", "string"),
        ("sourceTxid", "string"),
        ("source", _record("Source", ("sourceType", _enum("SourceType", SOURCE_TYPES)), ("version", "string"))),
        ("operation", _enum("Operation", OPERATIONS)),
        ("objectName", optional("string")),
        ("processTimestamps", optional({"type": "array", "items": "long"})),
        ("tags", {"type": "map", "values": "string"}),
        ("fields", optional("string", {"type": "array", "items": field})),
        ("beforeImages", optional("string", {"type": "array", "items": values})),
        ("afterImages", optional("string", {"type": "array", "items": names})),
        ("bornTimestamp", "long"),
    )
    defaults: dict[str, Any] = {"safeSourcePosition": "", "sourceTxid": "", "tags": {}, "bornTimestamp": 0}
    defaults |= dict.fromkeys(("objectName", "processTimestamps", "fields", "beforeImages", "afterImages"))
    for described in record["fields"]:
        if described["name"] in defaults:
            described["default"] = defaults[described["name"]]
    if not born:
        record["fields"].pop()
    return record
