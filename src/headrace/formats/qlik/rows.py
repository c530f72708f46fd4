"""Change rows as Qlik's data messages say them, in JSON and in Avro: both images by ordinal, the masks, the headers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.base import Structure
from headrace.formats.change_columns import SourceFacts, empty_as_null
from headrace.formats.change_messages import RowSchemas, are, first_of, operations, table_part, unknown_schema
from headrace.formats.event_numbers import EVENT, PLACE, SIZE
from headrace.formats.images import Image
from headrace.formats.qlik.masks import mask_bytes
from headrace.formats.qlik.sequence import Counter
from headrace.formats.schema_columns import ABSENT, ColumnIndexes, SchemaColumns
from headrace.wire.canonical import TIMESTAMP, moment_texts
from headrace.wire.spans import Array

_OPERATIONS = {"r": "REFRESH", "c": "INSERT", "u": "UPDATE", "d": "DELETE"}
CHANGES = ("c", "u", "d")
"""The operations that are no full load."""


@dataclass(frozen=True)
class EncodeSettings:
    """How messages are written.

    Args:
        topic: the template of topics.
        metadata_topic: the topic of metadata messages; that of the table where it is None.
        key: `none`, `schema_table` or `primary_key`.
        envelope: whether messages stand in the envelope, and metadata messages are written.
        server: what stands in the lineage where a row does not say it.
        task: the same.
        little: whether masks have their least significant byte first.
        external_schema_id: whether headers name the schema by an id.
        announced: the structures that readers have.
    """

    topic: str
    metadata_topic: str | None
    key: str
    envelope: bool
    server: str
    task: str
    little: bool
    external_schema_id: bool = False
    announced: frozenset[Structure] = frozenset()


@dataclass(frozen=True)
class DataRows:
    """Rows with images, laid out by their schemas.

    Args:
        rows: the rows.
        facts: what they say of their source.
        schema_number: the number of each one's schema.
        laid: the columns of all rows.
        values: canonical texts; the last one is null.
        data: the number of the value of each column in `data`; `ABSENT` where the row does not carry it.
        before: the same in `beforeData`.
        has_data: which rows have an image in `data`.
        has_before: which have one in `beforeData`.
        changed: which columns changed; `has_changed` says of which rows that is known.
        streamed: which rows are changes; those of a full load have no headers of changes.
    """

    rows: pa.RecordBatch
    facts: SourceFacts
    schema_number: Array
    laid: ColumnIndexes
    values: pa.StringArray
    data: Array
    before: Array
    has_data: Array
    has_before: Array
    changed: Array
    has_changed: Array
    streamed: Array

    @classmethod
    def of(cls, rows: pa.RecordBatch, known: RowSchemas, columns: SchemaColumns) -> DataRows:
        """Lay rows out.

        Args:
            rows: data rows.
            known: their schemas.
            columns: the columns of these.

        Raises:
            FormatError: a row follows a schema that nothing describes.
        """
        schema_number = known.of(rows)
        if (schema_number < 0).any():
            raise unknown_schema(rows, int(np.argmax(schema_number < 0)))
        is_update, is_delete, streamed = are(rows, "u"), are(rows, "d"), ~are(rows, "r")
        after = known.image(rows, "after").where(~is_delete)
        before = known.image(rows, "before").where(is_update | is_delete)
        # A delete without its old row is known by its key.
        keys = Image.of_maps(rows.column("key")).where(is_delete & ~before.entries.present)
        laid, every = columns.laid(schema_number), np.arange(rows.num_rows)
        images, at, begin = (after, before, keys), [], 0
        for image in images:
            texts = columns.texts_at(image, every, schema_number, laid.offsets)
            at.append(np.where(texts >= 0, texts + begin, texts))
            begin += len(image.values)
        values = pa.concat_arrays([*(image.values for image in images), pa.nulls(1, pa.string())])
        update, delete = is_update[laid.row], is_delete[laid.row]
        new = np.where(delete, np.where(before.entries.present[laid.row], at[1], at[2]), at[0])
        old = np.where(update, at[1], ABSENT)
        listed = rows.column("changed")
        has_list = listed.is_valid().to_numpy(zero_copy_only=False)
        differ = (new >= 0) & (old >= 0) & update & ~has_list[laid.row]
        # An old image that lacks a column does not say that it changed.
        differ[differ] = _differ(values, new[differ], old[differ])
        flags = np.where(has_list[laid.row], columns.named(listed, schema_number, laid.offsets), differ)
        in_key = np.zeros(len(columns.all), bool)
        for first, schema in zip(columns.first, known.all, strict=True):
            in_key[[int(first) + index for index, c in enumerate(schema.columns) if c.name in schema.key]] = True
        large = columns.which(lambda column: column.large)[laid.column]
        has_before = is_update & before.entries.present
        return cls(
            rows,
            SourceFacts(rows),
            schema_number,
            laid,
            values,
            new,
            old,
            after.entries.present | before.entries.present & is_delete | keys.entries.present,
            has_before,
            np.where(delete, in_key[laid.column], ~large & np.where(update, flags, new >= 0)),
            streamed & (~is_update | has_list | has_before),
            streamed,
        )

    def change_mask(self, *, little: bool) -> pa.BinaryArray:
        return mask_bytes(self.changed, np.diff(self.laid.offsets), self.has_changed, little=little)

    def column_mask(self, *, whole: bool, little: bool) -> pa.BinaryArray:
        """Which columns a message carries.

        Args:
            whole: only those that both images carry, where there are two.
            little: whether the least significant byte comes first.
        """
        carried, old = self.data >= 0, self.before >= 0
        flags = carried & (old | ~self.has_before[self.laid.row]) if whole else carried | old
        counts = np.diff(self.laid.offsets)
        return mask_bytes(flags, counts, self.streamed, little=little)

    def operation(self) -> pa.StringArray:
        return operations(self.rows, _OPERATIONS)

    def headers(self, counter: Counter) -> dict[str, pa.StringArray]:
        """The headers that are texts and stand in every message; empty in a full load.

        Args:
            counter: numbers changes that bring no number along.
        """
        rows = self.rows
        numbered = self.facts.texts("changeSequence")
        if numbered.null_count:
            missing = pa.array(self.streamed)
            by_position = counter.sequences(_columns(rows, "position", PLACE).filter(missing))
            numbered = first_of(
                numbered, pc.replace_with_mask(pa.nulls(rows.num_rows, pa.string()), missing, by_position)
            )
        columns = {
            "changeSequence": numbered,
            "timestamp": clock(rows.column("event_time")),
            "streamPosition": first_of(self.facts.texts("streamPosition"), rows.column("position")),
            "transactionId": pc.struct_field(rows.column("transaction"), "id"),
        }
        return {name: self._of_changes(texts).fill_null("") for name, texts in columns.items()}

    def counter(self) -> pa.Int64Array:
        total_order = pc.struct_field(self.rows.column("transaction"), "total_order")
        return self._of_changes(pc.coalesce(self._counted(EVENT), total_order))

    def is_last(self) -> pa.StringArray:
        """`true` or `false` where it is known whether a row is the last one of its transaction."""
        texts = self.facts.texts("transactionLastEvent")
        marks = pc.if_else(pc.is_in(texts, pa.array(["true", "false"])), texts, pa.scalar(None, pa.string()))
        is_event_last = pc.equal(self._counted(EVENT), self._counted(SIZE)).cast(pa.string())
        return self._of_changes(pc.coalesce(marks, is_event_last))

    def _counted(self, name: str) -> pa.Int64Array:
        """A number that was counted over the batch; null where none was."""
        there = name in self.rows.schema.names
        return self.rows.column(name) if there else pa.nulls(self.rows.num_rows, pa.int64())

    def _of_changes(self, values: pa.Array) -> pa.Array:
        return (
            values if self.streamed.all() else pc.if_else(pa.array(self.streamed), values, pa.scalar(None, values.type))
        )


def clock(moments: pa.TimestampArray) -> pa.StringArray:
    """`YYYY-MM-DDTHH:MM:SS.fff` in UTC; null for null."""
    return pc.replace_substring(moment_texts(moments.cast(pa.int64()), TIMESTAMP, 6, 3), " ", "T")


def path_of(rows: pa.RecordBatch) -> pa.StringArray:
    """The schema and the name of tables with a point between; null where both are empty."""
    parts = [empty_as_null(table_part(rows, name)) for name in ("schema", "name")]
    return empty_as_null(pc.binary_join_element_wise(*parts, ".", null_handling="skip"))


def _columns(rows: pa.RecordBatch, *names: str) -> pa.RecordBatch:
    return rows.select([name for name in names if name in rows.schema.names])


def _differ(values: pa.StringArray, one: Array, other: Array) -> Array:
    """Whether values differ; two nulls do not."""
    texts, others = values.take(pa.array(one)), values.take(pa.array(other))
    unlike = pc.not_equal(texts, others)
    either = pc.xor(texts.is_null(), others.is_null())
    return pc.coalesce(unlike, either).to_numpy(zero_copy_only=False)
