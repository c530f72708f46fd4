"""Which captured tables are read before their changes follow; the changes of the others are streamed alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

from headrace.changes import TableId
from headrace.changes.table_pattern import TablePattern
from headrace.options import items
from headrace.sources.tables.lost import WITHOUT_ROWS

_COMMA = re.compile(r"(?<!\\),")


class FirstReadSettings(Protocol):
    """The options that say it."""

    @property
    def snapshot_mode(self) -> str:
        """When tables are read."""

    @property
    def snapshot_include_collection_list(self) -> tuple[str, ...]:
        """The only tables that are read; empty for all."""


def collections(given: Any) -> tuple[str, ...]:
    """Names and regular expressions of tables, from a list or from text with commas between; used as an option's kind.

    In text a comma inside an expression is written with a backslash before it.

    Raises:
        ValueError: one of them is not a regular expression.
    """
    found = tuple(items(given, _COMMA.split))
    for text in found:
        pattern = TablePattern(text, in_source=True)
        if pattern.is_expression:
            # Found wrong before a run, not at the first table.
            _ = pattern.expression
    return found


def is_read_first(settings: FirstReadSettings, table: TableId) -> bool:
    """Whether a table's rows are read before its changes: the mode reads tables, and the list has this one.

    What a signal asks for is read in any case.
    """
    if settings.snapshot_mode in WITHOUT_ROWS:
        return False
    chosen = settings.snapshot_include_collection_list
    return not chosen or any(TablePattern(text, in_source=True).among([table], lambda id: id) for text in chosen)


def read_first(settings: FirstReadSettings, tables: Iterable[TableId]) -> list[str]:
    """The paths of those of these tables that are read before their changes, in their order."""
    return [table.path for table in tables if is_read_first(settings, table)]


def reads_all(settings: FirstReadSettings, tables: Iterable[TableId]) -> bool:
    """Whether reading again mends whatever was lost of these tables: mode `when_needed`, with each of them."""
    return settings.snapshot_mode == "when_needed" and all(is_read_first(settings, table) for table in tables)
