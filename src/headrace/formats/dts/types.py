"""What a DTS field's `dataTypeNumber` says: MySQL's binlog types, PostgreSQL's OIDs; other sources' are not known.

A number says less than a column's type: no length, no scale, no sign. Integers therefore get a type that also holds
the unsigned range. The value itself says how it is written (its **form**), and where that is not what the number makes
expect, the form decides the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.changes import Column, LogicalType

FORMS: Mapping[str, str] = {
    "n": "decimal",
    "d": "decimal",
    "f": "float64",
    "i": "instant(6)",
    "l": "timestamp(6)",
    "L": "timestamp(9)",
    "D": "date",
    "T": "time(6)",
    "y": "int32",
    "z": "zoned_timestamp(6)",
    "b": "bytes",
    "o": "boolean",
    "t": "string",
}
"""The forms of values, and the logical type that a form alone stands for."""


@dataclass(frozen=True)
class NumberedType:
    """What one number means: the source's name, our logical type, and the form that its values have."""

    native: str
    logical: str
    form: str


def _of(text: str) -> dict[int, NumberedType]:
    by_number = {}
    for line in text.strip().splitlines():
        number, native, logical, form = line.split()
        by_number[int(number)] = NumberedType(native.replace("_", " "), logical, form)
    return by_number


MYSQL: Mapping[int, NumberedType] = _of("""
0 decimal decimal d
1 tinyint int16 n
2 smallint int32 n
3 int int64 n
4 float float32 f
5 double float64 f
7 timestamp instant(6) i
8 bigint uint64 n
9 mediumint int32 n
10 date date D
11 time time(6) T
12 datetime timestamp(6) l
13 year int32 y
14 date date D
15 varchar string t
16 bit uint64 n
17 timestamp instant(6) i
18 datetime timestamp(6) l
19 time time(6) T
245 json json t
246 decimal decimal d
247 enum string t
248 set string t
249 tinyblob string t
250 mediumblob string t
251 longblob string t
252 blob string t
253 varchar string t
254 char string t
255 geometry string t
""")
"""Binlog types. Text and bytes share numbers; bytes are told by their form."""

POSTGRESQL: Mapping[int, NumberedType] = _of("""
16 bool boolean o
17 bytea bytes b
18 char string t
19 name string t
20 int8 int64 n
21 int2 int16 n
23 int4 int32 n
25 text string t
26 oid int64 n
114 json json t
142 xml xml t
700 float4 float32 f
701 float8 float64 f
1042 bpchar string t
1043 varchar string t
1082 date date D
1083 time time(6) T
1114 timestamp timestamp(6) l
1184 timestamptz zoned_timestamp(6) z
1186 interval interval t
1266 timetz string t
1560 bit string t
1562 varbit string t
1700 numeric decimal d
2950 uuid uuid t
3802 jsonb json t
""")

_TABLES = {"m": MYSQL, "p": POSTGRESQL}
_UNKNOWN = NumberedType("", "string", "t")


def kind_of(source_type: str) -> str:
    """Whose numbers a record of a source has: `m` (MySQL's), `p` (PostgreSQL's), or `x` for nobody's that we know."""
    return "m" if source_type in ("MySQL", "DRDS") else "p" if source_type in ("PostgreSQL", "PPAS") else "x"


TEXTUAL_OBJECTS = ("JSON", "XML", "TEXT", "UUID", "ENUM", "SET", "ROWID", "UROWID", "BOOL", "BOOLEAN")
"""Types of a BinaryObject whose bytes are UTF-8."""
TEXTUAL_OIDS = (16, 25, 114, 142, 1042, 1043, 2950, 3802)
BOOLEAN_OID = 16
FLOAT_NUMBERS = {"m": 4, "p": 700}


def expected_form(kind: str, number: int) -> str:
    """The form that values of a number have; of unknown numbers `t`."""
    return _TABLES.get(kind, {}).get(number, _UNKNOWN).form


def column_of(name: str, position: int, kind: str, number: int, form: str, *, nullable: bool) -> Column:
    """The column of a field.

    Args:
        name: the field's name.
        position: its index, from 1.
        kind: whose number it is (`KIND`).
        number: its `dataTypeNumber`.
        form: the form of its value where that is not the expected one, else empty.
        nullable: whether it is not a key column.
    """
    known = _TABLES.get(kind, {}).get(number, _UNKNOWN)
    # A zero date, or an infinite one, has no type but text.
    logical = FORMS[form] if form else known.logical
    return Column(name, position, LogicalType.parse(logical), native_type=known.native, nullable=nullable)


_BY_LOGICAL = {
    "m": {
        "boolean": 1, "int8": 1, "int16": 2, "int32": 3, "int64": 8, "uint64": 8, "decimal": 246, "float32": 4,
        "float64": 5, "bytes": 252, "date": 10, "time": 19, "timestamp": 18, "instant": 17, "zoned_timestamp": 17,
        "json": 245,
    },
    "p": {
        "boolean": 16, "int8": 21, "int16": 21, "int32": 23, "int64": 20, "uint64": 1700, "decimal": 1700,
        "float32": 700, "float64": 701, "bytes": 17, "date": 1082, "time": 1083, "timestamp": 1114, "instant": 1184,
        "zoned_timestamp": 1184, "json": 3802, "uuid": 2950, "xml": 142, "interval": 1186, "string": 25,
    },
}  # fmt: skip
_NATIVE_MYSQL = {
    "tinyint": 1, "smallint": 2, "mediumint": 9, "int": 3, "integer": 3, "bigint": 8, "float": 4, "double": 5,
    "decimal": 246, "numeric": 246, "date": 10, "time": 19, "datetime": 18, "timestamp": 17, "year": 13, "bit": 16,
    "char": 254, "binary": 254, "varchar": 253, "varbinary": 253, "text": 252, "tinytext": 252, "mediumtext": 252,
    "longtext": 252, "blob": 252, "tinyblob": 252, "mediumblob": 252, "longblob": 252, "enum": 254, "set": 254,
    "json": 245, "geometry": 255, "point": 255,
}  # fmt: skip
_NATIVE_POSTGRESQL = {found.native: number for number, found in POSTGRESQL.items()}


def number_of(column: Column, kind: str) -> int:
    """The `dataTypeNumber` of a column: by the source's own type name, else by its logical type."""
    native = column.native_type.split("(")[0].split(" ")[0].lower()
    names, table = (_NATIVE_POSTGRESQL, POSTGRESQL) if kind == "p" else (_NATIVE_MYSQL, MYSQL)
    by_logical = _BY_LOGICAL["p" if kind == "p" else "m"].get(column.logical.kind, 25 if kind == "p" else 253)
    number = names.get(native)
    fits = number is not None and table[number].form == table[by_logical].form
    return number if fits and number is not None else by_logical
