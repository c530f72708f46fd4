"""What a wire format can carry: the closed list by which losses between two formats are known.

A format declares what its messages give (`reads`) and what its encoder can say (`writes`). What one format reads and
another does not write is lost on the way from one to the other; nothing else is. The reference page of the pairs and
the tests that decode what was encoded come from the same declarations.
"""

from __future__ import annotations

from enum import StrEnum


class Feature(StrEnum):
    """One thing that a change row can say and a message may not. The value is how the reference page calls it."""

    READ = "snapshot rows distinguished from creates"
    TRUNCATE = "truncates"
    TOMBSTONE = "tombstones"
    SCHEMA = "schemas of tables (`schema` rows)"
    DDL = "DDL texts"
    EDGES = "begin and end of transactions"
    HEARTBEAT = "heartbeats"
    MESSAGE = "logical messages"
    BEFORE = "old images of updates"
    WHOLE_BEFORE = "unchanged columns in old images of updates"
    ABSENT = "columns that an image does not carry, distinguished from NULL"
    CHANGED = "the list of changed columns"
    KEY_CHANGE = "changes of a key as one update (else a delete and a create)"
    KEY = "which columns are the key"
    TYPES = "column types beside the values"
    DATABASE = "the database of a table"
    SCHEMA_NAME = "the schema of a table"
    EVENT_TIME = "commit times, to the second"
    EVENT_MILLISECONDS = "commit times, to the millisecond"
    EVENT_MICROSECONDS = "commit times, to the microsecond"
    READ_TIME = "times of snapshot rows"
    TRANSACTION = "transaction ids"
    TRANSACTION_ORDER = "the number of a change in its transaction"
    SNAPSHOT_MARKS = "first and last marks of snapshots"
    BYTES = "bytes distinguished from text"
    SOURCE = "the source's own facts (`source`)"


def lost(reads: frozenset[Feature], writes: frozenset[Feature]) -> tuple[Feature, ...]:
    """What is lost from a format that gives `reads` to one that says `writes`, in the list's order."""
    return tuple(feature for feature in Feature if feature in reads and feature not in writes)
