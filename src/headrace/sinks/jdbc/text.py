"""Rows as the text that a database loads: whole Arrow columns at a time, never a row in Python.

Every value crosses as its canonical text (bytes as hex digits), so no number passes through a double and no driver
guesses a type. The database reads it as the type of the staging column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.types import LogicalType, arrow_text


@dataclass(frozen=True)
class RowEncoding:
    """How a database wants rows.

    Args:
        null: what stands for NULL.
        between: what stands between two values.
        end: what ends a row.
        escapes: what is written instead of characters in values, in the order in which it is done.
        begin: what begins a row.
        quote: what stands around a value.
        bytes_before: what stands before the hex digits of bytes.
        bytes_after: the SQL that follows them.
        booleans: the words for true and false.
        before_christ: what follows a day before Christ, whose year is counted from 1 then; empty where 1 BC is year 0.
    """

    null: str
    between: str
    end: str
    escapes: tuple[tuple[str, str], ...]
    begin: str = ""
    quote: str = ""
    bytes_before: str = ""
    bytes_after: str = ""
    booleans: tuple[str, str] = ("true", "false")
    before_christ: str = ""


def texts(
    batch: pa.RecordBatch, types: Sequence[LogicalType], encoding: RowEncoding, *, most_bytes: int
) -> Iterator[pa.Buffer]:
    """The rows of a batch, one text after another.

    Args:
        batch: columns in the order of the types.
        types: what each column's values mean.
        encoding: how the database wants them.
        most_bytes: about how many bytes of Arrow data go into one text; a single row is never divided.
    """
    rows = batch.num_rows
    # Slices, because the text of a batch with large values may be more than one Arrow array holds.
    step = max(1, rows * most_bytes // max(batch.nbytes, 1))
    for start in range(0, rows, step):
        piece = batch.slice(start, step)
        columns = [column_texts(column, kind, encoding) for column, kind in zip(piece.columns, types, strict=True)]
        joined = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, encoding.between)
        lines = pc.binary_join_element_wise(encoding.begin, joined, encoding.end, "")
        yield _data(lines)


def column_texts(values: pa.Array, logical: LogicalType, encoding: RowEncoding) -> pa.Array:
    """One column as texts; nulls are written too."""
    if pa.types.is_large_binary(values.type):
        values = values.cast(pa.binary())
    if pa.types.is_large_string(values.type):
        values = values.cast(pa.string())
    if pa.types.is_binary(values.type):
        written = _around(hex_texts(values), encoding.bytes_before, encoding.bytes_after)
    elif pa.types.is_boolean(values.type):
        written = pc.if_else(values, *encoding.booleans)
        written = _around(written, encoding.quote, encoding.quote)
    else:
        written = arrow_text(values, logical)
        if encoding.before_christ and (pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)):
            written = _with_era(written, encoding.before_christ)
        if pa.types.is_string(values.type):
            for character, escape in encoding.escapes:
                written = pc.replace_substring(written, character, escape)
        written = _around(written, encoding.quote, encoding.quote)
    return pc.fill_null(written, encoding.null)


def _with_era(days: pa.Array, before_christ: str) -> pa.Array:
    """Days whose years are counted from 0 backwards, with years before Christ. They are few."""
    early = pc.match_substring_regex(days, "^(-|0000)").fill_null(False)
    if not pc.any(early).as_py():
        return days
    parts = (text.removeprefix("-").partition("-") for text in days.filter(early).to_pylist())
    texts = [f"{int(year) + 1:04}-{rest}{before_christ}" for year, _, rest in parts]
    return pc.replace_with_mask(days, early, pa.array(texts, pa.string()))


def hex_texts(values: pa.Array) -> pa.Array:
    """Bytes as hex digits: the data of the whole column at once."""
    _, offsets, data = values.buffers()
    indexes = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    digits = (memoryview(data)[indexes[0] : indexes[-1]] if data is not None else b"").hex().encode()
    moved = ((indexes - indexes[0]) * 2).astype(np.int32)
    texts = pa.StringArray.from_buffers(len(values), pa.py_buffer(moved), pa.py_buffer(digits))
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))


def _around(values: pa.Array, before: str, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, values, after, "") if before or after else values


def _data(lines: pa.Array) -> pa.Buffer:
    """The texts of an array one after another, without a copy."""
    _, offsets, data = lines.buffers()
    indexes = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return data.slice(int(indexes[0]), int(indexes[-1] - indexes[0]))
