"""Debezium's wire values back to canonical text: what each Connect field means, and the Spark SQL that spells it.

The wire does not say how many fraction digits a column has, so times come with the digits of their unit (3, 6 or 9)
unless the table's structure is known. Exact numbers never pass through a double.

Source: spec/format_debezium.md, logical types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.changes import LogicalType
from headrace.changes.texts import float_text, moment_text

_INTEGERS = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}
_TWO_TO_64 = "18446744073709551616BD"
_TIMES = {
    "io.debezium.time.Time": ("time", 3),
    "io.debezium.time.MicroTime": ("time", 6),
    "io.debezium.time.NanoTime": ("time", 9),
    "org.apache.kafka.connect.data.Time": ("time", 3),
    "io.debezium.time.Timestamp": ("timestamp", 3),
    "io.debezium.time.MicroTimestamp": ("timestamp", 6),
    "io.debezium.time.NanoTimestamp": ("timestamp", 9),
    "org.apache.kafka.connect.data.Timestamp": ("timestamp", 3),
}
_DATES = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_TEXTS = {"io.debezium.data.Json": "json", "io.debezium.data.Xml": "xml", "io.debezium.data.Uuid": "uuid"}


@dataclass(frozen=True)
class FieldText:
    """How one field of a Connect schema is read.

    Args:
        logical: what its values mean.
        parsed: the Spark type that `from_json` reads it as.
        sql: Spark SQL from the parsed value (an SQL expression) to canonical text.
        replaceable: whether the unavailable-value placeholder may stand in it.
    """

    logical: LogicalType
    parsed: str
    sql: Callable[[str], str]
    replaceable: bool = False


def field_text(field: Mapping[str, Any], known: LogicalType | None = None) -> FieldText:
    """How a field is read; `known` is the column's own type, where the table's structure is given."""
    connect, name = field["type"], field.get("name")
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(field.get("parameters") or {})
    if name in _DATES:
        return FieldText(LogicalType("date"), "int", lambda v: f"cast(date_from_unix_date({v}) as string)")
    if name in _TIMES:
        kind, unit = _TIMES[name]
        digits = known.digits if known is not None else unit
        return FieldText(LogicalType(kind, digits), "bigint", lambda v: moment_text(v, kind, unit, digits))
    if name == "io.debezium.time.ZonedTimestamp":
        # Nine digits, because the text may have as many, and a type of fewer would cut it.
        return FieldText(known or LogicalType("zoned_timestamp", 9), "string", _as_is)
    if name == "io.debezium.time.IsoDate":
        return FieldText(LogicalType("date"), "string", lambda v: f"rtrim('Z', {v})")
    if name in ("io.debezium.time.IsoTime", "io.debezium.time.IsoTimestamp"):
        logical = known or LogicalType("time" if name.endswith("Time") else "timestamp", 9)
        return FieldText(logical, "string", lambda v: f"replace(rtrim('Z', {v}), 'T', ' ')")
    if connect in _INTEGERS:
        return FieldText(LogicalType(connect), _INTEGERS[connect], lambda v: f"cast({v} as string)")
    if connect in ("float", "double"):
        logical = LogicalType("float32" if connect == "float" else "float64")
        return FieldText(known or logical, connect, float_text)
    if connect == "boolean":
        return FieldText(LogicalType("boolean"), "boolean", lambda v: f"cast({v} as string)")
    if connect == "bytes":
        return FieldText(LogicalType("bytes"), "string", _as_is, replaceable=True)
    if connect == "string":
        return FieldText(known or LogicalType(_TEXTS.get(name or "", "string")), "string", _as_is, replaceable=True)
    return FieldText(LogicalType("nested"), "string", _as_is)


def _as_is(value: str) -> str:
    return value


def _decimal(parameters: Mapping[str, str]) -> FieldText:
    precision, scale = int(parameters.get("connect.decimal.precision", 38)), int(parameters.get("scale", 0))

    def sql(value: str) -> str:
        digits = f"hex(unbase64({value}))"
        sign = f"if({digits} >= '8', 'F', '0')"
        short = f"conv(lpad({digits}, 16, {sign}), 16, -10)"
        wide = f"lpad({digits}, 32, {sign})"
        high = f"cast(conv(substr({wide}, 1, 16), 16, -10) as decimal(19,0))"
        low = f"cast(conv(substr({wide}, 17), 16, 10) as decimal(20,0))"
        # Both halves get the sign, so that no step of the sum is larger than the sum.
        carry = f"if({digits} >= '8', 1, 0)"
        total = f"({high} + {carry}) * {_TWO_TO_64} + ({low} - {carry} * {_TWO_TO_64})"
        whole = f"if(length({digits}) <= 16, {short}, cast({total} as string))"
        if scale <= 0:
            return f"concat({whole}, '{'0' * -scale}')" if scale else whole
        pattern = f"^(-?)0*([0-9]+)([0-9]{{{scale}}})$"
        # Zeros behind the sign, so that there is always a digit before the point.
        return f"regexp_replace(regexp_replace({whole}, '^(-?)', '$1{'0' * scale}'), '{pattern}', '$1$2.$3')"

    return FieldText(LogicalType("decimal", precision, scale), "string", sql)
