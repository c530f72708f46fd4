"""Kernels over messages of PostgreSQL's plugin pgoutput: what they are, and where the values of row images stand.

All messages of a block lie one after another in one array of bytes. Numbers are big-endian.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace.wire.cell_kernels import ABSENT, NULL, Cells
from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U, byte, copy, is_utf8, put_integer

KEEPALIVE, BEGIN, COMMIT, ORIGIN, MESSAGE = 107, 66, 67, 79, 77
INSERT, UPDATE, DELETE, NEW, OLD, KEY = 73, 85, 68, 78, 79, 75
_DATA, _NULL, _UNCHANGED, _TEXT = 119, 110, 117, 116
_HEADER, _LEAST, _KEEPALIVE_SIZE = 26, 18, 18
_BEGIN_SIZE, _COMMIT_SIZE, _MESSAGE_SIZE, _ROW_SIZE = 20, 25, 14, 7


class Messages(NamedTuple):
    """What the messages of a block begin with.

    Args:
        kinds: the letter of each.
        lsns: the LSN in the header of each.
        oids: of rows that of the table, of a BEGIN the transaction's number.
        tags: of rows the letter of their first tuple, of logical messages their flags.
        firsts: the commit of BEGIN and COMMIT, the LSN of logical messages, origins and keepalives.
        seconds: the time of BEGIN, the end of COMMIT.
    """

    kinds: Array
    lsns: Array
    oids: Array
    tags: Array
    firsts: Array
    seconds: Array


@kernel
def _big4(data: Array, i: Any) -> Any:
    return (
        (U(byte(data, i)) << U(24))
        | (U(byte(data, i + 1)) << U(16))
        | (U(byte(data, i + 2)) << U(8))
        | U(byte(data, i + 3))
    )


@kernel
def _big8(data: Array, i: Any) -> Any:
    high = np.int64(_big4(data, i))
    if high >= 1 << 31:
        high -= 1 << 32
    return (high << 32) | np.int64(_big4(data, i + 4))


@kernel
def scan(data: Array, starts: Array, messages: Messages) -> Any:
    """Read how each message begins; the number of the first one that is cut off or no message, else -1."""
    for p in range(messages.kinds.size):
        i, end = starts[p], starts[p + 1]
        if end - i < _LEAST:
            return p
        first = byte(data, i)
        if first == KEEPALIVE:
            if end - i != _KEEPALIVE_SIZE:
                return p
            messages.kinds[p] = KEEPALIVE
            messages.firsts[p] = _big8(data, i + 1)
            continue
        if first != _DATA or end - i < _HEADER:
            return p
        kind = byte(data, i + _HEADER - 1)
        messages.kinds[p] = kind
        messages.lsns[p] = _big8(data, i + 1)
        i += _HEADER
        size = end - i
        if kind == INSERT or kind == UPDATE or kind == DELETE:
            if size < _ROW_SIZE:
                return p
            messages.oids[p] = _big4(data, i)
            messages.tags[p] = byte(data, i + 4)
        elif kind == BEGIN:
            if size != _BEGIN_SIZE:
                return p
            messages.firsts[p] = _big8(data, i)
            messages.seconds[p] = _big8(data, i + 8)
            messages.oids[p] = _big4(data, i + 16)
        elif kind == COMMIT:
            if size != _COMMIT_SIZE:
                return p
            messages.firsts[p] = _big8(data, i + 1)
            messages.seconds[p] = _big8(data, i + 9)
        elif kind == MESSAGE:
            if size < _MESSAGE_SIZE:
                return p
            messages.tags[p] = byte(data, i)
            messages.firsts[p] = _big8(data, i + 1)
    return -1


@kernel
def find_cells(
    data: Array,
    starts: Array,
    rows: Array,
    tables: Array,
    widths: Array,
    old: Array,
    new: Array,
    cells: Cells,
) -> Any:
    """Find the values of rows; the number of the first row that is not as its table's columns say, else -1.

    A new value that the message does not have is taken from the old image where that has it. An old image that is a key
    has its columns, which are never null, and no others.

    Args:
        data, starts: the messages, and where each begins and ends.
        rows: the messages' numbers.
        tables: each row's table.
        widths: how many columns a table has.
        old, new: the numbers of each row's images; -1 for none.
        cells: whose `starts` and `sizes` are filled.
    """
    for r in range(rows.size):
        i, end = starts[rows[r]] + _HEADER + 4, starts[rows[r] + 1]
        width = widths[tables[r]]
        before = np.int64(-1)
        if old[r] >= 0:
            before = cells.firsts[old[r]]
        if before >= 0:
            letter = byte(data, i)
            if letter != OLD and letter != KEY:
                return r
            i = _tuple(data, i + 1, end, width, before, cells)
            if i < 0:
                return r
            if letter == KEY:
                for c in range(width):
                    if cells.sizes[U(before + c)] == NULL:
                        cells.sizes[U(before + c)] = ABSENT
        if new[r] >= 0:
            if i >= end or byte(data, i) != NEW:
                return r
            after = cells.firsts[new[r]]
            i = _tuple(data, i + 1, end, width, after, cells)
            if i < 0:
                return r
            if before >= 0:
                for c in range(width):
                    if cells.sizes[U(after + c)] == ABSENT:
                        cells.sizes[U(after + c)] = cells.sizes[U(before + c)]
                        cells.starts[U(after + c)] = cells.starts[U(before + c)]
        if i != end:
            return r
    return -1


@kernel
def _tuple(data: Array, i: Any, end: Any, width: Any, cell: Any, cells: Cells) -> Any:
    """The cells of one tuple; the index after it, or -1 where it is cut off, of another width, or not of UTF-8."""
    if i + 2 > end or ((np.int64(byte(data, i)) << 8) | np.int64(byte(data, i + 1))) != width:
        return -1
    i += 2
    for c in range(width):
        if i >= end:
            return -1
        kind = byte(data, i)
        i += 1
        if kind == _TEXT:
            if i + 4 > end:
                return -1
            size = np.int64(_big4(data, i))
            i += 4
            if i + size > end or not is_utf8(data, i, i + size):
                return -1
            cells.starts[U(cell + c)] = i
            cells.sizes[U(cell + c)] = size
            i += size
        elif kind == _NULL:
            cells.sizes[U(cell + c)] = NULL
        elif kind == _UNCHANGED:
            cells.sizes[U(cell + c)] = ABSENT
        else:
            return -1
    return i


@kernel
def write_positions(commits: Array, ordinals: Array, marks: Array, subs: Array, offsets: Array, out: Array) -> None:
    """Write positions: the commit in 16 hex digits, the ordinal in 10 digits with a letter after it, the sub-order.

    Args:
        commits: of each row.
        ordinals: of each row, -1 for none.
        marks: the letter after it, 0 for none.
        subs: of each row, in 5 digits; -1 for none.
        offsets, out: the texts; each takes at most 34 bytes.
    """
    o = 0
    for r in range(commits.size):
        offsets[r] = o
        for k in range(16):
            digit = (U(commits[r]) >> U(60 - 4 * k)) & U(15)
            out[U(o + k)] = digit + (U(48) if digit < U(10) else U(87))
        out[U(o + 16)] = 47
        o += 17
        if ordinals[r] >= 0:
            o = _put_padded(out, o, ordinals[r], 10)
        if marks[r] != 0:
            out[U(o)] = marks[r]
            o += 1
        out[U(o)] = 47
        o += 1
        if subs[r] >= 0:
            o = _put_padded(out, o, subs[r], 5)
    offsets[commits.size] = o


@kernel
def _put_padded(out: Array, o: Any, value: Any, size: Any) -> Any:
    for k in range(size):
        out[U(o + size - 1 - k)] = 48 + value % 10
        value //= 10
    return o + size


@kernel
def write_facts(
    connector: Array,
    numbers: Array,
    lsns: Array,
    previous: Array,
    maps: Array,
    names: Array,
    offsets: Array,
    out: Array,
) -> None:
    """Write the facts of rows: the connector, the transaction's number, the LSN, and both of Debezium's sequence.

    Args:
        connector: its name.
        numbers: of each row's transaction, -1 where it is in none.
        lsns: the LSN of each row.
        previous: where the transaction before ended.
        maps: where the facts of each row begin.
        names: the number of each fact: 0 to 3 in the order above.
        offsets, out: the texts; those of a row take at most 76 bytes and the connector's name.
    """
    o, entry = 0, 0
    for r in range(numbers.size):
        maps[r] = entry
        names[U(entry)], offsets[U(entry)] = 0, o
        o = copy(out, o, connector, 0, connector.size)
        entry += 1
        if numbers[r] >= 0:
            names[U(entry)], offsets[U(entry)] = 1, o
            o = put_integer(out, o, numbers[r])
            entry += 1
        names[U(entry)], offsets[U(entry)] = 2, o
        o = put_integer(out, o, lsns[r])
        names[U(entry + 1)], offsets[U(entry + 1)] = 3, o
        entry += 2
        out[U(o)], out[U(o + 1)] = 91, 34
        o = put_integer(out, o + 2, previous[r])
        out[U(o)], out[U(o + 1)], out[U(o + 2)] = 34, 44, 34
        o = put_integer(out, o + 3, lsns[r])
        out[U(o)], out[U(o + 1)] = 34, 93
        o += 2
    maps[numbers.size] = entry
    offsets[U(entry)] = o
