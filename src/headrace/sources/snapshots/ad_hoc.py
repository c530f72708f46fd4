"""Ad-hoc snapshots: which tables were requested, how far each is read, and what signals change in that. No database.

The state stands in the offset, so that a restart goes on at the chunk where the run stopped, and a replay reads the
same key ranges. Tables are read one after another, in the order of the requests.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from headrace.changes import TableId
from headrace.changes.position import Position, order_of_read
from headrace.errors import FormatError, OptionError
from headrace.registry import did_you_mean
from headrace.sources.offset import Key, Offset, all_known, key_of, time_text
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
    say,
)
from headrace.sources.snapshots.chunks import next_bounds
from headrace.sources.snapshots.pace import Pace
from headrace.sources.table_moves import TableMove
from headrace.sources.tables.source_table import SourceTable

NO_ROW = "1 = 0 AND ({filter}\n)"
"""A predicate with which a server reads a filter of the user's and no row."""
INCREMENTAL = "incremental"
"""The snapshot mark of rows that were read beside the stream."""
_ORDER = "i"
"""Such rows sort after every streamed change of the commit and after the rows of the snapshot before (hex digits)."""
Table = TypeVar("Table", bound=SourceTable[Any])

_PARTS = frozenset(
    ["requests", "blocking", "paused", "stalled", "file", "files", "numbers", "running", "unequal", "pace", "ending"]
)
_REQUEST_PARTS = frozenset(
    ["table", "number", "key", "filter", "chunk", "lower", "last", "bounds", "done", "surrogate", "signal"]
) | frozenset(["reread", "after", "since", "definition", "upto", "announced"])


class RequestWaits(Exception):
    """A request can't go on now, but may with a later batch."""


class RequestEnds(Exception):
    """A request can't go on; the message says why."""


def cut_for_request(table: Table, surrogate: str | None) -> Table:
    """A table as chunks are cut of it that are read beside the stream.

    By the columns of its own key, or of the one that the user named for it (`message_key_columns`); or by the column
    that the signal names. Rows may share a value of that column: a chunk has all rows of it. They can't lack one.

    Args:
        table: as it is captured.
        surrogate: the column that the signal names; null for none.

    Raises:
        RequestEnds: it can't be cut so.
    """
    if not table.row_key:
        raise RequestEnds(
            "it has no key, so a row that is read again can't be told from another one. Name its key in "
            "'message_key_columns', or ask for a blocking snapshot"
        )
    if surrogate is None and table.chunk_key:
        return table
    named = table.row_key if surrogate is None else (surrogate,)
    there = {column.name.casefold(): column for column in table.schema.columns}
    cut = []
    for name in named:
        column = table.schema.column(name) if name in table.names else there.get(name.casefold())
        if column is None:
            raise RequestEnds(f"it has no captured column '{name}' to cut it by")
        if column.nullable:
            raise RequestEnds(f"column '{column.name}', by which it would be cut, may be NULL")
        if column.name in table.protected:
            raise RequestEnds(f"column '{column.name}' can't cut it, because bounds would show what options keep back")
        if not table.can_cut(column.name):
            raise RequestEnds(f"column '{column.name}' ({column.native_type}) can't cut it, because of its type")
        cut.append(column.name)
    return table.cut_by(cut)


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
        found = chosen(pattern, known)
        if not found:
            raise OptionError(
                f"No captured table matches '{pattern}'.", remedy=did_you_mean(pattern, [id.path for id in known])
            )
        meant |= dict.fromkeys(found)
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


def refused_filter(table: TableId, why: str) -> OptionError:
    """The error of a filter that the server does not take.

    Args:
        table: the table it is for.
        why: what the server says.
    """
    return OptionError(
        f"The server refuses the filter of table '{table.path}': {why.rstrip(' .')}.",
        remedy="Write an SQL predicate over its columns, in the words of the database.",
    )


@dataclass(frozen=True)
class IncrementalChunk:
    """One key range (lower, upper] of one table that a batch reads beside the stream.

    Args:
        table: `schema.name`.
        request: the number of the request that it belongs to.
        number: 0 for the table's first chunk.
        lower: rows after this key; null from the beginning.
        upper: rows up to and with this key.
        filter: the SQL predicate that rows must meet; null for all.
        opening: whether it is the first chunk of its table in the batch.
        read: the last snapshot before it, see `TableProgress.read`.
        key: the columns of the bounds.
    """

    table: str
    request: int
    number: int
    lower: Key | None
    upper: Key | None
    filter: str | None
    opening: bool
    read: int = 0
    key: tuple[str, ...] = ()

    def position(self, commit: str) -> Position:
        """Where its rows stand: after every streamed change of a commit.

        All rows share it, because a replay may find a row at another place in the chunk.
        """
        return Position(commit, self._order, f"{0:08x}")

    def schema_position(self, commit: str) -> Position:
        """Where the table's schema is announced: before the rows."""
        return Position(commit, self._order)

    def to_json(self) -> dict[str, Any]:
        """JSON values, for the slice that reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> IncrementalChunk:
        """Read `to_json`'s form back."""
        return cls(
            **{**data, "lower": key_of(data["lower"]), "upper": key_of(data["upper"]), "key": tuple(data["key"])}
        )

    @property
    def _order(self) -> str:
        return f"{order_of_read(self.read)}{_ORDER}{self.request:08x}:{self.number:08x}"


@dataclass(frozen=True)
class Request:
    """One table that was requested, and how far it is read.

    Args:
        table: `schema.name`.
        number: counts requests, so that rows of a later one stand after those of an earlier one.
        key: the key columns when it was begun; empty before.
        filter: the SQL predicate that rows must meet; null for all.
        chunk: how many chunks lie behind, before the batch that ends here.
        lower: the key up to which those chunks reach; null at the beginning of the table.
        last: the greatest key when the table was begun; null before.
        bounds: the upper keys of the chunks of the batch that ends here, in order.
        done: nothing of the table is left after this batch.
        surrogate: the column by which the signal wants it cut; null for its key.
        signal: the id of the signal; empty where none asked for it.
        reread: a change of structure asked for it, so its chunks have the size that `Pace` gives.
        after: the commit that the stream passes before the first chunk is read. Changes from before a change of
            structure follow the structure of their time, so they must not come after the rows that are read.
        since: the position behind which all its rows stand, where the whole table is read so that rows that the source
            no longer has go; empty where they stay, and before it was begun.
        definition: what the source says of the table's definition when it was begun, see `KeyRanges.definition`.
        upto: the commit up to which the stream has to be, before it is known which rows were not found; empty until
            the last chunk was read.
        announced: the batch that ends here says that the rows that were not found go.
    """

    table: str
    number: int
    key: tuple[str, ...] = ()
    filter: str | None = None
    chunk: int = 0
    lower: Key | None = None
    last: Key | None = None
    bounds: tuple[Key, ...] = ()
    done: bool = False
    surrogate: str | None = None
    signal: str = ""
    reread: bool = False
    after: str = ""
    since: str = ""
    definition: str = ""
    upto: str = ""
    announced: bool = False

    @property
    def reach(self) -> Key | None:
        """The key up to which the table is read with the batch that ends here."""
        return self.bounds[-1] if self.bounds else self.lower

    def behind(self) -> Request:
        """The same place, seen from a batch that holds no chunk of this table."""
        return replace(self, chunk=self.chunk + len(self.bounds), lower=self.reach, bounds=())

    def waits_like(self, other: Request) -> bool:
        """Whether it is to read what another one reads, and is not begun yet."""
        mine, others = ((one.table, one.filter, one.surrogate) for one in (self, other))
        return not self.key and mine == others

    def begun_again(self, number: int) -> Request:
        """At the beginning of the table, as another request, so that its rows stand after those that were read."""
        return Request(
            self.table,
            number,
            filter=self.filter,
            surrogate=self.surrogate,
            signal=self.signal,
            reread=self.reread,
        )

    def begun(self, commit: str, read: int, definition: str = "") -> Request:
        """The request of a whole table whose first chunk is planned at a commit: it ends equal.

        Args:
            commit: the end of the batch that has the first chunk.
            read: how many times tables were read before.
            definition: as `KeyRanges.definition`.
        """
        if self.key or self.filter is not None:
            return self
        order = f"{order_of_read(read)}{_ORDER}{self.number:08x}"
        return replace(self, since=Position(commit, order).text, definition=definition)

    def end_position(self, commit: str, read: int) -> Position:
        """Where the end of its reading is announced: behind its rows."""
        return Position(commit, f"{order_of_read(read)}{_ORDER}{self.number:08x}:z")

    def further(
        self,
        key: tuple[str, ...],
        budget: int,
        greatest: Callable[[], Sequence[Key]],
        bounds: Callable[[Key], Sequence[Key]],
    ) -> Request:
        """The request with its next chunks; their bounds are keys that the server found.

        Args:
            key: the key columns of the table now.
            budget: how many chunks at the most.
            greatest: asks for the table's last key; none where no row is read.
            bounds: asks for the keys at which chunks end, up to the last one.

        Raises:
            RequestEnds: the table has no key any more, or another one.
        """
        if not key or self.key not in ((), key):
            raise RequestEnds("its key is not what it was when the snapshot began; ask for it again.")
        last = self.last
        if last is None:
            found = greatest()
            if not found:
                return replace(self, key=key, done=True)
            last = found[0]
        upper, done = next_bounds(bounds(last), last, budget)
        return replace(self, key=key, last=last, bounds=upper, done=done)

    def chunks(self, read: int = 0) -> Iterator[IncrementalChunk]:
        """The chunks of the batch that ends here, after as many reads of tables."""
        lower = self.lower
        for n, upper in enumerate(self.bounds):
            number = self.chunk + n
            yield IncrementalChunk(self.table, self.number, number, lower, upper, self.filter, n == 0, read, self.key)
            lower = upper

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "table": self.table,
            "number": self.number,
            "key": list(self.key),
            "filter": self.filter,
            "chunk": self.chunk,
            "lower": _list(self.lower),
            "last": _list(self.last),
            "bounds": [list(bound) for bound in self.bounds],
            "done": self.done,
            **({} if self.surrogate is None else {"surrogate": self.surrogate}),
            **({"signal": self.signal} if self.signal else {}),
            **({"reread": True} if self.reread else {}),
            **({"after": self.after} if self.after else {}),
            **({"since": self.since} if self.since else {}),
            **({"definition": self.definition} if self.definition else {}),
            **({"upto": self.upto} if self.upto else {}),
            **({"announced": True} if self.announced else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Request:
        """Read `to_json`'s form back.

        Raises:
            NewerRelease: a later release wrote it.
        """
        all_known(data, _REQUEST_PARTS)
        return cls(
            table=data["table"],
            number=data["number"],
            key=tuple(data["key"]),
            filter=data["filter"],
            chunk=data["chunk"],
            lower=key_of(data["lower"]),
            last=key_of(data["last"]),
            bounds=tuple(tuple(bound) for bound in data["bounds"]),
            done=data["done"],
            surrogate=data.get("surrogate"),
            signal=data.get("signal", ""),
            reread=data.get("reread", False),
            after=data.get("after", ""),
            since=data.get("since", ""),
            definition=data.get("definition", ""),
            upto=data.get("upto", ""),
            announced=data.get("announced", False),
        )


def further_requests(
    requests: Iterable[Request], budget: int, further: Callable[[Request, int], Request]
) -> tuple[Request, ...]:
    """Requests with up to `budget` further chunks, tables one after another; those that end are left out, and said.

    A table counts as one chunk at the least, so that many small or empty ones are not all asked for by one plan.

    Args:
        requests: in the order in which they were made.
        budget: how many chunks a batch may hold.
        further: gives a request with so many further chunks. It raises `RequestWaits` to hold all requests from this
            one on, and `RequestEnds` to end this one.
    """
    found: list[Request] = []
    held = False
    for request in requests:
        if held or not budget:
            found.append(request)
            continue
        try:
            moved = further(request, budget)
        except RequestWaits:
            held = True
            found.append(request)
            continue
        except RequestEnds as reason:
            say(f"The ad-hoc snapshot of table '{request.table}' ends after {request.chunk} chunks: {reason}")
            continue
        budget -= max(len(moved.bounds), 1)
        held = not moved.done
        found.append(moved)
    return tuple(found)


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

    @property
    def running(self) -> bool:
        """Whether there is something left to do that nothing holds up."""
        left = any(not request.done for request in self.requests)
        ends = any(request.done and request.since for request in self.requests)
        ends = ends or any(not request.announced for request in self.ending)
        return bool(self.blocking) or ends or (left and not self.paused and not self.stalled)

    def behind(self) -> AdHoc:
        """The same place, seen from a batch that holds no chunk: finished tables are forgotten."""
        read = (request.behind() for request in self.requests if request.done and request.since)
        ending = (*(request for request in self.ending if not request.announced), *read)
        left = tuple(request.behind() for request in self.requests if not request.done)
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

    def begun_again(self, wanted: Callable[[Request], bool] = lambda _: True) -> AdHoc:
        """With reads of whole tables that begin once more, because what they have read does not tell which rows are
        not there.

        Args:
            wanted: which of those that were begun.
        """
        state = replace(self, requests=(), ending=())
        for request in (*self.ending, *self.requests):
            if request in self.begun and wanted(request):
                if not any(one.waits_like(request) for one in self.requests):
                    fresh = request.begun_again(state.numbers)
                    state = replace(state, requests=(*state.requests, fresh), numbers=state.numbers + 1)
            elif request in self.requests:
                state = replace(state, requests=(*state.requests, request))
            else:
                state = replace(state, ending=(*state.ending, request))
        return state

    def cut_anew(self, tables: Mapping[str, Table]) -> AdHoc:
        """With tables that begin again because they have another key now, or none.

        Args:
            tables: the captured ones, by path.
        """
        state = self
        for request in self.requests:
            table = tables.get(request.table)
            if table is not None and request.reread and request.key not in ((), table.chunk_key):
                state = state._begun_again(request, keyed=bool(table.chunk_key))
        return state

    def _begun_again(self, request: Request, *, keyed: bool) -> AdHoc:
        if not keyed:
            left = self.with_requests(tuple(one for one in self.requests if one is not request))
            return left.reading(request.table, keyed=False)
        again = request.begun_again(self.numbers)
        others = tuple(again if one is request else one for one in self.requests)
        return replace(self, requests=others, numbers=self.numbers + 1)

    def reads_again(self, table: str) -> bool:
        """Whether a table is to be read again as a whole."""
        whole = (request for request in self.requests if request.filter is None and not request.done)
        return table in self.blocking or table in {request.table for request in (*whole, *self.begun)}

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
        found = [path for path in self.blocking if path in captured]
        waiting = [path for path in found if path in self.unequal][1:]
        return [path for path in found if path not in waiting], tuple(waiting)

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
            found = chosen(pattern, by_id)
            if not found:
                database = f" of database '{tables[0].id.database}'" if tables else ""
                say(f"{who} names '{pattern}', which no captured table{database} matches; it is skipped.")
            for id in found:
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
        found: dict[str, TableMove] = {}
        for pattern in wanted.collections:
            meant = chosen(pattern, [table.id for table in tables])
            if not meant:
                say(f"{who} names '{pattern}', which no captured table matches; it is left out.")
            found |= {id.path: TableMove(id.path, wanted.kind, wanted.position) for id in meant}
        return replace(self, moves=(*self.moves, *found.values()))

    def rewritten(self, table: str, *, keyed: bool, again: bool, after: str = "") -> AdHoc:
        """With a table whose rows may have changed, and what was read of them with them.

        Args:
            table: `schema.name`.
            keyed: whether it has a key by which it is read beside the stream.
            again: whether it is read again. If not, a read that is under way begins again all the same.
            after: as `Request.after`.
        """
        state = replace(self, unequal={**self.unequal, table: self.unequal.get(table, ("", ""))})
        state = state.begun_again(lambda request: request.table == table)
        for request in state.requests:
            if request.table == table and request.filter is None and request.key:
                state = state._begun_again(request, keyed=True)
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
            found = {path for path in waiting if names(pattern, ids.get(path) or _of_path(path))}
            if not found:
                say(f"{who} stops '{pattern}', of which no snapshot is running.")
            stopped |= found
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
        )


def with_reads_settled(start: Offset, end: Offset) -> Offset:
    """The end of a batch, in which tables that are read again as a whole lack no changes any more and equal the source.

    Those whose rows may have changed by a change of structure say since when.
    """
    state = AdHoc.from_json(end.ad_hoc)
    if not end.skipped and not state.unequal:
        return end
    read = {one.table for one in state.requests if one.done and one.filter is None and not one.since}
    read |= {one.table for one in state.announced}
    read |= {path for path, at in end.tables.items() if at.read and end.takes_in(start, path)}
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


def _list(key: Key | None) -> list[str | None] | None:
    return None if key is None else list(key)
