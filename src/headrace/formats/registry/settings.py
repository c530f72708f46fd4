"""The options of every format whose schemas come from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import OptionError
from headrace.formats.registry.client import Registry, registry_given
from headrace.formats.registry.framing import FRAMINGS
from headrace.settings import Settings, option


class RegistrySettings(Settings):
    """Where schemas come from, and how messages name them."""

    registry: Registry | None = option(
        "The source of schemas: the address of a schema registry (`http://host:8081`; Apicurio's own interface if it "
        "ends with `/apis/registry/v2`), or a mapping from id to Avro schema, its JSON, or a file with it.",
        kind=registry_given,
        default=None,
    )
    registry_client: Mapping[str, str] = option(
        "Settings of confluent-kafka's SchemaRegistryClient, with the prefix `registry.`: "
        "`registry.basic.auth.user.info`, `registry.ssl.ca.location`, `registry.max.retries`.",
        name="registry.*",
        kind=str,
        default={},
    )
    framing: str = option(
        "How a message names its Avro schema: `confluent` (00 and a 4-byte id before the datum), `confluent-header` "
        "(in the headers `__key_schema_id` and `__value_schema_id`), `apicurio8` (00 and an 8-byte id), "
        "`apicurio-header` (in the headers `apicurio.value.globalId` or `contentId`), `none` (not at all).",
        default="confluent",
        choices=FRAMINGS,
    )


def registry_of(settings: RegistrySettings, owner: str) -> Registry:
    """The registry that the options name.

    Raises:
        OptionError: none is given, or settings without an address.
    """
    registry, more = settings.registry, settings.registry_client
    if registry is None:
        raise OptionError(
            f"Option 'registry' of {owner} is missing.",
            remedy="Set it to the address of a schema registry, or to a mapping from id to Avro schema.",
        )
    if not more:
        return registry
    if registry.url is None:
        raise OptionError(f"Option '{next(iter(more))}' needs an address in 'registry'.", remedy="Leave it out.")
    pairs = sorted((name[len("registry.") :].lower(), value) for name, value in more.items())
    return Registry(registry.url, {}, tuple(pairs))
