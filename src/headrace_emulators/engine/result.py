"""What a statement returns: columns with their types, and rows that are fetched on demand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

ColumnType = TypeVar("ColumnType")
Row = tuple[Any, ...]


@dataclass
class Result(Generic[ColumnType]):
    """The result of a statement.

    Args:
        columns: names and types; empty unless the statement is a query.
        rows: stored values, fetched on demand.
        rowcount: rows changed, -1 for a query.
    """

    columns: tuple[tuple[str, ColumnType], ...] = ()
    rows: Iterator[Row] = field(default_factory=lambda: iter(()))
    rowcount: int = -1
