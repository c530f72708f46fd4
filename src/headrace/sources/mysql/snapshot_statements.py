"""The SQL of snapshots: which rows of a table a chunk has, and where chunks end. Pure; texts of SQL, no database.

The server sorts and compares keys, by the collations of their columns. What is kept of a key are texts that go back to
it as the very same values: the bytes of texts in hexadecimal, the numbers of what is sorted by a number (labels of an
ENUM), and the digits of a double where the server would print a FLOAT with six.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.changes import TableId
from headrace.errors import FormatError
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.refusals import identifier
from headrace.sources.mysql.types import NativeType
from headrace.sources.offset import Key
from headrace.sources.snapshots.chunks import KeyLimit, between

_WHOLE = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_NUMBERED = frozenset(("bit", "enum", "set", "year"))
_FLOATS = frozenset(("float", "double"))
_BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?", re.ASCII)
_HEX = re.compile(r"([0-9A-F]{2})*", re.ASCII)
_PRINTED = re.compile(r"[-0-9A-Fa-f:. ]*", re.ASCII)


def quoted(id: TableId) -> str:
    return f"{identifier(id.database)}.{identifier(id.name)}"


def text(value: str) -> str:
    """A text as a constant, whatever it holds."""
    return f"_utf8mb4 x'{value.encode().hex()}'"


def any_row(table: MysqlTable, conditions: Sequence[str] = ()) -> str:
    return f"SELECT 1 FROM {quoted(table.id)}{_where(conditions)} LIMIT 1"


def any_row_of_select(select: str) -> str:
    return f"SELECT 1 FROM ({select}\n) t LIMIT 1"


def greatest_key(table: MysqlTable, conditions: Sequence[str] = ()) -> str:
    order = ", ".join(f"{identifier(name)} DESC" for name in table.chunk_key)
    return f"SELECT {_key(table)} FROM {quoted(table.id)}{_where(conditions)} ORDER BY {order} LIMIT 1"


def chunk_bound(table: MysqlTable, lower: Key | None, last: Key, rows: int, conditions: Sequence[str] = ()) -> str:
    """The key at which a chunk ends; no row where fewer than so many are left.

    Args:
        table: it.
        lower: keys after this; None from the beginning.
        last: keys up to and with this.
        rows: how many rows the chunk has.
        conditions: predicates that rows must meet.
    """
    order = ", ".join(map(identifier, table.chunk_key))
    where = _where([*conditions, *in_range(table, lower, last)])
    return f"SELECT {_key(table)} FROM {quoted(table.id)}{where} ORDER BY {order} LIMIT 1 OFFSET {rows - 1}"


def in_range(table: MysqlTable, lower: Key | None, upper: Key | None) -> list[str]:
    """Predicates of the rows whose key is in (lower, upper]."""
    bounds = [None if key is None else _limits(table, key) for key in (lower, upper)]
    text, _ = between(*bounds, nulls_first=True)
    return [text] if text else []


def rows(table: MysqlTable, conditions: Sequence[str] = ()) -> str:
    """The captured columns of the rows that meet conditions."""
    shown = ", ".join(_selected(table, ""))
    return f"SELECT {shown} FROM {quoted(table.id)}{_where(conditions)}"


def rows_of_select(table: MysqlTable, select: str) -> str:
    """The captured columns of what a user's statement gives in place of the table."""
    # On a line of its own, because the statement may end with a comment.
    return f"SELECT {', '.join(_selected(table, 't.'))} FROM ({select}\n) t"


def touched(table: MysqlTable) -> str:
    """Keeps a table as it is defined until the transaction ends."""
    return f"SELECT 1 FROM {quoted(table.id)} LIMIT 0"


def _selected(table: MysqlTable, front: str) -> list[str]:
    columns = zip(table.schema.columns, table.natives, strict=True)
    return [native.selected(f"{front}{identifier(column.name)}") for column, native in columns]


def _key(table: MysqlTable) -> str:
    return ", ".join(_shown(table.native(name), identifier(name)) for name in table.chunk_key)


def _where(conditions: Sequence[str]) -> str:
    # Each on a line of its own, because a predicate of the user's may end with a comment.
    return " WHERE " + " AND ".join(f"({condition}\n)" for condition in conditions) if conditions else ""


def _limits(table: MysqlTable, key: Key) -> list[KeyLimit]:
    natives = [(name, table.native(name)) for name in table.chunk_key]
    return [
        KeyLimit(identifier(name), False, _literal(native, text or ""))
        for (name, native), text in zip(natives, key, strict=True)
    ]


def _shown(native: NativeType, column: str) -> str:
    """A value of a key as the text that is kept of it."""
    if native.charset is not None and native.kind not in _NUMBERED:
        return f"HEX({column})"
    if native.kind in _BYTES:
        return f"HEX({column})"
    if native.kind in _NUMBERED:
        return f"CAST({column} + 0 AS CHAR)"
    if native.kind in _FLOATS:
        # Times one and not plus nothing, which would make 0 of -0.
        return f"CAST({column} * 1e0 AS CHAR)"
    return f"CAST({column} AS CHAR)"


def _literal(native: NativeType, text: str) -> str:
    """The value that a kept text is of, as the server compares it with the column.

    Raises:
        FormatError: the text is none that `_shown` gives.
    """
    if native.charset is not None and native.kind not in _NUMBERED:
        # In the column's own character set, so that the column's collation decides.
        return f"_{native.charset} x'{_like(_HEX, text)}'"
    if native.kind in _BYTES:
        return f"x'{_like(_HEX, text)}'"
    if native.kind in _FLOATS:
        number = _like(_NUMBER, text)
        return number if "e" in number else f"{number}e0"
    if native.kind in _WHOLE or native.kind in _NUMBERED or native.kind == "decimal":
        return _like(_NUMBER, text)
    return f"'{_like(_PRINTED, text)}'"


def _like(form: re.Pattern[str], text: str) -> str:
    if form.fullmatch(text) is None:
        raise FormatError("A bound of a snapshot in the checkpoint is not of its column's type.")
    return text
