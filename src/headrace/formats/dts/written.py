"""Values of DTS records as they are written: the branch of the union, from canonical text or from a typed column.

A text that its column's type does not have (a time finer than the record's unit, a number that is none) is written as
Character, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from headrace.changes import Column, TableSchema
from headrace.changes.texts import canonical_text
from headrace.changes.typed import quote
from headrace.formats.dts.schema import (
    BINARY_OBJECT,
    CHARACTER,
    DATE_TIME,
    DECIMAL,
    EMPTY,
    FLOAT,
    INTEGER,
    MEMBERS,
    TEXT_OBJECT,
    TIMESTAMP,
    ZONED,
)
from headrace.formats.dts.types import number_of


def let(name: str, value: str, body: str) -> str:
    """Spark SQL for `body`, in which `name` stands for a value that is computed once."""
    return f"get(transform(array({value}), {name} -> {body}), 0)"


PLAN = "array<struct<name:string,code:string,width:int,precision:int,scale:int,mysql:int,pg:int>>"
"""The Spark type of a table's plan: what its columns' texts become."""

_CODES = {
    "boolean": "o", "int8": "n", "int16": "n", "int32": "n", "int64": "n", "uint64": "n", "decimal": "d",
    "float32": "f", "float64": "f", "bytes": "b", "date": "D", "time": "T", "timestamp": "l", "instant": "i",
    "zoned_timestamp": "z", "json": "j", "xml": "x", "uuid": "u",
}  # fmt: skip
_WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint64": 8}
_OBJECTS = {"o": "BOOL", "j": "JSON", "x": "XML", "u": "UUID"}
_MOMENT = (
    "^(?:([+-]?[0-9]{4,9})-([0-9]{2})-([0-9]{2}))?[ T]?(?:(-?)([0-9]{2,9}):([0-9]{2}):([0-9]{2})"
    "(?:[.]([0-9]{1,9}))?)?(Z|[+-][0-9]{2}:?[0-9]{2})?$"
)
_YEAR, _MONTH, _DAY, _SIGN, _HOUR, _MINUTE, _SECOND, _FRACTION, _OFFSET = range(9)
_INTEGER = "^[+-]?[0-9]+$"
_DECIMAL = "^([+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity|~)$"


class PlanEntry(NamedTuple):
    """One column of a plan; the numbers are its `dataTypeNumber` for MySQL's and for PostgreSQL's records."""

    name: str
    code: str
    width: int
    precision: int
    scale: int
    mysql: int
    pg: int


def plan_of(schema: TableSchema) -> list[PlanEntry]:
    """The plan of a table."""
    found = []
    for column in schema.columns:
        kind = column.logical
        # A year is a DateTime of nothing else.
        code = "y" if column.native_type == "year" and kind.kind in _WIDTHS else _CODES.get(kind.kind, "t")
        precision, scale = (kind.precision or 0, kind.scale or 0) if kind.kind == "decimal" else (0, 0)
        numbers = (13 if code == "y" else number_of(column, "m"), number_of(column, "p"))
        found.append(PlanEntry(column.name, code, _WIDTHS.get(kind.kind, 8), precision, scale, *numbers))
    return found


def value(member: str, struct: str) -> str:
    """Spark SQL for a value whose branch is `member`."""
    members = (f"'{name}', {struct if name == member else f'cast(null as {kind})'}" for name, kind in MEMBERS.items())
    return f"named_struct({', '.join(members)})"


def absent_value() -> str:
    """Spark SQL for the value of a column that an image does not carry."""
    return value(EMPTY, "'NONE'")


def _character(text: str) -> str:
    return value(CHARACTER, f"named_struct('charset', 'utf8mb4', 'value', cast({text} as binary))")


def _object(member: str, type: str, content: str) -> str:
    return value(member, f"named_struct('type', {type}, 'value', {content})")


def text_value(text: str, entry: str, micro: str, codes: Collection[str] | None = None) -> str:
    """Spark SQL for the value of a canonical text; null for null.

    Args:
        text: SQL for the text; a name, because it is repeated.
        entry: SQL for the column's entry in the plan.
        micro: SQL: whether the fraction of a DateTime is written in microseconds.
        codes: the codes that the entry may have, where they are known: what is for others is left out.
    """
    number = value(INTEGER, f"named_struct('precision', {entry}.width, 'value', {text})")
    decimal = value(DECIMAL, f"named_struct('value', {text}, 'precision', {entry}.precision, 'scale', {entry}.scale)")
    floating = let(
        "f",
        f"try_cast({text} as double)",
        # A number beyond the range would become infinite.
        f"if(f is null or (abs(f) = double('Infinity') and not {text} like '%Infinity'), {_character(text)}, "
        f"{value(FLOAT, _float('f'))})",
    )
    object_type = " ".join(f"when '{code}' then '{name}'" for code, name in _OBJECTS.items())
    object_value = _object(TEXT_OBJECT, f"case {entry}.code {object_type} end", text)
    binary = let(
        "b", f"try_to_binary({text}, 'base64')",
        f"if(b is null, {_character(text)}, {_object(BINARY_OBJECT, _q('BLOB'), 'b')})",
    )  # fmt: skip
    year = (
        f"named_struct('year', try_cast({text} as int), {_nulls('month', 'day', 'hour', 'minute', 'second', 'millis')})"
    )
    made = {
        ("t",): _character(text),
        ("n",): f"if({text} rlike '{_INTEGER}', {number}, {_character(text)})",
        ("d",): f"if({text} rlike '{_DECIMAL}', {decimal}, {_character(text)})",
        ("f",): floating,
        tuple(_OBJECTS): object_value,
        ("b",): binary,
        ("y",): f"if(try_cast({text} as int) is null, {_character(text)}, {value(DATE_TIME, year)})",
    }
    branches = "".join(
        f"when {entry}.code in ({', '.join(map(_q, of))}) then {sql} "
        for of, sql in made.items()
        if codes is None or not set(of).isdisjoint(codes)
    )
    moments = codes is None or not set(codes) <= {code for of in made for code in of}
    other = moment_value(text, f"{entry}.code", micro) if moments else "null"
    return f"case when {text} is null then null {branches}else {other} end"


def _q(text: str) -> str:
    return f"'{text}'"


def _float(number: str) -> str:
    return f"named_struct('value', {number}, 'precision', 0, 'scale', 0)"


def _nulls(*parts: str) -> str:
    return ", ".join(f"'{part}', cast(null as int)" for part in parts)


def moment_value(text: str, code: str, micro: str) -> str:
    """Spark SQL for the value of a canonical text of a date, time or timestamp of any kind."""
    groups = "$1;$2;$3;$4;$5;$6;$7;$8;$9"
    split = f"if({text} rlike '{_MOMENT}', split(regexp_replace({text}, '{_MOMENT}', '{groups}'), ';'), null)"
    sign = f"if(m[{_SIGN}] = '-', -1, 1)"

    def part(group: int) -> str:
        return f"try_cast(m[{group}] as int)"

    digits = f"if({micro}, 6, 9)"
    millis = (
        f"if(m[{_FRACTION}] = '', null, {sign} * try_cast(rpad(substr(m[{_FRACTION}], 1, {digits}), {digits}, '0') "
        "as int))"
    )
    parts = (
        f"named_struct('year', {part(_YEAR)}, 'month', {part(_MONTH)}, 'day', {part(_DAY)}, "
        f"'hour', {sign} * {part(_HOUR)}, 'minute', {sign} * {part(_MINUTE)}, 'second', {sign} * {part(_SECOND)}, "
        f"'millis', {millis})"
    )
    fits = f"coalesce(rtrim('0', substr(m[{_FRACTION}], {digits} + 1)) = '', true)"
    has_day, has_clock, has_zone = f"m[{_YEAR}] <> ''", f"m[{_HOUR}] <> ''", f"m[{_OFFSET}] <> ''"
    shape = (
        f"case {code} when 'D' then {has_day} and not {has_clock} and not {has_zone} "
        f"when 'T' then {has_clock} and not {has_day} and not {has_zone} "
        f"when 'l' then {has_day} and {has_clock} and not {has_zone} and {sign} = 1 "
        f"else {has_day} and {has_clock} and {has_zone} and {sign} = 1 end"
    )
    micros = f"unix_micros(try_cast({text} as timestamp))"
    # An instant has microseconds whatever the source.
    fine = f"rtrim('0', substr(m[{_FRACTION}], 7)) <> ''"
    instant = let(
        "s",
        micros,
        f"if(s is null or {fine} or m[{_OFFSET}] <> 'Z', {_character(text)}, {value(TIMESTAMP, timestamp_parts('s'))})",
    )
    zoned = value(ZONED, f"named_struct('value', {parts}, 'timezone', m[{_OFFSET}])")
    made = (
        f"case when m is null or not ({shape}) then {_character(text)} when {code} = 'i' then {instant} "
        f"when not {fits} then {_character(text)} when {code} = 'z' then {zoned} else {value(DATE_TIME, parts)} end"
    )
    return let("m", split, made)


def timestamp_parts(micros: str) -> str:
    """Spark SQL for a Timestamp of microseconds since the epoch."""
    rest = f"pmod({micros}, 1000000L)"
    return f"named_struct('timestamp', ({micros} - {rest}) div 1000000L, 'millis', cast({rest} as int))"


def typed_value(image: str, column: Column, entry: PlanEntry, micro: str) -> str:
    """Spark SQL for the value of a typed column of a struct image; null for null.

    Args:
        image: SQL for the struct.
        column: what the value means.
        entry: its entry in the plan.
        micro: SQL: whether the fraction of a DateTime is written in microseconds.
    """
    v, kind = f"{image}.{quote(column.name)}", column.logical.spark_type
    made = _typed(v, kind, column, entry, micro)
    return f"if({v} is null, null, {made})"


def _typed(v: str, kind: str, column: Column, entry: PlanEntry, micro: str) -> str:
    if kind == "string" or entry.code in ("z", "y"):
        plan = (
            f"named_struct('code', '{entry.code}', 'width', {entry.width}, 'precision', {entry.precision}, "
            f"'scale', {entry.scale})"
        )
        if entry.code == "t":
            return _character(v)
        return let("c", plan, let("t", canonical_text(v, column), text_value("t", "c", micro, (entry.code,))))
    if entry.code == "n":
        return value(INTEGER, f"named_struct('precision', {entry.width}, 'value', cast({v} as string))")
    if entry.code == "d":
        text = canonical_text(v, column)
        return value(DECIMAL, f"named_struct('value', {text}, 'precision', {entry.precision}, 'scale', {entry.scale})")
    if kind == "float":
        # The digits of the float, not those of its bits as a double.
        return value(FLOAT, _float(f"cast(cast({v} as string) as double)"))
    if kind == "double":
        return value(FLOAT, _float(v))
    if kind == "boolean":
        return _object(TEXT_OBJECT, "'BOOL'", f"cast({v} as string)")
    if kind == "binary":
        return _object(BINARY_OBJECT, "'BLOB'", v)
    if kind == "date":
        parts = f"named_struct('year', year({v}), 'month', month({v}), 'day', day({v}), "
        return value(DATE_TIME, parts + _nulls("hour", "minute", "second", "millis") + ")")
    if kind == "timestamp":
        return let("s", f"unix_micros({v})", value(TIMESTAMP, timestamp_parts("s")))
    fraction = f"cast(date_part('SECOND', {v}) % 1 * if({micro}, 1000000, 1000000000) as int)"
    parts = (
        f"named_struct('year', year({v}), 'month', month({v}), 'day', day({v}), 'hour', hour({v}), "
        f"'minute', minute({v}), 'second', second({v}), 'millis', {fraction})"
    )
    return value(DATE_TIME, parts)
