"""Structures from before a change that the catalog shows and the stream has not passed yet.

The catalog is read when a batch is planned, and the rows of the batch were written before. A RELATION message names the
columns of a table as they were. What else is needed of them (the key under REPLICA IDENTITY FULL, the attributes of
types, types that were dropped) has to be kept until the stream has passed the change. Of each table the offset keeps
only what is another now.

Where columns were renamed, the ALTER TABLE is reconstructed: the log has no statements. The catalog gives each column a
number that no other column of the table ever has, so it is known whether a name that went away and one that came are
the same column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.sources.offset import all_known
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.captured_table import PostgresTable, tables_of
from headrace.sources.postgresql.refusals import identifier
from headrace.sources.postgresql.types import CatalogType, TypeCatalog

_PARTS = frozenset(["tables", "types", "until"])
_TABLE_PARTS = frozenset(["columns", "schema", "table"])
_RUN = 2
"""The length of what stands for columns that are the same."""


@dataclass(frozen=True)
class EarlierStructures:
    """Tables and types as they were at the stream's position.

    Args:
        tables: those that are others now, by path, written against what they are now: see `table`.
        types: the types that are others now, or gone.
        until: a commit after the changes.
    """

    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    types: Mapping[int, CatalogType] = field(default_factory=dict)
    until: str = ""

    def __bool__(self) -> bool:
        return bool(self.tables or self.types)

    def after(self, commit: str) -> EarlierStructures:
        """What is still needed of it once the stream is at a commit."""
        return self if commit < self.until else EarlierStructures()

    def with_changes(
        self,
        known: Mapping[str, PostgresTable],
        captured: Mapping[str, PostgresTable],
        types: TypeCatalog,
        now: TypeCatalog,
        until: str,
    ) -> EarlierStructures:
        """With the changes that the catalog shows now.

        Args:
            known: the tables as the catalog showed them before.
            captured: as they are now.
            types: the types as the catalog showed them before.
            now: as they are now.
            until: a commit after the changes.
        """
        tables = {}
        for path, new in captured.items():
            last = known.get(path)
            if last is None or last.oid != new.oid:
                continue
            before = self.table(path, last) or last
            if _facts(before) != _facts(new) or (before.numbers and before.numbers != new.numbers):
                tables[path] = _written(before, new)
        before_types = {**types.types, **self.types}
        other = {oid: kind for oid, kind in before_types.items() if kind.is_another_than(now.types.get(oid))}
        same = tables == self.tables and other == self.types
        return EarlierStructures(tables, other, self.until if same else until)

    def without(self, tables: Collection[str]) -> EarlierStructures:
        """Without tables, by their paths, which the batch reads as they are now."""
        return replace(self, tables={path: table for path, table in self.tables.items() if path not in tables})

    def before(self, now: Mapping[str, PostgresTable]) -> dict[str, PostgresTable]:
        """The tables as they were, by path, without those that are the same or not there.

        Args:
            now: the tables as the offset has them.
        """
        pairs = ((path, self.table(path, now[path])) for path in self.tables if path in now)
        return {path: table for path, table in pairs if table is not None}

    def table(self, path: str, now: PostgresTable) -> PostgresTable | None:
        """A table as it was; None where it is the same.

        Args:
            path: the table.
            now: as the offset has it.
        """
        data = self.tables.get(path)
        if data is None:
            return None
        all_known(data, _TABLE_PARTS)
        present = {number: (number, column, native) for column, native, number in now.numbered if number}
        columns: list[Any] = []
        for part in data["columns"]:
            if len(part) == _RUN:
                same = (present[number] for number in range(part[0], sum(part)))
                columns += [(number, column.to_json(), native.to_json()) for number, column, native in same]
            else:
                columns.append(part)
        numbers = [[number, 1] for number, *_ in columns if number]
        schema = {
            **_changed(now.to_json()["schema"], data["schema"]),
            "columns": [{**column, "position": index} for index, (_, column, _) in enumerate(columns, 1)],
        }
        natives = [native for *_, native in columns]
        table = _changed(now.to_json(), data["table"])
        return tables_of.one({**table, "schema": schema, "natives": natives, "numbers": numbers})

    def to_json(self) -> dict[str, Any]:
        return {
            "tables": {path: dict(table) for path, table in self.tables.items()},
            "types": TypeCatalog(self.types).to_json(),
            "until": lsn.number(self.until),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EarlierStructures:
        """Read `to_json`'s form back.

        Raises:
            NewerRelease: a later release wrote it.
        """
        all_known(data, _PARTS)
        return cls(data["tables"], TypeCatalog.from_json(data["types"]).types, lsn.to_text(data["until"]))


def _facts(table: PostgresTable) -> list[Any]:
    return [table.to_json()[name] for name in ("schema", "natives", "chunk_key", "identity")]


def _written(before: PostgresTable, now: PostgresTable) -> dict[str, Any]:
    """What of an earlier table is another now, and its columns.

    Columns that are the same now stand there as a first number and how many follow it, others as a number, which may be
    unknown, a column and a type.
    """
    present = {number: (replace(c, position=0), native) for c, native, number in now.numbered if number}
    columns: list[list[Any]] = []
    for column, native, number in before.numbered:
        if not number or present.get(number) != (replace(column, position=0), native):
            columns.append([number, column.to_json(), native.to_json()])
        elif columns and len(columns[-1]) == _RUN and sum(columns[-1]) == number:
            columns[-1][1] += 1
        else:
            columns.append([number, 1])
    table = _difference(before.to_json(), now.to_json(), ("schema", "natives", "numbers"))
    return {
        "columns": columns,
        "schema": _difference(before.to_json()["schema"], now.to_json()["schema"], ("columns",)),
        "table": table,
    }


def _difference(before: Mapping[str, Any], now: Mapping[str, Any], but: Collection[str]) -> dict[str, Any]:
    """The parts that are others, null for those that were not there."""
    names = {*before, *now}.difference(but)
    return {name: before.get(name) for name in sorted(names) if before.get(name) != now.get(name)}


def _changed(now: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in {**now, **parts}.items() if part is not None}


def statement(before: PostgresTable, after: PostgresTable) -> str:
    """Statements that rename, drop and add the columns that are captured; empty where none does.

    A name that belonged to another column before is in none of them, unless that one only has another name now: rows
    of such a table are read again.

    Args:
        before: the table as it was.
        after: as it is.
    """
    old = {number: column.name for column, _, number in before.numbered if number}
    new = {number: column.name for column, _, number in after.numbered if number}
    if not old or len(new) < len(after.schema.columns):
        return ""
    there = after.columns or after.names
    gone = [name for number, name in old.items() if number not in new and name not in there]
    renamed = {name: new[number] for number, name in old.items() if new.get(number, name) != name}
    taken = {name for number, name in old.items() if number not in new} - set(gone)
    renames = list(_in_order(renamed, taken))
    held = set(before.names).difference(name for name, _ in renames)
    added = [name for number, name in new.items() if number > before.last and name not in held]
    table = f"{identifier(after.id.schema)}.{identifier(after.id.name)}"
    return "; ".join(
        f"ALTER TABLE {table} {clause}"
        for clause in (
            *(f"DROP COLUMN {identifier(name)}" for name in gone),
            *(f"RENAME COLUMN {identifier(name)} TO {identifier(to)}" for name, to in renames),
            *(f"ADD COLUMN {identifier(name)}" for name in added),
        )
    )


def has_renames(before: PostgresTable, after: PostgresTable) -> bool:
    """Whether a column that was captured has, or may have, another name.

    Args:
        before: the table as it was.
        after: as it is.
    """
    old = {number: column.name for column, _, number in before.numbered if number}
    new = {number: column.name for column, _, number in after.numbered if number}
    if not old:
        return bool(set(before.names).difference(after.names))
    return any(new.get(number, name) != name for number, name in old.items())


def _in_order(renamed: Mapping[str, str], taken: Collection[str]) -> Iterator[tuple[str, str]]:
    """The renames in an order in which each new name is free; without those of columns that swap their names.

    Args:
        renamed: old and new names.
        taken: names that are not free.
    """
    left = {name: to for name, to in renamed.items() if to not in taken}
    while free := [name for name, to in left.items() if to not in left]:
        for name in free:
            yield name, left.pop(name)
