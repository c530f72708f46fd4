"""The planner's own reader of the log, which says whether the log has anything for the captured tables.

Other tables and databases write the log too, and a batch for each of their commits is not wanted. So the planner keeps
one session with a temporary copy of the slot and drains it at each plan. It stops at the first row, unless it is asked
to count commits or to find signals: then it reads through.

It runs in the driver's Python process and is thrown away when its session breaks. Nothing depends on what it saw
before: offsets decide what is read.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from headrace.sources.postgresql import pgoutput
from headrace.sources.postgresql.connection import ReplicationConnection
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.relation import Relation
from headrace.sources.postgresql.slots import copy_reader
from headrace.sources.signals import SIGNAL_COLUMNS, Signal, say

_HEADER = 25
"""Bytes before the message in a payload with data."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WAIT_SECONDS = 0.02
_LONGEST_SECONDS = 5.0
"""How long one plan waits for a sender that is busy with what was committed before the window."""


@dataclass(frozen=True)
class ScanResult:
    """What the log has after the scan's beginning.

    Args:
        until: the boundary up to which that is known.
        rows: whether there is anything to read before it.
        commit_time: when the last commit with rows was made, as far as they were read.
        signals: what signals ask for, each with the LSN of its commit record.
    """

    until: int
    rows: bool = False
    commit_time: dt.datetime | None = None
    signals: tuple[tuple[int, Signal], ...] = ()


@dataclass
class _Transaction:
    """The transaction whose messages come now."""

    commit: int = 0
    time: dt.datetime | None = None
    rows: bool = False
    signals: list[Signal] = field(default_factory=list)


class LogScan:
    """Scans the log from a boundary on.

    Args:
        settings: the source's options.
        start: the boundary at which it begins.
        oids: the numbers of the tables that count.
        signal_table: schema and name of the signal table; None where there is none.

    Raises:
        PostgresError: the slot can't be copied.
    """

    def __init__(
        self,
        settings: PostgresSettings,
        start: int,
        oids: frozenset[int],
        signal_table: tuple[str, str] | None,
    ) -> None:
        self.start = start
        self._settings = settings
        self.oids = oids
        self._signal_table = signal_table
        self._finds_signals = signal_table is not None or bool(settings.signal_prefix)
        self._stack = ExitStack()
        self._reader: ReplicationConnection = self._stack.enter_context(copy_reader(settings, start))
        self._waiting: deque[bytes] = deque()
        self._relations: dict[int, bool] = {}
        self._signal_relations: set[int] = set()
        self._open = _Transaction()
        self._result = ScanResult(start)

    @property
    def reads_through(self) -> bool:
        """Whether it goes on after the first row."""
        return bool(self._settings.max_commits_per_trigger) or self._finds_signals

    def close(self) -> None:
        """Give the slot back."""
        self._stack.close()

    def upto(self, head: int, commits: int = 0) -> ScanResult:
        """What there is from the beginning to a boundary.

        Args:
            head: the boundary; the log is written up to there.
            commits: how many commits with rows are wanted at the most; 0 for no bound. The result's `until` is behind
                the last of them.
        """
        through = bool(commits) or self.reads_through
        counted, deadline = 0, time.monotonic() + _LONGEST_SECONDS
        while self._result.until < head:
            if not self._waiting:
                self._waiting.extend(self._reader.receive(_WAIT_SECONDS))
            if not self._waiting:
                if time.monotonic() > deadline:
                    break
                continue
            if _begins_at(self._waiting[0]) >= head:
                # It belongs to a later window, and everything before it has come.
                self._reach(head)
                break
            had_rows = self._take(self._waiting.popleft())
            if self._result.rows and not through:
                break
            counted += had_rows
            if commits and counted >= commits:
                break
        return self._result

    def forget_before(self, boundary: int) -> None:
        """A batch ends at this boundary, so the next scan begins there."""
        self.start = boundary
        signals = tuple((commit, signal) for commit, signal in self._result.signals if commit >= boundary)
        # Rows that were seen after it are still there to be read.
        rows = self._result.rows and self._result.until > boundary
        self._result = replace(self._result, until=max(self._result.until, boundary), rows=rows, signals=signals)

    def _take(self, payload: bytes) -> bool:
        """Take one payload; gives whether it ended a transaction with rows."""
        if payload[0] == ord("k"):
            self._reach(int.from_bytes(payload[1:9], "big"))
            return False
        kind = chr(payload[_HEADER])
        if kind in "IUD":
            oid = int.from_bytes(payload[_HEADER + 1 : _HEADER + 5], "big")
            if self._relations.get(oid, True):
                self._open.rows = True
                if not self._result.rows:
                    self._result = replace(self._result, rows=True)
            if kind == "I" and oid in self._signal_relations:
                self._signal_row(payload)
            return False
        if kind in "BCRTM":
            return self._read(kind, payload)
        return False

    def _read(self, kind: str, payload: bytes) -> bool:
        message = _content(payload)
        if isinstance(message, pgoutput.Begin):
            self._open = _Transaction(message.commit, _EPOCH + dt.timedelta(microseconds=message.time))
        elif isinstance(message, pgoutput.Commit):
            ended = self._open
            committed = tuple((ended.commit, signal) for signal in ended.signals)
            self._result = replace(
                self._result,
                rows=self._result.rows or ended.rows,
                commit_time=ended.time if ended.rows else self._result.commit_time,
                signals=self._result.signals + committed,
            )
            # Any position after the commit record's beginning ends a window with this commit in it.
            self._reach(ended.commit + 1)
            self._open = _Transaction()
            return ended.rows
        if isinstance(message, Relation):
            relation = message
            self._relations[relation.oid] = relation.oid in self.oids
            if self._signal_table == (relation.schema, relation.name):
                self._signal_relations.add(relation.oid)
        elif isinstance(message, pgoutput.Truncate):
            if any(self._relations.get(oid, True) for oid in message.oids):
                self._open.rows = True
                self._result = replace(self._result, rows=True)
        elif isinstance(message, pgoutput.Message):
            self._logical(message)
        return False

    def _reach(self, boundary: int) -> None:
        self._result = replace(self._result, until=max(self._result.until, boundary))
        self._reader.confirm(self._result.until)

    def _logical(self, message: pgoutput.Message) -> None:
        if self._settings.signal_prefix and message.prefix == self._settings.signal_prefix:
            signal = _signal_of(message.content)
            if signal is None:
                say(f"A message with the prefix '{message.prefix}' is no JSON object with id and type; it is skipped.")
            elif message.transactional:
                self._open.signals.append(signal)
            else:
                self._result = replace(self._result, signals=(*self._result.signals, (message.lsn - 1, signal)))
        elif self._settings.messages:
            if message.transactional:
                self._open.rows = True
            self._result = replace(self._result, rows=True)

    def _signal_row(self, payload: bytes) -> None:
        message = _content(payload)
        assert isinstance(message, pgoutput.Insert)
        texts = [cell if isinstance(cell, str) else None for cell in message.new[:SIGNAL_COLUMNS]]
        id, kind, data = (*texts, None, None, None)[:SIGNAL_COLUMNS]
        self._open.signals.append(Signal(id or "", kind or "", data))


def _content(payload: bytes) -> pgoutput.Content:
    content = pgoutput.read(payload)
    assert isinstance(content, pgoutput.XLogData)
    return content.content


def _begins_at(payload: bytes) -> int:
    """The LSN of the commit record of the transaction that a payload begins; -1 for all others."""
    if payload[0] != ord("w") or payload[_HEADER] != ord("B"):
        return -1
    return int.from_bytes(payload[_HEADER + 1 : _HEADER + 9], "big")


def _signal_of(content: bytes) -> Signal | None:
    try:
        parsed = json.loads(content)
    except ValueError:
        return None
    if not isinstance(parsed, dict) or "type" not in parsed:
        return None
    data = parsed.get("data")
    text = data if isinstance(data, str) or data is None else json.dumps(data)
    return Signal(str(parsed.get("id", "")), str(parsed["type"]), text)
