"""SQL Server's types: what they mean, how they are selected, and how their defaults are read.

Some types are selected as text in our canonical text form, because the driver would lose digits (Arrow timestamps stop
at microseconds), an offset (datetimeoffset) or the type (xml): the server's own CONVERT is exact.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.types import LogicalType, arrow_text

LARGE_NAMES = frozenset(("text", "ntext", "image", "xml"))
_LARGE_BYTES = 16_384
TEXT_NAMES = frozenset(("text", "ntext", "image"))
"""Types whose value a change table never holds for deletes and old images."""


@dataclass(frozen=True)
class NativeType:
    """A column's declared type as `sys.columns` has it.

    Args:
        name: base type name in lower case, alias types resolved.
        max_length: bytes, -1 for MAX.
        precision: digits.
        scale: digits after the point, or fraction digits.
        collation: that of a character column; empty where it does not matter or is not known.
    """

    name: str
    max_length: int
    precision: int
    scale: int
    collation: str = ""

    @property
    def supported(self) -> bool:
        return self.name in _TYPES

    @property
    def _type(self) -> _Type:
        return _TYPES[self.name]

    @property
    def logical(self) -> LogicalType:
        return self._type.logical(self)

    @property
    def jdbc_type(self) -> int:
        """java.sql.Types (or Microsoft's own) number, as schema-change events carry it."""
        return self._type.jdbc

    @property
    def length(self) -> int | None:
        """The length as JDBC's metadata gives it: digits, characters or bytes."""
        return self._type.length(self)

    @property
    def shown_scale(self) -> int | None:
        """The scale as JDBC's metadata gives it, None where it has none."""
        return self.scale if self._type.scaled else None

    @property
    def large(self) -> bool:
        """Whether a change may leave the value out when it did not change."""
        return self.name in LARGE_NAMES or self.max_length == -1

    def projection(self, column: str) -> str:
        """The SQL that fetches a (quoted) column without loss."""
        template = self._type.select
        if self.name == "datetime2" and self.scale <= 6:
            return column
        return column if template is None else template.format(column, scale=self.scale, precision=self.precision)

    @property
    def declaration(self) -> str:
        """The type as T-SQL declares it, to bind a key value with the column's own type."""
        return self._type.declare.format(
            name=self.name,
            precision=self.precision,
            scale=self.scale,
            bytes="max" if self.max_length == -1 else self.max_length,
            characters="max" if self.max_length == -1 else self.max_length // 2,
        )

    def bound(self, text: str | None) -> object:
        """What is bound as a parameter for a canonical text of this type; `declaration` casts it back.

        Binary is bound as bytes; everything else as text that SQL Server casts without loss.
        """
        if text is None:
            return None
        if self.logical.kind == "bytes":
            return self.logical.from_text(text)
        if self.name == "bit":
            return "1" if text == "true" else "0"
        if self.name in ("datetime", "smalldatetime"):
            # With a blank the login's language would decide which number is the month.
            return text.replace(" ", "T")
        return text

    @property
    def marker(self) -> str:
        """The parameter for a bound value, of the column's own type.

        Text comes as nvarchar, which is cast by the code page of its collation: the column's, not the database's.
        """
        collate = f" COLLATE {self.collation}" if self.collation and self.name in ("char", "varchar", "text") else ""
        return f"CAST(?{collate} AS {self.declaration})"

    @property
    def width(self) -> int:
        """About how many bytes a value takes at the most; of a large one what it often takes."""
        return _LARGE_BYTES if self.large else max(self.max_length, 8)

    def to_json(self) -> list[Any]:
        """The arguments that make it again."""
        return [self.name, self.max_length, self.precision, self.scale, self.collation]

    def texts(self, values: pa.Array) -> pa.Array:
        """Canonical text of a fetched column.

        Raises:
            ValueError: what was fetched is not what the type is fetched as.
        """
        logical = self.logical
        if not any(fits(values.type) for fits in _FETCHED[logical.kind]):
            raise ValueError(f"{values.type} was fetched for {self.name}")
        if self.name == "datetimeoffset":
            return _zoned_texts(values)
        return arrow_text(values, logical)


_TEXT = (pa.types.is_string, pa.types.is_large_string)
_FETCHED: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "boolean": (pa.types.is_boolean,),
    "int16": (pa.types.is_integer,),
    "int32": (pa.types.is_integer,),
    "int64": (pa.types.is_integer,),
    "float32": (pa.types.is_floating,),
    "float64": (pa.types.is_floating,),
    "decimal": (pa.types.is_decimal, pa.types.is_integer),
    "string": _TEXT,
    "xml": _TEXT,
    "uuid": _TEXT,
    "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
    "date": (pa.types.is_date32, *_TEXT),
    "time": (pa.types.is_time, *_TEXT),
    "timestamp": (pa.types.is_timestamp, *_TEXT),
    "zoned_timestamp": _TEXT,
}
"""The Arrow types in which values of a logical type come; a double for a decimal would have lost digits already."""


@dataclass(frozen=True)
class _Type:
    jdbc: int
    logical: Callable[[NativeType], LogicalType]
    length: Callable[[NativeType], int | None]
    scaled: bool = False
    select: str | None = None
    declare: str = "{name}"


def _fixed(kind: str) -> Callable[[NativeType], LogicalType]:
    return lambda native: LogicalType(kind)


def _decimal(native: NativeType) -> LogicalType:
    return LogicalType("decimal", native.precision, native.scale)


def _fraction(kind: str) -> Callable[[NativeType], LogicalType]:
    return lambda native: LogicalType(kind, native.scale)


def _characters(per: int) -> Callable[[NativeType], int | None]:
    return lambda native: 0x7FFFFFFF // per if native.max_length == -1 else native.max_length // per


def _clock(base: int) -> Callable[[NativeType], int | None]:
    return lambda native: base + (native.scale + 1 if native.scale else 0)


def _const(length: int | None) -> Callable[[NativeType], int | None]:
    return lambda native: length


_PRECISION = "{name}({precision},{scale})"
_SCALE = "{name}({scale})"
_TYPES: dict[str, _Type] = {
    "bit": _Type(-7, _fixed("boolean"), _const(1)),
    "tinyint": _Type(-6, _fixed("int16"), _const(3), scaled=True),
    "smallint": _Type(5, _fixed("int16"), _const(5), scaled=True),
    "int": _Type(4, _fixed("int32"), _const(10), scaled=True),
    "bigint": _Type(-5, _fixed("int64"), _const(19), scaled=True),
    "real": _Type(7, _fixed("float32"), _const(24)),
    "float": _Type(8, _fixed("float64"), _const(53)),
    "decimal": _Type(3, _decimal, lambda n: n.precision, True, None, _PRECISION),
    "numeric": _Type(2, _decimal, lambda n: n.precision, True, None, _PRECISION),
    "money": _Type(3, lambda n: LogicalType("decimal", 19, 4), _const(19), True, "CONVERT(decimal(19,4), {})"),
    "smallmoney": _Type(3, lambda n: LogicalType("decimal", 10, 4), _const(10), True, "CONVERT(decimal(10,4), {})"),
    "char": _Type(1, _fixed("string"), _characters(1), declare="{name}({bytes})"),
    "varchar": _Type(12, _fixed("string"), _characters(1), declare="{name}({bytes})"),
    "nchar": _Type(-15, _fixed("string"), _characters(2), declare="{name}({characters})"),
    "nvarchar": _Type(-9, _fixed("string"), _characters(2), declare="{name}({characters})"),
    "sysname": _Type(-9, _fixed("string"), _characters(2), declare="nvarchar({characters})"),
    "text": _Type(-1, _fixed("string"), _const(0x7FFFFFFF)),
    "ntext": _Type(-16, _fixed("string"), _const(0x3FFFFFFF)),
    "binary": _Type(-2, _fixed("bytes"), _characters(1), declare="{name}({bytes})"),
    "varbinary": _Type(-3, _fixed("bytes"), _characters(1), declare="{name}({bytes})"),
    "image": _Type(-4, _fixed("bytes"), _const(0x7FFFFFFF)),
    "timestamp": _Type(-2, _fixed("bytes"), _const(8), select="CONVERT(binary(8), {})", declare="binary(8)"),
    "rowversion": _Type(-2, _fixed("bytes"), _const(8), select="CONVERT(binary(8), {})", declare="binary(8)"),
    "date": _Type(91, _fixed("date"), _const(10), scaled=True),
    "time": _Type(92, _fraction("time"), _clock(8), True, None, _SCALE),
    "datetime": _Type(93, lambda n: LogicalType("timestamp", 3), _const(23), True),
    "smalldatetime": _Type(93, lambda n: LogicalType("timestamp", 0), _const(16), True),
    "datetime2": _Type(93, _fraction("timestamp"), _clock(19), True, "CONVERT(varchar(27), {}, 121)", _SCALE),
    "datetimeoffset": _Type(
        -155, _fraction("zoned_timestamp"), _clock(26), True, "CONVERT(varchar(34), {}, 121)", _SCALE
    ),
    "uniqueidentifier": _Type(1, _fixed("uuid"), _const(36), select="CONVERT(char(36), {})"),
    "xml": _Type(-16, _fixed("xml"), _const(0x7FFFFFFF), select="CONVERT(nvarchar(max), {})"),
    "clr": _Type(-3, _fixed("bytes"), _characters(1), select="CONVERT(varbinary(max), {})", declare="varbinary(max)"),
    "hierarchyid": _Type(-3, _fixed("bytes"), _characters(1), select="CONVERT(varbinary(892), {})"),
}


def _zoned_texts(values: pa.Array) -> pa.Array:
    """`2018-07-13 12:23:45.456 +11:00` as SQL Server writes it, to `2018-07-13T12:23:45.456+11:00`; UTC as Z."""
    texts = pc.replace_substring(values.cast(pa.string()), " ", "T", max_replacements=1)
    texts = pc.replace_substring(texts, " ", "")
    return pc.replace_substring_regex(texts, r"\+00:00$", "Z")


_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_STRING = re.compile(r"[nN]?'((?:[^']|'')*)'", re.DOTALL)


def constant_default(expression: str | None, native: NativeType) -> str | None:
    """A column default as canonical text, where it is a constant of the column's type; None for functions and NULL.

    SQL Server keeps defaults as text in parentheses: `((42))`, `(N'it''s')`, `(0x0A)`, `(getdate())`.
    """
    if expression is None or not native.supported:
        return None
    inner = _strip_parentheses(expression.strip())
    kind = native.logical.kind
    try:
        if _NUMBER.fullmatch(inner):
            return _number_default(Decimal(inner), native)
        if inner[:2].lower() == "0x" and kind == "bytes":
            data = bytes.fromhex(inner[2:] if len(inner) % 2 == 0 else "0" + inner[2:])
            return native.logical.to_text(data)
        match = _STRING.fullmatch(inner)
        if match is None:
            return None
        text = match[1].replace("''", "'")
        if kind in ("string", "xml"):
            return text
        if kind in ("date", "time", "timestamp", "zoned_timestamp"):
            return _temporal_default(text, native)
        if kind == "boolean" or kind.startswith(("int", "float")) or kind == "decimal":
            return _number_default(Decimal(text), native)
    except (ValueError, InvalidOperation):
        return None
    return None


def _number_default(number: Decimal, native: NativeType) -> str | None:
    kind = native.logical.kind
    if kind == "boolean":
        return "true" if number else "false"
    if kind.startswith("int"):
        return str(int(number)) if number == int(number) else None
    if kind in ("float32", "float64"):
        return native.logical.to_text(float(number))
    if kind == "decimal":
        return native.logical.to_text(round(number, native.logical.scale or 0))
    return None


_TEMPORAL = re.compile(
    r"(?:(\d{4}-\d\d-\d\d|\d{8}))?[ T]?(?:(\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,7}))?)?\s*(Z|[+-]\d\d:\d\d)?", re.IGNORECASE
)


def _temporal_default(text: str, native: NativeType) -> str | None:
    """A date or time literal in ISO text form, rounded to the column's precision as SQL Server rounds.

    Others are not guessed.
    """
    match = _TEMPORAL.fullmatch(text.strip())
    if match is None or not text.strip():
        return None
    day_text, clock_text, fraction, offset = match.groups()
    kind = native.logical.kind
    day = dt.date.fromisoformat(day_text or "1900-01-01")
    if kind == "date":
        return day.isoformat()
    clock = dt.time.fromisoformat(clock_text or "00:00:00")
    ticks = int((fraction or "").ljust(7, "0"))
    digits = native.logical.digits
    step = 10 ** (7 - digits)
    ticks = (ticks + step // 2) // step * step
    moment = dt.datetime.combine(day, clock) + dt.timedelta(seconds=ticks // 10**7)
    if native.name == "smalldatetime":
        moment = (moment + dt.timedelta(seconds=30)).replace(second=0)
    tail = "." + f"{ticks % 10**7:07}"[:digits] if digits else ""
    if kind == "time":
        return f"{moment:%H:%M:%S}{tail}"
    shown_day = f"{moment.year:04}-{moment.month:02}-{moment.day:02}"
    if kind == "timestamp":
        return f"{shown_day} {moment:%H:%M:%S}{tail}"
    zone = offset or "+00:00"
    return f"{shown_day}T{moment:%H:%M:%S}{tail}{'Z' if zone.upper() in ('Z', '+00:00', '-00:00') else zone}"


def _strip_parentheses(text: str) -> str:
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        for i, char in enumerate(text):
            depth += (char == "(") - (char == ")")
            if depth == 0 and i < len(text) - 1:
                return text
        text = text[1:-1].strip()
    return text
