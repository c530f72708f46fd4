"""Images as decoders of JSON find them: objects of a tape, laid over each other, as maps or as structs of columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.formats.change_columns import absent_column, struct_column
from headrace.formats.given_values import UnfitValue, refused_rows
from headrace.wire.arrays import list_array, map_array, offsets_of
from headrace.wire.json_writer import string_lists
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn

Encoding = TypeVar("Encoding", bound=Hashable)


class Unread(NamedTuple):
    """A value that is not written as its column says.

    Args:
        object: the number of the object that holds it.
        column: its name there.
        at: its index.
    """

    object: int
    column: str
    at: int


def write_canonical(
    tape: Tape,
    objects: Array,
    of: Array,
    encodings: Sequence[Mapping[str, Encoding]],
    canonical: Callable[[Tape, Array, Encoding], pa.StringArray],
) -> list[Unread]:
    """Let the values of objects be canonical texts from now on.

    Args:
        tape: where they are.
        objects: their indexes.
        of: the number of what is known of each.
        encodings: by that number, how values are written, by column; without the columns whose texts stay.
        canonical: makes the texts of values of one text form, null where one is not written so.

    Returns:
        These; they keep their texts.
    """
    names = Names([list(by_column) for by_column in encodings])
    if not names.width or not objects.size:
        return []
    at = tape.fields(objects, names, of.astype(np.int32))
    every = list(dict.fromkeys(encoding for by_column in encodings for encoding in by_column.values()))
    numbers = {encoding: number for number, encoding in enumerate(every)}
    table = np.full((len(encodings), names.width), -1)
    for number, by_column in enumerate(encodings):
        table[number, : len(by_column)] = [numbers[encoding] for encoding in by_column.values()]
    chosen = table[of].T
    chosen[~tape.is_value(at)] = -1
    unread = []
    for number in np.unique(chosen[chosen >= 0]):
        index, row = np.nonzero(chosen == number)
        tokens = np.ascontiguousarray(at[index, row])
        canonical_fields = canonical(tape, tokens, every[number])
        for bad in np.flatnonzero(canonical_fields.is_null().to_numpy(zero_copy_only=False)):
            column = list(encodings[of[row[bad]]])[index[bad]]
            unread.append(Unread(int(row[bad]), column, int(tokens[bad])))
        tape.replace(
            tokens,
            pc.coalesce(canonical_fields, tape.texts(tokens)) if canonical_fields.null_count else canonical_fields,
        )
    return unread


@dataclass(frozen=True)
class ObjectImage:
    """One image of each row.

    Args:
        tape: where the objects are.
        base: an object for each row; -1 where the row has no image.
        over: what is laid over it: its values win; -1 where nothing is.
    """

    tape: Tape
    base: Array
    over: Array

    @classmethod
    def of(cls, tape: Tape, base: Array, over: Array | None = None) -> ObjectImage:
        """Images, with or without something laid over them."""
        return cls(tape, base, np.full(base.size, -1, np.int32) if over is None else over)

    @property
    def present(self) -> Array:
        return self.base >= 0

    def or_else(self, other: ObjectImage) -> ObjectImage:
        return replace(
            self,
            base=np.where(self.present, self.base, other.base),
            over=np.where(self.present, self.over, other.over),
        )

    def fields(self, names: Names, group: Array | None = None) -> Array:
        """The indexes of named values, as `Tape.fields` gives them."""
        indexes = self.tape.fields(self.base, names, group)
        if (self.over < 0).all():
            return indexes
        over = self.tape.fields(self.over, names, group)
        return np.where(over >= 0, over, indexes)

    def map(self) -> pa.MapArray:
        """The images as maps of texts; nested values are JSON without blanks."""
        members = self.tape.members(self.base, self.over)
        self.tape.compact(members.values)
        names, values = self.tape.texts(members.names), self.tape.texts(members.values)
        return map_array(members.offsets, names, values, self.present)

    def names(self) -> pa.ListArray:
        """The names that the images hold; null where there is none."""
        members = self.tape.members(self.base, self.over)
        return list_array(members.offsets, self.tape.texts(members.names), self.present)

    def structs(
        self, schema: TableSchema, kind: pa.StructType, zone: str | None = None
    ) -> tuple[pa.StructArray, pa.ListArray, list[UnfitValue]]:
        """The images as structs, the columns that they do not carry, and the values that their columns can't hold.

        Args:
            schema: the columns.
            kind: the structs' type.
            zone: of instants that say none; UTC where None.
        """
        names = [column.name for column in schema.columns]
        at = self.fields(Names([names]))
        self.tape.compact(at.reshape(-1))
        arrays, refused = {}, []
        for index, field in enumerate(kind):
            column, read = schema.columns[index], TypedColumn(self.tape, at[index], field.type, zone)
            arrays[field.name] = read.values
            rows = refused_rows(self.tape, at[index], column, read)
            if rows.size:
                texts = self.tape.texts(np.ascontiguousarray(at[index][rows])).to_pylist()
                refused += [UnfitValue(int(row), column, text) for row, text in zip(rows, texts, strict=True)]
        absent = (at < 0).T & self.present[:, None]
        return (
            struct_column(kind, arrays, pa.array(self.present)),
            absent_column(names, absent),
            refused,
        )

    def key(self, sets: Sequence[Sequence[str]], of: Array) -> tuple[pa.MapArray, pa.StringArray]:
        """The key and its text, from images that have all of its columns; null where one is missing.

        Args:
            sets: the names of key columns; an empty set is not a key.
            of: which of them is each row's.
        """
        sizes = np.array([len(names) for names in sets] or [0])[of]
        at = self.fields(Names(sets), of.astype(np.int32))
        present = (sizes > 0) & ((at >= 0).sum(axis=0) == sizes)
        row, index = np.nonzero((at >= 0).T & present[:, None])
        offsets = offsets_of(np.where(present, sizes, 0))
        begins = offsets_of([len(names) for names in sets])
        flat = pa.array([name for names in sets for name in names], pa.string())
        chosen = np.ascontiguousarray(at[index, row])
        self.tape.compact(chosen)
        values = self.tape.texts(chosen)
        keys = flat.take(pa.array(begins[of[row]] + index))
        return map_array(offsets, keys, values, present), string_lists(offsets, values, present)
