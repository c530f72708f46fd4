"""Changes of many tables in commit order, numbered inside their transactions, with BEGIN and END around each.

One task holds a range of whole commits. Each table's rows come in their own order from the server; they are merged here
by position, a batch of each table at a time, so that memory depends on the number of tables that changed and not on the
size of a transaction.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import faultpoints
from headrace.changes import Operation, Position
from headrace.sources.change_tables.captured_table import ARROW_ROWS
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.change_tables.connection import Connection, MissingObject
from headrace.sources.change_tables.markers import lost, switched_off
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.change_tables.windows import commit_times
from headrace.sources.images import Images
from headrace.sources.rows import Tally, change_batch, number_events, repeat

_END_ORDER = "e"
"""Order of END in its commit: after the hex digits of every change, before announcements about the commit."""
_LEAST_ROWS = 1024


def read_transactions(
    connect: Callable[[], Connection],
    windows: Sequence[Window],
    settings: ChangeTableSettings,
    zone: str,
    capture_time: dt.datetime | None,
) -> Iterator[pa.RecordBatch]:
    """The changes of a range of whole commits over several tables.

    A table whose change table went away has a row that reports it, and none of its changes or some of them.

    Raises:
        DataLossError: changes were cleaned, or went with their change table, before they were read, and the options do
            not say to go on without them.
    """
    low, high = min(window.after for window in windows), max(window.upto for window in windows)
    rows = max(_LEAST_ROWS, ARROW_ROWS // len(windows))
    with connect() as first:
        connector = first.dialect.connector
        times = commit_times(first, low, high, zone, settings)
    gone: list[Window] = []
    with ExitStack() as cleanup:
        cursors = []
        free: list[Connection] = []
        for number, window in enumerate(windows):
            # A cursor that is still open needs a connection of its own; most tables fit into one batch and need none.
            connection = free.pop() if free else cleanup.enter_context(connect())
            dialect = connection.dialect
            reader = dialect.change_reader(window.table, times, capture_time, settings, weighted=True)
            raw = dialect.changes(connection, window, settings, rows=rows)
            cursor = _Cursor(number, _there(reader.read(raw), window, gone))
            if cursor.exhausted:
                free.append(connection)
            cursors.append(cursor)
        numbering = _Numbering(connector, [w.table.id.full_path for w in windows], times, capture_time)
        for batch, origins in _merged(cursors):
            yield from numbering.number(batch, origins)
            faultpoints.reach("source.stream.batch")
        yield from numbering.finish()
    with connect() as last:
        for window in windows:
            try:
                if window not in gone:
                    yield from lost(last, window, settings, capture_time)
            except MissingObject:
                gone.append(window)
    for window in gone:
        yield switched_off(connector, window, settings, capture_time)


def _there(rows: Iterator[pa.RecordBatch], window: Window, gone: list[Window]) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except MissingObject:
        gone.append(window)


class _Cursor:
    """One table's change rows, a batch ahead, so that it is known when there are no more."""

    def __init__(self, number: int, batches: Iterator[pa.RecordBatch]) -> None:
        self.number = number
        self._batches = batches
        self.batch: pa.RecordBatch | None = next(batches, None)
        self._following = next(batches, None) if self.batch is not None else None

    @property
    def exhausted(self) -> bool:
        """Whether nothing comes after the batch at hand."""
        return self._following is None

    @property
    def horizon(self) -> str:
        """Up to where all rows of this table are at hand."""
        assert self.batch is not None
        text: str = self.batch.column("position")[self.batch.num_rows - 1].as_py()
        return text

    def take(self, upto: str | None) -> pa.RecordBatch | None:
        """The rows up to a position (all at hand when null), which are no longer at hand afterwards."""
        if self.batch is None:
            return None
        count = self.batch.num_rows
        if upto is not None:
            within = pc.less_equal(self.batch.column("position"), upto)
            count = int(pc.sum(within.cast(pa.int64())).as_py() or 0)
        taken, rest = self.batch.slice(0, count), self.batch.slice(count)
        if rest.num_rows:
            self.batch = rest
        else:
            self.batch = self._following
            self._following = next(self._batches, None) if self.batch is not None else None
        return taken if count else None


def _merged(cursors: Sequence[_Cursor]) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Rows of all tables in position order, and the number of the table that each is of."""
    while live := [cursor for cursor in cursors if cursor.batch is not None]:
        # Beyond the nearest horizon a table could still have rows in between.
        open_ends = [cursor.horizon for cursor in live if not cursor.exhausted]
        upto = min(open_ends, default=None)
        parts, origins = [], []
        for cursor in live:
            taken = cursor.take(upto)
            if taken is not None:
                parts.append(taken)
                origins.append(np.full(taken.num_rows, cursor.number))
        if not parts:
            continue
        if len(parts) == 1:
            yield parts[0], origins[0]
            continue
        together = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        order = pc.sort_indices(together.column("position"))
        yield together.take(order), np.concatenate(origins)[order.to_numpy()]


@dataclass
class _Open(Tally):
    """The transaction that may go on in the next batch."""

    commit: str = ""


class _Numbering:
    """Numbers events in their transaction and puts BEGIN and END around them.

    An update that changes the key counts as two, because it becomes a delete and a create. Numbers are made by columns;
    only the counts of an END are put together one transaction at a time.
    """

    def __init__(
        self, connector: str, tables: Sequence[str], times: CommitTimes, capture_time: dt.datetime | None
    ) -> None:
        self._connector = connector
        self._names = tables
        self._times = times
        self._capture_time = capture_time
        self._open: _Open | None = None

    def number(self, batch: pa.RecordBatch, origins: np.ndarray) -> Iterator[pa.RecordBatch]:
        ids = batch.column("transaction").field("id")
        weights = batch.column("transaction").field("total_order").to_numpy(zero_copy_only=False)
        # Rows are in commit order and codes are given in order of appearance, so they grow with the rows.
        encoded = pc.dictionary_encode(ids)
        groups = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        commits: list[str] = encoded.dictionary.to_pylist()
        ended: list[_Open] = []
        going_on = self._open if self._open is not None and self._open.commit == commits[0] else None
        if self._open is not None and going_on is None:
            ended.append(self._open)
        open_transactions = [going_on or _Open(commit=commits[0]), *(_Open(commit=commit) for commit in commits[1:])]

        total, of_table = number_events(groups, origins, weights, open_transactions)
        self._open = open_transactions[-1]
        ended += open_transactions[:-1]
        begun = commits if going_on is None else commits[1:]
        block = pa.StructArray.from_arrays(
            [ids, pa.array(total), pa.array(of_table)], names=["id", "total_order", "data_collection_order"]
        )
        numbered = batch.set_column(batch.schema.get_field_index("transaction"), "transaction", block)
        yield self._woven(numbered.cast(batch.schema), begun, ended)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The END of the last transaction: ranges hold whole commits."""
        if self._open is not None:
            yield self._ends([self._open])
            self._open = None

    def _woven(self, batch: pa.RecordBatch, begun: list[str], ended: list[_Open]) -> pa.RecordBatch:
        if not begun and not ended:
            return batch
        parts = [batch, self._begins(begun), self._ends(ended)]
        together = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        return together.take(pc.sort_indices(together.column("position")))

    def _begins(self, commits: list[str]) -> pa.RecordBatch:
        return self._edges(Operation.BEGIN, commits, Position("", "").text, pa.nulls(len(commits), pa.int64()), {})

    def _ends(self, transactions: list[_Open]) -> pa.RecordBatch:
        totals = pa.array([transaction.events for transaction in transactions], pa.int64())
        collections = {"data_collections": [transaction.collections(self._names) for transaction in transactions]}
        commits = [transaction.commit for transaction in transactions]
        return self._edges(Operation.END, commits, Position("", _END_ORDER).text, totals, collections)

    def _edges(
        self, op: Operation, commits: list[str], place: str, totals: pa.Array, facts: dict[str, list[str]]
    ) -> pa.RecordBatch:
        count = len(commits)
        ids = pa.array(commits, pa.string())
        names = ("connector", "commit_lsn", *facts)
        texts = [
            repeat(self._connector, pa.string(), count),
            ids,
            *(pa.array(fact, pa.string()) for fact in facts.values()),
        ]
        rows = np.arange(count)
        return change_batch(
            count,
            {
                "op": repeat(op.value, pa.string(), count),
                "position": pc.binary_join_element_wise(ids, place, ""),
                "event_time": self._times.of(ids),
                "capture_time": repeat(self._capture_time, pa.timestamp("us", tz="UTC"), count),
                "transaction": pa.StructArray.from_arrays(
                    [ids, totals, pa.nulls(count, pa.int64())],
                    names=["id", "total_order", "data_collection_order"],
                ),
                "source": Images(names, texts).maps(rows, count, rows),
            },
        )
