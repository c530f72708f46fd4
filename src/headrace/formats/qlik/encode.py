"""Change rows to Qlik's messages in JSON: a data message for each row, and a metadata message for each schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.formats.base import Structure
from headrace.formats.change_columns import SourceFacts, empty_as_null
from headrace.formats.change_messages import ROWS, RowSchemas, message_batch, picked, rows_of, table_part, topics
from headrace.formats.codec import MESSAGES, Codec, Facts, in_order
from headrace.formats.images import Image
from headrace.formats.qlik.avro_schema import data_schema
from headrace.formats.qlik.masks import hex_texts
from headrace.formats.qlik.metadata import metadata_message, schema_id
from headrace.formats.qlik.rows import (
    DataRows,
    EncodeSettings,
    clock,
    path_of,
)
from headrace.formats.qlik.sequence import Counter
from headrace.formats.schema_columns import ABSENT, SchemaColumns
from headrace.wire.arrays import offsets_of
from headrace.wire.json_writer import Entries, Part, members, messages, objects, to_text
from headrace.wire.spans import Array


@dataclass(frozen=True)
class Headers:
    """The headers of data messages, but for the masks.

    Args:
        texts: those that are texts, by name.
        counter: the number of each row in its transaction.
        is_last: `true` or `false` where it is known whether a row is the last one of its transaction.
        external_schema_id: the id of each row's schema; null where it has none.
    """

    texts: dict[str, pa.StringArray]
    counter: pa.Int64Array
    is_last: pa.StringArray
    external_schema_id: pa.StringArray


class QlikEncoder(Codec):
    """Writes messages; it holds nothing but what its facts say."""

    schema = MESSAGES

    def __init__(self, facts: Facts, writing: EncodeSettings) -> None:
        self.writing = writing
        self.schemas = RowSchemas(facts)
        self.columns = SchemaColumns(self.schemas.all)
        self._is_local = self.columns.which(lambda column: column.logical.kind == "timestamp")
        self._counter = Counter()
        self._reported: set[Structure] = set(writing.announced)
        self.ids = pa.array([schema_id(schema) for schema in self.schemas.all], pa.string())

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The messages of rows, in their order; rows that are neither data nor a schema give none."""
        batches = []
        numbers = rows_of(batch, ROWS)
        if numbers.size:
            rows = picked(batch, numbers)
            data = DataRows.of(rows, self.schemas, self.columns)
            headers = {"operation": data.operation(), **data.headers(self._counter)}
            own_headers = Headers(headers, data.counter(), data.is_last(), self._external_ids(data))
            batches.append(
                (
                    numbers,
                    message_batch(
                        rows, topics(rows, self.writing.topic), self.values(data, own_headers), self.keys(data)
                    ),
                )
            )
        if self.writing.envelope:
            numbers = rows_of(batch, ("schema",))
            numbers = self._unreported(batch, numbers[self.schemas.of(batch)[numbers] >= 0])
            if numbers.size:
                batches.append((numbers, self._metadata(picked(batch, numbers))))
        if batches:
            yield in_order(batches)

    def _unreported(self, batch: pa.RecordBatch, numbers: Array) -> Array:
        """Of the rows that report a structure, those whose table and structure no earlier one of the task reported, and
        that readers do not have."""
        unreported = []
        rows = picked(batch, numbers)
        versions = SourceFacts(rows).texts("tableVersion").to_pylist()
        lines = rows.select(["table", "schema_id"]).to_pylist()
        for number, row, version in zip(numbers.tolist(), lines, versions, strict=True):
            table = row["table"] or {}
            structure = (row["schema_id"], *(table.get(part) or "" for part in _PARTS), version or "")
            if structure not in self._reported:
                self._reported.add(structure)
                unreported.append(number)
        return np.array(unreported, np.int64)

    def _external_ids(self, data: DataRows) -> pa.StringArray:
        """The id of each row's schema: the row's own, or one that is made if an option requests it."""
        stated = data.facts.texts("externalSchemaId")
        if not self.writing.external_schema_id:
            return stated
        return pc.coalesce(stated, self.ids.take(pa.array(data.schema_number)))

    def _metadata(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        topic = topics(rows, self.writing.topic)
        if self.writing.metadata_topic is not None:
            topic = pa.array([self.writing.metadata_topic] * rows.num_rows, pa.string())
        schema_number = self.schemas.of(rows)
        values = [
            self.metadata(self.schemas.all[number], lineage)
            for number, lineage in zip(schema_number, self._lineages(rows), strict=True)
        ]
        return message_batch(rows, topic, pa.array(values, pa.binary()))

    def _lineages(self, rows: pa.RecordBatch) -> list[dict[str, Any]]:
        """What metadata messages say of where a table is from."""
        moments = clock(pc.coalesce(rows.column("event_time"), rows.column("capture_time")))
        facts = SourceFacts(rows)
        parts = {
            "server": pc.coalesce(facts.texts("server"), pa.scalar(self.writing.server)),
            "task": pc.coalesce(facts.texts("task"), pa.scalar(self.writing.task)),
            "schema": table_part(rows, "schema"),
            "table": table_part(rows, "name"),
            "tableVersion": pa.array([_whole(text) for text in facts.texts("tableVersion").to_pylist()], pa.int32()),
            "timestamp": pc.coalesce(facts.texts("timestamp"), moments, pa.scalar("")),
        }
        lines: list[dict[str, Any]] = pa.RecordBatch.from_pydict(parts).to_pylist()
        return lines

    def metadata(self, schema: TableSchema, lineage: dict[str, Any]) -> bytes:
        envelope = {"magic": "atMSG", "type": "MD", "headers": None, "messageSchemaId": None, "messageSchema": None}
        message = metadata_message(
            schema, lineage, to_text(data_schema(schema, self.writing.task, external=self.writing.external_schema_id))
        )
        return to_text({**envelope, "message": message}).encode()

    def keys(self, data: DataRows) -> pa.StringArray:
        if self.writing.key == "none":
            return pa.nulls(data.rows.num_rows, pa.string())
        return (
            path_of(data.rows) if self.writing.key == "schema_table" else Image.of_maps(data.rows.column("key")).json()
        )

    def values(self, data: DataRows, headers: Headers) -> pa.Array:
        parts = ['{"data":', *self._images(data), ',"headers":', *self._headers(data, headers), "}"]
        if self.writing.envelope:
            ids = self.ids.take(pa.array(data.schema_number))
            opening = '{"magic":"atMSG","type":"DT","headers":null,"messageSchemaId":'
            parts = [opening, Part(ids, quoted=True), ',"messageSchema":null,"message":', *parts, "}"]
        return messages(parts, data.rows.num_rows)

    def _images(self, data: DataRows) -> list[str | Part]:
        values, numbers = data.values, (data.data, data.before)
        null = len(values) - 1
        local = self._is_local[data.laid.column]
        if local.any():
            at = np.concatenate([number[local & (number >= 0)] for number in numbers])
            values = pa.concat_arrays([values, pc.replace_substring(values.take(pa.array(at)), " ", "T")])
        begin, texts = null + 1, list[Part]()
        for number, other, present in (
            (numbers[0], numbers[1], data.has_data),
            (numbers[1], numbers[0], data.has_before),
        ):
            # What neither image carries is null, which columnMask tells from NULL; what this one alone lacks is left
            # out. A full load has no masks, so leaving it out is the only way to say so.
            kept = ((number >= 0) | ((other < 0) & data.streamed[data.laid.row])) & present[data.laid.row]
            chosen = np.where(number == ABSENT, null, number)
            written = local & (number >= 0)
            chosen[written] = begin + np.arange(np.count_nonzero(written))
            begin += int(np.count_nonzero(written))
            offsets = offsets_of(kept)[data.laid.offsets]
            entries = Entries(offsets, data.laid.column[kept].astype(np.int32), chosen[kept].astype(np.int32), present)
            texts.append(Part(objects(entries, self.columns.names, values)))
        return [texts[0], ',"beforeData":', texts[1]]

    def _headers(self, data: DataRows, headers: Headers) -> list[str | Part]:
        writing, rows = self.writing, data.rows
        quoted = headers.texts | {
            "changeMask": hex_texts(data.change_mask(little=writing.little)),
            "columnMask": hex_texts(data.column_mask(whole=False, little=writing.little)),
        }
        parts: list[str | Part] = []
        for name, texts in quoted.items():
            parts += [f'{"," if parts else "{"}"{name}":', Part(texts, quoted=True)]
        parts += [',"transactionEventCounter":', Part(headers.counter.cast(pa.string()))]
        parts += [',"transactionLastEvent":', Part(headers.is_last)]
        more = {"externalSchemaId": Part(headers.external_schema_id, quoted=True)}
        if not writing.envelope:
            # A message that names no metadata says its table.
            named = {name: empty_as_null(table_part(rows, part)) for name, part in _SAID.items()}
            more |= {name: Part(texts, quoted=True) for name, texts in named.items()}
        if all(part.texts.null_count == rows.num_rows for part in more.values()):
            return [*parts, "}"]
        added = members(more, rows.num_rows)
        after = pc.if_else(pc.equal(added, "{}"), "}", pc.binary_replace_slice(added, 0, 1, ","))
        return [*parts, Part(after)]


_PARTS = ("database", "schema", "name")
_SAID = {"schema": "schema", "table": "name"}


def _whole(text: str | None) -> int:
    """The version of a table; 1 where none is said."""
    try:
        return int(text or "1")
    except ValueError:
        return 1
