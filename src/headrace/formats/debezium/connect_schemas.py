"""Kafka Connect schemas of a table's Debezium events, as JsonConverter writes them.

Source: Debezium's documentation of the SQL Server connector; recorded events of that connector,
1.7.2 and 3.6.1; the documented events of the Oracle and Db2 connectors 2.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from headrace.changes import Column, TableId, TableSchema
from headrace.errors import OptionError
from headrace.formats.debezium.column_types import default_of, wire_type
from headrace.formats.debezium.connect_fields import plain, struct
from headrace.formats.debezium.connectors import EventShape
from headrace.formats.debezium.wire_types import ValueModes


def adjusted(name: str, mode: str) -> str:
    """A schema name, made fit for Avro where the mode is `avro`: letters, digits, `_` and `.`, no digit in front."""
    if mode == "none" or not name:
        return name
    rest = re.sub(r"[^A-Za-z0-9_.]", "_", name[1:])
    return (name[0] if re.match(r"[A-Za-z_]", name[0]) else "_") + rest


@dataclass(frozen=True)
class FieldRules:
    """How columns become fields.

    Args:
        adjustment: `avro` makes field names fit for Avro, `none` leaves them.
        propagated_columns: whose type stands in the field's parameters: `schema.table.column`, with or without the
            database in front.
        propagated_types: the same by `schema.table.type`.
        column_names: whether the name stands there too.
    """

    adjustment: str = "none"
    propagated_columns: tuple[re.Pattern[str], ...] = ()
    propagated_types: tuple[re.Pattern[str], ...] = ()
    column_names: bool = True

    def names(self, schema: TableSchema) -> dict[str, str]:
        """The field name of each column.

        Raises:
            OptionError: two columns would become one field.
        """
        names = {column.name: self._name(column.name) for column in schema.columns}
        taken: dict[str, str] = {}
        for column, field in names.items():
            if field in taken:
                raise OptionError(
                    f"Columns '{taken[field]}' and '{column}' of table {schema.id} both become field '{field}'.",
                    remedy="Rename or leave out one of them, or set 'field_name_adjustment_mode' to none.",
                )
            taken[field] = column
        return names

    def _name(self, column: str) -> str:
        if self.adjustment == "none":
            return column
        name = re.sub(r"[^A-Za-z0-9_]", "_", column)
        return f"_{name}" if name[:1].isdigit() else name

    def parameters(self, table: TableId, column: Column) -> dict[str, str]:
        """What was done to the column's values; else what the source says of its type, where that is propagated.

        Debezium applies one mapper to a column, and masks come first.
        """
        if column.masked:
            return {"masked": "true"}
        if column.truncated_to is not None:
            return {"truncateLength": str(column.truncated_to)}
        if not (
            _matched(self.propagated_columns, table, column.name)
            or _matched(self.propagated_types, table, column.native_type)
        ):
            return {}
        values = {
            "type": column.native_type.upper(),
            "length": column.length,
            "scale": column.scale,
            "name": column.name if self.column_names else None,
        }
        return {f"__debezium.source.column.{key}": str(value) for key, value in values.items() if value is not None}


def _matched(patterns: tuple[re.Pattern[str], ...], table: TableId, last: str) -> bool:
    paths = (f"{table.full_path}.{last}", f"{table.path}.{last}")
    return any(pattern.fullmatch(path) for pattern in patterns for path in paths)


def key_schema(
    schema: TableSchema,
    base: str,
    modes: ValueModes,
    rules: FieldRules = FieldRules(),
    *,
    table_field: str | None = None,
) -> dict[str, Any]:
    """The Connect schema of a table's key; `table_field` is the field that a router adds to tell tables apart."""
    names = rules.names(schema)
    fields = [_column(column, names[column.name], modes, {}) for column in schema.key_columns]
    if table_field is not None:
        fields.append(plain("string", table_field))
    return struct(fields, optional=False, name=f"{base}.Key")


def row_schema(schema: TableSchema, base: str, modes: ValueModes, rules: FieldRules = FieldRules()) -> dict[str, Any]:
    """The Connect schema of a table's rows, as `before` and `after` have it."""
    names = rules.names(schema)
    columns = [_column(c, names[c.name], modes, rules.parameters(schema.id, c)) for c in schema.columns]
    return struct(columns, optional=True, name=f"{base}.Value")


def envelope_fields(shape: EventShape, *, transaction: bool = True) -> list[dict[str, Any]]:
    """The fields of an envelope behind the source block; `transaction` is whether they have that block."""
    block = struct(
        [plain("string", "id"), plain("int64", "total_order"), plain("int64", "data_collection_order")],
        optional=True,
        name=shape.transaction_name,
        version=1 if shape.transaction_name else None,
        field="transaction",
    )
    names = ("ts_ms", "ts_us", "ts_ns") if shape.fine_times else ("ts_ms",)
    times = [plain("int64", name, optional=True) for name in names]
    operation = [plain("string", "op"), *times]
    if not transaction:
        return operation
    return [block, *operation] if shape.transaction_first else [*operation, block]


def _column(column: Column, name: str, modes: ValueModes, parameters: dict[str, str]) -> dict[str, Any]:
    wire = wire_type(column, modes)
    field: dict[str, Any] = {**wire.described(), "optional": column.nullable, **wire.meaning(parameters)}
    default = default_of(column, modes)
    if default is not None:
        field["default"] = default
    field["field"] = name
    return field
