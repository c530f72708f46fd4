"""Which logical type a column of a database has after Debezium: what the messages' schemas can say of it."""

from __future__ import annotations

import re

_SHARED = [
    (r"smallint|tinyint", "int16"),
    (r"bigint|oid", "int64"),
    (r"float|real", "float32"),
    (r"double", "float64"),
    (r"bit\(1\)$", "boolean"),
    (r"bit", "bytes"),
    (r"date$", "date"),
    (r".*\[\]$|geometry|point|polygon", "nested"),
]
_MARIADB = [
    (r"smallint\(5\) unsigned", "int32"),
    (r"int\(\d+\) unsigned", "int64"),
    (r"mediumint|int|year", "int32"),
    (r"time(\(\d\))?$", "time(6)"),
    (r"datetime(\([1-3]\))?$", "timestamp(3)"),
    (r"datetime", "timestamp(6)"),
    (r"timestamp", "zoned_timestamp(9)"),
    (r"(var)?binary|(tiny|medium|long)?blob", "bytes"),
]
_POSTGRES = [
    (r"integer$|posint", "int32"),
    (r"boolean$", "boolean"),
    (r"numeric$", "decimal"),
    # The negative scale comes as this one.
    (r"numeric\(5,-2\)$", "decimal(2046,2046)"),
    # A domain's precision is told too.
    (r"money2|public\.money2", "decimal(14,2)"),
    (r"money", "decimal(38,2)"),
    (r"time(\([0-3]\)) without", "time(3)"),
    (r"time(\([4-6]\))? without", "time(6)"),
    (r"timestamp(\([0-3]\)) without", "timestamp(3)"),
    (r"timestamp(\([4-6]\))? without", "timestamp(6)"),
    (r"timestamp.* with time zone", "zoned_timestamp(9)"),
    (r"interval", "int64"),
    (r"bytea", "bytes"),
    (r"jsonb?$|(public\.)?hstore", "json"),
    (r"uuid$", "uuid"),
    (r"xml$", "xml"),
]


def logical(database: str, native: str) -> str:
    """The logical type that a native type of `mariadb` or `postgres` comes as."""
    exact = re.match(r"(?:decimal|numeric)\((\d+),(\d+)\)(?: unsigned)?$", native)
    if exact:
        precision, scale = map(int, exact.groups())
        # numeric(2,4) has more places than digits, which no other type system knows.
        return f"decimal({max(precision, scale)},{scale})"
    for pattern, kind in [*(_MARIADB if database == "mariadb" else _POSTGRES), *_SHARED]:
        if re.match(pattern, native) and not (native.endswith("[]") and kind != "nested"):
            return kind
    return "string"
