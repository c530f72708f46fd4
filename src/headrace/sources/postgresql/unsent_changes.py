"""Changes of rows that the server does not send: what a statement did to all rows of a table at once.

A new column with a default, a changed type and a partition that comes with its rows change what a table holds, and the
log has no row of it. The catalog shows them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.connection import Connection

_FILES = """
SELECT oid::bigint, pg_relation_filenode(oid)::bigint FROM pg_class WHERE oid = ANY (%s::bigint[]::oid[])
"""
_FILLED = """
SELECT attrelid::bigint, attname FROM pg_attribute
WHERE attrelid = ANY (%s::bigint[]::oid[]) AND atthasmissing AND NOT attisdropped
"""
# A partition that was made as one has its type and its place from one transaction.
_ATTACHED = """
SELECT i.inhrelid::bigint FROM pg_inherits i JOIN pg_type t ON t.typrelid = i.inhrelid
WHERE i.inhrelid = ANY (%s::bigint[]::oid[]) AND i.xmin <> t.xmin
"""

# TRUNCATE forgets how many rows there were; a statement that writes the rows into another file counts them.
_EMPTIED = "SELECT oid::bigint, relname::text FROM pg_class WHERE oid = ANY (%s::bigint[]::oid[]) AND reltuples <= 0"


_WITHOUT_ROWS = """
SELECT oid::bigint FROM pg_class WHERE oid = ANY (%s::bigint[]::oid[]) AND pg_relation_size(oid) = 0
"""


@dataclass(frozen=True)
class TableFiles:
    """In which files the rows of tables are; a statement that rewrites a table makes others.

    Args:
        numbers: the file's number by the oid of the table that holds rows.
    """

    numbers: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, connection: Connection, tables: Collection[PostgresTable]) -> TableFiles:
        """As they are now."""
        oids = sorted({leaf for table in tables for leaf in table.leaves})
        return cls({oid: file for oid, file in connection.rows(_FILES, (oids,)) if file is not None})

    def to_json(self) -> list[Any]:
        """JSON values."""
        return [[oid, file] for oid, file in sorted(self.numbers.items())]

    @classmethod
    def from_json(cls, data: list[Any]) -> TableFiles:
        """Read `to_json`'s form back."""
        return cls(dict(data))


def unsent_changes(
    connection: Connection,
    known: Mapping[str, PostgresTable],
    found: Mapping[str, PostgresTable],
    before: TableFiles,
    now: TableFiles,
) -> dict[str, str]:
    """The tables of whose rows something was changed and not sent, each with what it was.

    Args:
        connection: to the database.
        known: the tables as the offset has them.
        found: as the catalog shows them now.
        before: their files at the offset.
        now: their files.
    """
    same = [path for path in found if path in known and known[path].oid == found[path].oid]
    leaves = sorted({leaf for path in same for leaf in found[path].leaves})
    filled: dict[int, set[str]] = {}
    for oid, column in connection.rows(_FILLED, (leaves,)):
        filled.setdefault(oid, set()).add(column)
    attached = {oid for (oid,) in connection.rows(_ATTACHED, (leaves,))}
    moved = [leaf for leaf in leaves if before.numbers.get(leaf, now.numbers.get(leaf)) != now.numbers.get(leaf)]
    # A new file without a row is a TRUNCATE's, which the log has; of one with rows the catalog can't tell whose it is.
    rewritten = set(moved) - {oid for (oid,) in connection.rows(_WITHOUT_ROWS, (moved,))} if moved else set()
    changes = {}
    for path in same:
        old, new = known[path], found[path]
        fresh = {c.name for c in new.schema.columns} - {c.name for c in old.schema.columns}
        if attached & (set(new.leaves) - set(old.leaves)):
            changes[path] = "a partition came with its rows"
        elif any(filled.get(leaf, set()) & fresh for leaf in new.leaves):
            changes[path] = "a column was added with a default"
        elif old.schema.fingerprint != new.schema.fingerprint and rewritten & set(new.leaves):
            changes[path] = "its rows were rewritten by ALTER TABLE"
    return changes


def unsent_deletes(
    connection: Connection,
    known: Mapping[str, PostgresTable],
    found: Mapping[str, PostgresTable],
    before: TableFiles,
    now: TableFiles,
) -> dict[str, str]:
    """The partitioned tables that lost rows with a partition, each with what happened to it.

    The server sends nothing where a partition is detached, dropped or emptied by its own name. A partition that is
    emptied and analysed between two looks is not found.

    Args:
        connection: to the database.
        known: the tables as the offset has them.
        found: as the catalog shows them now.
        before: their files at the offset.
        now: their files.
    """
    gone, others = {}, {}
    for path, table in found.items():
        old = known.get(path)
        if old is None or old.oid != table.oid or table.leaves == (table.oid,):
            continue
        if set(old.leaves) - set(table.leaves):
            gone[path] = "a partition was detached or dropped"
        for leaf in set(old.leaves) & set(table.leaves):
            if before.numbers.get(leaf, now.numbers.get(leaf)) != now.numbers.get(leaf):
                others[leaf] = path
    emptied = dict(connection.rows(_EMPTIED, (sorted(others),))) if others else {}
    return {others[leaf]: f"partition {name!r} was emptied" for leaf, name in sorted(emptied.items())} | gone
