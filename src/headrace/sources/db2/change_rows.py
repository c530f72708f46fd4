"""Rows of a change table become change rows, whole Arrow batches at a time.

An update is a D row and the I row that follows it in the same transaction, where both have the same key: a delete of
one row beside an insert of another is not an update. An update that changes the key becomes a delete and a create,
which is what it becomes anyway. Where updates are captured as U rows, the image of the row before has the columns that
were registered with before-image columns; there is none without such columns.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.changes.texts import key_texts
from headrace.errors import CaptureError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import NativeType, column_texts
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.change_tables.unreadable import around_unreadable, error_rows
from headrace.sources.change_tables.windows import counted, differ, no_events, same, sources, weights
from headrace.sources.images import Images
from headrace.sources.rows import change_batch, instants, repeat, table_column
from headrace.sources.stream_options import events_of_key_change
from headrace.sources.table_errors import FAIL
from headrace.sources.tables.masks import NO_MASKS, TableMasks

CONNECTOR = "db2"
_HEADER = 3


class ChangeReader:
    """Turns the batches of one change table's window into change rows.

    Not thread-safe; one per slice. Keeps at most one row between batches, so memory does not grow with a transaction.

    Args:
        schema: the table's schema.
        natives: the declared type per column.
        pairing: the columns by which the two rows of an update are known; empty for a table without a key, where every
            D row that an I row follows is an update.
        instance: the change table, for messages.
        times: commit times of the window.
        before_columns: the columns whose value before an update follows those of the table in each raw row.
        capture_time: when the batch was planned.
        weighted: whether rows say their transaction and, in place of their number in it, for how many events they
            count.
        masks: what is done to values before they are given out.
        skipped: letters of operations that give no rows.
        skip_unchanged: whether an update gives no row when nothing that is given out changed.
        unreadable: what is done with a change that can't be converted.
    """

    def __init__(
        self,
        schema: TableSchema,
        natives: Sequence[NativeType],
        pairing: Sequence[str],
        instance: str,
        times: CommitTimes,
        capture_time: dt.datetime | None,
        *,
        before_columns: Sequence[str] = (),
        weighted: bool = False,
        masks: TableMasks = NO_MASKS,
        skipped: Collection[str] = (),
        skip_unchanged: bool = False,
        unreadable: str = FAIL,
    ) -> None:
        self._unreadable = unreadable
        self._schema = schema
        self._natives = tuple(natives)
        self._instance = instance
        self._times = times
        self._capture_time = capture_time
        self._weighted = weighted
        self._masks = masks
        self._skipped = frozenset(skipped)
        self._skip_unchanged = skip_unchanged
        self._names = [column.name for column in schema.columns]
        self._key = [self._names.index(name) for name in schema.key]
        self._pairing = [self._names.index(name) for name in pairing]
        self._before_columns = [self._names.index(name) for name in before_columns]
        self._pending: pa.RecordBatch | None = None

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Change rows in the order of the log.

        Raises:
            CaptureError: an operation that change tables do not hold.
        """
        for batch in batches:
            if self._pending is not None:
                # A column without values has no type of its own, so the two parts may differ in theirs.
                both = pa.concat_tables(
                    [pa.Table.from_batches([self._pending]), pa.Table.from_batches([batch])],
                    promote_options="permissive",
                )
                batch = both.combine_chunks().to_batches()[0]
                self._pending = None
            if batch.column(2)[batch.num_rows - 1].as_py().strip() == "D":
                # The I row of the same update may be in the next batch.
                self._pending = batch.slice(batch.num_rows - 1)
                batch = batch.slice(0, batch.num_rows - 1)
            yield from self._given_out(batch)
        if self._pending is not None:
            rest, self._pending = self._pending, None
            yield from self._given_out(rest)

    def _given_out(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not rows.num_rows:
            return
        for batch in around_unreadable(
            rows, self._unreadable, convert=self._convert, cuts=self._cuts, refused=self._refused
        ):
            if batch.num_rows:
                yield batch

    def _cuts(self, batch: pa.RecordBatch) -> np.ndarray:
        """Before which rows a batch may be cut: a D row may be the first half of an update that the next one ends."""
        operations = pc.utf8_trim_whitespace(batch.column(2)).to_numpy(zero_copy_only=False).astype("U1")
        alike = (operations[:-1] == "D") & (operations[1:] == "I")
        for index in (0, *(_HEADER + i for i in self._pairing)):
            values = batch.column(index)
            alike &= same(values.slice(0, len(values) - 1), values.slice(1))
        return np.flatnonzero(~alike) + 1

    def _refused(self, batch: pa.RecordBatch, reason: str) -> pa.RecordBatch:
        """The `error` rows of rows that can't be converted."""
        commits, changes = lsn.to_texts(batch.column(0)), lsn.to_texts(batch.column(1))
        columns = {
            "position": pc.binary_join_element_wise(commits, changes, "0", "/"),
            "event_time": self._times.of(commits),
            "capture_time": instants(self._capture_time, batch.num_rows),
            "source": sources(CONNECTOR, change_lsn=changes, commit_lsn=commits),
        }
        if self._weighted:
            columns["transaction"] = no_events(commits)
        return error_rows(self._schema.id, reason, columns)

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        operations = pc.utf8_trim_whitespace(batch.column(2)).to_numpy(zero_copy_only=False).astype("U1")
        if not np.isin(operations, ("I", "U", "D")).all():
            raise CaptureError(
                f"Change table '{self._instance}' holds an operation other than I, U and D.",
                remedy="It was not written by the Capture program; look at who writes to it.",
            )
        texts = column_texts(self._schema, self._natives, batch, _HEADER)
        old = self._pairs(batch, operations, texts)
        updates = np.flatnonzero(operations == "U") if self._before_columns else old[:0]
        absent: np.ndarray | None = None
        if len(updates):
            batch, operations, texts, old, absent = self._with_before_images(batch, operations, texts, old, updates)
        texts = self._masks.apply(texts)
        new = old + 1
        is_old: np.ndarray = np.zeros(len(operations), dtype=bool)
        is_old[old] = True
        events = np.flatnonzero(~is_old)
        count = len(events)
        letters = np.where(operations == "D", "d", np.where(operations == "U", "u", "c"))
        letters[new] = "u"
        letters = letters[events]
        paired: np.ndarray = np.zeros(len(operations), dtype=bool)
        paired[new] = True
        paired = paired[events]

        before_indexes = np.flatnonzero((letters == "d") | paired)
        before_rows = events[before_indexes]
        # The old row of an update is the one before it.
        before_rows = np.where(paired[before_indexes], before_rows - 1, before_rows)
        after_indexes = np.flatnonzero(letters != "d")
        images = Images(self._names, texts)
        taken = pa.array(events)
        commits = lsn.to_texts(batch.column(0).take(taken))
        changes = lsn.to_texts(batch.column(1).take(taken))
        columns = {
            "op": pa.array(letters, pa.string()),
            "table": table_column(self._schema.id, count),
            "before": images.maps(before_rows, count, before_indexes, None if absent is None else absent[before_rows]),
            "after": images.maps(events[after_indexes], count, after_indexes),
            "position": pc.binary_join_element_wise(commits, changes, "0", "/"),
            "event_time": self._times.of(commits),
            "capture_time": instants(self._capture_time, count),
            "source": sources(CONNECTOR, change_lsn=changes, commit_lsn=commits),
            "schema_id": repeat(self._schema.fingerprint, pa.string(), count),
        }
        if self._key:
            keys = [texts[i].take(taken) for i in self._key]
            rows = np.arange(count)
            columns["key"] = Images(self._schema.key, keys).maps(rows, count, rows)
            columns["key_text"] = key_texts(keys)
        if self._weighted:
            indexes = np.flatnonzero(paired)
            keys_of = [(texts[i].take(pa.array(old)), texts[i].take(pa.array(new))) for i in self._key]
            columns["transaction"] = weights(commits, keys_of, indexes, events_of_key_change(self._skipped))
        change_rows = change_batch(count, columns)
        wanted: np.ndarray = ~np.isin(letters, list(self._skipped)) if self._skipped else np.ones(count, dtype=bool)
        if self._skip_unchanged and len(old):
            wanted[paired] &= differ(texts, absent, old, new)
        change_rows = change_rows if wanted.all() else change_rows.filter(pa.array(wanted))
        return counted(change_rows) if self._weighted else change_rows

    def _with_before_images(
        self,
        batch: pa.RecordBatch,
        operations: np.ndarray,
        texts: list[pa.Array],
        old: np.ndarray,
        updates: np.ndarray,
    ) -> tuple[pa.RecordBatch, np.ndarray, list[pa.Array], np.ndarray, np.ndarray | None]:
        """The same rows, each U row with the row before it as one of its own, as if it had been captured so.

        Returns:
            The raw rows, their operations, their texts, which of them are first halves of updates, and the cells of
            those that no column holds; null where there are none.
        """
        names = [self._schema.columns[i] for i in self._before_columns]
        schema = TableSchema(self._schema.id, tuple(names), ())
        natives = [self._natives[i] for i in self._before_columns]
        befores = column_texts(schema, natives, batch, _HEADER + len(self._names))
        count = batch.num_rows
        times = np.ones(count, dtype=np.int64)
        times[updates] = 2
        rows = np.repeat(np.arange(count), times)
        last = np.cumsum(times) - 1
        added = last[updates] - 1
        picks = rows.copy()
        picks[added] += count
        # A column without one keeps its position, and is marked absent.
        halves = dict(zip(self._before_columns, befores, strict=True))
        widened = [pa.concat_arrays([text, halves.get(i, text)]).take(pa.array(picks)) for i, text in enumerate(texts)]
        absent: np.ndarray | None = None
        if len(halves) < len(texts):
            absent = np.zeros((len(rows), len(texts)), dtype=bool)
            absent[np.ix_(added, [i for i in range(len(texts)) if i not in halves])] = True
        # Only positions are looked at from here on.
        batch = pa.RecordBatch.from_arrays(batch.columns[:2], names=["commit", "change"]).take(pa.array(rows))
        return batch, operations[rows], widened, np.sort(np.concatenate([last[old], added])), absent

    def _pairs(self, batch: pa.RecordBatch, operations: np.ndarray, texts: list[pa.Array]) -> np.ndarray:
        """The D rows that are the first half of an update: an I row of the same commit and key follows."""
        deletes = np.flatnonzero((operations[:-1] == "D") & (operations[1:] == "I"))
        if not len(deletes):
            return deletes
        here, following = pa.array(deletes), pa.array(deletes + 1)
        alike = same(batch.column(0).take(here), batch.column(0).take(following))
        for i in self._pairing:
            alike &= same(texts[i].take(here), texts[i].take(following))
        paired: np.ndarray = deletes[alike]
        return paired
