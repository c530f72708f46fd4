"""Messages as lines of JSON that a person can read: `{"topic","key","value","headers","position"}`.

Key and value are texts. Where one of them is not UTF-8, both stand as base64, as `key_base64` and `value_base64`; so do
all values of a message's headers where one of them is none, as `value_base64`.
"""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.wire.json_writer import Part, messages
from headrace.wire.spans import Array


def lines(batch: pa.RecordBatch) -> pa.StringArray:
    """The line of each message.

    Args:
        batch: columns topic, key, value, headers and position; others are left alone.
    """
    count = batch.num_rows
    key, of_key = _texts(batch.column("key"))
    value, of_value = _texts(batch.column("value"))
    headers = Part(_headers(batch.column("headers")))
    whole = of_key & of_value
    if whole.all():
        return _lines(batch, "", key, value, headers, count)
    coded = [pa.array(_base64(batch.column(name)), pa.string()) for name in ("key", "value")]
    texts = _lines(batch, "", key, value, headers, count)
    return pc.if_else(pa.array(whole), texts, _lines(batch, "_base64", coded[0], coded[1], headers, count))


def _lines(
    batch: pa.RecordBatch, form: str, key: pa.StringArray, value: pa.StringArray, headers: Part, count: int
) -> pa.StringArray:
    topic, position = (Part(batch.column(name), quoted=True) for name in ("topic", "position"))
    return messages(
        [
            '{"topic":', topic, f',"key{form}":', Part(key, quoted=True), f',"value{form}":', Part(value, quoted=True),
            ',"headers":', headers, ',"position":', position, "}",
        ],
        count,
    )  # fmt: skip


def _headers(column: pa.ListArray) -> pa.StringArray:
    """The headers of each message as a JSON array; null where there is none."""
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    items = column.flatten()
    names, values = (items.field(number) for number in (0, 1))
    texts, valid = _texts(values)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False), out=offsets[1:])
    entries = _items(names, "", texts)
    if not valid.all():
        # All values of a message are written alike.
        message = np.repeat(np.arange(len(column)), np.diff(offsets))
        odd = np.isin(message, message[~valid])
        entries = pc.if_else(pa.array(odd), _items(names, "_base64", pa.array(_base64(values), pa.string())), entries)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), entries), ",")
    texts = pc.binary_join_element_wise("[", joined, "]", "")
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts


def _items(names: pa.StringArray, form: str, values: pa.StringArray) -> pa.StringArray:
    parts: list[str | Part] = ['{"key":', Part(names, quoted=True), f',"value{form}":', Part(values, quoted=True), "}"]
    return messages(parts, len(names))


def _texts(column: pa.BinaryArray) -> tuple[pa.StringArray, Array]:
    """Bytes as texts, null where they are no UTF-8; and which are, or are null."""
    try:
        return column.cast(pa.string()), np.ones(len(column), np.bool_)
    except pa.ArrowInvalid:
        texts = [_text(value) for value in column.to_pylist()]
        return pa.array(texts, pa.string()), np.array(pc.is_null(column)) | np.array([t is not None for t in texts])


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _base64(column: pa.BinaryArray) -> list[str | None]:
    return [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
