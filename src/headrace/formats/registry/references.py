"""Avro schemas that name types of other schemas: one schema that holds them all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = ("record", "error", "enum", "fixed")


def with_references(text: str, others: Iterable[str]) -> str:
    """A schema in which each type of other schemas is defined where it is named first.

    A text that is not a schema, and a name that nobody defines, stay as they are.
    """
    try:
        parsed, schemas = json.loads(text), [json.loads(other) for other in others]
    except ValueError:
        return text
    defined: dict[str, Any] = {}
    for schema in schemas:
        _collect(schema, "", defined)
    walk = _Walk(defined)
    whole = walk.schema(parsed, "")
    return json.dumps(whole, ensure_ascii=False) if walk.has_defined else text


def full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """The full name of a named type, and the namespace of the names in it; empty where it has no name."""
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        return "", namespace
    if "." in name:
        return name, name.rpartition(".")[0]
    inner = schema.get("namespace", namespace) or ""
    return (f"{inner}.{name}" if inner else name), inner


def _collect(schema: Any, namespace: str, defined: dict[str, Any]) -> None:
    """Add the types that a schema defines, by their full names; each with its full name."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, namespace, defined)
    if not isinstance(schema, Mapping):
        return
    inner = namespace
    if schema.get("type") in _NAMED:
        name, inner = full_name(schema, namespace)
        defined.setdefault(name, {**schema, "name": name, "namespace": inner})
    for part in _parts(schema):
        _collect(part, inner, defined)


def _parts(schema: Mapping[str, Any]) -> list[Any]:
    fields = schema.get("fields") or ()
    inside = [field.get("type") for field in fields if isinstance(field, Mapping)]
    kind = schema.get("type")
    nested = [kind] if isinstance(kind, (Mapping, list)) else []
    return [*inside, *nested, schema.get("items"), schema.get("values")]


class _Walk:
    """One walk through a schema; `defined` are the types of others that it has not met yet."""

    def __init__(self, defined: Mapping[str, Any]) -> None:
        self._defined = defined
        self._known: set[str] = set()
        self.has_defined = False

    def schema(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return [self.schema(branch, namespace) for branch in schema]
        if not isinstance(schema, Mapping):
            return schema
        kind, replaced = schema.get("type"), dict(schema)
        if kind in _NAMED:
            name, namespace = full_name(schema, namespace)
            if name in self._known and name in self._defined:
                return name
            self._known.add(name)
            if isinstance(schema.get("fields"), list):
                replaced["fields"] = [
                    {**field, "type": self.schema(field.get("type"), namespace)}
                    if isinstance(field, Mapping)
                    else field
                    for field in schema["fields"]
                ]
            return replaced
        for part in ("type", "items", "values"):
            if part in schema and (part == "type" or kind in ("array", "map")):
                replaced[part] = self.schema(schema[part], namespace)
        return replaced

    def _named(self, name: str, namespace: str) -> Any:
        if name in PRIMITIVES or name in ("array", "map"):
            return name
        for full in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
            if full in self._known:
                return full
            if full in self._defined:
                self.has_defined = True
                return self.schema(self._defined[full], "")
        return name
