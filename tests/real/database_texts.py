"""What a database's own client prints, as the canonical text of the same value.

Written against the databases' manuals and nothing of the decoders, so that a decoded value can be compared with the
value that the database holds. Canonical text itself is the one of `headrace.changes.types`.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from headrace.changes import LogicalType

_FLOATS = {"float": "float32", "real": "float32", "double": "float64", "double precision": "float64"}
_FRACTION = re.compile(r"(:\d\d\.\d*?)0+(?=$|[Z+-])")


def canonical(database: str, native: str, text: str | None) -> str | None:
    """Canonical text of what the client of `mariadb` or `postgres` prints for a value of the native type.

    Binary columns, geometry, and bits of MariaDB are given as hex digits.
    """
    if text is None:
        return None
    return _mariadb(native, text) if database == "mariadb" else _postgres(native, text)


def same(wanted: str | None, got: str | None, native: str = "") -> bool:
    """Whether two canonical texts are one value of the native type.

    The wire does not say how many fraction digits a time has. Items of arrays are compared one by one.
    """
    if wanted == got:
        return True
    if wanted is None or got is None:
        return False
    if native in _FLOATS and native != "float":
        # Some write the least number as 4.9e-324, some as 5e-324.
        return _number(_FLOATS[native], wanted) == _number(_FLOATS[native], got)
    if native.endswith("[]") and wanted.startswith("[") and got.startswith("["):
        return _plain_items(wanted) == _plain_items(got)
    return plain(wanted) == plain(got)


def plain(text: str) -> str:
    """The text without zeros that end a second's fraction, and without the sign of years beyond 9999."""
    return _FRACTION.sub(r"\1", text.removeprefix("+")).replace(".Z", "Z").rstrip(".")


def _plain_items(text: str) -> list[str | None]:
    items = json.loads(text, parse_int=str, parse_float=str)
    words = [json.dumps(item) if isinstance(item, bool) else item for item in items]
    return [None if word is None else plain(str(word)) for word in words]


def _number(kind: str, text: str) -> str:
    dtype: Callable[[str], Any] = np.float32 if kind == "float32" else np.float64
    return LogicalType(kind).to_text(dtype(text))


def _bits(number: int, length: int) -> str:
    """Debezium's Bits: the lowest byte first."""
    return base64.b64encode(number.to_bytes((length + 7) // 8, "little")).decode()


def _mariadb(native: str, text: str) -> str:
    name, _, rest = native.partition("(")
    name = name.split()[0]
    if name in ("tinyint", "smallint", "mediumint", "int", "bigint", "year"):
        return str(int(text))
    if name == "decimal":
        precision, scale = map(int, rest.partition(")")[0].split(","))
        return LogicalType("decimal", precision, scale).to_text(Decimal(text))
    if name in ("float", "double"):
        return _number(_FLOATS[name], text)
    if name == "bit":
        length = int(rest.rstrip(")"))
        number = int(text, 16)
        return ("true" if number else "false") if length == 1 else _bits(number, length)
    if name == "timestamp":
        return text.replace(" ", "T") + "Z"
    if name in ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"):
        return base64.b64encode(bytes.fromhex(text)).decode()
    if name in ("geometry", "point", "linestring", "polygon"):
        # Four bytes of the reference system, then the standard's well-known binary.
        data = bytes.fromhex(text)
        system = int.from_bytes(data[:4], "little")
        fields: dict[str, Any] = {"wkb": base64.b64encode(data[4:]).decode(), "srid": system or None}
        if name == "point":
            x, y = np.frombuffer(data[9:25], "<f8" if data[4] == 1 else ">f8").tolist()
            fields = {"x": x, "y": y, **fields}
        return json.dumps(fields, separators=(",", ":"))
    # Dates, times and all that is text come as they are printed.
    return text


def _postgres(native: str, text: str) -> str:
    if native.endswith("[]"):
        return _array(native[:-2], text)
    name = native.partition("(")[0]
    if name in ("smallint", "integer", "bigint", "oid", "posint"):
        return str(int(text))
    if name in ("numeric", "money2"):
        return text
    if name in _FLOATS:
        return _number(_FLOATS[name], text)
    if name == "money":
        return text.replace("$", "").replace(",", "")
    if name == "boolean":
        return "true" if text == "t" else "false"
    if native == "bit(1)":
        return "true" if text == "1" else "false"
    if name in ("bit", "bit varying"):
        return _bits(int(text or "0", 2), len(text))
    if name == "bytea":
        return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()
    if name == "point":
        x, y = map(float, text.strip("()").split(","))
        wkb = base64.b64encode(struct.pack("<BIdd", 1, 1, x, y)).decode()
        return json.dumps({"x": x, "y": y, "wkb": wkb, "srid": None}, separators=(",", ":"))
    if name.endswith("hstore"):
        pairs = dict(re.findall(r'"((?:[^"\\]|\\.)*)"=>("(?:[^"\\]|\\.)*"|NULL)', text))
        # Both spell quotes and backslashes inside quotes alike.
        found = {key: None if value == "NULL" else json.loads(value) for key, value in pairs.items()}
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    if name == "date" or native.startswith("timestamp"):
        return _moment(text, zoned=native.endswith("with time zone"))
    return text


def _moment(text: str, *, zoned: bool) -> str:
    """A date or timestamp, with the astronomical year for years before Christ: 1 BC is 0000, 44 BC is -0043."""
    if text.endswith("infinity"):
        return text
    if text.endswith(" BC"):
        year, _, rest = text.removesuffix(" BC").partition("-")
        before = int(year) - 1
        text = f"{'-' if before else ''}{before:04}-{rest}"
    return text.replace(" ", "T").removesuffix("+00") + "Z" if zoned else text


def _array(item: str, text: str) -> str:
    """An array as JSON of the canonical texts of its items; lower bounds, which no format carries, are left out."""
    items = _items(text.partition("=")[2] if text.startswith("[") else text)
    texts = [None if value is None else _postgres(item, value) for value in items]
    return json.dumps(texts, ensure_ascii=False)


def _items(text: str) -> list[str | None]:
    """The items of a one-dimensional array as PostgreSQL prints it: `{a,"b,c",NULL}`."""
    found: list[str | None] = []
    for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', text[1:-1]):
        found.append(None if plain == "NULL" else plain or re.sub(r"\\(.)", r"\1", quoted))
    return found
