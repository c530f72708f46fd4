"""What becomes of values that a column of the user's schema can't hold: one rule for all formats.

Images that are structs have no place for them, and images that are maps keep them only where they are values of some
source, of which targets decide. A message with any other is an error that names the column and the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.changes import Column, TableSchema
from headrace.changes.row import arrow_type
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn
from headrace.wire.typed_exact import days_of

_ENDLESS = re.compile(r"(?i)[+-]?inf(inity)?")
_NOT_FINITE = re.compile(r"(?i)nan|[+-]?inf(inity)?")
_DAY = re.compile(r"([+-]?[0-9]{4,})-([0-9]{2})-([0-9]{2})([T ][0-9:.]+)?(Z|[+-][0-9:]+)?( BC)?")
_MOMENTS = ("date", "timestamp", "instant", "zoned_timestamp")
_AS_TEXT = "Declare the column as string in the option 'schema', which keeps its text."
_IN_KEY = "NULL can't stand in a key: declare the column as string in the option 'schema', which keeps its text."
_NULL = "Or set the format's option 'unrepresentable' to null, which has NULL there."
_MOST_SHOWN = 80
_USUAL_YEAR = 4
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


class UnfitValue(NamedTuple):
    """A value that its column can't hold."""

    row: int
    column: Column
    text: str

    @property
    def is_of_source(self) -> bool:
        """Whether it is a value of some source, although no column of Spark has it: infinity, a day that no calendar
        or none of Spark's has, a number that is none."""
        kind = self.column.logical.kind
        if kind not in _MOMENTS:
            return kind == "decimal" and _NOT_FINITE.fullmatch(self.text) is not None
        day = _DAY.fullmatch(self.text)
        if day is None:
            return _ENDLESS.fullmatch(self.text) is not None
        return len(day[1]) > _USUAL_YEAR or days_of(*map(int, day.groups()[:3])) is None


def note_misfits(
    unfit: Iterable[UnfitValue], key: pa.MapArray, messages: Array, problems: dict[int, str], *, nulls: bool
) -> None:
    """Note the messages with a value that its column can't hold, each with the first.

    Args:
        unfit: the values; their columns are null already.
        key: the keys of rows.
        messages: the message of each row.
        problems: takes a sentence by message.
        nulls: whether null may stand for a value that a source has and Spark's type has not (`unrepresentable`).
    """
    for one in unfit:
        in_key = one.is_of_source and one.column.name in dict(key[one.row].as_py() or ())
        if not (one.is_of_source and nulls and not in_key):
            sentence = misfit(one.column, one.text, of_source=one.is_of_source, in_key=in_key)
            problems.setdefault(int(messages[one.row]), sentence)


def misfit(column: Column, text: str, *, of_source: bool = False, in_key: bool = False) -> str:
    """The sentence of a value that its column can't hold."""
    kind = column.logical.spark_type
    if not of_source:
        return f"Column '{column.name}' can't hold {text[:_MOST_SHOWN]} exactly: it is {kind}."
    remedy = _IN_KEY if in_key else f"{_AS_TEXT} {_NULL}"
    return f"Column '{column.name}' has the value {text[:_MOST_SHOWN]}, for which Spark's {kind} has no place. {remedy}"


ColumnsOf = Callable[[Array, list[str]], Array]
"""The indexes of the values of some images: a line for each of these names."""


def misfits(
    tape: Tape, present: Array, of: Array, schemas: Sequence[TableSchema | None], columns_of: ColumnsOf
) -> list[UnfitValue]:
    """The values of maps that columns can't hold, without those of some source.

    Args:
        tape: where they are.
        present: which images are not null.
        of: which schema each image has, as an index into `schemas`.
        schemas: those of the user; None where there is none.
        columns_of: finds the values of images by the names of columns.
    """
    unfit: list[UnfitValue] = []
    for number in np.unique(of[present]):
        schema = schemas[number]
        if schema is None:
            continue
        rows = np.flatnonzero(present & (of == number))
        checked = [column for column in schema.columns if column.logical.spark_type != "string"]
        lines = columns_of(rows, [column.name for column in checked])
        for column, line in zip(checked, lines, strict=True):
            at = np.ascontiguousarray(line)
            refused = refused_rows(tape, at, column, TypedColumn(tape, at, arrow_type(column.logical)))
            texts = tape.texts(np.ascontiguousarray(at[refused])).to_pylist()
            unfit += [UnfitValue(int(rows[row]), column, text) for row, text in zip(refused, texts, strict=True)]
    return [one for one in unfit if not one.is_of_source]


def refused_rows(tape: Tape, at: Array, column: Column, read: TypedColumn) -> Array:
    """The rows of values that a column can't hold: what its type has not, and negative numbers of unsigned ones.

    Args:
        tape: where they are.
        at: their indexes.
        column: the column.
        read: the values as the column's type.
    """
    if column.logical.kind not in _UNSIGNED:
        return read.refused
    return np.union1d(read.refused, np.flatnonzero(_is_negative(tape, at)))


def _is_negative(tape: Tape, at: Array) -> Array:
    indexes = np.where(at < 0, 0, at)
    starts = tape.tokens.start[indexes]
    # An empty text may stand where the bytes end.
    has_text = tape.is_value(at) & (tape.tokens.size[indexes] > 0)
    is_negative: Array = np.zeros(at.size, np.bool_)
    is_negative[has_text] = tape.data[starts[has_text]] == ord("-")
    return is_negative
