"""The table whose rows follow a TABLE_MAP event: what the log says of it, with what only the catalog knows."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from headrace.changes import Column
from headrace.errors import CaptureError, OptionError
from headrace.settings import Settings
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.charsets import charset_of, text_of
from headrace.sources.mysql.table_map import MapColumn, TableMap
from headrace.sources.mysql.types import NativeType
from headrace.sources.mysql.wire_columns import WireColumn
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.table_rules import TableRules

_HIDDEN = re.compile(r"DB_ROW_HASH_\d+", re.ASCII)
"""A column of MariaDB's own, by which it keeps long texts unique. It is in the log, and no catalog shows it."""
_VERSION = "row_end"
"""The column that MariaDB adds to the key of a table that keeps versions of its rows."""
_MANY_TYPES = frozenset((("binary", 16), ("binary", 4)))
"""What the log shows for BINARY, and for MariaDB's UUID, INET6 and INET4."""


@dataclass(frozen=True)
class DescribedTable:
    """A table in one state.

    Args:
        table: what is captured of it.
        columns: all columns that its rows have in the log, in their order; none where the log has not described it.
        positions: for each captured column its position among these.
    """

    table: MysqlTable
    columns: tuple[WireColumn, ...] = ()
    positions: tuple[int, ...] = ()


def described_table(
    described: TableMap, known: MysqlTable, settings: Settings, *, altered: bool = False
) -> DescribedTable:
    """A table as the log describes it.

    Names, order, types and the primary key are those of the log. The catalog, which may be newer, adds the types that
    the log shows as others, unique keys, defaults and comments, where it has a column of that name and type.

    Args:
        described: what the log says.
        known: the table as the catalog showed it.
        settings: the source's options.
        altered: whether it is not known that the table was as the catalog showed it.

    Raises:
        CaptureError: the log does not name the columns or does not say all of their types, and the catalog can't prove
            what they are; or the key can't be as the options say.
        SchemaError: a column is of a type that can't be read.
        OptionError: no column is left, a mask can't be applied, or a column may be one that options keep back or
            change, under another name.
    """
    wire = [_native(column) for column in described.columns]
    if described.named:
        names = [str(column.name) for column in described.columns]
    else:
        names = _proven_names(described, wire, known, altered=altered)
    if _VERSION in {names[part.column] for part in described.primary_key} - set(known.names):
        raise CaptureError(
            f"Table '{known.path}' kept versions of its rows (WITH SYSTEM VERSIONING) when its changes were made, and "
            "the log has old versions among the new ones.",
            remedy=_left_out(known.path),
        )
    before = {column.name: (column, native) for column, native in zip(known.schema.columns, known.natives, strict=True)}
    columns: list[tuple[Column, NativeType]] = []
    same = set()
    for position, (name, native, column) in enumerate(zip(names, wire, described.columns, strict=True), 1):
        shown, declared = before.get(name, (None, None))
        refined = None if declared is None else native.refined(declared)
        if refined is not None:
            same.add(name)
        if declared is None and _HIDDEN.fullmatch(name):
            continue
        if altered and refined is None and (native.kind, native.length) in _MANY_TYPES:
            raise CaptureError(
                f"The log does not say of which type column '{name}' of table '{known.path}' was when its changes were "
                "made, because the table was altered since.",
                remedy=_left_out(known.path),
            )
        types = refined or native
        columns.append((_column(shown if refined else None, name, position, types, column), types))
    table = TableRules.of(settings).chosen(known.id, columns, _keys(described, known, names), known.schema.comment)
    chunk_key = known.chunk_key if same.issuperset(known.chunk_key) else ()
    mysql_table = MysqlTable(
        table.schema, table.natives, chunk_key, table.protected, known.engine, columns=tuple(names)
    )
    _require_protected(mysql_table, known, names)
    refined_by_name = {column.name: native for column, native in columns}
    wire_columns = tuple(
        WireColumn(column.code, column.meta, refined_by_name.get(name, native))
        for name, column, native in zip(names, described.columns, wire, strict=True)
    )
    return DescribedTable(mysql_table, wire_columns, tuple(names.index(column.name) for column in table.schema.columns))


def _left_out(path: str) -> str:
    """How to go on without changes of a table that can't be read."""
    return (
        f"Leave these changes out, and read the table again: headrace repair skip <pipeline> {path} --to now, and then "
        f"headrace repair reread <pipeline> {path}."
    )


def _native(column: MapColumn) -> NativeType:
    labels: tuple[str, ...] = ()
    if column.labels and column.collation is not None:
        charset = charset_of(column.collation)
        labels = tuple(text_of(label, charset) for label in column.labels)
    return NativeType.of_wire(
        column.code,
        column.meta,
        unsigned=column.unsigned,
        collation=column.collation,
        labels=labels,
        geometry=column.geometry or 0,
        dimension=column.dimension,
    )


def _column(shown: Column | None, name: str, position: int, native: NativeType, column: MapColumn) -> Column:
    return replace(
        shown or Column(name, position, native.logical, native.name),
        position=position,
        logical=native.logical,
        native_type=native.name,
        length=native.length,
        scale=native.scale,
        nullable=column.nullable,
        large=native.large,
        enum_values=native.enum_values,
    )


def _keys(described: TableMap, known: MysqlTable, names: list[str]) -> list[UniqueKey]:
    """The primary key that the log names, else the catalog's key. A part of a column is not a key of rows."""
    parts = described.primary_key
    if parts and not any(part.prefix for part in parts):
        return [UniqueKey(tuple(names[part.column] for part in parts), primary=True)]
    key = known.schema.key if known.schema.primary_key is None else known.schema.primary_key
    return [UniqueKey(key)] if key and set(key) <= set(names) else []


def _proven_names(described: TableMap, wire: list[NativeType], known: MysqlTable, *, altered: bool) -> list[str]:
    """The names of columns that the log does not name.

    The catalog has them where it shows as many columns with the same types, and no statement stands in between.
    """
    names = [column.name for column in known.schema.columns]
    agree = (
        not altered
        and len(names) == len(wire)
        and all(native.refined(now) is not None for native, now in zip(wire, known.natives, strict=True))
        and [column.nullable for column in described.columns] == [column.nullable for column in known.schema.columns]
    )
    if not agree:
        raise CaptureError(
            f"The log does not name the columns of table '{known.path}', and the catalog can't tell which they were.",
            remedy=f"Run SET GLOBAL binlog_row_metadata = 'FULL'. {_left_out(known.path)}",
        )
    return names


def _require_protected(table: MysqlTable, known: MysqlTable, names: list[str]) -> None:
    """See that no protected column comes in clear because it had or has another name."""
    gone = next((name for name in known.protected if name not in names), None)
    bare = [column.name for column in table.schema.columns if column.name not in table.protected]
    fresh = next((name for name in bare if name not in known.names), None)
    if gone is not None and fresh is not None:
        raise OptionError(
            f"Changes of table '{table.path}' have a column '{fresh}', which may be column '{gone}' under another "
            "name, and no option keeps its values back.",
            remedy=f"Name it in the option that names '{gone}' too, with 'optional:' before it, until those changes "
            "are read.",
        )
