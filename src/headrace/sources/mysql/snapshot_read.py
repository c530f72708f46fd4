"""Snapshots: chunks by key, each read in a transaction of its own that sees everything before the snapshot's position.

A table with a key is read as it is at that moment or later: what changed since the position comes again with the
stream. That does not do for a table without a key, where a change would come twice. It is read in one piece, at a
moment that is known exactly, and taken back to the snapshot's position by the changes that the log has in between. So
each of them is read again at any time, also by another process, as long as the log is there, and no session has to be
kept open.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from headrace import faultpoints
from headrace.changes import Operation
from headrace.changes.one_table import about
from headrace.changes.table_files import TableFile
from headrace.errors import CaptureError
from headrace.settings import Settings
from headrace.sources.images import WholeRows, constant_map
from headrace.sources.mysql import snapshot_statements as statements
from headrace.sources.mysql.binlog_position import BinlogPosition, boundary, file_name
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.connection import Connection
from headrace.sources.mysql.refusals import MysqlError
from headrace.sources.mysql.text_rows import TextRows
from headrace.sources.mysql.types import NativeType
from headrace.sources.mysql.visibility import Session, Snapshots, Visible
from headrace.sources.offset import Key, TableProgress
from headrace.sources.snapshots.chunks import Chunk, with_further_chunks
from headrace.sources.snapshots.select_overrides import SelectOverrides, failed
from headrace.sources.snapshots.snapshot_rows import Columns, Row, SnapshotRows, rewound
from headrace.sources.tables.masks import Masks

_END = "ROLLBACK"
_GONE = frozenset((1049, 1146, 1412))
"""Refusals of a database or a table that is not there, or was altered since the transaction began."""
_COLUMNS = """
SELECT column_name, column_type, character_set_name FROM information_schema.columns
WHERE table_schema = {} AND table_name = {}
"""


Changes = Callable[[MysqlTable, BinlogPosition, BinlogPosition], Iterable[pa.RecordBatch]]
"""The change rows of a table between two boundaries of the log, with values as they are: without masks."""


@dataclass(frozen=True)
class SnapshotReader:
    """Reads tables of one server. Runs in executors.

    Args:
        connect: opens a session.
        snapshots: opens snapshots.
        connector: its name in events.
        log: what the names of the log's files begin with.
        settings: the source's options.
        changes: reads the log.
    """

    connect: Callable[[], Connection]
    snapshots: Snapshots
    connector: str
    log: str
    settings: Settings
    changes: Changes

    def chunk(
        self, table: MysqlTable, chunk: Chunk, capture_time: dt.datetime | None, file: TableFile | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one chunk that no file takes, with the table's schema first.

        Raises:
            CaptureError: the table was altered or may not be read; or it has no key, and the log has no whole images
                of what was changed since the snapshot's position.
        """
        rows = self.rows(table, capture_time)
        yield rows.schema_of(chunk)
        yield from rows.of_chunk(chunk, self._texts(table, chunk), numbered=not table.chunk_key, file=file)
        faultpoints.reach("source.snapshot.chunk")

    def rows(self, table: MysqlTable, capture_time: dt.datetime | None) -> SnapshotRows:
        masks = Masks.of(self.settings).of_table(table.schema, table.natives)
        return SnapshotRows(
            self.connector, table.schema, masks, partial(_sources, self.connector, self.log), capture_time
        )

    def live(self, table: MysqlTable, after: BinlogPosition, sql: str) -> Iterator[tuple[Visible, WholeRows]]:
        """Rows of a table as it is at a moment after a position, and what is seen at that moment.

        Args:
            table: it.
            after: everything before it is seen.
            sql: selects the captured columns.

        Raises:
            TableAltered: the table was altered since the offset knows it.
            CaptureError: it may not be read.
        """
        session = self.connect()
        try:
            quoted = (statements.quoted(table.id),)
            visible = self.snapshots.opened(session, after, tables=quoted, another=self.connect)
            require_as_known(session, table)
            for batch in texts_of(session, table, sql):
                yield visible, batch
            session.rows(_END)
        finally:
            session.close()

    def _texts(self, table: MysqlTable, chunk: Chunk) -> Iterator[Columns]:
        select = SelectOverrides.of(self.settings, for_mysql=True).select(table.id)
        after = boundary(chunk.commit)
        if select is not None:
            try:
                for _, batch in self.live(table, after, statements.rows_of_select(table, select)):
                    yield batch
            except MysqlError as error:
                raise failed(table.id, error) from error
        elif table.chunk_key:
            sql = statements.rows(table, statements.in_range(table, chunk.lower, chunk.upper))
            for _, batch in self.live(table, after, sql):
                yield batch
        else:
            yield from self._taken_back(table, after)

    def _taken_back(self, table: MysqlTable, position: BinlogPosition) -> Iterator[Columns]:
        """The rows of a table without a key as they were at a position."""
        session = self.connect()
        try:
            quoted = statements.quoted(table.id)
            if table.has_snapshots:
                visible = self.snapshots.exact(session, (quoted,), self.connect)
            else:
                visible = self.snapshots.held(session, quoted)
            require_as_known(session, table)
            came, gone = (
                _images(table, self.changes(table, position, visible.high)) if visible.high > position else _NOTHING
            )
            batches = texts_of(session, table, statements.rows(table))
            if came or gone:
                yield from rewound((batch.columns for batch in batches), came, gone)
            else:
                yield from batches
            session.rows(_END)
        finally:
            session.close()


_NOTHING: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())


def _images(table: MysqlTable, changes: Iterable[pa.RecordBatch]) -> tuple[Counter[Row], Counter[Row]]:
    """The rows that changes wrote, and those that they took away."""
    names = [column.name for column in table.schema.columns]
    came: Counter[Row] = Counter()
    gone: Counter[Row] = Counter()
    for batch in changes:
        ops = batch.column("op").to_pylist()
        if Operation.TRUNCATE.value in ops:
            error = CaptureError(
                f"Table '{table.path}' has no key, and was truncated while it was read.",
                remedy="Start with a new checkpoint, and truncate it when the snapshot is done.",
            )
            raise about(error, table.schema.id)
        for column, counter in (("before", gone), ("after", came)):
            for op, image in zip(ops, batch.column(column).to_pylist(), strict=True):
                if image is None or op not in _OF_ROWS:
                    continue
                values = dict(image)
                if len(values) != len(names):
                    error = CaptureError(
                        f"Table '{table.path}' has no key, and was changed while it was read by a change without whole "
                        "images.",
                        remedy="Run: SET GLOBAL binlog_row_image = FULL; and start with a new checkpoint.",
                    )
                    raise about(error, table.schema.id)
                counter[tuple(values[name] for name in names)] += 1
    return came, gone


_OF_ROWS = frozenset((Operation.CREATE.value, Operation.UPDATE.value, Operation.DELETE.value))


def _sources(connector: str, log: str, commit: str, count: int) -> pa.Array:
    position = boundary(commit)
    facts = {"connector": connector, "file": file_name(log, position.file), "pos": str(position.position)}
    return constant_map(facts, count)


def texts_of(session: Connection, table: MysqlTable, sql: str) -> Iterator[WholeRows]:
    """What a statement gives of a table's columns, as canonical texts."""
    names = [column.name for column in table.schema.columns]
    return TextRows(names, table.natives).read(session.text_rows(sql))


def require_as_known(session: Session, table: MysqlTable) -> None:
    """Keep a table from being altered until the transaction ends, and see that it is as the offset knows it.

    Raises:
        TableAltered: it is not, or is not there any more.
    """
    try:
        session.rows(statements.touched(table))
    except MysqlError as error:
        if error.number not in _GONE:
            raise
        raise altered(table) from error
    database, name = (statements.text(part) for part in (table.id.database, table.id.name))
    columns = {str(row[0]): row[1:] for row in session.rows(_COLUMNS.format(database, name))}
    for column, native in zip(table.schema.columns, table.natives, strict=True):
        declared = columns.get(column.name)
        if declared is None or NativeType.of_catalog(*declared, json=native.kind == "json") != native:
            raise altered(table)


class TableAltered(CaptureError):
    """A table is not there any more as the offset knows it."""


def altered(table: MysqlTable) -> TableAltered:
    return TableAltered(
        f"Table '{table.path}' was altered, renamed or dropped before its snapshot was read.",
        remedy="Start the run again: it reads the table from its beginning.",
    )


# Planning, in the driver.


def more_chunks(
    session: Session, table: MysqlTable, progress: TableProgress, settings: Settings, rows: int, budget: int
) -> TableProgress:
    """A table's snapshot with up to `budget` further chunks; one that the user's own SELECT reads has one, as has one
    without a key.

    Args:
        session: to the server.
        table: it.
        progress: as no batch has read a further chunk yet.
        settings: the source's options.
        rows: how many rows a chunk has; 0 to read tables in one piece.
        budget: how many chunks a batch may hold.

    Raises:
        CaptureError: the user's statement fails, or the table may not be read.
    """
    select = SelectOverrides.of(settings, for_mysql=True).select(table.id)
    if select is not None:
        try:
            empty = not session.rows(statements.any_row_of_select(select))
        except MysqlError as error:
            raise failed(table.id, error) from error
    else:
        # Rows of a table without a key may have gone since the snapshot's position.
        empty = bool(table.chunk_key) and progress.chunk == 0 and not session.rows(statements.any_row(table))
    if empty:
        return replace(progress, done=True, empty=True)
    if budget == 0:
        return progress
    if select is not None or not rows or not table.chunk_key:
        return replace(progress, bounds=(None,), done=True)
    return with_further_chunks(
        progress,
        budget,
        lambda: greatest_key(session, table),
        lambda last: key_bounds(session, table, progress.lower, last, rows, budget),
    )


def greatest_key(session: Session, table: MysqlTable, conditions: Sequence[str] = ()) -> Key | None:
    """The last key of the rows that meet conditions; None where there is none."""
    lines = session.rows(statements.greatest_key(table, conditions))
    return _key(lines[0]) if lines else None


def key_bounds(
    session: Session,
    table: MysqlTable,
    lower: Key | None,
    last: Key,
    rows: int,
    chunks: int,
    conditions: Sequence[str] = (),
) -> list[Key]:
    """The keys at which the next chunks end.

    Args:
        session: to the server.
        table: it.
        lower: keys after this; None from the beginning.
        last: keys up to and with this.
        rows: how many rows a chunk has.
        chunks: how many keys at the most.
        conditions: predicates that rows must meet.
    """
    bounds: list[Key] = []
    while len(bounds) < chunks:
        lines = session.rows(statements.chunk_bound(table, lower, last, rows, conditions))
        if not lines:
            break
        lower = _key(lines[0])
        bounds.append(lower)
    return bounds


def _key(row: Sequence[Any]) -> Key:
    return tuple(value.decode("ascii") if isinstance(value, bytes) else str(value) for value in row)
