"""Source blocks: the fields that a connector's has in a generation, and those of rows, as columns of facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableId
from headrace.formats.change_messages import counted, quoted
from headrace.formats.debezium.connect_fields import plain, struct
from headrace.formats.debezium.connectors import (
    CONNECTORS,
    DOCUMENTED_ORACLE,
    ORACLE,
    SECOND,
    Connector,
    EventShape,
    Fact,
)
from headrace.wire.json_columns import QUOTED, WHOLE, JsonColumn, JsonColumns
from headrace.wire.json_rows import Cells
from headrace.wire.json_writer import Part
from headrace.wire.spans import Array
from headrace.wire.typed_exact import value_of

_NUMBERS = {connector.name: number for number, connector in enumerate(CONNECTORS)}
_NO_NAME = "\1"
_OF_EVENTS = ("name", "version", "sequence")
_WIDTHS = {"int64": 64, "int32": 32}
_INTEGERS = {"int64": pa.int64(), "int32": pa.int32()}
_CONNECTOR = JsonColumns([("", [JsonColumn("connector", "", QUOTED)], "")])


@dataclass(frozen=True)
class SourceBlock:
    """A source block of one connector in one generation.

    Args:
        connector: whose.
        shape: the generation.
        prefix: the server's logical name.
        always: the version that stands in it whatever the rows say; None for that of the event that a row comes from.
        named_schema: whether it has the field `schema`.
        documented: whether it is the short one of Oracle's documented row events of generation 2.3, which leaves out
            the database and the table.
    """

    connector: Connector
    shape: EventShape
    prefix: str
    always: str | None
    named_schema: bool
    documented: bool = False

    @property
    def version(self) -> str:
        """The version, where a row does not come from an event that says another."""
        return (self.connector.version if self.shape.generation == SECOND else None) or self.shape.connector_version

    @property
    def flag(self) -> bool:
        """Whether `snapshot` is true or false, and a transaction is written only where there is one."""
        return self.shape.generation == SECOND and (self.connector.flag or self.documented)

    @property
    def marks_three(self) -> bool:
        """Whether `snapshot` knows three marks only, as the old generations."""
        return self.shape.generation <= SECOND

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The connector's own facts in this generation."""
        if self.documented:
            return DOCUMENTED_ORACLE
        return tuple(fact for fact in self.connector.facts if fact.since <= self.shape.generation)

    def schema(self) -> dict[str, Any]:
        """The Connect schema of the block, as the field `source`."""
        name = f"{self.connector.namespace}.Source"
        return struct(self._fields(), optional=False, name=name, version=self.shape.source_version, field="source")

    def _fields(self) -> list[dict[str, Any]]:
        facts = [fact.schema() for fact in self.facts]
        if self.documented:
            return [
                plain("string", "version", optional=True),
                plain("string", "name"),
                plain("int64", "ts_ms", optional=True),
                *facts,
                plain("boolean", "snapshot", optional=True),
            ]
        snapshot: dict[str, Any] = {
            "type": "string",
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": self.shape.snapshot_marks},
            "default": "false",
            "field": "snapshot",
        }
        if self.flag:
            snapshot = {"type": "boolean", "optional": True, "default": False, "field": "snapshot"}
        sure = bool(self.connector.name)
        return [
            plain("string", "version"),
            plain("string", "connector", optional=not sure),
            plain("string", "name"),
            plain("int64", "ts_ms"),
            snapshot,
            plain("string", "db"),
            *([] if self.flag else [plain("string", "sequence", optional=True)]),
            *([plain("int64", name, optional=True) for name in ("ts_us", "ts_ns")] if self.shape.fine_times else []),
            *([plain("string", "schema", optional=not sure)] if self.named_schema else []),
            plain("string", "table", optional=self.connector.schema is not True),
            *facts,
        ]


@dataclass(frozen=True)
class Forms:
    """All source blocks that one encode can write; a row's form is the number of its block.

    Args:
        blocks: those of `CONNECTORS`, in their order, then the further ones.
    """

    blocks: tuple[SourceBlock, ...]

    @classmethod
    def of(cls, shape: EventShape, prefix: str, version: str | None) -> Forms:
        """All of one generation; the rest as for a block."""
        blocks = [SourceBlock(one, shape, prefix, version, one.schema is not False) for one in CONNECTORS]
        # Not so in these databases, but a transform may have named a schema: then it is said.
        blocks += [SourceBlock(one, shape, prefix, version, True) for one in CONNECTORS if one.schema is False]
        if shape.generation == SECOND:
            blocks.append(SourceBlock(ORACLE, shape, prefix, version, True, documented=True))
        return cls(tuple(blocks))

    def number(self, connector: str | None, table: TableId) -> int:
        number = _NUMBERS.get(connector or "", 0)
        for other in range(len(CONNECTORS), len(self.blocks)):
            block = self.blocks[other]
            if number and block.connector is CONNECTORS[number]:
                return other if (not table.database if block.documented else table.schema) else number
        return number


class Tables:
    """The tables of rows, by number; a part of a name may be null.

    Args:
        rows: change rows.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        parts = [part.fill_null(_NO_NAME) for part in rows.column("table").flatten()]
        keys = pc.binary_join_element_wise(*parts, "\0").dictionary_encode()
        self.at: Array = keys.indices.to_numpy()
        self._parts = [
            [None if part == _NO_NAME else part for part in path.split("\0")] for path in keys.dictionary.to_pylist()
        ]
        self.ids = [TableId(*(part or "" for part in parts)) for parts in self._parts]

    def part(self, index: int, *, nullable: bool) -> Part:
        parts = [part[index] for part in self._parts]
        texts = ["null" if text is None and nullable else quoted(text or "") for text in parts]
        return Part(pa.array(texts, pa.string()), at=self.at)


def connectors(rows: pa.RecordBatch) -> pa.DictionaryArray:
    return _facts(_CONNECTOR, rows).texts_of(0).dictionary_encode()


def _facts(columns: JsonColumns, rows: pa.RecordBatch) -> Cells:
    count = rows.num_rows
    same, every = np.zeros(count, np.int64), np.ones(count, np.bool_)
    return Cells.of_maps(columns, rows.column("source"), same, every, null_as_empty=True)


class SourceBlocks:
    """Writes the source blocks of one form.

    Args:
        block: the form.
    """

    def __init__(self, block: SourceBlock) -> None:
        self._block = block
        self._head = JsonColumns([("", [JsonColumn(name, "", QUOTED) for name in _OF_EVENTS], "")])
        facts = [_column(fact) for fact in block.facts]
        self._facts = JsonColumns([("," if facts else "", facts, "")])

    def json(self, rows: pa.RecordBatch, tables: Tables, connector: pa.DictionaryArray) -> list[str | Part]:
        """The blocks of rows, as parts of their messages.

        Args:
            rows: change rows, whose `event_time` is that of the block.
            tables: their tables.
            connector: the name of each row's connector.
        """
        block, head = self._block, _facts(self._head, rows)
        name, version, sequence = (head.texts_of(index) for index in range(3))
        moments = rows.column("event_time")
        facts = _facts(self._facts, rows).json(self._left)
        opening: list[str | Part] = ['{"version":', self._version(name, version)]
        named: list[str | Part] = [',"name":', self._name(name), ',"ts_ms":', Part(counted(moments, 1000))]
        if block.documented:
            return [*opening, *named, Part(facts), ',"snapshot":', self._mark(rows.column("snapshot")), "}"]
        parts = [*opening, ',"connector":', _shared(connector), *named]
        parts += [',"snapshot":', self._mark(rows.column("snapshot")), ',"db":', tables.part(0, nullable=False)]
        if not block.flag:
            parts += [',"sequence":', Part(sequence, quoted=True)]
        if block.shape.fine_times:
            parts += [',"ts_us":', Part(moments.cast(pa.int64())), ',"ts_ns":', Part(nanoseconds(moments))]
        if block.named_schema:
            parts += [',"schema":', tables.part(1, nullable=block.connector.schema is None)]
        return [*parts, ',"table":', tables.part(2, nullable=True), Part(facts), "}"]

    def _name(self, names: pa.StringArray) -> str | Part:
        prefix = self._block.prefix
        return quoted(prefix) if names.null_count == len(names) else Part(names.fill_null(prefix), quoted=True)

    def _version(self, name: pa.StringArray, versions: pa.StringArray) -> str | Part:
        """The version: a row that came from such an event says its name and version."""
        block = self._block
        if block.always or name.null_count == len(name):
            return quoted(block.always or block.version)
        return Part(pc.if_else(name.is_valid(), versions, None).fill_null(block.version), quoted=True)

    def _mark(self, snapshot: pa.StringArray) -> str | Part:
        old = self._block.marks_three
        if snapshot.null_count == len(snapshot):
            return "false" if self._block.flag else '"false"'
        codes = snapshot.dictionary_encode()
        words = codes.dictionary.to_pylist()
        if self._block.flag:
            texts = ["true"] * len(words)
        else:
            texts = [quoted("true" if old and word not in ("last", "incremental") else word) for word in words]
        at = codes.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
        return Part(pa.array([*texts, "false" if self._block.flag else '"false"'], pa.string()), at=at)

    def _left(self, number: int, texts: pa.StringArray, rows: Array) -> Sequence[str]:
        """Integers whose text form kernels leave; what is none is null."""
        fact = self._block.facts[number]
        values = (value_of(text, _INTEGERS[fact.kind]) for text in texts.to_pylist())
        return [fact.required or "null" if number is None else str(number) for number in values]


def _column(fact: Fact) -> JsonColumn:
    code = QUOTED if fact.kind == "string" else WHOLE
    missing = fact.required or "null"
    return JsonColumn(fact.name, f"{quoted(fact.name)}:", code, _WIDTHS.get(fact.kind, 0), 0, missing, missing)


def _shared(codes: pa.DictionaryArray) -> Part:
    """Texts of which there are few, as JSON strings."""
    words = [quoted(word) for word in codes.dictionary.to_pylist()]
    at = codes.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    return Part(pa.array([*words, None], pa.string()), at=at)


def nanoseconds(moments: pa.TimestampArray) -> pa.Int64Array:
    """Moments in nanoseconds since 1970, which 64 bits hold up to the year 2262; null beyond."""
    micros = moments.cast(pa.int64())
    count = micros.fill_null(0).to_numpy()
    held = np.abs(count) <= 9_223_372_036_854_775
    if held.all() and not micros.null_count:
        return pa.array(count * 1000)
    missing = ~held | micros.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.where(held, count, 0) * 1000, mask=missing)
