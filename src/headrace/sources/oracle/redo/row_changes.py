"""The plans of inserts, updates and deletes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.sources.oracle.redo.plan import RowPlan, Values, delete_rows, insert_rows, update_rows
from headrace.sources.oracle.redo.reader import HIDDEN, RedoColumn, RedoReader, RedoTable, RedoValue
from headrace.sources.oracle.redo.row import RedoShape

_DOCUMENT = re.compile(r"XMLTYPE\s*\(\s*:\w+\s*\)", re.IGNORECASE)


def place_of(value: RedoValue, values: Values) -> int:
    """Where a value will be among the values of the statement; unsupported types are NULL."""
    if value.kind == "literal":
        return value.indexes[0]
    if value.kind == "joined":
        return values.joined(value.indexes)
    if value.call is not None:
        return values.call(value.call)
    return values.constant(value.text)


def columns_of(reader: RedoReader, named: Iterable[RedoColumn]) -> list[RedoColumn]:
    """The columns of the table among those that a statement names; none may be named twice."""
    columns = [column for column in named if not column.pseudo and column.name != HIDDEN]
    if len({column.name for column in columns}) < len(columns):
        reader.fail("every column once before here")
    return columns


def image_of(columns: Sequence[RedoColumn], values: Values) -> tuple[tuple[str, ...], list[int]]:
    """Names, and where their values will be."""
    return tuple(column.name for column in columns), [place_of(column.value, values) for column in columns]


def _named(columns: Iterable[RedoColumn], kind: str) -> frozenset[str]:
    return frozenset(column.name for column in columns if column.value.kind == kind)


def insert_plan(reader: RedoReader, parts: int) -> RowPlan:
    """`insert into T(names) values (values)`."""
    reader.take_words("INSERT", "INTO")
    table = reader.table()
    reader.take("(")
    names = [reader.column(table)]
    while reader.accept(","):
        names.append(reader.column(table))
    reader.take(")", ", or )")
    reader.take_words("VALUES")
    reader.take("(")
    columns = []
    for index, (name, pseudo) in enumerate(names):
        if index:
            reader.take(",", "a value for each column")
        columns.append(RedoColumn(name, reader.value(), pseudo))
    reader.take(")", ") after a value for each column")
    reader.end()
    columns = columns_of(reader, columns)
    values = Values(parts)
    image, indexes = image_of(columns, values)
    shape = RedoShape(after_calls=_named(columns, "call"), unsupported=_named(columns, "unsupported"))
    return insert_rows(table.schema, table.name, image, indexes, values, shape)


def delete_plan(reader: RedoReader, parts: int) -> RowPlan:
    """`delete from T where ..`."""
    reader.take_words("DELETE", "FROM")
    table = reader.table(follows=("WHERE",))
    columns = columns_of(reader, reader.conditions(table))
    reader.end()
    values = Values(parts)
    image, indexes = image_of(columns, values)
    shape = RedoShape(before_calls=_named(columns, "call"), unsupported=_named(columns, "unsupported"))
    return delete_rows(table.schema, table.name, image, indexes, values, shape)


class Update(NamedTuple):
    """An update: its table, the columns of SET and those of WHERE."""

    table: RedoTable
    sets: list[RedoColumn]
    columns: list[RedoColumn]

    @property
    def document(self) -> str | None:
        """The column that `update T set C = XMLType(:1)` begins to write; None for any other update."""
        call = self.sets[0].value.call if len(self.sets) == 1 else None
        if call is None or not _DOCUMENT.fullmatch(call.constant() or ""):
            return None
        return self.sets[0].name


def update_of(reader: RedoReader) -> Update:
    """`update T set .. where ..`."""
    reader.take_words("UPDATE")
    table = reader.table(follows=("SET",))
    reader.take_words("SET")
    sets = [reader.assignment(table)]
    while reader.accept(","):
        sets.append(reader.assignment(table))
    sets = columns_of(reader, sets)
    columns = columns_of(reader, reader.conditions(table))
    reader.end()
    return Update(table, sets, columns)


def update_plan(reader: RedoReader, parts: int) -> RowPlan | None:
    """`update T set .. where ..`; None if it begins a document.

    A type that can't be printed leaves its column as it was.
    """
    update = update_of(reader)
    if update.document is not None:
        return None
    table, sets, columns = update
    values = Values(parts)
    image, indexes = image_of(columns, values)
    known = [column for column in sets if column.value.kind != "unsupported"]
    set_names, set_indexes = image_of(known, values)
    before_calls = _named(columns, "call")
    shape = RedoShape(
        tuple(column.name for column in sets),
        before_calls,
        before_calls - frozenset(set_names) | _named(sets, "call"),
        _named(columns, "unsupported") | _named(sets, "unsupported"),
    )
    overlay = tuple(zip(set_names, set_indexes, strict=True))
    return update_rows(table.schema, table.name, image, indexes, overlay, values, shape)
