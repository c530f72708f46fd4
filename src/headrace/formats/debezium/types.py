"""What the fields of a Connect schema mean: the logical type of each, and how its values are read.

Source: Debezium's documentation (data type mappings).
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.formats.debezium import values as texts
from headrace.wire.canonical_exact import MOST_DIGITS

_INTEGERS = ("int8", "int16", "int32", "int64")
_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_MOMENTS = {
    f"{_TIME}Time": ("time", 3),
    f"{_TIME}MicroTime": ("time", 6),
    f"{_TIME}NanoTime": ("time", 9),
    f"{_CONNECT}Time": ("time", 3),
    f"{_TIME}Timestamp": ("timestamp", 3),
    f"{_TIME}MicroTimestamp": ("timestamp", 6),
    f"{_TIME}NanoTimestamp": ("timestamp", 9),
    f"{_CONNECT}Timestamp": ("timestamp", 3),
}
"""Counts of time by the name of their schema: what they count, and in which unit."""
_DATES = (f"{_TIME}Date", f"{_CONNECT}Date")
_ISO = {f"{_TIME}IsoDate": "date", f"{_TIME}IsoTime": "time", f"{_TIME}IsoTimestamp": "timestamp"}
_NAMED = {
    "io.debezium.data.Json": "json",
    "io.debezium.data.Xml": "xml",
    "io.debezium.data.Uuid": "uuid",
    f"{_TIME}Interval": "interval",
}
_DECIMAL = f"{_CONNECT}Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_STRUCTURED = {
    f"{_TIME}StructuredDate": "date",
    f"{_TIME}StructuredTime": "time",
    f"{_TIME}StructuredTimestamp": "timestamp",
    f"{_TIME}StructuredZonedTimestamp": "zoned_timestamp",
}
# Values of generation 3 that carry a precision beyond any column's.
_MOST_PRECISION = 1_000_000
_SOURCE_COLUMN = "__debezium.source.column."


@dataclass(frozen=True)
class FieldText:
    """How one field of a Connect schema is read.

    Args:
        logical: what its values mean.
        code: how a value is spelled, one of the numbers of `values`.
        unit: the fraction digits of a count of time.
        digits: those of its text; -1 for the unit's.
        scale: digits after the point.
        listed: whether the value is an array whose elements are read so.
    """

    logical: LogicalType
    code: int = texts.AS_IS
    unit: int = 6
    digits: int = -1
    scale: int = 0
    listed: bool = False

    @property
    def spelling(self) -> texts.Spelling | None:
        """What its values need to become canonical texts; None where they are already."""
        if self.code == texts.AS_IS:
            return None
        return texts.Spelling(self.code, self.unit, self.digits, self.scale, listed=self.listed)


def field_text(field: Mapping[str, Any], known: LogicalType | None = None, binary: str = "bytes") -> FieldText:
    """How a field is read.

    Args:
        field: its Connect schema.
        known: the column's own type, where the table's structure is given.
        binary: how bytes are written that stand as text, where `known` says that a text is bytes: `base64`,
            `base64-url-safe` or `hex`.

    Raises:
        ValueError: it is no Connect schema.
    """
    connect, name = field.get("type"), field.get("name")
    if name == _DECIMAL:
        return _decimal(field.get("parameters") or {})
    if name == _VARIABLE:
        return FieldText(LogicalType("decimal"), texts.VARIABLE_DECIMAL)
    if name in _DATES:
        return FieldText(LogicalType("date"), texts.DATE)
    if name in _MOMENTS:
        kind, unit = _MOMENTS[name]
        code = texts.TIME if kind == "time" else texts.TIMESTAMP
        digits = known.digits if known is not None else -1
        return FieldText(LogicalType(kind, unit if known is None else digits), code, unit, digits)
    if name == f"{_TIME}ZonedTimestamp":
        # Nine digits, because the text may have as many, and a type of fewer would cut it.
        return FieldText(known or LogicalType("zoned_timestamp", 9))
    if name in _ISO:
        kind = _ISO[name]
        logical = LogicalType("date") if kind == "date" else known or LogicalType(kind, 9)
        return FieldText(logical, texts.ISO)
    if name in _STRUCTURED:
        kind = _STRUCTURED[name]
        return FieldText(known or LogicalType(kind, None if kind == "date" else 9), texts.STRUCTURED)
    if name in _NAMED:
        return FieldText(LogicalType(_NAMED[name]))
    return _plain(connect, field, known, binary)


def _plain(connect: Any, field: Mapping[str, Any], known: LogicalType | None, binary: str) -> FieldText:
    if connect in _INTEGERS:
        return FieldText(LogicalType(connect), texts.INTEGER)
    if connect in ("float", "float32"):
        return FieldText(known or LogicalType("float32"), texts.FLOAT)
    if connect in ("double", "float64"):
        return FieldText(known or LogicalType("float64"), texts.FLOAT)
    if connect == "boolean":
        return FieldText(LogicalType("boolean"), texts.BOOLEAN)
    if connect == "bytes":
        return FieldText(LogicalType("bytes"))
    if connect == "string":
        if known is not None and known.kind == "bytes":
            return FieldText(known, {"hex": texts.HEX, "base64-url-safe": texts.URL_SAFE}.get(binary, texts.AS_IS))
        return FieldText(known or LogicalType("string"))
    if connect == "array":
        items = field.get("items")
        inner = field_text(items, None, binary) if isinstance(items, Mapping) else FieldText(LogicalType("nested"))
        # Elements whose JSON is already what it means stay as they are.
        same = inner.listed or inner.code in (texts.AS_IS, texts.INTEGER, texts.BOOLEAN, texts.FLOAT)
        if same:
            return FieldText(LogicalType("nested"))
        return FieldText(LogicalType("nested"), inner.code, inner.unit, inner.digits, inner.scale, listed=True)
    if connect in ("struct", "map"):
        return FieldText(LogicalType("nested"))
    raise ValueError(f"Connect has no type {connect!r}")


def _decimal(parameters: Mapping[str, Any]) -> FieldText:
    # One that no value can have stays one, and in a plan's 32 bits.
    most = MOST_DIGITS + 1
    scale = max(-most, min(int(parameters.get("scale") or 0), most))
    stated = parameters.get("connect.decimal.precision")
    # PostgreSQL's numeric(2,4) has more places than digits, which no other type system knows.
    precision = min(max(int(stated), scale), _MOST_PRECISION) if stated else 38
    if scale > precision or scale < 0:
        return FieldText(LogicalType("decimal"), texts.DECIMAL, scale=scale)
    return FieldText(LogicalType("decimal", precision, scale), texts.DECIMAL, scale=scale)


def column_of(field: Mapping[str, Any], position: int) -> Column:
    """The column that a field of a row's Connect schema describes.

    Raises:
        ValueError: it is no Connect schema of a field.
    """
    name = field.get("field")
    if not isinstance(name, str):
        raise ValueError("a field has no name")
    text = field_text(field)
    about = {k.removeprefix(_SOURCE_COLUMN): v for k, v in (field.get("parameters") or {}).items()}
    return Column(
        name,
        position,
        text.logical,
        native_type=str(about.get("type") or "").lower(),
        length=_whole(about.get("length")),
        scale=_whole(about.get("scale")) if "type" in about else None,
        nullable=bool(field.get("optional", False)),
        default=constant_text(field.get("default"), text),
    )


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, str)) and str(value).lstrip("-").isdigit() else None


def constant_text(value: Any, text: FieldText) -> str | None:
    """The canonical text of a default in a schema; null without one, and where it can't be read."""
    if value is None:
        return None
    try:
        return _constant(value, text)
    except (ValueError, OverflowError, TypeError, AttributeError):
        return None


def _constant(value: Any, text: FieldText) -> str:
    code = text.code
    if text.listed or isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, bool):
        return "true" if value else "false"
    if code == texts.DATE:
        return dt.date.fromordinal(value + dt.date(1970, 1, 1).toordinal()).isoformat()
    if code in (texts.TIME, texts.TIMESTAMP):
        return _moment(value, text)
    if code == texts.DECIMAL:
        number = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
        return text.logical.to_text(_scaled(number, text.scale)) if text.logical.precision else str(number)
    if code == texts.FLOAT:
        return text.logical.to_text(float(value))
    if code == texts.ISO:
        return str(value).rstrip("Z").replace("T", " ")
    return str(value)


def _scaled(number: int, scale: int) -> Any:
    from decimal import Decimal

    digits = tuple(map(int, str(abs(number))))
    return Decimal((number < 0, digits, -scale))


def _moment(value: int, text: FieldText) -> str:
    second, rest = divmod(value, 10**text.unit)
    fraction = str(rest).rjust(text.unit, "0")
    digits = text.unit if text.digits < 0 else text.digits
    tail = "." + fraction[:digits].ljust(digits, "0") if digits else ""
    if text.code == texts.TIME:
        return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}{tail}"
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=second)
    return f"{moment.year:04}-{moment:%m-%d %H:%M:%S}{tail}"


def table_of(id: TableId, fields: Sequence[Mapping[str, Any]], key: Sequence[str]) -> TableSchema:
    """The structure that a row's Connect schema describes; key fields that are no columns are left out.

    Raises:
        ValueError: it is no schema of a row, or two fields have one name.
    """
    columns = tuple(column_of(field, number) for number, field in enumerate(fields, 1))
    names = {column.name for column in columns}
    return TableSchema(id, columns, tuple(dict.fromkeys(name for name in key if name in names)))
