"""MySQL's column types as Canal writes them, read as logical types, and the other way.

Native Canal writes the whole column type (`bigint(20) unsigned`, `enum('a','b')`, case as declared); Alibaba DTS leaves
parameters out in places. `sqlType` holds numbers of `java.sql.Types`, which Canal widens for large unsigned values, so
it only decides where a message has no `mysqlType`.

| MySQL | logical type |
|---|---|
| tinyint, smallint, mediumint, int, bigint | int8, int16, int32, int32, int64 |
| the same, unsigned | int16, int32, int32, int64, uint64 |
| boolean, bool | boolean |
| bit(n) | uint64 |
| year | int16 |
| decimal(p,s) | decimal(p,s); without digits where the type is written without |
| float, double | float32, float64 |
| date, time(p), datetime(p) | date, time(p), timestamp(p); 6 digits where the type is written without |
| timestamp(p) | timestamp(p); instant(p) where the zone of its texts is given |
| binary, varbinary, blobs, geometries | bytes |
| json | json |
| all else | string |

Source: Canal's code (FlatMessage); java.sql.Types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.changes import Column, LogicalType

_SIGNED = {"tinyint": "int8", "smallint": "int16", "mediumint": "int32", "int": "int32", "bigint": "int64"}
_UNSIGNED = {"tinyint": "int16", "smallint": "int32", "mediumint": "int32", "int": "int64", "bigint": "uint64"}
_SAME = {"integer": "int", "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "int4": "int", "int8": "bigint"}
_DECIMALS = frozenset(("decimal", "numeric", "dec", "fixed"))
_FLOATS = {"float": "float32", "double": "float64", "real": "float64"}
_TIMES = {"time": "time", "datetime": "timestamp", "timestamp": "timestamp"}
_BLOBS = frozenset(("tinyblob", "blob", "mediumblob", "longblob"))
GEOMETRIES = frozenset(
    (
        "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
        "geometrycollection", "geomcollection",
    )
)  # fmt: skip
"""Names of types whose values are shapes."""
_TEXTS = frozenset(("tinytext", "text", "mediumtext", "longtext"))
_WORD = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*)\s*")
_NUMBERS = re.compile(r"\(\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?\)")
_LABEL = re.compile(r"\s*'((?:[^'\\]|''|\\.)*)'\s*(,|\))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}

BIT, TINYINT, SMALLINT, INTEGER, BIGINT, REAL, DOUBLE, DECIMAL = -7, -6, 5, 4, -5, 7, 8, 3
CHAR, VARCHAR, DATE, TIME, TIMESTAMP, BINARY, BLOB, CLOB = 1, 12, 91, 92, 93, -2, 2004, 2005
"""Numbers of `java.sql.Types`."""

# An integer's number grows with its value, so all of them are read as the widest.
_BY_NUMBER = {
    TINYINT: "int64", SMALLINT: "int64", INTEGER: "int64", BIGINT: "int64", BIT: "uint64", REAL: "float32",
    6: "float64", DOUBLE: "float64", DECIMAL: "decimal", 2: "decimal", 16: "boolean", DATE: "date", TIME: "time(6)",
    TIMESTAMP: "timestamp(6)", BLOB: "bytes", BINARY: "bytes", -3: "bytes", -4: "bytes",
}  # fmt: skip
_NUMBER_OF = {
    "tinyint": TINYINT, "smallint": SMALLINT, "mediumint": INTEGER, "int": INTEGER, "bigint": BIGINT, "bit": BIT,
    "year": 12, "float": REAL, "double": DOUBLE, "real": DOUBLE, "date": DATE, "time": TIME, "datetime": TIMESTAMP,
    "timestamp": TIMESTAMP, "char": CHAR, "enum": INTEGER, "set": BIT, "boolean": TINYINT, "bool": TINYINT,
}  # fmt: skip
# What holds every value of the unsigned type.
_UNSIGNED_NUMBER = {"tinyint": SMALLINT, "smallint": INTEGER, "mediumint": INTEGER, "int": BIGINT, "bigint": DECIMAL}
_MYSQL_OF = {
    "boolean": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "uint64": "bigint unsigned", "float32": "float", "float64": "double", "date": "date", "bytes": "longblob",
    "json": "json", "nested": "json", "uuid": "char(36)",
}  # fmt: skip


@dataclass(frozen=True)
class MysqlType:
    """One column type.

    Args:
        text: as it is written.
        word: its name in lower case, synonyms of integers folded.
        unsigned: whether it has no sign.
        numbers: its length or digits, and its scale.
        labels: the labels of an enum or set, in order.
    """

    text: str
    word: str
    unsigned: bool = False
    numbers: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> MysqlType:
        """Read a column type; a text that is none gives a type whose word decides nothing, and so a string."""
        match = _WORD.match(text)
        if match is None:
            return cls(text, "")
        word, rest = match[1].lower(), text[match.end() :]
        word = _SAME.get(word, word)
        if word in ("enum", "set"):
            return cls(text, word, labels=_labels(rest))
        numbers = _NUMBERS.match(rest)
        attributes = (rest[numbers.end() :] if numbers else rest).lower().split()
        return cls(
            text,
            word,
            unsigned="unsigned" in attributes or "zerofill" in attributes,
            numbers=tuple(int(n) for n in numbers.groups() if n is not None) if numbers else (),
        )

    @property
    def holds_bytes(self) -> bool:
        """Whether values are bytes, each written as the character of its number."""
        if self.word in _BLOBS or self.word in GEOMETRIES:
            return True
        # Canal looks for the word anywhere: a character column with the attribute `binary` is bytes to it too.
        return self.word not in ("enum", "set") and self.word not in _TEXTS and "binary" in self.text.lower()

    def logical(self, zoned: bool = False) -> LogicalType:
        """What values mean; `zoned` says that the zone of `timestamp` texts is known."""
        if self.holds_bytes:
            return LogicalType("bytes")
        if self.word in _SIGNED:
            return LogicalType((_UNSIGNED if self.unsigned else _SIGNED)[self.word])
        if self.word in ("boolean", "bool"):
            return LogicalType("boolean")
        if self.word in ("bit", "year"):
            return LogicalType("uint64" if self.word == "bit" else "int16")
        if self.word in _DECIMALS:
            # DTS writes no digits, and MySQL's own default of ten without a fraction would cut what it means.
            precision, scale, *_ = (*self.numbers, 0, 0)
            return LogicalType("decimal", precision, scale) if 0 < precision >= scale else _DECIMAL
        if self.word in _FLOATS:
            return LogicalType(_FLOATS[self.word])
        if self.word == "date" or self.word == "json":
            return LogicalType(self.word)
        if self.word in _TIMES:
            digits = min(self.numbers[0], 9) if self.numbers else 6
            return LogicalType("instant" if zoned and self.word == "timestamp" else _TIMES[self.word], digits)
        return LogicalType("string")

    @property
    def sql_type(self) -> int:
        """The number that stands in `sqlType`."""
        if self.unsigned and self.word in _UNSIGNED_NUMBER:
            return _UNSIGNED_NUMBER[self.word]
        if self.holds_bytes:
            return BLOB
        if self.word in _DECIMALS:
            return DECIMAL
        if self.word in _TEXTS:
            return CLOB
        return _NUMBER_OF.get(self.word, VARCHAR)


_DECIMAL = LogicalType("decimal")


def _labels(text: str) -> tuple[str, ...]:
    """The labels in `('a','it''s','x,y')`; empty where the list can't be read to its end."""
    if not text.startswith("("):
        return ()
    labels, at = [], 1
    while match := _LABEL.match(text, at):
        labels.append(_unquoted(match[1]))
        at = match.end()
        if match[2] == ")":
            return tuple(labels)
    return ()


def _unquoted(label: str) -> str:
    return re.sub(r"''|\\(.)", lambda m: "'" if m[0] == "''" else _ESCAPES.get(m[1], m[1]), label, flags=re.DOTALL)


def logical_of_number(number: object) -> LogicalType:
    """What a number of `java.sql.Types` says of the values."""
    return LogicalType.parse(_BY_NUMBER.get(number, "string")) if isinstance(number, int) else LogicalType("string")


def column_of(name: str, position: int, text: str | None, number: object, *, key: bool, zoned: bool) -> Column:
    """The column that `mysqlType` (`text`) or else `sqlType` (`number`) describes."""
    if not text:
        return Column(name, position, logical_of_number(number), nullable=not key)
    parsed = MysqlType.parse(text)
    length = parsed.numbers[0] if parsed.numbers else None
    scale = parsed.numbers[1] if len(parsed.numbers) > 1 else None
    return Column(name, position, parsed.logical(zoned), native_type=text, length=length, scale=scale, nullable=not key)


def mysql_type_of(column: Column, *, zoned: bool = False) -> MysqlType:
    """The type to write for a column: its own where that is MySQL's and means the same, else the nearest.

    `boolean` is written by that name, so that readers tell it from a number; times keep more digits than MySQL has.
    """
    mysql_type = _sized(MysqlType.parse(column.native_type), column)
    same = mysql_type.logical(zoned) == column.logical or _stands_for(mysql_type, column.logical)
    if column.native_type and same and (mysql_type.word in _OWN_WORDS or mysql_type.labels):
        return mysql_type
    kind = column.logical
    if kind.kind in _MYSQL_OF:
        return MysqlType.parse(_MYSQL_OF[kind.kind])
    if kind.kind == "decimal":
        return MysqlType.parse("decimal" if kind.precision is None else f"decimal({kind.precision},{kind.scale or 0})")
    if kind.kind in ("time", "timestamp"):
        return MysqlType.parse(f"{'time' if kind.kind == 'time' else 'datetime'}({kind.digits})")
    if kind.kind == "instant":
        return MysqlType.parse(f"timestamp({kind.digits})")
    return MysqlType.parse("longtext")


def _sized(mysql_type: MysqlType, column: Column) -> MysqlType:
    """A type with the size or the labels that its column says beside it, as the MySQL source has them."""
    if mysql_type.numbers or mysql_type.labels:
        return mysql_type
    kind, inside = column.logical, ""
    if mysql_type.word in ("enum", "set"):
        inside = ",".join("'" + label.replace("'", "''") + "'" for label in column.enum_values or ())
    elif mysql_type.word in _SIZED and column.length is not None and column.length > 0:
        inside = str(column.length)
    elif mysql_type.word == "decimal" and kind.precision is not None:
        inside = f"{kind.precision},{kind.scale or 0}"
    elif mysql_type.word in _TIMES and kind.kind in ("time", "timestamp", "instant"):
        inside = str(kind.digits)
    if not inside:
        return mysql_type
    word, _, attributes = column.native_type.partition(" ")
    return MysqlType.parse(f"{word}({inside}){' ' if attributes else ''}{attributes}")


def _stands_for(mysql_type: MysqlType, kind: LogicalType) -> bool:
    """Whether values that mean more here are written as the type's: instants, bits as bytes, geometries with parts."""
    if mysql_type.word == "timestamp":
        return kind.kind == "instant" and mysql_type.numbers == (kind.digits,)
    return (mysql_type.word == "bit" and kind.kind == "bytes") or (
        mysql_type.word in GEOMETRIES and kind.kind == "nested"
    )


_SIZED = frozenset(("char", "varchar", "binary", "varbinary", "bit"))
# Words that mean the same in MySQL as in the catalog of any other database, given that the logical type is the same.
_OWN_WORDS = (
    frozenset(_SIGNED) | _DECIMALS | frozenset(_FLOATS) | frozenset(_TIMES) | _BLOBS | GEOMETRIES | _TEXTS
    | {"bit", "year", "date", "json", "char", "varchar", "binary", "varbinary", "boolean", "bool"}
)  # fmt: skip


def mysql_columns(
    names: Mapping[str, str | None], numbers: Mapping[str, object], keys: frozenset[str], *, zoned: bool
) -> tuple[Column, ...]:
    """The columns of a message's `mysqlType` and `sqlType`, in the order in which they stand there."""
    every = dict.fromkeys([*names, *numbers])
    return tuple(
        column_of(name, n, names.get(name), numbers.get(name), key=name in keys, zoned=zoned)
        for n, name in enumerate(every, 1)
    )
