"""Ordinary transactions of the log, and statements of a long one: many at once, as arrays.

`TransactionReader.read` says the same one by one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

import numpy as np

from headrace.wire import transaction_kernels as kernels
from headrace.wire.spans import Array
from headrace.wire.transaction_kernels import Ordinary

_MICROSECONDS = 1_000_000
_MOST_TABLES = 64
_SMALLEST_GROUP, _SMALLEST_EVENT = 100, 30
"""Bytes, which bound how many transactions and events a block can have."""
_SPAN = 1024 * 1024
"""How many bytes one call of the kernel sees. A transaction that has more is read by runs of its statements."""


class Run(NamedTuple):
    """Transactions one after another, each a whole one that has nothing but rows; or statements of one transaction.

    Args:
        positions: where each transaction begins in its file.
        times: when each was committed, in microseconds since 1970.
        servers: the server that wrote each first.
        gtids: the GTID of each; None where the server has none.
        threads: the session's number of each; -1 where the log does not say it.
        events: see `Ordinary`, a row each.
        of: of each rows event the number of its table.
        maps: the description of each table.
        after: where the events after them begin in the data.
        inside: whether they are statements of one transaction, which began before them and goes on.
    """

    positions: list[int]
    times: list[int]
    servers: list[int]
    gtids: list[str | None]
    threads: list[int]
    events: Array
    of: Array
    maps: list[bytes]
    after: int
    inside: bool = False


class _Found(NamedTuple):
    """What the kernel filled; see `Ordinary`."""

    transactions: Array
    times: Array
    events: Array
    of: Array
    maps: list[bytes]
    after: int


def ordinary_run(data: memoryview, first: int, position: int, limit: int, *, checksums: bool, mariadb: bool) -> Run:
    """The ordinary transactions that lie at a position of the data; none where the next one is not ordinary or not
    whole.

    Args:
        data: events, one after another.
        first: where they begin.
        position: where the first one begins in its file.
        limit: no transaction is taken that begins here or behind; -1 for none.
        checksums: whether events have them.
        mariadb: whether MariaDB wrote the log.
    """
    found = _found(data, first, position, limit, -1, checksums=checksums, mariadb=mariadb)
    positions, seconds, servers, numbers, names, threads = found.transactions.T
    times: Array = np.where(found.times < 0, seconds * _MICROSECONDS, found.times)
    each = zip(names.tolist(), servers.tolist(), numbers.tolist(), strict=True)
    gtids: list[str | None]
    if mariadb:
        gtids = [f"{domain}-{server}-{number}" for domain, server, number in each]
    else:
        near = data[first:]
        gtids = [f"{_uuid(bytes(near[at : at + 16]))}:{n}" if n else None for at, _, n in each]
    return Run(
        positions.tolist(),
        times.tolist(),
        servers.tolist(),
        gtids,
        threads.tolist(),
        found.events,
        found.of,
        found.maps,
        found.after,
    )


def statements_run(
    data: memoryview, first: int, position: int, transaction: Run, ordinal: int, *, checksums: bool, mariadb: bool
) -> Run:
    """The ordinary statements that lie at a position of the data inside of a transaction.

    Args:
        data, first, position, checksums, mariadb: see `ordinary_run`.
        transaction: it, without events.
        ordinal: that before the first statement.
    """
    found = _found(data, first, position, -1, ordinal, checksums=checksums, mariadb=mariadb)
    return transaction._replace(events=found.events, of=found.of, maps=found.maps, after=found.after)


def _found(
    data: memoryview, first: int, position: int, limit: int, ordinal: int, *, checksums: bool, mariadb: bool
) -> _Found:
    near = data[first : first + _SPAN]
    size, octets = len(near), np.frombuffer(near, np.uint8)
    # Kernels are compiled for each kind of array, so that there is to be one only.
    octets.flags.writeable = False
    transactions, events = size // _SMALLEST_GROUP + 1, size // _SMALLEST_EVENT + 1
    out = Ordinary(
        np.empty((transactions, kernels.GROUP_COLUMNS), np.int64),
        np.empty((events, kernels.EVENT_COLUMNS), np.int64),
        np.empty(events, np.int64),
        np.empty((_MOST_TABLES, kernels.MAP_COLUMNS), np.int64),
        np.empty(transactions, np.int64),
        np.empty((2, kernels.MOST_MAPS), np.int64),
    )
    counts = np.zeros(3, np.int64)
    after = kernels.ordinary_transactions(octets, 0, position, limit, ordinal, checksums, mariadb, out, counts)
    transactions, events, maps = counts.tolist()
    return _Found(
        out.transactions[:transactions],
        out.times[:transactions],
        _from(first, out.events[:events]),
        out.of[:events],
        [bytes(near[start:end]) for start, end in out.maps[:maps].tolist()],
        first + int(after),
    )


def _from(first: int, events: Array) -> Array:
    """Events whose bodies are counted from the beginning of the data."""
    events[:, 4:] += first
    return events


@lru_cache(maxsize=16)
def _uuid(raw: bytes) -> str:
    return str(UUID(bytes=raw))
