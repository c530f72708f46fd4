"""Debezium's change events as Avro with a schema registry: what its connectors write through an Avro converter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.changes import TableId, TableSchema
from headrace.formats.avro_decode import (
    Resolved,
    Schemas,
    avro_is_limited,
    framed,
    has_spark_avro,
    heads_of,
    with_json,
)
from headrace.formats.avro_encode import AvroWriter, ShortTexts
from headrace.formats.avro_framing import FRAMING, Framing, Side
from headrace.formats.avro_schema import WriterSchema
from headrace.formats.base import Format
from headrace.formats.debezium_avro_struct import StructPlan, key_reader, readers
from headrace.formats.debezium_json import DebeziumJson
from headrace.formats.debezium_options import OPTIONS
from headrace.formats.encoded_batch import EncodedBatch, observation_name, observed_batch
from headrace.formats.messages import KAFKA_COLUMNS, kafka_columns
from headrace.formats.schema_registry import REGISTRY_OPTIONS, Registry, registry_of
from headrace.options import Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_OWN_STASH = ("key", "value", "problem", "headers")
_STASH = "headrace."


def avro_given(given: Any) -> str:
    """An Avro schema as JSON text or parsed JSON."""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON ({error})") from error
    return text


def _given_schema(side: str) -> Option:
    return Option(
        f"{side}_schema",
        avro_given,
        f"Framing `none`: the Avro schema of all {side}s, as JSON. Without it the only schema of `registry` is meant, "
        "where that has one."
        if side == "value"
        else "Framing `none`: the Avro schema of all keys, as JSON; without it keys are not read.",
        default=None,
    )


class DebeziumAvro(Format):
    """Debezium's Avro events, whatever registry and converter wrote them.

    The events are those of `debezium_json`: same options, same rows, same spelling of values. A schema id that appears
    while a stream runs is fetched then; an id that the registry does not know gives an `error` row, which may be read
    again later; a registry that can't be asked for an id that this process has not seen stops the query, because
    nothing may be lost. Ids that were seen go on working while the registry is down.

    Which process runs it: batch DataFrames (so pipelines and `foreachBatch`) fetch schemas on the driver, by a job that
    looks for the ids of the batch when `decode` is called. Where they are at most 16, of thousands of messages each,
    `from_avro` reads the messages in the JVM; images are structs, read directly, where the option `schema` holds one
    table, and else maps, by way of JSON. Batches of more schemas or fewer messages, plain streaming DataFrames, and
    sessions without spark-avro are read in Python workers, message by message: several times slower for large batches,
    faster for small ones, which Spark would plan for longer.

    With one table's `schema`, keys of data rows come from the images (a message's own key is read for tombstones and
    for deletes without an old row).

    Source: Debezium's documentation (Avro serialization); Confluent's documentation of its wire format.
    """

    name = "debezium_avro"
    options = (
        *REGISTRY_OPTIONS,
        FRAMING,
        _given_schema("value"),
        _given_schema("key"),
        *(option for option in OPTIONS if option.name not in ("schemas_enable", "key_schemas_enable")),
    )
    reads = DebeziumJson.reads
    writes = DebeziumJson.writes

    def decode(self, messages: DataFrame) -> DataFrame:
        """Debezium events in Avro to change rows."""
        schemas = self._schemas()
        parts = framed(kafka_columns(messages), schemas.framing)
        given = self.settings["schema"]
        if given is not None and given.single and not messages.isStreaming and has_spark_avro(messages):
            found = self._typed(parts, schemas, given.only(self.settings["keys"]))
            if found is not None:
                return found
        return self._general(parts, schemas)

    def _general(self, parts: DataFrame, schemas: Schemas) -> DataFrame:
        """By way of the JSON that says the same."""
        rows = self._json().decode(_as_json_messages(with_json(parts, schemas)))
        return _restored(rows)

    def _typed(self, parts: DataFrame, schemas: Schemas, table: TableSchema) -> DataFrame | None:
        """The rows of one table with struct images, directly; null where none of the messages can be read so."""
        if self.settings["unwrapped"]:
            return None
        placeholder = self.settings["unavailable_value_placeholder"]
        heads = heads_of(parts, placeholder.encode())
        found = schemas.resolved(heads.found)
        direct, others = readers(_schemas_of("value", found), table.columns, schemas.framing.fixed_size)
        key_schemas = _schemas_of("key", found)
        keys = {head: key_reader(schema, table.columns) for head, schema in key_schemas.items()}
        named = {(key.names, key.texts) for key in keys.values() if key is not None}
        if not direct or len(named) > 1 or (not table.key and keys and not named):
            return None
        plan = StructPlan(
            framing=schemas.framing,
            table=table,
            key=table.key or next(iter(named), ((), ()))[0],
            readers=direct,
            keys={head: key for head, key in keys.items() if key is not None},
            problems={pair: r.problem for pair, r in found.items() if r.problem is not None},
            careful=not avro_is_limited(parts),
            placeholder=placeholder if heads.held else None,
        )
        unread = [head for head, key in keys.items() if key is None]
        elsewhere = [f"coalesce(value_head in ({_hex(others)}), false)"] if others else []
        elsewhere += [f"value is null and coalesce(key_head in ({_hex(unread)}), false)"] if unread else []
        if not elsewhere:
            return plan.rows(parts)
        there = " or ".join(elsewhere)
        return plan.rows(parts.where(f"not ({there})")).unionAll(self._general(parts.where(there), schemas))

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows to the events that Debezium writes through an Avro converter, and their schemas to the registry.

        The same events as `debezium_json`, with the same options; names of schemas and columns are made fit for Avro.
        Schemas are registered under `<topic>-key` and `<topic>-value` before anything is written; with a mapping in
        `registry` they must be in it. Headers that hold a key (of a changed key) hold it as plain JSON.

        Raises:
            OptionError: as `debezium_json`; a mapping lacks a schema.
            ConnectError: the registry can't be reached or refuses a schema.
        """
        return self._encoded(changes, observation_name(self.name))

    def encode_batch(self, changes: DataFrame) -> EncodedBatch:
        """A batch's messages, and the values in whose place something else stands."""
        return observed_batch(lambda observation: self._encoded(changes, observation))

    def _encoded(self, changes: DataFrame, observed: Observation | str) -> DataFrame:
        registry = self._registry_to_write()
        short = ShortTexts()
        messages = self._json().encoded(changes, observed, short.short)
        return AvroWriter(self.settings["framing"], registry, short).encode(messages)

    def check(self, *, writes: bool) -> None:
        """Whether there is a registry, or schemas in its place, and what `debezium_json` needs."""
        if writes:
            self._registry_to_write()
            self._json().check(writes=True)
        else:
            self._schemas()

    def _registry_to_write(self) -> Registry:
        bare = self.settings["framing"] == "none" and self.settings["registry"] is None
        return Registry() if bare else registry_of(self.settings, f"format '{self.name}'")

    def topic_for(self, table: TableId, connector: str = "") -> str:
        """The topic of a table's events."""
        return self._json().topic_for(table, connector)

    def _json(self) -> DebeziumJson:
        settings = self.settings
        fit = {
            name: "avro" if settings[name] in (None, "none") else settings[name]
            for name in ("schema_name_adjustment_mode", "field_name_adjustment_mode")
        }
        return DebeziumJson(settings.replaced(schemas_enable=True, key_schemas_enable=True, **fit))

    def _schemas(self) -> Schemas:
        settings = self.settings
        name, key, value = settings["framing"], settings["key_schema"], settings["value_schema"]
        if name == "none" and settings["registry"] is None and value is not None:
            registry = Registry()
        else:
            registry = registry_of(settings, f"format '{self.name}'")
        if value is None and len(registry.schemas) == 1:
            value = next(iter(registry.schemas.values()))
        return Schemas(Framing(name, key is not None, value is not None), registry, key, value)


def _schemas_of(side: str, found: Mapping[tuple[Side, bytes], Resolved]) -> dict[bytes, WriterSchema]:
    return {head: r.schema for (of, head), r in found.items() if of == side and r.schema is not None}


def _hex(heads: Iterable[bytes]) -> str:
    return ", ".join(f"X'{head.hex()}'" for head in heads)


def _as_json_messages(parts: DataFrame) -> DataFrame:
    """Kafka's columns with JSON in place of Avro; what the messages were stands in headers of our own, in front."""
    kept = {
        "key": "key",
        "value": "value",
        "problem": "cast(problem as binary)",
        "headers": "if(headers is null, X'', null)",
    }
    stash = ", ".join(f"named_struct('key', '{_STASH}{name}', 'value', {sql})" for name, sql in kept.items())
    columns = {
        "key": "if(problem is null, key_json, if(key is null, null, X'21'))",
        # No JSON, so that an error row comes out.
        "value": "if(problem is null, value_json, X'21')",
        "headers": f"concat(array({stash}), coalesce(headers, array()))",
    }
    return parts.selectExpr(*(f"{columns.get(name, name)} as {name}" for name in KAFKA_COLUMNS))


def _restored(rows: DataFrame) -> DataFrame:
    """The change rows with the messages as they were."""
    place = {name: n for n, name in enumerate(_OWN_STASH)}

    def stashed(name: str) -> str:
        return f"message.headers[{place[name]}].value"

    ours = f"coalesce(message.headers[0].key = '{_STASH}key', false)"
    headers = (
        f"if({stashed('headers')} is not null, null, slice(message.headers, {len(place) + 1}, size(message.headers)))"
    )
    failed = "op <=> 'error'"
    fields = {
        "key": f"if({failed}, {stashed('key')}, null)",
        "value": f"if({failed}, {stashed('value')}, null)",
        "headers": headers,
    }
    parts = ", ".join(
        f"'{name}', {fields.get(name, f'message.{name}')}"
        for name in ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    )
    replaced = {
        "message": f"if({ours}, named_struct({parts}), message)",
        "error": f"if({ours} and {failed}, coalesce(cast({stashed('problem')} as string), error), error)",
    }
    return rows.selectExpr(*(f"{replaced.get(name, name)} as {name}" for name in rows.columns))
