"""Which tables of a catalog are captured, and each of them as the catalog shows it now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.changes import TableId
from headrace.changes.table_pattern import TablePattern
from headrace.errors import CaptureError
from headrace.options import bare, is_optional
from headrace.registry import did_you_mean
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance
from headrace.sources.change_tables.dialect import Advice
from headrace.sources.tables.lost import is_named
from headrace.sources.tables.unmatched import TableColumns


class FoundTable(NamedTuple):
    """A table of the database.

    Args:
        schema: its schema.
        name: its name.
        number: by which the server knows it.
        captured: whether its changes are captured.
    """

    schema: str
    name: str
    number: int
    captured: bool

    @property
    def path(self) -> str:
        """`schema.name`."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class CatalogTable:
    """A captured table as the catalog shows it now, once for each of its capture instances.

    Args:
        id: where it lives.
        versions: oldest instance first.
        columns: all columns of the table, whether their values are captured or not.
    """

    id: TableId
    versions: tuple[CapturedTable, ...]
    columns: tuple[str, ...] = ()

    @property
    def newest(self) -> CapturedTable:
        """The instance with the newest schema among those that have begun; a single one that has not begun yet."""
        begun = [version for version in self.versions if version.instance.start_lsn is not None]
        return begun[-1] if begun else self.versions[-1]

    def of(self, instance: CaptureInstance) -> CapturedTable | None:
        """The table as an instance that is known from before shows it now; null when that instance is gone."""
        same = (
            v for v in self.versions if (v.instance.name, v.instance.object_id) == (instance.name, instance.object_id)
        )
        return next(same, None)


def columns_of(table: CatalogTable) -> TableColumns:
    """A table as names and patterns of the options are held against it."""
    captured = {name for version in table.versions for name in version.names}
    return TableColumns(table.id, table.columns, tuple(name for name in table.columns if name in captured))


@dataclass(frozen=True)
class TableSelection:
    """Which tables of a database the options select.

    Args:
        database: the database's name.
        include: `schema.table` patterns: shell globs, or regular expressions after `re:`; empty means every captured
            table.
        exclude: patterns of tables that are left out.
        databases: all databases of the same run: what a pattern does not find here may be in another.
        strict: whether it is an error that a named table is missing or not captured; a run that goes on waits for it.
        known: tables that may be missing or not captured all the same, because they were captured once.
    """

    database: str
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    databases: Sequence[str] = ()
    strict: bool = True
    known: Collection[str] = ()

    def among(
        self, tables: list[FoundTable], not_captured: Callable[[FoundTable, str], CaptureError], advice: Advice
    ) -> list[FoundTable]:
        """The captured tables, in the include list's order.

        Args:
            tables: all tables of the database.
            not_captured: the error for a table, in a database, that is named and not captured.
            advice: the server's words.

        Raises:
            CaptureError: a named table does not exist or is not captured, or a pattern matches nothing.
        """
        chosen = self._included(tables, not_captured, advice)
        excluded = {table for pattern in self.exclude for table in self._matching(chosen, pattern)}
        return [table for table in chosen if table not in excluded]

    def _included(
        self, tables: list[FoundTable], not_captured: Callable[[FoundTable, str], CaptureError], advice: Advice
    ) -> list[FoundTable]:
        chosen: list[FoundTable] = []
        if not self.include:
            chosen = [table for table in tables if table.captured]
            if not chosen and self.strict and not self.known:
                raise CaptureError(
                    f"No table of database '{self.database}' is captured.",
                    remedy=f"{advice.capture} for each table.",
                )
            return chosen
        for pattern in self.include:
            exact = [table for table in tables if table.path == bare(pattern)]
            matched = exact or self._matching(tables, pattern)
            required = self.strict and not any(is_named(path, (pattern,), (), self.database) for path in self.known)
            required = required and not is_optional(pattern)
            if not matched and required and len(self.databases) < 2:
                paths = [table.path for table in tables]
                raise CaptureError(
                    f"Database '{self.database}' has no table '{pattern}'.", remedy=did_you_mean(pattern, paths)
                )
            # A name means that table, captured or not (an error); a pattern means the captured ones it matches.
            captured = [table for table in matched if table.captured]
            if matched and not captured and required:
                raise not_captured(matched[0], self.database)
            chosen.extend(table for table in captured if table not in chosen)
        return chosen

    def _matching(self, tables: list[FoundTable], pattern: str) -> list[FoundTable]:
        try:
            found = TablePattern(pattern, in_source=True)
            return found.among(tables, lambda table: TableId(self.database, table.schema, table.name))
        except ValueError as error:
            raise CaptureError(
                f"'{pattern}' is neither a table nor a regular expression ({error.__cause__}).",
                remedy="Write schema.table, or re: and an expression of it.",
            ) from None
