"""Types of MySQL and MariaDB: what they mean, and the canonical texts of what log and server give of them.

A column's type is read from a table map of the log or from the catalog. Both give the same `NativeType`, but that the
log shows MariaDB's own types as what they are stored as: `NativeType.stored` says what that is.

`keeps_values` says which types hold all values of another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from headrace.changes.types import LogicalType
from headrace.errors import FormatError, SchemaError
from headrace.sources.mysql import texts
from headrace.sources.mysql.charsets import BINARY, UTF8, charset_of, texts_of, width_of

_SIGNED = {"tinyint": "int8", "smallint": "int16", "mediumint": "int32", "int": "int32", "bigint": "int64"}
_UNSIGNED = {"tinyint": "int16", "smallint": "int32", "mediumint": "int32", "int": "int64", "bigint": "uint64"}
_MOMENTS = {"time": "time", "datetime": "timestamp", "timestamp": "instant"}
_GEOMETRIES = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
)  # fmt: skip
_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
_BYTES = frozenset((*_BLOBS, "binary", "varbinary"))
_STRINGS = frozenset((*_TEXTS, "char", "varchar"))
_KINDS = {
    **dict.fromkeys((*_STRINGS, "enum", "set", "inet4", "inet6"), "string"),
    **dict.fromkeys(_BYTES, "bytes"),
    **dict.fromkeys((*_GEOMETRIES, "vector"), "nested"),
    "year": "int16", "date": "date", "float": "float32", "double": "float64", "json": "json", "uuid": "uuid",
}  # fmt: skip
_STORED = {"uuid": 16, "inet6": 16, "inet4": 4}
"""MariaDB's types that the log shows as BINARY of so many bytes."""
_WORDS = {
    "integer": "int", "numeric": "decimal", "dec": "decimal", "fixed": "decimal", "bool": "tinyint", "real": "double",
    "boolean": "tinyint", "geomcollection": "geometrycollection", "int1": "tinyint", "int2": "smallint",
    "int3": "mediumint", "int4": "int", "int8": "bigint",
}  # fmt: skip
_COLUMN_TYPE = re.compile(r"([a-z0-9]+)(?: precision)?\s*(?:\((.*)\))?([^()]*)", re.DOTALL)
_LABEL = re.compile(r"'((?:[^']|'')*)'")

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR = range(10, 14)
NEWDATE, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 14, *range(15, 20)
BLOB_COMPRESSED, VARCHAR_COMPRESSED, VECTOR, JSON, DECIMAL, ENUM, SET = 140, 141, 242, 245, 246, 247, 248
TINY_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = 249, 252, 253, 254, 255
COMPRESSED = frozenset((BLOB_COMPRESSED, VARCHAR_COMPRESSED))
"""MariaDB's columns that are declared so."""
_PLAIN = {
    TINY: "tinyint", SHORT: "smallint", INT24: "mediumint", LONG: "int", LONGLONG: "bigint", FLOAT: "float",
    DOUBLE: "double", DATE: "date", NEWDATE: "date", YEAR: "year", JSON: "json", TIMESTAMP: "timestamp", TIME: "time",
    DATETIME: "datetime",
}  # fmt: skip
_WITH_DIGITS = {TIMESTAMP2: "timestamp", TIME2: "time", DATETIME2: "datetime"}
_MOST_BYTES = (255, 65_535, 16_777_215, 4_294_967_295)


@dataclass(frozen=True)
class NativeType:
    """What a column's type is, however its values are stored.

    Args:
        kind: the type's name in SQL without its size: `int`, `varchar`, `longblob`, `point`, `inet6`.
        unsigned: whether numbers are never negative; None where the log does not say it.
        length: characters, bytes or bits, the digits of a decimal, the dimension of a vector.
        scale: digits after the point of a decimal, fraction digits of a time.
        charset: of texts, enums and sets; None for all other types, and where the log does not say it.
        labels: of an enum or a set, in its order; empty where the log does not say them.
        compressed: whether the log has the values compressed (MariaDB's COMPRESSED); a session sees them plain.
    """

    kind: str
    unsigned: bool | None = False
    length: int | None = None
    scale: int | None = None
    charset: str | None = None
    labels: tuple[str, ...] = ()
    compressed: bool = False

    @classmethod
    def of_wire(
        cls,
        code: int,
        meta: int,
        *,
        unsigned: bool | None = None,
        collation: int | None = None,
        labels: Sequence[str] = (),
        geometry: int = 0,
        dimension: int | None = None,
    ) -> NativeType:
        """The type of a column of a table map.

        Args:
            code: the type's number.
            meta: what the map says besides; where these are two bytes, the first one is the low one.
            unsigned: of a number; None where the map has no signs.
            collation: the number of a text's, enum's or set's; None where the map has none.
            labels: of an enum or a set.
            geometry: which kind of geometry.
            dimension: of a vector.

        Raises:
            SchemaError: the type or the collation is unknown.
        """
        code, size = unpacked(code, meta)
        if code in _PLAIN:
            return cls(_PLAIN[code], unsigned if _PLAIN[code] in _SIGNED else False, scale=_no_digits(_PLAIN[code]))
        if code in _WITH_DIGITS:
            return cls(_WITH_DIGITS[code], scale=meta)
        if code == DECIMAL:
            return cls("decimal", unsigned, meta & 255, meta >> 8)
        if code == BIT:
            return cls("bit", length=size)
        if code == GEOMETRY and geometry < len(_GEOMETRIES):
            return cls(_GEOMETRIES[geometry])
        if code == VECTOR:
            return cls("vector", length=dimension)
        charset = None if collation is None else charset_of(collation)
        if code in (ENUM, SET):
            return cls("enum" if code == ENUM else "set", charset=charset, labels=tuple(labels))
        compressed = code in COMPRESSED
        if code in (BLOB, BLOB_COMPRESSED):
            kind = (_BLOBS if charset == BINARY else _TEXTS)[size - 1]
            return cls(kind, charset=None if charset == BINARY else charset, compressed=compressed)
        if code == VARCHAR_COMPRESSED:
            # A byte in front says how.
            size -= 1
        if code in (VARCHAR, VARCHAR_COMPRESSED, STRING):
            variable = "" if code == STRING else "var"
            if charset == BINARY:
                return cls(f"{variable}binary", length=size, compressed=compressed)
            length = size // width_of(charset or "")
            return cls(f"{variable}char", length=length, charset=charset, compressed=compressed)
        raise SchemaError(
            f"The log has a column of the type {code}, which is unknown.",
            remedy="Leave its table out by 'table_exclude_list'.",
        )

    @classmethod
    def of_catalog(cls, column_type: str, collation: str | None = None, *, json: bool = False) -> NativeType:
        """The type of a column of `information_schema.columns`.

        Args:
            column_type: such as `int(10) unsigned`, `enum('a','b')`.
            collation: the name of the character set; None for what is not a text.
            json: whether a check of the table says that a LONGTEXT holds JSON, as MariaDB has it.

        Raises:
            SchemaError: the type is unknown.
        """
        declared, _, remark = column_type.strip().partition(" /*")
        match, compressed = _COLUMN_TYPE.fullmatch(declared), "COMPRESSED" in remark
        kind, inside, rest = match.groups() if match else ("", None, "")
        kind = _WORDS.get(kind, kind)
        unsigned = "unsigned" in rest or "zerofill" in rest
        if kind in _SIGNED:
            return cls(kind, unsigned)
        if kind in ("enum", "set"):
            labels = tuple(label.replace("''", "'") for label in _LABEL.findall(inside or ""))
            return cls(kind, charset=collation, labels=labels)
        sizes = [int(size) for size in (inside or "").split(",") if size.strip().isdigit()]
        if kind == "decimal":
            precision, scale = [*sizes, *(10, 0)[len(sizes) :]]
            return cls(kind, unsigned, precision, scale)
        if kind in _MOMENTS:
            return cls(kind, scale=sizes[0] if sizes else 0)
        if json and kind == "longtext":
            return cls("json", charset=collation, compressed=compressed)
        if kind in _STRINGS:
            length = (sizes or [1])[0] if kind in ("char", "varchar") else None
            return cls(kind, length=length, charset=collation, compressed=compressed)
        if kind in ("binary", "varbinary", "bit", "vector"):
            return cls(kind, length=(sizes or [1])[0], compressed=compressed)
        if kind in _KINDS:
            return cls(kind, compressed=compressed)
        raise SchemaError(
            f"The type '{column_type}' is unknown.", remedy="Leave its column out by 'column_exclude_list'."
        )

    @cached_property
    def logical(self) -> LogicalType:
        if self.kind in _SIGNED:
            return LogicalType((_UNSIGNED if self.unsigned else _SIGNED)[self.kind])
        if self.kind == "decimal":
            return LogicalType("decimal", self.length, self.scale)
        if self.kind == "bit":
            return LogicalType("boolean" if self.length == 1 else "bytes")
        if self.kind in _MOMENTS:
            return LogicalType(_MOMENTS[self.kind], self.scale)
        return LogicalType(_KINDS[self.kind])

    @property
    def name(self) -> str:
        """As SQL and Debezium write it, without sizes: `bigint unsigned`, `varchar`."""
        return f"{self.kind} unsigned" if self.unsigned else self.kind

    @property
    def enum_values(self) -> tuple[str, ...] | None:
        """The labels of an enum or a set; None for other types."""
        return self.labels if self.kind in ("enum", "set") else None

    @property
    def large(self) -> bool:
        """Whether `binlog_row_image=NOBLOB` leaves a value out where it did not change."""
        return self.kind in (*_TEXTS, *_BLOBS, *_GEOMETRIES, "json", "vector")

    @cached_property
    def stored(self) -> NativeType:
        """As the log shows a column of this type."""
        if self.kind in _STORED:
            return NativeType("binary", length=_STORED[self.kind])
        if self.kind == "json" and self.charset is not None:
            return NativeType("longtext", charset=self.charset, compressed=self.compressed)
        return self

    def refined(self, catalog: NativeType) -> NativeType | None:
        """What the catalog says of a column, whose type this is in the log; None where the two don't agree.

        Then the table has changed since. What the log does not say (signs, character sets, labels) agrees.
        """
        stored = catalog.stored
        if self.kind == "varbinary" and catalog.kind == "vector":
            stored = replace(self, length=4 * (catalog.length or 0))
        known = self
        if self.charset is None and self.kind in _STRINGS | {"enum", "set"}:
            if stored.kind in _BYTES:
                same_size = self.length == stored.length
                return catalog if _bytes_kind(self.kind) == stored.kind and same_size else None
            # Without a character set the log has a length in bytes.
            length = None if self.length is None else self.length // width_of(stored.charset or "")
            known = replace(known, charset=stored.charset, length=length, labels=self.labels or stored.labels)
        if self.unsigned is None:
            known = replace(known, unsigned=stored.unsigned)
        if self.kind == "geometry" and catalog.kind in _GEOMETRIES:
            known = replace(known, kind=catalog.kind)
        if self.kind == "vector" and self.length is None:
            known = replace(known, length=stored.length)
        return catalog if known == stored else None

    @cached_property
    def needs_log_texts(self) -> bool:
        """Whether kernels leave the values of the log as they are, so that `log_texts` makes the texts."""
        kind = self.kind
        if self.compressed:
            return True
        if kind in _STRINGS or (kind == "json" and self.charset is not None):
            return self.charset not in UTF8
        return kind in ("float", "double", "set", "json", "inet4", "inet6", "vector") or kind in _GEOMETRIES

    def log_texts(self, values: pa.BinaryArray | pa.StringArray) -> pa.StringArray:
        """Canonical texts of bytes of the log, for types that `needs_log_texts` is true of; those of a string are bytes
        too.

        Raises:
            FormatError: the bytes are none of the type's.
        """
        raw = values.cast(pa.binary())
        try:
            if self.compressed:
                raw = texts.inflated(raw)
                if self.kind in _BYTES:
                    return texts.base64_texts(raw)
            if self.kind in ("float", "double"):
                return texts.floats(raw, self.logical)
            if self.kind == "set":
                return texts.sets(raw, self.labels)
            return self._written(raw)
        except ValueError as error:
            raise FormatError(f"A value of type {self.name} in the log can't be read: {error}.") from error

    def printed_texts(self, values: pa.BinaryArray) -> pa.StringArray:
        """Canonical texts of what a server prints in a session with UTF-8 and UTC, for the expressions of `selected`.

        Raises:
            ValueError: a value has not the form of its type.
        """
        if self.kind in ("float", "double"):
            return texts.printed_floats(values, self.logical)
        if self.kind == "bit":
            return texts.bits(values, boolean=self.length == 1)
        if self.kind == "year":
            return texts.years(values)
        if self.kind == "timestamp":
            return texts.instants(values)
        if self.kind in _BYTES:
            return texts.base64_texts(values)
        if self.kind in _GEOMETRIES or self.kind == "vector":
            return self._written(values)
        if self.unsigned:
            return texts.digits(values)
        return values.cast(pa.string())

    def selected(self, column: str) -> str:
        """The expression that a snapshot selects for a column, whose name comes with its quotes."""
        # The server prints a FLOAT with six digits.
        return f"CAST({column} AS DOUBLE)" if self.kind == "float" else column

    def _written(self, values: pa.BinaryArray) -> pa.StringArray:
        if self.kind == "vector":
            return texts.vectors(values)
        if self.kind in _GEOMETRIES:
            return texts.geometries(values)
        if self.kind in ("inet4", "inet6"):
            return texts.addresses(values, _STORED[self.kind])
        if self.kind == "json" and self.charset is None:
            return texts.json_texts(values)
        if self.charset is None:
            raise SchemaError(
                "The log does not say the character set of a column.", remedy="SET GLOBAL binlog_row_metadata=FULL."
            )
        return texts_of(values, self.charset)

    def to_json(self) -> list[Any]:
        """The arguments that make it again, without those at the end that are usual."""
        labels = list(self.labels)
        parts = [self.kind, self.unsigned, self.length, self.scale, self.charset, labels, self.compressed]
        while len(parts) > 1 and parts[-1] == _USUAL[len(parts) - 1]:
            parts.pop()
        return parts

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> NativeType:
        """Read `to_json`'s form back."""
        kind, unsigned, length, scale, charset, labels, compressed = [*data, *_USUAL[len(data) :]]
        return cls(kind, unsigned, length, scale, charset, tuple(labels), compressed)


_USUAL: tuple[Any, ...] = ("", False, None, None, None, [], False)
"""The values that `NativeType.to_json` leaves out at the end."""


def unpacked(code: int, meta: int) -> tuple[int, int]:
    """The type that a table map means, and its size: bytes at the most, bytes of a length or of a number, bits."""
    if code == STRING:
        first, second = meta & 255, meta >> 8
        if first & 0x30 != 0x30:
            return first | 0x30, second + ((first & 0x30 ^ 0x30) << 4)
        return first, second
    if code == BIT:
        return code, (meta & 255) + 8 * (meta >> 8)
    if TINY_BLOB <= code < BLOB:
        return BLOB, meta
    if code in (ENUM, SET):
        return code, meta >> 8
    return (VARCHAR if code == VAR_STRING else code), meta


def _no_digits(kind: str) -> int | None:
    return 0 if kind in _MOMENTS else None


def _bytes_kind(kind: str) -> str:
    """The kind of bytes that is stored like a kind of text."""
    return kind.replace("text", "blob") if kind in _TEXTS else kind.replace("char", "binary")


INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
"""From the smallest to the largest."""
_KEPT_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_KEPT_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob")
_TEXT_BYTES = dict(zip(_KEPT_TEXTS, (255, 65_535, 16_777_215, 4_294_967_295), strict=True))
WITH_CHARSET = frozenset((*_KEPT_TEXTS, "char", "varchar", "enum", "set"))
"""The kinds of texts that a statement gives a character set."""
_SUPERSETS = {"ascii": ("utf8", "utf8mb3", "utf8mb4"), "utf8": ("utf8mb3", "utf8mb4"), "utf8mb3": ("utf8", "utf8mb4")}
"""Character sets that have all characters of another one."""


def keeps_values(was: NativeType, now: NativeType) -> bool:
    if was == now:
        return True
    if was.compressed != now.compressed:
        return keeps_values(replace(was, compressed=False), replace(now, compressed=False))
    if was.kind in WITH_CHARSET and now.kind in WITH_CHARSET:
        if was.charset != now.charset and now.charset not in _SUPERSETS.get(was.charset or "", ()):
            return False
        if was.kind in ("enum", "set"):
            return was.kind == now.kind and now.labels[: len(was.labels)] == was.labels
        return _holds_texts(was, now)
    if was.kind in INTEGERS and now.kind in INTEGERS:
        return was.unsigned == now.unsigned and INTEGERS.index(was.kind) <= INTEGERS.index(now.kind)
    if was.kind == now.kind == "decimal":
        whole = (now.length or 0) - (now.scale or 0) >= (was.length or 0) - (was.scale or 0)
        return was.unsigned == now.unsigned and whole and (now.scale or 0) >= (was.scale or 0)
    if was.kind == now.kind and was.kind in ("time", "datetime", "timestamp"):
        return (now.scale or 0) >= (was.scale or 0)
    if was.kind == now.kind == "varbinary":
        return (now.length or 0) >= (was.length or 0)
    if was.kind in _KEPT_BLOBS and now.kind in _KEPT_BLOBS:
        return _KEPT_BLOBS.index(was.kind) <= _KEPT_BLOBS.index(now.kind)
    return False


def _holds_texts(was: NativeType, now: NativeType) -> bool:
    if was.kind in _KEPT_TEXTS and now.kind in _KEPT_TEXTS:
        grows = width_of(now.charset or "") > width_of(was.charset or "")
        return _KEPT_TEXTS.index(was.kind) + grows <= _KEPT_TEXTS.index(now.kind)
    if was.kind == "varchar" and now.kind in _KEPT_TEXTS:
        return (was.length or 0) * width_of(now.charset or "") <= _TEXT_BYTES[now.kind]
    return was.kind == now.kind and (now.length or 0) >= (was.length or 0)
