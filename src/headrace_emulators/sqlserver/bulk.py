"""Many rows at once: converted column by column, inserted by one prepared statement, logged as one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace_emulators.sqlserver.catalog import ColumnInfo, TableInfo, quoted
from headrace_emulators.sqlserver.conversion import assigning, bound
from headrace_emulators.sqlserver.errors import Error, null_refused
from headrace_emulators.sqlserver.statements import StatementTranslator
from headrace_emulators.sqlserver.storage import SqlServerStorage

_BATCH = 20_000
_RANGES = {
    "tinyint": (0, 255),
    "smallint": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
}


def insert_rows(
    storage: SqlServerStorage, name: str, rows: Iterable[Sequence[Any]] | pa.Table, columns: Sequence[str] | None
) -> int:
    """Insert rows into a table in one transaction.

    Args:
        storage: where.
        name: `schema.table`.
        rows: an Arrow table, or sequences in the order of `columns`.
        columns: names; None for those of the Arrow table, or all that can be given a value.

    Returns:
        How many rows.
    """
    parts = [p.strip("[]") for p in name.split(".")]
    table, path = storage.find("", parts[0] if len(parts) > 1 else "dbo", parts[-1])
    if columns is None:
        columns = (
            rows.column_names if isinstance(rows, pa.Table) else [c.name for c in table.columns if c.computed is None]
        )
    given = [table.column(c) for c in columns]
    named = {c.name for c in given}
    rest = [c for c in table.columns if c.name not in named and c.computed is None]
    translator = StatementTranslator(f"bulk insert into {name}", storage.find)
    fill = [translator.missing(c, table) for c in rest]
    listed = ", ".join(quoted(c.name) for c in [*given, *rest])
    sql = f"INSERT INTO {path} ({listed}) VALUES ({', '.join([*('?' * len(given)), *fill])})"
    total = 0
    with storage.writing():
        storage.log.statement()
        storage.identities.prepare(table)
        try:
            for block in _blocks(rows, list(columns)):
                stored = [_stored(values, column, table) for values, column in zip(block, given, strict=True)]
                storage.sqlite.executemany(sql, zip(*stored, strict=True))
                total += len(stored[0])
        except sqlite3.Error as error:
            raise storage.translated(error) from error
        storage.identities.keep(table, explicit=any(c.identity for c in given))
    return total


def _blocks(rows: Iterable[Sequence[Any]] | pa.Table, columns: list[str]) -> Iterator[list[Sequence[Any]]]:
    if isinstance(rows, pa.Table):
        for start in range(0, rows.num_rows, _BATCH):
            part = rows.slice(start, _BATCH)
            yield [_values(part.column(c)) for c in columns]
        return
    block: list[Sequence[Any]] = []
    for row in rows:
        block.append(row)
        if len(block) == _BATCH:
            yield list(zip(*block, strict=True))
            block = []
    if block:
        yield list(zip(*block, strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type) or pa.types.is_decimal(column.type):
        # Arrow's own text forms are what is stored, and much faster than Python objects.
        plain = (
            column.cast(pa.timestamp(column.type.unit))
            if pa.types.is_timestamp(column.type) and column.type.tz
            else column
        )
        return list(plain.cast(pa.string()).to_pylist())
    return list(column.to_pylist())


def _stored(values: Sequence[Any], column: ColumnInfo, table: TableInfo) -> Sequence[Any]:
    if not column.nullable and None in values:
        raise null_refused(column.name, table.path)
    declared = column.type
    if declared.family == "int" and all(type(v) is int or v is None for v in values):
        low, high = _RANGES[declared.name]
        present = [v for v in values if v is not None]
        if not present or (min(present) >= low and max(present) <= high):
            return values
    if declared.name == "float" and all(type(v) is float or v is None for v in values):
        return values
    convert: Callable[[object], object] = assigning(declared.declaration, column.name)
    # Bulk data repeats itself (airports, dates, prices), so each distinct value is converted once.
    known: dict[Any, object] = {}
    out: list[object] = []
    for value in values:
        if value is None:
            out.append(None)
            continue
        kind = value if type(value) is str else (type(value), value)
        try:
            out.append(known[kind])
        except KeyError:
            made = known[kind] = convert(bound(value))
            out.append(made)
        except TypeError as error:
            raise Error(f"A value of column '{column.name}' can't be stored: {type(value).__name__}.") from error
    return out
