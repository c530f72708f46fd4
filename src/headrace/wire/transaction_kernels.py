"""A kernel over MySQL's binary log: ordinary transactions, found without reading each event in Python.

An ordinary transaction has nothing but rows, one after the other in a block of bytes: its GTID event, a BEGIN where
MySQL writes one, tables, rows and statements' texts, and the XID at its end. The first transaction that is anything
else ends the walk, so that who asks reads that one by itself; so does one with a wrong checksum or a wrong position.
Of a transaction that does not fit into a block, whole statements are found in the same way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace.wire.binlog_kernels import HEADER
from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U, byte, same

_CHECKSUM, _QUERY, _XID, _MAP, _ROWS_QUERY, _MYSQL, _ANONYMOUS, _ANNOTATE, _MARIADB = 4, 2, 16, 19, 29, 33, 34, 160, 162
_NOT_ORDINARY = 0x01 | 0x40 | 0x80
"""Of the flags of MariaDB's GTID event: without a COMMIT, and parts of distributed transactions."""
_GROUP_COMMIT, _ARTIFICIAL, _LOGICAL_CLOCK = 2, 0x20, 2
_GTID_SIZE, _MYSQL_GTID_SIZE, _QUERY_SIZE = 13, 25, 13
MOST_MAPS = 16
BEGIN = np.frombuffer(b"BEGIN", np.uint8)
GROUP_COLUMNS, EVENT_COLUMNS, MAP_COLUMNS = 6, 6, 2


def _tables() -> Array:
    tables = np.zeros((8, 256), np.int64)
    for n in range(256):
        value = n
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        tables[0, n] = value
    for k in range(1, 8):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 255]
    return tables


_CRC = _tables()


class Ordinary(NamedTuple):
    """What `ordinary_transactions` fills, a row each.

    Args:
        transactions: where the transaction begins in its file, its time in seconds, its server, the number of its GTID,
            where its UUID lies in the bytes or the domain of MariaDB, and the session's number.
        events: of each rows event its transaction, type, position in the file, the ordinal before its rows, and where
            its body begins and ends in the bytes.
        of: the number of each one's table among `maps`.
        maps: where the description of each table begins and ends in the bytes.
        times: of each transaction the commit time in microseconds; -1 where the log does not say it.
        numbers: room for the tables of one statement, two rows of `MOST_MAPS`.
    """

    transactions: Array
    events: Array
    of: Array
    maps: Array
    times: Array
    numbers: Array


@kernel
def ordinary_transactions(
    data: Array,
    first: Any,
    position: Any,
    limit: Any,
    before: Any,
    checksums: Any,
    mariadb: Any,
    out: Ordinary,
    counts: Array,
) -> Any:
    """Find transactions up to the first that is not ordinary, or not whole, or for which `out` has no room. Or find
    statements of one transaction up to its end, or the first that is not ordinary or not whole.

    Args:
        data: events, one after another.
        first: where the first transaction begins in them.
        position: where it begins in its file.
        limit: no transaction that begins here or later is taken; -1 for none.
        before: the ordinal before the first statement, where a transaction is under way; -1 where transactions begin.
        checksums: whether events have them.
        mariadb: whether transactions begin as MariaDB's do; else as MySQL's.
        out: what is filled.
        counts: takes how many transactions, rows events and tables there are.

    Returns:
        Where the next transaction, or statement, begins in the data.
    """
    transactions, events, maps = 0, 0, 0
    inside = before >= 0
    tail = _CHECKSUM if checksums else 0
    ids, known = out.numbers[0], out.numbers[1]
    i = first
    while transactions < out.transactions.shape[0] and (limit < 0 or position < limit):
        at, in_file, count, tables = i, position, events, maps
        described, ordinal, whole, state = 0, 0, False, 0
        if inside:
            ordinal, state = before, 2
        # 0: the transaction begins next. 1: BEGIN is next. 2: inside.
        while at + HEADER <= data.size:
            size, kind = _number(data, at + 9, 4), byte(data, at + 4)
            if size < HEADER + tail or size > data.size - at:
                break
            following, flags = _number(data, at + 13, 4), _number(data, at + 17, 2)
            # Inside of a transaction, MariaDB 11.4 and newer say of no event where it ends.
            unsaid = mariadb and state == 2 and following == 0
            if (following != (in_file + size) & 0xFFFFFFFF and not unsaid) or flags & _ARTIFICIAL:
                break
            body, end = at + HEADER, at + size - tail
            if checksums and _crc(data, at, end) != _number(data, end, 4):
                break
            if state == 0:
                if mariadb and kind == _MARIADB:
                    if end - body < _GTID_SIZE:
                        break
                    bits = byte(data, body + 12)
                    if bits & _NOT_ORDINARY or (bits & _GROUP_COMMIT and end - body < _GTID_SIZE + 8):
                        break
                    out.transactions[U(transactions), U(3)] = _number(data, body, 8)
                    out.transactions[U(transactions), U(4)] = _number(data, body + 8, 4)
                    out.times[U(transactions)] = -1
                    state = 2
                elif not mariadb and (kind == _MYSQL or kind == _ANONYMOUS):
                    if end - body < _MYSQL_GTID_SIZE:
                        break
                    out.transactions[U(transactions), U(3)] = _number(data, body + 17, 8)
                    out.transactions[U(transactions), U(4)] = body + 1
                    out.times[U(transactions)] = -1
                    if end - body > _MYSQL_GTID_SIZE and byte(data, body + 25) == _LOGICAL_CLOCK:
                        if end - body < _MYSQL_GTID_SIZE + 24:
                            break
                        out.times[U(transactions)] = _number(data, body + 42, 7) & ((1 << 55) - 1)
                    state = 1
                else:
                    break
                if out.transactions[U(transactions), U(3)] < 0:
                    break
                out.transactions[U(transactions), U(0)], out.transactions[U(transactions), U(1)] = (
                    in_file,
                    _number(data, at, 4),
                )
                out.transactions[U(transactions), U(2)], out.transactions[U(transactions), U(5)] = (
                    _number(data, at + 5, 4),
                    -1,
                )
            elif state == 1:
                if kind != _QUERY or end - body < _QUERY_SIZE + BEGIN.size + 1:
                    break
                text = body + _QUERY_SIZE + np.int64(byte(data, body + 8)) + _number(data, body + 11, 2) + 1
                if end - text != BEGIN.size or byte(data, text - 1) != 0 or not same(data, text, BEGIN, 0, BEGIN.size):
                    break
                out.transactions[U(transactions), U(5)] = _number(data, body, 4)
                state = 2
            elif kind == _XID and not inside:
                whole = True
            elif kind == _MAP:
                if end - body < 8 or described == MOST_MAPS:
                    break
                number, table = _number(data, body, 6), -1
                length = end - body - 8
                for k in range(tables):
                    begin = out.maps[U(k), U(0)]
                    if out.maps[U(k), U(1)] - begin == length and same(data, begin, data, body + 8, length):
                        table = k
                        break
                if table < 0:
                    if tables == out.maps.shape[0]:
                        break
                    out.maps[U(tables), U(0)], out.maps[U(tables), U(1)] = body + 8, end
                    table = tables
                    tables += 1
                slot = described
                for k in range(described):
                    if ids[U(k)] == number:
                        slot = k
                ids[U(slot)], known[U(slot)] = number, table
                described = max(described, slot + 1)
            elif 23 <= kind <= 25 or 30 <= kind <= 32 or kind == 39:
                if end - body < 8 or count == out.events.shape[0]:
                    break
                number, slot = _number(data, body, 6), -1
                for k in range(described):
                    if ids[U(k)] == number:
                        slot = k
                if slot < 0:
                    break
                out.events[U(count), U(0)], out.events[U(count), U(1)] = transactions, kind
                out.events[U(count), U(2)], out.events[U(count), U(3)] = in_file, ordinal
                out.events[U(count), U(4)], out.events[U(count), U(5)] = body, end
                out.of[U(count)] = known[U(slot)]
                count += 1
                ordinal += end - body
                if byte(data, body + 6) & 1:
                    described = 0
                    if inside:
                        i, events, maps = at + size, count, tables
            elif kind == _ROWS_QUERY:
                if end == body:
                    break
            elif kind != _ANNOTATE:
                break
            at += size
            in_file += size
            if whole:
                break
        if not whole:
            break
        i, position, events, maps = at, in_file, count, tables
        transactions += 1
    counts[U(0)], counts[U(1)], counts[U(2)] = transactions, events, maps
    return i


@kernel
def _number(data: Array, i: Any, size: Any) -> Any:
    value = np.int64(0)
    for k in range(size):
        value |= np.int64(byte(data, i + k)) << (8 * k)
    return value


@kernel
def _crc(data: Array, i: Any, end: Any) -> Any:
    """The CRC32 of a piece, eight bytes at a time."""
    crc = np.int64(0xFFFFFFFF)
    while i + 8 <= end:
        low, high = crc ^ _number(data, i, 4), _number(data, i + 4, 4)
        crc = (
            _CRC[U(7), U(low & 255)]
            ^ _CRC[U(6), U(low >> 8 & 255)]
            ^ _CRC[U(5), U(low >> 16 & 255)]
            ^ _CRC[U(4), U(low >> 24 & 255)]
            ^ _CRC[U(3), U(high & 255)]
            ^ _CRC[U(2), U(high >> 8 & 255)]
            ^ _CRC[U(1), U(high >> 16 & 255)]
            ^ _CRC[U(0), U(high >> 24 & 255)]
        )
        i += 8
    while i < end:
        crc = _CRC[U(0), U((crc ^ np.int64(byte(data, i))) & 255)] ^ (crc >> 8)
        i += 1
    return crc ^ np.int64(0xFFFFFFFF)
