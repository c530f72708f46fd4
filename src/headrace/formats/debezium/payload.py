"""Keys and values of one batch as Connect's converters write them.

The JsonConverter writes a payload, or `{"schema":..,"payload":..}`. A schema is many times as long as its payload, and
all messages of a table have the same one. So a schema is parsed once; messages that begin with the same bytes are cut
there. Avro converters write data that name the schema of their writer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.json_messages import why_not_json
from headrace.formats.registry.framing import Heads, Side
from headrace.formats.registry.schemas import ResolvedSchema, SchemaSource
from headrace.wire.arrays import text_view
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_to_json import AvroJson
from headrace.wire.json_exact import NULL, OBJECT, READ
from headrace.wire.names import Names
from headrace.wire.openings import Openings
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

_PARTS = Names([("schema", "payload")])
_MOST_BYTES = 16 << 20
_MOST_OPENINGS = 2_000
_SAMPLE, _SAMPLES = 32, 16


class Schemas:
    """The schemas that a task has met, by number, and what stands in front of their payloads."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._schema_of: dict[bytes, int] = {}
        self._openings = Openings((), b"}")
        self._bytes = 0

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]

    @property
    def openings(self) -> Openings:
        return self._openings

    @property
    def of_opening(self) -> Array:
        """The schema's number of each opening, and -1 after them."""
        return np.array([*self._schema_of.values(), -1], np.int64)

    def remember(self, opened: list[tuple[bytes, int]]) -> None:
        count = len(self._schema_of)
        for text, number in opened:
            fits = self._bytes + len(text) <= _MOST_BYTES and len(self._schema_of) < _MOST_OPENINGS
            if fits and text not in self._schema_of:
                self._schema_of[text] = number
                self._bytes += len(text)
        if len(self._schema_of) > count:
            self._openings = Openings(tuple(self._schema_of), b"}")


class Payloads:
    """What the engine found in a column of keys or values.

    `tape` is what was read; `at` are the payloads' indexes, -1 where a message is null or can't be read; `schema` the
    number of each one's schema in `Schemas`, -1 where it has none; `missing` says which are null, and `problems` why
    some can't be read.
    """

    tape: Tape
    at: Array
    schema: Array
    missing: Array
    problems: dict[int, str]

    @property
    def empty(self) -> Array:
        return (self.at >= 0) & (self.tape.kinds(self.at) == NULL)


class Converter(ABC):
    """How keys and values are read in one task, and the schemas that it has met."""

    def __init__(self) -> None:
        self.keys, self.values = Schemas(), Schemas()

    @abstractmethod
    def read(self, batch: pa.RecordBatch) -> tuple[Payloads, Payloads]:
        """Keys and values of a batch."""


class JsonConverter(Converter):
    """Keys and values in JSON."""

    def read(self, batch: pa.RecordBatch) -> tuple[Payloads, Payloads]:
        keys, values = (_unframed(batch.column(name)) for name in ("key", "value"))
        key, value = JsonPayloads(keys, self.keys), JsonPayloads(values, self.values)
        key.pass_plain_texts(keys)
        key.note(keys, "key")
        value.note(values, "value")
        return key, value


class JsonPayloads(Payloads):
    def __init__(self, values: pa.BinaryArray, schemas: Schemas) -> None:
        self.missing = values.is_null().to_numpy(zero_copy_only=False)
        opening = self._openings(values, schemas)
        of_opening = schemas.of_opening
        while True:
            cut = opening >= 0
            self.tape = Tape(schemas.openings.cut(values, opening) if cut.any() else values)
            # What is not read without its opening says why as a whole only.
            wrong = cut & (self.tape.verdict != READ)
            if not wrong.any():
                break
            opening[wrong] = -1
        self.at = self.tape.root.copy()
        self.schema = of_opening[opening]
        self._open(np.flatnonzero(~cut), schemas)

    def note(self, values: pa.BinaryArray, name: str) -> None:
        """Note why messages can't be read.

        Args:
            values: the column.
            name: its name.
        """
        unread = map(int, np.flatnonzero((self.tape.verdict != READ) & ~self.missing))
        self.problems = {number: _why_unread(values[number].as_py(), name) for number in unread}

    def pass_plain_texts(self, keys: pa.BinaryArray) -> None:
        """Take keys that are plain texts (`till-west`), as Connect's StringConverter writes them, as missing."""
        rows = np.flatnonzero((self.tape.verdict != READ) & ~self.missing)
        if rows.size:
            plain = pc.match_substring_regex(keys.take(pa.array(rows)), _PLAIN_TEXT).to_numpy(zero_copy_only=False)
            self.missing[rows[plain]] = True
            for number in map(int, _not_utf8(keys, rows[plain])):
                self.missing[number] = False

    @staticmethod
    def _openings(values: pa.BinaryArray, schemas: Schemas) -> Array:
        """The number of each message's opening. New ones are learned from few messages before all are read."""
        given = values.is_valid().to_numpy(zero_copy_only=False)
        for _ in range(_SAMPLES):
            opening = schemas.openings.of(values)
            rows = np.flatnonzero(given & (opening < 0))
            known = schemas.openings
            if rows.size > _SAMPLE:
                JsonPayloads(values.take(pa.array(rows[:_SAMPLE])), schemas)
            if schemas.openings is known:
                break
        return opening

    def _open_alone(self, rows: Array) -> None:
        """Find payloads in objects whose schema was cut away: `{"payload": {..}}`."""
        if rows.size:
            payload = self.tape.fields(np.ascontiguousarray(self.at[rows]), _PARTS)[1]
            there = self.tape.kinds(payload) == OBJECT
            self.at[rows[there]] = payload[there]

    def _open(self, rows: Array, schemas: Schemas) -> None:
        """Find schema and payload where both stand in the text that was read."""
        tape = self.tape
        counts = tape.field_counts(np.ascontiguousarray(self.at[rows]))
        self._open_alone(rows[counts == 1])
        rows = rows[counts == 2]
        if not rows.size:
            return
        schema, payload = tape.fields(np.ascontiguousarray(self.at[rows]), _PARTS)
        kinds = tape.kinds(schema)
        fine = (payload >= 0) & ((kinds == OBJECT) | (kinds == NULL))
        self.at[rows[fine]] = payload[fine]
        named = fine & (kinds == OBJECT)
        rows, schema, payload = rows[named], np.ascontiguousarray(schema[named]), payload[named]
        if not rows.size:
            return
        groups = tape.groups(schema[None, :])
        numbers = [schemas.number(text) for text in tape.texts(np.ascontiguousarray(schema[groups.first])).to_pylist()]
        self.schema[rows] = np.array(numbers)[groups.of]
        opened = []
        for first, number in zip(groups.first, numbers, strict=True):
            if schema[first] < payload[first] and tape.kinds(payload[first : first + 1])[0] == OBJECT:
                begin, end = tape.tokens.start[tape.root[rows[first]]], tape.tokens.start[payload[first]]
                opened.append((tape.data[begin:end].tobytes(), number))
        schemas.remember(opened)


_MAGIC, _FRAME = b"\0", 5
# Without an end, Arrow's binary_slice counts more bytes than there are numbers.
_MOST_SIZE = 2**31 - 1
_PLAIN_TEXT = r'^\s*[^\s{\["]'


def _unframed(texts: pa.BinaryArray) -> pa.BinaryArray:
    """Texts without the five bytes by which Confluent's JSON Schema converter names a schema in a registry.

    The schema is not needed: JSON says its fields.
    """
    is_long = pc.greater_equal(pc.binary_length(texts), _FRAME)
    framed = pc.fill_null(pc.and_(pc.starts_with(texts, _MAGIC), is_long), False)
    if not pc.any(framed).as_py():
        return texts
    return pc.if_else(framed, pc.binary_slice(texts, _FRAME, _MOST_SIZE), texts)


def _why_unread(text: bytes, name: str) -> str:
    if not _is_utf8(text):
        return f"The {name} is not UTF-8 text."
    return why_not_json(text, name) or f"The {name} is not JSON."


def _not_utf8(texts: pa.BinaryArray, rows: Array) -> Array:
    some = texts.take(pa.array(rows))
    try:
        some.cast(pa.string())
    except pa.ArrowInvalid:
        return rows[[not _is_utf8(text) for text in some.to_pylist()]]
    return rows[:0]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


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
        rows: which of them are read.
        starts: where in each of them the number begins.
    """
    view = text_view(data)
    at, ends = view.offsets[rows] + starts, view.offsets[rows + 1]
    values, sizes = np.zeros(rows.size, np.int64), np.zeros(rows.size, np.int64)
    goes_on = np.ones(rows.size, bool)
    for index in range(_MOST_BRANCH_BYTES):
        goes_on &= at + index < ends
        octet = np.zeros(rows.size, np.int64)
        octet[goes_on] = view.data[at[goes_on] + index]
        values |= (octet & 127) << 7 * index
        sizes[goes_on & (octet < 128)] = index + 1
        goes_on &= octet >= 128
    return np.where(sizes > 0, (values >> 1) ^ -(values & 1), -1), sizes


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
        resolved = self._resolved(heads.heads)
        which, sizes = self._which(data, heads)
        payloads = Payloads()
        payloads.tape = AvroJson(data, sizes, self._schema, which)
        payloads.at = payloads.tape.root
        payloads.schema = np.append(self._numbers, -1)[which]
        payloads.missing = data.is_null().to_numpy(zero_copy_only=False)
        if self._side == "key" and self._source.framing.name == "none":
            payloads.missing |= heads.of < 0
        payloads.problems = {}
        for number in map(int, np.flatnonzero((payloads.at < 0) & ~payloads.missing)):
            head = heads.of[number]
            if head < 0:
                payloads.problems[number] = self._source.framing.problem(batch, self._side, number)
            else:
                payloads.problems[number] = (
                    resolved[head].problem or f"The {self._side} is not an Avro datum of its schema."
                )
        return payloads

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
        """The schemas that heads name. One that the registry lacks is requested again in the next batch."""
        asked = [head for head in heads if head not in self._known]
        if not asked:
            return [self._known[head] for head in heads]
        by_head = {head: one for (_, head), one in self._source.resolved([(self._side, h) for h in asked]).items()}
        self._known |= {head: one for head, one in by_head.items() if one.known}
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
        return [self._known.get(head) or by_head[head] for head in heads]
