"""The ALTER TABLE that leads from one structure of a table to another, as far as it concerns the names of columns.

The log has no statements. The catalog gives each column a number that no other column of the table ever has, so it is
known whether a name that went away and one that came are the same column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.refusals import identifier


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
