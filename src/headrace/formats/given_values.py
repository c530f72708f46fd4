"""Whether columns can hold the values of maps, whose schemas the user gave as a list."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from headrace.changes import Column, TableSchema
from headrace.changes.row import arrow_type
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn

_DAY = r"-?[0-9]{4,}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?"
_ENDLESS = r"[+-]?(inf|infinity)"
_UNREPRESENTABLE: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(rf"(?i)({pattern})")
    for kind, pattern in {
        "date": f"{_DAY}|{_ENDLESS}",
        "timestamp": f"{_DAY}{_CLOCK}|{_ENDLESS}",
        "instant": f"{_DAY}{_CLOCK}(Z|[+-][0-9:]+)|{_ENDLESS}",
        "decimal": rf"nan|{_ENDLESS}",
    }.items()
}
"""Texts that are values of a source's column, although no column of Spark has them: days before Christ or that no
calendar has, infinity. Targets decide what becomes of them."""
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


ColumnsOf = Callable[[Array, list[str]], Array]
"""The places of the values of some images: a line for each of these names."""


def misfits(
    tape: Tape, present: Array, of: Array, schemas: Sequence[TableSchema | None], columns_of: ColumnsOf
) -> list[tuple[int, Column, str]]:
    """The images that have a value which its column can't hold, each with the column and the text.

    Args:
        tape: where they are.
        present: which images are not null.
        of: which schema each image has, as an index into `schemas`.
        schemas: those of the user; None where there is none.
        columns_of: finds the values of images by the names of columns.
    """
    found: list[tuple[int, Column, str]] = []
    for number in np.unique(of[present]):
        schema = schemas[number]
        if schema is None:
            continue
        rows = np.flatnonzero(present & (of == number))
        checked = [column for column in schema.columns if column.logical.spark_type != "string"]
        lines = columns_of(rows, [column.name for column in checked])
        for column, line in zip(checked, lines, strict=True):
            at = np.ascontiguousarray(line)
            refused = TypedColumn(tape, at, arrow_type(column.logical)).refused
            if column.logical.kind in _UNSIGNED:
                refused = np.union1d(refused, np.flatnonzero(_is_negative(tape, at)))
            texts = tape.texts(np.ascontiguousarray(at[refused])).to_pylist()
            known = _UNREPRESENTABLE.get(column.logical.kind)
            found += [
                (int(rows[row]), column, text)
                for row, text in zip(refused, texts, strict=True)
                if known is None or not known.fullmatch(text)
            ]
    return found


def _is_negative(tape: Tape, at: Array) -> Array:
    starts = tape.tokens.start[np.where(at < 0, 0, at)]
    has_text = tape.is_value(at)
    found: Array = np.zeros(at.size, np.bool_)
    found[has_text] = tape.data[starts[has_text]] == ord("-")
    return found
