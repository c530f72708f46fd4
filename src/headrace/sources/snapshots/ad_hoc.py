"""Ad-hoc snapshots: which tables were requested, how far each is read, and what signals change in that. No database.

The state stands in the offset, so that a restart goes on at the chunk where the run stopped, and a replay reads the
same key ranges. Tables are read one after another, in the order of the requests.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from headrace.changes import TableId
from headrace.errors import FormatError, OptionError
from headrace.registry import did_you_mean
from headrace.sources.offset import Offset, all_known, time_text
from headrace.sources.signal_files import TakenFiles
from headrace.sources.signals import (
    ExecuteSnapshot,
    LogMessage,
    MoveTables,
    PauseSnapshot,
    ResumeSnapshot,
    SchemaChanges,
    Signal,
    StopSnapshot,
    chosen,
    names,
    parse_signal,
)
from headrace.sources.snapshots.requests import IncrementalChunk, Pace, Request, RequestEnds, cut_for_request
from headrace.sources.table_versions import TableMove
from headrace.sources.tables.table_rules import SourceTable

_PARTS = frozenset(
    ["requests", "blocking", "paused", "stalled", "file", "files", "numbers", "running", "unequal", "pace", "ending"]
) | {"added"}


def requested_tables(signal: Signal, tables: Iterable[SourceTable[Any]]) -> list[tuple[TableId, str]]:
    """The tables of which a signal wants only some rows, each with its filter.

    Args:
        signal: as it will be sent.
        tables: what is captured, in all databases.

    Raises:
        OptionError: it names a table that is not captured, or one that can't be read as it asks.
        FormatError: it can't be read.
    """
    meaning = parse_signal(signal)
    if not isinstance(meaning, ExecuteSnapshot | StopSnapshot | MoveTables):
        return []
    known = {table.id: table for table in tables}
    meant: dict[TableId, None] = {}
    for pattern in meaning.collections or ():
        chosen_tables = chosen(pattern, known)
        if not chosen_tables:
            raise OptionError(
                f"No captured table matches '{pattern}'.", remedy=did_you_mean(pattern, [id.path for id in known])
            )
        meant |= dict.fromkeys(chosen_tables)
    if not isinstance(meaning, ExecuteSnapshot):
        return []
    for id in meant if meaning.kind == "incremental" else ():
        try:
            cut_for_request(known[id], meaning.surrogate_key)
        except RequestEnds as reason:
            raise OptionError(
                f"Table '{id.path}' can't be read beside the stream: {reason}.",
                remedy="Name another column, or ask for a blocking snapshot of it: --type blocking.",
            ) from None
    filters = [(id, meaning.filter_of(id)) for id in meant]
    return [(id, filter) for id, filter in filters if filter is not None]


@dataclass(frozen=True)
class AddedColumn:
    """A column that was added with one value for all rows from before; see `headrace.sources.snapshots.ends_equal`.

    Args:
        table: `schema.name`.
        column: its name.
        value: the canonical text; None for NULL.
        since: the commit after which it was added.
        upto: the commit up to which it was; empty where it was before the end of the batch that found it.
    """

    table: str
    column: str
    value: str | None
    since: str
    upto: str = ""

    @property
    def before(self) -> str:
        """A position that is later than all of the commit, and earlier than what follows."""
        # The sign after the one that ends a commit.
        return f"{self.since}0"


@dataclass(frozen=True)
class AdHoc:
    """All ad-hoc snapshots of one database. Immutable.

    Args:
        requests: tables to be read, the first one being read now.
        blocking: tables to be read as in the first snapshot, not begun yet.
        paused: no further chunk is planned.
        stalled: no further chunk is planned because the capture job does not move.
        files: the signal files that were taken.
        numbers: how many requests there have been.
        moves: tables whose changes are to go on elsewhere; the planner that took the signals sees to that in the same
            batch, so that they are not kept.
        unequal: the tables whose rows a change of structure may have changed, until they were read again as a whole;
            each with the commit up to which all is right, and the time of that (ISO 8601), if known. Both are empty
            until the batch is planned that says so.
        pace: how large the chunks are of tables that changes of structure let be read again.
        ending: whole tables of which the last chunk was read, and whose rows that were not found are to go.
        added: the columns whose one value in older rows the batch reports.
    """

    requests: tuple[Request, ...] = ()
    blocking: tuple[str, ...] = ()
    paused: bool = False
    stalled: bool = False
    files: TakenFiles = TakenFiles()  # noqa: RUF009
    numbers: int = 0
    moves: tuple[TableMove, ...] = ()
    unequal: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    pace: Pace = Pace()  # noqa: RUF009
    ending: tuple[Request, ...] = ()
    added: tuple[AddedColumn, ...] = ()

    @property
    def running(self) -> bool:
        """Whether there is something left to do that nothing holds up."""
        left = any(not request.done for request in self.requests)
        ends = any(request.done and request.since for request in self.requests)
        ends = ends or any(not request.announced for request in self.ending)
        return bool(self.blocking) or ends or (left and not self.paused and not self.stalled)

    def advanced(self) -> AdHoc:
        """The same position, seen from a batch that holds no chunk: finished tables are forgotten."""
        read = (request.advanced() for request in self.requests if request.done and request.since)
        ending = (*(request for request in self.ending if not request.announced), *read)
        left = tuple(request.advanced() for request in self.requests if not request.done)
        return replace(self, ending=ending).with_requests(left)

    @property
    def waits_for(self) -> str:
        """The commit up to which the stream has to be, so that a table that was read ends, or that one is begun; empty
        where none waits.
        """
        ends = (request.upto for request in self.ending if not request.announced)
        return max((*ends, *(request.after for request in self.requests if not request.key)), default="")

    @property
    def announced(self) -> tuple[Request, ...]:
        """The tables that end with the batch that ends here: their rows that are older than the read go."""
        return tuple(request for request in self.ending if request.announced)

    @property
    def begun(self) -> tuple[Request, ...]:
        """The whole tables of which chunks were read and whose rows that were not found have not gone yet."""
        return tuple(one for one in (*self.ending, *self.requests) if one.since and not one.announced)

    def restart(self, wanted: Callable[[Request], bool] = lambda _: True) -> AdHoc:
        """With reads of whole tables that begin once more, because what they have read does not tell which rows are
        not there.

        Args:
            wanted: which of those that were begun.
        """
        state = replace(self, requests=(), ending=())
        for request in (*self.ending, *self.requests):
            if request in self.begun and wanted(request):
                if not any(one.waits_like(request) for one in self.requests):
                    fresh = request.restart(state.numbers)
                    state = replace(state, requests=(*state.requests, fresh), numbers=state.numbers + 1)
            elif request in self.requests:
                state = replace(state, requests=(*state.requests, request))
            else:
                state = replace(state, ending=(*state.ending, request))
        return state

    def cut_again(self, tables: Mapping[str, SourceTable[Any]]) -> AdHoc:
        """With tables that begin again because they have another key now, or none.

        Args:
            tables: the captured ones, by path.
        """
        state = self
        for request in self.requests:
            table = tables.get(request.table)
            if table is not None and request.reread and request.key not in ((), table.chunk_key):
                state = state._restart(request, keyed=bool(table.chunk_key))
        return state

    def _restart(self, request: Request, *, keyed: bool) -> AdHoc:
        if not keyed:
            left = self.with_requests(tuple(one for one in self.requests if one is not request))
            return left.reading(request.table, keyed=False)
        again = request.restart(self.numbers)
        others = tuple(again if one is request else one for one in self.requests)
        return replace(self, requests=others, numbers=self.numbers + 1)

    def reads_again(self, table: str) -> bool:
        """Whether a table is to be read again as a whole."""
        whole = (request for request in self.requests if request.filter is None and not request.done)
        return table in self.blocking or table in {request.table for request in (*whole, *self.begun)}

    def with_values(self, table: str, values: Mapping[str, str | None], *, since: str, upto: str) -> AdHoc:
        """Add columns whose one value in older rows the batch reports. See `AddedColumn`."""
        columns = (AddedColumn(table, column, value, since, upto) for column, value in values.items())
        return replace(self, added=tuple(dict.fromkeys((*self.added, *columns))))

    def is_read(self, table: str) -> bool:
        """Whether rows of a table are read beside the stream, or are going to be, or its rows are not known."""
        asked = {request.table for request in (*self.requests, *self.ending)}
        return table in asked or table in self.blocking or table in self.unequal

    def without_added(self, columns: Mapping[str, Collection[str]]) -> tuple[AdHoc, list[str]]:
        """Leave out the values of columns that tables no longer have under their names; the rest, and those tables.

        Args:
            columns: the names of columns by table.
        """
        gone = [one for one in self.added if one.column not in columns.get(one.table, ())]
        left = tuple(one for one in self.added if one not in gone)
        return replace(self, added=left), list(dict.fromkeys(one.table for one in gone))

    def after_added(self, commit: str) -> AdHoc:
        """Leave out the values that no batch from a commit on reports."""
        return replace(self, added=tuple(one for one in self.added if one.since >= commit or one.upto > commit))

    def at_hand(self, budget: int) -> list[Request]:
        """The requests that a plan asks for at the most that may hold so many chunks."""
        return [request for request in self.requests if not request.done][:budget]

    def paced(self, before: AdHoc, planned: dt.datetime | None, now: dt.datetime, most: int) -> AdHoc:
        """With chunks of another size, as the last batch was quick or slow.

        Args:
            before: as the last batch had it.
            planned: when that was planned, by this process.
            now: when the next one is.
            most: how many rows a chunk may have; 0 where the options give no size.
        """
        read = any(request.reread and request.bounds for request in before.requests)
        if planned is None or not read or not self.requests:
            return self
        return replace(self, pace=self.pace.after((now - planned).total_seconds(), most))

    def begin_blocking(self, captured: Collection[str]) -> tuple[list[str], tuple[str, ...]]:
        """The tables that are read next as in the first snapshot, and those that wait for the batches after.

        The stream waits while such tables are read, so of those that were altered only one is at a time.
        """
        captured_paths = [path for path in self.blocking if path in captured]
        waiting = [path for path in captured_paths if path in self.unequal][1:]
        return [path for path in captured_paths if path not in waiting], tuple(waiting)

    def with_requests(self, requests: tuple[Request, ...]) -> AdHoc:
        """With other requests; where none is left there is nothing to hold up either."""
        left = bool(requests)
        pace = self.pace if left else Pace()
        return replace(self, requests=requests, paused=self.paused and left, stalled=self.stalled and left, pace=pace)

    def chunks(self, read: int = 0) -> list[IncrementalChunk]:
        """The chunks of the batch that ends here, in order, after as many reads of tables."""
        return [chunk for request in self.requests for chunk in request.chunks(read)]

    def take(
        self,
        signals: Iterable[Signal],
        tables: Sequence[SourceTable[Any]],
        say: Callable[[str], None],
        *,
        at: str = "",
        moves: Collection[str] = (),
    ) -> AdHoc:
        """The state after signals, in their order. One that can't be followed is logged and changes nothing.

        Args:
            signals: as they were sent.
            tables: what is captured.
            say: is given one sentence for each thing that the user should know.
            at: the commit that the batch reaches; stands for `{}` in a message to be logged.
            moves: the kinds of `TableMove` that the source can do.
        """
        state = self
        for signal in signals:
            try:
                meaning = parse_signal(signal)
            except FormatError as error:
                say(str(error))
                continue
            who = f"Signal '{signal.id.strip()}'"
            if isinstance(meaning, ExecuteSnapshot):
                state = state._execute(signal.id.strip(), meaning, tables, say)
            elif isinstance(meaning, StopSnapshot):
                state = state._stop(who, meaning, tables, say)
            elif isinstance(meaning, PauseSnapshot):
                if state.requests:
                    state = replace(state, paused=True)
                else:
                    say(f"{who} pauses snapshots, of which none is running.")
            elif isinstance(meaning, ResumeSnapshot):
                state = replace(state, paused=False)
            elif isinstance(meaning, MoveTables):
                if meaning.kind in moves:
                    state = state._move(who, meaning, tables, say)
                else:
                    say(f"{who} is not followed: this source can't {meaning.kind} a table. Read it again instead.")
            elif isinstance(meaning, LogMessage):
                say(f"{who}: {meaning.message.replace('{}', at)}")
            elif isinstance(meaning, SchemaChanges):
                say(f"{who} is not needed: schemas are read from the database's catalog.")
        return state

    def _execute(
        self, signal: str, wanted: ExecuteSnapshot, tables: Sequence[SourceTable[Any]], say: Callable[[str], None]
    ) -> AdHoc:
        state, who = self, f"Signal '{signal}'"
        by_id = {table.id: table for table in tables}
        taken: set[TableId] = set()
        for pattern in wanted.collections:
            chosen_tables = chosen(pattern, by_id)
            if not chosen_tables:
                database = f" of database '{tables[0].id.database}'" if tables else ""
                say(f"{who} names '{pattern}', which no captured table{database} matches; it is skipped.")
            for id in chosen_tables:
                if id in taken:
                    continue
                taken.add(id)
                filter = wanted.filter_of(id)
                if wanted.kind == "blocking" and filter is not None:
                    say(f"{who} asks for a blocking snapshot of table '{id.path}' with a filter; use type incremental.")
                elif wanted.kind == "blocking":
                    others = tuple(path for path in state.blocking if path != id.path)
                    state = replace(state, blocking=(*others, id.path))
                else:
                    try:
                        cut_for_request(by_id[id], wanted.surrogate_key)
                    except RequestEnds as reason:
                        say(f"{who} names table '{id.path}', which is skipped: {reason}.")
                    else:
                        state = state._with(id.path, filter, wanted.surrogate_key, signal)
        return state

    def _move(
        self, who: str, wanted: MoveTables, tables: Sequence[SourceTable[Any]], say: Callable[[str], None]
    ) -> AdHoc:
        by_path: dict[str, TableMove] = {}
        for pattern in wanted.collections:
            meant = chosen(pattern, [table.id for table in tables])
            if not meant:
                say(f"{who} names '{pattern}', which no captured table matches; it is left out.")
            by_path |= {id.path: TableMove(id.path, wanted.kind, wanted.position) for id in meant}
        return replace(self, moves=(*self.moves, *by_path.values()))

    def rewritten(self, table: str, *, keyed: bool, again: bool, after: str = "") -> AdHoc:
        """With a table whose rows may have changed, and what was read of them with them.

        Args:
            table: `schema.name`.
            keyed: whether it has a key by which it is read beside the stream.
            again: whether it is read again. If not, a read that is under way begins again all the same.
            after: as `Request.after`.
        """
        state = replace(self, unequal={**self.unequal, table: self.unequal.get(table, ("", ""))})
        state = state.restart(lambda request: request.table == table)
        for request in state.requests:
            if request.table == table and request.filter is None and request.key:
                state = state._restart(request, keyed=True)
        if again:
            state = state.reading(table, keyed=keyed)
        waiting = tuple(
            replace(one, after=max(one.after, after)) if one.table == table and not one.key else one
            for one in state.requests
        )
        return replace(state, requests=waiting)

    def reading(self, table: str, *, keyed: bool) -> AdHoc:
        """With a table that is read again: beside the stream where it has a key, else as in the first snapshot."""
        if not keyed:
            return replace(self, blocking=tuple(dict.fromkeys((*self.blocking, table))))
        return self if table in self.blocking else self._with(table, None, reread=True)

    def _with(
        self, table: str, filter: str | None, surrogate: str | None = None, signal: str = "", *, reread: bool = False
    ) -> AdHoc:
        """A table more at the end; one that waits there already with the same filter is not read twice."""
        request = Request(table, self.numbers, filter=filter, surrogate=surrogate, signal=signal, reread=reread)
        if any(one.waits_like(request) for one in self.requests):
            return self
        return replace(self, requests=(*self.requests, request), numbers=self.numbers + 1)

    def _stop(
        self, who: str, wanted: StopSnapshot, tables: Sequence[SourceTable[Any]], say: Callable[[str], None]
    ) -> AdHoc:
        """Without the tables that are to be stopped; what was read of them stays."""
        if wanted.collections is None:
            if not self.requests and not self.blocking:
                say(f"{who} stops snapshots, of which none is running.")
            return replace(self.with_requests(()), blocking=())
        ids = {table.id.path: table.id for table in tables}
        stopped: set[str] = set()
        waiting = [*(request.table for request in self.requests), *self.blocking]
        for pattern in wanted.collections:
            # A table that is captured no longer is known by its path only.
            ended = {path for path in waiting if names(pattern, ids.get(path) or _of_path(path))}
            if not ended:
                say(f"{who} stops '{pattern}', of which no snapshot is running.")
            stopped |= ended
        left = self.with_requests(tuple(request for request in self.requests if request.table not in stopped))
        return replace(left, blocking=tuple(path for path in self.blocking if path not in stopped))

    def to_json(self) -> dict[str, Any]:
        """JSON values; nothing at all where nothing was ever requested."""
        if replace(self, moves=()) == AdHoc():
            return {}
        return {
            "requests": [request.to_json() for request in self.requests],
            "blocking": list(self.blocking),
            "paused": self.paused,
            "stalled": self.stalled,
            **self.files.to_json(),
            "numbers": self.numbers,
            **(
                {"unequal": {path: list(since) for path, since in sorted(self.unequal.items())}} if self.unequal else {}
            ),
            **({} if self.pace == Pace() else {"pace": self.pace.to_json()}),
            **({"ending": [request.to_json() for request in self.ending]} if self.ending else {}),
            **({"added": [list(astuple(one)) for one in self.added]} if self.added else {}),
            # For whoever asks whether there is more to come, without knowing the rest.
            "running": self.running,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AdHoc:
        """Read `to_json`'s form back.

        Raises:
            NewerRelease: a later release wrote it.
        """
        if not data:
            return cls()
        all_known(data, _PARTS)
        return cls(
            requests=tuple(Request.from_json(request) for request in data["requests"]),
            blocking=tuple(data["blocking"]),
            paused=data["paused"],
            stalled=data["stalled"],
            files=TakenFiles.from_json(data),
            numbers=data["numbers"],
            unequal={path: (commit, time) for path, (commit, time) in data.get("unequal", {}).items()},
            pace=Pace(*data.get("pace", ())),
            ending=tuple(Request.from_json(request) for request in data.get("ending", ())),
            added=tuple(AddedColumn(*one) for one in data.get("added", ())),
        )


def with_reads_settled(start: Offset, end: Offset) -> Offset:
    """The end of a batch, in which tables that are read again as a whole lack no changes any more and equal the source.

    Those whose rows may have changed by a change of structure say since when.
    """
    state = AdHoc.from_json(end.ad_hoc)
    if not end.skipped and not state.unequal:
        return end
    read = {
        request.table for request in state.requests if request.done and request.filter is None and not request.since
    }
    read |= {one.table for one in state.announced}
    read |= {path for path, at in end.tables.items() if at.read and end.captures_newly(start, path)}
    skipped = {path: gap for path, gap in end.skipped.items() if path not in read}
    now = (start.commit, time_text(start.commit_time) or "")
    unequal = {
        path: since if since[0] else now
        for path, since in state.unequal.items()
        if path not in read and path in end.known
    }
    if skipped == end.skipped and unequal == state.unequal:
        return end
    return replace(end, skipped=skipped, ad_hoc=replace(state, unequal=unequal).to_json())


def _of_path(path: str) -> TableId:
    schema, _, name = path.partition(".")
    return TableId("", schema, name)
