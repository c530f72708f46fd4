"""Which tables a pattern is for: in a source's list of tables, in routes and in transforms."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from headrace.changes.table import TableId
from headrace.options import bare, is_optional, items

Row = TypeVar("Row")
_EXPRESSION = "re:"
_WILDCARDS = frozenset("*?[")
_REGULAR = re.compile(r"[\\^$|()\[\]{}+]")
_ANYTHING = ".*"


@dataclass(frozen=True)
class TablePattern:
    """A table's name, a shell glob, or a regular expression after `re:`; whatever the case.

    In a route or transform it is held against `schema.table` and `database.schema.table`, the parts that a table does
    not have left out. In a source's list it is held against `schema.table`; a name or glob may have the database in
    front. There a regular expression may come without `re:` too, because Debezium's lists are such, so that lists
    written for it mean here what they mean there; then it may have the database in front.

    Args:
        text: as the user wrote it; with `optional:` in front where it may be for no table.
        in_source: whether it is in a source's list.

    Raises:
        ValueError: the part after `re:` is not a regular expression.
    """

    text: str
    in_source: bool = False
    _bare: str = field(init=False, repr=False, compare=False)
    _glob: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bare", bare(self.text))
        marked = self._bare.startswith(_EXPRESSION)
        object.__setattr__(self, "_glob", None if marked else _compiled_glob(self._bare))
        if marked:
            # An invalid expression is an error when it is read, not when it is used.
            _ = self.expression

    def __str__(self) -> str:
        return self.text

    @property
    def is_optional(self) -> bool:
        """Whether it may be for no table."""
        return is_optional(self.text)

    @property
    def is_name(self) -> bool:
        """Whether it names one table."""
        return self._glob is not None and not _WILDCARDS & set(self._bare)

    @property
    def is_expression(self) -> bool:
        """Whether it is a regular expression for certain: marked as one or, in a source's list, by its characters."""
        return self._glob is None or (self.in_source and _REGULAR.search(self._bare) is not None)

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """The text as a regular expression.

        Raises:
            ValueError: it is none.
        """
        try:
            return re.compile(self._bare.removeprefix(_EXPRESSION), re.IGNORECASE)
        except re.error as error:
            raise ValueError(f"'{self._bare}' is not a regular expression ({error})") from error

    def matches(self, table: TableId) -> bool:
        """Whether it is for a table, whatever other tables there are.

        Raises:
            ValueError: it would be a regular expression, and is none.
        """
        return self._names(table) or (self._glob is not None and self.is_expression and self._expresses(table))

    def among(self, tables: Sequence[Row], id: Callable[[Row], TableId]) -> list[Row]:
        """Those tables of a source that it is for: as a name or glob and, where that means none, as an expression.

        So `dbo.*` is the schema `dbo` where there is one, and `dbo.cust.*` what Debezium takes it for. A table that is
        called so letter by letter goes before those whose names differ in case.

        Args:
            tables: all that there are.
            id: says the name of one.

        Raises:
            ValueError: it would be a regular expression, and is none.
        """
        matches = [table for table in tables if self._bare in (id(table).path, id(table).full_path)]
        matches = matches or [table for table in tables if self._names(id(table))]
        if matches or self._glob is None or not (self.is_expression or _ANYTHING in self._bare):
            return matches
        return [table for table in tables if self._expresses(id(table))]

    def _names(self, table: TableId) -> bool:
        """Whether it is for a table as a name, a glob or a marked expression."""
        if self._glob is None:
            names = (table.path,) if self.in_source else _names_of(table)
            return any(self.expression.fullmatch(name) for name in names)
        if not self.in_source:
            return any(self._glob.fullmatch(name) for name in _names_of(table))
        # The database must be named in full, so a wildcard stands for a part of the schema or the table.
        front = f"{table.database}.".lower()
        inside = self._bare.lower().startswith(front) and len(front) > 1
        globs = (self._glob, _compiled_glob(self._bare[len(front) :])) if inside else (self._glob,)
        return table.path == self._bare or any(glob.fullmatch(table.path) for glob in globs)

    def _expresses(self, table: TableId) -> bool:
        return any(self.expression.fullmatch(name) for name in _names_of(table))


def _names_of(table: TableId) -> tuple[str, str]:
    """Its path and the longer one; where there are no schemas, the name alone and the path."""
    return (table.path, table.full_path) if table.schema else (table.name, table.path)


def _compiled_glob(text: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(text.lower()), re.IGNORECASE)


def table_patterns(given: Any) -> tuple[TablePattern, ...]:
    """Patterns from a list, or from text with commas between; an expression after `re:` is one, with its commas.

    Raises:
        ValueError: one of them is not a regular expression.
    """
    texts = items(given, lambda text: [text] if bare(text).startswith(_EXPRESSION) else text.split(","))
    return tuple(TablePattern(text) for text in texts)


EVERY_TABLE = (TablePattern("*"),)


def matching(patterns: Sequence[TablePattern], table: TableId) -> TablePattern | None:
    """The first pattern that is for a table; a name goes before patterns, because it says more."""
    matches = [pattern for pattern in patterns if pattern.matches(table)]
    return next((pattern for pattern in matches if pattern.is_name), matches[0] if matches else None)
