"""Db2's data types: how they are declared, shown in the catalog, kept in SQLite and given to the driver."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from headrace_emulators.db2.errors import (
    DataError,
    bad_moment,
    not_convertible,
    not_emulated,
    overflow,
    syntax_error,
    too_long,
)

_SIZES = {"K": 1024, "M": 1024**2, "G": 1024**3}
_DECLARATION = re.compile(
    r"\s*([A-Z][A-Z ]*?)\s*(?:\(\s*(\d+)\s*([KMG])?\s*(?:CODEUNITS32|OCTETS)?\s*(?:,\s*(\d+)\s*)?\))?"
    r"(\s+FOR\s+BIT\s+DATA)?\s*",
    re.IGNORECASE,
)
_SYNONYMS = {
    "INT": "INTEGER", "DEC": "DECIMAL", "NUMERIC": "DECIMAL", "CHAR": "CHARACTER", "CHARACTER VARYING": "VARCHAR",
    "CHAR VARYING": "VARCHAR", "FLOAT": "DOUBLE", "DOUBLE PRECISION": "DOUBLE", "CHARACTER LARGE OBJECT": "CLOB",
    "BINARY LARGE OBJECT": "BLOB",
}  # fmt: skip
_INTEGERS = {"SMALLINT": 2, "INTEGER": 4, "BIGINT": 8}
_TEXTS = frozenset(("CHARACTER", "VARCHAR", "LONG VARCHAR", "CLOB", "GRAPHIC", "VARGRAPHIC", "DBCLOB", "XML"))
_BINARIES = frozenset(("BINARY", "VARBINARY", "BLOB"))
_OTHERS = frozenset(("REAL", "DOUBLE", "DECIMAL", "DECFLOAT", "DATE", "TIME", "TIMESTAMP", "BOOLEAN"))
_LARGE = {"CLOB": 2**31 - 1, "BLOB": 2**31 - 1, "DBCLOB": 2**30 - 1, "LONG VARCHAR": 32700, "XML": 0}
_WIDE = Context(prec=80)
Converter = Callable[[object], object]


@dataclass(frozen=True)
class Db2Type:
    """A declared type.

    Args:
        name: as the catalog spells it, in capitals.
        length: characters, bytes or digits.
        scale: digits after the point, or of a second.
        bits: FOR BIT DATA.
    """

    name: str
    length: int = 0
    scale: int = 0
    bits: bool = False

    @property
    def binary(self) -> bool:
        return self.bits or self.name in _BINARIES

    @property
    def numeric(self) -> bool:
        """Whether values are numbers that are kept as text, with all their digits."""
        return self.name in ("DECIMAL", "DECFLOAT")

    @property
    def column(self) -> str:
        if self.binary:
            return "BLOB"
        if self.name in _INTEGERS or self.name == "BOOLEAN":
            return "INTEGER"
        if self.name in ("REAL", "DOUBLE"):
            return "REAL"
        return f"TEXT COLLATE {'db2_number' if self.numeric else 'db2_text'}"

    @property
    def catalogued(self) -> tuple[str, int, int, int]:
        """TYPENAME, LENGTH, SCALE and CODEPAGE, as SYSCAT.COLUMNS has them."""
        codepage = 0 if self.binary or self.name not in _TEXTS else 1200 if "GRAPHIC" in self.name else 1208
        length = self.length
        if self.name in _INTEGERS:
            length = _INTEGERS[self.name]
        elif self.name == "DECFLOAT":
            length = 8 if self.length == 16 else 16
        elif self.name in ("REAL", "DOUBLE", "DATE", "TIME", "BOOLEAN"):
            length = {"REAL": 4, "DOUBLE": 8, "DATE": 4, "TIME": 3, "BOOLEAN": 1}[self.name]
        elif self.name == "TIMESTAMP":
            length = 7 + (self.scale + 1) // 2
        return self.name, length, self.scale, codepage

    @property
    def declaration(self) -> str:
        """The type as SQL writes it, as `parse_type` reads it."""
        if self.name == "DECIMAL":
            return f"DECIMAL({self.length},{self.scale})"
        if self.name == "TIMESTAMP":
            return f"TIMESTAMP({self.scale})"
        size = f"({self.length})" if self.length and self.name not in _INTEGERS else ""
        return f"{self.name}{size}{' FOR BIT DATA' if self.bits else ''}"

    @property
    def driver_name(self) -> str:
        """What the driver calls it, in `Cursor.description`."""
        return {
            "INTEGER": "INT", "CHARACTER": "STRING", "VARCHAR": "STRING", "LONG VARCHAR": "STRING", "GRAPHIC": "STRING",
            "VARGRAPHIC": "STRING", "BINARY": "STRING", "VARBINARY": "STRING",
        }.get(self.name, self.name)  # fmt: skip


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Db2Type:
    """Read a declaration such as `DECIMAL(10,2)` or `VARCHAR(16) FOR BIT DATA`.

    Raises:
        ProgrammingError: Db2 has no such type (SQL0104N).
    """
    found = _DECLARATION.fullmatch(text)
    name = " ".join(found[1].upper().split()) if found else ""
    name = _SYNONYMS.get(name, name)
    if found is None or name not in {*_INTEGERS, *_TEXTS, *_BINARIES, *_OTHERS}:
        raise syntax_error(text.strip())
    size = int(found[2]) * _SIZES.get((found[3] or "").upper(), 1) if found[2] else None
    scale = int(found[4] or 0)
    bits = bool(found[5])
    if name == "DECIMAL":
        precision = 5 if size is None else size
        if not 1 <= precision <= 31 or scale > precision:
            raise syntax_error(text.strip())
        return Db2Type(name, precision, scale)
    if name == "DECFLOAT":
        return Db2Type(name, 34 if size is None else size)
    if name == "TIMESTAMP":
        return Db2Type(name, 0, 6 if size is None else size)
    if name in _INTEGERS or name in ("REAL", "DOUBLE", "DATE", "TIME", "BOOLEAN"):
        return Db2Type("REAL" if name == "DOUBLE" and size is not None and size <= 24 else name)
    if name in _LARGE:
        return Db2Type(name, min(size, _LARGE[name]) if size else _LARGE[name], bits=bits)
    if size is None and name in ("VARCHAR", "VARGRAPHIC", "VARBINARY"):
        raise syntax_error(text.strip())
    return Db2Type(name, size or 1, bits=bits)


@lru_cache(maxsize=4096)
def converter(declaration: str, cut: bool = False) -> Converter:
    """What happens to a value on its way into a column, or by a CAST, which cuts texts that are too long.

    Values are what SQLite holds: integers, floats, texts in the stored spelling, bytes.
    """
    wanted = parse_type(declaration)
    inner = _converter(wanted, cut)
    return lambda value: None if value is None else inner(value)


def _converter(wanted: Db2Type, cut: bool) -> Converter:
    if wanted.name in _INTEGERS:
        return _integer(wanted.name)
    if wanted.binary:
        return _bytes(wanted, cut)
    if wanted.name == "DECIMAL":
        return _decimal(wanted)
    if wanted.name == "DECFLOAT":
        return _decfloat(wanted)
    if wanted.name in ("REAL", "DOUBLE"):
        return _float(wanted.name)
    if wanted.name == "BOOLEAN":
        return _boolean
    if wanted.name in ("DATE", "TIME", "TIMESTAMP"):
        return lambda value: moment_text(value, wanted.name, wanted.scale)
    return _text(wanted, cut)


def number(value: object, kind: str) -> Decimal:
    """A value as a number; raises SQL0420N."""
    try:
        if isinstance(value, str):
            return Decimal(value.strip())
        if isinstance(value, int):
            return Decimal(value)
        if isinstance(value, float):
            return Decimal(repr(value))
    except InvalidOperation:
        pass
    raise not_convertible(value, kind)


def _integer(name: str) -> Converter:
    limit = 1 << (8 * _INTEGERS[name] - 1)

    def convert(value: object) -> object:
        found = int(number(value, name).to_integral_value(ROUND_DOWN))
        if not -limit <= found < limit:
            raise overflow(name)
        return found

    return convert


def _decimal(wanted: Db2Type) -> Converter:
    limit = Decimal(10) ** (wanted.length - wanted.scale)
    step = Decimal(1).scaleb(-wanted.scale)

    def convert(value: object) -> object:
        found = number(value, wanted.declaration)
        if not found.is_finite():
            raise overflow(wanted.declaration)
        found = found.quantize(step, ROUND_DOWN, context=_WIDE)
        if abs(found) >= limit:
            raise overflow(wanted.declaration)
        return format(found if found else abs(found), "f")

    return convert


def _decfloat(wanted: Db2Type) -> Converter:
    context = Context(
        prec=wanted.length, Emax=384 if wanted.length == 16 else 6144, Emin=-383 if wanted.length == 16 else -6143
    )

    def convert(value: object) -> object:
        try:
            found = context.create_decimal(number(value, "DECFLOAT"))
        except (InvalidOperation, ArithmeticError):
            raise overflow("DECFLOAT") from None
        if found.is_infinite():
            return "-Infinity" if found < 0 else "Infinity"
        return "NaN" if found.is_nan() else str(found)

    return convert


def _float(name: str) -> Converter:
    def convert(value: object) -> object:
        found = float(number(value, name)) if isinstance(value, str) else float(value)  # type: ignore[arg-type]
        if not math.isfinite(found):
            raise overflow(name)
        if name == "DOUBLE":
            return found
        try:
            return float(struct.unpack("f", struct.pack("f", found))[0])
        except OverflowError:
            raise overflow(name) from None

    return convert


def _boolean(value: object) -> object:
    if isinstance(value, str) and value.strip().lower() in ("true", "false", "t", "f"):
        return int(value.strip().lower().startswith("t"))
    return int(number(value, "BOOLEAN") != 0)


def _text(wanted: Db2Type, cut: bool) -> Converter:
    padded = wanted.name in ("CHARACTER", "GRAPHIC")
    # VARCHAR counts bytes, GRAPHIC types double bytes.
    graphic = wanted.name in ("GRAPHIC", "VARGRAPHIC", "DBCLOB")
    limit = wanted.length

    def size(text: str) -> int:
        if text.isascii():
            return len(text)
        return len(text.encode("utf-16-be")) // 2 if graphic else len(text.encode())

    def convert(value: object) -> object:
        if isinstance(value, bytes):
            raise not_convertible(value.hex(), wanted.declaration)
        text = value if isinstance(value, str) else str(value)
        if limit and size(text) > limit:
            short = text.rstrip(" ") if not cut else text
            while cut and size(short) > limit:
                short = short[:-1]
            if size(short) > limit:
                raise too_long(text)
            text = short
        return text + " " * (limit - size(text)) if padded else text

    return convert


def _bytes(wanted: Db2Type, cut: bool) -> Converter:
    fill = b" " if wanted.bits else b"\0"

    def convert(value: object) -> object:
        if isinstance(value, str):
            value = value.encode()
        if not isinstance(value, bytes):
            raise not_convertible(value, wanted.declaration)
        if wanted.length and len(value) > wanted.length:
            if not cut:
                raise too_long(value.hex())
            value = value[: wanted.length]
        return value.ljust(wanted.length, fill) if wanted.name in ("CHARACTER", "BINARY") else value

    return convert


_MOMENT = re.compile(
    r"(?:(\d{4})-(\d\d)-(\d\d))?(?:[ T-])?(?:(\d\d)[.:](\d\d)(?:[.:](\d\d))?(?:[.,](\d{1,12}))?)?", re.ASCII
)


def moment_text(value: object, name: str, scale: int = 0) -> str:
    """A date, time or timestamp in the stored spelling; digits that the type lacks are cut, as Db2 does it.

    Raises:
        DataError: it is none (SQL0180N).
    """
    text = str(value).strip()
    found = _MOMENT.fullmatch(text) if text else None
    if found is None:
        raise bad_moment(value)
    year, month, day, hour, minute, second, fraction = found.groups()
    try:
        date = None if year is None else dt.date(int(year), int(month), int(day))
        midnight = hour == "24" and int(minute) == int(second or 0) == int(fraction or 0) == 0
        if hour is not None and not midnight:
            dt.time(int(hour), int(minute), int(second or 0))
    except ValueError:
        raise bad_moment(value) from None
    clock = f"{hour or '00'}:{minute or '00'}:{second or '00'}"
    if name == "TIME":
        if hour is None:
            raise bad_moment(value)
        return clock
    if date is None:
        raise bad_moment(value)
    if name == "DATE":
        return date.isoformat()
    tail = "." + (fraction or "").ljust(12, "0")[:scale] if scale else ""
    return f"{date.isoformat()} {clock}{tail}"


def bound(value: object) -> object:
    """A parameter as SQLite can hold it."""
    if value is None or isinstance(value, int | float | str | bytes):
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise not_emulated(f"parameters of the type {type(value).__name__}")


def given(kind: Db2Type) -> Callable[[Any], Any]:
    """What the driver makes of a stored value of a type; null stays null."""
    if kind.name == "DECIMAL":
        return Decimal
    if kind.name == "BLOB":
        return memoryview
    if kind.name == "DATE":
        return dt.date.fromisoformat
    if kind.name == "TIME":
        return dt.time.fromisoformat
    if kind.name == "TIMESTAMP":
        return lambda text: dt.datetime.fromisoformat(text[:26])
    if kind.name == "BOOLEAN":
        return bool
    return lambda value: value


def compare_numbers(a: str, b: str) -> int:
    """The order of decimals: NaN is above everything, and equal to itself."""
    x, y = _number_key(a), _number_key(b)
    return (x > y) - (x < y)


@lru_cache(maxsize=65536)
def _number_key(text: str) -> tuple[int, Decimal]:
    try:
        found = Decimal(text)
    except InvalidOperation:
        return (2, Decimal(0))
    return (1, Decimal(0)) if found.is_nan() else (0, found)


def compare_texts(a: str, b: str) -> int:
    """The order of an IDENTITY collation in UTF-8: code points, where blanks at the end do not count."""
    x, y = a.rstrip(" "), b.rstrip(" ")
    return (x > y) - (x < y)


def arithmetic(operator: str, a: Any, b: Any) -> Any:
    """An exact result of numbers that are kept as text; raises SQL0801N on a division by zero."""
    if a is None or b is None:
        return None
    x, y = number(a, "DECIMAL"), number(b, "DECIMAL")
    if operator == "/" and not y:
        raise DataError(-801, "22012", "Division by zero was attempted.")
    made = {"+": _WIDE.add, "-": _WIDE.subtract, "*": _WIDE.multiply, "/": _WIDE.divide}[operator](x, y)
    return format(made, "f")
