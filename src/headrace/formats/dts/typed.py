"""Images as structs of typed columns, from canonical texts and the forms in which they came."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.formats.change_columns import absent_column, struct_column
from headrace.formats.dts.values import DtsValues
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn
from headrace.wire.typed_exact import bytes_of

MISFIT = "A value of column '{}' does not fit its type {}."
_INSTANTS = ("i", "z")


def typed_image(
    values: DtsValues, place: Array, present: Array, schema: TableSchema, kind: pa.StructType
) -> tuple[pa.StructArray, pa.ListArray, list[tuple[int, str]]]:
    """The structs, the columns that they do not carry, and the rows with a value that its column can't hold.

    Args:
        values: all values.
        place: for each row and column, the number of its value; -1 where there is none.
        present: which rows have an image.
        schema: the columns.
        kind: the structs' type.
    """
    tape = Tape.of_texts(values.texts)
    refused: list[tuple[int, str]] = []
    columns = {}
    forms = np.append(values.forms, "")
    for number, (column, field) in enumerate(zip(schema.columns, kind, strict=True)):
        at = np.ascontiguousarray(place[:, number], np.int32)
        form = forms[at]
        columns[field.name], wrong = _column(tape, values.texts, at, form, field.type)
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            wrong = wrong[~_is_zero_day(tape.texts(at[wrong]))]
        spark_type = column.logical.spark_type
        refused += [(int(row), MISFIT.format(column.name, spark_type)) for row in wrong]
    carried = np.append(~values.absent, False)[place]
    left_out = ~carried & present[:, None]
    absent = absent_column([column.name for column in schema.columns], left_out)
    return struct_column(kind, columns, pa.array(present)), absent, refused


def _column(tape: Tape, texts: pa.StringArray, at: Array, form: Array, kind: pa.DataType) -> tuple[pa.Array, Array]:
    """The column, and the rows whose value it can't hold."""
    types = pa.types
    if types.is_binary(kind):
        made = [
            None if text is None else bytes_of(text) if letter == "b" else text.encode()
            for text, letter in zip(tape.texts(at).to_pylist(), form, strict=True)
        ]
        return pa.array(made, kind), np.zeros(0, np.int64)
    column = TypedColumn(tape, at, kind)
    if not types.is_timestamp(kind):
        return column.values, column.refused
    # A clock without a zone is no instant, and an instant no clock.
    of_other = np.isin(form, _INSTANTS) == (kind.tz is None)
    there = tape.is_value(at)
    wrong = np.union1d(column.refused, np.flatnonzero(of_other & there))
    mask = np.zeros(at.size, bool)
    mask[wrong] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, kind), column.values), wrong


def _is_zero_day(texts: pa.StringArray) -> Array:
    """Whether texts are days of MySQL that no calendar has: they become null, as no type has them."""
    return pc.match_substring_regex(texts, r"^[0-9]{4}-(00-[0-9]{2}|[0-9]{2}-00)").to_numpy(zero_copy_only=False)
