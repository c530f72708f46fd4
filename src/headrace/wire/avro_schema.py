"""Avro schemas as data: a tree of nodes, which the kernels that read and write walk over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.wire.names import as_data
from headrace.wire.spans import Array

NOTHING, VARINT, ENUM, FIXED, SIZED, TEXT, RECORD, LIST, MAP, UNION, FLOAT, BOOLEAN = range(12)
"""Kinds of nodes. An int, a long and an enum are varints; what is sized has its length in front."""

_SIMPLE = {"null": NOTHING, "int": VARINT, "long": VARINT, "bytes": SIZED, "string": TEXT}
_MOST_LEVELS = 100
_WIDE = {"float": (FLOAT, 4), "double": (FLOAT, 8), "boolean": (BOOLEAN, 1)}


class Program(NamedTuple):
    """Schemas as trees: each node's kind, its size (of what is fixed) or count of symbols, and its children.

    The children of an enum are its symbols. Fields and symbols have names: where each child's begins in `names`, and
    how long it is.
    """

    kind: Array
    size: Array
    first: Array
    count: Array
    children: Array
    name_start: Array
    name_size: Array
    names: Array


class _Node(NamedTuple):
    """A node's number, how deep the tree below it is, and how many tokens a value has, but for items of arrays."""

    number: int
    depth: int
    tokens: int


class AvroSchema:
    """Avro schemas as the reader and the writer take them.

    `roots` are the numbers of their nodes, `tokens` how many tokens a value of each has (twice that with names) beside
    those of items of arrays and maps, `depth` is that of the deepest.

    Args:
        schemas: as Avro's JSON. Of a record that holds itself, values are read to a depth of 100.
    """

    def __init__(self, *schemas: Any) -> None:
        self._lines: list[tuple[int, int, list[int], list[bytes]]] = []
        self._open: dict[str, int] = {}
        self._holds_itself = False
        self._named: dict[str, _Node] = {}
        nodes = []
        for schema in schemas:
            self._named.clear()
            nodes.append(self._node(schema, "", 0))
        self.roots = np.array([node.number for node in nodes], np.int64)
        self.tokens = np.array([node.tokens for node in nodes], np.int64)
        self.depth = _MOST_LEVELS if self._holds_itself else max((node.depth for node in nodes), default=0)
        kinds, sizes, held, named = (list(part) for part in zip(*self._lines, strict=True)) if nodes else ([],) * 4
        counts = np.array([len(children) for children in held], np.int32)
        names = [name for group in named for name in group]
        lengths = np.array([*map(len, names), 0], np.int32)
        self.program = Program(
            np.array(kinds, np.uint8),
            np.array(sizes, np.int32),
            (np.cumsum(counts) - counts).astype(np.int32),
            counts,
            np.array([*(child for children in held for child in children), 0], np.int32),
            (np.cumsum(lengths) - lengths).astype(np.int32),
            lengths,
            as_data(b"".join(names)),
        )

    def _node(self, schema: Any, space: str, level: int) -> _Node:
        if level > _MOST_LEVELS:
            raise ValueError("the Avro schema is nested too deeply")
        if isinstance(schema, list):
            return self._with_children(UNION, schema, space, level)
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self._node(kind, space, level)
        if kind in _SIMPLE:
            return self._leaf(_SIMPLE[kind], 0)
        if kind in _WIDE:
            return self._leaf(*_WIDE[kind])
        if kind == "array":
            return self._with_children(LIST, [schema["items"]], space, level)
        if kind == "map":
            return self._with_children(MAP, [schema["values"]], space, level)
        if kind not in ("record", "error", "enum", "fixed"):
            name = kind if "." in kind or not space else f"{space}.{kind}"
            if (number := self._open.get(name, self._open.get(kind))) is not None:
                self._holds_itself = True
                return _Node(number, 1, 1)
            return self._named[name if name in self._named else kind]
        return self._define(schema, space, level)

    def _define(self, schema: Mapping[str, Any], space: str, level: int) -> _Node:
        space = schema.get("namespace") or space
        name = schema["name"] if "." in schema["name"] or not space else f"{space}.{schema['name']}"
        if schema["type"] == "enum":
            symbols = [_name(symbol) for symbol in schema["symbols"]]
            node = self._leaf(ENUM, len(symbols), symbols)
        elif schema["type"] == "fixed":
            node = self._leaf(FIXED, schema["size"])
        else:
            kinds = [field["type"] for field in schema["fields"]]
            names = [_name(field["name"]) for field in schema["fields"]]
            self._open[name] = number = self._add(RECORD, 0, [], names)
            node = self._with_children(RECORD, kinds, space, level, names, number)
            del self._open[name]
        self._named[name] = node
        return node

    def _with_children(
        self,
        kind: int,
        schemas: list[Any],
        space: str,
        level: int,
        names: list[bytes] | None = None,
        number: int | None = None,
    ) -> _Node:
        nodes = [self._node(schema, space, level + 1) for schema in schemas]
        children = [node.number for node in nodes]
        if number is None:
            number = self._add(kind, 0, children, names or [b""] * len(nodes))
        else:
            self._lines[number][2].extend(children)
        depth = 1 + max((node.depth for node in nodes), default=0)
        if kind == UNION:
            return _Node(number, depth, max((node.tokens for node in nodes), default=0))
        return _Node(number, depth, 1 + sum(node.tokens for node in nodes))

    def _leaf(self, kind: int, size: int, symbols: Sequence[bytes] = ()) -> _Node:
        return _Node(self._add(kind, size, [0] * len(symbols), list(symbols)), 1, 1)

    def _add(self, kind: int, size: int, children: list[int], names: list[bytes]) -> int:
        self._lines.append((kind, size, children, names))
        return len(self._lines) - 1

    @property
    def root(self) -> int:
        """The number of the first schema's node."""
        return int(self.roots[0])

    @property
    def repeats(self) -> bool:
        """Whether a message says how many values there are: items of arrays or maps, records that hold themselves."""
        return self._holds_itself or bool(np.isin(self.program.kind, (LIST, MAP)).any())


def _name(text: str) -> bytes:
    return text.encode(errors="replace")
