"""A log of transactions, and the payloads that a server sends of one of its windows."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.sources.postgresql.pgoutput import (
    EPOCH,
    UNCHANGED,
    Begin,
    Commit,
    Content,
    Delete,
    Insert,
    Message,
    Origin,
    Truncate,
    TypeMessage,
    Update,
    Values,
)
from headrace.sources.postgresql.relation import Relation


@dataclass(frozen=True)
class Sent:
    """A transaction, or a logical message outside of one.

    Args:
        place: where its commit record begins; of a message where its record ends.
        end: where the next record begins.
        xid: the transaction's number.
        changes: what it says, with the state of the tables that each change is of.
        origin: where it came from.
    """

    place: int
    end: int
    xid: int
    changes: tuple[tuple[tuple[Relation, ...], Content], ...]
    origin: Origin | None = None

    @property
    def is_message(self) -> bool:
        return not self.xid


def window(log: Iterable[Sent], start: int, *, beyond: int) -> list[bytes]:
    """What a new session sends from a place on, and that nothing is left up to another place."""
    described: dict[int, Relation] = {}
    found = [keepalive(start)]
    for sent in log:
        time = EPOCH + sent.place * 1000
        if sent.is_message:
            if sent.place > start:
                found += [payload(sent.place, content) for _, content in sent.changes]
            continue
        if sent.place < start:
            continue
        found.append(payload(0, Begin(sent.place, time, sent.xid)))
        if sent.origin is not None:
            found.append(payload(0, sent.origin))
        for number, (relations, content) in enumerate(sent.changes):
            for relation in relations:
                if described.get(relation.oid) != relation:
                    found.append(payload(0, relation))
                    described[relation.oid] = relation
            found.append(payload(sent.place - len(sent.changes) + number, content))
        found.append(payload(sent.end, Commit(sent.place, sent.end, time)))
    return [*found, keepalive(beyond)]


def keepalive(position: int, *, reply: bool = False) -> bytes:
    """A keepalive."""
    return b"k" + struct.pack(">qqB", position, 0, reply)


def payload(start: int, content: Content) -> bytes:
    """A message of the plugin in a payload of CopyData."""
    return b"w" + struct.pack(">qqq", start, start, 0) + _message(content)


def _message(content: Content) -> bytes:
    match content:
        case Begin(commit, time, xid):
            return b"B" + struct.pack(">qqI", commit, time - EPOCH, xid)
        case Commit(commit, end, time):
            return b"C" + struct.pack(">Bqqq", 0, commit, end, time - EPOCH)
        case Origin(commit, name):
            return b"O" + struct.pack(">q", commit) + _string(name)
        case Relation(oid, schema, name, identity, columns):
            head = struct.pack(">I", oid) + _string(schema) + _string(name) + identity.encode()
            listed = [
                struct.pack(">B", column.key) + _string(column.name) + struct.pack(">Ii", column.oid, column.typmod)
                for column in columns
            ]
            return b"R" + head + struct.pack(">h", len(columns)) + b"".join(listed)
        case TypeMessage(oid, schema, name):
            return b"Y" + struct.pack(">I", oid) + _string(schema) + _string(name)
        case Insert(oid, new):
            return b"I" + struct.pack(">I", oid) + b"N" + _values(new)
        case Update(oid, new, old, by_key):
            said = b"" if old is None else (b"K" if by_key else b"O") + _values(old)
            return b"U" + struct.pack(">I", oid) + said + b"N" + _values(new)
        case Delete(oid, old, by_key):
            return b"D" + struct.pack(">I", oid) + (b"K" if by_key else b"O") + _values(old)
        case Truncate(oids, cascade, restart):
            return b"T" + struct.pack(f">iB{len(oids)}I", len(oids), cascade | restart << 1, *oids)
        case Message(transactional, lsn, prefix, text):
            return b"M" + struct.pack(">Bq", transactional, lsn) + _string(prefix) + struct.pack(">i", len(text)) + text
    raise AssertionError(content)


def _string(text: str) -> bytes:
    return text.encode() + b"\0"


def _values(values: Values) -> bytes:
    found = [struct.pack(">h", len(values))]
    for value in values:
        if value is None:
            found.append(b"n")
        elif value is UNCHANGED:
            found.append(b"u")
        else:
            assert isinstance(value, str)
            found.append(b"t" + struct.pack(">i", len(value.encode())) + value.encode())
    return b"".join(found)


def cut(payloads: Sequence[bytes], sizes: Sequence[int]) -> list[list[bytes]]:
    """Payloads in feeds of some sizes, over and over."""
    feeds, first, number = [], 0, 0
    while first < len(payloads):
        size = sizes[number % len(sizes)]
        feeds.append(list(payloads[first : first + size]))
        first, number = first + size, number + 1
    return feeds
