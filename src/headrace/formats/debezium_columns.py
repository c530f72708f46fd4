"""Columns of one known table as one typed parse reads them: which type, how Spark's value is made, when it is doubtful.

A doubtful value is not wrong: it has to be read a second time, as text (`debezium_decode_structs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.changes import Column, TableSchema
from headrace.changes.typed import literal, quote
from headrace.formats import debezium_texts as texts
from headrace.formats.debezium_fields import FieldText, field_text
from headrace.formats.debezium_options import field_rules, value_modes
from headrace.formats.debezium_schema import SHAPES, value_schema
from headrace.formats.debezium_typed import exact_decimal

REPLACED = "\ufffd"
"""What a parser puts in the place of bytes that are no UTF-8."""


@dataclass(frozen=True)
class FastColumn:
    """One column of the fast parse.

    Args:
        column: the column.
        name: its name on the wire.
        text: how its value stands on the wire, as the options say.
        wire: its Connect schema, as the options say.
    """

    column: Column
    name: str
    text: FieldText
    wire: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The column's Spark type."""
        return self.column.logical.spark_type

    @property
    def parsed(self) -> str:
        """The Spark type that `from_json` reads it as."""
        code = self.text.code
        if code == texts.DATE:
            return "int"
        if code in (texts.TIME, texts.TIMESTAMP):
            return "bigint"
        if code in (texts.INTEGER, texts.BOOLEAN) or (code == texts.FLOAT and self.kind in ("float", "double")):
            return self.kind if self.kind != "string" else "bigint" if code == texts.INTEGER else "boolean"
        return "string"

    def value(self, parsed: str) -> str:
        """Spark SQL from the parsed value to the column's; null where a second reading is needed."""
        code, kind = self.text.code, self.kind
        if code == texts.DATE and kind == "date":
            return f"date_from_unix_date({parsed})"
        if code == texts.TIMESTAMP and kind == "timestamp_ntz":
            return _moment(parsed, self.text.unit)
        if code in (texts.TIME, texts.TIMESTAMP) and kind == "string":
            function = texts.time_text if code == texts.TIME else texts.timestamp_text
            return f"if({parsed} is null, null, {function(parsed, str(self.text.unit), str(self.text.digits))})"
        if code == texts.TIMESTAMP and kind == "timestamp" and self.text.unit in (3, 6):
            return f"timestamp_{'micros' if self.text.unit == 6 else 'millis'}({parsed})"
        if code == texts.DECIMAL and kind == "string":
            return _wide_decimal(parsed, self.column)
        if code in (texts.VARIABLE_DECIMAL, texts.ISO) and kind == "string":
            return "cast(null as string)"
        if kind == "timestamp":
            # Without a zone the session's would count.
            return f"if(endswith({parsed}, 'Z'), try_cast({parsed} as timestamp), null)"
        if kind == "binary":
            return f"try_to_binary({parsed}, 'base64')" if code == texts.AS_IS else "cast(null as binary)"
        if kind.startswith("decimal("):
            return _decimal(parsed, self.column) if code == texts.DECIMAL else exact_decimal(parsed, self.column)
        if self.parsed == kind:
            return parsed
        return f"try_cast({parsed} as {kind})"

    def doubts(self, parsed: str, made: str, placeholders: Sequence[str]) -> list[str]:
        """Spark SQL: why the value has to be read again; `made` is SQL for the column's value."""
        found = []
        if self.value(parsed) != parsed and self.kind != "date":
            found.append(f"{parsed} is not null and {made} is null")
        if self.parsed != "string":
            return found
        # Of a text, an array or a map; of bytes.
        of_kind = [p for p in placeholders if (p[:1] in "[{" or p == placeholders[0]) == (self.kind == "string")]
        found.append(f"{parsed} in ({', '.join(map(literal, of_kind))})")
        if self.kind == "string":
            found.append(f"contains({parsed}, '{REPLACED}')")
            # Such a text may have been a number, or hold one: then its digits are no longer those of the wire.
            # What most texts begin with answers first: it costs next to nothing.
            begins = f"(ascii({parsed}) between 45 and 57 or ascii({parsed}) in (91, 123))"
            number = f"try_cast({parsed} as double) is not null"
            nested = f"ascii({parsed}) in (91, 123)"
            found.append(f"{begins} and {parsed} rlike '[0-9][.eE]' and ({nested} or {number})")
        return found


def _moment(count: str, unit: int) -> str:
    """Spark SQL for a local timestamp from a count of 10**-unit seconds since 1970; null beyond what Spark holds."""
    start = "timestamp_ntz'1970-01-01 00:00:00'"
    if unit == 6:
        return f"{start} + {count} * interval '0.000001' second"
    if unit == 9:
        return f"if({count} % 1000L = 0, {start} + {count} div 1000L * interval '0.000001' second, null)"
    most = 9_223_372_036_854_775
    return f"if({count} between -{most}L and {most}L, {start} + {count} * interval '0.001' second, null)"


def _decimal(text: str, column: Column) -> str:
    """Spark SQL for a decimal column from the base64 of its unscaled bytes; null for what may be something else."""
    precision, scale = column.logical.precision or 38, column.logical.scale or 0
    data = f"try_to_binary({text}, 'base64')"
    # Digits alone may have been a number. No cast: one that fails costs an exception, more than all else of a row.
    sure = f"{text} rlike '[^0-9-]'"
    if precision > 18:
        return f"if({sure}, try_cast({texts.decimal_text(data, str(scale))} as {column.logical.spark_type}), null)"
    digits = f"hex({data})"
    whole = f"conv(lpad({digits}, 16, if({digits} >= '8', 'F', '0')), 16, -10)"
    unit = f"{'0.' + '0' * (scale - 1) + '1' if scale else '1'}BD"
    value = f"try_cast(cast({whole} as decimal(19,0)) * {unit} as {column.logical.spark_type})"
    return f"if({sure} and length({digits}) between 1 and 16, {value}, null)"


def _wide_decimal(text: str, column: Column) -> str:
    """Spark SQL for the digits of a number that Spark's decimals can't hold; null for what may be something else."""
    made = texts.decimal_text(f"try_to_binary({text}, 'base64')", str(column.logical.scale or 0))
    return f"if({text} rlike '^-?[0-9]+$', null, {made})"


def fast_columns(schema: TableSchema, settings: Mapping[str, Any]) -> tuple[FastColumn, ...]:
    """The columns of a table as the options say that they stand on the wire."""
    modes, shape = value_modes(settings), SHAPES[settings["shape"]]
    envelope = value_schema(schema, "t", shape, modes, field_rules(settings, shape))
    wire = next(field for field in envelope["fields"] if field["field"] == "after")["fields"]
    return tuple(
        FastColumn(
            column,
            field["field"],
            field_text(field, column.logical, settings["binary_handling_mode"]),
            field,
        )
        for field, column in zip(wire, schema.columns, strict=True)
    )


def struct_ddl(columns: Sequence[FastColumn]) -> str:
    """The Spark type of an image as it is parsed."""
    return "struct<" + ",".join(f"{quote(column.name)}:{column.parsed}" for column in columns) + ">"


def image(parsed: str, columns: Sequence[FastColumn]) -> str:
    """Spark SQL for an image of the columns' own types from the parsed one."""
    if all(c.value("x") == "x" and c.name == c.column.name for c in columns):
        return parsed
    fields = ", ".join(f"{literal(c.column.name)}, {c.value(f'{parsed}.{quote(c.name)}')}" for c in columns)
    return f"if({parsed} is null, null, named_struct({fields}))"
