"""What a statement gave: columns with their types, and rows that are read as they are asked for."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace_emulators.sqlserver.errors import Error
from headrace_emulators.sqlserver.scope import Output


class Rows:
    """Stored values of a result, read as they are asked for.

    Args:
        fetch: gives up to so many rows; none at the end.
        translate: words an SQLite error that comes up while rows are read.
    """

    def __init__(
        self,
        fetch: Callable[[int], list[tuple[Any, ...]]],
        translate: Callable[[sqlite3.Error], Error] | None = None,
    ) -> None:
        self._fetch = fetch
        self._translate = translate

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, ...]]) -> Rows:
        """Rows that are there already."""
        iterator = iter(rows)
        return cls(lambda count: list(itertools.islice(iterator, count)))

    def take(self, count: int) -> list[tuple[Any, ...]]:
        """The next rows, at most so many; none at the end."""
        try:
            return self._fetch(count)
        except sqlite3.Error as error:
            if self._translate is None:
                raise
            raise self._translate(error) from error

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while block := self.take(256):
            yield from block


@dataclass
class Result:
    """What a statement gave.

    Args:
        columns: names and types; empty when it is no query.
        rows: stored values, read as they are asked for.
        rowcount: rows changed, -1 for a query.
    """

    columns: tuple[Output, ...]
    rows: Rows
    rowcount: int = -1
