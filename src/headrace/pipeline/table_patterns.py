"""Which source tables a route or a transform is for.

The patterns are those of a source's list of tables, but that a regular expression begins with `re:` here; a source also
takes Debezium's, which do not.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.changes import TableId

_EXPRESSION = "re:"
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True)
class TablePattern:
    """A table's name, a shell glob, or a regular expression after `re:`; whatever the case.

    It is held against `schema.table` and `database.schema.table`, the parts that a table does not have left out.

    Args:
        text: as the user wrote it.

    Raises:
        ValueError: it is no regular expression.
    """

    text: str
    _expression: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        expression = (
            self.text.removeprefix(_EXPRESSION)
            if self.text.startswith(_EXPRESSION)
            else fnmatch.translate(self.text.lower())
        )
        try:
            object.__setattr__(self, "_expression", re.compile(expression, re.IGNORECASE))
        except re.error as error:
            raise ValueError(f"'{self.text}' is no regular expression ({error})") from error

    def __str__(self) -> str:
        return self.text

    @property
    def is_name(self) -> bool:
        """Whether it names one table."""
        return not self.text.startswith(_EXPRESSION) and not _WILDCARDS & set(self.text)

    def matches(self, table: TableId) -> bool:
        """Whether it is for a table."""
        return any(self._expression.fullmatch(name) for name in (table.path, table.full_path))


def table_patterns(given: Any) -> tuple[TablePattern, ...]:
    """Patterns from a list, or from text with commas between; an expression after `re:` is one, with its commas.

    Raises:
        ValueError: one of them is no regular expression, or there is none.
    """
    if isinstance(given, (list, tuple)):
        texts = [str(item).strip() for item in given]
    elif isinstance(given, dict):
        raise ValueError("it is a mapping")
    else:
        texts = [given] if str(given).startswith(_EXPRESSION) else [part.strip() for part in str(given).split(",")]
    found = tuple(TablePattern(text) for text in texts if text)
    if not found:
        raise ValueError("it names no table")
    return found


EVERY_TABLE = (TablePattern("*"),)


def matching(patterns: Sequence[TablePattern], table: TableId) -> TablePattern | None:
    """The first pattern that is for a table; a name goes before patterns, because it says more."""
    found = [pattern for pattern in patterns if pattern.matches(table)]
    return next((pattern for pattern in found if pattern.is_name), found[0] if found else None)
