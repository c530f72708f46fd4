"""The rows of a batch's ordinary messages, and the members of their objects as texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.formats.debezium.message import TOMBSTONE
from headrace.wire import tape as tapes
from headrace.wire.arrays import map_array, offsets_of
from headrace.wire.spans import Array
from headrace.wire.tape import Tape


@dataclass
class Rows:
    """The rows of a batch's ordinary messages, each of one message.

    Args:
        message: which message each row is of.
        op: a number of `ROW_OPERATIONS`.
        known: which of the decoder's known schemas it follows.
        before: its old image; -1 where it has none.
        after: its new image.
        key: its key.
    """

    message: Array
    op: Array
    known: Array
    before: Array
    after: Array
    key: Array

    @property
    def schema_number(self) -> Array:
        """Which of the known schemas each row follows that says one; 0, which is none, for tombstones."""
        return np.where(self.op == TOMBSTONE, 0, self.known)

    @property
    def images(self) -> Array:
        """The old images, and the new ones behind them."""
        return np.concatenate([self.before, self.after])


@dataclass
class MemberTexts:
    """The members of a column of objects, as texts."""

    offsets: Array
    names: pa.StringArray
    texts: pa.StringArray
    present: Array

    @classmethod
    def of(cls, tape: Tape, members: tapes.Members, kept: Array, present: Array) -> MemberTexts:
        """The members that are kept."""
        if kept.all():
            return cls(members.offsets, tape.texts(members.names), tape.texts(members.values), present)
        names, values = np.ascontiguousarray(members.names[kept]), np.ascontiguousarray(members.values[kept])
        return cls(offsets_of(kept)[members.offsets], tape.texts(names), tape.texts(values), present)

    def with_others(self, other: MemberTexts) -> MemberTexts:
        """Those of the other column where it has some."""
        counts = np.where(other.present, np.diff(other.offsets), np.where(self.present, np.diff(self.offsets), 0))
        begins = np.where(other.present, other.offsets[:-1] + len(self.names), self.offsets[:-1])
        offsets = offsets_of(counts)
        order = pa.array(np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], counts))
        names = pa.concat_arrays([self.names, other.names]).take(order)
        texts = pa.concat_arrays([self.texts, other.texts]).take(order)
        return MemberTexts(offsets, names, texts, self.present | other.present)

    def as_maps(self) -> pa.MapArray:
        """A column of maps."""
        return map_array(self.offsets, self.names, self.texts, self.present)
