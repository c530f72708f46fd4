"""Statements over the rows and keys of a user's table, as far as servers with change tables write them alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from headrace.sources.change_tables.captured_table import CapturedTable
from headrace.sources.change_tables.native import NativeType
from headrace.sources.change_tables.statements import Bound, Query
from headrace.sources.snapshots.key_range import KeyLimit, Predicate, between


@dataclass(frozen=True)
class KeyRanges:
    """Writes parts of statements, and statements, about tables; every identifier is quoted and every value bound.

    Args:
        quote: writes an identifier.
        nulls_first: whether the server's ORDER BY puts NULL before all values or after them.
        absent: writes the NULL that is read in place of a column that the table no longer has.
    """

    quote: Callable[[str], str]
    nulls_first: bool
    absent: Callable[[NativeType], str]

    def table(self, table: CapturedTable) -> str:
        """The source table, quoted."""
        return f"{self.quote(table.schema.id.schema)}.{self.quote(table.schema.id.name)}"

    def fields(self, table: CapturedTable, present: Collection[str] | None = None) -> str:
        """The captured columns of `t`, as they are fetched; present ones, where not all are."""
        return ", ".join(
            f"{self._field(column.name, native, present)} AS {self.quote(column.name)}"
            for column, native in zip(table.schema.columns, table.natives, strict=True)
        )

    def key(self, table: CapturedTable, key: Sequence[str], alias: str) -> str:
        """Columns of a key, as they are fetched."""
        names = ((table.native(name), self.quote(name)) for name in key)
        return ", ".join(f"{native.projection(f'{alias}.{name}')} AS {name}" for native, name in names)

    def order(self, key: Sequence[str], direction: str = "") -> str:
        """The key of `t` as ORDER BY takes it."""
        return ", ".join(f"t.{self.quote(name)}{direction}" for name in key)

    def where(
        self,
        table: CapturedTable,
        key: Sequence[str],
        lower: Bound | None,
        upper: Bound | None,
        condition: str | None = None,
    ) -> Predicate:
        """The WHERE of rows of `t` whose key is in (lower, upper], as the server itself compares and collates.

        Args:
            table: the table.
            key: its chunk key; empty for the whole table.
            lower: rows after this key; None from the beginning.
            upper: rows up to and with this key; None to the end.
            condition: a predicate that the user wrote; it goes to the server as it is.
        """

        def limit(name: str, text: str | None) -> KeyLimit:
            column, nullable, native = f"t.{self.quote(name)}", table.schema.column(name).nullable, table.native(name)
            return (
                KeyLimit(column, nullable)
                if text is None
                else KeyLimit(column, nullable, native.marker, native.bound(text))
            )

        bounds = (None if bound is None else list(map(limit, key, bound)) for bound in (lower, upper))
        inside, parameters = between(*bounds, nulls_first=self.nulls_first)
        # A comment at the end of the user's predicate must not swallow what follows.
        conditions = [*([inside] if inside else []), *([] if condition is None else [f"({condition}\n)"])]
        return f" WHERE {' AND '.join(conditions)}" if conditions else "", parameters

    def rows(
        self,
        table: CapturedTable,
        key: Sequence[str],
        lower: Bound | None,
        upper: Bound | None,
        *,
        present: Collection[str] | None,
        condition: str | None,
        ordered: bool,
        hint: str = "",
        tail: str = "",
    ) -> Query:
        """The rows of a key range (lower, upper]; both ends open when null.

        Args:
            table: the table.
            key: its chunk key; empty for the whole table.
            lower: rows after this key.
            upper: rows up to and with this key.
            present: the columns that the table still has; NULL stands for the others. Null means all of them.
            condition: a predicate that the user wrote.
            ordered: in key order; if not, in whatever order the server finds them.
            hint: follows the table.
            tail: ends the statement.
        """
        where, parameters = self.where(table, key, lower, upper, condition)
        order = f" ORDER BY {self.order(key)}" if ordered else ""
        fields = self.fields(table, present)
        return f"SELECT {fields} FROM {self.table(table)} AS t{hint}{where}{order}{tail}", parameters

    def rows_of_select(self, table: CapturedTable, select: str) -> str:
        """The captured columns of what a user's statement gives in place of the table."""
        # The parenthesis is on a line of its own, because the statement may end with a comment.
        return f"SELECT {self.fields(table)} FROM ({select}\n) AS t"

    def insert(self, table: CapturedTable, columns: Sequence[str]) -> str:
        """One row into a user's table: the only statement that writes, sent by `headrace signal` alone."""
        names = ", ".join(self.quote(name) for name in columns)
        return f"INSERT INTO {self.table(table)} ({names}) VALUES ({', '.join('?' * len(columns))})"

    def _field(self, name: str, native: NativeType, present: Collection[str] | None) -> str:
        gone = present is not None and name not in present
        return self.absent(native) if gone else native.projection(f"t.{self.quote(name)}")
