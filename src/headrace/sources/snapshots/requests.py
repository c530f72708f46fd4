"""One table that is read beside the stream: what asked for it, how far it is read, and its chunks. No database.

A chunk has few rows at first, and more while batches stay quick. What a batch may take is not known before it is done,
and the time between two batches has the pause of the trigger in it. So a chunk also grows while its size is not what
takes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from headrace.changes import TableId
from headrace.changes.position import Position, order_of_read
from headrace.errors import OptionError
from headrace.sources.offset import Key, all_known, key_of
from headrace.sources.signals import (
    say,
)
from headrace.sources.snapshots.chunks import next_bounds
from headrace.sources.tables.table_rules import SourceTable

NO_ROW = "1 = 0 AND ({filter}\n)"
"""A predicate with which a server reads a filter of the user's and no row."""
INCREMENTAL = "incremental"
"""The snapshot mark of rows that were read beside the stream."""
_ORDER = "i"
"""Such rows sort after every streamed change of the commit and after the rows of the snapshot before (hex digits)."""
Table = TypeVar("Table", bound=SourceTable[Any])

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
        surrogate: the column that the signal names; None for none.

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
        lower: rows after this key; None from the beginning.
        upper: rows up to and with this key.
        filter: the SQL predicate that rows must meet; None for all.
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

        All rows share it, because a replay may find a row at another position in the chunk.
        """
        return Position(commit, self._order, f"{0:08x}")

    def schema_position(self, commit: str) -> Position:
        """Where the table's schema is announced: before the rows."""
        return Position(commit, self._order)

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
        filter: the SQL predicate that rows must meet; None for all.
        chunk: how many chunks lie behind, before the batch that ends here.
        lower: the key up to which those chunks reach; None at the beginning of the table.
        last: the greatest key when the table was begun; None before.
        bounds: the upper keys of the chunks of the batch that ends here, in order.
        done: nothing of the table is left after this batch.
        surrogate: the column by which the signal wants it cut; None for its key.
        signal: the id of the signal; empty where none asked for it.
        reread: a change of structure asked for it, so its chunks have the size that `Pace` gives.
        after: the commit that the stream passes before the first chunk is read. Changes from before a change of
            structure follow the structure of their time, so they must not come after the rows that are read.
        since: the position after which all its rows stand, where the whole table is read so that rows that the source
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

    def advanced(self) -> Request:
        """The same position, seen from a batch that holds no chunk of this table."""
        return replace(self, chunk=self.chunk + len(self.bounds), lower=self.reach, bounds=())

    def waits_like(self, other: Request) -> bool:
        """Whether it is to read what another one reads, and is not begun yet."""
        mine, others = ((one.table, one.filter, one.surrogate) for one in (self, other))
        return not self.key and mine == others

    def restart(self, number: int) -> Request:
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
        """Where the end of its reading is announced: after its rows."""
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
            greatest_keys = greatest()
            if not greatest_keys:
                return replace(self, key=key, done=True)
            last = greatest_keys[0]
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
    all_requests: list[Request] = []
    held = False
    for request in requests:
        if held or not budget:
            all_requests.append(request)
            continue
        try:
            moved = further(request, budget)
        except RequestWaits:
            held = True
            all_requests.append(request)
            continue
        except RequestEnds as reason:
            say(f"The ad-hoc snapshot of table '{request.table}' ends after {request.chunk} chunks: {reason}")
            continue
        budget -= max(len(moved.bounds), 1)
        held = not moved.done
        all_requests.append(moved)
    return tuple(all_requests)


def _list(key: Key | None) -> list[str | None] | None:
    return None if key is None else list(key)


FIRST_ROWS = 4096
"""Rows of the first chunks."""
MOST_ROWS = 100_000
"""Rows of the largest chunks where the options give no size."""
_QUICK_SECONDS = 10
_SLOW_SECONDS = 30
_MUCH = 1.5


@dataclass(frozen=True)
class Pace:
    """The size of the next chunks.

    Args:
        rows: how many rows each has.
        seconds: how long the last batch took that had some; 0 where that is not known.
    """

    rows: int = FIRST_ROWS
    seconds: float = 0.0

    def after(self, seconds: float, most: int) -> Pace:
        """The size after a batch that had chunks of this one.

        Args:
            seconds: from its plan to the next one.
            most: how many rows a chunk may have; 0 where the options give no size.
        """
        most = most or MOST_ROWS
        slower = self.seconds > 0 and seconds > _MUCH * self.seconds
        rows = self.rows
        if seconds <= _QUICK_SECONDS:
            rows = 4 * self.rows
        elif self.seconds and not slower:
            rows = 2 * self.rows
        elif slower and seconds > _SLOW_SECONDS:
            rows = max(self.rows // 2, FIRST_ROWS)
        return Pace(min(rows, most), round(seconds, 1))

    def to_json(self) -> list[Any]:
        """JSON values."""
        return [self.rows, self.seconds]
