"""Db2's types: what they mean, how they are selected, and how their defaults are read.

Most are selected as text in our canonical text form: the driver cuts timestamps at microseconds, has had defects with
binary columns and with DECFLOAT, and can't tell XML from other text. The server's own conversions are exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.types import LogicalType, arrow_text, base64_texts

_LARGE_BYTES = 16_384
_HEX_BYTES = 16_336
"""The longest value that HEX takes: its result is a VARCHAR."""
_TEXTS = frozenset(("CHARACTER", "VARCHAR", "LONG VARCHAR", "CLOB", "GRAPHIC", "VARGRAPHIC", "DBCLOB"))
_BINARIES = frozenset(("BINARY", "VARBINARY", "BLOB"))
_LOBS = frozenset(("CLOB", "DBCLOB", "BLOB", "LONG VARCHAR", "XML"))
_NAMES_ON_ZOS = {
    "CHAR": "CHARACTER", "TIMESTMP": "TIMESTAMP", "VARG": "VARGRAPHIC", "VARBIN": "VARBINARY", "LONGVAR": "VARCHAR",
    "LONGVARG": "VARGRAPHIC", "TIMESTZ": "TIMESTAMP WITH TIME ZONE",
}  # fmt: skip


@dataclass(frozen=True)
class NativeType:
    """A column's declared type as the catalog has it.

    Args:
        name: base type name in capitals, as SYSCAT.COLUMNS writes it.
        size: characters, bytes or digits.
        scale: digits after the point, or fraction digits.
        bits: FOR BIT DATA.
    """

    name: str
    size: int
    scale: int
    bits: bool = False

    @classmethod
    def of_zos(cls, name: str, size: int, scale: int, bits: bool) -> NativeType:
        name = _NAMES_ON_ZOS.get(name, name)
        if name == "FLOAT":
            name = "REAL" if size == 4 else "DOUBLE"
        return cls(name, size, scale, bits)

    @property
    def supported(self) -> bool:
        return self.binary or self.name in _TEXTS or self.name in _TYPES

    @property
    def binary(self) -> bool:
        return self.name in _BINARIES or (self.bits and self.name in _TEXTS)

    @property
    def logical(self) -> LogicalType:
        if self.binary:
            return LogicalType("bytes")
        if self.name in _TEXTS:
            return LogicalType("string")
        return _TYPES[self.name].logical(self)

    @property
    def large(self) -> bool:
        """Never: a change table holds whole images."""
        return False

    @property
    def length(self) -> int | None:
        """What Debezium reports: precision of numbers, characters or bytes of texts."""
        if self.name == "DECIMAL" or self.name in _TEXTS or self.binary:
            return self.size
        if self.name == "DECFLOAT":
            return 16 if self.size == 8 else 34
        return _TYPES[self.name].length if self.name in _TYPES else None

    @property
    def shown_scale(self) -> int | None:
        """What Debezium reports: of decimals and timestamps."""
        return self.scale if self.name in ("DECIMAL", "TIMESTAMP") else None

    @property
    def jdbc_type(self) -> int:
        if self.bits and self.name in ("CHARACTER", "VARCHAR"):
            return -2 if self.name == "CHARACTER" else -3
        return _JDBC[self.name]

    @property
    def shown_name(self) -> str:
        """The name that the JDBC driver reports."""
        name = {"CHARACTER": "CHAR"}.get(self.name, self.name)
        return f"{name} () FOR BIT DATA" if self.bits and self.name in _TEXTS else name

    @property
    def declaration(self) -> str:
        if self.name == "DECIMAL":
            return f"DECIMAL({self.size},{self.scale})"
        if self.name == "DECFLOAT":
            return f"DECFLOAT({16 if self.size == 8 else 34})"
        if self.name == "TIMESTAMP":
            return f"TIMESTAMP({self.scale})"
        if self.name in ("CHARACTER", "VARCHAR", "GRAPHIC", "VARGRAPHIC", "BINARY", "VARBINARY"):
            return f"{self.name}({self.size}){' FOR BIT DATA' if self.bits else ''}"
        return self.name + {"CLOB": "(2G)", "BLOB": "(2G)", "DBCLOB": "(1G)"}.get(self.name, "")

    @property
    def width(self) -> int:
        """About how many bytes a value takes at the most; of a large one what it often takes."""
        return _LARGE_BYTES if self.name in _LOBS else max(self.size, 8)

    def projection(self, expression: str) -> str:
        if self.binary:
            if self.name == "BLOB":
                return expression
            return f"HEX({expression})" if self.size <= _HEX_BYTES else f"CAST({expression} AS BLOB(32672))"
        if self.name == "TIMESTAMP":
            fraction = f".FF{min(self.scale, 9)}" if self.scale else ""
            return f"VARCHAR_FORMAT({expression}, 'YYYY-MM-DD HH24:MI:SS{fraction}')"
        form = _TYPES.get(self.name)
        return expression if form is None or form.select is None else form.select.format(expression)

    @property
    def marker(self) -> str:
        """The parameter for a bound value, of the column's own type."""
        if self.binary:
            # A constant is FOR BIT DATA by itself.
            return f"CAST(? AS VARBINARY({self.size}))" if self.name in _BINARIES else "?"
        if self.name in ("SMALLINT", "INTEGER", "BIGINT"):
            return "?"
        if self.name in ("CHARACTER", "GRAPHIC"):
            return f"CAST(? AS {'VARCHAR' if self.name == 'CHARACTER' else 'VARGRAPHIC'}({self.size}))"
        return f"CAST(? AS {self.declaration})"

    def bound(self, text: str) -> object:
        """A canonical text as the parameter of `marker`."""
        value = self.logical.from_text(text) if self.logical.kind in _BOUND else text
        return float(text) if self.name in ("REAL", "DOUBLE") else value

    def to_json(self) -> list[Any]:
        """The arguments that make it again."""
        return [self.name, self.size, self.scale, self.bits]

    def texts(self, values: pa.Array) -> pa.Array:
        """Canonical text of a fetched column.

        Raises:
            ValueError: what was fetched is not what the type is fetched as.
        """
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), pa.string())
        logical = self.logical
        text = pa.types.is_string(values.type)
        if logical.kind == "bytes":
            return base64_texts(_of_hex(values) if text else values)
        if self.name == "DECFLOAT":
            return _plain(values)
        if logical.kind == "decimal" and text:
            return arrow_text(values.cast(pa.decimal128(self.size, self.scale)), logical)
        if logical.kind == "boolean" and pa.types.is_integer(values.type):
            return arrow_text(values.cast(pa.bool_()), logical)
        if not any(fits(values.type) for fits in _FETCHED[logical.kind]):
            raise ValueError(f"{values.type} was fetched for {self.name}")
        return arrow_text(values, logical)


_BOUND = frozenset(("int16", "int32", "int64", "bytes"))
_FETCHED: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "boolean": (pa.types.is_boolean,),
    "int16": (pa.types.is_integer,),
    "int32": (pa.types.is_integer,),
    "int64": (pa.types.is_integer,),
    "float32": (pa.types.is_floating,),
    "float64": (pa.types.is_floating,),
    "decimal": (pa.types.is_decimal,),
    "string": (pa.types.is_string,),
    "xml": (pa.types.is_string,),
    "date": (pa.types.is_string,),
    "time": (pa.types.is_string,),
    "timestamp": (pa.types.is_string,),
}
"""The Arrow types in which values of a logical type come; a double for a decimal would have lost digits already."""


@dataclass(frozen=True)
class _Type:
    logical: Callable[[NativeType], LogicalType]
    length: int | None = None
    select: str | None = None


def _fixed(kind: str) -> Callable[[NativeType], LogicalType]:
    return lambda native: LogicalType(kind)


_TYPES: dict[str, _Type] = {
    "SMALLINT": _Type(_fixed("int16"), 5),
    "INTEGER": _Type(_fixed("int32"), 10),
    "BIGINT": _Type(_fixed("int64"), 19),
    "REAL": _Type(_fixed("float32"), 24),
    "DOUBLE": _Type(_fixed("float64"), 53),
    "DECIMAL": _Type(lambda native: LogicalType("decimal", native.size, native.scale)),
    "DECFLOAT": _Type(_fixed("decimal"), None, "CAST({} AS VARCHAR(64))"),
    "DATE": _Type(_fixed("date"), 10, "CHAR({}, ISO)"),
    "TIME": _Type(lambda native: LogicalType("time", 0), 8, "CHAR({}, JIS)"),
    "TIMESTAMP": _Type(lambda native: LogicalType("timestamp", min(native.scale, 9)), 26),
    "XML": _Type(_fixed("xml"), 0, "XMLSERIALIZE({} AS CLOB(2G))"),
    "BOOLEAN": _Type(_fixed("boolean"), 1),
}
_JDBC = {
    "SMALLINT": 5, "INTEGER": 4, "BIGINT": -5, "REAL": 7, "DOUBLE": 8, "DECIMAL": 3, "DECFLOAT": 1111, "CHARACTER": 1,
    "VARCHAR": 12, "LONG VARCHAR": -1, "GRAPHIC": 1, "VARGRAPHIC": 12, "CLOB": 2005, "DBCLOB": 2005, "BLOB": 2004,
    "BINARY": -2, "VARBINARY": -3, "DATE": 91, "TIME": 92, "TIMESTAMP": 93, "XML": 2009, "BOOLEAN": 16,
}  # fmt: skip


def _of_hex(values: pa.Array) -> pa.Array:
    """Bytes of hexadecimal digits. Per-row Python: Arrow has no such conversion, and binary columns are few."""
    return pa.array([None if v is None else bytes.fromhex(v) for v in values.to_pylist()], pa.binary())


def _plain(values: pa.Array) -> pa.Array:
    """DECFLOAT values without exponents.

    Raises:
        ValueError: a value is not a finite number, which has no canonical text.
    """
    encoded = pc.dictionary_encode(values.cast(pa.string()))
    words = []
    for text in encoded.dictionary.to_pylist():
        number = Decimal(text.strip())
        if not number.is_finite():
            raise ValueError("a DECFLOAT that is not a finite number")
        words.append(format(number, "f"))
    return pa.array(words, pa.string()).take(encoded.indices)


_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_STRING = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)


def constant_default(expression: str | None, native: NativeType) -> str | None:
    """A column default as canonical text, where it is a constant of the column's type; None for registers and NULL."""
    if expression is None or not native.supported or native.binary:
        return None
    text = expression.strip()
    kind = native.logical.kind
    string = _STRING.fullmatch(text)
    inner = string[1].replace("''", "'") if string else text
    try:
        if kind in ("string", "xml"):
            return (inner.ljust(native.size) if native.name in ("CHARACTER", "GRAPHIC") else inner) if string else None
        if kind == "boolean":
            return text.lower() if text.lower() in ("true", "false") else None
        if kind in ("date", "time", "timestamp"):
            return None
        if not _NUMBER.fullmatch(inner):
            return None
        number = Decimal(inner)
        if kind.startswith("int"):
            return str(int(number)) if number == int(number) else None
        if kind in ("float32", "float64"):
            return native.logical.to_text(float(number))
        return native.logical.to_text(number)
    except (ValueError, InvalidOperation):
        return None
