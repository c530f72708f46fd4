"""The format that a connector's converters stand for."""

from __future__ import annotations

from headrace.convert.properties import Properties
from headrace.errors import OptionError

_JSON = {"org.apache.kafka.connect.json.JsonConverter", "json", "jsonbytearray"}
_AVRO = {"io.confluent.connect.avro.AvroConverter", "avro"}
_APICURIO = {"io.apicurio.registry.utils.converter.AvroConverter"}
_SIDES = ("key", "value")
_AUTH_SOURCE = "basic.auth.credentials.source"
_USUAL = {
    "decimal.format": ("base64",),
    "auto.register.schemas": ("true",),
    "use.latest.version": ("false",),
    "normalize.schemas": ("false",),
    "enhanced.avro.schema.support": ("false",),
    "connect.meta.data": ("true",),
    "value.subject.name.strategy": ("io.confluent.kafka.serializers.subject.TopicNameStrategy",),
    "key.subject.name.strategy": ("io.confluent.kafka.serializers.subject.TopicNameStrategy",),
    "apicurio.registry.auto-register": ("true",),
    "apicurio.registry.find-latest": ("false",),
    _AUTH_SOURCE: ("user_info", "url"),
}
"""Settings of converters that ask for what is done anyway."""
_APICURIO_FRAMING = (
    "apicurio.registry.headers.enabled",
    "apicurio.registry.as-confluent",
    "apicurio.registry.id-handler",
)
_REMEDY = "Headrace writes Debezium's events as JSON (JsonConverter) or Avro (Confluent's or Apicurio's AvroConverter)."


def format_section(given: Properties, refused: list[OptionError]) -> dict[str, str]:
    """The format's section with its type and what the converters say.

    Args:
        given: the connector's properties.
        refused: gets an error for each converter, or setting of one, that writes what Headrace does not.
    """
    silent = [f"{side}.converter" for side in _SIDES if given.peek(f"{side}.converter") is None]
    if silent and not given.config.server:
        given.notes.append(f"{' and '.join(silent)}: the worker's, taken as JsonConverter. Compare with a message.")
    before = len(refused)
    kinds = {side: _kind(given, side, refused) for side in _SIDES}
    section = {"type": "debezium_json"}
    if len(refused) == before and kinds["key"] != kinds["value"]:
        error = f"Keys are written as {kinds['key']} and values as {kinds['value']}, and Headrace writes both alike."
        refused.append(OptionError(error, remedy="Give both the same converter."))
    elif len(refused) == before:
        try:
            section = _json(given) if kinds["value"] == "JSON" else _avro(given)
        except OptionError as error:
            refused.append(error)
    if len(refused) > before:
        for name in [name for side in _SIDES for name in given.names(f"{side}.converter.")]:
            given.leave(name, "not needed", "the converters can't be converted")
    for side in _SIDES:
        for name in given.names(f"{side}.converter."):
            given.leave_usual(name, _USUAL.get(name.removeprefix(f"{side}.converter."), ()))
    return section


def _kind(given: Properties, side: str, refused: list[OptionError]) -> str:
    called = given.given(f"{side}.converter")
    kind = given.take(f"{side}.converter")
    if kind is None or kind in _JSON:
        return "JSON"
    if kind in _AVRO | _APICURIO:
        return "Avro"
    refused.append(OptionError(f"Property '{called}' is '{kind}', which Headrace has no format for.", remedy=_REMEDY))
    return ""


def _json(given: Properties) -> dict[str, str]:
    section = {"type": "debezium_json"}
    # Connect's converter wraps messages unless it is configured not to.
    for side in ("value", "key"):
        name = f"{side}.converter.schemas.enable"
        section[name] = (given.take(name) or "true").strip().lower()
    if section["key.converter.schemas.enable"] == section["value.converter.schemas.enable"]:
        del section["key.converter.schemas.enable"]
    _null_as_default(given, section)
    return section


def _null_as_default(given: Properties, section: dict[str, str]) -> None:
    name = "value.converter.replace.null.with.default"
    value = given.peek(name)
    if value is not None:
        section[name] = value
        given.take(name)
    twin = "key.converter.replace.null.with.default"
    if given.peek(twin) is not None:
        given.leave(twin, "not needed", "columns of a key are never null")


def _avro(given: Properties) -> dict[str, str]:
    section = {"type": "debezium_avro"}
    for setting in ("schema.registry.url", "apicurio.registry.url"):
        urls = {side: given.peek(f"{side}.converter.{setting}") for side in _SIDES}
        url = urls["value"] or urls["key"]
        if not url:
            continue
        if urls["key"] not in (None, urls["value"]) and urls["value"]:
            raise OptionError(
                "Keys and values have schema registries of their own, and Headrace has one for both.",
                remedy=f"Give 'key.converter.{setting}' and 'value.converter.{setting}' the same address.",
            )
        origin = given.given(f"{'value' if urls['value'] else 'key'}.converter.{setting}")
        for side in _SIDES:
            given.take(f"{side}.converter.{setting}")
        section["registry"] = given.value("registry", url, "SCHEMA_REGISTRY_URL", origin=origin)
        if setting.startswith("apicurio"):
            section["framing"] = _apicurio_framing(given)
        break
    else:
        raise OptionError(
            "The converters are Avro's, and no schema registry is named.",
            remedy="Add 'value.converter.schema.registry.url'.",
        )
    user = "basic.auth.user.info"
    for name in (user, f"schema.registry.{user}"):
        for side in ("value", "key"):
            origin = given.given(f"{side}.converter.{name}")
            login = given.take(f"{side}.converter.{name}")
            if login is not None and f"registry.{user}" not in section:
                variable = "SCHEMA_REGISTRY_USER_INFO"
                section[f"registry.{user}"] = given.value(f"registry.{user}", login, variable, origin=origin)
    _null_as_default(given, section)
    for side in _SIDES:
        name = f"{side}.converter.schemas.enable"
        if given.peek(name) is not None:
            given.leave(name, "not needed", "Avro messages always name their schema")
    return section


def _apicurio_framing(given: Properties) -> str:
    framing = {}
    for setting in _APICURIO_FRAMING:
        values = {side: given.take(f"{side}.converter.{setting}") for side in _SIDES}
        framing[setting] = (values["value"] or values["key"] or "").strip()
    headers, confluent, handler = (framing[setting] for setting in _APICURIO_FRAMING)
    if headers.lower() == "true":
        return "apicurio-header"
    return "confluent" if confluent.lower() == "true" or handler.endswith("Legacy4ByteIdHandler") else "apicurio8"
