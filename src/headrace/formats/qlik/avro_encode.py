"""Change rows to Qlik's messages in Avro: in the envelope, or framed with the ids of a registry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.formats.codec import Facts
from headrace.formats.images import Image
from headrace.formats.qlik.avro_schema import COLUMN_FACTS, METADATA_SCHEMA, OPERATIONS, data_schema, headers_schema
from headrace.formats.qlik.encode import Headers, QlikEncoder
from headrace.formats.qlik.metadata import MAGIC, metadata_message, schema_id
from headrace.formats.qlik.rows import DataRows, EncodeSettings
from headrace.formats.qlik.written import AvroColumns, joined
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_writer import write_avro
from headrace.wire.json_writer import to_text

_METADATA = AvroSchema(METADATA_SCHEMA)
_BYTES, _TEXT = AvroSchema("bytes"), AvroSchema("string")
_COLUMN = pa.struct([(name, pa.string() if name == "type" else pa.int32()) for name in COLUMN_FACTS])
_LINEAGE = ("server", "task", "schema", "table", "tableVersion", "timestamp")
_MESSAGE = pa.struct(
    [
        ("schemaId", pa.string()),
        ("lineage", pa.struct([(n, pa.int32() if n == "tableVersion" else pa.string()) for n in _LINEAGE])),
        ("tableStructure", pa.struct([("tableColumns", pa.map_(pa.string(), _COLUMN))])),
        ("dataSchema", pa.string()),
    ]
)


@dataclass(frozen=True)
class Registration:
    """The ids that a registry gave to Avro schemas, by schema number; a key without columns has none."""

    values: tuple[int, ...]
    keys: tuple[int | None, ...]


class QlikAvroEncoder(QlikEncoder):
    """Writes messages; it holds nothing but what its facts say.

    Args:
        facts: the schemas.
        writing: how messages are written.
        registration: the ids of their schemas; None in the envelope.
    """

    columns: AvroColumns

    def __init__(self, facts: Facts, writing: EncodeSettings, registration: Registration | None) -> None:
        super().__init__(facts, writing)
        schemas = self.schemas.all
        self.columns = AvroColumns(schemas)
        self._key_columns = AvroColumns([replace(schema, columns=schema.key_columns) for schema in schemas])
        self._registration = registration
        # What stands in front of the datum, by the row's schema.
        self._header_schema = AvroSchema(headers_schema(external=writing.external_schema_id))
        if registration is None:
            heads = [_opening("DT", schema_id(schema), None) for schema in schemas]
        else:
            heads = [_head(id) for id in registration.values]
        self._heads = pa.array(heads, pa.binary())

    def metadata(self, schema: TableSchema, lineage: dict[str, Any]) -> bytes:
        message = metadata_message(
            schema, lineage, to_text(data_schema(schema, self.writing.task, external=self.writing.external_schema_id))
        )
        columns = message["tableStructure"]["tableColumns"]
        message["tableStructure"] = {"tableColumns": list(columns.items())}
        datum = write_avro(_METADATA, pa.array([message], _MESSAGE))
        body: bytes = write_avro(_BYTES, datum)[0].as_py()
        return _opening("MD", None, to_text(METADATA_SCHEMA)) + body

    def keys(self, data: DataRows) -> pa.Array:
        """Kafka's keys: as JSON in the envelope, else as records that the registry knows."""
        if self._registration is None or self.writing.key != "primary_key":
            return super().keys(data)
        image = Image.of_maps(data.rows.column("key"))
        laid = self._key_columns.laid(data.schema_number)
        at = self._key_columns.texts_at(image, np.arange(data.schema_number.size), data.schema_number, laid.offsets)
        records = self._key_columns.records(image.values, at, laid.column, laid.offsets)
        heads = [None if id is None else _head(id) for id in self._registration.keys]
        encoded = joined(pa.array(heads, pa.binary()).take(pa.array(data.schema_number)), records)
        return pc.if_else(pa.array(image.entries.present), encoded, pa.scalar(None, pa.binary()))

    def values(self, data: DataRows, headers: Headers) -> pa.BinaryArray:
        laid, columns = data.laid, self.columns
        record = columns.records(data.values, data.data, laid.column, laid.offsets)
        kept = data.has_before[laid.row]
        offsets = np.concatenate([[0], np.cumsum(kept)])[laid.offsets]
        before = columns.records(data.values, data.before[kept], laid.column[kept], offsets)
        is_there = pa.array(data.has_before)
        before = pc.if_else(is_there, joined(b"\x02", before), pa.scalar(b"\0"))
        datum = joined(record, before, self._header_records(data, headers))
        if self._registration is None:
            datum = write_avro(_BYTES, datum)
        return joined(self._heads.take(pa.array(data.schema_number)), datum)

    def _header_records(self, data: DataRows, headers: Headers) -> pa.BinaryArray:
        little = self.writing.little
        indexes = {word: index for index, word in enumerate(OPERATIONS)}
        operations = headers.texts["operation"].to_pylist()
        columns: dict[str, pa.Array] = {
            **headers.texts,
            "operation": pa.array([indexes[word] for word in operations], pa.int32()),
            "changeMask": data.change_mask(little=little),
            # In Avro no field can be left out: a null is NULL only where both images carry the column.
            "columnMask": data.column_mask(whole=True, little=little),
            "transactionEventCounter": headers.counter,
            "transactionLastEvent": pc.equal(headers.is_last, "true"),
        }
        if self.writing.external_schema_id:
            columns["externalSchemaId"] = headers.external_schema_id
        return write_avro(self._header_schema, pa.StructArray.from_arrays(list(columns.values()), names=list(columns)))


def _opening(kind: str, id: str | None, schema: str | None) -> bytes:
    """An envelope up to its message: magic, type, no headers, the id of a schema or null, its text or null."""
    return MAGIC + _sized(kind) + b"\0" + _optional(id) + _optional(schema)


def _optional(text: str | None) -> bytes:
    return b"\0" if text is None else b"\x02" + _sized(text)


def _sized(text: str) -> bytes:
    encoded: bytes = write_avro(_TEXT, pa.array([text], pa.string()))[0].as_py()
    return encoded


def _head(id: int) -> bytes:
    return b"\0" + id.to_bytes(4, "big")
