"""Images and keys of the rows of a batch: their values as canonical texts, as maps, and as typed structs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.formats.change_columns import absent_column, struct_column
from headrace.formats.debezium.message import MemberTexts
from headrace.formats.debezium.schemas import Fields
from headrace.formats.debezium.values import FieldEncoding
from headrace.formats.given_values import UnfitValue, refused_rows
from headrace.wire import tape as tapes
from headrace.wire.arrays import offsets_of
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn

_NO_FIELDS = Fields((), (), ())


@dataclass
class FieldIndexes:
    """What was found of a column of objects.

    Args:
        at: the indexes of their values: a line for each index in `Fields`, a column for each object.
        failed: which of them hold a value that is not written as their fields say.
    """

    at: Array
    failed: Array

    def only(self, objects: Array) -> FieldIndexes:
        return FieldIndexes(self.at[:, objects], self.failed[objects])


class FieldLayout:
    """The fields of all known schemas, as one set of names for each, and how each one's values are written."""

    def __init__(self, fields: Sequence[Fields | None]) -> None:
        self.fields = [table_fields or _NO_FIELDS for table_fields in fields]
        self.names = Names([table_fields.names for table_fields in self.fields])
        self.encodings: dict[FieldEncoding, int] = {}
        self._plan = np.zeros((self.names.width, len(fields)), np.int16)
        for number, table_fields in enumerate(self.fields):
            for index, encoding in enumerate(table_fields.encodings):
                if encoding is not None:
                    self._plan[index, number] = self.encodings.setdefault(encoding, len(self.encodings) + 1)
        self._renamed = {
            number for number, table_fields in enumerate(self.fields) if table_fields.names != table_fields.columns
        }

    def read(self, tape: Tape, at: Array, known: Array, *, absent: Names | None, lenient: bool) -> FieldIndexes:
        """Find the fields of objects, and write canonical texts and columns' names in place of what the wire has.

        Args:
            tape: where the objects are.
            at: their indexes.
            known: which schema each follows.
            absent: the texts of values that are not carried; None where that does not occur.
            lenient: whether a value that is written otherwise keeps its text.
        """
        failed = np.zeros(at.size, np.bool_)
        if not self.names.width or not at.size:
            return FieldIndexes(np.full((0, at.size), -1, np.int32), failed)
        fields_at = tape.fields(at, self.names, known.astype(np.int32))
        if absent is not None:
            fields_at[tape.among(fields_at.reshape(-1), absent).reshape(fields_at.shape)] = -1
        used = np.unique(known)
        tokens, texts = self._renames(fields_at, known, used)
        chosen = self._plan[:, known] if used.size > 1 else None
        present = np.unique(self._plan[:, used])
        for encoding, number in self.encodings.items():
            # Where nothing is written and nothing fails, there is nothing to look at.
            if number not in present or (lenient and encoding.is_lenient and encoding.is_checked_only):
                continue
            if chosen is None:
                lines = np.flatnonzero(self._plan[:, used[0]] == number)
                indexes, row = fields_at[lines].reshape(-1), np.tile(np.arange(at.size), lines.size)
            else:
                line, row = np.nonzero(chosen == number)
                indexes = fields_at[line, row]
            there = tape.is_value(indexes)
            indexes, row = np.ascontiguousarray(indexes[there]), row[there]
            if not indexes.size:
                continue
            canonical_fields = encoding.canonical(tape, indexes)
            if canonical_fields.null_count:
                wrong = canonical_fields.is_null().to_numpy(zero_copy_only=False)
                if not (lenient and encoding.is_lenient):
                    failed[row[wrong]] = True
                indexes, canonical_fields = indexes[~wrong], canonical_fields.drop_null()
            if not encoding.is_checked_only:
                tokens.append(indexes)
                texts.append(canonical_fields)
        if tokens:
            tape.replace(np.concatenate(tokens), pa.concat_arrays(texts))
        return FieldIndexes(fields_at, failed)

    def _renames(self, indexes: Array, known: Array, used: Array) -> tuple[list[Array], list[pa.StringArray]]:
        tokens: list[Array] = []
        texts: list[pa.StringArray] = []
        for number in self._renamed.intersection(map(int, used)):
            fields = self.fields[number]
            for index, (name, column) in enumerate(zip(fields.names, fields.columns, strict=True)):
                at = indexes[index, known == number]
                at = at[at >= 0] - 1
                if name != column and at.size:
                    tokens.append(at)
                    texts.append(pa.array([column] * at.size, pa.string()))
        return tokens, texts

    def columns_at(self, read: FieldIndexes, known: Array, names: Sequence[str]) -> Array:
        """The indexes of columns' values: a line for each name."""
        # A line after the last, where nothing is.
        padded = np.concatenate([read.at, np.full((1, known.size), -1, np.int32)])
        lines = np.full((len(names), len(self.fields)), -1, np.int64)
        for number in np.unique(known):
            index = {column: n for n, column in enumerate(self.fields[number].columns)}
            lines[:, number] = [index.get(name, -1) for name in names]
        return np.ascontiguousarray(padded[lines[:, known], np.arange(known.size)])


def map_images(
    tape: Tape, images: Array, members: tapes.Members, kept: Array, flat: Array, prefix: str | None
) -> dict[str, pa.Array]:
    """Old and new images, one after another, as columns of maps.

    Args:
        tape: where they are.
        images: their indexes.
        members: their members.
        kept: which of the members are carried.
        flat: which of the images are flat records.
        prefix: what the names of a flat record's added fields begin with, which are no columns.
    """
    if prefix is not None:
        added = pc.starts_with(tape.texts(members.names), prefix).to_numpy(zero_copy_only=False)
        kept = kept & ~(added & np.repeat(flat, np.diff(members.offsets)))
    maps = MemberTexts.of(tape, members, kept, images >= 0).as_maps()
    count = images.size // 2
    return {"before": maps.slice(0, count), "after": maps.slice(count)}


def struct_images(
    tape: Tape, images: Array, at: Array, schema: TableSchema, kind: pa.StructType
) -> tuple[dict[str, pa.Array], list[UnfitValue]]:
    """Old and then new images as columns of structs; and the values that do not fit, by row.

    Args:
        tape: where they are.
        images: their indexes.
        at: the indexes of the columns' values.
        schema: the table schema.
        kind: the type of the structs.
    """
    count = images.size // 2
    typed = [TypedColumn(tape, at[index], field.type) for index, field in enumerate(kind)]
    structs: dict[str, pa.Array] = {}
    for name, part in (("before", slice(0, count)), ("after", slice(count, 2 * count))):
        present = images[part] >= 0
        absent = (at[:, part] < 0).T & present[:, None]
        arrays = {f.name: column.values.slice(part.start, count) for f, column in zip(kind, typed, strict=True)}
        structs[name] = struct_column(kind, arrays, pa.array(present))
        structs[f"{name}_absent"] = absent_column([column.name for column in schema.columns], absent)
    misfits = [
        UnfitValue(int(row) % count, column, tape.text(indexes[row]) or "")
        for column, read, indexes in zip(schema.columns, typed, at, strict=True)
        for row in refused_rows(tape, indexes, column, read)
    ]
    return structs, misfits


def doubled(tape: Tape, images: Array, read: FieldIndexes, members: tapes.Members | None) -> Array:
    counts = tape.field_counts(images)
    if members is None:
        # As many as were found are there once; the others are looked at.
        suspicious = counts > (read.at >= 0).sum(axis=0)
        members = tape.members(np.where(suspicious, images, np.int32(-1)).astype(np.int32))
        counts = np.where(suspicious, counts, 0)
    twice: Array = np.diff(members.offsets) < counts
    return twice


def keys_of(
    tape: Tape, keys: Array, table_field: str, wanted: Sequence[str], images: tuple[Tape, Array, Array | None]
) -> MemberTexts:
    """Keys: the message's own, or columns of the image.

    Args:
        tape: where the messages' keys are.
        keys: their indexes.
        table_field: a field that is not part of them.
        wanted: the columns of the image.
        images: where the newest images are, their indexes, and for which rows they may say the key, as far as they
            carry some of the columns; None for those that carry all.
    """
    members = tape.members(keys)
    kept = tape.is_value(members.values) & tape.among(members.names, Names([(table_field,)]))
    key_texts = MemberTexts.of(tape, members, ~kept, keys >= 0)
    image_tape, image, use = images
    if not wanted:
        return key_texts
    at = image_tape.fields(image, Names([wanted]))
    there = at >= 0
    chosen = there.all(axis=0) if use is None else use
    chosen = chosen & there.any(axis=0)
    if not chosen.any():
        return key_texts
    there &= chosen
    row, index = there.T.nonzero()
    names = pa.array(list(wanted), pa.string()).take(pa.array(index))
    texts = image_tape.texts(np.ascontiguousarray(at[index, row]))
    return key_texts.with_others(MemberTexts(offsets_of(there.sum(axis=0)), names, texts, chosen))


def either(mask: Array, one: pa.MapArray, other: pa.MapArray) -> pa.MapArray:
    """The maps of one column where the mask is set, else those of the other."""
    rows = np.where(mask, 0, len(one)) + np.arange(len(one))
    return pa.concat_arrays([one, other]).take(pa.array(rows))
