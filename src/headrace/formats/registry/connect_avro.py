"""Avro schemas as messages name them, and the Connect schemas that they stand for.

Kafka Connect's converters write a Connect schema as an Avro schema with `connect.*` attributes beside the types. Read
back, an Avro schema becomes two things here: the Connect schema (in the form of JsonConverter), which says what values
mean, and a plain Avro schema of the same bytes, which says how they lie: no logical types (Avro's libraries refuse
decimals whose scale is beyond their precision), no attributes, no defaults, and no name used twice.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from headrace.errors import FormatError
from headrace.formats.registry.references import PRIMITIVES, full_name, with_references
from headrace.wire.json_writer import to_text

_INTEGERS = {"int": "int32", "long": "int64"}
_SAME = frozenset(("float", "double", "boolean", "string", "bytes"))
# What Avro's own logical types mean where a producer other than Connect wrote them, and the types that may have them.
_MEANINGS = {
    "decimal": "org.apache.kafka.connect.data.Decimal",
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "uuid": "io.debezium.data.Uuid",
}
_BASES = {
    "decimal": ("bytes",),
    **dict.fromkeys(("date", "time-millis"), ("int32",)),
    "uuid": ("string",),
}
_MOST_LEVELS = 64
_MARKS = frozenset(("logicalType", "connect.name", "connect.type"))
_ENUM = "io.debezium.data.Enum"
_TEXTS = ("string", "boolean", "int32", "int64", "int8", "int16", "float", "double")
_WIDER = (("int32", "int64"), ("float", "double"), ("string",))
"""Types that one column has together: the last of each line holds the others."""
UNION = "union"
"""The type of a field whose values are of types that no column has together."""


@dataclass(frozen=True)
class WriterSchema:
    """What one schema of a registry says.

    Args:
        connect: the Connect schema, in JsonConverter's form.
        plain: the Avro schema by which the bytes are read, as JSON values.
        branches: the schemas of a union of several types, as of topics that several tables share, each datum with the
            number of its own in front; None for null. Empty for any other schema.
    """

    connect: Mapping[str, Any]
    plain: Any
    branches: tuple[WriterSchema | None, ...] = ()

    @cached_property
    def connect_text(self) -> str:
        return to_text(self.connect)

    @property
    def fields(self) -> Mapping[str, Mapping[str, Any]]:
        """The Connect fields of a struct by name; empty for other types."""
        return {field["field"]: field for field in self.connect.get("fields") or ()}


@lru_cache(maxsize=4096)
def writer_schema(text: str) -> WriterSchema:
    """Read the text of an Avro schema.

    Raises:
        FormatError: it is none.
    """
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise FormatError(f"The schema is not JSON: {error}.") from error
    if isinstance(parsed, list) and len(_values(parsed)) > 1:
        branches = tuple(None if branch == "null" else _branch(parsed, number) for number, branch in enumerate(parsed))
        return WriterSchema({"type": UNION}, "null", branches)
    connect, plain = _AvroWalk().schema(parsed, "", 0)
    return WriterSchema(connect, plain)


def _branch(union: list[Any], number: int) -> WriterSchema:
    """One schema of a union; the ones in front of it define types that it may name."""
    walk = _AvroWalk()
    earlier = [to_text(branch) for branch in union[:number]]
    alternative = json.loads(with_references(to_text(union[number]), earlier))
    return WriterSchema(*walk.schema(alternative, "", 0))


def _values(union: list[Any]) -> list[Any]:
    return [branch for branch in union if branch != "null"]


class _AvroWalk:
    """One walk through a schema; named types are known from their definition on."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[dict[str, Any], str]] = {}

    def schema(self, schema: Any, namespace: str, level: int) -> tuple[dict[str, Any], Any]:
        if level > _MOST_LEVELS:
            raise FormatError("The schema is nested too deeply.")
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace, level)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise FormatError("The schema has an invalid type.")
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, namespace, level)
        if kind in ("enum", "fixed"):
            return self._leaf(schema, namespace)
        if kind == "array":
            items, plain = self.schema(schema.get("items"), namespace, level + 1)
            return self._marked({"type": "array", "items": items}, schema), {"type": "array", "items": plain}
        if kind == "map":
            values, plain = self.schema(schema.get("values"), namespace, level + 1)
            keys = {"type": "string", "optional": False}
            return self._marked({"type": "map", "keys": keys, "values": values}, schema), {
                "type": "map",
                "values": plain,
            }
        if not isinstance(kind, str) or kind not in PRIMITIVES:
            connect, plain = self.schema(kind, namespace, level + 1)
            return self._meant(connect, schema), plain
        return self._marked(_primitive(kind), schema), kind

    def _meant(self, connect: dict[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
        """A type with what stands beside it, as some writers have it, where it says no meaning itself."""
        if "name" in connect or connect["type"] == UNION or not _MARKS.intersection(beside):
            return connect
        return {**self._marked(connect, beside), "optional": connect.get("optional", False)}

    def _named(self, name: str, namespace: str) -> tuple[dict[str, Any], Any]:
        if name in PRIMITIVES:
            return {**_primitive(name), "optional": False}, name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._known else name
        if full not in self._known:
            raise FormatError(f"The schema names an undefined type: {name!r}.")
        connect, number = self._known[full]
        return dict(connect), number

    def _union(self, branches: list[Any], namespace: str, level: int) -> tuple[dict[str, Any], Any]:
        read = [self.schema(branch, namespace, level + 1) for branch in branches]
        if not read:
            raise FormatError("The schema has a union of no types.")
        values = [connect for (connect, _), branch in zip(read, branches, strict=True) if branch != "null"]
        connect = values[0] if len(values) == 1 else _together(values)
        if len(values) == len(branches):
            return connect, [plain for _, plain in read]
        return {**connect, "optional": True}, [plain for _, plain in read]

    def _record(self, schema: Mapping[str, Any], namespace: str, level: int) -> tuple[dict[str, Any], Any]:
        full, inner = _full_name(schema, namespace)
        if full in self._known:
            raise FormatError(f"The schema defines {full!r} twice.")
        number = f"r{len(self._known) + 1}"
        # A type that holds itself has no fields there: what is below is the text of its value.
        self._known[full] = ({"type": "struct", "fields": [], "name": full, "optional": False}, number)
        fields: list[dict[str, Any]] = []
        plain: list[dict[str, Any]] = []
        names: set[str] = set()
        for field in schema.get("fields") or ():
            if not isinstance(field, Mapping) or not isinstance(field.get("name"), str):
                raise FormatError(f"A field of {full!r} has no name.")
            if field["name"] in names:
                raise FormatError(f"{full!r} has two fields named {field['name']!r}.")
            names.add(field["name"])
            connect, shape = self.schema(field.get("type"), inner, level + 1)
            connect = self._meant(connect, field)
            default = field.get("default")
            if "default" not in connect and default is not None:
                connect["default"] = _default(connect, default)
            fields.append({**connect, "field": field["name"]})
            plain.append({"name": field["name"], "type": shape})
        if not fields:
            raise FormatError(f"The record {full!r} has no fields.")
        connect = self._marked({"type": "struct", "fields": fields}, schema)
        connect.setdefault("name", full)
        self._known[full] = (connect, number)
        return dict(connect), {"type": "record", "name": number, "fields": plain}

    def _leaf(self, schema: Mapping[str, Any], namespace: str) -> tuple[dict[str, Any], Any]:
        full, _ = _full_name(schema, namespace)
        number = f"r{len(self._known) + 1}"
        if schema["type"] == "fixed":
            connect = self._marked({"type": "bytes"}, schema)
            if type(schema.get("size")) is not int or not 0 <= schema["size"] < 2**31:
                raise FormatError(f"The type {full!r} of the schema has no size.")
            plain = {"type": "fixed", "name": number, "size": schema.get("size")}
        else:
            connect = self._marked({"type": "string"}, schema)
            symbols = schema.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                raise FormatError(f"The type {full!r} of the schema has no symbols.")
            plain = {"type": "enum", "name": number, "symbols": schema.get("symbols")}
        self._known[full] = (connect, number)
        return dict(connect), plain

    @staticmethod
    def _marked(connect: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
        """The Connect type with what the attributes beside it say."""
        marked = {**connect, "optional": False}
        if marked["type"] in ("int32", "int64") and schema.get("connect.type") in ("int8", "int16"):
            marked["type"] = schema["connect.type"]
        name = schema.get("connect.name") or _meaning(schema.get("logicalType"), marked["type"])
        if name:
            marked["name"] = name
        if schema.get("connect.version") is not None:
            marked["version"] = schema["connect.version"]
        parameters = dict(schema.get("connect.parameters") or {})
        if name == _MEANINGS["decimal"]:
            parameters.setdefault("scale", str(schema.get("scale", 0)))
            if "precision" in schema and schema.get("connect.name") is None:
                parameters.setdefault("connect.decimal.precision", str(schema["precision"]))
        if parameters:
            marked["parameters"] = parameters
        if schema.get("connect.doc") is not None:
            marked["doc"] = schema["connect.doc"]
        if schema.get("connect.default") is not None:
            marked["default"] = _default(marked, schema["connect.default"])
        return marked


def _meaning(logical: Any, base: str) -> str | None:
    """The name of a schema that means what a logical type does; None where the type can't have that, as Avro says."""
    if not isinstance(logical, str) or base not in _BASES.get(logical, ("int64",)):
        return None
    return _MEANINGS.get(logical)


def _together(branches: list[dict[str, Any]]) -> dict[str, Any]:
    """The type of a field whose values are of several types.

    Texts and numbers without a meaning of their own are one type that holds them, or texts; objects and arrays are
    JSON. Of all others the texts would not say what they are.
    """
    kinds = [branch["type"] for branch in branches]
    if all(kind in ("struct", "map", "array") for kind in kinds):
        return {"type": "struct", "fields": [], "optional": False}
    if any(branch.get("name") not in (None, _ENUM) or branch["type"] not in _TEXTS for branch in branches):
        return {"type": UNION, "optional": False}
    for line in _WIDER:
        if all(kind in line for kind in kinds):
            return {"type": line[-1], "optional": False}
    return {"type": "string", "optional": False}


def _primitive(kind: str) -> dict[str, Any]:
    if kind == "null":
        return {"type": "string", "optional": True}
    return {"type": _INTEGERS.get(kind, kind)}


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    name, inner = full_name(schema, namespace)
    if not name:
        raise FormatError("A named type of the schema has no name.")
    return name, inner


def _default(connect: Mapping[str, Any], default: Any) -> Any:
    """A default as JsonConverter writes it: bytes in base64, where Avro has one character a byte."""
    if connect["type"] == "bytes" and isinstance(default, str):
        return base64.b64encode(default.encode("latin-1", "replace")).decode()
    return default


def avro_schema(connect: Mapping[str, Any]) -> Any:
    """A Connect schema (JsonConverter's form) as the Avro schema that Confluent's and Apicurio's converters write.

    The names of structs must be fit for Avro already.
    """
    return _ConnectWalk().schema(connect, "")


def avro_text(connect: Mapping[str, Any]) -> str:
    """`avro_schema` as one line of JSON."""
    return to_text(avro_schema(connect))


class _ConnectWalk:
    """One walk through a Connect schema; a struct is defined where it first occurs and named afterwards."""

    def __init__(self) -> None:
        self._defined: dict[str, Mapping[str, Any]] = {}
        self._unnamed = 0

    def schema(self, connect: Mapping[str, Any], namespace: str) -> Any:
        """The type; optional ones become a union in which the default's type is first."""
        avro = self._type(connect, namespace)
        if not connect.get("optional"):
            return avro
        return [avro, "null"] if connect.get("default") is not None else ["null", avro]

    def _type(self, connect: Mapping[str, Any], namespace: str) -> Any:
        kind = connect["type"]
        if kind == "struct":
            return self._struct(connect, namespace)
        avro: dict[str, Any] = {"type": kind if kind in _SAME else "int"}
        if kind == "int64":
            avro["type"] = "long"
        elif kind == "array":
            avro = {"type": "array", "items": self.schema(connect["items"], namespace)}
        elif kind == "map":
            avro = {"type": "map", "values": self.schema(connect["values"], namespace)}
        decimal = connect.get("name") == _MEANINGS["decimal"] and kind == "bytes"
        parameters = connect.get("parameters") or {}
        if decimal:
            avro["scale"] = int(parameters.get("scale", 0))
            # What Confluent's converter writes where nothing says the precision.
            avro["precision"] = int(parameters.get("connect.decimal.precision", 64))
        avro |= _attributes(connect)
        if decimal:
            avro["logicalType"] = "decimal"
        elif connect.get("name") in _CONNECT_TIMES:
            avro["logicalType"] = _CONNECT_TIMES[connect["name"]]
        if kind in ("int8", "int16"):
            avro["connect.type"] = kind
        return avro["type"] if len(avro) == 1 else avro

    def _struct(self, connect: Mapping[str, Any], namespace: str) -> Any:
        name = connect.get("name")
        if not name:
            self._unnamed += 1
            name = "ConnectDefault" if self._unnamed == 1 else f"ConnectDefault{self._unnamed}"
        if name in self._defined:
            own_namespace, _, short = name.rpartition(".")
            return short if own_namespace == namespace else name
        self._defined[name] = connect
        inner, _, short = name.rpartition(".")
        avro: dict[str, Any] = {"type": "record", "name": short}
        if inner and inner != namespace:
            avro["namespace"] = inner
        avro["fields"] = [self._field(field, inner or namespace) for field in connect["fields"]]
        return avro | _attributes(connect)

    def _field(self, field: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        avro = {"name": field["field"], "type": self.schema(field, namespace)}
        default = field.get("default")
        if default is not None:
            avro["default"] = _avro_default(field, default)
        elif field.get("optional"):
            avro["default"] = None
        return avro


_CONNECT_TIMES = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}


def _attributes(connect: Mapping[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if connect.get("doc") is not None:
        attributes["connect.doc"] = connect["doc"]
    if connect.get("version") is not None:
        attributes["connect.version"] = connect["version"]
    if connect.get("parameters"):
        attributes["connect.parameters"] = dict(connect["parameters"])
    if connect.get("default") is not None:
        attributes["connect.default"] = _avro_default(connect, connect["default"])
    if connect.get("name") is not None:
        attributes["connect.name"] = connect["name"]
    return attributes


def _avro_default(connect: Mapping[str, Any], default: Any) -> Any:
    if connect["type"] == "bytes" and isinstance(default, str):
        return base64.b64decode(default).decode("latin-1")
    return default
