"""Qlik's Avro messages as the JSON messages that say the same, which `qlik_decode` then reads.

| value | schema of the datum |
|---|---|
| envelope (`atMSG`) with messageSchema | that one |
| envelope with messageSchemaId | dataSchema of the metadata message with this id |
| anything else | what the framing names, from the registry |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.typed import literal
from headrace.errors import FormatError
from headrace.formats import messages
from headrace.formats.avro_decode import Resolved, Schemas, with_json
from headrace.formats.avro_framing import Side
from headrace.formats.avro_schema import WriterSchema, writer_schema
from headrace.formats.qlik_avro_schema import described, read_description
from headrace.formats.qlik_decode import HEADERS, PLAN, DecodePlan, Reader, map_rows, plan_of
from headrace.formats.qlik_metadata import ENVELOPE, MAGIC, Metadata, message_of_bytes, read_metadata
from headrace.formats.structures import Structure, with_structures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENVELOPED = f"startswith(value, X'{MAGIC.hex()}')"
_IS_METADATA = f"startswith(value, X'{(MAGIC + bytes([4]) + b'MD').hex()}')"
# What a head starts with: an envelope, the id or text of a schema in one, or a head of the framing.
_ENVELOPE, _ID, _TEXT, _FRAMED = b"E", b"I", b"S", b"R"
_STRUCTURE = "av:"


@dataclass(frozen=True)
class QlikSchemas(Schemas):
    """Where the schemas of Qlik's messages come from; picklable.

    Args:
        data_schemas: Avro schemas by the id in metadata messages.
        without_registry: whether no registry is given, so that framed messages can't be read.
    """

    data_schemas: Mapping[str, str | None] = field(default_factory=dict)
    without_registry: bool = False

    def resolved(self, heads: Sequence[tuple[Side, bytes]]) -> dict[tuple[Side, bytes], Resolved]:
        """What each head stands for; the Connect schema of a value is what `described` says of it."""
        framed = {(side, head[1:]) for side, head in heads if head[:1] == _FRAMED}
        texts: dict[tuple[Side, bytes], Resolved] = {}
        if self.without_registry:
            missing = "The message names a schema of a registry, and none is given (option registry)."
            texts = dict.fromkeys(framed, Resolved(None, missing))
        elif framed:
            texts = super().resolved(sorted(framed))
        found = {}
        for side, head in heads:
            kind, rest = head[:1], head[1:]
            if kind == _FRAMED:
                found[side, head] = self._of_registry(side, rest, texts[side, rest])
            elif kind == _ENVELOPE:
                found[side, head] = _resolved(json.dumps(ENVELOPE), "of the envelope")
            elif kind == _TEXT:
                found[side, head] = _resolved(rest.decode(errors="replace"), "in the message")
            else:
                id = rest.decode(errors="replace")
                text = self.data_schemas.get(id)
                found[side, head] = Resolved(None, unknown(id)) if text is None else _resolved(text, f"of {id}")
        return found

    def _of_registry(self, side: Side, head: bytes, resolved: Resolved) -> Resolved:
        if resolved.schema is None or side == "key":
            return resolved
        text = self.value
        if not self.framing.is_given(head):
            ref = self.framing.ref(head)
            text = None if ref is None else self.registry.fetched([ref]).get(ref)
        return resolved if text is None else _resolved(text, "of the registry")


def unknown(id: str) -> str:
    """Why a message of an unknown schema can't be read."""
    return (
        f"The metadata message of schema {id} is not known. Read the metadata topic together with the data, or give it "
        "by the option metadata."
    )


def _resolved(text: str, which: str) -> Resolved:
    try:
        plain = writer_schema(text).plain
    except FormatError as error:
        return Resolved(None, f"The schema {which} can't be used: {error}")
    return Resolved(WriterSchema({"qlik": described(text)}, plain))


@dataclass(frozen=True)
class AvroReader(Reader):
    """Reads descriptions of Avro schemas beside metadata messages; picklable."""

    def __call__(self, text: str) -> Structure:
        """The structure and the plan of a metadata message, or of a schema that a data message follows."""
        if not text.startswith(_STRUCTURE):
            return super().__call__(text)
        id, _, description = text[len(_STRUCTURE) :].partition("\n")
        said = self.known.get(id)
        found = read_description(description, [c.name for c in said.schema.columns] if said else ())
        made = said or Metadata(id, found.schema, tuple(c.name for c in found.schema.columns), None, {})
        plan = plan_of(made) | {"codes": dict(found.codes), "renamed": dict(found.renamed) or None}
        return Structure(_typed(made, found.schema), plan)


def _typed(metadata: Metadata, avro: TableSchema) -> TableSchema:
    """The structure of the metadata with the types that the Avro schema has, because values come as those."""
    types = {column.name: column.logical for column in avro.columns}
    columns = tuple(replace(c, logical=types.get(c.name, c.logical)) for c in metadata.schema.columns)
    return TableSchema(metadata.schema.id, columns, metadata.schema.key)


def found_metadata(given: DataFrame) -> tuple[Metadata, ...]:
    """The metadata messages in a batch of enveloped messages, by a job over it."""
    values = given.where(_IS_METADATA).select("value").distinct().collect()
    found = (read_metadata(message_of_bytes(bytes(row.value))) for row in values)
    return tuple(metadata for metadata in found if metadata is not None)


def decoded_maps(given: DataFrame, schemas: QlikSchemas, plan: DecodePlan) -> DataFrame:
    """The change rows of Avro messages (Kafka's columns) with map images, lazily but for the jobs over a batch."""
    found = () if given.isStreaming else found_metadata(given)
    known = {metadata.schema_id: metadata for metadata in (*plan.metadata, *found)}
    schemas = replace(schemas, data_schemas={id: metadata.data_schema for id, metadata in known.items()})
    read = _parsed(_as_json(given, schemas))
    structure = (
        "case when found_problem is not null then null when tableStructure is not null then "
        f"concat('md:', get_json_object(text, '$.payload')) when description is not null then "
        f"concat('{_STRUCTURE}', coalesce(schema_id_said, ''), '\\n', description) end"
    )
    return map_rows(with_structures(read, structure, AvroReader(known), PLAN), plan, avro=True)


def _as_json(given: DataFrame, schemas: QlikSchemas) -> DataFrame:
    """Kafka's columns with `value_json` and `key_json`, the envelope's fields and `problem`."""
    none = "cast(null as binary)"
    outer = given.selectExpr(
        "*",
        f"{none} as key_head",
        f"{none} as key_body",
        f"if({_ENVELOPED}, X'{_ENVELOPE.hex()}', null) as value_head",
        "value as value_body",
        "cast(null as string) as problem",
    )
    fields = "type: string, messageSchemaId: string, messageSchema: string, message: string"
    envelope = f"from_json(cast(value_json as string), 'payload struct<{fields}>').payload"
    opened = with_json(outer, schemas).selectExpr(
        *messages.KAFKA_COLUMNS, "problem as outer_problem", f"{_ENVELOPED} as enveloped", f"{envelope} as e"
    )
    framing = schemas.framing
    head = (
        f"case when not enveloped then concat(X'{_FRAMED.hex()}', {framing.head('value')}) "
        f"when e.messageSchema is not null then cast(concat('{_TEXT.decode()}', e.messageSchema) as binary) "
        f"when e.messageSchemaId is not null then cast(concat('{_ID.decode()}', e.messageSchemaId) as binary) end"
    )
    kind = "'The envelope is of type neither MD nor DT.'"
    problem = (
        f"case when value is null then null when not enveloped then {framing.problem('value')} "
        f"when outer_problem is not null then 'The envelope can\\'t be read.' "
        f"when coalesce(e.type not in ('MD', 'DT'), true) then {kind} "
        "when e.messageSchema is null and e.messageSchemaId is null then 'The envelope names no schema.' end"
    )
    inner = opened.selectExpr(
        *messages.KAFKA_COLUMNS,
        "e.messageSchemaId as schema_id_said",
        f"if(enveloped or value is null, null, concat(X'{_FRAMED.hex()}', {framing.head('key')})) as key_head",
        f"{framing.body('key')} as key_body",
        f"{head} as value_head",
        f"if(enveloped, try_to_binary(e.message, 'base64'), {framing.body('value')}) as value_body",
        f"{problem} as problem",
    )
    spared = [name for name in inner.columns if name not in ("value_head", "problem")]
    # A message with a problem needs no schema.
    checked = inner.selectExpr(*spared, "if(problem is null, value_head, null) as value_head", "problem")
    return with_json(checked, schemas)


def _parsed(spelled: DataFrame) -> DataFrame:
    """The columns that `qlik_decode.map_rows` reads."""
    image = "map<string,string>"
    headers = ", ".join(f"`{name}`: string" for name in HEADERS)
    payload = (
        f"data: {image}, beforeData: {image}, headers: struct<{headers}>, tableStructure: struct<tableColumns: string>"
    )
    ddl = f"`schema` struct<qlik: string>, payload struct<{payload}>"
    masks = ("changeMask", "columnMask")
    clean = ", ".join(
        f"'{name}', " + (f"hex(try_to_binary(h.{name}, 'base64'))" if name in masks else f"h.`{name}`")
        for name in HEADERS
    )
    key = "from_json(cast(key_json as string), 'payload map<string,string>').payload"
    plain_key = "if(startswith(cast(key as string), '{'), from_json(cast(key as string), 'map<string,string>'), null)"
    read = spelled.selectExpr("*", "cast(value_json as string) as text").selectExpr(
        "*", f"from_json(text, {literal(ddl)}) as p"
    )
    return read.selectExpr(
        *messages.KAFKA_COLUMNS,
        "schema_id_said",
        "problem as found_problem",
        "transform(array(text), t -> t)[0] as text",
        "p.`schema`.qlik as description",
        "p.payload.tableStructure as tableStructure",
        "p.payload.headers as h",
        "p.payload.data as data",
        "p.payload.beforeData as beforeData",
        f"map_keys(coalesce({key}, {plain_key})) as key_said",
    ).selectExpr(
        *messages.KAFKA_COLUMNS,
        *("schema_id_said", "found_problem", "text", "description", "tableStructure", "data", "beforeData", "key_said"),
        f"if(h is null, null, named_struct({clean})) as h",
        "cast(null as string) as schema_said",
        "cast(null as string) as table_said",
    )
