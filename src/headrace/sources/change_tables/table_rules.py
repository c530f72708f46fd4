"""What the options make of each table that has a change table."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.changes import Column, TableId
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance, NativeType
from headrace.sources.tables.columns import say_left_out
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.table_rules import TableRules, no_column_left


def captured_table(
    rules: TableRules,
    id: TableId,
    columns: Sequence[tuple[Column, NativeType]],
    keys: Sequence[UniqueKey],
    instance: CaptureInstance,
    comment: str | None,
) -> CapturedTable:
    """A table as its capture instance shows it.

    Args:
        rules: what the options say.
        id: where it lives.
        columns: the captured columns that the table still has, of types that can be captured.
        keys: primary key and unique indexes, in the order they are preferred.
        instance: the capture instance that is read.
        comment: what the catalog says of the table.

    Raises:
        CaptureError: the key can't be as the options say.
        OptionError: no column is left, or a mask can't be applied.
    """
    computed = [column for column, _ in columns if column.generated]
    if computed:
        why = "change tables hold NULL for computed columns"
        say_left_out(id.full_path, tuple((c.name, c.native_type) for c in computed), why)
    usable = [(column, native) for column, native in columns if not column.generated]
    if not usable:
        raise no_column_left(id)
    table = rules.chosen(id, usable, keys, comment)
    return CapturedTable(table.schema, table.natives, table.chunk_key, table.protected, instance=instance)
