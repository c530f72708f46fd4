"""What can happen to a row, a table or a stream."""

from __future__ import annotations

from enum import StrEnum


class Operation(StrEnum):
    """The values of the change row's column `op`; the letters are Debezium's."""

    READ = "r"
    """A row that was there when the snapshot read it."""
    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"
    SCHEMA = "schema"
    """A table's schema; comes before the first row that follows it, and may be repeated."""
    BEGIN = "begin"
    END = "end"
    HEARTBEAT = "heartbeat"
    TOMBSTONE = "tombstone"
    """A key whose value was null on the wire."""
    MESSAGE = "message"
    """What a source says that is not a change: a message that a session wrote into the log, or a notification."""
    GAP = "gap"
    """Changes known to be lost; only with failOnDataLoss=false."""
    ERROR = "error"
    """A message that could not be read, kept whole in `message`; or a change of a database that could not."""


SNAPSHOT_ENDS = ("last", "last_in_data_collection")
"""What the change row's column `snapshot` has in the last row of a table's snapshot."""

DATA_OPERATIONS = (Operation.READ, Operation.CREATE, Operation.UPDATE, Operation.DELETE, Operation.TRUNCATE)
"""The operations that change what a table holds."""
