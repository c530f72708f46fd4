"""Ad-hoc snapshots of sources that read the database's log: what signals ask for, and the chunks that answer it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from headrace.errors import CaptureError
from headrace.sources.offset import Key, Offset
from headrace.sources.signal_files import new_signals, take_files
from headrace.sources.signals import SKIP, Signal, say, say_once, signal_table
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.ends_equal import is_told, say_read_once_more, with_ends
from headrace.sources.snapshots.requests import Request, RequestEnds, RequestWaits, cut_for_request, further_requests
from headrace.sources.stream_options import SignalSettings
from headrace.sources.tables.table_rules import SourceTable

Table = TypeVar("Table", bound=SourceTable[Any])
_Asked = TypeVar("_Asked", bound=SourceTable[Any], contravariant=True)


class KeyRanges(Protocol[_Asked]):
    """Asks a database for keys of tables, as far as a batch goes."""

    def greatest(self, table: _Asked, condition: str | None) -> Sequence[Key]:
        """The last key of the rows that meet a condition; none where no row does.

        Raises:
            RequestWaits: not now, but perhaps with a later batch.
            CaptureError: the server refuses it.
        """

    def bounds(
        self, table: _Asked, lower: Key | None, last: Key, rows: int, chunks: int, condition: str | None
    ) -> Sequence[Key]:
        """The keys at which the next chunks end.

        Args:
            table: it.
            lower: keys after this; None from the beginning.
            last: keys up to and with this.
            rows: how many rows a chunk has.
            chunks: how many keys at the most.
            condition: a predicate of the user's that rows must meet; None for all.

        Raises:
            RequestWaits: not now, but perhaps with a later batch.
            CaptureError: the server refuses it.
        """

    def definition(self, table: _Asked, before: str = "") -> str:
        """A short text that is another one after each change of the table's definition because of which a chunk may be
        left out, even one that was taken back; empty where another part of the source sees to that.

        Args:
            table: it.
            before: what the text was when the read began; columns that were added since leave it as it is.

        Raises:
            CaptureError: the server refuses it.
        """


class AdHocReads(Generic[Table]):
    """What signals ask for, and the chunks that answer it, for one batch. Runs in the driver.

    Args:
        settings: the source's options.
        database: the name of the database in which the tables are.
        tables_of: the tables of an offset by path.
        moves: the kinds of `TableMove` that the planner can do.
    """

    def __init__(
        self,
        settings: SignalSettings,
        database: str,
        tables_of: Callable[[Mapping[str, Any]], Mapping[str, Table]],
        moves: Collection[str] = (),
    ) -> None:
        self._moves = moves
        self._settings = settings
        self._database = database
        self._tables_of = tables_of

    def table(self, offset: Offset) -> Table | None:
        """The signal table as the offset knows it, when its rows are streamed; None where there is none."""
        name = self._settings.signal_data_collection
        if not name:
            return None
        path = signal_table(name, self._database, offset.schemas)
        if path is None:
            say_once(f"The signal table '{name}' is not among the captured tables of database '{self._database}'.")
            return None
        return self._tables_of(offset.schemas)[path]

    def requested(self, state: AdHoc, end: Offset, signals: Sequence[Signal]) -> AdHoc:
        """The state after signals of the batch's commits and the files that came since.

        Args:
            state: before, as no batch has read a chunk of it yet.
            end: the batch's end.
            signals: what stands in the log of the batch.
        """
        files, from_files = take_files(self._settings.signal_path, state.files, say)
        state = replace(state, files=files)
        requests = [*signals, *from_files]
        if not requests:
            return state
        tables = list(self._tables_of(end.schemas).values())
        return state.take(requests, tables, say, at=end.commit, moves=self._moves)

    def skips_by_file(self, state: AdHoc) -> bool:
        """Whether a signal file that was not taken yet asks to leave out changes of a table; only looks."""
        return any(
            signal.type.strip().lower() == SKIP for signal in new_signals(self._settings.signal_path, state.files)
        )

    def captured_blocking(self, state: AdHoc, end: Offset) -> list[Table]:
        """The tables that are to be read as in the first snapshot; says which are not captured any more."""
        tables = self._tables_of(end.schemas)
        for path in state.blocking:
            if path not in tables:
                say(f"Table '{path}' is not captured any more; its snapshot is left out.")
        return [tables[path] for path in state.blocking if path in tables]

    def ends(
        self,
        state: AdHoc,
        start: Offset,
        end: Offset,
        head: Callable[[], str],
        ranges: Callable[[], AbstractContextManager[KeyRanges[Table]]],
        *,
        quiet: bool,
    ) -> AdHoc:
        """The state with the tables that end with this batch; see `headrace.sources.snapshots.ends_equal`.

        Args:
            state: as no batch has read a further chunk yet.
            start: where the last batch ended.
            end: the batch's end.
            head: asks for the commit up to which the log is written.
            ranges: asks the database; not called where there is nothing to ask.
            quiet: whether the batch has no change of a captured table.
        """
        if not state.ending or start.tables or end.tables:
            return state
        tables = self._tables_of(end.schemas)

        def is_altered(request: Request) -> bool:
            with ranges() as asked:
                return self._is_altered(request, tables[request.table], asked)

        return with_ends(
            state, reached=end.commit if quiet else start.commit, head=head, captured=tables, is_altered=is_altered
        )

    def further(
        self,
        state: AdHoc,
        end: Offset,
        budget: int,
        ranges: Callable[[], AbstractContextManager[KeyRanges[Table]]],
    ) -> AdHoc:
        """The state with up to `budget` further chunks, tables one after another. A whole table that was altered since
        its first chunk begins once more.

        Args:
            state: as no batch has read a further chunk yet.
            end: the batch's end.
            budget: how many chunks a batch may hold.
            ranges: asks the database; not called where there is nothing to ask.
        """
        if not state.requests or state.paused or end.tables:
            return state
        tables = self._tables_of(end.schemas)
        with ranges() as asked:

            def further(request: Request, most: int) -> Request:
                table = tables.get(request.table)
                if table is None:
                    raise RequestEnds("it is not captured any more")
                if request.after > end.commit and not request.key:
                    raise RequestWaits
                rows = state.pace.rows if request.reread else self._settings.incremental_snapshot_chunk_size
                return self._further(request, table, rows, most, end, asked)

            state = state.restart(lambda request: self._is_altered(request, tables.get(request.table), asked))
            return state.with_requests(further_requests(state.requests, budget, further))

    @staticmethod
    def _is_altered(request: Request, table: Table | None, asked: KeyRanges[Table]) -> bool:
        if table is None or asked.definition(table, request.definition) == request.definition:
            return False
        say_read_once_more(request.table)
        return True

    def _further(
        self, request: Request, table: Table, rows: int, budget: int, end: Offset, asked: KeyRanges[Table]
    ) -> Request:
        condition = request.filter
        table = cut_for_request(table, request.surrogate)
        try:
            if is_told(self._settings.get("skipped_operations") or ()):
                request = request.begun(end.commit, end.reads, asked.definition(table))
            return request.further(
                table.chunk_key,
                budget,
                lambda: asked.greatest(table, condition),
                lambda last: asked.bounds(table, request.lower, last, rows, budget, condition),
            )
        except CaptureError as error:
            raise RequestEnds(error.message) from error
