"""Rows events read one value at a time in plain Python: what the kernels have to give, too."""

import base64
import uuid

from headrace.sources.mysql import packed
from headrace.sources.mysql import types as codes
from headrace.sources.mysql.charsets import text_of
from headrace.sources.mysql.packed import Reader

WRITES, DELETES, UPDATES = (23, 30), (25, 32), (24, 31)


def read(body, kind, columns):
    """Pairs of a before and an after image, as `logged_rows.read_images` has them; ValueError where bytes are wrong."""
    reader = Reader(body, 0, len(body))
    reader.take(8)
    if kind >= 30:
        extra = reader.number(2)
        if extra < 2:
            raise ValueError("the extra data is shorter than its length")
        reader.take(extra - 2)
    if reader.packed() != len(columns):
        raise ValueError("another number of columns")
    sides = 2 if kind in UPDATES else 1
    present = [_bits(reader, len(columns)) for _ in range(sides)]
    if reader.at_end:
        raise ValueError("no row")
    rows = []
    while not reader.at_end:
        before = reader.position
        images = [_image(reader, columns, given) for given in present]
        if reader.position == before:
            raise ValueError("a row takes no bytes")
        rows.append((None, *images) if kind in WRITES else (*images, None) if kind in DELETES else tuple(images))
    return rows


def _image(reader, columns, given):
    shown = [number for number, is_given in enumerate(given) if is_given]
    nulls = _bits(reader, len(shown))
    return {
        number: None if is_null else text(columns[number], _value(reader, columns[number].size))
        for number, is_null in zip(shown, nulls, strict=True)
    }


def _value(reader, size):
    return reader.take(reader.number(-size) if size < 0 else size)


def _bits(reader, count):
    found = reader.take((count + 7) // 8)
    return [found[n >> 3] >> (n & 7) & 1 for n in range(count)]


def text(column, data):
    """The canonical text of one value."""
    native, digits = column.native, column.native.scale
    little, big = int.from_bytes(data, "little"), int.from_bytes(data, "big")
    match native.kind:
        case "tinyint" | "smallint" | "mediumint" | "int" | "bigint":
            return str(int.from_bytes(data, "little", signed=not native.unsigned))
        case "decimal":
            return packed.decimal_text(data, native.length, native.scale)
        case "year":
            return str(data[0] + 1900 if data[0] else 0)
        case "date":
            return packed.day_text(little >> 9, little >> 5 & 15, little & 31)
        case "bit":
            if native.length == 1:
                return "true" if little else "false"
            return base64.b64encode(data[::-1]).decode()
        case "enum":
            if little > len(native.labels):
                raise ValueError("no such label")
            return native.labels[little - 1] if little else ""
        case "uuid":
            return str(uuid.UUID(bytes=data.ljust(16, b"\0")))
        case "binary":
            return base64.b64encode(data.ljust(native.length, b"\0")).decode()
        case "varbinary" | "blob" | "longblob":
            return base64.b64encode(data).decode()
        case "char" | "varchar" | "tinytext" | "mediumtext":
            return text_of(data, native.charset)
    return _moment(column, data, digits, little, big)


def _moment(column, data, digits, little, big):
    kind, low = column.native.kind, 8 * packed.fraction_size(digits or 0)
    if column.code == codes.TIMESTAMP:
        return packed.instant_text(little, 0, 0)
    if column.code == codes.TIME:
        value = little - (1 << 24) if little >> 23 else little
        hours, rest = divmod(abs(value), 10000)
        return packed.time_text(hours << 12 | _clock(rest), 0, 0, negative=value < 0)
    if column.code == codes.DATETIME:
        days, clock = divmod(little, 1_000_000)
        if days // 10000 > 9999 or days // 100 % 100 > 12 or days % 100 > 31:
            raise ValueError("no such day")
        hours, rest = divmod(clock, 10000)
        months = days // 10000 * 13 + days // 100 % 100
        if hours > 23:
            raise ValueError("no such hour")
        return packed.moment_text(months << 22 | days % 100 << 17 | hours << 12 | _clock(rest), 0, 0)
    fraction = big & ((1 << low) - 1)
    if kind == "timestamp":
        return packed.instant_text(big >> low, fraction, digits)
    if kind == "datetime":
        return packed.moment_text((big >> low) - (1 << 39), fraction, digits)
    if kind == "time":
        value = big - (1 << (23 + low))
        whole = abs(value)
        return packed.time_text(whole >> low, whole & ((1 << low) - 1), digits, negative=value < 0)
    raise AssertionError(kind)


def _clock(digits):
    minute, second = divmod(digits, 100)
    if minute > 59 or second > 59:
        raise ValueError("no such clock")
    return minute << 6 | second
