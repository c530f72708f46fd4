"""Tables of MySQL, written as short as their columns."""

from __future__ import annotations

from headrace.changes import Column, TableId, TableSchema
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.types import NativeType


def table(*columns, key=("id",), engine="innodb", structure="", name="t", protected=()):
    """Columns as `name type`, then `!` for NOT NULL, `=literal` for a default, `@` for computed, `+` for numbered."""
    found, natives = [], []
    for position, text in enumerate(("id int !", *columns), 1):
        called, rest = text.split(" ", 1)
        words = rest.split()
        marks = [word for word in words if word[0] in "!=@+%"]
        charset = next((mark[1:] for mark in marks if mark[0] == "%"), "utf8mb4")
        kind = " ".join(word for word in words if word not in marks)
        is_text = kind.split("(")[0] in ("char", "varchar", "enum", "set") or "text" in kind
        native = NativeType.of_catalog(kind, charset if is_text else None)
        default = next((mark[1:] for mark in marks if mark[0] == "="), None)
        found.append(
            Column(
                called,
                position,
                native.logical,
                native.name,
                length=native.length,
                scale=native.scale,
                nullable="!" not in marks,
                default=default,
                default_expression=default,
                generated="@" in marks,
                identity="+" in marks,
                enum_values=native.enum_values,
            )
        )
        natives.append(native)
    schema = TableSchema(TableId("d", "", name), tuple(found), key, primary_key=key)
    return MysqlTable(schema, tuple(natives), key, protected, engine, structure=structure)
