"""Avro schemas as data: a tree of nodes, which the kernels that read and write walk over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from headrace.wire.spans import Array

NOTHING, VARINT, ENUM, FIXED, SIZED, TEXT, RECORD, LIST, MAP, UNION = range(10)
"""Kinds of nodes. An int, a long and an enum are varints; what is sized has its length in front."""

_SIMPLE = {"null": NOTHING, "int": VARINT, "long": VARINT, "bytes": SIZED, "string": TEXT}
_WIDE = {"float": 4, "double": 8, "boolean": 1}


class Program(NamedTuple):
    """A schema as a tree: each node's kind, its size (of what is fixed) or count of symbols, and its children."""

    kind: Array
    size: Array
    first: Array
    count: Array
    children: Array
    depth: int


class AvroSchema:
    """An Avro schema as the reader and the writer take it.

    Args:
        schema: as Avro's JSON. A record that holds itself can't be read.
    """

    def __init__(self, schema: Any) -> None:
        self._lines: list[tuple[int, int, list[int]]] = []
        self._named: dict[str, int] = {}
        depth = self._node(schema, "", 0)[1]
        children = [child for _, _, held in self._lines for child in held]
        counts = np.array([len(held) for _, _, held in self._lines], np.int32)
        self.program = Program(
            np.array([kind for kind, _, _ in self._lines], np.uint8),
            np.array([size for _, size, _ in self._lines], np.int32),
            (np.cumsum(counts) - counts).astype(np.int32),
            counts,
            np.array([*children, 0], np.int32),
            depth,
        )

    def _node(self, schema: Any, space: str, level: int) -> tuple[int, int]:
        """The number of a schema's node, and how deep the tree below it is."""
        if level > 60:
            raise ValueError("the Avro schema is nested too deep")
        if isinstance(schema, list):
            return self._with_children(UNION, schema, space, level)
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self._node(kind, space, level)
        if kind in _SIMPLE:
            return self._add(_SIMPLE[kind], 0, []), 1
        if kind in _WIDE:
            return self._add(FIXED, _WIDE[kind], []), 1
        if kind == "array":
            return self._with_children(LIST, [schema["items"]], space, level)
        if kind == "map":
            return self._with_children(MAP, [schema["values"]], space, level)
        if kind not in ("record", "error", "enum", "fixed"):
            name = kind if "." in kind or not space else f"{space}.{kind}"
            return self._named[name], 60
        return self._define(schema, space, level)

    def _define(self, schema: Mapping[str, Any], space: str, level: int) -> tuple[int, int]:
        space = schema.get("namespace") or space
        name = schema["name"] if "." in schema["name"] or not space else f"{space}.{schema['name']}"
        if schema["type"] == "enum":
            found = self._add(ENUM, len(schema["symbols"]), []), 1
        elif schema["type"] == "fixed":
            found = self._add(FIXED, schema["size"], []), 1
        else:
            kinds = [field["type"] for field in schema["fields"]]
            found = self._with_children(RECORD, kinds, space, level)
        self._named[name] = found[0]
        return found

    def _with_children(self, kind: int, schemas: list[Any], space: str, level: int) -> tuple[int, int]:
        found = [self._node(schema, space, level + 1) for schema in schemas]
        return self._add(kind, 0, [number for number, _ in found]), 1 + max((depth for _, depth in found), default=0)

    def _add(self, kind: int, size: int, children: list[int]) -> int:
        self._lines.append((kind, size, children))
        return len(self._lines) - 1

    @property
    def root(self) -> int:
        """The number of the whole schema's node."""
        return len(self._lines) - 1
