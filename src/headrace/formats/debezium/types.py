"""What the fields of a Connect schema mean: the logical type of each, and how its values are read.

Source: Debezium's documentation (data type mappings).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import FormatError
from headrace.formats.debezium import values as texts
from headrace.formats.debezium.values import FieldEncoding
from headrace.formats.debezium.wire_types import CONNECT_DECIMAL, TIME_UNITS, UUID, VARIABLE_DECIMAL, XML
from headrace.formats.registry.connect_avro import UNION
from headrace.wire.canonical_exact import MOST_DIGITS
from headrace.wire.json_writer import to_text

_INTEGERS = ("int8", "int16", "int32", "int64")
_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_MOMENTS = {
    name: (kind, digits)
    for digits, *names in TIME_UNITS.values()
    for kind, name in zip(("time", "timestamp"), names, strict=True)
}
"""Counts of time by the name of their schema: what they count, and in which unit."""
_DATES = (f"{_TIME}Date", f"{_CONNECT}Date")
_ISO = {f"{_TIME}IsoDate": "date", f"{_TIME}IsoTime": "time", f"{_TIME}IsoTimestamp": "timestamp"}
_NAMED = {
    "io.debezium.data.Json": "json",
    XML: "xml",
    UUID: "uuid",
    f"{_TIME}Interval": "interval",
}
_STRUCTURED = {
    f"{_TIME}StructuredDate": "date",
    f"{_TIME}StructuredTime": "time",
    f"{_TIME}StructuredTimestamp": "timestamp",
    f"{_TIME}StructuredZonedTimestamp": "zoned_timestamp",
}
# Values of generation 3 that carry a precision beyond any column's.
_MOST_PRECISION = 1_000_000
_SOURCE_COLUMN = "__debezium.source.column."


class FieldText(NamedTuple):
    """How one field of a Connect schema is read: what its values mean, and how they are written.

    The text form is None where values are canonical texts already.
    """

    logical: LogicalType
    encoding: FieldEncoding | None = None


def field_text(field: Mapping[str, Any], known: LogicalType | None = None, binary: str = "bytes") -> FieldText:
    """How a field is read.

    Args:
        field: its Connect schema.
        known: the column's own type, where the table's schema is given.
        binary: how bytes are written that stand as text, where `known` says that a text is bytes: `base64`,
            `base64-url-safe` or `hex`.

    Raises:
        ValueError: it is no Connect schema.
    """
    connect, name = field.get("type"), field.get("name")
    if name == CONNECT_DECIMAL:
        return _decimal(field.get("parameters") or {})
    if name == VARIABLE_DECIMAL:
        return FieldText(LogicalType("decimal"), FieldEncoding(texts.VARIABLE_DECIMAL))
    if name in _DATES:
        return FieldText(LogicalType("date"), FieldEncoding(texts.DATE))
    if name in _MOMENTS:
        kind, unit = _MOMENTS[name]
        code = texts.TIME if kind == "time" else texts.TIMESTAMP
        digits = known.digits if known is not None else -1
        return FieldText(LogicalType(kind, unit if known is None else digits), FieldEncoding(code, unit, digits))
    if name == f"{_TIME}ZonedTimestamp":
        # Nine digits, because the text may have as many, and a type of fewer would cut it.
        return FieldText(known or LogicalType("zoned_timestamp", 9))
    if name in _ISO:
        kind = _ISO[name]
        logical = LogicalType("date") if kind == "date" else known or LogicalType(kind, 9)
        return FieldText(logical, FieldEncoding(texts.ISO))
    if name in _STRUCTURED:
        kind = _STRUCTURED[name]
        return FieldText(known or LogicalType(kind, None if kind == "date" else 9), FieldEncoding(texts.STRUCTURED))
    if name in _NAMED:
        return FieldText(LogicalType(_NAMED[name]))
    return _plain(connect, field, known, binary)


def _plain(connect: Any, field: Mapping[str, Any], known: LogicalType | None, binary: str) -> FieldText:
    if connect in ("int64", "long") and known is not None and known.kind == "uint64":
        return FieldText(known, FieldEncoding(texts.UNSIGNED))
    if connect in _INTEGERS:
        return FieldText(LogicalType(connect), FieldEncoding(texts.INTEGER))
    if connect in ("float", "float32"):
        return FieldText(known or LogicalType("float32"), FieldEncoding(texts.FLOAT))
    if connect in ("double", "float64"):
        return FieldText(known or LogicalType("float64"), FieldEncoding(texts.FLOAT))
    if connect == "boolean":
        return FieldText(LogicalType("boolean"), FieldEncoding(texts.BOOLEAN))
    if connect == "bytes":
        return FieldText(LogicalType("bytes"))
    if connect == "string":
        if known is not None and known.kind == "bytes":
            code = {"hex": texts.HEX, "base64-url-safe": texts.URL_SAFE}.get(binary)
            return FieldText(known, None if code is None else FieldEncoding(code))
        return FieldText(known or LogicalType("string"))
    if connect == "array":
        items = field.get("items")
        inner = field_text(items, None, binary).encoding if isinstance(items, Mapping) else None
        # Elements whose JSON is already what it means stay as they are.
        if inner is None or inner.listed or inner.code in (texts.INTEGER, texts.BOOLEAN, texts.FLOAT):
            return FieldText(LogicalType("nested"))
        return FieldText(LogicalType("nested"), replace(inner, listed=True))
    if connect in ("struct", "map"):
        return FieldText(LogicalType("nested"))
    if connect == UNION:
        raise FormatError(
            f"Column '{field.get('field')}' has values of several Avro types, and of one a text would not say what it "
            "means (bytes, decimals, dates, times, or records beside others). Let the producer write one type and null."
        )
    raise ValueError(f"Connect has no type {connect!r}")


def _decimal(parameters: Mapping[str, Any]) -> FieldText:
    # One that no value can have stays one, and in a plan's 32 bits.
    most = MOST_DIGITS + 1
    scale = max(-most, min(int(parameters.get("scale") or 0), most))
    stated = parameters.get("connect.decimal.precision")
    # PostgreSQL's numeric(2,4) has more decimal places than digits, which no other type system knows.
    precision = min(max(int(stated), scale), _MOST_PRECISION) if stated else 38
    if scale > precision or scale < 0:
        return FieldText(LogicalType("decimal"), FieldEncoding(texts.DECIMAL, scale=scale))
    return FieldText(LogicalType("decimal", precision, scale), FieldEncoding(texts.DECIMAL, scale=scale))


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
        default=_default(field.get("default"), text.encoding),
    )


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, str)) and str(value).lstrip("-").isdigit() else None


def _default(value: Any, encoding: FieldEncoding | None) -> str | None:
    """The canonical text of a default in a schema; None without one, and where it can't be read."""
    if value is None:
        return None
    text = value if isinstance(value, str) else to_text(value)
    if encoding is None or encoding.listed:
        return text
    # As many digits as the unit has, also where they are zeros.
    return replace(encoding, digits=encoding.unit if encoding.digits < 0 else encoding.digits).text(text)


def table_of(id: TableId, fields: Sequence[Mapping[str, Any]], key: Sequence[str]) -> TableSchema:
    """The table schema that a row's Connect schema describes, without key fields that are not columns.

    Raises:
        ValueError: it is not a schema of a row, or two fields have one name.
    """
    columns = tuple(column_of(field, number) for number, field in enumerate(fields, 1))
    names = {column.name for column in columns}
    return TableSchema(id, columns, tuple(dict.fromkeys(name for name in key if name in names)))
