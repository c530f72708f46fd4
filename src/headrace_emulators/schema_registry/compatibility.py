"""Whether an Avro schema is one, and whether data written with one schema can be read with another.

The rules are those of the Avro specification (schema resolution); logical types do not matter to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED = frozenset(("record", "enum", "fixed"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
# What a value of the key's type may be read as.
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class _Invalid(Exception):
    pass


def problems(reader: Any, writer: Any = None) -> list[str]:
    """Why data of `writer` can't be read with `reader` (both parsed JSON); empty if it can.

    Without a writer: why the reader is not an Avro schema.
    """
    try:
        own = _Names(reader)
        if writer is None:
            return []
        return _Resolution(own, _Names(writer)).check(own.root, None, "")
    except _Invalid as wrong:
        return [str(wrong)]


class _Names:
    """A schema in which every named type is known by its full name."""

    def __init__(self, schema: Any) -> None:
        self.named: dict[str, Mapping[str, Any]] = {}
        self.root = self._resolved(schema, "")

    def _resolved(self, schema: Any, namespace: str) -> Any:
        """The same schema with full names, types as dictionaries or names."""
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return schema
            name = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            found = name if name in self.named else schema
            if found not in self.named:
                raise _Invalid(f"the type {schema!r} is not defined")
            return found
        if isinstance(schema, list):
            branches = [self._resolved(branch, namespace) for branch in schema]
            if any(isinstance(branch, list) for branch in branches):
                raise _Invalid("a union holds a union")
            return branches
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise _Invalid("a schema lacks its type")
        return self._complex(schema, namespace)

    def _complex(self, schema: Mapping[str, Any], namespace: str) -> Any:
        kind = schema["type"]
        if not isinstance(kind, str) or (kind not in _NAMED and kind not in ("array", "map")):
            return self._resolved(kind, namespace)
        if kind == "array":
            return {"type": "array", "items": self._resolved(schema.get("items"), namespace)}
        if kind == "map":
            return {"type": "map", "values": self._resolved(schema.get("values"), namespace)}
        name = schema.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _Invalid(f"{name!r} is not a name")
        inner = schema.get("namespace", namespace) if "." not in name else name.rpartition(".")[0]
        full = name if "." in name or not inner else f"{inner}.{name}"
        if full in self.named:
            raise _Invalid(f"the type {full!r} is defined twice")
        made: dict[str, Any] = {"type": kind, "name": full, "aliases": schema.get("aliases") or []}
        self.named[full] = made
        if kind == "record":
            made["fields"] = self._fields(schema, inner)
        elif kind == "enum":
            made |= {"symbols": list(schema.get("symbols") or []), "default": schema.get("default")}
        else:
            made["size"] = schema.get("size")
        return full

    def _fields(self, schema: Mapping[str, Any], namespace: str) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = []
        given = schema.get("fields")
        if not isinstance(given, list):
            raise _Invalid(f"the record {schema['name']!r} lacks its fields")
        for field in given:
            name = field.get("name") if isinstance(field, Mapping) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or "." in name:
                raise _Invalid(f"{name!r} is not a name of a field")
            if any(name == other["name"] for other in fields):
                raise _Invalid(f"the field {name!r} occurs twice")
            kind = self._resolved(field.get("type"), namespace)
            made = {"name": name, "type": kind, "aliases": field.get("aliases") or []}
            fields.append(made | ({"default": field["default"]} if "default" in field else {}))
        return fields


class _Resolution:
    def __init__(self, reader: _Names, writer: _Names) -> None:
        self._reader = reader
        self._writer = writer
        self._seen: set[tuple[str, str]] = set()

    def check(self, reader: Any, writer: Any, place: str) -> list[str]:
        writer = self._writer.root if writer is None else writer
        if isinstance(writer, list):
            return [wrong for branch in writer for wrong in self.check(reader, branch, place)]
        if isinstance(reader, list):
            if any(not self.check(branch, writer, place) for branch in reader):
                return []
            return [f"{place or 'the schema'}: the reader's union lacks {_word(writer)}"]
        there, here = self._writer.named.get(str(writer), writer), self._reader.named.get(str(reader), reader)
        if isinstance(here, str) or isinstance(there, str):
            fits = here == there or here in _PROMOTIONS.get(str(there), ())
            return [] if fits else [f"{place or 'the schema'}: {_word(there)} can't be read as {_word(here)}"]
        if here["type"] != there["type"]:
            return [f"{place or 'the schema'}: {_word(there)} can't be read as {_word(here)}"]
        if here["type"] == "array":
            return self.check(here["items"], there["items"], f"{place}/items")
        if here["type"] == "map":
            return self.check(here["values"], there["values"], f"{place}/values")
        return self._named(here, there, place)

    def _named(self, reader: Mapping[str, Any], writer: Mapping[str, Any], place: str) -> list[str]:
        short = writer["name"].rpartition(".")[2]
        if reader["name"].rpartition(".")[2] != short and not {writer["name"], short} & set(reader["aliases"]):
            return [f"{place or 'the schema'}: {writer['name']} can't be read as {reader['name']}"]
        if reader["type"] == "fixed":
            return [] if reader["size"] == writer["size"] else [f"{place}: fixed of another size"]
        if reader["type"] == "enum":
            lacking = [s for s in writer["symbols"] if s not in reader["symbols"]]
            return [f"{place}: the reader lacks the symbol {lacking[0]}"] if lacking and not reader["default"] else []
        pair = (reader["name"], writer["name"])
        if pair in self._seen:
            return []
        self._seen.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        wrong: list[str] = []
        for field in reader["fields"]:
            path = f"{place}/{field['name']}"
            match = next((written[n] for n in (field["name"], *field["aliases"]) if n in written), None)
            if match is not None:
                wrong += self.check(field["type"], match["type"], path)
            elif "default" not in field:
                wrong.append(f"{path}: the writer lacks it and the reader has no default")
        return wrong


def _word(kind: Any) -> str:
    return str(kind["type"]) if isinstance(kind, Mapping) else str(kind)
