"""What the events of a window mean: which transactions they make, and which rows and statements concern captured
tables.

What may concern a captured table and can't be read stops the reader. It is never skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace.errors import CaptureError, FormatError
from headrace.sources.mysql import gtid
from headrace.sources.mysql.binlog_position import BinlogPosition
from headrace.sources.mysql.events import (
    ANCIENT_ROWS,
    COMPRESSED_ROWS,
    HEADER_SIZE,
    IGNORABLE,
    ROWS,
    STATEMENT_BASED,
    Event,
    EventType,
    Frames,
    payload_events,
    plain_query,
    plain_rows,
    read_incident,
    rows_query,
)
from headrace.sources.mysql.gtid import GtidStart
from headrace.sources.mysql.ordinary import Run, ordinary_run, statements_run
from headrace.sources.mysql.statements import Meaning, Named, Statement, names_in, read_query, read_statement
from headrace.sources.mysql.table_map import description, table_id, table_named

_MICROSECONDS = 1_000_000
_STATEMENT_END = 1
_KIND_PLACE = 4
_NO_TABLE = 0xFFFFFF
_UPDATES = (EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS)
_GTIDS = frozenset((EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID))
_EDGES_OF_FILES = frozenset((EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.STOP))
_FIRST_OF_STATEMENT = frozenset((EventType.TABLE_MAP, EventType.ANNOTATE_ROWS, EventType.ROWS_QUERY))
_MOST_MISSES = 8
_VARIABLES = frozenset((EventType.INTVAR, EventType.RAND, EventType.USER_VAR))
"""What a statement needs that follows, which decides what they are for."""
_WITHOUT_MEANING = frozenset(
    (
        EventType.HEARTBEAT,
        EventType.HEARTBEAT_V2,
        EventType.IGNORABLE,
        EventType.PREVIOUS_GTIDS,
        EventType.TRANSACTION_CONTEXT,
        EventType.VIEW_CHANGE,
        EventType.BINLOG_CHECKPOINT,
        EventType.GTID_LIST,
        EventType.START_ENCRYPTION,
    )
)
_WITHOUT_DATABASE = 0x08
"""A flag of statements that need no `USE`, because the server made them."""
_OF_TABLES = (Meaning.TRUNCATE, Meaning.DEFINITION, Meaning.UNLOGGED_ROWS)


@dataclass(frozen=True)
class Transaction:
    """A transaction of events that take effect together.

    Args:
        position: where it begins.
        gtid: its GTID; None where the server has none.
        time: when it was committed, in microseconds since 1970; of MariaDB the second in which its statement began.
        server: the server that wrote it first.
    """

    position: BinlogPosition
    gtid: str | None
    time: int
    server: int


class RowsEvent(NamedTuple):
    """Rows of a captured table.

    Args:
        transaction: whose they are.
        kind: the type of the event; that of the plain one where it was compressed.
        position: where the event begins in its file.
        ordinal: no row of the transaction before has a number above it, and each of the event's rows has one of its own
            when they are counted from here. Rows of tables that are not captured are counted with.
        described: the table, as `read_table_map` takes it.
        body: of the event.
        thread: the session's number; None where the log does not say it.
        query: the statement that changed them, as it was sent; None where the log does not have it.
    """

    transaction: Transaction
    kind: int
    position: int
    ordinal: int
    described: bytes
    body: bytes
    thread: int | None
    query: bytes | None


class HeldRows(NamedTuple):
    """Rows of a captured table in a transaction that prepares a distributed transaction.

    Args:
        rows: as if they were committed by that transaction.
    """

    rows: RowsEvent


class StatementEvent(NamedTuple):
    """A statement that names captured tables and changes their structure, or empties them.

    Args:
        transaction, position, ordinal, thread: see `RowsEvent`.
        statement: what it means; each of its tables has its database.
        text: all of it.
        database: the one that its session used.
    """

    transaction: Transaction
    position: int
    ordinal: int
    thread: int | None
    statement: Statement
    text: str
    database: str


class Prepared(NamedTuple):
    """A distributed transaction that is not decided yet. Its rows are not given out.

    Args:
        xid: its name.
        start, end: where its transaction begins and ends.
        captured: whether it may have rows of captured tables.
    """

    xid: str
    start: BinlogPosition
    end: BinlogPosition
    captured: bool = True

    def to_json(self) -> list[Any]:
        return [self.xid, self.start.text, self.end.text, self.captured]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Prepared:
        """Read `to_json`'s form back."""
        xid, start, end, captured = data
        return cls(xid, BinlogPosition.of(start), BinlogPosition.of(end), captured)


class Decided(NamedTuple):
    """The end of a distributed transaction that was prepared before.

    Args:
        transaction: in which it is decided: that which prepared it, where MySQL commits it in one phase.
        xid: its name.
        committed: whether its rows take effect, in this transaction.
    """

    transaction: Transaction
    xid: str
    committed: bool


class TransactionEnd(NamedTuple):
    """The end of a transaction.

    Args:
        transaction: which.
        end: where the next one may begin.
    """

    transaction: Transaction
    end: BinlogPosition


Step: TypeAlias = "RowsEvent | HeldRows | StatementEvent | Prepared | Decided | TransactionEnd"


@dataclass
class _Open:
    """A transaction that is not ended.

    Args:
        transaction: which.
        begun: whether a COMMIT or a PREPARE has to end it; if not, the next statement does.
        held: whether it is to be prepared.
        wanted: whether it is of the window.
        ordinal: see `RowsEvent`.
        thread, query: see `RowsEvent`.
        without_effect: see `GtidStart`.
        changed: the captured tables that it has rows of.
        misses: how often in a row the kernel found no ordinary statement where one began.
        maps: the tables that rows may be of, by the numbers that the statement uses; None where not captured.
    """

    transaction: Transaction
    begun: bool
    held: bool = False
    wanted: bool = True
    ordinal: int = 0
    thread: int | None = None
    query: bytes | None = None
    without_effect: bool = False
    changed: set[str] = field(default_factory=set)
    misses: int = 0
    maps: dict[int, tuple[str, bytes] | None] = field(default_factory=dict)


class TransactionReader:
    """Reads the transactions with `start <= position < end`.

    Nothing of a transaction is kept but what its events say of tables, however long it is. Not thread-safe.

    Args:
        start, end: boundaries.
        tables: database and name of each captured table, as the log writes them.
        prepared: whether rows of prepared transactions are given out as if they were committed: what a reader does that
            comes back for them.
        keeps: whether rows of prepared transactions are given out as `HeldRows`, so that a reader need not come back.
        folds_names: see `ServerKind`; then statements may have the names of tables in any case.
    """

    def __init__(
        self,
        start: BinlogPosition,
        end: BinlogPosition,
        tables: Collection[tuple[str, str]],
        *,
        prepared: bool = False,
        keeps: bool = False,
        folds_names: bool = False,
    ) -> None:
        self._start, self._end = start, end
        self._tables = frozenset(tables)
        named = [*tables, *((database, "") for database, _ in tables)] if folds_names else []
        self._written = {(database.lower(), name.lower()): Named(database, name) for database, name in named}
        self._databases = frozenset(database for database, _ in tables)
        self._words = frozenset(word.casefold() for word in self._databases)
        self._prepared, self._keeps = prepared, keeps
        self._frames = Frames()
        self._open: _Open | None = None
        self._turned = False
        self.finished = False
        """Whether all of the window came."""
        self.altered = False
        """Whether it had statements that make, alter or drop tables, captured or not."""

    def read(self, data: bytes) -> Iterator[Step]:
        """What one event means, as the server sent it.

        Raises:
            FormatError: the event is damaged, or stands where it can't.
            CaptureError: it may concern a captured table and can't be read.
        """
        if self.finished:
            return
        position = self._frames.position
        try:
            event = self._frames.event(data)
            if event.kind == EventType.TRANSACTION_PAYLOAD:
                for inner in payload_events(event):
                    yield from self._steps(inner)
            else:
                yield from self._steps(event)
        except (FormatError, CaptureError) as error:
            where = f"{self._frames.file or 'its first event'}, position {position}"
            raise type(error)(
                f"The binary log can't be read at {where}: {error.message}", remedy=error.remedy
            ) from None
        self._turned = self._turned or self._frames.position > 0
        if self._open is None and self._turned and self._here() >= self._end:
            self.finished = True

    def finish(self) -> None:
        """See that the window ended between transactions.

        Raises:
            FormatError: the log ended inside of a transaction, or before the window's end.
        """
        if self._open is not None:
            raise FormatError(
                f"The binary log ended inside of the transaction at {self._said(self._open.transaction.position)}."
            )
        if not self.finished:
            raise FormatError(
                f"The binary log ended at {self._said(self._here())}, before the end of what is to be read."
            )

    def run(self, data: memoryview, first: int) -> Run | None:
        """The ordinary transactions at a position of what the server sent, or ordinary statements of the transaction
        that has begun. They are passed over then.

        They mean what `read` would say of their events: rows, and the ends of transactions.

        Args:
            data: whole events, one after another.
            first: where the next event begins.

        Returns:
            None where `read` has to take the next event.
        """
        frames, here, end = self._frames, self._here(), self._end
        if self.finished or not self._turned or frames.description is None or len(data) - first < HEADER_SIZE:
            return None
        if self._open is not None:
            return self._statements(self._open, data, first)
        if here < self._start or data[first + _KIND_PLACE] not in _GTIDS:
            return None
        limit = end.position if (here.epoch, here.file) == (end.epoch, end.file) else -1
        description = frames.description
        ordinary = ordinary_run(
            data, first, here.position, limit, checksums=frames.checksums, mariadb=description.mariadb
        )
        if not ordinary.positions:
            return None
        frames.position += ordinary.after - first
        self.finished = self._here() >= end
        return ordinary

    def _statements(self, within: _Open, data: memoryview, first: int) -> Run | None:
        """Ordinary statements of a transaction; None where `read` has to take the next event."""
        if data[first + _KIND_PLACE] not in _FIRST_OF_STATEMENT or within.maps or within.misses == _MOST_MISSES:
            return None
        if not within.begun or within.held or not within.wanted:
            return None
        frames, description, of = self._frames, self._frames.description, within.transaction
        assert description is not None
        none = np.empty(0, np.int64)
        thread = -1 if within.thread is None else within.thread
        transaction = Run(
            [of.position.position], [of.time], [of.server], [of.gtid], [thread], none, none, [], first, inside=True
        )
        run = statements_run(
            data,
            first,
            frames.position,
            transaction,
            within.ordinal,
            checksums=frames.checksums,
            mariadb=description.mariadb,
        )
        if run.after == first:
            # The end of the data may cut a statement, but not several in a row: this transaction has others.
            within.misses += 1
            return None
        tables = {table_named(run.maps[number]) for number in np.unique(run.of).tolist()}
        within.changed.update(map(".".join, tables & self._tables))
        within.ordinal += int((run.events[:, 5] - run.events[:, 4]).sum())
        within.query, within.misses = None, 0
        frames.position += run.after - first
        return run

    def is_captured(self, described: bytes) -> bool:
        return table_named(described) in self._tables

    @property
    def position(self) -> BinlogPosition:
        """Where the next event begins."""
        return self._here()

    @property
    def boundary(self) -> BinlogPosition | None:
        """Where the next transaction begins that was not read; None inside of one."""
        if self._open is not None:
            return None
        return self._here() if self._turned else self._start

    def _here(self) -> BinlogPosition:
        return BinlogPosition(self._start.epoch, self._frames.number, self._frames.position)

    def _said(self, position: BinlogPosition) -> str:
        return f"position {position.position} of '{self._frames.file}'"

    def _steps(self, event: Event) -> Iterator[Step]:
        kind = event.kind
        if kind in ROWS or kind in COMPRESSED_ROWS:
            yield from self._rows(event)
        elif kind == EventType.TABLE_MAP:
            self._map(event)
        elif kind in _GTIDS:
            self._begin(event, self._gtid_start(event))
        elif kind in (EventType.QUERY, EventType.QUERY_COMPRESSED):
            yield from self._query(event)
        elif kind == EventType.XID:
            yield from self._ended()
        elif kind in (EventType.ANNOTATE_ROWS, EventType.ROWS_QUERY):
            self._inside().query = event.body if kind == EventType.ANNOTATE_ROWS else rows_query(event.body)
        elif kind == EventType.XA_PREPARE:
            yield from self._prepare(event)
        elif kind in _EDGES_OF_FILES:
            if self._open is not None:
                raise CaptureError(
                    "A file ends inside of a transaction, as after a crash of the server.",
                    remedy="Start with a new checkpoint, so that the tables are read again.",
                )
        elif kind not in _WITHOUT_MEANING and kind not in _VARIABLES:
            self._refuse(event)

    def _refuse(self, event: Event) -> None:
        if event.kind == EventType.INCIDENT:
            raise CaptureError(
                f"The server says that changes are missing in its log: {read_incident(event.body)}",
                remedy="Start with a new checkpoint, so that the tables are read again.",
            )
        if event.kind in STATEMENT_BASED:
            raise _as_text("LOAD DATA")
        if event.kind in ANCIENT_ROWS:
            raise CaptureError(
                "Rows are in the form of MySQL 5.1, which is not read.",
                remedy="Read from MySQL 5.7 or MariaDB 10.5, or newer.",
            )
        if not event.flags & IGNORABLE:
            raise CaptureError(
                f"An event is of the unknown type {event.kind}.",
                remedy="Install a newer version of Headrace, or switch off what makes the server write such events.",
            )

    def _inside(self) -> _Open:
        if self._open is None:
            raise FormatError("An event that belongs to a transaction stands outside of one.")
        return self._open

    def _gtid_start(self, event: Event) -> GtidStart:
        if event.kind == EventType.MARIADB_GTID:
            return gtid.read_mariadb_gtid(event.body, event.server)
        return gtid.read_tagged_gtid(event.body) if event.kind == EventType.GTID_TAGGED else gtid.read_gtid(event.body)

    def _begin(self, event: Event, start: GtidStart, *, begun: bool | None = None) -> _Open:
        if self._open is not None:
            raise FormatError("A transaction begins inside of another.")
        position = self._here().at(event.start)
        time = event.time * _MICROSECONDS if start.time is None else start.time
        if begun is None:
            begun = event.kind == EventType.MARIADB_GTID and not start.standalone
        transaction = Transaction(position, start.gtid, time, event.server)
        held = start.prepared is not None
        wanted = self._start <= position < self._end
        self._open = _Open(transaction, begun, held, wanted, without_effect=start.without_effect)
        return self._open

    def _ended(self) -> Iterator[Step]:
        ended = self._inside()
        self._open = None
        if ended.wanted:
            yield TransactionEnd(ended.transaction, self._here())

    def _prepare(self, event: Event) -> Iterator[Step]:
        xid, prepared = gtid.read_xa_prepare(event.body), self._inside()
        if prepared.held and prepared.wanted and not self._prepared:
            yield Prepared(xid.xid.text, prepared.transaction.position, self._here(), bool(prepared.changed))
            if xid.one_phase:
                yield Decided(prepared.transaction, xid.xid.text, True)
        yield from self._ended()

    def _map(self, event: Event) -> None:
        described = description(event.body)
        table = table_named(described)
        path = ".".join(table)
        self._inside().maps[table_id(event.body)] = (path, described) if table in self._tables else None

    def _rows(self, event: Event) -> Iterator[Step]:
        within = self._inside()
        number, last = table_id(event.body), bool(event.body[6] & _STATEMENT_END) if len(event.body) > 6 else False
        if number in within.maps:
            body, kind = event.body, event.kind
            if kind in COMPRESSED_ROWS:
                kind = COMPRESSED_ROWS[kind]
                body = plain_rows(body, first_version=kind < EventType.WRITE_ROWS, update=kind in _UPDATES)
            known = within.maps[number]
            if known is not None:
                path, described = known
                within.changed.add(path)
                if within.wanted and (self._prepared or self._keeps or not within.held):
                    rows = RowsEvent(
                        within.transaction,
                        kind,
                        event.start,
                        within.ordinal,
                        described,
                        body,
                        within.thread,
                        within.query,
                    )
                    yield HeldRows(rows) if within.held and not self._prepared else rows
            # Each row has a byte at least, so that the number of bytes bounds that of rows without reading them.
            within.ordinal += len(body)
        elif number != _NO_TABLE:
            raise FormatError("Rows are of a table that was not described before.")
        if last:
            within.maps.clear()
            within.query = None

    def _query(self, event: Event) -> Iterator[Step]:
        query = read_query(plain_query(event.body) if event.kind == EventType.QUERY_COMPRESSED else event.body)
        text = query.text
        parsed = read_statement(text, by_server=bool(event.flags & _WITHOUT_DATABASE))
        within = self._open
        if within is None:
            begun = parsed.meaning in (Meaning.BEGIN, Meaning.XA_START)
            within = self._begin(event, GtidStart(None), begun=begun)
        elif parsed.meaning in (Meaning.BEGIN, Meaning.XA_START):
            within.begun = True
        within.held |= parsed.meaning is Meaning.XA_START
        within.thread = query.thread if event.kind != EventType.QUERY_COMPRESSED or query.thread else None
        if query.microseconds is not None and not within.begun and within.transaction.time % _MICROSECONDS == 0:
            within.transaction = replace(within.transaction, time=within.transaction.time + query.microseconds)
        match parsed.meaning:
            case Meaning.ROWS | Meaning.UNKNOWN:
                self._require_foreign(parsed, text, (query.database, *query.databases))
            case Meaning.ROLLBACK | Meaning.ROLLBACK_TO:
                self._require_unchanged(within)
            case Meaning.XA_COMMIT | Meaning.XA_ROLLBACK if parsed.xid is not None and within.wanted:
                yield Decided(within.transaction, parsed.xid, parsed.meaning is Meaning.XA_COMMIT)
            case meaning if meaning in _OF_TABLES and not within.without_effect:
                statement = self._with_databases(parsed, query.database)
                self.altered |= within.wanted and meaning is not Meaning.TRUNCATE
                if within.wanted and self._concerned(statement):
                    within.ordinal += 1
                    yield StatementEvent(
                        within.transaction,
                        event.start,
                        within.ordinal - 1,
                        query.thread,
                        statement,
                        text,
                        query.database,
                    )
        if parsed.meaning in (Meaning.COMMIT, Meaning.ROLLBACK) or not within.begun:
            yield from self._ended()

    def _with_databases(self, statement: Statement, database: str) -> Statement:
        """A statement with whole names of tables, as rows of these have them."""

        def whole(table: Named) -> Named:
            named = Named(database if table.database is None else table.database, table.name)
            return self._written.get(((named.database or "").lower(), named.name.lower()), named)

        return replace(
            statement,
            tables=tuple(map(whole, statement.tables)),
            renamed=tuple((whole(old), whole(new)) for old, new in statement.renamed),
        )

    def _concerned(self, statement: Statement) -> bool:
        return any(
            (table.database, table.name) in self._tables or (not table.name and table.database in self._databases)
            for table in statement.tables
        )

    def _require_foreign(self, statement: Statement, text: str, databases: Collection[str]) -> None:
        """Stop for a statement that changes rows, where they may be those of a captured table."""
        if self._databases.isdisjoint(databases) and self._words.isdisjoint(names_in(text)):
            return
        if statement.meaning is Meaning.ROWS:
            raise _as_text(statement.words)
        raise CaptureError(
            f"A statement is not understood, and may change captured tables: {statement.words or 'it has no words'}",
            remedy="Read the tables again with a new checkpoint, and report the statement.",
        )

    def _require_unchanged(self, within: _Open) -> None:
        if within.changed and within.wanted:
            tables = ", ".join(sorted(within.changed))
            raise CaptureError(
                f"A transaction is rolled back after it changed tables that know transactions and others: {tables}.",
                remedy="Give the tables the engine InnoDB, and start with a new checkpoint.",
            )


def _as_text(words: str) -> CaptureError:
    return CaptureError(
        f"A change is logged as a statement, without its rows: {words}",
        remedy="Run SET GLOBAL binlog_format = 'ROW', end the sessions that began before, and start with a new "
        "checkpoint, so that the tables are read again.",
    )
