"""Change rows to SharePlex messages: `meta`, `data`, and for updates the old row in `key`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import LogicalType, TableSchema
from headrace.changes.types import arrow_text
from headrace.formats.change_columns import SourceFacts
from headrace.formats.change_messages import (
    RowSchemas,
    are,
    first_of,
    integers,
    message_batch,
    operations,
    picked,
    quoted,
    rows_of,
    topics,
)
from headrace.formats.codec import MESSAGES, Codec, Facts
from headrace.formats.event_numbers import EVENT, SIZE
from headrace.formats.images import Image
from headrace.wire.json_writer import Entries, Part, members, objects
from headrace.wire.spans import Array
from headrace.wire.typed_exact import bytes_of

_WORDS = {"r": "ins", "c": "ins", "u": "upd", "d": "del", "t": "truncate"}
OPERATIONS = tuple(_WORDS)
"""The operations that become messages."""
_SECONDS = LogicalType("timestamp", 0)
_TIMESTAMP, _BYTES = 1, 2
_ODD = re.compile('[."]')
_LSN = re.compile(r"[0-9a-fA-F]{1,8}(?::[0-9a-fA-F]{1,8}){1,2}")


@dataclass(frozen=True)
class EncodeSettings:
    """How messages are written.

    Args:
        topic: the template of topics.
        table_parts: how many parts of a table's name `meta.table` has at most.
        hex: whether bytes are written as hex, and not as base64.
        keys: the key columns of rows that say none.
    """

    topic: str
    table_parts: int
    hex: bool
    keys: tuple[str, ...] = ()


class SharePlexEncoder(Codec):
    """Writes messages; it holds nothing but what its facts say."""

    schema = MESSAGES

    def __init__(self, facts: Facts, writing: EncodeSettings) -> None:
        self._known, self._writing = RowSchemas(facts), writing
        self._encodings: Sequence[Mapping[str, int]] = [self._encodings_of(schema) for schema in self._known.all]

    def _encodings_of(self, schema: TableSchema) -> dict[str, int]:
        kinds = {"timestamp": _TIMESTAMP} | ({"bytes": _BYTES} if self._writing.hex else {})
        return {c.name: kinds[c.logical.kind] for c in schema.columns if c.logical.kind in kinds}

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        numbers = rows_of(batch, tuple(_WORDS))
        if not numbers.size:
            return
        rows = picked(batch, numbers)
        schema_number = self._known.of(rows)
        before, after = (self._known.image(rows, name) for name in ("before", "after"))
        keys = Image.of_maps(rows.column("key"))
        old, new = self._with_texts(before, schema_number), self._with_texts(after, schema_number)
        is_update, deleted = are(rows, "u"), are(rows, "d")
        # Where there is no old row, all of the new one is left; a delete without one is known by its key.
        written = new.changed_from(old.where(is_update), rows.column("changed")).where(~are(rows, "d", "t"))
        data = first_of(
            written.json(), old.where(deleted).json(), self._with_texts(keys, schema_number).where(deleted).json()
        )
        value = members(
            {
                "meta": Part(self._meta(rows)),
                "data": Part(data),
                "key": Part(old.where(is_update).json()),
            },
            rows.num_rows,
        )
        key = keys.json()
        if key.null_count:
            key = first_of(key, self._own_keys(before, after))
        yield message_batch(rows, topics(rows, self._writing.topic), value, key)

    def _own_keys(self, before: Image, after: Image) -> pa.StringArray:
        """The keys of rows by the columns that the user or the schema says, as JSON; null where nobody does."""
        typed = self._known.typed
        names = (typed.key if typed is not None else ()) or self._writing.keys
        count = len(before.entries.present)
        if not names:
            return pa.nulls(count, pa.string())
        new, old = (_indexes(image, names) for image in (after, before))
        values = pa.concat_arrays([after.values, before.values, pa.nulls(1, pa.string())])
        old[old >= 0] += len(after.values)
        at = np.where(after.entries.present[:, None], new, old)
        at[at < 0] = len(values) - 1
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(names))
        numbers = np.tile(np.arange(len(names), dtype=np.int32), count)
        present = after.entries.present | before.entries.present
        entries = Entries(offsets.astype(np.int32), numbers, at.reshape(-1).astype(np.int32), present)
        return objects(entries, pa.array(names, pa.string()), values)

    def _with_texts(self, image: Image, schema_number: Array) -> Image:
        """The image with the texts of Oracle: `T` between day and clock, bytes as hex."""
        return image.with_texts(schema_number, self._encodings, {_TIMESTAMP: _with_t, _BYTES: _as_hex})

    def _meta(self, rows: pa.RecordBatch) -> pa.StringArray:
        transaction, facts = rows.column("transaction"), SourceFacts(rows)
        seq = pc.struct_field(transaction, "total_order").cast(pa.string())
        size = integers(facts.texts("size"))
        if SIZE in rows.schema.names:
            seq = first_of(rows.column(EVENT).cast(pa.string()), seq)
            size = first_of(size, rows.column(SIZE).cast(pa.string()))
        scn = first_of(facts.texts("commit_scn"), facts.texts("scn"), _numbers_of_lsn(facts.texts("commit_lsn")))
        return members(
            {
                "time": Part(_seconds(rows.column("event_time")), quoted=True),
                "userid": Part(_numbers_or_texts(facts.texts("userid"))),
                "op": Part(operations(rows, _WORDS), quoted=True),
                "scn": Part(scn, quoted=True),
                "rowid": Part(first_of(facts.texts("rowid"), facts.texts("row_id")), quoted=True),
                "trans": Part(pc.struct_field(transaction, "id"), quoted=True),
                "seq": Part(seq),
                "size": Part(size),
                "table": Part(self._tables(rows), quoted=True),
                "idx": Part(pc.binary_join_element_wise(seq, size, "/"), quoted=True),
                "posttime": Part(facts.texts("posttime"), quoted=True),
            },
            rows.num_rows,
        )

    def _tables(self, rows: pa.RecordBatch) -> pa.StringArray:
        """The tables' parts with points between; a part that holds a point or a quote stands in quotes."""
        parts = [part.fill_null("") for part in rows.column("table").flatten()[-min(self._writing.table_parts, 3) :]]
        names = pc.binary_join_element_wise(*parts, "\0").dictionary_encode()
        paths = [".".join(map(_quoted_part, filter(None, path.split("\0")))) for path in names.dictionary.to_pylist()]
        return pa.array([name or None for name in paths], pa.string()).take(names.indices)


def _indexes(image: Image, names: Sequence[str]) -> Array:
    """The number of each named value of each row; -1 where the image does not hold it."""
    entries = image.entries
    count = len(entries.present)
    codes = image.codes(np.zeros(count, np.int64), [{name: index for index, name in enumerate(names, 1)}])
    matrix = np.full((count, len(names)), -1, np.int64)
    row = np.repeat(np.arange(count), np.diff(entries.offsets))
    matrix[row[codes > 0], codes[codes > 0] - 1] = entries.values[codes > 0]
    return matrix


def _with_t(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring(texts, " ", "T")


def _as_hex(texts: pa.StringArray) -> pa.StringArray:
    """Base64 as hex; what is not base64 stays."""
    raw = [None if text is None else bytes_of(text) for text in texts.to_pylist()]
    return pc.coalesce(pa.array([None if value is None else value.hex().upper() for value in raw], pa.string()), texts)


def _seconds(moments: pa.TimestampArray) -> pa.StringArray:
    micros = moments.cast(pa.int64()).fill_null(0).to_numpy() // 1_000_000 * 1_000_000
    whole = pa.array(micros, pa.timestamp("us"), mask=moments.is_null().to_numpy(zero_copy_only=False))
    return pc.replace_substring(arrow_text(whole, _SECONDS), " ", "T")


def _numbers_or_texts(texts: pa.StringArray) -> pa.StringArray:
    """Texts as JSON: plain integers as numbers, all else as strings."""
    codes = texts.dictionary_encode()
    words = codes.dictionary.to_pylist()
    plain = integers(codes.dictionary).to_pylist()
    literals = [text if text == number else quoted(text) for text, number in zip(words, plain, strict=True)]
    return pa.array(literals, pa.string()).take(codes.indices)


def _numbers_of_lsn(texts: pa.StringArray) -> pa.StringArray:
    """Log sequence numbers of other databases as plain numbers of the same order, where an SCN would stand."""
    codes = texts.dictionary_encode()
    numbers = [
        str(int(text.replace(":", ""), 16)) if _LSN.fullmatch(text) else None for text in codes.dictionary.to_pylist()
    ]
    return pa.array(numbers, pa.string()).take(codes.indices)


def _quoted_part(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if _ODD.search(name) else name
