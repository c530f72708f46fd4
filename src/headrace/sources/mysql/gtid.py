"""GTIDs of MySQL and of MariaDB: the events that begin a transaction and name it, and sets of GTIDs with their
holes.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self
from uuid import UUID

from headrace.sources.mysql.events import EventBytes

_STANDALONE, _GROUP_COMMIT, _DDL, _PREPARED_XA, _COMPLETED_XA = 0x01, 0x02, 0x20, 0x40, 0x80
_START_ALTER, _ROLLBACK_ALTER = 0x02, 0x08
_LOGICAL_CLOCK = 2
_TOP_OF_56_BITS = 1 << 55
_FLAGS, _UUID, _NUMBER, _TAG, _LAST_COMMITTED, _SEQUENCE, _COMMIT_TIME = range(7)


@dataclass(frozen=True)
class Xid:
    """The name of a distributed transaction.

    Args:
        global_id, branch: its two parts.
        format: the number beside them.
    """

    global_id: bytes
    branch: bytes
    format: int

    @property
    def text(self) -> str:
        """As statements in the log name it: `X'...',X'...',1`."""
        return f"X'{self.global_id.hex()}',X'{self.branch.hex()}',{self.format}"


@dataclass(frozen=True)
class GtidStart:
    """What a GTID event says of the transaction that it begins.

    Args:
        gtid: the transaction's GTID; None where the server has none.
        time: when it was committed, in microseconds since 1970; None where the log does not say it.
        standalone: whether the transaction is the one event that follows, without a COMMIT.
        prepared: the distributed transaction that the transaction prepares.
        completed: the one that it commits or rolls back.
        without_effect: whether its statement changes nothing here: an ALTER that only begins, or that failed after it
            had begun.
    """

    gtid: str | None
    time: int | None = None
    standalone: bool = False
    prepared: Xid | None = None
    completed: Xid | None = None
    without_effect: bool = False


def read_gtid(body: bytes) -> GtidStart:
    """MySQL's GTID or ANONYMOUS_GTID event.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(body, "GTID")
    data.number(1)
    uuid, number = data.take(16), data.number(8)
    time = None
    if data.left and data.number(1) == _LOGICAL_CLOCK:
        data.take(16)
        if data.left:
            time = data.number(7) & ~_TOP_OF_56_BITS
    return GtidStart(f"{UUID(bytes=uuid)}:{number}" if number else None, time)


def read_tagged_gtid(body: bytes) -> GtidStart:
    """MySQL's GTID event of a transaction whose GTID has a tag.

    Raises:
        FormatError: it is cut off or has an unknown part before those that are needed.
    """
    data = EventBytes(body, "GTID_TAGGED")
    if _prefix_coded(data) != 1:
        raise data.wrong("is of an unknown version")
    _prefix_coded(data)
    _prefix_coded(data)
    uuid, number, tag, time = b"", 0, "", None
    while data.left and time is None:
        field = _prefix_coded(data)
        if field == _UUID:
            uuid = bytes(_prefix_coded(data) & 0xFF for _ in range(16))
        elif field == _NUMBER:
            number = _signed(_prefix_coded(data))
        elif field == _TAG:
            tag = data.utf8(data.take(_prefix_coded(data)))
        elif field == _COMMIT_TIME:
            time = _prefix_coded(data)
        elif field in (_FLAGS, _LAST_COMMITTED, _SEQUENCE):
            _prefix_coded(data)
        else:
            raise data.wrong(f"has the unknown part {field}")
    if len(uuid) != 16 or number <= 0:
        raise data.wrong("does not say its GTID")
    return GtidStart(f"{UUID(bytes=uuid)}:{f'{tag}:' if tag else ''}{number}", time)


def _prefix_coded(data: EventBytes) -> int:
    """A number whose first byte ends with a one bit for each byte that follows."""
    first = data.number(1)
    more = (~first & (first + 1)).bit_length() - 1
    if more >= 8:
        return data.number(8)
    return (first | data.number(more) << 8) >> (more + 1)


def _signed(value: int) -> int:
    """A number whose lowest bit is its sign."""
    return ~(value >> 1) if value & 1 else value >> 1


def read_mariadb_gtid(body: bytes, server: int) -> GtidStart:
    """MariaDB's GTID event.

    Args:
        body: of the event.
        server: the server in the event's header.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(body, "GTID")
    number, domain, flags = data.number(8), data.number(4), data.number(1)
    if flags & _GROUP_COMMIT:
        data.number(8)
    xid = None
    if flags & (_PREPARED_XA | _COMPLETED_XA):
        form, first, second = data.number(4), data.number(1), data.number(1)
        xid = Xid(data.take(first), data.take(second), form)
    extra = data.number(1) if data.left else 0
    return GtidStart(
        f"{domain}-{server}-{number}",
        standalone=bool(flags & _STANDALONE),
        prepared=xid if flags & _PREPARED_XA else None,
        completed=xid if flags & _COMPLETED_XA else None,
        without_effect=bool(extra & (_START_ALTER | _ROLLBACK_ALTER)),
    )


@dataclass(frozen=True)
class XaPrepare:
    """An XA_PREPARE event.

    Args:
        xid: the transaction.
        one_phase: whether it is committed by this.
    """

    xid: Xid
    one_phase: bool


def read_xa_prepare(body: bytes) -> XaPrepare:
    """An XA_PREPARE event.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(body, "XA_PREPARE")
    one_phase, form, first, second = data.number(1), data.number(4), data.number(4), data.number(4)
    return XaPrepare(Xid(data.take(first), data.take(second), form), bool(one_phase))


_SET_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}", re.ASCII)
_INTERVAL = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)", re.ASCII)
_TAGGED = 1 << 56
_COUNT_BITS = 28

Intervals = tuple[tuple[int, int], ...]
"""First and last number of each run, ascending, with holes between them."""


class GtidSet(ABC):
    """Which transactions are in a log or an offset. Sets are never changed; `add` gives another one."""

    @classmethod
    @abstractmethod
    def of(cls, text: str) -> Self:
        """The set of a text, as the server writes it.

        Raises:
            ValueError: it is none.
        """

    @property
    @abstractmethod
    def text(self) -> str:
        """As the server writes it."""

    @abstractmethod
    def add(self, gtids: Iterable[str]) -> Self:
        """The set with more transactions."""

    @abstractmethod
    def contains(self, other: Self) -> bool:
        """Whether all transactions of another set are in this one."""

    @abstractmethod
    def has(self, gtid: str) -> bool:
        """Whether one transaction is in it."""

    @abstractmethod
    def continues(self, other: Self) -> bool:
        """Whether a server whose log has these transactions goes on from where one with the other set was."""


@dataclass(frozen=True)
class MysqlGtidSet(GtidSet):
    """A set of MySQL's GTIDs.

    Args:
        runs: for each `uuid` or `uuid:tag` the numbers that are in it.
    """

    runs: Mapping[str, Intervals] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Self:
        by_source: dict[str, list[tuple[int, int]]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            words = [word.strip() for word in part.split(":")]
            source = str(UUID(words[0]))
            name = source
            for word in words[1:]:
                interval = _INTERVAL.fullmatch(word)
                if interval is not None:
                    first = int(interval[1])
                    by_source.setdefault(name, []).append((first, int(interval[2] or first)))
                elif _SET_TAG.fullmatch(word.lower()):
                    name = f"{source}:{word.lower()}"
                else:
                    raise ValueError(f"not a set of GTIDs: {text!r}")
        return cls({name: _merged(runs) for name, runs in by_source.items()})

    @property
    def text(self) -> str:
        """As the server writes it, with the parts of one UUID together."""
        parts: dict[str, str] = {}
        for name in sorted(self.runs):
            source, _, tag = name.partition(":")
            runs = ":".join(f"{first}" if first == last else f"{first}-{last}" for first, last in self.runs[name])
            parts[source] = f"{parts.get(source, source)}:{f'{tag}:' if tag else ''}{runs}"
        return ",".join(parts.values())

    def add(self, gtids: Iterable[str]) -> Self:
        added: dict[str, list[tuple[int, int]]] = {}
        for gtid in gtids:
            name, _, number = gtid.rpartition(":")
            added.setdefault(name, []).append((int(number), int(number)))
        return self._with(added)

    def contains(self, other: Self) -> bool:
        return all(_within(runs, self.runs.get(name, ())) for name, runs in other.runs.items())

    def has(self, gtid: str) -> bool:
        name, _, number = gtid.rpartition(":")
        return _within(((int(number), int(number)),), self.runs.get(name, ()))

    def continues(self, other: Self) -> bool:
        """As of every set: it has all of its transactions."""
        return self.contains(other)

    def _with(self, added: Mapping[str, Iterable[tuple[int, int]]]) -> Self:
        runs = dict(self.runs)
        for name, more in added.items():
            runs[name] = _merged([*runs.get(name, ()), *more])
        return type(self)(runs)


def _merged(runs: Iterable[tuple[int, int]]) -> Intervals:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if not 0 < first <= last:
            raise ValueError(f"not numbers of GTIDs: {first}-{last}")
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def _within(runs: Intervals, others: Intervals) -> bool:
    firsts = [first for first, _ in others]
    for first, last in runs:
        position = bisect_right(firsts, first) - 1
        if position < 0 or others[position][1] < last:
            return False
    return True


@dataclass(frozen=True)
class MariadbGtidSet(GtidSet):
    """MariaDB's way: the last transaction of each domain, and that of each server in it.

    Args:
        last: the last number of each domain and server, in the order in which they came.
    """

    last: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Self:
        last: dict[tuple[int, int], int] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            gtid = _MARIADB.fullmatch(part)
            if gtid is None:
                raise ValueError(f"not GTIDs of MariaDB: {text!r}")
            _put(last, int(gtid[1]), int(gtid[2]), int(gtid[3]))
        return cls(last)

    @property
    def text(self) -> str:
        """One GTID for each domain, as `gtid_current_pos` and a replica's start have it."""
        newest = {domain: f"{domain}-{server}-{number}" for (domain, server), number in self.last.items()}
        return ",".join(newest[domain] for domain in sorted(newest))

    @property
    def whole_text(self) -> str:
        """One GTID for each domain and server, as `gtid_binlog_state` has it; the newest of a domain is its last."""
        listed = sorted(self.last.items(), key=lambda item: item[0][0])
        return ",".join(f"{domain}-{server}-{number}" for (domain, server), number in listed)

    def add(self, gtids: Iterable[str]) -> Self:
        """As of every set; what is added last is the newest."""
        last = dict(self.last)
        for gtid in gtids:
            domain, server, number = map(int, gtid.split("-"))
            _put(last, domain, server, number)
        return type(self)(last)

    def contains(self, other: Self) -> bool:
        """Whether of each domain of the other one the newest transaction is here too.

        In a domain numbers ascend over all servers where `gtid_strict_mode` is on.
        """
        here, there = self._newest(), other._newest()
        return all(number <= here.get(domain, -1) for domain, number in there.items())

    def has(self, gtid: str) -> bool:
        domain, _, number = map(int, gtid.split("-"))
        return number <= self._newest().get(domain, -1)

    def continues(self, other: Self) -> bool:
        """Whether of each domain of the other one the newest transaction is here too, from the server that it came
        from.

        That of another server with its number is another transaction.
        """
        newest = {domain: (server, number) for (domain, server), number in other.last.items()}
        return all(number <= self.last.get((domain, server), -1) for domain, (server, number) in newest.items())

    def _newest(self) -> dict[int, int]:
        return {domain: number for (domain, _), number in self.last.items()}


def _put(last: dict[tuple[int, int], int], domain: int, server: int, number: int) -> None:
    """Make a transaction the newest of its domain."""
    last.pop((domain, server), None)
    last[domain, server] = number


def read_previous_gtids(body: bytes) -> MysqlGtidSet:
    """MySQL's PREVIOUS_GTIDS event: all transactions that are in no file from this one on.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(body, "PREVIOUS_GTIDS")
    count = data.number(8)
    tagged = count >> 56 == 1
    if tagged:
        count = (count & (_TAGGED - 1)) >> 8
    runs: dict[str, Intervals] = {}
    for _ in range(count):
        name = str(UUID(bytes=data.take(16)))
        if tagged:
            tag = data.utf8(data.take(data.number(1) >> 1))
            name = f"{name}:{tag}" if tag else name
        intervals = [(data.number(8), data.number(8) - 1) for _ in range(data.number(8))]
        try:
            runs[name] = _merged(intervals)
        except ValueError:
            raise data.wrong("has numbers that are none of GTIDs") from None
    data.finish()
    return MysqlGtidSet(runs)


def read_gtid_list(body: bytes) -> MariadbGtidSet:
    """MariaDB's GTID_LIST event: the last transaction of each domain and server before this file.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(body, "GTID_LIST")
    count = data.number(4) & ((1 << _COUNT_BITS) - 1)
    last: dict[tuple[int, int], int] = {}
    for _ in range(count):
        domain, server = data.number(4), data.number(4)
        _put(last, domain, server, data.number(8))
    return MariadbGtidSet(last)
