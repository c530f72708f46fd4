"""The option `registry`: where the schemas that messages name by an id come from.

A registry is an address (Confluent's HTTP interface, or Apicurio's own where the address ends with
`/apis/registry/v2`), asked through confluent-kafka's client, or a mapping from id to schema that the user gives. What
was fetched once is kept for the life of the process, so ids that were seen go on working while the server is down.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from headrace.errors import ConnectError, OptionError
from headrace.formats.registry.references import with_references
from headrace.options import REDACTED

_APICURIO = re.compile(r"/apis/registry/v\d+/?$")
_GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOT_FOUND = (40401, 40402, 40403)
_NUMBERS = ("cache.capacity", "cache.latest.ttl.sec", "max.retries", "retries.wait.ms", "retries.max.wait.ms")


@dataclass(frozen=True, order=True)
class SchemaRef:
    """How a message names its schema.

    Args:
        kind: `id` (Confluent's), `globalId` or `contentId` (Apicurio's), or `guid`.
        value: the number, or the GUID in lower case.
    """

    kind: str
    value: str

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


@dataclass(frozen=True)
class Registered:
    """What a registry answered to a registration; the ids that it does not know are null."""

    id: int
    guid: str | None = None
    global_id: int | None = None

    @property
    def global_or_id(self) -> int:
        """Apicurio's `globalId`, where it is one that answered."""
        return self.id if self.global_id is None else self.global_id


@dataclass(frozen=True, repr=False)
class Registry:
    """What the option `registry` holds: an address, or schemas by id. Picklable, so executors can ask too.

    Args:
        url: one address, or several with commas between; None with a mapping.
        schemas: JSON text by id or GUID; of a mapping only.
        settings: what else confluent-kafka's client takes, by its names (`basic.auth.user.info`, `ssl.ca.location`).
    """

    url: str | None = None
    schemas: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Registry({self.shown})"

    __str__ = __repr__

    @property
    def shown(self) -> str:
        """The registry in a message: its address without credentials."""
        if self.url is None:
            return f"the given mapping of {len(self.schemas)} schemas"
        return ",".join(_without_credentials(url) for url in self.url.split(","))

    @property
    def apicurio(self) -> bool:
        """Whether it is asked through Apicurio's own interface."""
        return self.url is not None and bool(_APICURIO.search(self.url.split(",")[0]))

    def fetched(self, refs: Iterable[SchemaRef]) -> dict[SchemaRef, str]:
        """The schemas' JSON texts; those that the registry does not know are left out.

        Only what this process has not seen is asked for. Runs on the driver (batch) or in Python workers (stream).

        Raises:
            ConnectError: the registry can't be reached or refuses, and one of the ids is not known here.
        """
        wanted = sorted(set(refs))
        if self.url is None:
            texts = {ref: self.schemas[ref.value] for ref in wanted if ref.value in self.schemas}
            return {ref: with_references(text, self.schemas.values()) for ref, text in texts.items()}
        known = _known(self)
        with known.lock:
            for ref in wanted:
                if ref not in known.texts:
                    text = known.session.fetch(ref)
                    if text is not None:
                        known.texts[ref] = text
            return {ref: known.texts[ref] for ref in wanted if ref in known.texts}

    def registered(self, subject: str, schema: str) -> Registered:
        """The ids of a schema under a subject, registered if it is not there yet.

        Runs on the driver. A mapping can't be added to: the schema must be among its own.

        Raises:
            ConnectError: the registry can't be reached, or refuses the schema (for its compatibility rules, say).
            OptionError: a mapping that lacks the schema.
        """
        if self.url is None:
            wanted = json.loads(schema)
            for id, text in self.schemas.items():
                if id.isdigit() and json.loads(text) == wanted:
                    return Registered(int(id))
            raise OptionError(
                f"The mapping in option 'registry' has no schema for subject '{subject}'.",
                remedy=f"Add it under an id: {schema}",
            )
        known = _known(self)
        with known.lock:
            if (subject, schema) not in known.ids:
                known.ids[subject, schema] = known.session.register(subject, schema)
            return known.ids[subject, schema]


@dataclass
class _RegistryCache:
    """What this process knows of one registry."""

    session: _Session
    texts: dict[SchemaRef, str] = field(default_factory=dict)
    ids: dict[tuple[str, str], Registered] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


_REGISTRIES: dict[tuple[str, tuple[tuple[str, str], ...]], _RegistryCache] = {}
_LOCK = threading.Lock()


def _known(registry: Registry) -> _RegistryCache:
    assert registry.url is not None
    key = (registry.url, registry.settings)
    with _LOCK:
        if key not in _REGISTRIES:
            _REGISTRIES[key] = _RegistryCache(_Session(registry))
        return _REGISTRIES[key]


class _Session:
    """One client, made when it is first asked."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: Any = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            try:
                from confluent_kafka.schema_registry import SchemaRegistryClient
            except ImportError as error:
                raise OptionError(
                    f"A schema registry needs the package confluent-kafka with its registry client ({error}).",
                    remedy="Install it: pip install 'headrace[registry]'.",
                ) from error
            conf: dict[str, Any] = {"url": self._registry.url}
            for name, value in self._registry.settings:
                conf[name] = float(value) if name in _NUMBERS or name == "timeout" else value
            try:
                self._made = SchemaRegistryClient(conf)
            except (ValueError, TypeError, OSError) as error:
                raise OptionError(
                    f"The client of the schema registry refuses its settings: {error}.",
                    remedy="Use 'registry.' followed by a setting of confluent-kafka's SchemaRegistryClient.",
                ) from error
        return self._made

    def fetch(self, ref: SchemaRef) -> str | None:
        """The schema's text; None where the registry says that it has none of that id."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return self._asked(ref)
        except SchemaRegistryError as error:
            # A path that is not there at all is a wrong address, which must not make every message unreadable.
            if error.error_code in _NOT_FOUND or (self._registry.apicurio and error.error_code == 404):
                return None
            raise self._refused(f"schema {ref}", error) from error
        except (OSError, _http_error()) as error:
            raise self._unreachable(f"schema {ref}", error) from error

    def _asked(self, ref: SchemaRef) -> str | None:
        if self._registry.apicurio:
            if ref.kind == "guid":
                return None
            kind = "contentIds" if ref.kind == "contentId" else "globalIds"
            # The client has no call for Apicurio's paths; its session brings authentication, TLS and retries along.
            session = self._client._rest_client
            schema, references = (session.get(f"ids/{kind}/{ref.value}{part}") for part in ("", "/references"))
            return with_references(json.dumps(schema), self._artifacts(references, {}))
        if ref.kind == "guid":
            answer = self._client.get_schema_by_guid(ref.value)
        else:
            answer = self._client.get_schema(int(ref.value))
        if answer.schema_type not in (None, "AVRO"):
            return None
        return with_references(str(answer.schema_str), self._versions(answer.references, {}))

    def _versions(self, references: Any, known: dict[tuple[str, int], str]) -> Iterable[str]:
        """The schemas that another refers to, and those that they refer to."""
        for one in references or ():
            if (one.subject, one.version) not in known:
                schema = self._client.get_version(one.subject, one.version, deleted=True).schema
                known[one.subject, one.version] = str(schema.schema_str)
                self._versions(schema.references, known)
        return known.values()

    def _artifacts(self, references: Any, known: dict[str, str]) -> Iterable[str]:
        for one in references or ():
            group = quote(one.get("groupId") or "default", safe="")
            artifact = f"groups/{group}/artifacts/{quote(one['artifactId'], safe='')}/versions/{one['version']}"
            if artifact not in known:
                session = self._client._rest_client
                known[artifact] = json.dumps(session.get(artifact))
                self._artifacts(session.get(f"{artifact}/references"), known)
        return known.values()

    def register(self, subject: str, schema: str) -> Registered:
        from confluent_kafka.schema_registry import Schema
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            if self._registry.apicurio:
                return self._register_artifact(subject, schema)
            answer = self._client.register_schema_full_response(subject, Schema(schema, "AVRO"))
            return Registered(answer.schema_id, answer.guid)
        except SchemaRegistryError as error:
            raise self._refused(f"the schema of subject '{subject}'", error) from error
        except (OSError, _http_error()) as error:
            raise self._unreachable(f"the schema of subject '{subject}'", error) from error

    def _register_artifact(self, subject: str, schema: str) -> Registered:
        """Through Apicurio's stand-in for Confluent's interface, then the version's own id from Apicurio's."""
        from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

        url = _APICURIO.sub("/apis/ccompat/v7", (self._registry.url or "").split(",")[0])
        with SchemaRegistryClient({**self._client.config(), "url": url}) as twin:
            given = Schema(schema, "AVRO")
            content = twin.register_schema(subject, given)
            version = twin.lookup_schema(subject, given).version
        path = f"groups/default/artifacts/{quote(subject, safe='')}/versions/{version}/meta"
        return Registered(content, None, int(self._client._rest_client.get(path)["globalId"]))

    def _unreachable(self, what: str, error: Exception) -> ConnectError:
        return ConnectError(
            f"The schema registry {self._registry.shown} does not answer ({what}): {type(error).__name__}: {error}.",
            remedy="Start it or correct the option 'registry', then run again. No message was skipped.",
        )

    def _refused(self, what: str, error: Any) -> ConnectError:
        return ConnectError(
            f"The schema registry {self._registry.shown} refused {what}: {error.error_message} "
            f"(HTTP {error.http_status_code}, code {error.error_code}).",
            remedy="Check the credentials ('registry.basic.auth.user.info') and the compatibility of the subject.",
        )


def _http_error() -> type[Exception]:
    from confluent_kafka.schema_registry.common import _httpx_compat

    error: type[Exception] = _httpx_compat.httpx.HTTPError
    return error


def _without_credentials(url: str) -> str:
    parts = urlsplit(url.strip())
    if "@" not in parts.netloc:
        return url.strip()
    return parts._replace(netloc=f"{REDACTED}@{parts.netloc.rpartition('@')[2]}").geturl()


def registry_given(given: Any) -> Registry:
    """Read the option: an address, a mapping from id to Avro schema, its JSON text, or the path of a file with it."""
    if isinstance(given, Registry):
        return given
    if isinstance(given, Mapping):
        return Registry(schemas={_id(id): _schema_text(schema) for id, schema in given.items()})
    if not isinstance(given, (str, Path)):
        raise ValueError("it is neither an address nor a mapping from id to schema")
    text = str(given).strip()
    if text.startswith(("http://", "https://")):
        return Registry(url=text)
    if not text.startswith("{"):
        file = Path(text)
        if not file.is_file():
            raise ValueError("it is neither an address (http://...), nor a mapping from id to schema, nor a file")
        text = file.read_text(encoding="utf-8")
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"its mapping from id to schema is not JSON ({error})") from error
    if not isinstance(parsed, Mapping):
        raise ValueError("its JSON is not a mapping from id to schema")
    return registry_given(parsed)


def _id(given: Any) -> str:
    text = str(given).strip().lower()
    if text.isdigit():
        return str(int(text))
    if _GUID.fullmatch(text):
        return text
    raise ValueError(f"{given!r} is not a schema id: ids are numbers or GUIDs")


def avro_given(given: Any) -> str:
    """Read an option that holds an Avro schema, as JSON text or parsed JSON."""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    return text


def _schema_text(schema: Any) -> str:
    if not isinstance(schema, str):
        return json.dumps(schema, ensure_ascii=False)
    try:
        json.loads(schema)
    except json.JSONDecodeError:
        # A schema may be the bare name of a primitive type.
        return json.dumps(schema)
    return schema
