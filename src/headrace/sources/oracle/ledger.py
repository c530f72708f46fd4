"""Which transactions are open, and which were committed when: the indexes of mined ranges together.

Pure; no database. A transaction's rows may lie in any number of ranges; it is known here by counts and by the ranges
that hold its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.sources.oracle import scn
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.range_index import MinedTransaction, RangeIndex
from headrace.sources.oracle.scn import ScnRange

_UNKNOWN_SEQUENCE = "ffffffff"


@dataclass
class Transaction:
    """A transaction.

    Args:
        xid: its id, in hexadecimal digits.
        start: the SCN at which it began; None when that is not known.
        start_time: when, by the server's clock; None when not known.
        user: whose; None when not known.
        first: the SCN of its first row; None without rows.
        rows: how many mined rows it has.
        undo: how many of them take others back.
        ranges: the ranges that hold them, oldest first.
        commit: the SCN of its commit; None while it is open.
        time: when it was committed, by the server's clock.
        thread: the redo thread of its commit.
        rs_id: the record of its commit.
        ssn: the number in that record.
        zone: the offset of the server's clock.
        dropped: whether it is a replication's and has no events.
    """

    xid: str
    start: int | None = None
    start_time: str | None = None
    user: str | None = None
    first: int | None = None
    rows: int = 0
    undo: int = 0
    ranges: list[ScnRange] = field(default_factory=list)
    commit: int | None = None
    time: str | None = None
    thread: int = 0
    rs_id: str = ""
    ssn: int = 0
    zone: str = "+00:00"
    dropped: bool = False

    @property
    def begin(self) -> int | None:
        """The SCN from which mining has to see it."""
        known = [at for at in (self.start, self.first) if at is not None]
        return min(known) if known else None

    @property
    def order(self) -> tuple[int, int, str, int]:
        """Its position among committed ones."""
        return (self.commit or 0, self.thread, scn.rs_order(self.rs_id), self.ssn)


class OpenTransaction(NamedTuple):
    """What an offset keeps of an open transaction, because the range of its beginning may be gone.

    Attributes:
        start: the SCN at which it began.
        start_time: when, by the server's clock.
        user: whose; None when not known.
    """

    start: int
    start_time: str | None
    user: str | None


class Ledger:
    """Takes in ranges, oldest first.

    Args:
        known: the open transactions whose beginning is in none of the ranges, by id.
        excluded: users whose transactions are not delivered.
    """

    def __init__(self, known: Mapping[str, OpenTransaction], excluded: Iterable[str] = ()) -> None:
        self._excluded = frozenset(excluded)
        self._open = {xid: Transaction(xid, *transaction) for xid, transaction in known.items()}
        self.committed: list[Transaction] = []
        self.ended: dict[str, int] = {}

    def take(self, scns: ScnRange, index: RangeIndex) -> None:
        for xid, mined in index.transactions.items():
            self._take(scns, xid, mined, index.zone)

    def _take(self, scns: ScnRange, xid: str, mined: MinedTransaction, zone: str) -> None:
        if mined.end is not None and not mined.end.committed and xid.endswith(_UNKNOWN_SEQUENCE):
            # The sequence is unknown: the one open transaction of that segment and slot, if it is just one.
            alike = [known for known in self._open if known[:8] == xid[:8]]
            if len(alike) == 1:
                del self._open[alike[0]]
            return
        transaction = self._open.get(xid)
        start = mined.start
        if transaction is None or (start is not None and transaction.start != start):
            # A beginning of a known id: the id was used again.
            transaction = Transaction(xid)
            self._open[xid] = transaction
        transaction.start = start if start is not None else transaction.start
        transaction.start_time = mined.start_time or transaction.start_time
        transaction.user = transaction.user or mined.user
        transaction.dropped |= mined.replicated
        if mined.rows:
            transaction.rows += mined.rows
            transaction.undo += mined.undo
            transaction.ranges.append(scns)
            transaction.first = mined.first if transaction.first is None else transaction.first
        end = mined.end
        if end is None:
            return
        del self._open[xid]
        if end.committed:
            transaction.commit, transaction.time, transaction.thread = end.scn, end.time, end.thread
            transaction.rs_id, transaction.ssn, transaction.zone = end.rs_id, end.ssn, zone
            self.committed.append(transaction)

    def delivered_by(self, after: int, upto: int) -> list[Transaction]:
        """The transactions with rows whose commits are in (after, upto], in the order of their commits."""
        delivered = [t for t in self.committed if t.commit is not None and after < t.commit <= upto]
        wanted = (t for t in delivered if t.rows and not t.dropped and t.user not in self._excluded)
        return sorted(wanted, key=lambda t: t.order)

    def pending(self, upto: int) -> list[Transaction]:
        """The transactions that are not committed up to an SCN."""
        later = [t for t in self.committed if t.commit is not None and t.commit > upto]
        return [*self._open.values(), *later]

    def open_at(self, upto: int) -> dict[str, OpenTransaction]:
        """The transactions that began up to an SCN and are not committed up to it, by id."""
        return {
            t.xid: OpenTransaction(t.start, t.start_time, t.user)
            for t in self.pending(upto)
            if t.start is not None and t.start <= upto
        }

    def newest_commits(self, upto: int, before: Mapping[str, str]) -> dict[str, str]:
        """For each redo thread its newest commit up to an SCN, as `scn:thread:xid-xid`."""
        by_table: dict[str, tuple[int, list[str]]] = {}
        for transaction in self.committed:
            at, thread = transaction.commit, str(transaction.thread)
            if at is None or at > upto:
                continue
            newest = by_table.get(thread, (0, []))
            if at > newest[0]:
                by_table[thread] = (at, [transaction.xid])
            elif at == newest[0]:
                newest[1].append(transaction.xid)
        newest_of_threads = {
            thread: f"{at}:{thread}:{'-'.join(sorted(xids))}" for thread, (at, xids) in by_table.items()
        }
        return {**before, **newest_of_threads}


def excluded_users(settings: OracleSettings) -> tuple[str, ...]:
    return ("SYS", "SYSTEM", *settings.users_excluded)


def of_ranges(
    known: Mapping[str, OpenTransaction], ranges: Iterable[tuple[ScnRange, RangeIndex]], excluded: Iterable[str] = ()
) -> Ledger:
    """The transactions of some ranges together."""
    ledger = Ledger(known, excluded)
    for scns, index in ranges:
        ledger.take(scns, index)
    return ledger
