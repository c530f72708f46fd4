"""Which columns are a table's key, and by which ones its snapshot is cut into chunks.

The two differ. The key is what the user names, else the primary key, else a unique index; rows may share it. A chunk is
a range of keys and can't end inside of one, and a chunk that is read beside the stream is compared with it row by row;
so chunks follow a primary key or a unique index. Only where a table has neither, and the user named its key, an ad-hoc
snapshot follows that (`SourceTable.row_key`).

A key may hold values that no type of Spark has. A target can't distinguish such rows, so a batch that has one stops;
`check` names them before, as far as a database can be asked for them cheaply.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headrace.changes import Column, TableId
from headrace.errors import CaptureError
from headrace.options import bare, items
from headrace.sources.tables.columns import matching, patterns

_LOG = logging.getLogger("headrace.sources")


def message_keys(given: Any) -> tuple[str, ...]:
    """Column patterns in key order from `schema.table:column,column;table:column`; used as an option's kind.

    Also taken as a mapping from table to columns, or its JSON text. Tables and columns are regular expressions.

    Raises:
        ValueError: a part is not of that form.
    """
    if isinstance(given, str) and given.strip().startswith("{"):
        try:
            given = json.loads(given)
        except json.JSONDecodeError:
            raise ValueError("it is not a JSON object") from None
    entries: list[tuple[str, list[str]]] = []
    if isinstance(given, Mapping):
        entries = [(str(t), list(c) if isinstance(c, (list, tuple)) else str(c).split(",")) for t, c in given.items()]
    else:
        for part in items(given, lambda text: text.split(";")):
            table, colon, columns = bare(part).partition(":")
            table = part.removesuffix(bare(part)) + table
            if not colon or ":" in columns:
                raise ValueError(f"'{part}' is not of the form schema.table:column,column")
            entries.append((table, columns.split(",")))
    keys = []
    for table, listed in entries:
        names = [str(name).strip() for name in listed]
        if not table.strip() or not all(names):
            raise ValueError("a table or column has no name")
        keys += [f"{table.strip()}\\.{name}" for name in names]
    return patterns(keys)


@dataclass(frozen=True)
class UniqueKey:
    """A primary key, or a unique index without a filter.

    Args:
        columns: names in key order.
        primary: whether it is the primary key.
    """

    columns: tuple[str, ...]
    primary: bool = False


@dataclass(frozen=True)
class Keys:
    """What identifies a table's rows.

    Args:
        message: the key of its change rows; empty for none.
        unique: keys without duplicates whose columns are all captured, in the order they are preferred.
        primary: the table's own key, where the user named another one for its change rows.
    """

    message: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    primary: tuple[str, ...] | None = None

    def primary_of(self, columns: Sequence[str]) -> tuple[str, ...] | None:
        """As `primary`, of a table that has these columns."""
        return None if self.primary is None else tuple(name for name in self.primary if name in columns)

    def chunk(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The key by which a snapshot that reads these columns is cut; empty for one piece."""
        return next((key for key in self.unique if all(name in columns for name in key)), ())


def choose_keys(
    table: TableId, columns: Sequence[Column], keys: Sequence[UniqueKey], named: Sequence[str] = ()
) -> Keys:
    """The keys of a table.

    The columns that the option names, in its order; else the primary key without those of its columns that are not
    captured; else, without a primary key, the first unique index whose columns are all captured.

    Args:
        table: the table.
        columns: its captured columns.
        keys: primary key and unique indexes, in the order they are preferred.
        named: patterns of `message_key_columns`.

    Raises:
        CaptureError: a named column is of a type whose value changes may leave out.
    """
    captured = [column.name for column in columns]
    unique = tuple(key.columns for key in keys if all(name in captured for name in key.columns))
    message = _named(table, columns, named)
    primary = next((key for key in keys if key.primary), None)
    if primary is None:
        chosen = unique[0] if unique else ()
    else:
        chosen = tuple(name for name in primary.columns if name in captured)
    if message:
        return Keys(message, unique, None if chosen == message else chosen)
    if primary is not None and chosen != primary.columns:
        _say_cut(table.full_path, tuple(name for name in primary.columns if name not in captured))
    return Keys(chosen, unique)


def _named(table: TableId, columns: Sequence[Column], named: Sequence[str]) -> tuple[str, ...]:
    by_name: dict[str, Column] = {}
    for pattern in named:
        by_name.update({c.name: c for c in columns if c.name not in by_name and matching((pattern,), table, c.name)})
    large = next((column for column in by_name.values() if column.large), None)
    if large is not None:
        raise CaptureError(
            f"Option 'message_key_columns' names column '{large.name}' ({large.native_type}) of table '{table.path}', "
            "whose value is missing in changes that leave it as it was.",
            remedy="Name columns of other types.",
        )
    return tuple(by_name)


@lru_cache(maxsize=10_000)
def _say_cut(table: str, missing: tuple[str, ...]) -> None:
    named = ", ".join(f"'{name}'" for name in missing)
    _LOG.warning(
        "The primary key of table '%s' is used without %s, which its capture instance does not hold: rows may share "
        "a key. Capture the column, or set 'message_key_columns'.",
        table,
        named,
    )


@dataclass(frozen=True)
class MisfitKey:
    """A key column that has such a value, or may have it.

    Args:
        table: `schema.name`.
        column: the column.
        value: the value.
        certain: whether a row has it; else the database did not say in time.
    """

    table: str
    column: str
    value: str
    certain: bool

    @property
    def sentence(self) -> str:
        """What is wrong, without the table."""
        has = "has" if self.certain else "may have"
        text = f"Its key column '{self.column}' {has} the value {self.value}"
        text += "" if self.certain else " (the server takes it, and did not look through the table in time)"
        return f"{text}. Tables that are kept equal have no place for it, and a batch with such a row stops."
