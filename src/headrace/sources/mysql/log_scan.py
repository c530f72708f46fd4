"""What a window of the binary log has, before tasks read it: where it may end and be cut, and whether it has rows.

No row is decoded. The window ends between transactions, and (start, end] of it is decided by the log alone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from headrace.sources.mysql.binlog_position import BinlogPosition
from headrace.sources.mysql.events import event_at
from headrace.sources.mysql.ordinary import Run
from headrace.sources.mysql.statements import Meaning
from headrace.sources.mysql.table_map import table_named
from headrace.sources.mysql.table_states import TableStatement
from headrace.sources.mysql.transactions import (
    Decided,
    Prepared,
    RowsEvent,
    StatementEvent,
    Transaction,
    TransactionEnd,
    TransactionReader,
)


@dataclass(frozen=True)
class ScanResult:
    """What was found.

    Args:
        until: the boundary up to which that is.
        rows: whether it has rows or statements of captured tables.
        time: when the last transaction with such was committed.
        gtids: the transactions that it has, in order; empty where the log has no GTIDs.
        cuts: the boundaries at which several tasks may share it, without its own edges.
        prepared: the distributed transactions that are not decided at its end.
        statements: those that concern captured tables, but for TRUNCATE.
        rows_of: for each description of a captured table, and how many of the statements stand in front of its rows,
            where the last transaction with such rows begins, as `BinlogPosition.text`.
        altered: whether tables, captured or not, are made, altered or dropped in it.
    """

    until: BinlogPosition
    rows: bool = False
    time: dt.datetime | None = None
    gtids: tuple[str, ...] = ()
    cuts: tuple[BinlogPosition, ...] = ()
    prepared: tuple[Prepared, ...] = ()
    statements: tuple[TableStatement, ...] = ()
    rows_of: Mapping[tuple[bytes, int], str] = field(default_factory=dict)
    altered: bool = False

    @property
    def tables(self) -> frozenset[tuple[str, str]]:
        """Database and name of the captured tables that it has rows of."""
        return frozenset(table_named(described) for described, _ in self.rows_of)


class LogScan:
    """Scans the events of a window that come one after another.

    Args:
        start, end: boundaries; the window ends at the latest at the second one.
        tables: database and name of each captured table, as the log writes them.
        commits: how many transactions with rows of captured tables are wanted at the most; 0 for no bound.
        cut_bytes: a task reads about so many bytes of the log.
        prepared: the distributed transactions that are known not to be decided at its start.
        earlier: finds another one that was prepared before the start, by its name; without it, such are passed over.
        folds_names: see `ServerKind`.
    """

    def __init__(
        self,
        start: BinlogPosition,
        end: BinlogPosition,
        tables: Collection[tuple[str, str]],
        *,
        commits: int,
        cut_bytes: int,
        prepared: Collection[Prepared] = (),
        earlier: Callable[[str], Prepared] | None = None,
        folds_names: bool = False,
    ) -> None:
        self._reader = TransactionReader(start, end, tables, folds_names=folds_names)
        self._commits, self._cut_bytes = commits, cut_bytes
        self._until = start
        self._counted = 0
        self._last: Transaction | None = None
        self._gtids: list[str] = []
        self._cuts: list[BinlogPosition] = []
        self._since = 0
        self._has_rows = False
        self._end = end
        self._prepared = {one.xid: one for one in prepared}
        self._within: set[str] = set()
        self._earlier = earlier
        self._rows_of: dict[tuple[bytes, int], str] = {}
        self._statements: list[TableStatement] = []

    @property
    def finished(self) -> bool:
        """Whether nothing more is to be taken."""
        return self._reader.finished or bool(self._commits and self._counted >= self._commits)

    @property
    def boundary(self) -> BinlogPosition | None:
        return self._reader.boundary

    @property
    def scan(self) -> ScanResult:
        """What was found so far. A window that was read to its end reaches there, whatever is between transactions."""
        is_full = bool(self._commits and self._counted >= self._commits)
        until = self._end if self._reader.finished and not is_full else self._until
        time = None
        if self._last is not None:
            time = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=self._last.time)
        cuts = tuple(cut for cut in self._cuts if cut < self._until)
        return ScanResult(
            until,
            self._last is not None,
            time,
            tuple(self._gtids),
            cuts,
            tuple(self._prepared.values()),
            tuple(self._statements),
            dict(self._rows_of),
            self._reader.altered,
        )

    def finish(self) -> None:
        """See that nothing is missing where the log ended.

        Raises:
            FormatError: it ended inside of a transaction, or before the window's end.
        """
        if not self.finished:
            self._reader.finish()

    def take(self, data: bytes | memoryview) -> None:
        """Take whole events, one after another, as the server sent them; nothing is taken after the end.

        Raises:
            FormatError: an event is damaged, or stands where it can't.
            CaptureError: it may concern a captured table and can't be read.
        """
        position, view = 0, memoryview(data)
        while position < len(view) and not self.finished:
            run = self._reader.run(view, position)
            if run is not None:
                self._take_run(run, position)
                position = run.after
                continue
            event = event_at(view, position)
            position += len(event)
            self._take_event(event)

    def _take_run(self, run: Run, first: int) -> None:
        """Ordinary transactions, up to the last one that is wanted; or statements of one."""
        captured = np.array([self._reader.is_captured(described) for described in run.maps], np.bool_)
        events = captured[run.of]
        if run.inside:
            self._since += run.after - first
            begins = self._reader.position.at(run.positions[0]).text
            for described in np.unique(run.of[events]).tolist():
                self._has_rows = True
                self._rows_of[run.maps[described], len(self._statements)] = begins
            return
        with_rows = set(np.unique(run.events[events, 0]).tolist())
        after = self._reader.position
        ends = [*run.positions[1:], after.position]
        for number, (start, end, gtid) in enumerate(zip(run.positions, ends, run.gtids, strict=True)):
            if gtid is not None:
                self._gtids.append(gtid)
            self._since += end - start
            if self._since >= self._cut_bytes and not self._within:
                self._cuts.append(after.at(end))
                self._since = 0
            if number in with_rows:
                self._counted += 1
                if self._counted == self._commits:
                    break
        taken = events & (run.events[:, 0] <= number)
        for described in np.unique(run.of[taken]).tolist():
            transaction_facts = int(run.events[taken & (run.of == described), 0].max())
            # No statement stands among them.
            self._rows_of[run.maps[described], len(self._statements)] = after.at(run.positions[transaction_facts]).text
        last = max((n for n in with_rows if n <= number), default=None)
        if last is not None:
            self._last = Transaction(after.at(run.positions[last]), run.gtids[last], run.times[last], run.servers[last])
        self._until = after.at(ends[number])

    def _take_event(self, data: bytes) -> None:
        self._since += len(data)
        for step in self._reader.read(data):
            if isinstance(step, TransactionEnd):
                self._ended(step)
            elif isinstance(step, Prepared):
                self._prepared[step.xid] = step
                self._within.add(step.xid)
            elif isinstance(step, Decided):
                self._decided(step)
            elif isinstance(step, RowsEvent):
                self._has_rows = True
                self._rows_of[step.described, len(self._statements)] = step.transaction.position.text
            elif isinstance(step, StatementEvent):
                self._has_rows = True
                if step.statement.meaning is not Meaning.TRUNCATE:
                    self._statements.append(TableStatement(step.transaction.position.text, step.statement, step.text))

    def _decided(self, step: Decided) -> None:
        """It brings the rows that were held for it, if there are any."""
        self._within.discard(step.xid)
        held = self._prepared.pop(step.xid, None)
        if not step.committed:
            return
        if held is None and self._earlier is not None:
            held = self._earlier(step.xid)
        self._has_rows |= held is not None and held.captured

    def _ended(self, step: TransactionEnd) -> None:
        self._until = step.end
        if step.transaction.gtid is not None:
            self._gtids.append(step.transaction.gtid)
        if self._has_rows:
            self._last = step.transaction
            self._counted += 1
        self._has_rows = False
        # Who reads the end of a distributed transaction has to know where it was prepared: before the window, or in
        # the same part of it.
        if self._since >= self._cut_bytes and not self._within:
            self._cuts.append(step.end)
            self._since = 0
