"""Debezium's change events as Avro with a schema registry: what its connectors write through an Avro converter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headrace.formats.avro_decode import Schemas, framed, with_json
from headrace.formats.avro_framing import FRAMING, Framing
from headrace.formats.base import Format
from headrace.formats.debezium_json import DebeziumJson
from headrace.formats.debezium_options import OPTIONS
from headrace.formats.messages import KAFKA_COLUMNS, kafka_columns
from headrace.formats.schema_registry import REGISTRY_OPTIONS, Registry, registry_of
from headrace.options import Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
        "where that has one." if side == "value" else "Framing `none`: the Avro schema of all keys, as JSON; without "
        "it keys are not read.",
        default=None,
    )


class DebeziumAvro(Format):
    """Debezium's Avro events, whatever registry and converter wrote them.

    Source: spec/format_debezium.md.
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
        parts = with_json(framed(kafka_columns(messages), schemas.framing), schemas)
        rows = self._json().decode(_as_json_messages(parts))
        return _restored(rows)

    def _json(self) -> DebeziumJson:
        return DebeziumJson(self.settings.replaced(schemas_enable=True, key_schemas_enable=True))

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
