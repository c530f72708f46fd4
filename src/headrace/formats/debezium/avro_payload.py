"""Keys and values of one batch as Connect's Avro converters write them: data that name the schema of their writer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.formats.debezium.payload import Converter, Payloads, Schemas
from headrace.formats.registry.framing import Heads, Side
from headrace.formats.registry.schemas import ResolvedSchema, SchemaSource
from headrace.wire.arrays import text_view
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_to_json import AvroJson
from headrace.wire.spans import Array

_MOST_BRANCH_BYTES = 5


class AvroConverter(Converter):
    """Keys and values in Avro. The schemas that a task has met are one tree, by which all messages are read at once."""

    def __init__(self, source: SchemaSource) -> None:
        super().__init__()
        self._source = source
        self._sides = (_Side("key", source, self.keys), _Side("value", source, self.values))

    def read(self, batch: pa.RecordBatch) -> tuple[Payloads, Payloads]:
        """Keys and values of a batch.

        Raises:
            ConnectError: a registry can't be asked.
        """
        key, value = (side.read(batch) for side in self._sides)
        return key, value


def varints_at(data: pa.BinaryArray, rows: Array, starts: Array) -> tuple[Array, Array]:
    """The numbers in Avro's form in some values, and how many bytes each has; -1 and 0 where there is none.

    Args:
        data: the values.
        rows: those that are looked at.
        starts: where in each of them the number begins.
    """
    view = text_view(data)
    at, ends = view.offsets[rows] + starts, view.offsets[rows + 1]
    found, sizes = np.zeros(rows.size, np.int64), np.zeros(rows.size, np.int64)
    goes_on = np.ones(rows.size, bool)
    for place in range(_MOST_BRANCH_BYTES):
        goes_on &= at + place < ends
        octet = np.zeros(rows.size, np.int64)
        octet[goes_on] = view.data[at[goes_on] + place]
        found |= (octet & 127) << 7 * place
        sizes[goes_on & (octet < 128)] = place + 1
        goes_on &= octet >= 128
    return np.where(sizes > 0, (found >> 1) ^ -(found & 1), -1), sizes


class _Side:
    """One of the two, and what its heads are known to stand for."""

    def __init__(self, side: Side, source: SchemaSource, schemas: Schemas) -> None:
        self._side, self._source, self._schemas = side, source, schemas
        self._known: dict[bytes, ResolvedSchema] = {}
        # By head, and by the branch where that names a union.
        self._index: dict[tuple[bytes, int], int] = {}
        self._numbers = np.zeros(0, np.int64)
        self._schema = AvroSchema()

    def read(self, batch: pa.RecordBatch) -> Payloads:
        data, heads = batch.column(self._side), self._source.framing.heads(batch, self._side)
        found = self._resolved(heads.heads)
        which, sizes = self._which(data, heads)
        made = Payloads()
        made.tape = AvroJson(data, sizes, self._schema, which)
        made.at = made.tape.root
        made.schema = np.append(self._numbers, -1)[which]
        made.missing = data.is_null().to_numpy(zero_copy_only=False)
        if self._side == "key" and self._source.framing.name == "none":
            made.missing |= heads.of < 0
        made.problems = {}
        for number in map(int, np.flatnonzero((made.at < 0) & ~made.missing)):
            head = heads.of[number]
            if head < 0:
                made.problems[number] = self._source.framing.problem(batch, self._side, number)
            else:
                made.problems[number] = found[head].problem or f"The {self._side} is not an Avro datum of its schema."
        return made

    def _which(self, data: pa.BinaryArray, heads: Heads) -> tuple[Array, Array]:
        """The number of each message's schema, -1 where it has none, and how many bytes are in front of its datum."""
        # One line more, for messages that have no head.
        which = np.array([*(self._index.get((head, 0), -1) for head in heads.heads), -1])[heads.of]
        sizes = heads.sizes
        for number, head in enumerate(heads.heads):
            schema = None if head not in self._known else self._known[head].schema
            if schema is None or not schema.branches:
                continue
            sizes = sizes.copy() if sizes is heads.sizes else sizes
            rows = np.flatnonzero(heads.of == number)
            branches, lengths = varints_at(data, rows, sizes[rows])
            sizes[rows] += lengths
            indexes = [self._index.get((head, branch), -1) for branch in range(len(schema.branches))]
            known = (branches >= 0) & (branches < len(indexes))
            which[rows] = np.where(known, np.array(indexes)[np.where(known, branches, 0)], -1)
        return which, sizes

    def _resolved(self, heads: list[bytes]) -> list[ResolvedSchema]:
        """The schemas that heads name. One that the registry lacks is looked for again in the next batch."""
        asked = [head for head in heads if head not in self._known]
        if not asked:
            return [self._known[head] for head in heads]
        found = {head: one for (_, head), one in self._source.resolved([(self._side, h) for h in asked]).items()}
        self._known |= {head: one for head, one in found.items() if one.known}
        schemas = {
            (head, number): branch
            for head, one in self._known.items()
            for number, branch in enumerate(() if one.schema is None else one.schema.branches or (one.schema,))
            if branch is not None
        }
        if len(schemas) > len(self._index):
            self._index = {place: number for number, place in enumerate(schemas)}
            self._numbers = np.array([self._schemas.number(schema.connect_text) for schema in schemas.values()])
            self._schema = AvroSchema(*(schema.plain for schema in schemas.values()))
        return [self._known.get(head) or found[head] for head in heads]
