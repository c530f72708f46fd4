"""MySQL's binary JSON as the text that the server prints, and the differences that partial updates have.

A value is a type byte and its content. Objects and arrays have a directory of offsets, which count from the byte behind
their type, so parts may stand anywhere; here each is looked at where its directory says, within the container.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.sources.mysql.packed import Reader, decimal_text, moment_text, time_text

_LITERALS = {0: None, 1: True, 2: False}
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q", 11: "<d"}
_LARGE = (1, 3)
_OBJECTS, _LITERAL, _STRING, _OPAQUE = (0, 1), 4, 12, 15
_DECIMAL, _DATE, _TIME, _MOMENTS = 246, 10, 11, (7, 12)
_DEEPEST = 100
_MOST_OF_PLAIN = 15
_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_ESCAPED = {code: f"\\u{code:04x}" for code in range(32)} | _ESCAPES
_REPLACE, _INSERT, _REMOVE = range(3)
CHANGED = b"\xff"
"""What the bytes begin with that `changed` makes; no binary JSON does."""
_LEG = re.compile(r'\.(?:"((?:[^"\\]|\\.)*)"|([^.\["]+))|\[(last(?:-\d+)?|\d+)\]')


@dataclass(frozen=True)
class _Printed:
    """A value that JSON has no type for, as the server prints it."""

    text: str


def text(data: bytes) -> str:
    """The server's text of a value, or of one with differences (`changed`).

    Raises:
        ValueError: the bytes are no value.
    """
    return _text(_changed_value(data[1:]) if data[:1] == CHANGED else _whole(data))


def changed(before: bytes, differences: bytes) -> bytes:
    """A value with the differences of a partial update, which `text` applies."""
    return CHANGED + struct.pack("<I", len(before)) + before + differences


def _whole(data: bytes) -> Any:
    # The server stores JSON's null that came by a default as no bytes at all.
    return _value(data, 0, data[0], 1, len(data), 0) if data else None


def _value(data: bytes, base: int, kind: int, position: int, end: int, depth: int) -> Any:
    """The value of a type whose content begins at a position."""
    if kind <= 3:
        return _container(data, kind, position, end, depth + 1)
    reader = Reader(data, position, end)
    if kind == _LITERAL:
        code = reader.byte()
        if code not in _LITERALS:
            raise ValueError(f"binary JSON has a literal {code}")
        return _LITERALS[code]
    if kind in _NUMBERS:
        (number,) = struct.unpack(_NUMBERS[kind], reader.take(struct.calcsize(_NUMBERS[kind])))
        return number
    if kind == _STRING:
        return reader.take(_size(reader)).decode()
    if kind == _OPAQUE:
        code = reader.byte()
        return _opaque(code, reader.take(_size(reader)))
    raise ValueError(f"binary JSON has a type {kind}")


def _container(data: bytes, kind: int, position: int, end: int, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"binary JSON is deeper than {_DEEPEST}")
    large = kind in _LARGE
    width = 4 if large else 2
    reader = Reader(data, position, end)
    count, size = reader.number(width), reader.number(width)
    if size > end - position or count * (3 if not large else 5) > size:
        raise ValueError("a container of binary JSON is larger than what it stands in")
    end = position + size
    keys = [(reader.number(width), reader.number(2)) for _ in range(count if kind in _OBJECTS else 0)]
    values = []
    for _ in range(count):
        code = reader.byte()
        inline = reader.position
        offset = reader.number(width)
        if code == _LITERAL or code in (5, 6) or (large and code in (7, 8)):
            values.append(_value(data, position, code, inline, inline + width, depth))
        else:
            values.append(_value(data, position, code, position + offset, end, depth))
    if kind not in _OBJECTS:
        return values
    names = [Reader(data, position + offset, end).take(length).decode() for offset, length in keys]
    return dict(zip(names, values, strict=True))


def _size(reader: Reader) -> int:
    """A length in groups of seven bits, the lowest first."""
    size = 0
    for index in range(5):
        part = reader.byte()
        size |= (part & 0x7F) << 7 * index
        if part < 0x80:
            return size
    raise ValueError("a length in binary JSON has more than five bytes")


def _opaque(code: int, data: bytes) -> _Printed:
    if code == _DECIMAL:
        reader = Reader(data, 0, len(data))
        precision, scale = reader.byte(), reader.byte()
        return _Printed(decimal_text(data[2:], precision, scale))
    if code in (_DATE, _TIME, *_MOMENTS):
        (packed,) = struct.unpack("<q", data) if len(data) == 8 else (None,)
        if packed is None:
            raise ValueError("a moment in binary JSON has not 8 bytes")
        if code == _TIME:
            return _Printed(f'"{time_text(abs(packed) >> 24, abs(packed) & 0xFFFFFF, 6, negative=packed < 0)}"')
        printed = moment_text(packed >> 24, packed & 0xFFFFFF, 6)
        return _Printed(f'"{printed[:10] if code == _DATE else printed}"')
    return _Printed(f'"base64:type{code}:{base64.b64encode(data).decode()}"')


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(name)}: {_text(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, _Printed):
        return value.text
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return {None: "null", True: "true", False: "false"}[value]


def _quoted(value: str) -> str:
    return f'"{value.translate(_ESCAPED)}"'


def double_text(value: float) -> str:
    """A double as JSON prints it in the server: fewest digits, an exponent where the point is more than 15 digits off.

    Raises:
        ValueError: it is not finite.
    """
    if value - value != 0:
        raise ValueError("a number in binary JSON is not finite")
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    sign = "-" if mantissa.startswith("-") else ""
    shown = (whole + ("" if fraction == "0" else fraction)).lstrip("0")
    # The point stands behind so many of the digits.
    point = len(whole.lstrip("0")) + int(exponent or 0)
    if not whole.lstrip("0"):
        point = int(exponent or 0) - (len(fraction) - len(fraction.lstrip("0")))
    shown = shown.rstrip("0")
    if not shown:
        return f"{sign}0.0"
    if -_MOST_OF_PLAIN < point <= _MOST_OF_PLAIN:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{shown}"
        padded = shown.ljust(point, "0")
        return f"{sign}{padded[:point]}.{padded[point:] or '0'}"
    rest = f".{shown[1:]}" if len(shown) > 1 else ""
    return f"{sign}{shown[0]}{rest}e{point - 1}"


def _changed_value(data: bytes) -> Any:
    reader = Reader(data, 0, len(data))
    value = _whole(reader.take(reader.number(4)))
    for operation, path, operand in _differences(reader):
        value = _applied(value, operation, path, operand)
    return value


def _differences(reader: Reader) -> Iterator[tuple[int, str, Any]]:
    while not reader.at_end:
        operation = reader.byte()
        if operation > _REMOVE:
            raise ValueError(f"a partial update has an operation {operation}")
        path = reader.take(reader.packed()).decode()
        yield operation, path, None if operation == _REMOVE else _whole(reader.take(reader.packed()))


def _applied(root: Any, operation: int, path: str, operand: Any) -> Any:
    legs = _legs(path)
    if not legs:
        if operation != _REPLACE:
            raise ValueError("a partial update inserts or removes the whole value")
        return operand
    holder = root
    for leg in legs[:-1]:
        holder = holder[_position(holder, leg, insert=False)]
    last = _position(holder, legs[-1], insert=operation == _INSERT)
    if operation == _REMOVE:
        del holder[last]
    elif operation == _INSERT and isinstance(holder, list):
        holder.insert(last, operand)
    elif operation == _INSERT:
        if last in holder:
            raise ValueError("a partial update inserts a name that is there")
        holder[last] = operand
        ordered = sorted(holder.items(), key=lambda item: (len(item[0].encode()), item[0].encode()))
        holder.clear()
        holder.update(ordered)
    else:
        holder[last] = operand
    return root


def _legs(path: str) -> list[str | int]:
    legs: list[str | int] = []
    position = 1
    if path[:1] != "$":
        raise ValueError("a path of a partial update does not begin with '$'")
    while position < len(path):
        match = _LEG.match(path, position)
        if match is None:
            raise ValueError("a path of a partial update can't be read")
        quoted, plain, index = match.groups()
        if index is not None:
            legs.append(-1 - int(index[5:] or 0) if index.startswith("last") else int(index))
        else:
            legs.append(_unquoted(quoted) if plain is None else plain)
        position = match.end()
    return legs


def _unquoted(name: str) -> str:
    return str(json.loads(f'"{name}"'))


def _position(holder: Any, leg: str | int, *, insert: bool) -> Any:
    """The name or the index that a leg of a path means.

    Raises:
        ValueError: the value has no such part.
    """
    if isinstance(leg, str) and isinstance(holder, dict):
        if leg in holder or insert:
            return leg
    elif isinstance(leg, int) and isinstance(holder, list):
        position = leg if leg >= 0 else len(holder) + leg
        if insert:
            return min(position, len(holder))
        if 0 <= position < len(holder):
            return position
    raise ValueError("a path of a partial update leads to no part of the value")
