"""What names mean inside a statement, and what a translated expression carries with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace_emulators.sqlserver.catalog import TableInfo, quoted
from headrace_emulators.sqlserver.errors import ProgrammingError, invalid_column
from headrace_emulators.sqlserver.types import SqlType

Output = tuple[str, SqlType | None]


@dataclass(frozen=True)
class Value:
    """A translated expression.

    Args:
        sql: its SQLite text.
        type: its T-SQL type; None where it depends on the value.
        bare: it is a column whose order of values SQLite knows.
        literal: it is a constant or parameter, which takes on the type of what it is compared with.
        collation: the SQLite collation that the statement names.
    """

    sql: str
    type: SqlType | None = None
    bare: bool = False
    literal: bool = False
    collation: str = ""

    @property
    def family(self) -> str:
        """The family of its type, empty when not known."""
        return self.type.family if self.type else ""

    @property
    def sortable(self) -> str:
        """Its text with the order of values that SQL Server has for it."""
        collate = self.collation or ("" if self.bare or self.type is None else self.type.collate)
        return f'{self.sql} COLLATE "{collate}"' if collate else self.sql


@dataclass(frozen=True)
class Relation:
    """A table, view, function or subquery in a FROM clause."""

    alias: str
    columns: tuple[Output, ...]
    bare: bool = False
    table: TableInfo | None = None


@dataclass
class Scope:
    """The relations of one SELECT, and of those around it."""

    relations: list[Relation] = field(default_factory=list)
    parent: Scope | None = None
    queries: dict[str, tuple[Output, ...]] = field(default_factory=dict)
    bare_names: bool = False

    def query(self, name: str) -> tuple[Output, ...] | None:
        """The columns of a common table expression."""
        found = self.queries.get(name.lower())
        return found if found is not None or self.parent is None else self.parent.query(name)

    def column(self, name: str, alias: str = "") -> Value:
        """A column by name, and by the alias or name of its table when given.

        Raises:
            ProgrammingError: no table has it (207), or more than one (209).
        """
        lowered = name.lower()
        found: list[Value] = []
        for relation in self.relations:
            if alias and relation.alias.lower() != alias.lower():
                continue
            for own, declared in relation.columns:
                if own.lower() == lowered:
                    prefix = "" if self.bare_names else f"{quoted(relation.alias)}."
                    found.append(Value(f"{prefix}{quoted(own)}", declared, bare=relation.bare))
        if len(found) == 1:
            return found[0]
        if found:
            raise ProgrammingError(f"Ambiguous column name '{name}'.", 209)
        if self.parent is not None:
            return self.parent.column(name, alias)
        if alias and not self.knows(alias):
            raise ProgrammingError(f'The multi-part identifier "{alias}.{name}" could not be bound.', 4104)
        raise invalid_column(name)

    def knows(self, alias: str) -> bool:
        return any(r.alias.lower() == alias.lower() for r in self.relations)

    def star(self, alias: str = "") -> Sequence[tuple[str, Value]]:
        """The columns of `*` or `alias.*`.

        Raises:
            ProgrammingError: no table has this alias (107).
        """
        chosen = [r for r in self.relations if not alias or r.alias.lower() == alias.lower()]
        if not chosen:
            raise ProgrammingError(f"The column prefix '{alias}' does not match with a table name or alias name.", 107)
        return [
            (name, Value(f"{quoted(r.alias)}.{quoted(name)}", declared, bare=r.bare))
            for r in chosen
            for name, declared in r.columns
        ]
