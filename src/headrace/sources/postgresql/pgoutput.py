"""The messages of the plugin pgoutput, protocol version 1, one at a time.

What comes rarely is read here. Rows of tables are read by `wire.pgoutput_kernels`, which this reader is the measure of.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

from headrace.errors import CaptureError, FormatError
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.relation import Relation, RelationColumn

EPOCH = 946_684_800_000_000
"""Microseconds from 1970 to 2000, where the server's clock begins."""
_LARGE = frozenset("SEcA")
_PREPARED = frozenset("bPKr")


@dataclass(frozen=True)
class Begin:
    """The beginning of a transaction.

    Args:
        commit: the LSN of its commit record.
        time: when it was committed, in microseconds since 1970.
        xid: its number.
    """

    commit: int
    time: int
    xid: int


@dataclass(frozen=True)
class Commit:
    """The end of a transaction.

    Args:
        commit: the LSN of its commit record.
        end: where the next record begins.
        time: as in `Begin`.
    """

    commit: int
    end: int
    time: int


@dataclass(frozen=True)
class Origin:
    """Where a transaction was first committed, which a subscription applied here.

    Args:
        commit: its LSN there.
        name: the origin's name here.
    """

    commit: int
    name: str


@dataclass(frozen=True)
class TypeMessage:
    """The name of a type that is not built in."""

    oid: int
    schema: str
    name: str


class Unchanged:
    """A value that is stored out of line and did not change, so that the log does not have it."""


UNCHANGED = Unchanged()
Cell: TypeAlias = "str | Unchanged | None"
Values: TypeAlias = tuple[Cell, ...]


@dataclass(frozen=True)
class Insert:
    """A new row of the table with this oid."""

    oid: int
    new: Values


@dataclass(frozen=True)
class Update:
    """A changed row.

    Args:
        oid: the table's.
        new: its values.
        old: what is said of the old row; None where nothing is.
        by_key: whether that is the replica identity's columns only. The others are null and mean nothing.
    """

    oid: int
    new: Values
    old: Values | None = None
    by_key: bool = False


@dataclass(frozen=True)
class Delete:
    """A row that is gone; arguments as of `Update`."""

    oid: int
    old: Values
    by_key: bool


@dataclass(frozen=True)
class Truncate:
    """Tables that were emptied by one statement."""

    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True)
class Message:
    """A logical message.

    Args:
        transactional: whether it belongs to the transaction that it stands in.
        lsn: where its record ends.
        prefix: what it is for.
        content: any bytes.
    """

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


@dataclass(frozen=True)
class Keepalive:
    """How far the server has decoded.

    Args:
        lsn: all transactions whose commit record begins before were sent.
        reply: whether an answer is asked for.
    """

    lsn: int
    reply: bool


Content: TypeAlias = Begin | Commit | Origin | Relation | TypeMessage | Insert | Update | Delete | Truncate | Message


@dataclass(frozen=True)
class XLogData:
    """A message of the plugin.

    Args:
        start: the LSN of what it says; 0 for some.
        content: what it says.
    """

    start: int
    content: Content


def read(payload: bytes) -> XLogData | Keepalive:
    """One payload of CopyData.

    Raises:
        FormatError: it has another length than its parts say, or is of no known kind.
        CaptureError: it is of a protocol that was not asked for.
    """
    return _Reader(payload).payload()


class _Reader:
    """What is left of one payload."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._place = 0
        self._start = 0

    def payload(self) -> XLogData | Keepalive:
        kind = self._letter()
        if kind == "k":
            position, _, reply = self._numbers(">qqB")
            message: XLogData | Keepalive = Keepalive(position, bool(reply))
        elif kind == "w":
            start, _, _ = self._numbers(">qqq")
            self._start = start
            message = XLogData(start, self._content(self._letter()))
        else:
            raise self._wrong(f"begins with {kind!r}")
        if self._place != len(self._payload):
            raise self._wrong("is longer than its parts")
        return message

    def _content(self, kind: str) -> Content:
        match kind:
            case "B":
                commit, time, xid = self._numbers(">qqI")
                return Begin(commit, time + EPOCH, xid)
            case "C":
                _, commit, end, time = self._numbers(">Bqqq")
                return Commit(commit, end, time + EPOCH)
            case "O":
                (commit,) = self._numbers(">q")
                return Origin(commit, self._string())
            case "R":
                return self._relation()
            case "Y":
                (oid,) = self._numbers(">I")
                return TypeMessage(oid, self._string() or "pg_catalog", self._string())
            case "I":
                return Insert(self._oid(), self._tuple("N")[1])
            case "U":
                oid = self._oid()
                letter, first = self._tuple("KON")
                if letter == "N":
                    return Update(oid, first)
                return Update(oid, self._tuple("N")[1], first, letter == "K")
            case "D":
                oid = self._oid()
                letter, old = self._tuple("KO")
                return Delete(oid, old, letter == "K")
            case "T":
                count, flags = self._numbers(">iB")
                return Truncate(tuple(self._oid() for _ in range(count)), bool(flags & 1), bool(flags & 2))
            case "M":
                return self._message()
        raise self._unknown(kind)

    def _relation(self) -> Relation:
        oid = self._oid()
        schema, name = self._string() or "pg_catalog", self._string()
        identity = self._letter()
        (count,) = self._numbers(">h")
        return Relation(oid, schema, name, identity, tuple(self._column() for _ in range(count)))

    def _column(self) -> RelationColumn:
        (flags,) = self._numbers(">B")
        name = self._string()
        kind, typmod = self._numbers(">Ii")
        return RelationColumn(name, kind, typmod, bool(flags & 1))

    def _message(self) -> Message:
        flags, position = self._numbers(">Bq")
        prefix = self._string()
        (size,) = self._numbers(">i")
        return Message(bool(flags & 1), position, prefix, self._bytes(size))

    def _tuple(self, letters: str) -> tuple[str, Values]:
        letter = self._letter()
        if letter not in letters:
            raise self._wrong(f"has a row that begins with {letter!r}")
        (count,) = self._numbers(">h")
        return letter, tuple(self._value() for _ in range(count))

    def _value(self) -> Cell:
        kind = self._letter()
        if kind == "n":
            return None
        if kind == "u":
            return UNCHANGED
        if kind != "t":
            raise self._wrong(f"has a value of kind {kind!r}")
        (size,) = self._numbers(">i")
        return self._text(self._bytes(size))

    def _oid(self) -> int:
        return self._numbers(">I")[0]

    def _numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._bytes(struct.calcsize(layout)))

    def _letter(self) -> str:
        return self._bytes(1).decode("latin-1")

    def _string(self) -> str:
        end = self._payload.find(b"\0", self._place)
        if end < 0:
            raise self._wrong("has a name without an end")
        raw = self._bytes(end - self._place)
        self._place += 1
        return self._text(raw)

    def _text(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise not_utf8(self._start) from None

    def _bytes(self, size: int) -> bytes:
        if size < 0 or self._place + size > len(self._payload):
            raise self._wrong("is shorter than its parts")
        taken = self._payload[self._place : self._place + size]
        self._place += size
        return taken

    def _wrong(self, what: str) -> FormatError:
        return FormatError(f"The message of pgoutput at {lsn.to_server(self._start)} {what}.")

    def _unknown(self, kind: str) -> FormatError | CaptureError:
        if kind in _PREPARED:
            return CaptureError(
                "The replication slot was made with two_phase and sends prepared transactions before they are "
                "committed, which can't be captured.",
                remedy="Make a slot without two_phase, or name one in the option 'slot'.",
            )
        if kind in _LARGE:
            return FormatError(
                f"The server sends a transaction at {lsn.to_server(self._start)} in parts before it is committed, "
                "which was not asked for."
            )
        return self._wrong(f"is of the unknown kind {kind!r}")


def not_utf8(start: int) -> CaptureError:
    """A text that is no UTF-8, of the change at an LSN."""
    return CaptureError(
        f"The change at {lsn.to_server(start)} holds text that is not UTF-8.",
        remedy="Mend the values of databases whose encoding is SQL_ASCII, which takes any bytes.",
    )
