"""Ad-hoc snapshots beside the stream, without a write to the source.

The planner cuts chunks as for a first snapshot; their bounds stand in the batch's end offset. The reader of a chunk
reads its rows, waits until the capture job has passed the read, and leaves out the rows whose keys were changed after
the batch's end: those changes come in the next batches. What is left stands after everything of the batch's last
commit, so that a row that was read never follows a newer change of its key, and a deleted row never comes back.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import faultpoints
from headrace.changes.texts import key_texts
from headrace.errors import CaptureError, DataLossError, HeadraceError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.capture_wait import CaptureWait
from headrace.sources.change_tables.captured_table import CapturedTable, column_texts, named_texts
from headrace.sources.change_tables.chunks import columns_there, keys
from headrace.sources.change_tables.connection import Connection, MissingObject, PassingRefusal, StatementError
from headrace.sources.change_tables.guards import require_still_retained
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import SchemaHistory
from headrace.sources.change_tables.signal_table import read_signals
from headrace.sources.change_tables.snapshot_read import snapshot_rows
from headrace.sources.health import CaptureState, Health
from headrace.sources.offset import Key, Offset
from headrace.sources.rows import Spool
from headrace.sources.signal_files import take_files
from headrace.sources.signals import Signal, say, say_once, signal_table
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.ends_equal import is_told, with_ends
from headrace.sources.snapshots.requests import (
    IncrementalChunk,
    Pace,
    Request,
    RequestEnds,
    RequestWaits,
    cut_for_request,
    further_requests,
)

_LOG = logging.getLogger("headrace.sources")
_PASSING = re.compile(r"deadlock|lock request time ?out", re.IGNORECASE)
"""Refusals that say nothing about the statement: it is sent again with the next batch."""


class AdHocPlanner:
    """What signals ask for, and the chunks that answer it, for one batch. Runs in the driver.

    Args:
        connection: to the database.
        settings: the source's options.
        health: asks how the capture job is; called only when a chunk could be read.
    """

    def __init__(self, connection: Connection, settings: ChangeTableSettings, health: Callable[[], Health]) -> None:
        self._connection = connection
        self._settings = settings
        self._health = health

    def requested(self, start: Offset, commit: str, histories: Mapping[str, SchemaHistory]) -> AdHoc:
        """The state after the signals of the commits (start, commit] and of the files that came since.

        Args:
            start: the end of the batch before.
            commit: the last commit of the batch.
            histories: how the tables are read that this batch goes on with.
        """
        state = AdHoc.from_json(start.ad_hoc).advanced()
        signals = self._rows(start, commit, histories)
        files, from_files = take_files(self._settings.signal_path, state.files, say)
        signals += from_files
        state = replace(state, files=files)
        tables = [history.newest for history in histories.values()]
        return state.take(signals, tables, say, at=commit, moves=("rewind", "skip"))

    def _rows(self, start: Offset, commit: str, histories: Mapping[str, SchemaHistory]) -> list[Signal]:
        name = self._settings.signal_data_collection
        path = signal_table(name, self._settings.database, histories) if name else None
        if name and path is None:
            database = self._settings.database
            say_once(f"The signal table '{name}' is not among the captured tables of database '{database}'.")
        if path is None or path not in start.known:
            return []
        progress = start.tables.get(path)
        if progress is not None and not progress.done:
            return []
        after = start.commit if progress is None else progress.commit
        return read_signals(self._connection, histories[path].windows(after, commit)) if after < commit else []

    @staticmethod
    def blocking(state: AdHoc, start: Offset, histories: Mapping[str, SchemaHistory]) -> tuple[AdHoc, list[str]]:
        """The state without the blocking snapshots that can begin now, and their tables.

        One that is behind the others waits until it is not.
        """
        lagging = [path for path, at in start.tables.items() if not at.done or at.commit != start.commit]
        ready = [path for path in state.blocking if path not in lagging]
        for path in ready:
            if path not in histories:
                say(f"Table '{path}' is not captured any more; its snapshot is left out.")
        waiting = tuple(path for path in state.blocking if path not in ready)
        return replace(state, blocking=waiting), [path for path in ready if path in histories]

    def ends(self, state: AdHoc, start: Offset, end: Offset, histories: Mapping[str, SchemaHistory]) -> AdHoc:
        """The state with the tables that end with this batch; see `headrace.sources.snapshots.ends_equal`.

        Args:
            state: as no batch has read a chunk of it yet.
            start: the end of the batch before.
            end: the batch's end, for everything else.
            histories: how its tables are read.
        """
        if not state.ending or start.tables or end.tables:
            return state
        return with_ends(
            state,
            reached=start.commit,
            head=lambda: lsn.read(self._connection.value(self._connection.statements.MAX_LSN)),
            captured=histories,
        )

    def more(self, state: AdHoc, end: Offset, histories: Mapping[str, SchemaHistory], budget: int) -> AdHoc:
        """The state with up to `budget` further chunks, tables one after another.

        Args:
            state: as no batch has read a chunk of it yet.
            end: the batch's end, for everything else.
            histories: how its tables are read.
            budget: how many chunks a batch may hold.
        """
        if not state.requests or state.paused or end.initial:
            return state
        stalled = self._stalled()
        if stalled:
            if not state.stalled:
                say(f"Ad-hoc snapshots wait, because no change is captured: {stalled}")
            return replace(state, stalled=True)
        requests = further_requests(
            state.requests, budget, lambda request, most: self._further(request, end, histories, most, state.pace)
        )
        return replace(state, stalled=False).with_requests(requests)

    def _further(
        self, request: Request, end: Offset, histories: Mapping[str, SchemaHistory], budget: int, pace: Pace
    ) -> Request:
        if request.table in end.tables:
            # A table that lags behind has no state at the batch's end that rows could be stamped with.
            raise RequestWaits
        history = histories.get(request.table)
        if history is None:
            raise RequestEnds("it is not captured any more")
        table = cut_for_request(history.newest, request.surrogate)
        condition, statements = request.filter, self._connection.statements
        key, rows = table.chunk_key, pace.rows if request.reread else self._settings.incremental_snapshot_chunk_size

        def bounds(last: Key) -> list[Key]:
            statement = statements.chunk_bounds(table, key, request.lower, last, rows, budget, condition=condition)
            return keys(self._connection, table, *statement)

        def greatest() -> list[Key]:
            return keys(self._connection, table, *statements.greatest_key(table, key, condition=condition))

        try:
            if is_told(self._settings.skipped_operations) and self._settings.fail_on_data_loss:
                # What is lost while a chunk waits for its changes is not known here.
                request = request.begun(end.commit, end.reads)
            return request.further(key, budget, greatest, bounds)
        except CaptureError as error:
            if not self._refused(error):
                raise RequestWaits from error
            raise RequestEnds(error.message) from error

    def _refused(self, error: CaptureError) -> bool:
        """Whether the server refused a statement for good; false when it may go through the next time.

        Raises:
            CaptureError: the error itself, when it is the connection that is broken.
        """
        if not isinstance(error, StatementError):
            return True
        if isinstance(error, PassingRefusal) or _PASSING.search(error.message):
            return False
        try:
            self._connection.value(self._connection.statements.TIME_AND_CLOCK)
        except HeadraceError:
            raise error from None
        return True

    def _stalled(self) -> str:
        """Why a reader would wait in vain for the capture job now; empty when nothing is known against it."""
        health = self._health()
        advanced = health.behind_seconds or 0.0
        late = health.state is CaptureState.LAGGING and advanced > self._settings.capture_timeout_seconds / 2
        return health.sentence if late or health.state is CaptureState.NOT_CAPTURING else ""


def read_incremental(
    connection: Connection,
    table: CapturedTable,
    chunk: IncrementalChunk,
    commit: str,
    settings: ChangeTableSettings,
    capture_time: dt.datetime | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk that nobody changed since a commit, with the table's schema before the first ones.

    A chunk is held, on disk where it is large, until the capture job has passed it. A row of a table with large columns
    stays in when it was only updated, because its update may leave unchanged large values out; the update comes after
    it all the same.

    Args:
        connection: to the database; every statement sees what is committed.
        table: the newest schema that the offset knows.
        chunk: the key range.
        commit: the last commit of the batch.
        settings: the source's options.
        capture_time: when the batch was planned.

    Raises:
        CaptureError: the capture job did not pass the read in time.
        DataLossError: changes since the commit were cleaned while the chunk was read.
    """
    key, row_key = table.cut_by(chunk.key).chunk_key, table.row_key
    present = columns_there(connection, table)
    if not present.issuperset((*key, *row_key)):
        say(f"Table '{table.id.path}' or its key went away while its ad-hoc snapshot was read; the run goes on.")
        return
    sql, parameters = connection.statements.rows_in_range(
        table, key, chunk.lower, chunk.upper, present=present, condition=chunk.filter, ordered=True
    )
    try:
        kept_rows = Spool()
        requests = []
        for batch in connection.batches(sql, parameters, rows=table.batch_rows):
            texts = column_texts(table.schema, table.natives, batch)
            requests.append(_keys(table, row_key, texts))
            kept_rows.add(texts)
        faultpoints.reach("source.incremental.read")
        # Also where nothing was read: rows that left the range have to be in the log before the table ends.
        kept = _unchanged(connection, table, requests, commit, settings) if requests or chunk.filter is None else []
    except MissingObject:
        say(f"Table '{table.id.path}' went away while its ad-hoc snapshot was read; the run goes on.")
        return
    left = (
        [column.filter(pa.array(keep)) for column in texts]
        for texts, keep in zip(kept_rows, kept, strict=True)
        if keep.any()
    )
    rows = snapshot_rows(connection.dialect.connector, table, settings, capture_time)
    yield from rows.of_increment(chunk, commit, left)
    faultpoints.reach("source.incremental.chunk")


def _keys(table: CapturedTable, key: Sequence[str], texts: Sequence[pa.Array]) -> pa.Array:
    names = [column.name for column in table.schema.columns]
    return key_texts([texts[names.index(name)] for name in key])


def _unchanged(
    connection: Connection, table: CapturedTable, chunk: Sequence[pa.Array], commit: str, settings: ChangeTableSettings
) -> list[np.ndarray]:
    """Which rows, by their key texts, were not changed after a commit and before they were read.

    Every text form that a key had in that time stands in the change table, so texts are compared, not collated. Changes
    are looked at batch by batch, so a huge commit costs no memory. What was changed after the read is left out as well:
    it comes with its own change.
    """
    wait = CaptureWait(connection, settings)
    read = wait.moment()
    faultpoints.reach("source.incremental.wait")
    wait.until_passed(table, read)
    newest = connection.value(connection.statements.MAX_LSN)
    kept = [np.ones(len(texts), dtype=bool) for texts in chunk]
    upto = commit if newest is None else lsn.read(newest)
    skipped = settings.skipped_operations
    if upto > commit and "c" not in skipped:
        # A change that gives no row of its own must not take the row that was read with it.
        hidden = "u" in skipped or settings.skip_messages_without_change
        updates = not hidden and not any(native.large for native in table.natives)
        sql = connection.statements.changed_keys(table, table.row_key, updates=updates)
        for batch in connection.batches(sql, (lsn.to_bytes(commit), lsn.to_bytes(upto))):
            changed = key_texts(named_texts(table, table.row_key, batch))
            for texts, keep in zip(chunk, kept, strict=True):
                keep &= ~pc.is_in(texts, value_set=changed).to_numpy(zero_copy_only=False)
        try:
            require_still_retained(connection, table, commit)
        except DataLossError:
            # Where the user goes on without what was lost, rows that were read are the best there is.
            if settings.fail_on_data_loss:
                raise
    return kept
