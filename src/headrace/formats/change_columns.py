"""The columns of change rows that every decoder of messages makes: positions, operations, the source's facts, and rows
that stand by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.changes.row import arrow_schema
from headrace.formats.images import Image
from headrace.wire.arrays import fixed_texts, list_array, mask_bitmap, offsets_of, text_array
from headrace.wire.spans import Array

# Python's times reach no further, although Spark's do.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The milliseconds since 1970 that an `event_time` can have."""

_TABLE = arrow_schema().field("table").type
_MESSAGE = arrow_schema().field("message").type
_HELD = ("key", "value")
_TRANSACTION = arrow_schema().field("transaction").type
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
_SCHEMA_ORDER, _DATA_ORDER = "0", "1"


def positions(offsets: pa.Int64Array, indexes: Array | None = None) -> pa.StringArray:
    """The positions of rows: the Kafka offset in 20 digits, `/1/`, and the index in the message if it has several."""
    numbers = offsets.fill_null(0).to_numpy()
    if indexes is None:
        return fixed_texts(b"0" * 20 + b"/1/", [numbers])
    return fixed_texts(b"0" * 20 + b"/1/" + b"0" * 9, [numbers, indexes])


def position_text(batch: pa.RecordBatch, number: int, index: int | None, order: str = _DATA_ORDER) -> str:
    """The position of one message's row; of the whole message where `index` is None."""
    offset = batch.column("offset")[number].as_py() or 0
    return f"{offset:020}/{order}/{'' if index is None else f'{index:09}'}"


def table_column(
    database: pa.StringArray, name: pa.StringArray, schema: pa.StringArray | None = None
) -> pa.StructArray:
    """The tables of rows; a part that a message does not say is empty."""
    empty = text_array(np.zeros(len(name) + 1, np.int32), np.zeros(1, np.uint8), None, 0)
    parts = [database.fill_null(""), empty if schema is None else schema.fill_null(""), name.fill_null("")]
    return pa.StructArray.from_arrays(parts, fields=list(_TABLE))


def struct_column(kind: pa.StructType, columns: Mapping[str, pa.Array], present: pa.BooleanArray) -> pa.StructArray:
    """Structs of these columns, null where they are not present; fields without a column are null."""
    count = len(present)
    children = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in kind]
    valid = pa.py_buffer(mask_bitmap(present.to_numpy(zero_copy_only=False)))
    return pa.Array.from_buffers(kind, count, [valid], children=children)


def table_parts(database: str | None, schema: str | None, name: str | None) -> dict[str, str]:
    """The table of one row; a part that a message does not say is empty."""
    return {"database": database or "", "schema": schema or "", "name": name or ""}


def present(facts: Mapping[str, str | None]) -> list[tuple[str, str]]:
    """The `source` of one row, of the facts that it has."""
    return [(name, text) for name, text in facts.items() if text is not None]


def whole_within(text: str | None, first: int, last: int) -> int | None:
    """The whole number that a text is, where it is one of these."""
    if text is None or not _WHOLE.fullmatch(text):
        return None
    return int(text) if first <= int(text) <= last else None


def absent_column(names: Sequence[str], absent: Array) -> pa.ListArray:
    """The columns that images do not carry; null where one carries all.

    Args:
        names: of the columns.
        absent: which of them each image lacks: a line for each.
    """
    left_out = pa.array(names, pa.string()).take(pa.array(np.nonzero(absent)[1]))
    return list_array(offsets_of(absent.sum(axis=1)), left_out, absent.any(axis=1))


def origin_columns(batch: pa.RecordBatch, rows: Array, indexes: Array | None = None) -> dict[str, pa.Array]:
    """The columns that say where rows came from. What a message held is kept for errors only.

    Args:
        batch: the messages.
        rows: the message of each row.
        indexes: the index of each row in it, where it may give several.
    """
    handed = batch.select([field.name for field in _MESSAGE if field.name not in _HELD])
    if rows.size != batch.num_rows or (rows != np.arange(rows.size)).any():
        handed = handed.take(pa.array(rows))
    kept = [pa.nulls(rows.size, f.type) if f.name in _HELD else handed.column(f.name) for f in _MESSAGE]
    return {
        "position": positions(handed.column("offset"), indexes),
        "capture_time": handed.column("timestamp"),
        "message": pa.StructArray.from_arrays(kept, fields=list(_MESSAGE)),
    }


def transaction_column(
    id: pa.StringArray, present: pa.BooleanArray | None = None, **orders: pa.Int64Array
) -> pa.StructArray:
    """The transactions of rows, null where they are not present, or have no id."""
    return struct_column(_TRANSACTION, {"id": id, **orders}, id.is_valid() if present is None else present)


def snapshot_column(is_read: Array) -> pa.StringArray:
    """What rows say of a snapshot, where nothing is known but which of them were read in one."""
    return pc.if_else(pa.array(is_read), "true", pa.scalar(None, pa.string()))


def schema_ids(schemas: Sequence[TableSchema | None], of: Array) -> pa.StringArray:
    """The fingerprints of the schemas that rows follow, by the number of each row's."""
    ids = [None if schema is None else schema.fingerprint for schema in schemas]
    return pa.array(ids, pa.string()).take(pa.array(of))


def single_row(batch: pa.RecordBatch, number: int, index: int | None = None, *, whole: bool = False) -> dict[str, Any]:
    """What each row of a message has: where it came from, with the message whole for errors."""
    message = {
        field.name: batch.column(field.name)[number].as_py() for field in _MESSAGE if whole or field.name not in _HELD
    }
    return {
        "position": position_text(batch, number, index),
        "capture_time": batch.column("timestamp")[number].as_py(),
        "message": message,
    }


def error_row(batch: pa.RecordBatch, number: int, problem: str, index: int | None = None) -> dict[str, Any]:
    """The row of a message that can't be read: where it came from, why, and the message itself."""
    return single_row(batch, number, index, whole=True) | {"op": "error", "error": problem}


def schema_row(batch: pa.RecordBatch, number: int, schema: TableSchema) -> dict[str, Any]:
    """The row that announces a schema, before the other rows of its message."""
    return single_row(batch, number) | {
        "op": "schema",
        "table": table_parts(schema.id.database, schema.id.schema, schema.id.name),
        "position": position_text(batch, number, None, _SCHEMA_ORDER),
        "schema_id": schema.fingerprint,
        "table_schema": schema.to_text(),
    }


_NO_STATEMENT = "N/A"
"""What Debezium writes as `ddl` where a source says a change of structure without its statement."""


class SourceFacts:
    """The facts that rows say of their source: each is the entry `entry` of `names` and `values`.

    `number` is the index of each entry's name in `words`, `row` the number of its row.

    Args:
        rows: change rows.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        image = Image.of_maps(rows.column("source"))
        names = image.names.dictionary_encode()
        self.words: list[str] = names.dictionary.to_pylist()
        self.number: Array = names.indices.to_numpy(zero_copy_only=False)
        self.row: Array = np.repeat(np.arange(rows.num_rows), np.diff(image.entries.offsets))
        self.names, self.values = image.names, image.values
        self._present = image.entries.present

    def texts(self, name: str) -> pa.StringArray:
        """The first value of this name in each row; null where there is none."""
        if name not in self.words:
            return pa.nulls(self._present.size, pa.string())
        hits = np.flatnonzero(self.number == self.words.index(name))[::-1]
        at = np.full(self._present.size, -1, np.int64)
        at[self.row[hits]] = hits
        return self.values.take(pa.array(at, mask=(at < 0) | ~self._present))

    def statements(self) -> pa.StringArray:
        """The statement of each change of structure; null where its source has none that could be executed."""
        ddl = self.texts("ddl")
        return pc.if_else(pc.equal(ddl, _NO_STATEMENT), pa.scalar(None, pa.string()), ddl)


BLANK = r"(?:\s++|/\*(?:[^*]|\*(?!/))*+\*/|--[^\n]*+\n|#[^\n]*+\n)"
"""A pattern of what may stand between the words of a statement: blanks, or a comment."""
_CAPITALS = {ord("a") + n: ord("A") + n for n in range(26)}
_SMALL = {capital: small for small, capital in _CAPITALS.items()}


def upper(text: str) -> str:
    """A word in capitals; other letters than a to z stay as they are."""
    return text.translate(_CAPITALS)


def lower(text: str) -> str:
    """A word in small letters; other letters than A to Z stay as they are."""
    return text.translate(_SMALL)


def numbered(texts: pa.StringArray, numbers: Mapping[str, int], written: Callable[[str], str]) -> Array:
    """The number of each word as `written` gives it; -1 where it has none, or is null."""
    encoded = texts.dictionary_encode()
    codes = [numbers.get(written(word), -1) for word in encoded.dictionary.to_pylist()]
    return np.array([*codes, -1])[encoded.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)]


def empty_as_null(texts: pa.StringArray) -> pa.StringArray:
    """Texts that are not empty; null for the others."""
    if not len(texts.buffers()[2] or b"") or texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
