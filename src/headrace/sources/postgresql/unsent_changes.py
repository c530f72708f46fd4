"""Changes of rows that the server does not send: what a statement did to all rows of a table at once.

A new column with a default, a changed type, a renamed label and a partition that comes or goes with its rows change
what a table holds, and the log has no row of it. Names don't show that, facts of the catalog do: the number of a
column, the file of a table that holds rows, and which rows of the catalog were written since it was read last. For the
last one the offset keeps the server's own snapshot of transactions, once for all tables.

A new file alone proves nothing: VACUUM FULL, CLUSTER and TRUNCATE make one, too. But only ALTER TABLE writes the
catalog's row of each column whose values it converts, and gives the table another store for its large values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.catalog_statements import IS_LOCKED, PARTITION_TREE
from headrace.sources.postgresql.connection import Connection
from headrace.sources.postgresql.refusals import literal
from headrace.sources.postgresql.types import NativeType
from headrace.sources.tables.rewrites import Rewrite

_FILES = """
SELECT oid::bigint, pg_relation_filenode(oid)::bigint FROM pg_class WHERE oid = ANY (%s::bigint[]::oid[])
"""
_VISIBLE = "SELECT pg_current_snapshot()::text"
# The catalog shows 32 bits of a transaction's number, the others are those of the number that comes next.
_SINCE = """
NOT pg_visible_in_snapshot((pg_snapshot_xmax(pg_current_snapshot())::text::bigint
  - (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - {row}.xmin::text::bigint & 4294967295))::text::xid8,
  {visible}::pg_snapshot)
"""
_COLUMNS = """
SELECT attrelid::bigint, attname::text, atthasmissing, (attmissingval::text::text[])[1],
  EXISTS (SELECT FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND d.xmin = a.xmin)
FROM pg_attribute a WHERE attrelid = ANY (%s::bigint[]::oid[]) AND attnum > 0 AND NOT attisdropped AND {since}
"""
_PUBLICATION = "SELECT {since} FROM pg_publication p WHERE pubname = %s"
# To ask for the size of a table that somebody alters would wait for that transaction; it counts as one with rows.
_LEAVES = f"""
SELECT oid::bigint, relname::text, reltuples > 0,
  CASE WHEN NOT {IS_LOCKED.format(oid="c.oid")} THEN pg_relation_size(oid) = 0 ELSE false END, reltoastrelid <> 0,
  EXISTS (SELECT FROM pg_attribute a WHERE attrelid = reltoastrelid AND attnum > 0 AND {{since}})
FROM pg_class c WHERE oid = ANY (%s::bigint[]::oid[])
"""
# What was made as a partition has its type, its position and its columns from one transaction, and columns that one
# command wrote with the type; ATTACH writes all columns again. A transaction that is rolled back leaves its own number
# of a command in the rows that it wrote, so these say nothing.
_EDGES = f"""
{PARTITION_TREE}
SELECT t.relid::bigint, t.parent::bigint, {{since}}, i.xmin = y.xmin AND y.xmax::text = '0' AND EXISTS (
    SELECT FROM pg_attribute a WHERE a.attrelid = t.relid AND a.attnum > 0 AND a.xmin = y.xmin
    AND a.cmin::text = y.cmin::text AND a.xmax::text = '0')
FROM tree t JOIN pg_inherits i ON i.inhrelid = t.relid AND i.inhparent = t.parent
JOIN pg_type y ON y.typrelid = t.relid
"""
_SAME_TEXTS = frozenset(("text", "varchar"))


@dataclass(frozen=True)
class TableFiles:
    """In which files the rows of tables are, and which transactions' work the catalog showed.

    Args:
        numbers: the file's number by the oid of the table that holds rows.
        visible: the snapshot of transactions, as the server writes it, from before the tables were read; empty where
            an earlier release wrote the offset.
    """

    numbers: Mapping[int, int] = field(default_factory=dict)
    visible: str = ""

    @classmethod
    def of(cls, connection: Connection, tables: Collection[PostgresTable], visible: str) -> TableFiles:
        """As they are now.

        Args:
            connection: to the database.
            tables: the captured tables.
            visible: what `visible_now` gave before they were read.
        """
        oids = sorted({leaf for table in tables for leaf in table.leaves})
        return cls({oid: file for oid, file in connection.rows(_FILES, (oids,)) if file is not None}, visible)

    def moved(self, now: TableFiles) -> Iterator[int]:
        for oid, file in self.numbers.items():
            if now.numbers.get(oid, file) != file:
                yield oid

    def to_json(self) -> list[Any]:
        """JSON values, without `visible`."""
        return [[oid, file] for oid, file in sorted(self.numbers.items())]

    @classmethod
    def from_json(cls, data: list[Any], visible: str) -> TableFiles:
        """Read `to_json`'s form back."""
        return cls(dict(data), visible)


def visible_now(connection: Connection) -> str:
    """The server's snapshot of transactions: whose work later queries show at the least."""
    return str(connection.value(_VISIBLE))


@dataclass(frozen=True)
class Leaf:
    """What happened since the offset to a table that holds rows.

    Args:
        name: its name.
        written: the columns whose rows of the catalog were written; None where that is not known, because an earlier
            release wrote the offset.
        filled: the columns that rows from before the statement that added them have from the catalog, with the value
            as the server prints it.
        altered: those of them that a later transaction may have given another name.
        rewritten: it has rows, in another file, and nothing proves that ALTER TABLE did not write them there.
        emptied: its rows are in another file, and the server has not counted any there. TRUNCATE forgets how many there
            were, a statement that copies rows counts them.
        attached: it came with rows, or came again with whatever it has now.
    """

    name: str = ""
    written: frozenset[str] | None = frozenset()
    filled: Mapping[str, str | None] = field(default_factory=dict)
    altered: frozenset[str] = frozenset()
    rewritten: bool = False
    emptied: bool = False
    attached: bool = False


def unpublished_changes(
    connection: Connection, publication: str, tables: Iterable[str], before: TableFiles
) -> list[Rewrite]:
    """All tables where the publication was altered since the offset: nothing shows what it left out for a time.

    Args:
        connection: to the database.
        publication: its name.
        tables: the paths of the captured tables.
        before: their files at the offset.
    """
    since = _since("p", before)
    if not since or not any(is_new for (is_new,) in connection.rows(_PUBLICATION.format(since=since), (publication,))):
        return []
    reason = f"publication '{publication}' was altered, and for a time it may not have had all of its changes"
    return [Rewrite(path, reason) for path in tables]


def unsent_changes(
    connection: Connection,
    known: Mapping[str, PostgresTable],
    captured: Mapping[str, PostgresTable],
    before: TableFiles,
    now: TableFiles,
    types: Mapping[int, str],
) -> list[Rewrite]:
    """The tables of whose rows something was or may have been changed and not sent.

    Args:
        connection: to the database.
        known: the tables as the offset has them.
        captured: as the catalog shows them now.
        before: their files at the offset.
        now: their files, from before this is called.
        types: the types that changed, with what changed in each.
    """
    same = [path for path in captured if path in known and known[path].oid == captured[path].oid]
    leaves = _leaves(connection, [(known[path], captured[path]) for path in same], before, now)
    changes = (
        change_of(known[path], captured[path], [leaves[o] for o in captured[path].leaves], types) for path in same
    )
    return [change for change in changes if change is not None]


def change_of(
    old: PostgresTable, new: PostgresTable, leaves: Sequence[Leaf], types: Mapping[int, str]
) -> Rewrite | None:
    """What may have changed rows of a table and was not sent; None where it is proven that nothing has.

    Args:
        old: the table as the offset has it.
        new: as the catalog shows it now.
        leaves: what happened to the tables that hold its rows.
        types: the types that changed, with what changed in each.
    """
    columns = list(_columns(old, new, leaves, types))
    reasons = [*_partitions(old, new, leaves), *(change.reason for change in columns)]
    if not reasons:
        return None
    constants = {change.column: change.constant for change in columns if change.is_constant}
    if len(constants) < len(reasons):
        constants = {}
    return Rewrite(new.id.path, "; ".join(dict.fromkeys(reasons)), constants)


class _Change(NamedTuple):
    """What happened to a column."""

    column: str
    reason: str
    is_constant: bool = False
    constant: str | None = None


def _partitions(old: PostgresTable, new: PostgresTable, leaves: Iterable[Leaf]) -> Iterator[str]:
    if new.leaves == (new.oid,):
        return
    if set(old.leaves) - set(new.leaves):
        yield "a partition was detached or dropped"
    for leaf in leaves:
        if leaf.attached:
            yield f"partition '{leaf.name}' came with its rows, or came again"
        elif leaf.emptied:
            yield f"partition '{leaf.name}' was emptied"


def _columns(
    old: PostgresTable, new: PostgresTable, leaves: Sequence[Leaf], types: Mapping[int, str]
) -> Iterator[_Change]:
    """What happened to the columns that are captured now."""
    named = {column.name: (native, number) for column, native, number in old.numbered}
    by_number = {number: native for _, native, number in old.numbered if number}
    kept = {number for *_, number in new.numbered}
    altered = old.schema.fingerprint != new.schema.fingerprint
    # One that is gone may have had the name of one that was added, in rows that were written in between.
    gone = next((name for name, (_, number) in named.items() if number and number not in kept), None)
    for column, native, number in new.numbered:
        name, before = column.name, named.get(column.name)
        if before is not None and before[1] and before[1] != number:
            yield _Change(name, f"column '{name}' is another column than the one that had this name")
        elif before is None and 0 < number <= old.last and number not in by_number:
            yield _Change(name, f"column '{name}' was not captured before")
        elif before is None and number not in by_number and gone is not None:
            yield _Change(name, f"column '{gone}' is gone and column '{name}' was added")
        elif before is None and number not in by_number:
            yield from _added(name, native, leaves, computed=column.generated, hidden=name in new.protected)
        else:
            was = by_number.get(number) or named[name][0]
            if any(leaf.rewritten and (altered if leaf.written is None else name in leaf.written) for leaf in leaves):
                yield _Change(name, "its rows were rewritten by ALTER TABLE")
            elif not _prints_alike(was, native):
                yield _Change(name, f"column '{name}' has another type")
            yield from (_Change(name, types[part.oid]) for part in was.parts if part.oid in types)


def _added(name: str, native: NativeType, leaves: Sequence[Leaf], *, computed: bool, hidden: bool) -> Iterator[_Change]:
    """What rows from before have in a column that was added."""
    values = {leaf.filled.get(name) for leaf in leaves}
    is_known = all(name in leaf.filled and name not in leaf.altered for leaf in leaves)
    if leaves and not hidden and len(values) == 1 and is_known:
        text = native.texts(pa.array(list(values), pa.string()))[0].as_py()
        yield _Change(name, f"column '{name}' was added with a default", True, text)
    elif any(name in leaf.filled for leaf in leaves):
        yield _Change(name, f"column '{name}' was added with a default")
    elif computed or any(leaf.rewritten for leaf in leaves):
        yield _Change(name, f"column '{name}' was added with values")


def _prints_alike(old: NativeType, new: NativeType) -> bool:
    """Whether a value that a type change leaves as it is stored has the same text."""
    if old.element is not None and new.element is not None:
        return _prints_alike(old.element, new.element)
    return old.oid == new.oid or _SAME_TEXTS.issuperset((old.name, new.name))


def _leaves(
    connection: Connection,
    tables: Collection[tuple[PostgresTable, PostgresTable]],
    before: TableFiles,
    now: TableFiles,
) -> Mapping[int, Leaf]:
    """What happened to the tables that hold the rows of captured tables, by their oids."""
    all_leaves = sorted({leaf for _, new in tables for leaf in new.leaves})
    since = _since("a", before) or "atthasmissing"
    written: dict[int, set[str]] = defaultdict(set)
    filled: dict[int, dict[str, str | None]] = defaultdict(dict)
    altered: dict[int, set[str]] = defaultdict(set)
    for oid, column, missing, value, is_same in connection.rows(_COLUMNS.format(since=since), (all_leaves,)):
        written[oid].add(column)
        if missing:
            filled[oid][column] = value
        if not is_same:
            # The transaction that added a column wrote its default too.
            altered[oid].add(column)
    came = _came(connection, tables, before)
    moved = set(before.moved(now)) & set(all_leaves)
    since = _since("a", before) or "true"
    asked = sorted(moved | came)
    facts = {o: of for o, *of in connection.rows(_LEAVES.format(since=since), (asked,))} if asked else {}
    leaves = {}
    for oid in all_leaves:
        name, counted, empty, has_store, new_store = facts.get(oid, ("", True, False, False, False))
        leaves[oid] = Leaf(
            name,
            frozenset(written[oid]) if before.visible else None,
            filled[oid],
            frozenset(altered[oid]),
            rewritten=oid in moved and not empty and (new_store or not has_store),
            emptied=oid in moved and not counted,
            attached=oid in came and (not empty or oid in before.numbers),
        )
    return leaves


def _since(row: str, before: TableFiles) -> str:
    """The SQL condition that a row of the catalog was written since the offset; empty where that is not known."""
    return _SINCE.format(row=row, visible=literal(before.visible)) if before.visible else ""


def _came(
    connection: Connection, tables: Iterable[tuple[PostgresTable, PostgresTable]], before: TableFiles
) -> set[int]:
    """The leaves that may have had rows when they, or what is above them, came below a partitioned table."""
    partitioned = [(old, new) for old, new in tables if new.leaves != (new.oid,)]
    if not partitioned:
        return set()
    since = _since("i", before) or "true"
    rows = connection.rows(_EDGES.format(since=since), ([new.oid for _, new in partitioned],))
    parents = {child: parent for child, parent, *_ in rows}
    open_edges = {child for child, _, is_new, as_partition in rows if is_new and not as_partition}
    oids = set()
    for old, new in partitioned:
        for leaf in new.leaves if before.visible else set(new.leaves) - set(old.leaves):
            at = leaf
            while at in parents and at != new.oid:
                if at in open_edges:
                    oids.add(leaf)
                at = parents[at]
    return oids
