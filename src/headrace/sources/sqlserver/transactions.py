"""Changes of many tables in commit order, numbered inside their transactions, with BEGIN and END around each.

One task holds a range of whole commits. Each table's rows come in their own order from the server; they are merged here
by position, a batch of each table at a time, so that memory depends on the number of tables that changed and not on the
size of a transaction (spec/sqlserver.md section 7).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import faultpoints
from headrace.changes import Operation, Position
from headrace.options import Options
from headrace.sources.images import constant_map
from headrace.sources.rows import change_batch, repeat
from headrace.sources.sqlserver.change_rows import CONNECTOR, CommitTimes
from headrace.sources.sqlserver.connection import ARROW_ROWS, Connection, MissingObject
from headrace.sources.sqlserver.notices import lost, switched_off
from headrace.sources.sqlserver.structure import Window
from headrace.sources.sqlserver.windows import change_reader, changes, commit_times

_END_ORDER = "e"
"""Order of END in its commit: after the hex digits of every change, before whatever is said of the commit."""
_LEAST_ROWS = 1024


def read_transactions(
    connect: Callable[[], Connection],
    windows: Sequence[Window],
    settings: Options,
    zone: str,
    capture_time: dt.datetime | None,
) -> Iterator[pa.RecordBatch]:
    """The changes of a range of whole commits over several tables.

    A table whose change table went away has a row that says so, and none of its changes or some of them.

    Raises:
        DataLossError: changes were cleaned while they were read, and the options do not say to go on without them.
    """
    low, high = min(window.after for window in windows), max(window.upto for window in windows)
    rows = max(_LEAST_ROWS, ARROW_ROWS // len(windows))
    with connect() as first:
        times = commit_times(first, low, high, zone, settings)
    gone: list[Window] = []
    with ExitStack() as cleanup:
        cursors = []
        free: list[Connection] = []
        for number, window in enumerate(windows):
            # A cursor that is still open needs a connection of its own; most tables fit into one batch and need none.
            connection = free.pop() if free else cleanup.enter_context(connect())
            reader = change_reader(window.table, times, capture_time, settings, weighted=True)
            raw = changes(connection, window, settings, rows=rows)
            cursor = _Cursor(number, _there(reader.read(raw), window, gone))
            if cursor.exhausted:
                free.append(connection)
            cursors.append(cursor)
        numbering = _Numbering([w.table.id.full_path for w in windows], times, capture_time)
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
        yield switched_off(window, capture_time)


def _there(rows: Iterator[pa.RecordBatch], window: Window, gone: list[Window]) -> Iterator[pa.RecordBatch]:
    """The rows of a change table as long as it is there."""
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
class _Open:
    """The transaction that may go on in the next batch."""

    commit: str
    events: int = 0
    by_table: dict[int, int] = field(default_factory=dict)


class _Numbering:
    """Numbers events in their transaction and puts BEGIN and END around them.

    An update that changes the key counts as two, because it becomes a delete and a create.
    """

    def __init__(self, tables: Sequence[str], times: CommitTimes, capture_time: dt.datetime | None) -> None:
        self._tables = tables
        self._times = times
        self._capture_time = capture_time
        self._open: _Open | None = None

    def number(self, batch: pa.RecordBatch, origins: np.ndarray) -> Iterator[pa.RecordBatch]:
        """A batch with its numbers, and the edges of transactions in their places."""
        commits = batch.column("transaction").field("id")
        weights = batch.column("transaction").field("total_order").to_numpy(zero_copy_only=False)
        encoded = pc.dictionary_encode(commits)
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        names = encoded.dictionary.to_pylist()
        # Rows are in commit order, so codes of the dictionary grow with the rows.
        starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
        ends = np.r_[starts[1:], len(codes)]
        edges: list[tuple[str, _Open | None]] = []
        total, own = np.zeros(len(codes), np.int64), np.zeros(len(codes), np.int64)
        for low, high in zip(starts, ends, strict=True):
            commit = names[codes[low]]
            if self._open is None or self._open.commit != commit:
                if self._open is not None:
                    edges.append((self._open.commit, self._open))
                self._open = _Open(commit)
                edges.append((commit, None))
            self._count(self._open, weights[low:high], origins[low:high], total[low:high], own[low:high])
        block = pa.StructArray.from_arrays(
            [commits, pa.array(total), pa.array(own)], names=["id", "total_order", "data_collection_order"]
        )
        numbered = batch.set_column(batch.schema.get_field_index("transaction"), "transaction", block)
        yield self._woven(numbered.cast(batch.schema), edges)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The END of the last transaction: ranges hold whole commits."""
        if self._open is not None:
            yield self._edges([(self._open.commit, self._open)])
            self._open = None

    @staticmethod
    def _count(
        transaction: _Open, weights: np.ndarray, origins: np.ndarray, total: np.ndarray, own: np.ndarray
    ) -> None:
        """Number the events of one transaction; an event's number is that of its first message."""
        total[:] = transaction.events + np.cumsum(weights) - weights + 1
        transaction.events += int(weights.sum())
        # In order of first appearance, as the list of collections has it.
        for table in dict.fromkeys(origins.tolist()):
            mine = origins == table
            before = transaction.by_table.get(table, 0)
            own[mine] = before + np.cumsum(weights[mine]) - weights[mine] + 1
            transaction.by_table[table] = before + int(weights[mine].sum())

    def _woven(self, batch: pa.RecordBatch, edges: list[tuple[str, _Open | None]]) -> pa.RecordBatch:
        if not edges:
            return batch
        together = pa.Table.from_batches([batch, self._edges(edges)]).combine_chunks().to_batches()[0]
        return together.take(pc.sort_indices(together.column("position")))

    def _edges(self, edges: list[tuple[str, _Open | None]]) -> pa.RecordBatch:
        """BEGIN (without an open transaction) and END rows."""
        count = len(edges)
        commits = pa.array([commit for commit, _ in edges], pa.string())
        totals = pa.array([None if opened is None else opened.events for _, opened in edges], pa.int64())
        positions = [Position(commit, "" if opened is None else _END_ORDER).text for commit, opened in edges]
        sources = [
            [("connector", CONNECTOR), ("commit_lsn", commit)]
            + ([] if opened is None else [("data_collections", self._collections(opened))])
            for commit, opened in edges
        ]
        return change_batch(
            count,
            {
                "op": pa.array([(Operation.BEGIN if o is None else Operation.END).value for _, o in edges]),
                "position": pa.array(positions, pa.string()),
                "event_time": self._times.of(commits),
                "capture_time": repeat(self._capture_time, pa.timestamp("us", tz="UTC"), count),
                "transaction": pa.StructArray.from_arrays(
                    [commits, totals, pa.nulls(count, pa.int64())],
                    names=["id", "total_order", "data_collection_order"],
                ),
                "source": pa.array(sources, constant_map({"": ""}, 0).type),
            },
        )

    def _collections(self, transaction: _Open) -> str:
        counts = [
            {"data_collection": self._tables[table], "event_count": count}
            for table, count in transaction.by_table.items()
        ]
        return json.dumps(counts, separators=(",", ":"), ensure_ascii=False)
