"""The source blocks of rows: columns of facts, as the block of the rows' connector has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableId
from headrace.formats.change_messages import counted, quoted
from headrace.formats.debezium.blocks import SourceBlock
from headrace.formats.debezium.connectors import Fact
from headrace.wire.json_columns import QUOTED, WHOLE, JsonColumn, JsonColumns
from headrace.wire.json_rows import Cells
from headrace.wire.json_writer import Part
from headrace.wire.spans import Array
from headrace.wire.typed_exact import value_of

_NO_NAME = "\1"
_OF_EVENTS = ("name", "version", "sequence")
_WIDTHS = {"int64": 64, "int32": 32}
_INTEGERS = {"int64": pa.int64(), "int32": pa.int32()}


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


_CONNECTOR = JsonColumns([("", [JsonColumn("connector", "", QUOTED)], "")])


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
