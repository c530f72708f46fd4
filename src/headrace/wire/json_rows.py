"""Rows as JSON objects. Which columns a row has, what they are called and how each is written is data.

Rows follow structures by number. A value of a row's column is a *cell*: the number of a canonical text, or that there
is none. Kernels write the ordinary text; what they leave is written by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.wire.arrays import TextView, bitmap, text_array, text_view
from headrace.wire.compiled import kernel
from headrace.wire.image_kernels import same_text
from headrace.wire.json_columns import (
    ABSENT,
    AS_IS,
    BOOLEAN,
    CAPITALS,
    DECIMAL,
    FLOAT,
    NULL,
    ODD,
    QUOTED,
    WHOLE,
    ZONED,
    ColumnLayout,
    JsonColumns,
)
from headrace.wire.json_text_forms import (
    NO_COUNT,
    count_of,
    is_boolean,
    is_float,
    is_whole,
    put_capitals,
    put_decimal,
    put_float,
    put_zoned,
)
from headrace.wire.json_writer import is_valid, put_quoted
from headrace.wire.names import NameTable, look_up
from headrace.wire.spans import Array, U, byte, copy, put_integer, same, set_bit

_RAW, _STRING, _MADE, _CONSTANT, _SKIPPED, _LEFT = range(6)
_ROOM, _MOST_ROOM = 32, 1 << 28


class Cells:
    """The cells of a column of rows.

    Args:
        columns: the columns.
        structure: the number of each row's structure.
        present: which rows there are; others have no object.
        offsets: where the cells of each row begin, and where those of the last one end.
        at: the number of each cell's text.
        texts: the texts.
    """

    def __init__(
        self, columns: JsonColumns, structure: Array, present: Array, offsets: Array, at: Array, texts: pa.StringArray
    ) -> None:
        self.columns, self.structure, self.present = columns, structure, present
        self.offsets, self.at, self.texts = offsets, at, texts

    @classmethod
    def of_maps(
        cls, columns: JsonColumns, maps: pa.MapArray, structure: Array, present: Array, *, null_as_empty: bool = False
    ) -> Cells:
        """Cells of maps. Entries that the structure has no column for are left out; of a repeated one, the first is.

        Rows whose map is null are not present, or carry no column where it is as an empty one.
        """
        there = present & maps.is_valid().to_numpy(zero_copy_only=False)
        present = present if null_as_empty else there
        offsets = cls._offsets(columns, structure, present)
        at = np.full(int(offsets[-1]), ABSENT, np.int32)
        entries = np.ascontiguousarray(maps.offsets.to_numpy())
        names, texts = text_view(maps.keys), text_view(maps.items)
        _index(columns.layout, columns.names.table, structure, there, entries, names, texts, offsets, at)
        return cls(columns, structure, present, offsets, at, maps.items)

    @classmethod
    def of_columns(
        cls, columns: JsonColumns, texts: Sequence[pa.StringArray], present: Array, carried: Array | None
    ) -> Cells:
        """Cells of columns of texts, all of the first structure; `carried` says which a row carries."""
        rows, count = len(present), len(texts)
        at = np.arange(count, dtype=np.int32)[None, :] * np.int32(rows) + np.arange(rows, dtype=np.int32)[:, None]
        for index, column in enumerate(texts):
            if column.null_count:
                at[column.is_null().to_numpy(zero_copy_only=False), index] = NULL
        if carried is not None:
            at[~carried] = ABSENT
        structure = np.zeros(rows, np.int64)
        offsets = cls._offsets(columns, structure, present)
        every = pa.concat_arrays(texts) if texts else pa.array([], pa.string())
        return cls(columns, structure, present, offsets, np.ascontiguousarray(at[present].reshape(-1)), every)

    @staticmethod
    def _offsets(columns: JsonColumns, structure: Array, present: Array) -> Array:
        counts = np.where(present, columns.layout.count[structure], 0) if len(columns.layout.count) else present * 0
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])

    def json(
        self, written: Callable[[int, pa.StringArray, Array], Sequence[str]], as_null: Array | None = None
    ) -> pa.StringArray:
        """The objects; null for rows that are not present.

        Args:
            written: the JSON of texts that kernels leave: of a column (its number among all), and their rows.
            as_null: the rows whose absent columns are null.
        """
        layout, view, cells, rows = self.columns.layout, text_view(self.texts), self.at.size, self.present.size
        start, end, how = np.empty(cells, np.int32), np.empty(cells, np.int32), np.empty(cells, np.uint8)
        width = int(view.offsets[-1] - view.offsets[0])
        composed = np.empty(_ROOM * cells + width, np.uint8)
        nulls = np.zeros(rows, np.bool_) if as_null is None else as_null
        used = _write_texts(
            layout, self.structure, self.present, self.offsets, self.at, view, nulls, start, end, how, composed
        )
        left = np.flatnonzero(how == _LEFT)
        if left.size:
            composed = self._settled(left, written, start, end, how, composed[:used])
        offsets, valid = np.empty(rows + 1, np.int32), bitmap(rows)
        size = _measure(layout, self.structure, self.present, self.offsets, view.data, start, end, how, False)
        if size > _MOST_ROOM:
            size = _measure(layout, self.structure, self.present, self.offsets, view.data, start, end, how, True)
        if size >= 2**31:
            raise ValueError("the texts of one column have more than 2 GiB")
        out = np.empty(size, np.uint8)
        _write(
            layout,
            self.structure,
            self.present,
            self.offsets,
            view.data,
            composed,
            start,
            end,
            how,
            offsets,
            out,
            valid,
        )
        return text_array(offsets, out, None if self.present.all() else valid)

    def _settled(
        self,
        left: Array,
        written: Callable[[int, pa.StringArray, Array], Sequence[str]],
        start: Array,
        end: Array,
        how: Array,
        composed: Array,
    ) -> Array:
        """What was made, and after it what the caller makes of the cells that are left."""
        rows: Array = np.searchsorted(self.offsets, left, side="right") - 1
        column = self.columns.layout.first[self.structure[rows]] + left - self.offsets[rows]
        parts, at = [composed.tobytes()], composed.size
        for number in np.unique(column):
            here = np.flatnonzero(column == number)
            texts = self.texts.take(pa.array(self.at[left[here]]))
            for cell, text in zip(left[here], written(int(number), texts, rows[here]), strict=True):
                parts.append(text.encode())
                start[cell], end[cell], how[cell] = at, at + len(parts[-1]), _MADE
                at += len(parts[-1])
        return np.frombuffer(b"".join(parts), np.uint8).copy()

    def texts_of(self, index: int) -> pa.StringArray:
        """The texts of one column of rows that all follow the first structure; null for absent ones."""
        at = self.at.reshape(-1, max(1, int(self.columns.layout.count[0])))[:, index]
        if not len(self.texts) or at.max(initial=ABSENT) < 0:
            return pa.nulls(at.size, pa.string())
        return self.texts.take(pa.array(at, mask=at < 0))


def moved(old: Cells, new: Cells, rows: Array, indexes: Array, first: Array, count: Array) -> Array:
    """Which of the rows have another text in a column of `new` than in that of `old`, where `old` carries it.

    Args:
        old: cells of whole rows.
        new: cells of some of their columns.
        rows: whether a row is looked at.
        indexes: the indexes of `new`'s columns in `old`, of all structures one after another.
        first: where those of each structure begin.
        count: how many each structure has.
    """
    is_moved = np.zeros(rows.size, np.bool_)
    _find_moved(
        old.structure, old.present, old.offsets, old.at, text_view(old.texts),
        new.present, new.offsets, new.at, text_view(new.texts), rows, indexes, first, count, is_moved,
    )  # fmt: skip
    return is_moved


@kernel
def _index(
    layout: ColumnLayout, table: NameTable, structure: Array, present: Array, entries: Array, names: TextView,
    texts: TextView, offsets: Array, at: Array,
) -> None:  # fmt: skip
    for r in range(present.size):
        if not present[r]:
            continue
        s = structure[r]
        first, count, base = layout.first[s], layout.count[s], offsets[r]
        k = np.int64(0)
        for e in range(entries[r], entries[r + 1]):
            i = names.offsets[U(e)]
            size = names.offsets[U(e + 1)] - i
            index = np.int64(-1)
            is_next = k < count and table.size[U(first + k)] == size
            if is_next and same(table.data, table.start[U(first + k)], names.data, i, size):
                index = k
            if index < 0:
                index = np.int64(look_up(table, s, names.data, i, size))
            if index >= 0:
                if at[U(base + index)] == ABSENT:
                    at[U(base + index)] = e if is_valid(texts, e) else NULL
                k = index + 1


@kernel
def _find_moved(
    structure: Array, old_present: Array, old_offsets: Array, old_at: Array, old: TextView, own_present: Array,
    new_offsets: Array, new_at: Array, new: TextView, rows: Array, indexes: Array, first: Array, count: Array,
    is_moved: Array,
) -> None:  # fmt: skip
    for r in range(rows.size):
        if not rows[r] or not old_present[r] or not own_present[r]:
            continue
        s = structure[r]
        for k in range(count[s]):
            a = np.int64(old_at[U(old_offsets[r] + indexes[U(first[s] + k)])])
            b = np.int64(new_at[U(new_offsets[r] + k)])
            if a == ABSENT:
                continue
            if a < 0 or b < 0:
                is_moved[r] = is_moved[r] or a >= 0 or b >= 0
            elif not same_text(old, a, new, b):
                is_moved[r] = True


@kernel
def _begins_with_zeros(data: Array, i: Any, j: Any, count: Any) -> Any:
    zeros = 0
    while zeros < count and i + zeros < j and byte(data, i + zeros) == 48:
        zeros += 1
    return zeros == count


@kernel
def _write_texts(
    layout: ColumnLayout, structure: Array, present: Array, offsets: Array, at: Array, texts: TextView, as_null: Array,
    start: Array, end: Array, how: Array, composed: Array,
) -> Any:  # fmt: skip
    """Find or make the text of each cell; the number of bytes that were made."""
    o = np.int64(0)
    data = texts.data
    for r in range(present.size):
        if not present[r]:
            continue
        c = layout.first[structure[r]] - offsets[r]
        for cell in range(offsets[r], offsets[r + 1]):
            col = c + cell
            v = np.int64(at[U(cell)])
            if v < 0:
                piece = layout.null[col] if v == NULL or as_null[r] else layout.absent[col]
                start[cell], end[cell] = piece[0], piece[1]
                how[cell] = _CONSTANT if piece[1] >= 0 else _SKIPPED
                continue
            i, j = np.int64(texts.offsets[U(v)]), np.int64(texts.offsets[U(v + 1)])
            code = layout.code[col]
            start[cell], end[cell] = i, j
            if code == QUOTED:
                zeros = layout.one[col]
                how[cell] = _LEFT if zeros and _begins_with_zeros(data, i, j, zeros) else _STRING
                continue
            if code == AS_IS:
                how[cell] = _RAW
                continue
            if code == WHOLE:
                how[cell] = _RAW if is_whole(data, i, j, layout.one[col]) else _LEFT
                continue
            if code == BOOLEAN:
                how[cell] = _RAW if is_boolean(data, i, j) else _LEFT
                continue
            after = np.int64(-1)
            if code == DECIMAL:
                after = put_decimal(composed, o, data, i, j, layout.one[col])
            elif code == FLOAT:
                if is_float(data, i, j, layout.one[col]):
                    how[cell] = _RAW
                    continue
                after = put_float(composed, o, data, i, j, layout.one[col])
            elif code == ZONED:
                after = put_zoned(composed, o, data, i, j)
            elif code == CAPITALS:
                after = put_capitals(composed, o, data, i, j)
            elif code != ODD:
                count = count_of(data, i, j, code, layout.one[col])
                # A number of 32 bits holds no more, and 64 bits no less than `NO_COUNT`.
                if count != NO_COUNT and (layout.two[col] != 32 or -2147483648 <= count <= 2147483647):
                    after = put_integer(composed, o, count)
            if after < 0:
                how[cell] = _LEFT
                continue
            start[cell], end[cell], how[cell] = o, after, _MADE
            o = after
    return o


@kernel
def _measure(
    layout: ColumnLayout, structure: Array, present: Array, offsets: Array, data: Array, start: Array, end: Array,
    how: Array, exactly: Any,
) -> Any:  # fmt: skip
    """How many bytes are written: exactly, or at most, which does not look at them."""
    total = np.int64(0)
    for r in range(present.size):
        if not present[r]:
            continue
        s = structure[r]
        total += layout.opening[s, 1] - layout.opening[s, 0] + layout.closing[s, 1] - layout.closing[s, 0]
        c = layout.first[s] - offsets[r]
        for cell in range(offsets[r], offsets[r + 1]):
            if how[cell] == _SKIPPED:
                continue
            i, j = np.int64(start[cell]), np.int64(end[cell])
            total += 1 + layout.name[c + cell, 1] - layout.name[c + cell, 0] + j - i
            if how[cell] == _STRING:
                total += 2 if exactly else 2 + 5 * (j - i)
                while exactly and i < j:
                    b = byte(data, i)
                    if b < 32:
                        total += 5
                    elif b == 34 or b == 92:
                        total += 1
                    i += 1
    return total


@kernel
def _write(
    layout: ColumnLayout, structure: Array, present: Array, offsets: Array, data: Array, composed: Array, start: Array,
    end: Array, how: Array, starts: Array, out: Array, valid: Array,
) -> None:  # fmt: skip
    o = np.int64(0)
    for r in range(present.size):
        starts[r] = o
        if not present[r]:
            continue
        set_bit(valid, r)
        s = structure[r]
        o = copy(out, o, layout.data, layout.opening[s, 0], layout.opening[s, 1] - layout.opening[s, 0])
        c = layout.first[s] - offsets[r]
        more = False
        for cell in range(offsets[r], offsets[r + 1]):
            kind = how[cell]
            if kind == _SKIPPED:
                continue
            if more:
                out[U(o)] = 44
                o += 1
            more = True
            col = c + cell
            o = copy(out, o, layout.data, layout.name[col, 0], layout.name[col, 1] - layout.name[col, 0])
            i, j = np.int64(start[cell]), np.int64(end[cell])
            if kind == _STRING:
                o = put_quoted(out, o, data, i, j)
            elif kind == _RAW:
                o = copy(out, o, data, i, j - i)
            elif kind == _MADE:
                o = copy(out, o, composed, i, j - i)
            else:
                o = copy(out, o, layout.data, i, j - i)
        o = copy(out, o, layout.data, layout.closing[s, 0], layout.closing[s, 1] - layout.closing[s, 0])
    starts[present.size] = o
