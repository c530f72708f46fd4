"""Qlik messages as JSON to change rows with map images.

Data messages are found by their metadata through `structures.with_structures`: what is read once is not the metadata
message, but each schema id (or Avro schema) that data messages name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.letter_case import upper
from headrace.changes.typed import literal
from headrace.formats import exact_json, messages, qlik_masks, qlik_structs, text_values
from headrace.formats.debezium_texts import let
from headrace.formats.qlik_avro_schema import avro_map
from headrace.formats.qlik_metadata import Metadata, message_of_bytes, read_metadata
from headrace.formats.structures import Structure, with_structures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = (
    "operation", "changeSequence", "timestamp", "streamPosition", "transactionId", "changeMask", "columnMask",
    "transactionEventCounter", "transactionLastEvent", "externalSchemaId", "schema", "table",
)  # fmt: skip
_IMAGES = ("data", "beforeData")
PLAN = (
    "struct<kind:string,schema:string,name:string,key:array<string>,ordinals:array<string>,codes:map<string,string>,"
    "structure:string,source:map<string,string>,renamed:map<string,string>>"
)
"""What a structure says to the expressions; `kind` is `md` for a metadata message itself."""

IS_METADATA = "(type = 'MD' or (magic is null and tableStructure is not null))"
# What a structure's text starts with: a metadata message, or the id of one.
_MESSAGE, _ID = "md:", "id:"


@dataclass(frozen=True)
class Reader:
    """Reads what stands in the structure column: a metadata message, or an id that one has said; picklable.

    Args:
        known: metadata by schema id.
    """

    known: Mapping[str, Metadata] = field(default_factory=dict)

    def __call__(self, text: str) -> Structure:
        """The structure and the plan; `Structure(None)` where the id is not known, or the text no metadata message."""
        if text.startswith(_MESSAGE):
            try:
                found = read_metadata(json.loads(text[len(_MESSAGE) :]))
            except (ValueError, RecursionError):
                found = None
            return Structure(None) if found is None else Structure(found.schema, plan_of(found, message=True))
        found = self.known.get(text[len(_ID) :])
        return Structure(None) if found is None else Structure(found.schema, plan_of(found))


def plan_of(metadata: Metadata, *, message: bool = False) -> dict[str, object]:
    """A value of `PLAN`."""
    schema = metadata.schema
    return {
        "kind": "md" if message else "dt",
        "schema": schema.id.schema,
        "name": schema.id.name,
        "key": list(schema.key),
        "ordinals": list(metadata.ordinals),
        "codes": text_values.codes_of(schema),
        "structure": schema.to_text() if message else None,
        "source": {**metadata.source, "schemaId": metadata.schema_id} if message else None,
        "renamed": None,
    }


@dataclass(frozen=True)
class DecodePlan:
    """How messages are decoded.

    Args:
        order: the option `mask_byte_order`.
        keys: the option `keys`.
        given: structures that the caller gives, by table.
        metadata: metadata that the caller gives.
        struct: the one structure that the caller gives, which makes images structs.
    """

    order: str
    keys: tuple[str, ...] = ()
    given: tuple[TableSchema, ...] = ()
    metadata: tuple[Metadata, ...] = ()
    struct: TableSchema | None = None


def parsed(given: DataFrame, image: str, unmarked: Callable[[str], str]) -> DataFrame:
    """Kafka's columns with what each message says.

    Adds `text`, `suspicious`, `unread`, `magic`, `type`, `schema_id_said`, `tableStructure`, `h` (headers, a struct of
    texts), `data`, `beforeData`, `table_schema_said`, `table_said`.

    Args:
        given: Kafka's columns.
        image: the Spark type that `data` and `beforeData` are parsed as.
        unmarked: SQL for an image without the marks of exact numbers.
    """
    mark, marked = exact_json.exact("text")
    headers = ", ".join(f"`{name}`: string" for name in HEADERS)
    body = {
        "data": image,
        "beforeData": image,
        "headers": f"struct<{headers}>",
        "`schema`": "string",
        "`table`": "string",
        "schemaId": "string",
        "tableStructure": "struct<tableColumns: string>",
    }
    inside = ", ".join(f"{name}: {kind}" for name, kind in body.items())
    outside = ", ".join(f"{name} {kind}" for name, kind in body.items())
    ddl = (
        f"magic string, type string, messageSchemaId string, message struct<{inside}>, {outside}, "
        f"{exact_json.BAD} string"
    )

    def said(name: str) -> str:
        return f"if(p.magic is null, p.{name}, p.message.{name})"

    clean = ", ".join(f"'{name}', {exact_json.unmarked(f'h.`{name}`')}" for name in HEADERS)
    read = (
        given.selectExpr("*", "cast(value as string) as text")
        .selectExpr("*", f"text rlike {literal(exact_json.SUSPICIOUS)} as suspicious")
        .selectExpr("*", f"if(suspicious, {mark}, null) as mark")
        .selectExpr("*", f"from_json({marked}, {literal(ddl)}, {exact_json.OPTIONS}) as p")
        .selectExpr(
            *messages.KAFKA_COLUMNS,
            "text",
            "suspicious",
            "mark",
            f"p is null or p.{exact_json.BAD} is not null as unread",
            "p.magic as magic",
            "p.type as type",
            "if(p.magic is null, p.schemaId, p.messageSchemaId) as schema_id_said",
            f"{said('tableStructure')} as tableStructure",
            f"{said('headers')} as h",
            f"{said('data')} as data",
            f"{said('beforeData')} as beforeData",
            f"{said('`schema`')} as schema_said",
            f"{said('`table`')} as table_said",
        )
    )
    key = "cast(key as string)"
    kept = [c for c in read.columns if c not in ("mark", "h", "data", "beforeData", "text")]
    return read.selectExpr(
        *kept,
        # The lambda keeps all this out of whole-stage code, where one method would be too long to be compiled.
        "transform(array(text), t -> t)[0] as text",
        f"if(mark is null or h is null, h, named_struct({clean})) as h",
        f"{unmarked('data')} as data",
        f"{unmarked('beforeData')} as beforeData",
        f"if(startswith({key}, '{{'), map_keys(from_json({key}, 'map<string,string>')), null) as key_said",
    )


def found_metadata(given: DataFrame) -> tuple[Metadata, ...]:
    """The metadata messages in a batch of JSON messages, by a job over it."""
    texts = given.where("contains(cast(value as string), 'tableStructure')").selectExpr("value").distinct()
    found = (read_metadata(_json(bytes(row.value))) for row in texts.collect())
    return tuple(metadata for metadata in found if metadata is not None)


def metadata_in_topic(spark: SparkSession, topic: str, servers: str) -> tuple[Metadata, ...]:
    """The metadata messages that a Kafka topic holds now, JSON or Avro, by a job that reads all of it."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    reader = reader.option("kafka.isolation.level", "read_committed")
    values = reader.option("startingOffsets", "earliest").load().where("value is not null").select("value").distinct()
    found = (read_metadata(message_of_bytes(bytes(row.value))) for row in values.collect())
    return tuple(metadata for metadata in found if metadata is not None)


def _json(value: bytes) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def decoded_maps(given: DataFrame, plan: DecodePlan) -> DataFrame:
    """The change rows of JSON messages (Kafka's columns) with map images, lazily but for the jobs over a batch."""
    found = () if given.isStreaming else found_metadata(given)
    known = {metadata.schema_id: metadata for metadata in (*plan.metadata, *found)}
    read = parsed(given, "map<string,string>", unmarked_map)
    structure = (
        f"case when unread then null when {IS_METADATA} then concat('{_MESSAGE}', text) "
        f"when schema_id_said is not null then concat('{_ID}', schema_id_said) end"
    )
    return map_rows(with_structures(read, structure, Reader(known), PLAN), plan)


def unmarked_map(image: str) -> str:
    """Spark SQL for a parsed map without the marks of exact numbers, in which each name stands once."""
    # The last one counts, as for JSON parsers at large.
    twice = f"size(array_distinct(map_keys({image}))) < size({image})"
    last = (
        f"map_from_entries(filter(map_entries({image}), (e, i) -> "
        f"array_position(reverse(map_keys({image})), e.key) = size({image}) - i))"
    )
    return exact_json.unmarked_map(f"if({twice}, {last}, {image})")


def map_rows(read: DataFrame, plan: DecodePlan, *, avro: bool = False) -> DataFrame:
    """The change rows of parsed messages with their plans; of Avro messages, values are spelled by their plan's codes,
    and `found_problem` says what was wrong with the bytes."""
    spell = avro_map if avro else text_values.coded_map
    if avro:
        read = read.selectExpr(
            *(name for name in read.columns if name not in ("data", "beforeData")),
            *(
                f"if(plan.renamed is null, {i}, transform_keys({i}, (k, v) -> coalesce(plan.renamed[k], k))) as {i}"
                for i in ("data", "beforeData")
            ),
        )
    laid = read.selectExpr(
        "*",
        f"{upper('trim(h.operation)')} as operation",
        f"{qlik_masks.digits('h.changeMask')} as change",
        f"{qlik_masks.digits('h.columnMask')} as present",
        f"{text_values.instant('trim(h.timestamp)')} as committed",
        f"{messages.table('null', _name('schema'), _name('table'))} as t",
        "coalesce(plan.ordinals, map_keys(coalesce(data, beforeData))) as ordinals",
    ).selectExpr("*", f"{_little(plan.order)} as little")
    old = "case operation when 'UPDATE' then beforeData when 'DELETE' then coalesce(data, beforeData) end"
    new = "if(operation in ('INSERT', 'UPDATE', 'REFRESH'), data, null)"
    changed = qlik_masks.named("ordinals", "change", "little")
    imaged = (
        laid.selectExpr(
            "*",
            f"{_spelled(_captured(old), plan, spell)} as old_image",
            f"{_spelled(_captured(new), plan, spell)} as new_image",
            f"if(operation = 'UPDATE' and change is not null, {changed}, null) as changed",
            f"{_key_names(plan)} as key_names",
        )
        .selectExpr("*", "coalesce(new_image, old_image) as newest")
        .selectExpr("*", f"{_KEY} as row_key")
    )
    checks = _AVRO_CHECKS if avro else _JSON_CHECKS
    if plan.struct is not None:
        return rows(qlik_structs.typed(imaged, plan.struct), _error(checks, "misfit", strict=avro), structs=True)
    return rows(imaged, _error(checks))


def rows(imaged: DataFrame, error: str, *, structs: bool = False) -> DataFrame:
    """The change rows of messages with `old_image`, `new_image`, `changed` and `row_key`."""
    op = "map('INSERT', 'c', 'UPDATE', 'u', 'DELETE', 'd', 'REFRESH', 'r')[operation]"
    is_metadata = "coalesce(plan.kind = 'md', false)"
    columns = {
        "op": f"case when value is null then 'tombstone' when {is_metadata} then 'schema' else {op} end",
        "table": "if(t.schema is null and t.name is null, null, t)",
        "before": "old_image",
        "after": "new_image",
        "changed": "changed",
        "key": "row_key",
        "key_text": messages.key_text("row_key"),
        "event_time": "committed",
        "snapshot": "if(operation = 'REFRESH', 'true', null)",
        "transaction": (
            "if(nullif(h.transactionId, '') is null, null, named_struct('id', h.transactionId, 'total_order', "
            "try_cast(h.transactionEventCounter as bigint), 'data_collection_order', null))"
        ),
        "source": f"case when value is null then null when {is_metadata} then plan.source else {_source()} end",
    }
    columns["table_schema"] = f"if({is_metadata}, plan.structure, null)"
    if structs:
        columns |= {"before_absent": "old_absent", "after_absent": "new_absent"}
        columns["schema_id"] = f"if({is_metadata}, schema_id, null)"
        return messages.change_rows(imaged, columns, error=error)
    columns["schema_id"] = "schema_id"
    # A metadata message is the schema row of its structure itself.
    others = (name for name in imaged.columns if name != "new_schema")
    once = imaged.selectExpr(*others, f"if({is_metadata}, null, new_schema) as new_schema")
    return messages.change_rows(once, columns, error=error, announced="t")


def _name(part: str) -> str:
    said = {"schema": "schema_said", "table": "table_said"}[part]
    planned = {"schema": "plan.schema", "table": "plan.name"}[part]
    return f"nullif(coalesce({planned}, {said}, h.`{part}`), '')"


def _little(order: str) -> str:
    differing = (
        "if(operation = 'UPDATE' and beforeData is not null, filter(map_keys(data), "
        "k -> not (data[k] <=> beforeData[k])), null)"
    )
    return qlik_masks.little(order, change="change", column="present", names="ordinals", differing=differing)


def _captured(image: str) -> str:
    """The image without the columns whose null says that they were not captured."""
    bit = qlik_masks.bit("present", "cast(array_position(ordinals, k) as int)", "little")
    kept = f"v is not null or array_position(ordinals, k) = 0 or coalesce({bit} = 1, true)"
    return let(image, "image", f"if(image is null or present is null, image, map_filter(image, (k, v) -> {kept}))")


def _spelled(image: str, plan: DecodePlan, spell: Callable[[str, str], str]) -> str:
    """Canonical texts, by the metadata or the structures given."""
    by_plan = spell("image", "plan.codes")
    given = text_values.canonical_map("image", plan.given, "t")
    return let(image, "image", f"if(plan is null, {given}, {by_plan})")


_KEY = (
    "if(newest is not null and size(key_names) > 0 and size(array_distinct(key_names)) = size(key_names) and "
    "forall(key_names, n -> map_contains_key(newest, n)), "
    "map_from_arrays(key_names, transform(key_names, n -> newest[n])), null)"
)


def _key_names(plan: DecodePlan) -> str:
    """The key's columns: by metadata, else those that the caller says, else those that Kafka's key names."""
    said = [f"when {text_values.is_table(s, 't')} then {_array(s.key)}" for s in plan.given if s.key]
    otherwise = _array(plan.keys) if plan.keys else "key_said"
    by_table = f"case {' '.join(said)} else {otherwise} end" if said else otherwise
    return f"if(size(plan.key) > 0, plan.key, {by_table})"


def _array(names: Sequence[str]) -> str:
    return f"array({', '.join(map(literal, names))})"


def _source() -> str:
    facts = ("changeSequence", "streamPosition", "transactionLastEvent", "externalSchemaId")
    pairs = ", ".join(f"'{name}', nullif(h.{name}, '')" for name in facts)
    return f"map_filter(map({pairs}, 'messageSchemaId', schema_id_said), (k, v) -> v is not null)"


_JSON_CHECKS = {
    messages.not_utf8("value"): "'The value is not UTF-8.'",
    "unread": "'The value is no JSON object in one of Qlik\\'s forms.'",
    exact_json.more_behind(
        "text", "(suspicious or magic is null and endswith(text, '}}}'))", 3
    ): "'Something stands behind the JSON object.'",
    "magic <> 'atMSG'": "concat('The magic of the envelope is not atMSG: ', substr(magic, 1, 80), '.')",
    "magic = 'atMSG' and coalesce(type not in ('MD', 'DT'), true)": "'The envelope is of type neither MD nor DT.'",
    IS_METADATA: "if(plan is null, 'The metadata message can\\'t be read.', null)",
}
_AVRO_CHECKS = {
    "found_problem is not null": "found_problem",
    "tableStructure is not null": "if(plan is null, 'The metadata message can\\'t be read.', null)",
    "h is null": "'The datum is no data record of Qlik.'",
}


def _error(checks: Mapping[str, str], otherwise: str = "null", *, strict: bool = True) -> str:
    """Spark SQL for why a message can't be read; `checks` come before those that all forms have.

    Where `strict` is off, a message may name metadata that is not known, because the caller gives the structure.
    """
    unknown = (
        "concat('The metadata message of schema ', schema_id_said, ' is not known. Read the metadata topic together "
        "with the data, or give it by the option metadata.')"
    )
    cases = {
        "value is null": "null",
        **checks,
        "h is null": "'The message has no headers.'",
        "operation is null": "'The headers have no operation.'",
        "operation not in ('INSERT', 'UPDATE', 'DELETE', 'REFRESH')": "concat('The operation is not known: ', "
        "substr(h.operation, 1, 80), '.')",
        f"{str(strict).lower()} and schema_id_said is not null and plan is null": unknown,
        "committed is null and trim(h.timestamp) <> ''": "concat('The timestamp can\\'t be read: ', h.timestamp, '.')",
        f"change is not null and {qlik_masks.malformed('change')}": "'The changeMask is no hexadecimal text.'",
        f"present is not null and {qlik_masks.malformed('present')}": "'The columnMask is no hexadecimal text.'",
        "operation = 'DELETE' and old_image is null": "'A delete has neither data nor beforeData.'",
        "operation <> 'DELETE' and new_image is null": "'The message has no data.'",
    }
    body = " ".join(f"when {test} then {sentence}" for test, sentence in cases.items())
    return f"case {body} else {otherwise} end"
