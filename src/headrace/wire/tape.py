"""What was read of a batch of messages, and the columns that are made of it.

A tape holds the tokens of all messages. Places in it are numpy arrays of token numbers (int32), one for each row, -1
where a row has nothing there; every function takes such indexes and gives indexes or an Arrow column. So a format is
written in steps over whole columns, and no step costs more for many tables than for one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.wire import json_exact, tape_kernels
from headrace.wire.arrays import bitmap, own_view, text_array
from headrace.wire.compiled import is_compiled
from headrace.wire.json_exact import ARRAY, ESCAPED_NAME, NAME, NULL, OBJECT, READ, STRING
from headrace.wire.json_reader import Tokens, read_all
from headrace.wire.names import Names
from headrace.wire.spans import Array

_REMEMBERED = 1_024
"""How many members of the object before are remembered while names are looked up."""
_BLANKS = re.compile(r'("(?:[^"\\]|\\.)*+")|[ \t\r\n]+')


class Members(NamedTuple):
    """The members of a column of objects: those of row `r` stand from `offsets[r]` to `offsets[r + 1]`."""

    offsets: Array
    names: Array
    values: Array


class Groups(NamedTuple):
    """Which rows are alike: the number of each row's group, and the first row of each group."""

    of: Array
    first: Array


class Tape:
    """JSON messages of one batch, read.

    Args:
        values: messages as `binary`; together less than 2 GiB.
    """

    def __init__(self, values: pa.Array) -> None:
        view = own_view(values)
        self._start(view.data, int(((np.diff(view.offsets) + 1) // 2).sum()), len(values))
        read = read_all if is_compiled() else read_exactly
        read(self.data, view.offsets, self.tokens, self.root, self.verdict)
        self._forget_unread(values)
        self._unescape_names()

    @classmethod
    def of_texts(cls, texts: pa.StringArray) -> Tape:
        """A tape whose indexes are the rows of a column of texts."""
        view = own_view(texts)
        tape = cls.__new__(cls)
        tape._start(view.data, len(texts), len(texts))
        count = len(texts)
        missing = texts.is_null().to_numpy(zero_copy_only=False)
        tape.tokens.kind[:count] = np.where(missing, NULL, STRING)
        tape.tokens.start[:count] = view.offsets[:count]
        tape.tokens.size[:count] = np.diff(view.offsets[: count + 1])
        tape.tokens.after[:count] = np.arange(1, count + 1)
        tape.root = np.arange(len(texts), dtype=np.int32)
        return tape

    def _start(self, data: Array, room: int, count: int) -> None:
        # One at least, which indexes that hold nothing are looked up in.
        room = max(1, room)
        self.data: Array = data
        self.tokens = Tokens(np.empty(room, np.uint8), *(np.empty(room, np.int32) for _ in range(3)))
        self.verdict: Array = np.empty(count, np.uint8)
        self.root: Array = np.empty(count, np.int32)

    def _forget_unread(self, values: pa.Array) -> None:
        unread = self.verdict != READ
        if values.null_count:
            unread |= values.is_null().to_numpy(zero_copy_only=False)
        self.root[unread] = -1

    def _unescape_names(self) -> None:
        used = int(self.tokens.after[self.root[self.root >= 0]].max(initial=0))
        escaped = np.flatnonzero(self.tokens.kind[:used] == ESCAPED_NAME).astype(np.int32)
        if escaped.size:
            self.replace(escaped, self.texts(escaped))
            self.tokens.kind[escaped] = NAME

    def kinds(self, at: Array) -> Array:
        """What stands at these indexes; `ABSENT` where there is none."""
        return np.where(at < 0, np.uint8(json_exact.ABSENT), self.tokens.kind[at])

    def is_value(self, at: Array) -> Array:
        return (at >= 0) & (self.tokens.kind[at] != NULL)

    def fields(self, at: Array, names: Names, group: Array | None = None) -> Array:
        """The values of the named members of each object.

        Args:
            at: the objects; what is none has no members.
            names: sets of names.
            group: which set each row's names are looked up in; the first where not given.

        Returns:
            A matrix with a line for each index in a set and a column for each object. Of a name that an object repeats,
            the last value.
        """
        indexes = np.full((names.width, at.size), -1, np.int32)
        groups = np.zeros(at.size, np.int32) if group is None else group
        seen = np.full((3, _REMEMBERED), -1, np.int32)
        tape_kernels.find(self.data, self.tokens, at, groups, names.table, seen, indexes)
        return indexes

    def items(self, at: Array) -> tuple[Array, Array]:
        """The items of each array: offsets into them, as in an Arrow list, and their indexes. What is none has none."""
        offsets = np.empty(at.size + 1, np.int32)
        count = tape_kernels.count_items(self.tokens, at, offsets)
        indexes = np.empty(count, np.int32)
        tape_kernels.list_items(self.tokens, at, indexes)
        return offsets, indexes

    def members(self, at: Array, over: Array | None = None) -> Members:
        """All members of each object, each name once: where one is repeated, at its first index with its last value.

        Args:
            at: the objects.
            over: objects that are laid over them: their values win, and names that only they have come last.
        """
        second = np.full(at.size, -1, np.int32) if over is None else over
        room, largest = tape_kernels.count_members(self.tokens, at, second)
        offsets, names, values = np.empty(at.size + 1, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)
        seen = np.zeros(1 << max(3, (2 * int(largest)).bit_length()), np.int64)
        count = tape_kernels.list_members(self.data, self.tokens, at, second, seen, offsets, names, values)
        return Members(offsets, names[:count], values[:count])

    def field_counts(self, at: Array) -> Array:
        """How many members each object has, a name that is repeated as often as it stands; 0 for what is none."""
        counts = np.empty(at.size, np.int32)
        tape_kernels.count_fields(self.tokens, at, counts)
        return counts

    def among(self, at: Array, texts: Names) -> Array:
        """Whether each index holds one of a few texts, as it stands in the message."""
        is_among = np.zeros(at.size, np.bool_)
        tape_kernels.among(self.data, self.tokens, at, texts.table, is_among)
        return is_among

    def groups(self, at: Array) -> Groups:
        """Rows that have the same text, as it stands in the message, at each line of a matrix of indexes."""
        of, first = np.empty(at.shape[1], np.int32), np.empty(at.shape[1], np.int32)
        slots = np.full(1 << max(2, (2 * at.shape[1]).bit_length()), -1, np.int32)
        count = tape_kernels.group(self.data, self.tokens, at, slots, of, first)
        return Groups(of, first[:count])

    def texts(self, at: Array) -> pa.StringArray:
        """Each value as text: a string without its escapes, all else as it stands; null for null and what is absent."""
        offsets, valid = np.empty(at.size + 1, np.int32), bitmap(at.size)
        size = tape_kernels.measure_texts(self.tokens, at)
        if size >= 2**31:
            raise ValueError("the texts of one column have more than 2 GiB")
        out = np.empty(size, np.uint8)
        nulls = tape_kernels.write_texts(self.data, self.tokens, at, offsets, out, valid)
        return text_array(offsets, out, valid if nulls else None, nulls)

    def text(self, at: int) -> str | None:
        value: str | None = self.texts(np.array([at], np.int32))[0].as_py()
        return value

    def nested(self, at: Array) -> Array:
        """Those of these indexes that hold objects and arrays."""
        if not tape_kernels.nested(self.tokens, at):
            return np.empty(0, np.int32)
        kinds = self.kinds(at)
        return np.ascontiguousarray(at[(kinds == OBJECT) | (kinds == ARRAY)])

    def compact(self, at: Array) -> None:
        """Let objects and arrays at these indexes be strings from now on: their JSON without blanks."""
        nested = self.nested(at)
        if nested.size:
            texts = self.texts(nested)
            if pc.any(pc.match_substring_regex(texts, r"\s")).as_py():
                texts = pa.array([_BLANKS.sub(r"\1", text) for text in texts.to_pylist()], pa.string())
            self.replace(nested, texts)

    def append(self, *pieces: Array) -> int:
        """Add bytes after all others; the number of the first."""
        begin: int = self.data.size
        data = np.concatenate([self.data, *pieces])
        if data.size >= 2**31:
            raise ValueError("the texts of one batch have more than 2 GiB")
        data.flags.writeable = False
        self.data = data
        return begin

    def replace(self, at: Array, texts: pa.StringArray) -> None:
        """Let these indexes hold other texts from now on. Indexes that hold no value stay as they are."""
        view = own_view(texts)
        there = at >= 0
        begin = self.append(view.data)
        self.tokens.start[at[there]] = (view.offsets[:-1] + np.int32(begin))[there]
        self.tokens.size[at[there]] = np.diff(view.offsets)[there]
        self.tokens.kind[at[there]] = STRING


def read_exactly(data: Array, offsets: Array, tokens: Tokens, first: Array, verdict: Array) -> int:
    """What `json_reader.read_all` does, by the exact reader: for machines without numba, and for its test."""
    count = 0
    for row in range(first.size):
        begin = int(offsets[row])
        first[row] = count
        try:
            exact: Sequence[json_exact.JsonToken] = json_exact.read(data[begin : int(offsets[row + 1])].tobytes())
        except json_exact.NotJson as error:
            verdict[row] = error.verdict
            continue
        verdict[row] = READ
        for number, token in enumerate(exact, count):
            tokens.kind[number] = token.kind
            tokens.start[number] = begin + token.start
            tokens.size[number] = token.size
            tokens.after[number] = count + token.after
        count += len(exact)
    return count
