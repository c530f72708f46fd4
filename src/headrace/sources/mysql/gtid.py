"""The events that begin a transaction, and what they name it: the GTIDs of MySQL and of MariaDB."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from headrace.sources.mysql.event_bytes import EventBytes

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
