"""Replica identities: whether the application may change rows of a published table, and whether changes say which row.

The server refuses updates and deletes of a published table that has no identity. One whose identity does not have the
table's key, such as a partitioned table of which only the partitions have keys, gives changes of rows that nobody can
find.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from headrace.errors import CaptureError
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.catalog_statements import PARTITION_TREE
from headrace.sources.postgresql.connection import Connection
from headrace.sources.postgresql.refusals import identifier

_FULL = "f"
_SHOWN = 100
# A partitioned table's rows are changed in its leaves.
_LEAVES = f"""
{PARTITION_TREE}
SELECT tree.root::bigint, n.nspname::text, c.relname::text, c.relreplident::text, (
    SELECT json_agg(a.attname) FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
    WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
    AND (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident))::text
FROM tree JOIN pg_class c ON c.oid = tree.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' ORDER BY 2, 3
"""


@dataclass(frozen=True)
class Leaf:
    """A table that holds rows of a captured one: itself or a partition.

    Args:
        root: the captured table's oid.
        schema: where it lives.
        name: its name.
        columns: those that changes have of the old row; None for all, none where the server refuses changes.
    """

    root: int
    schema: str
    name: str
    columns: frozenset[str] | None

    @property
    def quoted(self) -> str:
        return f"{identifier(self.schema)}.{identifier(self.name)}"


def leaves_of(connection: Connection, oids: Collection[int]) -> list[Leaf]:
    """The tables that hold the rows of captured ones."""
    rows = connection.rows(_LEAVES, (list(oids),)) if oids else []
    return [
        Leaf(int(root), schema, name, None if kind == _FULL else frozenset(json.loads(columns or "[]")))
        for root, schema, name, kind, columns in rows
    ]


def require_identities(connection: Connection, oids: Collection[int]) -> None:
    """See that the application can still update and delete rows of tables that are going to be published.

    Raises:
        CaptureError: it could not.
    """
    lacking = [leaf for leaf in leaves_of(connection, oids) if leaf.columns == frozenset()]
    if not lacking:
        return
    names = ", ".join(f"'{leaf.schema}.{leaf.name}'" for leaf in lacking[:_SHOWN])
    more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
    one = len(lacking) == 1
    raise CaptureError(
        f"{'Table' if one else 'Tables'} {names}{more} {'has' if one else 'have'} no primary key and no other replica "
        "identity, so once changes are published the server refuses the application's updates and deletes of "
        f"{'it' if one else 'them'}.",
        remedy=f"{_full(lacking)} or leave the {'table' if one else 'tables'} out with 'tables_excluded'; or, for "
        "inserts only, run: CREATE PUBLICATION headrace_inserts FOR TABLE "
        f"{', '.join(f'ONLY {leaf.quoted}' for leaf in lacking[:_SHOWN])} WITH (publish = 'insert, truncate'); and "
        "capture what it has with another pipeline that has 'publication' headrace_inserts and 'skipped_operations' "
        "u,d.",
    )


@dataclass(frozen=True)
class Lack:
    """What is wrong with the identity of a published table.

    Args:
        path: the captured table.
        error: what and how it is mended.
        hides_keys: whether changes come and don't say their row; otherwise the server refuses them.
    """

    path: str
    error: CaptureError
    hides_keys: bool


def lacking_identities(connection: Connection, tables: Collection[PostgresTable]) -> Iterator[Lack]:
    """What is wrong with the identities of published tables, one thing for each table.

    Args:
        connection: to the database.
        tables: tables of a publication that has their updates and deletes.
    """
    by_table: dict[int, list[Leaf]] = {}
    for leaf in leaves_of(connection, [table.oid for table in tables]):
        by_table.setdefault(leaf.root, []).append(leaf)
    for table in tables:
        path, leaves, key = table.id.path, by_table.get(table.oid, []), table.schema.key
        closed = [leaf for leaf in leaves if leaf.columns == frozenset()]
        blind = [leaf for leaf in leaves if leaf.columns and not (key and leaf.columns.issuperset(key))]
        if closed:
            first = f"{closed[0].schema}.{closed[0].name}"
            named = f"'{first}'" if first == path else f"'{first}', a partition of '{path}',"
            error = CaptureError(
                f"Table {named} is published and has no primary key and no other replica identity, so the server "
                "refuses the application's updates and deletes of it.",
                remedy=_full(closed),
            )
            yield Lack(path, error, hides_keys=False)
        elif blind:
            wanted = f"all of the key ({', '.join(key)})" if key else "a key of the table"
            error = CaptureError(
                f"The replica identity of table '{path}' does not have {wanted} among the captured columns, so its "
                "updates and deletes do not say which row they change.",
                remedy=f"{_full(blind)} Changes that wait in the log keep the identity that they were written with.",
            )
            yield Lack(path, error, hides_keys=True)


def _full(leaves: Sequence[Leaf]) -> str:
    listed = " ".join(f"ALTER TABLE {leaf.quoted} REPLICA IDENTITY FULL;" for leaf in leaves[:_SHOWN])
    more = f" and the same for {len(leaves) - _SHOWN} more partitions;" if len(leaves) > _SHOWN else ""
    return f"Run: {listed}{more}"
