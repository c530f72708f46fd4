"""Kernels over messages of PostgreSQL's plugin pgoutput: what they are, where their values stand, and images of rows.

All messages of a block lie one behind the other in one array of bytes. Numbers are big-endian.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U, byte, copy, is_utf8, put_integer, same, set_bit

NULL, ABSENT = -1, -2
"""Sizes of cells that hold nothing: null, and a value that the message does not have."""
KEEPALIVE, BEGIN, COMMIT, ORIGIN, MESSAGE = 107, 66, 67, 79, 77
INSERT, UPDATE, DELETE, NEW, OLD, KEY = 73, 85, 68, 78, 79, 75
_DATA, _NULL, _UNCHANGED, _TEXT = 119, 110, 117, 116
_HEADER, _LEAST, _KEEPALIVE_SIZE = 26, 18, 18
_BEGIN_SIZE, _COMMIT_SIZE, _MESSAGE_SIZE, _ROW_SIZE = 20, 25, 14, 7


class Messages(NamedTuple):
    """What the messages of a block begin with.

    Args:
        kinds: the letter of each.
        places: the LSN in the header of each.
        oids: of rows that of the table, of a BEGIN the transaction's number.
        tags: of rows the letter of their first tuple, of logical messages their flags.
        firsts: the commit of BEGIN and COMMIT, the LSN of logical messages, origins and keepalives.
        seconds: the time of BEGIN, the end of COMMIT.
    """

    kinds: Array
    places: Array
    oids: Array
    tags: Array
    firsts: Array
    seconds: Array


class Cells(NamedTuple):
    """The values of row images, one image behind the other, each in the order of its table's columns.

    Args:
        tables: the number of each image's table.
        firsts: where the cells of each image begin.
        starts: where the bytes of each cell begin.
        sizes: how many bytes each has, or `NULL` or `ABSENT`.
    """

    tables: Array
    firsts: Array
    starts: Array
    sizes: Array


class Columns(NamedTuple):
    """For each table some of its columns: from `firsts[table]` on in `columns`, up to where those of the next begin."""

    firsts: Array
    columns: Array


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
def scan(data: Array, starts: Array, found: Messages) -> Any:
    """Read how each message begins; the number of the first one that is cut off or no message, else -1."""
    for p in range(found.kinds.size):
        i, end = starts[p], starts[p + 1]
        if end - i < _LEAST:
            return p
        first = byte(data, i)
        if first == KEEPALIVE:
            if end - i != _KEEPALIVE_SIZE:
                return p
            found.kinds[p] = KEEPALIVE
            found.firsts[p] = _big8(data, i + 1)
            continue
        if first != _DATA or end - i < _HEADER:
            return p
        kind = byte(data, i + _HEADER - 1)
        found.kinds[p] = kind
        found.places[p] = _big8(data, i + 1)
        i += _HEADER
        size = end - i
        if kind == INSERT or kind == UPDATE or kind == DELETE:
            if size < _ROW_SIZE:
                return p
            found.oids[p] = _big4(data, i)
            found.tags[p] = byte(data, i + 4)
        elif kind == BEGIN:
            if size != _BEGIN_SIZE:
                return p
            found.firsts[p] = _big8(data, i)
            found.seconds[p] = _big8(data, i + 8)
            found.oids[p] = _big4(data, i + 16)
        elif kind == COMMIT:
            if size != _COMMIT_SIZE:
                return p
            found.firsts[p] = _big8(data, i + 1)
            found.seconds[p] = _big8(data, i + 9)
        elif kind == MESSAGE:
            if size < _MESSAGE_SIZE:
                return p
            found.tags[p] = byte(data, i)
            found.firsts[p] = _big8(data, i + 1)
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
    """The cells of one tuple; the index behind it, or -1 where it is cut off, of another width, or not of UTF-8."""
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
def count_spelled(cells: Cells, spelled: Columns, by: Array, counts: Array) -> None:
    """Count the texts that are to be spelled otherwise, by who does it.

    Args:
        cells: all images.
        spelled: the columns for which that is so.
        by: the number of who does it, for each of `spelled`.
        counts: what is filled.
    """
    for image in range(cells.tables.size):
        table = cells.tables[image]
        for k in range(spelled.firsts[table], spelled.firsts[table + 1]):
            if cells.sizes[U(cells.firsts[image] + spelled.columns[k])] >= 0:
                counts[by[k]] += 1


@kernel
def list_spelled(cells: Cells, spelled: Columns, by: Array, places: Array, listed: Array) -> None:
    """Fill `listed` with the numbers of those cells, and move `places`, where each one's begin, to where they end."""
    for image in range(cells.tables.size):
        table = cells.tables[image]
        for k in range(spelled.firsts[table], spelled.firsts[table + 1]):
            cell = cells.firsts[image] + spelled.columns[k]
            if cells.sizes[U(cell)] >= 0:
                listed[U(places[by[k]])] = cell
                places[by[k]] += 1


@kernel
def gather(data: Array, cells: Cells, listed: Array, out: Array) -> None:
    """Copy the bytes of cells, none of which is null, one behind the other."""
    o = 0
    for k in range(listed.size):
        cell = U(listed[k])
        o = copy(out, o, data, cells.starts[cell], cells.sizes[cell])


@kernel
def measure_maps(cells: Cells, images: Array, columns: Columns, offsets: Array) -> Any:
    """Where the map of each image begins, with those of its table's columns that it has; the bytes of their values.

    Args:
        cells: of all images.
        images: the image of each row, -1 for none.
        columns: the columns that are given out.
        offsets: what is filled.
    """
    count, size = 0, 0
    for r in range(images.size):
        offsets[r] = count
        image = images[r]
        if image < 0:
            continue
        table, first = cells.tables[image], cells.firsts[image]
        for k in range(columns.firsts[table], columns.firsts[table + 1]):
            found = cells.sizes[U(first + columns.columns[k])]
            if found != ABSENT:
                count += 1
                size += max(found, 0)
    offsets[images.size] = count
    return size


@kernel
def write_maps(
    data: Array,
    cells: Cells,
    images: Array,
    columns: Columns,
    names: Array,
    offsets: Array,
    out: Array,
    valid: Array,
) -> Any:
    """Write the entries of those maps; how many values are null.

    Args:
        data, cells, images, columns: as of `measure_maps`.
        names: the number of each entry's column among all columns.
        offsets, out, valid: the values.
    """
    entry, o, nulls = 0, 0, 0
    for r in range(images.size):
        image = images[r]
        if image < 0:
            continue
        table, first = cells.tables[image], cells.firsts[image]
        for k in range(columns.firsts[table], columns.firsts[table + 1]):
            cell = U(first + columns.columns[k])
            size = cells.sizes[cell]
            if size == ABSENT:
                continue
            names[U(entry)] = k
            offsets[U(entry)] = o
            if size >= 0:
                set_bit(valid, entry)
                o = copy(out, o, data, cells.starts[cell], size)
            else:
                nulls += 1
            entry += 1
    offsets[U(entry)] = o
    return nulls


@kernel
def find_absent(cells: Cells, images: Array, columns: Columns) -> Any:
    """The number of the first row whose image does not have all of its table's columns, else -1."""
    for r in range(images.size):
        image = images[r]
        if image >= 0:
            table, first = cells.tables[image], cells.firsts[image]
            for k in range(columns.firsts[table], columns.firsts[table + 1]):
                if cells.sizes[U(first + columns.columns[k])] == ABSENT:
                    return r
    return -1


@kernel
def compare(data: Array, cells: Cells, old: Array, new: Array, columns: Columns, unknown: Any, alike: Array) -> None:
    """Fill `alike`: whether two images have the same in all of their table's columns.

    Args:
        data, cells: of all images.
        old, new: the images of each row; no two are alike of which one is -1.
        columns: those that are compared.
        unknown: what is taken for so where one image has a column and the other has not.
        alike: what is filled.
    """
    for r in range(old.size):
        alike[r] = old[r] >= 0 and new[r] >= 0
        if not alike[r]:
            continue
        table, a, b = cells.tables[new[r]], cells.firsts[old[r]], cells.firsts[new[r]]
        for k in range(columns.firsts[table], columns.firsts[table + 1]):
            i, j = U(a + columns.columns[k]), U(b + columns.columns[k])
            size, other = cells.sizes[i], cells.sizes[j]
            if size == other:
                is_same = size < 0 or same(data, cells.starts[i], data, cells.starts[j], size)
            else:
                is_same = unknown and (size == ABSENT or other == ABSENT)
            if not is_same:
                alike[r] = False
                break


@kernel
def mark_new(tables: Array, holders: Array, schemas: Array, last: Array, marked: Array) -> None:
    """Fill `marked`: whether a row's schema is another one than that of the row before of the same table.

    Args:
        tables: the number of each row's table in one state; -1 for none.
        holders: of each such state the number of the table.
        schemas: of each such state the number of its schema.
        last: the schema of each table's row before, which is moved on; -1 for none.
        marked: what is filled.
    """
    for r in range(tables.size):
        if tables[r] < 0:
            marked[r] = False
            continue
        holder, schema = holders[tables[r]], schemas[tables[r]]
        marked[r] = last[holder] != schema
        last[holder] = schema


@kernel
def write_positions(commits: Array, ordinals: Array, marks: Array, subs: Array, offsets: Array, out: Array) -> None:
    """Write positions: the commit in 16 hex digits, the ordinal in 10 digits with a letter behind it, the sub-order.

    Args:
        commits: of each row.
        ordinals: of each row, -1 for none.
        marks: the letter behind it, 0 for none.
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
    places: Array,
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
        places: the LSN of each row.
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
        o = put_integer(out, o, places[r])
        names[U(entry + 1)], offsets[U(entry + 1)] = 3, o
        entry += 2
        out[U(o)], out[U(o + 1)] = 91, 34
        o = put_integer(out, o + 2, previous[r])
        out[U(o)], out[U(o + 1)], out[U(o + 2)] = 34, 44, 34
        o = put_integer(out, o + 3, places[r])
        out[U(o)], out[U(o + 1)] = 34, 93
        o += 2
    maps[numbers.size] = entry
    offsets[U(entry)] = o
