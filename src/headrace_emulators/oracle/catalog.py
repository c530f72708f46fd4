"""Tables as the emulated catalog has them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from headrace_emulators.oracle.errors import DatabaseError
from headrace_emulators.oracle.types import Declared

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        number: its object id.
        owner: its schema.
        name: its name.
        columns: names and types in order, without virtual columns.
        virtual: the virtual columns, which are computed when they are read.
        required: columns that are never NULL.
        key: its primary key.
        keys: primary key and unique constraints.
        defaults: default values as SQL.
        identities: columns that the server numbers.
        version: how often its structure changed.
        changed_scn: when it changed last.
    """

    number: int
    owner: str
    name: str
    columns: tuple[tuple[str, Declared], ...]
    required: frozenset[str]
    key: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    defaults: dict[str, str]
    identities: frozenset[str]
    version: int
    changed_scn: int
    virtual: tuple[str, ...] = ()

    @property
    def quoted(self) -> str:
        """The name as LogMiner prints it."""
        return f'"{self.owner}"."{self.name}"'

    def rowid(self, row: int) -> str:
        """The ROWID of a row: object, file, block and row in base 64."""
        block, slot = divmod(row, 512)
        return _base64(self.number, 6) + _base64(4, 3) + _base64(block + 128, 6) + _base64(slot, 3)


def _base64(number: int, width: int) -> str:
    digits = ""
    for _ in range(width):
        number, rest = divmod(number, 64)
        digits = _DIGITS[rest] + digits
    return digits


def find_table(connection: sqlite3.Connection, owner: str, name: str) -> Table:
    """The table of that name.

    Raises:
        DatabaseError: there is none.
    """
    row = connection.execute(
        'SELECT object_id, version, changed_scn FROM "sys.objects" WHERE owner = ? AND name = ?', (owner, name)
    ).fetchone()
    if row is None:
        raise DatabaseError(942, f'table or view "{owner}"."{name}" does not exist')
    number, version, changed = (int(part) for part in row)
    columns, required, defaults, identities, computed = [], set(), {}, set(), []
    for column, kind, length, precision, scale, nullable, default, identity, virtual in connection.execute(
        'SELECT name, type, length, precision, scale, nullable, default_text, identity, virtual FROM "sys.columns"'
        " WHERE object_id = ? ORDER BY column_id",
        (number,),
    ):
        if virtual:
            computed.append(column)
            continue
        columns.append((column, Declared(kind, length, precision, scale)))
        if not nullable:
            required.add(column)
        if default is not None:
            defaults[column] = default
        if identity:
            identities.add(column)
    keys: dict[str, list[str]] = {}
    primary = ""
    for constraint, kind, column in connection.execute(
        'SELECT name, kind, column_name FROM "sys.keys" WHERE object_id = ? ORDER BY name, ordinal', (number,)
    ):
        keys.setdefault(constraint, []).append(column)
        primary = constraint if kind == "P" else primary
    return Table(
        number, owner, name, tuple(columns), frozenset(required), tuple(keys.get(primary, ())),
        tuple(tuple(key) for key in keys.values()), defaults, frozenset(identities), version, changed,
        tuple(computed),
    )  # fmt: skip
