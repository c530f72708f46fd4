"""Ad-hoc snapshots beside the stream, without a write to the source.

A chunk is read in a snapshot that sees everything up to the batch's end, and its rows stand after all of that. The
reader looks at the log from there to where its snapshot may reach: rows that were written in between are left out,
because their changes come with the next batches. A row that was deleted since was not read. Keys are compared by their
texts: who wrote the row that was read is in the log with the very text that the table has.

A row whose change does not carry its whole image stays in: its change alone does not make it in a target that lacks it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace import faultpoints
from headrace.changes import Operation
from headrace.changes.texts import key_text, key_texts
from headrace.sources.mysql import snapshot_statements as statements
from headrace.sources.mysql.binlog_position import boundary
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.connection import Connection
from headrace.sources.mysql.refusals import MysqlError
from headrace.sources.mysql.snapshot_read import (
    SnapshotReader,
    TableAltered,
    greatest_key,
    key_bounds,
    require_as_known,
)
from headrace.sources.offset import Key
from headrace.sources.rows import Spool
from headrace.sources.signals import say, say_once
from headrace.sources.snapshots.requests import NO_ROW, IncrementalChunk, RequestWaits, refused_filter

_WRITTEN = frozenset((Operation.CREATE.value, Operation.UPDATE.value))
_MADE = "SELECT CREATE_TIME, TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}"
_COLUMNS = (
    "SELECT COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME, IS_NULLABLE, EXTRA FROM information_schema.COLUMNS "
    "WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} ORDER BY ORDINAL_POSITION"
)


@dataclass(frozen=True)
class KeysNow:
    """Keys of tables as they are.

    Args:
        connection: to the server, outside of a transaction.
    """

    connection: Connection

    def greatest(self, table: MysqlTable, condition: str | None) -> list[Key]:
        self._require_known(table)
        key = greatest_key(self.connection, table, _all_of(condition))
        return [] if key is None else [key]

    def bounds(
        self, table: MysqlTable, lower: Key | None, last: Key, rows: int, chunks: int, condition: str | None
    ) -> list[Key]:
        self._require_known(table)
        return key_bounds(self.connection, table, lower, last, rows, chunks, _all_of(condition))

    def definition(self, table: MysqlTable, before: str = "") -> str:
        """As `KeyRanges.definition`; the time of a table's making is that of its last change, in seconds."""
        database, name = (statements.text(part) for part in (table.id.database, table.id.name))
        definitions = [self.connection.rows(sql.format(database, name)) for sql in (_MADE, _COLUMNS)]
        return hashlib.md5(repr(definitions).encode(), usedforsecurity=False).hexdigest()[:16]

    def _require_known(self, table: MysqlTable) -> None:
        try:
            require_as_known(self.connection, table)
        except TableAltered as error:
            say_once(f"The ad-hoc snapshot of table '{table.path}' waits until the stream has its new definition.")
            raise RequestWaits from error


def check_filter(connection: Connection, table: MysqlTable, filter: str) -> None:
    """Whether the server takes a filter of a signal.

    Raises:
        OptionError: it does not.
    """
    try:
        connection.rows(statements.any_row(table, [NO_ROW.format(filter=filter)]))
    except MysqlError as error:
        raise refused_filter(table.id, error.message) from error


def read_incremental(
    reader: SnapshotReader, table: MysqlTable, chunk: IncrementalChunk, commit: str, capture_time: dt.datetime | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk that nobody wrote since a batch's end, with the table's schema before the first ones.

    A chunk is held, on disk where it is large, so that a refusal in the middle leaves no part of it. A replay may find
    other rows, and both are right. Runs in executors.

    Args:
        reader: reads the table and the log.
        table: as the offset knows it.
        chunk: which rows of it.
        commit: where the batch ends.
        capture_time: when it was planned.

    Raises:
        CaptureError: the table may not be read, or what the log has can't be seen in time.
    """
    end, cut = boundary(commit), table.cut_by(chunk.key)
    conditions = [*_all_of(chunk.filter), *statements.in_range(cut, chunk.lower, chunk.upper)]
    kept = Spool()
    try:
        reached = end
        for visible, batch in reader.live(table, end, statements.rows(cut, conditions)):
            reached = max(reached, visible.high)
            kept.add(batch.columns)
    except TableAltered:
        say(f"Table '{table.path}' was altered or went away while its ad-hoc snapshot was read: one chunk of it is "
            "left out. Ask for it again when the stream has the definition.")  # fmt: skip
        return
    faultpoints.reach("source.incremental.read")
    written = _written(table, reader.changes(table, end, reached)) if reached > end else None
    rows = reader.rows(table, capture_time)
    yield from rows.of_increment(chunk, commit, _others(table, kept, written))
    faultpoints.reach("source.incremental.chunk")


def _others(table: MysqlTable, batches: Iterable[list[pa.Array]], written: pa.Array | None) -> Iterator[list[pa.Array]]:
    """The rows without those that were written."""
    positions = _places(table)
    for texts in batches:
        if written is None or not len(written):
            yield texts
            continue
        keep = pc.invert(pc.is_in(key_texts([texts[position] for position in positions]), value_set=written))
        if pc.any(keep).as_py():
            yield [text.filter(keep) for text in texts]


def _written(table: MysqlTable, changes: Iterable[pa.RecordBatch]) -> pa.Array:
    """The texts of the keys of rows that changes wrote as a whole."""
    names, written = [column.name for column in table.schema.columns], set()
    for batch in changes:
        for op, image in zip(batch.column("op").to_pylist(), batch.column("after").to_pylist(), strict=True):
            if op in _WRITTEN and image is not None and len(image) == len(names):
                values = dict(image)
                written.add(key_text([values[name] for name in table.row_key]))
    return pa.array(sorted(written), pa.string())


def _places(table: MysqlTable) -> Sequence[int]:
    names = [column.name for column in table.schema.columns]
    return [names.index(name) for name in table.row_key]


def _all_of(condition: str | None) -> list[str]:
    return [] if condition is None else [condition]
