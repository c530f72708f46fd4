"""The Avro schema of a DTS record: the only one that Alibaba DTS writes.

spark-avro reads a union of records as a struct with one member per branch, `member0` for the first that is not null;
the names of the members below follow from the order of the branches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_NAMESPACE = "com.alibaba.dts.formats.avro"

SOURCE_TYPES = (
    "MySQL", "Oracle", "SQLServer", "PostgreSQL", "MongoDB", "Redis", "DB2", "PPAS", "DRDS", "HBASE", "HDFS", "FILE",
    "OTHER",
)  # fmt: skip
OPERATIONS = (
    "INSERT", "UPDATE", "DELETE", "DDL", "BEGIN", "COMMIT", "ROLLBACK", "ABORT", "HEARTBEAT", "CHECKPOINT", "COMMAND",
    "FILL", "FINISH", "CONTROL", "RDB", "NOOP", "INIT",
)  # fmt: skip

INTEGER, CHARACTER, DECIMAL, FLOAT, TIMESTAMP, DATE_TIME, ZONED, BINARY_GEOMETRY, TEXT_GEOMETRY, BINARY_OBJECT, \
    TEXT_OBJECT, EMPTY = (f"member{n}" for n in range(12))  # fmt: skip
"""The members of a value, in the order of the union's branches."""

TEXT, ARRAY = "member0", "member1"
"""The members of `fields`, `beforeImages` and `afterImages`."""

_PARTS = "year:int,month:int,day:int,hour:int,minute:int,second:int,millis:int"
MEMBERS: Mapping[str, str] = {
    INTEGER: "struct<precision:int,value:string>",
    CHARACTER: "struct<charset:string,value:binary>",
    DECIMAL: "struct<value:string,precision:int,scale:int>",
    FLOAT: "struct<value:double,precision:int,scale:int>",
    TIMESTAMP: "struct<timestamp:bigint,millis:int>",
    DATE_TIME: f"struct<{_PARTS}>",
    ZONED: f"struct<value:struct<{_PARTS}>,timezone:string>",
    BINARY_GEOMETRY: "struct<type:string,value:binary>",
    TEXT_GEOMETRY: "struct<type:string,value:string>",
    BINARY_OBJECT: "struct<type:string,value:binary>",
    TEXT_OBJECT: "struct<type:string,value:string>",
    EMPTY: "string",
}
"""The Spark type of each member of a value."""

VALUE = f"struct<{','.join(f'{name}:{kind}' for name, kind in MEMBERS.items())}>"
"""The Spark type of a value."""

IMAGE = f"struct<{TEXT}:string,{ARRAY}:array<{VALUE}>>"
FIELDS = f"struct<{TEXT}:string,{ARRAY}:array<struct<name:string,dataTypeNumber:int>>>"


def _record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    described = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": described}


def _enum(name: str, symbols: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "enum", "name": name, "namespace": _NAMESPACE, "symbols": list(symbols)}


def _optional(*kinds: Any) -> list[Any]:
    return ["null", *kinds]


def _values() -> list[Any]:
    parts = ("year", "month", "day", "hour", "minute", "second", "millis")
    date_time = _record("DateTime", *((part, _optional("int")) for part in parts))
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
        ("objectName", _optional("string")),
        ("processTimestamps", _optional({"type": "array", "items": "long"})),
        ("tags", {"type": "map", "values": "string"}),
        ("fields", _optional("string", {"type": "array", "items": field})),
        ("beforeImages", _optional("string", {"type": "array", "items": values})),
        ("afterImages", _optional("string", {"type": "array", "items": names})),
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


def record_text(*, born: bool = True) -> str:
    """The schema of a record as JSON text."""
    return json.dumps(record_schema(born=born), separators=(",", ":"))
