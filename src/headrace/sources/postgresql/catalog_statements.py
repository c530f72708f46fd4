"""The SQL that asks the server's catalog how tables look. Numbers of tables are given as the text of an array."""

from __future__ import annotations

WITH_SCHEMAS = 150000
"""The version from which on publications have schemas."""
TABLES = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence = 'u', c.relispartition,
  c.relreplident::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY n.nspname, c.relname
"""
PARTITIONS = """
SELECT i.inhrelid::bigint, i.inhparent::bigint FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE c.relispartition ORDER BY i.inhrelid
"""
PARTITION_TREE = """
WITH RECURSIVE tree (root, relid, parent) AS (
    SELECT given.oid::oid, given.oid::oid, NULL::oid FROM unnest(%s::bigint[]) AS given (oid)
    UNION ALL
    SELECT tree.root, i.inhrelid, i.inhparent FROM tree
    JOIN pg_inherits i ON i.inhparent = tree.relid AND NOT i.inhdetachpending
    JOIN pg_class c ON c.oid = i.inhrelid AND c.relispartition)
"""
"""Tables and all that is below them, in `tree`. The server's pg_partition_tree waits for transactions that alter one of
them."""
IS_LOCKED = """EXISTS (SELECT FROM pg_locks l WHERE l.relation = {oid} AND l.mode = 'AccessExclusiveLock'
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))"""
"""Whether somebody alters a table, or waits to. Some of the server's functions wait for that transaction."""
# The text of an expression that names columns is one that waits. That of a default names none, so no table is said.
COLUMNS = f"""
SELECT a.attrelid::bigint, a.attname::text, a.atttypid::bigint, a.atttypmod, a.attnotnull OR t.typnotnull,
  a.attidentity <> '', a.attgenerated::text,
  CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, 0)
    WHEN NOT {IS_LOCKED.format(oid="d.adrelid")} THEN pg_get_expr(d.adbin, d.adrelid) END, s.description, a.attnum
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_description s ON s.objoid = a.attrelid AND s.classoid = 'pg_class'::regclass AND s.objsubid = a.attnum
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
COMMENTS = """
SELECT objoid::bigint, description FROM pg_description
WHERE objoid = ANY(%s::oid[]) AND classoid = 'pg_class'::regclass AND objsubid = 0
"""
# Where a key may be deferred, the server does not take it for the replica identity.
KEYS = """
SELECT i.indrelid::bigint, i.indisprimary, i.indisreplident, i.indimmediate,
  (SELECT json_agg(a.attname ORDER BY k.position) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, position)
   JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.position <= i.indnkeyatts)::text
FROM pg_index i
WHERE i.indrelid = ANY(%s::oid[]) AND i.indisunique AND i.indisvalid AND NOT i.indisexclusion
  AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indrelid, i.indisprimary DESC, i.indisreplident DESC, i.indexrelid
"""
# A table that was never analysed has been counted by what was written to it, unless the server crashed since; then it
# has no rows where its file has no bytes.
ESTIMATES = f"""
SELECT oid::bigint, CASE WHEN reltuples >= 0 THEN reltuples
  WHEN pg_stat_get_live_tuples(oid) > 0 THEN pg_stat_get_live_tuples(oid)
  WHEN {IS_LOCKED.format(oid="c.oid")} THEN -1
  WHEN pg_relation_size(oid) = 0 THEN 0 ELSE -1 END
FROM pg_class c WHERE oid = ANY(%s)
"""
TYPE_NAMES = """
SELECT format_type(o::bigint::oid, m) FROM unnest(%s::bigint[], %s::int[]) WITH ORDINALITY AS t (o, m, position)
ORDER BY position
"""
# What is hashed is the transaction that wrote each row of the catalog last. ANALYZE and VACUUM write in place.
STATE = """
WITH tables AS (SELECT c.oid, c.xmin, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p', 'c') AND c.relpersistence <> 't' AND n.nspname !~ '^pg_'),
parts (number, hash) AS (
  SELECT 1, hash_record_extended((oid, xmin), 0) FROM tables
  UNION ALL SELECT 2, hash_record_extended((attrelid, attnum, xmin), 0) FROM pg_attribute
    WHERE attnum > 0 AND (attrelid = ANY(%s::oid[]) OR attrelid IN (SELECT oid FROM tables WHERE relkind = 'c'))
  UNION ALL SELECT 3, hash_record_extended((oid, xmin), 0) FROM pg_attrdef WHERE adrelid = ANY(%s::oid[])
  UNION ALL SELECT 4, hash_record_extended((indexrelid, xmin), 0) FROM pg_index WHERE indrelid = ANY(%s::oid[])
  UNION ALL SELECT 5, hash_record_extended((inhrelid, inhparent, xmin), 0) FROM pg_inherits
  UNION ALL SELECT 6, hash_record_extended((oid, xmin), 0) FROM pg_type
    WHERE typtype IN ('b', 'd', 'e', 'r') AND typelem = 0 AND oid >= 16384
  UNION ALL SELECT 7, hash_record_extended((oid, xmin), 0) FROM pg_enum
  UNION ALL SELECT 8, hash_record_extended((oid, xmin), 0) FROM pg_namespace WHERE nspname !~ '^pg_'
  UNION ALL SELECT 9, hash_record_extended((oid, xmin), 0) FROM pg_publication
  UNION ALL SELECT 10, hash_record_extended((oid, xmin), 0) FROM pg_publication_rel
  {}
)
SELECT string_agg(number || '.' || count || '.' || hash, ' ' ORDER BY number)
FROM (SELECT number, count(*), bit_xor(hash) AS hash FROM parts GROUP BY number) p
"""
_SCHEMAS = "UNION ALL SELECT 11, hash_record_extended((oid, xmin), 0) FROM pg_publication_namespace"


def state(version: int) -> str:
    """A text that is another one when tables, types or publications were changed."""
    return STATE.format(_SCHEMAS if version >= WITH_SCHEMAS else "")
