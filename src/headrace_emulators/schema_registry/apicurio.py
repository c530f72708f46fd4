"""Apicurio's own HTTP interface (version 2), as far as its converters and serializers 2.x use it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from headrace_emulators.schema_registry.store import GROUP, RegistryRefusal, SchemaStore, Version

_WHEN = "2024-01-01T00:00:00+0000"


def error_name(refusal: RegistryRefusal) -> str:
    """The Java class that Apicurio's client maps an error to."""
    if refusal.status == 404:
        return "VersionNotFoundException" if refusal.code == 40402 else "ArtifactNotFoundException"
    if refusal.status == 409:
        exists = "already exists" in refusal.message
        return "ArtifactAlreadyExistsException" if exists else "RuleViolationException"
    return "InvalidArtifactTypeException" if refusal.status == 422 else "BadRequestException"


def answer(
    store: SchemaStore,
    method: str,
    path: list[str],
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
) -> Any:
    """The answer as JSON values; header names come in lower case.

    Raises:
        RegistryRefusal: the request names something unknown, or is not allowed.
    """
    match method, path:
        case "GET", ["system", "info"]:
            return {"name": "Headrace's registry for tests", "version": "2.6.2.Final"}
        case "GET", ["ids", kind, id]:
            return json.loads(_by_id(store, kind, id))
        case "GET", ["ids", kind, id, "references"]:
            _by_id(store, kind, id)
            return _references(store, int(id) if kind == "contentIds" else store.by_global_id(int(id))[2].content)
        case (("GET" | "POST"), ["search", "artifacts"]):
            found = [name for name in store.names() if query.get("name", "") in name]
            if method == "POST":
                schema = _content(headers, body)
                found = [name for name in store.names() if _has(store, name, schema)]
            return {"artifacts": [_described(store, GROUP, name, "latest") for name in found], "count": len(found)}
        case _, ["groups", group, "artifacts", *rest]:
            return _artifacts(store, method, group, rest, query, headers, body)
    raise RegistryRefusal(404, f"No artifact found at /{'/'.join(path)}.")


def _artifacts(
    store: SchemaStore,
    method: str,
    group: str,
    path: list[str],
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
) -> Any:
    match method, path:
        case "POST", []:
            name = headers.get("x-registry-artifactid") or hashlib.md5(body, usedforsecurity=False).hexdigest()
            return _created(store, group, name, query.get("ifExists", "FAIL"), _content(headers, body))
        case "GET", []:
            names = store.names(group)
            return {"artifacts": [_described(store, group, name, "latest") for name in names], "count": len(names)}
        case "GET", [name]:
            return json.loads(store.content(store.version(name, "latest", group).content))
        case ("PUT", [name]) | ("POST", [name, "versions"]):
            store.subject(name, group)
            return _described(store, group, name, store.register(name, _content(headers, body), group))
        case "GET", [name, "meta"]:
            return _described(store, group, name, "latest")
        case "POST", [name, "meta"]:
            return _described(store, group, name, store.lookup(name, _content(headers, body), group))
        case "GET", [name, "versions"]:
            versions = store.subject(name, group).versions
            return {"versions": [_described(store, group, name, v) for v in versions], "count": len(versions)}
        case "GET", [name, "versions", wanted]:
            return json.loads(store.content(store.version(name, wanted, group).content))
        case "GET", [name, "versions", wanted, "meta"]:
            return _described(store, group, name, wanted)
        case "GET", [name, "versions", wanted, "references"]:
            return _references(store, store.version(name, wanted, group).content)
    raise RegistryRefusal(405, "Method not allowed.")


def _references(store: SchemaStore, content: int) -> list[dict[str, Any]]:
    return [
        {"groupId": GROUP, "artifactId": one.subject, "version": str(one.version), "name": one.name}
        for one in store.references.get(content, ())
    ]


def _content(headers: Mapping[str, str], body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    if "create.extended" not in headers.get("content-type", ""):
        return text
    wrapped = json.loads(text)
    if wrapped.get("references"):
        raise RegistryRefusal(400, "Schema references are not built here.")
    return str(wrapped.get("content", ""))


def _created(store: SchemaStore, group: str, name: str, if_exists: str, schema: str) -> dict[str, Any]:
    there = name in store.names(group)
    if there and if_exists == "FAIL":
        raise RegistryRefusal(409, f"An artifact with ID '{name}' in group '{group}' already exists.")
    if there and if_exists == "RETURN":
        return _described(store, group, name, "latest")
    return _described(store, group, name, store.register(name, schema, group))


def _has(store: SchemaStore, name: str, schema: str) -> bool:
    try:
        store.lookup(name, schema)
    except RegistryRefusal:
        return False
    return True


def _by_id(store: SchemaStore, kind: str, id: str) -> str:
    if kind == "contentHashes":
        for text in store.contents.values():
            if hashlib.sha256(text.encode()).hexdigest() == id:
                return text
        raise RegistryRefusal(40403, f"No artifact with content hash '{id}' could be found.")
    if not id.isdigit():
        raise RegistryRefusal(40403, f"No artifact with ID '{id}' could be found.")
    if kind == "contentIds":
        return store.content(int(id))
    return store.content(store.by_global_id(int(id))[2].content)


def _described(store: SchemaStore, group: str, name: str, wanted: str | Version) -> dict[str, Any]:
    version = wanted if isinstance(wanted, Version) else store.version(name, wanted, group)
    return {
        "id": name,
        "groupId": group,
        "name": name,
        "version": str(version.number),
        "type": "AVRO",
        "state": "ENABLED",
        "globalId": version.global_id,
        "contentId": version.content,
        "createdOn": _WHEN,
        "modifiedOn": _WHEN,
        "createdBy": "",
        "modifiedBy": "",
        "references": [],
    }
