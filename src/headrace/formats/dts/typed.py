"""Whether columns can hold values, by their canonical texts and the forms in which they came; structs of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Column, TableSchema
from headrace.changes.row import arrow_type
from headrace.formats.change_columns import absent_column, struct_column
from headrace.formats.dts.values import DtsValues
from headrace.formats.given_values import UnfitValue, refused_rows
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn
from headrace.wire.typed_exact import bytes_of

_INSTANTS = ("i", "z")


def typed_image(
    values: DtsValues, index: Array, present: Array, schema: TableSchema, kind: pa.StructType
) -> tuple[pa.StructArray, pa.ListArray, list[UnfitValue]]:
    """The structs, the columns that they do not carry, and the values that their columns can't hold.

    Args:
        values: all values.
        index: for each row and column, the number of its value; -1 where there is none.
        present: which rows have an image.
        schema: the columns.
        kind: the structs' type.
    """
    columns, refused = _columns(values, index, schema)
    carried = np.append(~values.absent, False)[index]
    left_out = ~carried & present[:, None]
    absent = absent_column([column.name for column in schema.columns], left_out)
    return struct_column(kind, columns, pa.array(present)), absent, refused


def unfit_values(values: DtsValues, index: Array, schema: TableSchema) -> list[UnfitValue]:
    """The values of maps that the columns of the user's schema can't hold, without those of some source."""
    return [column for column in _columns(values, index, schema, texts=True)[1] if not column.is_of_source]


def _columns(
    values: DtsValues, index: Array, schema: TableSchema, *, texts: bool = False
) -> tuple[dict[str, pa.Array], list[UnfitValue]]:
    """The columns of structs, and what they can't hold; with `texts` a text is not bytes, as maps have base64
    there.
    """
    tape = Tape.of_texts(values.texts)
    refused: list[UnfitValue] = []
    columns = {}
    forms = np.append(values.forms, "")
    for number, column in enumerate(schema.columns):
        at = np.ascontiguousarray(index[:, number], np.int32)
        form = forms[at]
        if texts and column.logical.spark_type == "binary":
            wrong = np.flatnonzero((form != "b") & tape.is_value(at))
        else:
            columns[column.name], wrong = _column(tape, at, form, column)
        refused += [UnfitValue(int(row), column, tape.text(at[row]) or "") for row in wrong]
    return columns, refused


def _column(tape: Tape, at: Array, form: Array, column: Column) -> tuple[pa.Array, Array]:
    """The column, and the rows whose value it can't hold."""
    types, kind = pa.types, arrow_type(column.logical)
    if types.is_binary(kind):
        made = [
            None if text is None else bytes_of(text) if letter == "b" else text.encode()
            for text, letter in zip(tape.texts(at).to_pylist(), form, strict=True)
        ]
        return pa.array(made, kind), np.zeros(0, np.int64)
    read = TypedColumn(tape, at, kind)
    if not types.is_timestamp(kind):
        return read.values, refused_rows(tape, at, column, read)
    # A clock without a zone is not an instant, and an instant no clock.
    of_other = np.isin(form, _INSTANTS) == (kind.tz is None)
    there = tape.is_value(at)
    wrong = np.union1d(read.refused, np.flatnonzero(of_other & there))
    mask = np.zeros(at.size, bool)
    mask[wrong] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, kind), read.values), wrong
