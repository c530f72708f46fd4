"""Messages of Connect's JsonConverter to those of its Avro converters: what an encoder writes, by its own schemas.

A schema stands in front of each payload, and is known by its bytes. It becomes the Avro schema that the converters of
Confluent and Apicurio make of it, and the payload a datum of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.images import constant
from headrace.errors import FormatError
from headrace.formats.codec import MESSAGES, Codec
from headrace.formats.debezium.connect_fields import Opening, with_schema
from headrace.formats.debezium.encode import DebeziumEncoder
from headrace.formats.debezium.events import DATA
from headrace.formats.debezium.payload import JsonConverter, Payloads, Schemas
from headrace.formats.registry.connect_avro import avro_text, writer_schema
from headrace.formats.registry.framing import SIDES, Side
from headrace.formats.registry.subjects import SchemaName, Subject, Subjects
from headrace.wire.arrays import list_array, offsets_of
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.json_to_avro import json_to_avro
from headrace.wire.json_writer import to_text
from headrace.wire.spans import Array

# Headers whose value is a key, which no Avro converter writes as Avro: they have its payload alone.
_KEY_HEADERS = constant(["__debezium.newkey", "__debezium.oldkey"])
_PAYLOAD = b',"payload":'


class _Read:
    """Keys or values of messages, and which subject each has."""

    def __init__(self, side: Side, payloads: Payloads, schemas: Sequence[str], topics: pa.DictionaryArray) -> None:
        self.at, self.tape, self.number = payloads.at, payloads.tape, payloads.schema
        rows = np.flatnonzero(self.at >= 0)
        topic = topics.indices.to_numpy(zero_copy_only=False)[rows]
        pairs, of = np.unique(topic * np.int64(len(schemas) + 1) + self.number[rows], return_inverse=True)
        names = topics.dictionary.to_pylist()
        numbers = [divmod(int(pair), len(schemas) + 1) for pair in pairs]
        self.subjects = [Subject(names[topic], side, schemas[number]) for topic, number in numbers]
        self.of: Array = np.full(self.at.size, -1, np.int64)
        self.of[rows] = of


class _Reader:
    """Reads messages in JSON; knows the Avro schemas of those that it met.

    Connect schemas are many times as long as what follows them, so short names stand in their index (`opening`).
    """

    def __init__(self) -> None:
        self._converter = JsonConverter()
        self._names: dict[str, int] = {}
        self._texts: dict[Side, list[str]] = {side: [] for side in SIDES}
        self.schemas = {side: AvroSchema() for side in SIDES}

    def opening(self, schema: str) -> str:
        """What stands in front of a payload, in place of its Connect schema."""
        return with_schema(to_text({"headrace": self._names.setdefault(schema, len(self._names))}))

    def read(self, messages: pa.RecordBatch) -> dict[Side, _Read]:
        key, value = self._converter.read(messages)
        topics = messages.column("topic").dictionary_encode()
        self._learn("key", self._converter.keys)
        self._learn("value", self._converter.values)
        parts: tuple[tuple[Side, Payloads], ...] = (("key", key), ("value", value))
        return {side: _Read(side, part, self._texts[side], topics) for side, part in parts}

    def _learn(self, side: Side, met: Schemas) -> None:
        known = self._texts[side]
        if len(known) < len(met.texts):
            schemas = list(self._names)
            named = (schemas[json.loads(text)["headrace"]] for text in met.texts[len(known) :])
            known += [avro_text(json.loads(schema)) for schema in named]
            self.schemas[side] = AvroSchema(*(writer_schema(text).plain for text in known))


class AvroEncoder(Codec):
    """Writes messages in Avro.

    Args:
        make: makes what writes them in JSON, with what stands in front of payloads.
        subjects: where schemas are registered.
    """

    schema = MESSAGES

    def __init__(self, make: Callable[[Opening], DebeziumEncoder], subjects: Subjects) -> None:
        self._reader, self._subjects = _Reader(), subjects
        self._encoder = make(self._reader.opening)
        self._named: dict[Subject, SchemaName] = {}
        self.out_of_range = self._encoder.out_of_range

    @property
    def may_lose(self) -> bool:
        """Whether a column may have values that the wire does not hold, and that are replaced."""
        return self._encoder.may_lose

    def check(self) -> None:
        self._encoder.check()

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The messages of rows, in their order.

        Raises:
            ConnectError: a registry is to be asked, and can't be.
        """
        for messages in self._encoder.feed(batch):
            self.out_of_range = self._encoder.out_of_range
            yield self._written(messages, batch)

    def _written(self, messages: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(MESSAGES.names, messages.columns, strict=True))
        columns["headers"] = _with_plain_keys(columns["headers"])
        for side, read in self._reader.read(messages).items():
            named = [self._name(subject) for subject in read.subjects]
            try:
                data = json_to_avro(read.tape, read.at, self._reader.schemas[side], read.number)
            except ValueError as error:
                topics = ", ".join(sorted({subject.topic for subject in read.subjects}))
                raise _unwritable(side, topics, rows, error) from error
            if any(one.prefix for one in named):
                prefix = pa.array([one.prefix for one in named], pa.binary()).take(pa.array(read.of, mask=read.of < 0))
                data = pc.binary_join_element_wise(prefix, data, b"")
            columns[side] = data
            if any(one.headers for one in named):
                columns["headers"] = _with_headers(columns["headers"], [one.headers for one in named], read.of)
        return pa.RecordBatch.from_pydict(columns, schema=MESSAGES)

    def _name(self, subject: Subject) -> SchemaName:
        named = self._named.get(subject)
        if named is None:
            named = self._named[subject] = self._subjects.named(subject)
        return named


def _unwritable(side: Side, topics: str, rows: pa.RecordBatch, error: ValueError) -> FormatError:
    """What to raise where an Avro schema does not take what JSON does."""
    times = pc.coalesce(rows.column("event_time"), rows.column("capture_time"))
    if pc.any(pc.and_(times.is_null(), pc.is_in(rows.column("op"), pa.array(DATA)))).as_py():
        return FormatError(
            f"Change rows of topic {topics} have no time, and Debezium's Avro schemas need one.",
            remedy="Fill event_time or capture_time.",
        )
    return FormatError(
        f"A {side} of topic {topics} can't be written in Avro: {error}.",
        remedy="Encode the same rows as debezium_json to see the value.",
    )


class SubjectFinder(Codec):
    """The subjects of messages that would be written, each once.

    Args:
        make: makes what writes them in JSON, with what stands in front of payloads.
    """

    schema = pa.schema([(name, pa.string()) for name in Subject._fields])

    def __init__(self, make: Callable[[Opening], DebeziumEncoder]) -> None:
        self._reader = _Reader()
        self._encoder = make(self._reader.opening)
        self._found: set[Subject] = set()

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for messages in self._encoder.feed(batch):
            met = {subject for read in self._reader.read(messages).values() for subject in read.subjects}
            new = sorted(met - self._found)
            self._found |= met
            if new:
                yield pa.RecordBatch.from_pylist([subject._asdict() for subject in new], self.schema)


def _with_plain_keys(headers: pa.ListArray) -> pa.ListArray:
    """Headers, where those that hold a key hold it without its schema."""
    entries = pc.list_flatten(headers)
    names, values = (pc.struct_field(entries, name) for name in ("key", "value"))
    of_keys = pc.is_in(names, _KEY_HEADERS)
    if not pc.any(of_keys).as_py():
        return headers
    plain = [value.partition(_PAYLOAD)[2][:-1] for value in values.filter(of_keys).to_pylist()]
    replaced = pc.replace_with_mask(values, of_keys, pa.array(plain, pa.binary()))
    sizes = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    return _lists(sizes, pa.StructArray.from_arrays([names, replaced], fields=list(entries.type)), headers.is_valid())


def _with_headers(headers: pa.ListArray, more: Sequence[tuple[tuple[str, bytes], ...]], of: Array) -> pa.ListArray:
    """Headers, and behind them those of what each message is one of; none where it is of none."""
    entries = pc.list_flatten(headers)
    sizes = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    added = [entry for group in more for entry in group]
    counts = np.array([*(len(group) for group in more), 0], np.int64)
    first = offsets_of(counts)[:-1].astype(np.int64) + len(entries)
    begins = np.stack([offsets_of(sizes)[:-1].astype(np.int64), first[of]], axis=1).reshape(-1)
    lengths = np.stack([sizes, counts[of]], axis=1).reshape(-1)
    order = np.arange(lengths.sum()) + np.repeat(begins - offsets_of(lengths)[:-1], lengths)
    new = pa.StructArray.from_arrays(
        [pa.array([name for name, _ in added], pa.string()), pa.array([value for _, value in added], pa.binary())],
        fields=list(entries.type),
    )
    every = pa.concat_arrays([entries, new]).take(pa.array(order))
    return _lists(sizes + counts[of], every, pa.array(np.ones(of.size, bool)))


def _lists(sizes: Array, entries: pa.StructArray, present: pa.BooleanArray) -> pa.ListArray:
    headers = list_array(offsets_of(sizes), entries, present.to_numpy(zero_copy_only=False))
    return headers.cast(MESSAGES.field("headers").type)
