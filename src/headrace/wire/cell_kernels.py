"""Kernels over images of rows whose values stand anywhere in an array of bytes: what is written, maps, comparisons."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U, copy, same, set_bit

NULL, ABSENT = -1, -2
"""Sizes of cells that hold nothing: null, and a value that the log does not have."""


class Cells(NamedTuple):
    """The values of row images, one image after the other, each in the order of its table's columns.

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
def count_written(cells: Cells, written: Columns, by: Array, counts: Array) -> None:
    """Count the texts that are to be written otherwise, by who does it.

    Args:
        cells: all images.
        written: the columns for which that is so.
        by: the number of who does it, for each of `written`.
        counts: what is filled.
    """
    for image in range(cells.tables.size):
        table = cells.tables[image]
        for k in range(written.firsts[table], written.firsts[table + 1]):
            if cells.sizes[U(cells.firsts[image] + written.columns[k])] >= 0:
                counts[by[k]] += 1


@kernel
def list_written(cells: Cells, written: Columns, by: Array, indexes: Array, listed: Array) -> None:
    """Fill `listed` with the numbers of those cells, and move `indexes`, where each one's begin, to where they end."""
    for image in range(cells.tables.size):
        table = cells.tables[image]
        for k in range(written.firsts[table], written.firsts[table + 1]):
            cell = cells.firsts[image] + written.columns[k]
            if cells.sizes[U(cell)] >= 0:
                listed[U(indexes[by[k]])] = cell
                indexes[by[k]] += 1


@kernel
def gather(data: Array, cells: Cells, listed: Array, out: Array) -> None:
    """Copy the bytes of cells, none of which is null, one after another."""
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
            cell_size = cells.sizes[U(first + columns.columns[k])]
            if cell_size != ABSENT:
                count += 1
                size += max(cell_size, 0)
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
        data, cells, images, columns: see `measure_maps`.
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
