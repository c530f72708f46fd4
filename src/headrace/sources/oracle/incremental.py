"""Ad-hoc snapshots beside the stream, without a write to the source.

A chunk is read as of the SCN at which its batch ends, and comes after everything of that SCN: changes up to it come
before the rows, those after it follow. So nothing has to be compared, and a chunk has the table as it was at one
moment. The chunks of one table are read at different moments, each at that of its batch.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace import faultpoints
from headrace.changes import Operation
from headrace.sources.log import signal_table
from headrace.sources.log.ad_hoc_reads import AdHocReads
from headrace.sources.offset import Key, Offset
from headrace.sources.oracle import scn, statements
from headrace.sources.oracle.assembly import Assembly, own_rows
from headrace.sources.oracle.captured_table import OracleTable, tables_of
from headrace.sources.oracle.connection import Connection, OracleError
from headrace.sources.oracle.ledger import Transaction
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.row_images import ImageReader
from headrace.sources.oracle.snapshot_read import (
    CHANGED,
    NO_SCN,
    NO_TABLE,
    TOO_OLD,
    is_there,
    keys,
    readable,
    snapshot_rows,
)
from headrace.sources.oracle.staging import Staging
from headrace.sources.rows import Spool
from headrace.sources.signals import SIGNAL_COLUMNS, Signal, say, say_once
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.requests import IncrementalChunk, RequestWaits
from headrace.sources.tables.masks import Masks

_MOMENT_GONE = frozenset((TOO_OLD, CHANGED, NO_SCN))
"""Refusals to read a table as it was at an SCN, which do not mean that it can't be read as it is now."""


class AdHocPlanner(AdHocReads[OracleTable]):
    """What signals ask for, and the chunks that answer it, for one batch. Runs in the driver.

    Args:
        connect: opens a connection to the database in which the tables are.
        settings: the source's options.
        database: that database's name.
    """

    def __init__(self, connect: Callable[[], Connection], settings: OracleSettings, database: str) -> None:
        super().__init__(settings, database, tables_of)
        self._connect = connect

    def blocking(self, state: AdHoc, end: Offset) -> tuple[AdHoc, list[str]]:
        """The state without the blocking snapshots that can begin after the batch, and their tables.

        One whose table was altered after the batch's end waits until the stream is there.
        """
        if not state.blocking:
            return state, []
        begun, _ = state.begin_blocking(end.schemas)
        captured = self.captured_blocking(state, end)
        known = [table for table in captured if table.id.path in begun]
        with self._connect() as connection:
            ready = [table.id.path for table in known if readable(connection, table, end.commit, waits=True)]
        waiting = tuple(table.id.path for table in captured if table.id.path not in ready)
        return replace(state, blocking=waiting), ready

    def more(self, state: AdHoc, start: Offset, end: Offset, budget: int, *, quiet: bool) -> AdHoc:
        """The state with up to `budget` further chunks as of the batch's end, tables one after another.

        Args:
            state: as no batch has read a further chunk yet.
            start: where the last batch ended.
            end: the batch's end.
            budget: how many chunks a batch may hold.
            quiet: whether the batch has no change of a captured table.
        """

        @contextmanager
        def ranges() -> Iterator[_KeysAsOf]:
            with self._connect() as connection:
                yield _KeysAsOf(connection, scn.number(end.commit))

        state = self.ends(state, start, end, self._written, ranges, quiet=quiet)
        return self.further(state, end, budget, ranges)

    def _written(self) -> str:
        with self._connect() as connection:
            return scn.to_text(int(connection.value(statements.CURRENT_SCN)))


@dataclass(frozen=True)
class _KeysAsOf:
    """Keys of tables as of an SCN."""

    connection: Connection
    at: int

    def greatest(self, table: OracleTable, condition: str | None) -> list[Key]:
        return self._keys(table, statements.greatest_key(table, condition), {})

    def bounds(
        self, table: OracleTable, lower: Key | None, last: Key, rows: int, chunks: int, condition: str | None
    ) -> list[Key]:
        bounds_read = statements.chunk_bounds(table, lower, rows, chunks, last=last, condition=condition)
        return self._keys(table, *bounds_read)

    def definition(self, table: OracleTable, before: str = "") -> str:
        # The log says it: definitions that batches deliver.
        return ""

    def _keys(self, table: OracleTable, sql: str, parameters: Mapping[str, object]) -> list[Key]:
        try:
            return keys(self.connection, table, sql, {**parameters, "scn": self.at})
        except OracleError as error:
            if error.number not in _MOMENT_GONE:
                raise
            # The stream is too far behind, or the table was altered since: both pass when it moves on.
            say_once(f"The ad-hoc snapshot of table '{table.id.path}' waits: {error.message}")
            raise RequestWaits from error


def require_signal_table(name: str, database: str, tables: Mapping[str, OracleTable]) -> OracleTable:
    """The signal table; as `log.signal_table.require_signal_table`."""
    return signal_table.require_signal_table(
        name,
        database,
        tables,
        capture="Run ALTER TABLE ... ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS for it, and add it to 'tables'.",
        definition="ID VARCHAR2(42), TYPE VARCHAR2(32), DATA VARCHAR2(2048)",
    )


def signals_of(
    transactions: Sequence[Transaction], table: OracleTable, staging: Staging, settings: OracleSettings
) -> list[Signal]:
    """The rows that transactions inserted into the signal table, in order.

    Args:
        transactions: committed ones, in commit order; those of their ranges only that have rows of the table.
        table: the signal table.
        staging: where the ranges are.
        settings: the source's options.
    """
    signals: list[Signal] = []
    reader = ImageReader(table, Masks())
    names = [column.name for column in table.schema.columns[:SIGNAL_COLUMNS]]
    for transaction in transactions:

        def read(columns: Sequence[str] | None, transaction: Transaction = transaction) -> Iterator[pa.RecordBatch]:
            wanted = None if columns is None else [*columns, "scn", "owner", "name"]
            for scns in transaction.ranges:
                for batch in own_rows(transaction, staging.rows(scns, [transaction.xid], wanted)):
                    is_own = pc.and_(
                        pc.equal(batch.column("owner"), table.id.schema), pc.equal(batch.column("name"), table.id.name)
                    )
                    if pc.any(is_own).as_py():
                        yield batch.filter(is_own)

        counts = [(batch.num_rows, pc.sum(batch.column("undo")).as_py() or 0) for batch in read(("undo",))]
        rows, undo = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        if not rows:
            continue
        part = replace(transaction, rows=rows, undo=undo)
        for event in Assembly(part, read, frozenset([table.id.path]), settings).events():
            if event.op is Operation.CREATE:
                image = dict(reader.images(event).after or [])
                id, kind, data = (image.get(name) for name in names)
                signals.append(Signal(id or "", kind or "", data))
    return signals


def read_incremental(
    connection: Connection,
    table: OracleTable,
    chunk: IncrementalChunk,
    commit: str,
    settings: OracleSettings,
    capture_time: dt.datetime | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk at the SCN where its batch ends, with the table's schema before the first ones.

    Where what the table held then can't be read any more (a batch that is done again much later), its rows are read
    as they are now: they may be ahead of the changes that follow, which bring every row where it has to be.
    """
    table = table.cut_by(chunk.key)
    try:
        batches = _rows(connection, table, chunk, scn.number(commit))
    except OracleError as error:
        if error.number not in _MOMENT_GONE | {NO_TABLE}:
            raise
        if not is_there(connection, table):
            say(f"Table '{table.id.path}' went away, or a column of it, while its ad-hoc snapshot was read: one chunk "
                "of it is left out. Ask for it again when the stream has the definition.")  # fmt: skip
            return
        say(f"A chunk of table '{table.id.path}' is read as it is now, not as of SCN {scn.number(commit)}: {error}")
        batches = _rows(connection, table, chunk, None)
    faultpoints.reach("source.incremental.read")
    yield from snapshot_rows(table, settings, capture_time).of_increment(chunk, commit, batches)
    faultpoints.reach("source.incremental.chunk")


def _rows(connection: Connection, table: OracleTable, chunk: IncrementalChunk, at: int | None) -> Spool:
    """A chunk's rows, all of them, so that a refusal halfway leaves no partial result."""
    sql, parameters = statements.rows_in_range(table, chunk.lower, chunk.upper, condition=chunk.filter, now=at is None)
    given: dict[str, Any] = parameters if at is None else {**parameters, "scn": at}
    kept = Spool()
    for batch in connection.batches(sql, rows=table.batch_rows, **given):
        kept.add(table.texts(batch))
    return kept
