"""Which columns of a captured table are read: include and exclude lists, and types that can't be captured.

Patterns are Debezium's: regular expressions with commas between, matched against the whole of `schema.table.column` or
`database.schema.table.column`, whatever the case.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.options import bare, items
from headrace.settings import Settings

_COMMA = re.compile(r"(?<!\\),")
_LOG = logging.getLogger("headrace.sources")


def patterns(given: Any) -> tuple[str, ...]:
    """Regular expressions from a list, or from text with commas between; used as an option's kind.

    In text a comma inside an expression is written with a backslash before it.

    Raises:
        ValueError: one of them is not a regular expression.
    """
    expressions = tuple(items(given, _COMMA.split))
    for pattern in expressions:
        _compiled(pattern)
    return expressions


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(bare(pattern), re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"'{pattern}' is not a regular expression ({error})") from error


def matching(expressions: Sequence[str], table: TableId, column: str) -> str | None:
    """The first pattern that names a column; None when none does."""
    names = (f"{table.path}.{column}", f"{table.full_path}.{column}")
    return next((p for p in expressions if any(_compiled(p).fullmatch(name) for name in names)), None)


@dataclass(frozen=True)
class ColumnFilter:
    """The columns whose values are wanted.

    Args:
        include: patterns of the only ones; empty for all.
        exclude: patterns of those that are left out.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> ColumnFilter:
        """The filter that the options say.

        Raises:
            OptionError: both lists are given.
        """
        include, exclude = (settings.get(name, ()) for name in ("column_include_list", "column_exclude_list"))
        if include and exclude:
            raise OptionError(
                "Options 'column_include_list' and 'column_exclude_list' are both given.", remedy="Keep one of them."
            )
        return cls(tuple(include), tuple(exclude))

    def keeps(self, table: TableId, column: str) -> bool:
        """Whether a column's values are wanted."""
        if self.include:
            return matching(self.include, table, column) is not None
        return matching(self.exclude, table, column) is None

    def hides(self, table: TableId, column: str, read: Collection[str]) -> bool:
        """Whether the exclude list is why a column is not among those that are read."""
        return column not in read and matching(self.exclude, table, column) is not None


@lru_cache(maxsize=10_000)
def say_left_out(table: str, columns: tuple[tuple[str, str], ...], why: str) -> None:
    """Warn of columns that are left out, once per process and table.

    Args:
        table: `database.schema.table`.
        columns: names and types.
        why: the reason, as the end of a sentence.
    """
    named = ", ".join(f"'{name}' ({kind})" for name, kind in columns)
    word = "Column" if len(columns) == 1 else "Columns"
    _LOG.warning("%s %s of table '%s' left out: %s.", word, named, table, why)
