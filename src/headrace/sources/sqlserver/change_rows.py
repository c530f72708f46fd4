"""Rows of a change table become change rows, whole Arrow batches at a time.

One row of operation 1 or 2 is one event. A row 3 and the row 4 of the same command are one update. Columns that a
change leaves out because they are large and did not change are absent, which the update mask distinguishes from NULL.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.changes.images import constant
from headrace.changes.texts import key_texts
from headrace.errors import CaptureError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import NativeType, column_texts
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.change_tables.unreadable import around_unreadable, error_rows
from headrace.sources.change_tables.windows import counted, differ, no_events, sources, weights
from headrace.sources.images import Images
from headrace.sources.rows import change_batch, instants, repeat, table_column
from headrace.sources.sqlserver.types import TEXT_NAMES
from headrace.sources.table_errors import FAIL
from headrace.sources.tables.masks import NO_MASKS, TableMasks

CONNECTOR = "sqlserver"
_HEADER = 5
_DELETE, _INSERT, _OLD, _NEW = 1, 2, 3, 4
_OPS = constant([None, "d", "c", None, "u"])


class ChangeReader:
    """Turns the batches of one change table's window into change rows.

    Not thread-safe; one per slice. Keeps only the last row's position between batches, so memory does not grow with a
    transaction.

    Args:
        schema: the table's schema.
        natives: the declared type per column.
        ordinals: each column's ordinal in the update mask.
        instance: the capture instance, for messages.
        times: commit times of the window.
        capture_time: when the batch was planned.
        by_command: whether rows come in the order of commands; else of sequence values and operations.
        weighted: whether rows say their transaction and, in place of their number in it, for how many events they
            count.
        masks: what is done to values before they are given out.
        skip_unchanged: whether an update gives no row when nothing that is given out changed.
        key_change_events: for how many events an update counts that changes the key.
        unreadable: what is done with a change that can't be converted.
    """

    def __init__(
        self,
        schema: TableSchema,
        natives: Sequence[NativeType],
        ordinals: Sequence[int],
        instance: str,
        times: CommitTimes,
        capture_time: dt.datetime | None,
        *,
        by_command: bool = True,
        weighted: bool = False,
        masks: TableMasks = NO_MASKS,
        skip_unchanged: bool = False,
        key_change_events: int = 2,
        unreadable: str = FAIL,
    ) -> None:
        self._unreadable = unreadable
        self._key_change_events = key_change_events
        self._by_command = by_command
        self._weighted = weighted
        self._masks = masks
        self._skip_unchanged = skip_unchanged
        self._schema = schema
        self._natives = tuple(natives)
        self._ordinals = np.array(ordinals, dtype=np.int64)
        self._instance = instance
        self._times = times
        self._capture_time = capture_time
        self._names = [column.name for column in schema.columns]
        self._large = np.array([native.large for native in natives], dtype=bool)
        self._text = np.array([native.name in TEXT_NAMES for native in natives], dtype=bool)
        self._key = [self._names.index(name) for name in schema.key]
        self._pending: pa.RecordBatch | None = None
        self._run: tuple[bytes, int] = (b"", 0)

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Change rows in the server's order.

        Raises:
            CaptureError: an old image without its new one, or an operation that change tables do not hold.
        """
        for batch in batches:
            rows = self._joined(batch)
            if rows is not None and rows.num_rows:
                yield from self._given_out(rows)
        if self._pending is not None:
            rest, self._pending = self._pending, None
            yield from self._given_out(rest)

    def _given_out(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for batch in around_unreadable(
            rows, self._unreadable, convert=self._convert, cuts=self._cuts, refused=self._refused
        ):
            if batch.num_rows:
                yield batch

    def _cuts(self, batch: pa.RecordBatch) -> np.ndarray:
        operations = batch.column(2).to_numpy(zero_copy_only=False)
        alone = np.isin(operations, (_DELETE, _INSERT))
        return np.flatnonzero(~self._same_command(batch) | (alone[:-1] & alone[1:])) + 1

    def _refused(self, batch: pa.RecordBatch, reason: str) -> pa.RecordBatch:
        """The `error` rows of events that can't be converted."""
        operations = batch.column(2).to_numpy(zero_copy_only=False).astype(np.int64)
        events = np.flatnonzero(operations != _OLD)
        serials = self._serials(batch)[events]
        commits = lsn.to_texts(batch.column(0).take(pa.array(events)))
        changes = lsn.to_texts(batch.column(1).take(pa.array(events)))
        columns = {
            "position": self._positions(batch, events, commits, changes, operations[events], serials),
            "event_time": self._times.of(commits),
            "capture_time": instants(self._capture_time, len(events)),
            "source": sources(CONNECTOR, change_lsn=changes, commit_lsn=commits),
        }
        if self._weighted:
            columns["transaction"] = no_events(commits)
        return error_rows(self._schema.id, reason, columns)

    def _joined(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The rows at hand, but for a last command that may go on in the next batch."""
        if self._pending is not None:
            batch = pa.Table.from_batches([self._pending, batch]).combine_chunks().to_batches()[0]
            self._pending = None
        operations = batch.column(2).to_numpy(zero_copy_only=False)
        if operations[-1] in (_DELETE, _INSERT):
            return batch
        # Rows 3 and 4 of one command must be seen together: hold the last command back.
        same = self._same_command(batch)
        cut = len(operations) - 1
        while cut > 0 and same[cut - 1]:
            cut -= 1
        self._pending = batch.slice(cut)
        return batch.slice(0, cut) if cut else None

    @staticmethod
    def _same_command(batch: pa.RecordBatch) -> np.ndarray:
        """For each row but the last, whether the next one belongs to the same command of the same commit."""
        same: np.ndarray = np.ones(batch.num_rows - 1, dtype=bool)
        for number in (0, 1, 4):
            column = batch.column(number)
            equal = pc.equal(column.slice(0, len(column) - 1), column.slice(1)).fill_null(True)
            same &= equal.to_numpy(zero_copy_only=False)
        return same

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        operations = batch.column(2).to_numpy(zero_copy_only=False).astype(np.int64)
        old, new = np.flatnonzero(operations == _OLD), np.flatnonzero(operations == _NEW)
        self._check(batch, operations, old, new)
        events = np.flatnonzero(operations != _OLD)
        count = len(events)
        texts = self._masks.apply(column_texts(self._schema, self._natives, batch, _HEADER))
        # Behind what may fail, because it counts on from the rows before.
        serials = self._serials(batch)[events]
        images = Images(self._names, texts)
        absent = self._absent(batch, operations)
        event_operations = operations[events]
        is_update = event_operations == _NEW
        before_indexes = np.flatnonzero((event_operations == _DELETE) | is_update)
        before_rows = events[before_indexes]
        # The i-th new image pairs with the i-th old one, because commands are contiguous and hold as many of each.
        before_rows[is_update[before_indexes]] = old
        after_indexes = np.flatnonzero(event_operations != _DELETE)
        after_rows = events[after_indexes]

        commits = lsn.to_texts(batch.column(0).take(pa.array(events)))
        changes = lsn.to_texts(batch.column(1).take(pa.array(events)))
        columns = {
            "op": _OPS.take(pa.array(event_operations)),
            "table": table_column(self._schema.id, count),
            "before": images.maps(before_rows, count, before_indexes, None if absent is None else absent[before_rows]),
            "after": images.maps(after_rows, count, after_indexes, None if absent is None else absent[after_rows]),
            "changed": self._changed(batch, events, is_update),
            "position": self._positions(batch, events, commits, changes, event_operations, serials),
            "event_time": self._times.of(commits),
            "capture_time": instants(self._capture_time, count),
            "source": sources(
                CONNECTOR,
                change_lsn=changes,
                commit_lsn=commits,
                event_serial_no=pa.array(serials).cast(pa.string()),
            ),
            "schema_id": repeat(self._schema.fingerprint, pa.string(), count),
        }
        if self._key:
            keys = [texts[i].take(pa.array(events)) for i in self._key]
            columns["key"] = Images(self._schema.key, keys).maps(np.arange(count), count, np.arange(count))
            columns["key_text"] = key_texts(keys)
        if self._weighted:
            columns["transaction"] = self._weights(texts, commits, is_update, before_rows, events, before_indexes)
        rows = change_batch(count, columns)
        if self._skip_unchanged and len(new):
            wanted = np.ones(count, dtype=bool)
            wanted[is_update] = differ(texts, absent, old, new)
            rows = rows if wanted.all() else rows.filter(pa.array(wanted))
        return counted(rows) if self._weighted else rows

    def _weights(
        self,
        texts: list[pa.Array],
        commits: pa.Array,
        is_update: np.ndarray,
        before_rows: np.ndarray,
        events: np.ndarray,
        before_indexes: np.ndarray,
    ) -> pa.Array:
        indexes = before_indexes[is_update[before_indexes]]
        old = pa.array(before_rows[is_update[before_indexes]])
        new = pa.array(events[indexes])
        keys = [(texts[i].take(old), texts[i].take(new)) for i in self._key]
        return weights(commits, keys, indexes, self._key_change_events)

    def _check(self, batch: pa.RecordBatch, operations: np.ndarray, old: np.ndarray, new: np.ndarray) -> None:
        if not np.isin(operations, (_DELETE, _INSERT, _OLD, _NEW)).all():
            raise CaptureError(
                f"Change table of capture instance '{self._instance}' holds an operation other than 1 to 4.",
                remedy="It was not written by SQL Server's capture job; look at who writes to it.",
            )
        paired = len(old) == len(new)
        if paired and len(old):
            for number in (0, 1, 4):
                column = batch.column(number)
                equal = pc.equal(column.take(pa.array(old)), column.take(pa.array(new))).fill_null(True)
                paired = paired and bool(pc.all(equal).as_py())
        if not paired:
            raise CaptureError(
                f"Change table of capture instance '{self._instance}' holds half of an update "
                "(operation 3 without 4, or 4 without 3).",
                remedy="Rows were removed by hand or inside a transaction; take a new snapshot of the table.",
            )

    def _serials(self, batch: pa.RecordBatch) -> np.ndarray:
        """event_serial_no: how many raw rows of one (commit, change) came so far, this one included."""
        count = batch.num_rows
        starts = np.ones(count, dtype=bool)
        if count > 1:
            same = np.ones(count - 1, dtype=bool)
            for number in (0, 1):
                column = batch.column(number)
                same &= pc.equal(column.slice(0, count - 1), column.slice(1)).to_numpy(zero_copy_only=False)
            starts[1:] = ~same
        first = batch.column(0)[0].as_py() + batch.column(1)[0].as_py()
        carried = self._run[1] if first == self._run[0] else 0
        numbers = np.arange(count)
        run_start = np.maximum.accumulate(np.where(starts, numbers, 0))
        serials: np.ndarray = numbers - run_start + 1
        serials[run_start == 0] += carried
        last = batch.column(0)[count - 1].as_py() + batch.column(1)[count - 1].as_py()
        self._run = (last, int(serials[-1]))
        return serials

    def _absent(self, batch: pa.RecordBatch, operations: np.ndarray) -> np.ndarray | None:
        """True where a cell was left out: a large column whose mask bit is 0, and old text, ntext and image values."""
        large = np.flatnonzero(self._large)
        if not len(large):
            return None
        mask = self._mask(batch)
        absent = np.zeros((batch.num_rows, len(self._names)), dtype=bool)
        is_update = (operations == _OLD) | (operations == _NEW)
        is_old = (operations == _OLD) | (operations == _DELETE)
        for i in large:
            null = batch.column(_HEADER + int(i)).is_null().to_numpy(zero_copy_only=False)
            absent[:, i] = null & is_update & ~mask[:, i]
            if self._text[i]:
                absent[:, i] |= null & is_old
        return absent if absent.any() else None

    def _mask(self, batch: pa.RecordBatch) -> np.ndarray:
        """The update mask as one boolean per column of the table; ordinals 1 to 8 live in the last byte."""
        masks = batch.column(3).cast(pa.binary())
        encoded = pc.dictionary_encode(masks)
        bits = np.zeros((max(len(encoded.dictionary), 1), len(self._names)), dtype=bool)
        for row, value in enumerate(encoded.dictionary.to_pylist()):
            number = int.from_bytes(value or b"", "big")
            bits[row] = [(number >> (int(ordinal) - 1)) & 1 for ordinal in self._ordinals]
        indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        picked: np.ndarray = bits[indices]
        return picked

    def _changed(self, batch: pa.RecordBatch, events: np.ndarray, is_update: np.ndarray) -> pa.Array:
        """The columns that an update's mask names; null for other operations."""
        kind = pa.list_(pa.string())
        if not is_update.any():
            return pa.nulls(len(events), kind)
        encoded = pc.dictionary_encode(batch.column(3).cast(pa.binary()))
        words = []
        for value in encoded.dictionary.to_pylist():
            number = int.from_bytes(value or b"", "big")
            words.append([n for n, o in zip(self._names, self._ordinals, strict=True) if (number >> (int(o) - 1)) & 1])
        indices = encoded.indices.take(pa.array(events))
        return pa.array(words, kind).take(pc.if_else(pa.array(is_update), indices, pa.scalar(None, indices.type)))

    def _positions(
        self,
        batch: pa.RecordBatch,
        events: np.ndarray,
        commits: pa.Array,
        changes: pa.Array,
        operations: np.ndarray,
        serials: np.ndarray,
    ) -> pa.Array:
        """commit / command:change / operation, the server's own order of a transaction's rows.

        Without commands commit / change / operation:number, because several rows may share change and operation.
        """
        if not self._by_command:
            last = pc.binary_join_element_wise(pa.array(operations).cast(pa.string()), lsn.words(serials), ":")
            return pc.binary_join_element_wise(commits, changes, last, "/")
        commands = batch.column(4).take(pa.array(events)).fill_null(0).to_numpy(zero_copy_only=False)
        order = pc.binary_join_element_wise(lsn.words(commands), changes, ":")
        return pc.binary_join_element_wise(commits, order, pa.array(operations).cast(pa.string()), "/")
