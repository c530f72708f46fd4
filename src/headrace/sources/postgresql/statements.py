"""The SQL of snapshots: which rows of a table a chunk has, and where chunks end. Pure; texts of SQL, no database.

The server orders and compares keys, each by the operators of its type's own B-tree order. These are named with their
schema: sessions have no other schema than pg_catalog in their search path, and there a type of an extension would be
compared in another order than it is sorted in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.sources.offset import Key
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.refusals import identifier, literal

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""What is read in such a transaction is what was committed at its first query, or in the snapshot that it imports."""
END = "ROLLBACK"
ASIDE = "SAVEPOINT aside"
BACK = "ROLLBACK TO SAVEPOINT aside; RELEASE SAVEPOINT aside"
"""Lets go of the locks that were taken since."""
IN_ORDER = "SET LOCAL synchronize_seqscans = off; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off"
"""Rows of a table come in the order in which they are stored, whoever else reads it."""
EXPORT = "SELECT pg_export_snapshot()"

KEY_TYPES = """
SELECT t.oid::bigint, format_type(t.oid, -1), coalesce((
  SELECT n.nspname FROM pg_opclass c
  JOIN pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
  JOIN pg_amop o ON o.amopfamily = c.opcfamily AND o.amoplefttype = t.oid AND o.amoprighttype = t.oid
    AND o.amopstrategy = 5
  JOIN pg_operator p ON p.oid = o.amopopr
  JOIN pg_namespace n ON n.oid = p.oprnamespace
  WHERE c.opcdefault AND c.opcintype = t.oid), 'pg_catalog')::text
FROM pg_type t WHERE t.oid = ANY(%s)
"""
"""Types by oid: how they are written, and the schema of the operators by which they are sorted."""
BLOCKS = """
SELECT coalesce(max(blocks), 0)::bigint, coalesce(sum(blocks), 0)::bigint, coalesce(sum(tuples), 0)::float8,
  coalesce(sum(pages), 0)::bigint
FROM (SELECT pg_relation_size(oid) / current_setting('block_size')::int AS blocks, greatest(reltuples, 0) AS tuples,
  relpages AS pages FROM pg_class WHERE oid = ANY(%s)) t
"""
"""Of the tables that hold rows: the blocks of the largest, of all, and the rows and blocks when they were last
counted."""
"""How many rows tables had when they were last counted; -1 for never."""
STRUCTURE = """
SELECT a.attname::text, a.atttypid::bigint, a.atttypmod FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %s AND n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
"""The columns of a table that is still what it was; none where it is not."""
FILES = "SELECT c.oid::bigint, c.relfilenode = pg_relation_filenode(c.oid) FROM pg_class c WHERE c.oid = ANY(%s)"
"""Whether tables are stored where they were at the transaction's snapshot. The catalog is read as of the snapshot, and
the function looks at what is there now."""
LEAVES = "SELECT relid::oid::bigint FROM pg_partition_tree(%s) WHERE isleaf"
"""The tables that hold the rows of a partitioned one, now."""
LOCKED_BY = """
SELECT l.pid, a.application_name, a.usename::text, l.granted FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.relation = ANY(%s) AND l.mode = 'AccessExclusiveLock' ORDER BY l.granted DESC, l.pid LIMIT 1
"""
"""The session that keeps all others from tables, or waits for that."""


@dataclass(frozen=True)
class KeyColumn:
    """A column of the key by which a table is cut into chunks.

    Args:
        name: its name.
        type: its type, as SQL has it.
        operators: the schema of the operators by which it is sorted.
    """

    name: str
    type: str
    operators: str = "pg_catalog"


def import_snapshot(name: str) -> str:
    """See what an exported snapshot sees; the first statement of a transaction."""
    return f"SET TRANSACTION SNAPSHOT {literal(name)}"


def lock_timeout(milliseconds: int) -> str:
    """How long statements of the transaction wait for a lock; 0 for ever."""
    return f"SET LOCAL lock_timeout = {milliseconds}"


def lock(table: PostgresTable) -> str:
    """Keep a table from being altered, truncated or rewritten until the transaction ends; rows may be written."""
    return f"LOCK TABLE {stored(table)} IN ACCESS SHARE MODE"


def stored(table: PostgresTable) -> str:
    """The rows that are the table's own: not those of tables that inherit from it, but those of its partitions."""
    whole = f"{identifier(table.id.schema)}.{identifier(table.id.name)}"
    return f"ONLY {whole}" if table.leaves == (table.oid,) else whole


def any_row(table: PostgresTable, conditions: Sequence[str]) -> str:
    return f"SELECT 1 FROM {stored(table)}{_where(conditions)} LIMIT 1"


def any_row_of_select(select: str) -> str:
    return f"SELECT 1 FROM ({select}\n) t LIMIT 1"


def greatest_key(table: PostgresTable, key: Sequence[KeyColumn], conditions: Sequence[str]) -> str:
    order = ", ".join(f"{_column(table, column.name)} DESC" for column in key)
    return f"SELECT {_shown(table, key)} FROM {stored(table)}{_where(conditions)} ORDER BY {order} LIMIT 1"


def chunk_bound(
    table: PostgresTable,
    key: Sequence[KeyColumn],
    lower: Key | None,
    last: Key,
    rows: int,
    conditions: Sequence[str],
) -> str:
    """The key at which a chunk ends; no row where fewer than so many are left.

    Args:
        table: it.
        key: its chunk key.
        lower: keys after this; None from the beginning.
        last: keys up to and with this.
        rows: how many rows the chunk has.
        conditions: predicates that rows must meet.
    """
    order = ", ".join(_column(table, column.name) for column in key)
    where = _where([*conditions, *in_range(table, key, lower, last)])
    return (
        f"SELECT {_shown(table, key)} FROM {stored(table)}{where} ORDER BY {order} "
        f"OFFSET {rows - 1} LIMIT 1"
    )  # fmt: skip


def in_range(table: PostgresTable, key: Sequence[KeyColumn], lower: Key | None, upper: Key | None) -> list[str]:
    """Predicates of the rows whose key is in (lower, upper]."""
    bounds = ((">", lower), ("<=", upper))
    return [_compared(table, key, operator, bound) for operator, bound in bounds if bound is not None]


def in_blocks(lower: Key | None, upper: Key | None) -> list[str]:
    """Predicates of the rows that are stored from one place on and before another."""
    bounds = ((">=", lower), ("<", upper))
    return [f"ctid {operator} {literal(bound[0] or '')}::tid" for operator, bound in bounds if bound is not None]


def block(number: int) -> Key:
    """The position where a block begins, as a bound of chunks."""
    return (f"({number},0)",)


def copy_rows(table: PostgresTable, conditions: Sequence[str]) -> str:
    """The rows of a table that meet conditions, as CSV, by the output functions of their types."""
    shown = ", ".join(_column(table, column.name) for column in table.schema.columns)
    return f"COPY (SELECT {shown} FROM {stored(table)}{_where(conditions)}) TO STDOUT (FORMAT csv)"


def copy_rows_of_select(table: PostgresTable, select: str) -> str:
    """The captured columns of what a user's statement gives in place of the table."""
    shown = ", ".join(f"t.{identifier(column.name)}" for column in table.schema.columns)
    # On a line of its own, because the statement may end with a comment.
    return f"COPY (SELECT {shown} FROM ({select}\n) t) TO STDOUT (FORMAT csv)"


def _column(table: PostgresTable, name: str) -> str:
    # With the table before it, ORDER BY means the column and not what is selected under its name.
    return f"{identifier(table.id.name)}.{identifier(name)}"


def _shown(table: PostgresTable, key: Sequence[KeyColumn]) -> str:
    return ", ".join(f"{_column(table, column.name)}::text" for column in key)


def _where(conditions: Sequence[str]) -> str:
    # Each on a line of its own, because a predicate of the user's may end with a comment.
    return " WHERE " + " AND ".join(f"({condition}\n)" for condition in conditions) if conditions else ""


def _compared(table: PostgresTable, key: Sequence[KeyColumn], operator: str, bound: Key) -> str:
    columns = [_column(table, column.name) for column in key]
    values = [f"{literal(text or '')}::{column.type}" for column, text in zip(key, bound, strict=True)]
    if len(key) == 1:
        return f"{columns[0]} {_operator(key[0], operator)} {values[0]}"
    if len({column.operators for column in key}) == 1:
        # An index can seek this one.
        return f"ROW({', '.join(columns)}) {_operator(key[0], operator)} ROW({', '.join(values)})"
    text = f"{columns[-1]} {_operator(key[-1], operator)} {values[-1]}"
    strict = operator.rstrip("=")
    for column, name, value in reversed(list(zip(key, columns, values, strict=True))[:-1]):
        same = f"{name} {_operator(column, '=')} {value}"
        text = f"({name} {_operator(column, strict)} {value} OR ({same} AND {text}))"
    return text


def _operator(column: KeyColumn, operator: str) -> str:
    return f"OPERATOR({identifier(column.operators)}.{operator})"
