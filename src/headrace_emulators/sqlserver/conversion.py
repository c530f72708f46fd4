"""Values of one type made values of another, as SQL Server's CAST, CONVERT and assignments do it.

Values here are what SQLite holds: integers, floats, texts in the stored spelling, bytes.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache

from headrace_emulators.sqlserver import clr_types, temporal
from headrace_emulators.sqlserver.errors import bad_date, conversion_failed, overflow, truncated
from headrace_emulators.sqlserver.types import SqlType, cast_type, parse_type

Converter = Callable[[object], object]

_RANGES = {
    "tinyint": (0, 255),
    "smallint": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
}
_MONEY_LIMITS = {"money": Decimal(2**63 - 1).scaleb(-4), "smallmoney": Decimal(2**31 - 1).scaleb(-4)}
_WIDE = Context(prec=80, rounding=ROUND_HALF_UP)


def bound(value: object) -> object:
    """A parameter as SQLite can hold it."""
    if value is None or isinstance(value, int | float | str | bytes):
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return temporal.of_datetime(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value).upper()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise conversion_failed(type(value).__name__, "a parameter")


@lru_cache(maxsize=4096)
def assigning(declaration: str, column: str) -> Converter:
    """What happens to a value on its way into a column: converted, rounded, padded, refused when it does not fit.

    Args:
        declaration: the column's type.
        column: its name, for messages.
    """
    return _converter(parse_type(declaration), column)


@lru_cache(maxsize=4096)
def casting(target: str, source: str, style: int) -> Converter:
    """CAST or CONVERT to a type. Texts too long are cut, as SQL Server does it.

    Args:
        target: the type wanted.
        source: the type of what is converted, empty when it is not known.
        style: CONVERT's third argument.
    """
    wanted = cast_type(target)
    known = parse_type(source) if source else None
    if wanted.family == "string":
        return _text_converter(wanted, known, style)
    if wanted.family == "binary":
        return _binary_converter(wanted, known, style)
    plain = _converter(wanted, "")

    def cast(value: object) -> object:
        if isinstance(value, bytes) and wanted.family not in ("clr", "variant"):
            return plain(_of_bytes(value, wanted))
        if isinstance(value, str) and known is not None and wanted.family == "int" and known.family == "decimal":
            return plain(int(Decimal(value)))
        if isinstance(value, float) and wanted.family == "int":
            return plain(math.trunc(value))
        return plain(value)

    return cast


def _of_bytes(value: bytes, wanted: SqlType) -> object:
    if wanted.family == "int":
        size = wanted.kind.bytes
        return int.from_bytes(value[-size:], "big", signed=len(value) >= size and wanted.name != "tinyint")
    if wanted.family == "bit":
        return int(any(value))
    if wanted.family == "guid" and len(value) >= 16:
        return str(uuid.UUID(bytes_le=value[:16])).upper()
    raise conversion_failed("binary", wanted.declaration)


def _converter(wanted: SqlType, column: str) -> Converter:
    family = wanted.family
    if family == "int":
        return _integer(wanted)
    if family == "bit":
        return _bit
    if family == "float":
        return _real if wanted.name == "real" else _float
    if family == "decimal":
        return _decimal(wanted)
    if family == "string":
        return _string(wanted, column)
    if family == "binary":
        return _binary(wanted, column)
    if family == "guid":
        return _guid
    if family == "clr":
        return _clr(wanted)
    if family == "variant":
        return lambda value: value
    return _moment(wanted)


def _number(value: object, target: str) -> Decimal:
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, str):
        try:
            return Decimal(value.strip() or "0")
        except InvalidOperation:
            raise conversion_failed("varchar", target) from None
    raise conversion_failed("varbinary", target)


def _integer(wanted: SqlType) -> Converter:
    low, high = _RANGES[wanted.name]
    name = wanted.name

    def convert(value: object) -> object:
        if not isinstance(value, int):
            if value is None:
                return None
            if isinstance(value, bytes):
                value = _of_bytes(value, wanted)
            elif isinstance(value, float):
                value = math.trunc(value)
            else:
                number = _number(value, name)
                if "." in str(value) and number != int(number):
                    raise conversion_failed("varchar", name)
                value = int(number)
        assert isinstance(value, int)
        if low <= value <= high:
            return value
        raise overflow(name)

    return convert


def _bit(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, str):
        lowered = value.strip().lower()
        if lowered in ("true", "false"):
            return int(lowered == "true")
    if isinstance(value, bytes):
        return int(any(value))
    return int(_number(value, "bit") != 0)


def _float(value: object) -> object:
    if value is None:
        return None
    number = float(_number(value, "float")) if isinstance(value, str) else value
    if not isinstance(number, int | float):
        raise conversion_failed("varbinary", "float")
    if not math.isfinite(number):
        raise overflow("float")
    return float(number)


def _real(value: object) -> object:
    number = _float(value)
    if number is None:
        return None
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        raise overflow("real") from None


def _decimal(wanted: SqlType) -> Converter:
    step = Decimal(1).scaleb(-wanted.scale)
    limit = Decimal(10) ** (wanted.precision - wanted.scale)
    money = _MONEY_LIMITS.get(wanted.name)

    def convert(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, str) and money is not None:
            value = value.replace(",", "").replace("$", "")
        number = _number(value, wanted.declaration).quantize(step, context=_WIDE)
        if number.copy_abs() >= limit or (money is not None and number.copy_abs() > money + step):
            raise overflow(wanted.declaration)
        return format(number if number else number.copy_abs(), "f")

    return convert


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return _float_text(value, 0)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value)


def _float_text(value: float, style: int) -> str:
    if style in (1, 2, 3):
        return f"{value:.{ {1: 7, 2: 15, 3: 16}[style] }e}"
    text = f"{value:.6g}"
    if "e" not in text:
        return text
    digits, exponent = text.split("e")
    return f"{digits}e{exponent[0]}{int(exponent[1:]):03d}"


def _units(text: str) -> int:
    """Length as SQL Server counts it: UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _string(wanted: SqlType, column: str) -> Converter:
    limit = wanted.length if wanted.name in ("varchar", "char", "nvarchar", "nchar") else -1
    padded = wanted.name in ("char", "nchar")

    def convert(value: object) -> object:
        if value is None:
            return None
        text = value if type(value) is str else _as_text(value)
        if limit != -1:
            size = _units(text)
            if size > limit:
                text = text.rstrip(" ").ljust(limit) if _units(text.rstrip(" ")) <= limit else text
                if _units(text) > limit:
                    raise truncated(column)
            elif padded and size < limit:
                return text + " " * (limit - size)
        return text

    return convert


def _binary(wanted: SqlType, column: str) -> Converter:
    limit = 8 if wanted.name == "timestamp" else wanted.length if wanted.name in ("binary", "varbinary") else -1
    padded = wanted.name in ("binary", "timestamp")

    def convert(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, int):
            value = value.to_bytes(8 if abs(value) >= 2**31 else 4, "big", signed=True)
        if not isinstance(value, bytes):
            raise conversion_failed("varchar", wanted.declaration)
        if limit != -1:
            if len(value) > limit:
                raise truncated(column)
            if padded:
                return value.ljust(limit, b"\0")
        return value

    return convert


def _clr(wanted: SqlType) -> Converter:
    def convert(value: object) -> object:
        if isinstance(value, str):
            return clr_types.stored(wanted.name, value)
        if value is None or isinstance(value, bytes):
            return value
        raise conversion_failed(type(value).__name__, wanted.name)

    return convert


def _guid(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, bytes):
        return str(uuid.UUID(bytes_le=value[:16])).upper()
    try:
        return str(uuid.UUID(str(value).strip(" {}"))).upper()
    except ValueError:
        raise conversion_failed("varchar", "uniqueidentifier") from None


def _moment(wanted: SqlType) -> Converter:
    kind, scale = wanted.name, wanted.scale

    def convert(value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, str):
            raise conversion_failed(type(value).__name__, kind)
        try:
            moment = temporal.parse(value)
            return temporal.to_text(moment, kind, scale)
        except ValueError:
            raise bad_date(wanted.declaration) from None

    return convert


def _text_converter(wanted: SqlType, known: SqlType | None, style: int) -> Converter:
    limit = wanted.length if wanted.name in ("varchar", "char", "nvarchar", "nchar") else -1
    padded = wanted.name in ("char", "nchar")

    def convert(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, bytes) and known is not None and known.family == "clr":
            text = str(clr_types.method(known.name, "TOSTRING", value))
        elif isinstance(value, bytes):
            text = value.decode("latin-1") if style == 0 else ("0x" if style == 1 else "") + value.hex().upper()
        elif isinstance(value, float):
            text = _float_text(value, style)
        elif known is not None and known.family in ("date", "time", "datetime", "offset"):
            text = _moment_text(str(value), known, style)
        elif known is not None and known.name in ("money", "smallmoney") and style == 0:
            text = format(Decimal(str(value)).quantize(Decimal("0.01"), context=_WIDE), "f")
        else:
            text = str(value)
        if limit == -1:
            return text
        if _units(text) > limit:
            text = text[:limit]
        return text.ljust(limit) if padded else text

    return convert


def _moment_text(stored: str, known: SqlType, style: int) -> str:
    if known.name == "smalldatetime":
        stored += ".000"
    if style in (126, 127):
        if known.family == "offset":
            if style == 127:
                days, ticks = temporal.instant(stored)
                return f"{temporal.date_text(days)}T{_trimmed(temporal.clock_text(ticks, known.scale))}Z"
            date, clock, zone = stored.split(" ")
            return f"{date}T{_trimmed(clock)}{zone}"
        return _trimmed(stored).replace(" ", "T")
    if style == 23:
        return stored[:10]
    if style == 120:
        return stored[:19]
    if style == 112:
        return stored[:10].replace("-", "")
    if known.name in ("datetime", "smalldatetime") and style in (0, 100):
        moment = dt.datetime.fromisoformat(stored)
        hour = moment.strftime("%I").lstrip("0").rjust(2)
        return f"{moment.strftime('%b')} {moment.day:2d} {moment.year} {hour}:{moment.strftime('%M%p')}"
    return stored


def _trimmed(clock: str) -> str:
    """Without a fraction that is all zeros, as styles 126 and 127 have it."""
    head, point, fraction = clock.partition(".")
    return head if point and not fraction.strip("0") else clock


def _binary_converter(wanted: SqlType, known: SqlType | None, style: int) -> Converter:
    limit = 8 if wanted.name == "timestamp" else wanted.length if wanted.name in ("binary", "varbinary") else -1

    def convert(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, str):
            if style in (1, 2):
                try:
                    made = bytes.fromhex(value[2:] if style == 1 and value[:2].lower() == "0x" else value)
                except ValueError:
                    raise conversion_failed("varchar", wanted.declaration) from None
            elif known is not None and known.family == "guid":
                made = uuid.UUID(value).bytes_le
            else:
                wide = known is not None and known.name in ("nvarchar", "nchar", "ntext")
                made = value.encode("utf-16-le") if wide else value.encode("cp1252", "replace")
        elif isinstance(value, int):
            size = known.kind.bytes if known is not None and known.kind.bytes > 0 else 4 if abs(value) < 2**31 else 8
            made = value.to_bytes(size, "big", signed=value < 0)
            if limit != -1:
                return made[-limit:].rjust(limit, b"\0") if wanted.name == "binary" else made[-limit:]
        elif isinstance(value, bytes):
            made = value
        else:
            raise conversion_failed("float", wanted.declaration)
        if limit == -1:
            return made
        return made[:limit].ljust(limit, b"\0") if wanted.name in ("binary", "timestamp") else made[:limit]

    return convert
