"""Identity columns: the numbers that the server gives to rows."""

from __future__ import annotations

import sqlite3

from headrace_emulators.sqlserver.catalog import TableInfo, quoted
from headrace_emulators.sqlserver.errors import ProgrammingError


class Identities:
    """The identity numbers that one connection gives.

    A function called inside a statement may not query SQLite, so the state is read before the statement and kept
    after it.

    Args:
        connection: the SQLite connection.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._states: dict[int, list[int]] = {}
        self.explicit = 0
        """The object id of the table that SET IDENTITY_INSERT is on for; 0 for none."""
        self.last: int | None = None
        """The number given last."""

    def check(self, table: TableInfo) -> None:
        """Refuse explicit values unless SET IDENTITY_INSERT allows them (error 544)."""
        if self.explicit != table.object_id:
            raise ProgrammingError(
                f"Cannot insert explicit value for identity column in table '{table.name}' when IDENTITY_INSERT is set"
                " to OFF.",
                544,
            )

    def prepare(self, table: TableInfo) -> None:
        """Learn the next number of a table's identity column."""
        row = self._connection.execute(
            'SELECT seed_value, increment_value, last_value FROM "sys.identity_columns" WHERE object_id = ?',
            (table.object_id,),
        ).fetchone()
        if row is not None:
            seed, step, last = row
            self._states[table.object_id] = [seed if last is None else last + step, step]

    def next(self, object_id: int) -> int:
        """The next number for a row of a table."""
        state = self._states[object_id]
        value = state[0]
        state[0] += state[1]
        self.last = value
        return value

    def keep(self, table: TableInfo, *, explicit: bool) -> None:
        """Write down how far a table's identity column was used."""
        column = next((c for c in table.columns if c.identity), None)
        if column is None:
            return
        if explicit:
            self._connection.execute(
                'UPDATE "sys.identity_columns" SET last_value = MAX(COALESCE(last_value, seed_value), (SELECT'
                f" MAX({quoted(column.name)}) FROM {quoted(table.path)})) WHERE object_id = ?",
                (table.object_id,),
            )
        elif table.object_id in self._states:
            value, step = self._states[table.object_id]
            self._connection.execute(
                'UPDATE "sys.identity_columns" SET last_value = ? WHERE object_id = ?', (value - step, table.object_id)
            )

    def forget(self) -> None:
        """A rollback: forget the numbers that were read."""
        self._states.clear()
