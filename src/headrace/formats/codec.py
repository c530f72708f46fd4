"""Formats as functions on Arrow batches: the contract, and the two ways to run it, in Spark and without."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableId, TableSchema
from headrace.changes.row import arrow_schema, arrow_type
from headrace.errors import FormatError, OptionError
from headrace.formats.base import Format
from headrace.formats.change_columns import error_row
from headrace.formats.encoding import (
    EncodedBatch,
    OutOfRange,
    has_struct_images,
    observation_name,
    observed_batch,
    struct_schema,
    with_schema_ids,
)
from headrace.formats.registry.schemas import SchemaSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


KAFKA_COLUMNS: Mapping[str, str] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The columns of a message and their Spark types; those that a DataFrame lacks are null."""

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
ROWS = 4_096
"""How many rows are worked on together: as many as stay in a core's cache, half of what Spark hands over at once."""
BYTES = 64 << 20
"""How many bytes of messages are worked on together, so that a column of texts stays far below Arrow's 2 GiB."""
MESSAGES = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("position", pa.string()),
    ]
)
"""`base.MESSAGE_DDL` as an Arrow schema."""
KAFKA = pa.schema([(name, arrow_schema().field("message").type.field(name).type) for name in KAFKA_COLUMNS])
"""The columns of a message."""


def kafka_columns(messages: DataFrame) -> DataFrame:
    """Exactly Kafka's columns, in order; text keys and values are taken as their UTF-8 bytes.

    Raises:
        OptionError: the column `value` is missing.
    """
    have = set(messages.columns)
    if "value" not in have:
        raise OptionError(
            "The messages have no column 'value'.",
            remedy='Pass a DataFrame with Kafka\'s columns, as spark.read.format("kafka") has them.',
        )
    return messages.selectExpr(
        *(f"cast({name if name in have else 'null'} as {kind}) as {name}" for name, kind in KAFKA_COLUMNS.items())
    )


@dataclass(frozen=True)
class Facts:
    """What the driver finds out before a batch, and hands to the codec of each task.

    Args:
        tables: encoding map images: the schemas that the rows' `schema_id` names.
        typed: the schema of struct images; None where images are maps.
        schemas: where the Avro schemas of messages come from; None where the format has none, or its options say it.
    """

    tables: tuple[TableSchema, ...] = ()
    typed: TableSchema | None = None
    schemas: SchemaSource | None = None


class Lookup(ABC):
    """What the driver may look for before messages are decoded."""

    @abstractmethod
    def values_with(self, part: bytes) -> list[bytes]:
        """The distinct values that hold these bytes, of all messages of a batch; none of a stream."""

    def topic_values(self, topic: str, servers: str) -> list[bytes]:
        """The distinct values that a Kafka topic holds now."""
        raise OptionError(f"The topic '{topic}' can't be read without Spark.", remedy="Decode with a Spark session.")

    def schemas(self, source: SchemaSource) -> SchemaSource:
        """Where the schemas of messages come from, with those in it that the messages of a batch name."""
        return source


class ArrowLookup(Lookup):
    """A look at batches, without Spark."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = batches

    def values_with(self, part: bytes) -> list[bytes]:
        """The distinct values that contain these bytes."""
        columns = (batch.column("value").cast(pa.binary()).drop_null() for batch in self._batches)
        return sorted({value for column in columns for value in column.to_pylist() if part in value})


class SparkLookup(Lookup):
    """A look at a DataFrame of messages, by jobs."""

    def __init__(self, messages: DataFrame) -> None:
        self._messages = messages

    def values_with(self, part: bytes) -> list[bytes]:
        """The distinct values that hold these bytes; none of a stream."""
        from pyspark.sql import functions as F  # noqa: N812

        if self._messages.isStreaming:
            return []
        held = self._messages.where(F.contains(F.col("value"), F.lit(part)))
        return _distinct_values(held)

    def topic_values(self, topic: str, servers: str) -> list[bytes]:
        """The distinct values that a Kafka topic holds now."""
        reader = self._messages.sparkSession.read.format("kafka").option("kafka.bootstrap.servers", servers)
        reader = reader.option("subscribe", topic).option("kafka.isolation.level", "read_committed")
        return _distinct_values(reader.option("startingOffsets", "earliest").load().where("value is not null"))

    def schemas(self, source: SchemaSource) -> SchemaSource:
        """The source with the schemas that the messages of a batch name; unchanged for a stream."""
        return source if self._messages.isStreaming else source.of_batch(self._messages)


def _distinct_values(messages: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in messages.select("value").distinct().collect())


class Codec(ABC):
    """One direction of a format in one task; never reused for another task.

    `schema` is the schema of the output, known before the first row.
    """

    schema: pa.Schema
    out_of_range: OutOfRange = OutOfRange()
    """The values so far that were replaced because the format can't hold them."""

    def check(self) -> None:
        """Check that the options fit the schemas, before the first row.

        Raises:
            OptionError: they do not.
        """
        return None

    @property
    def may_lose(self) -> bool:
        """Whether there may be such values."""
        return False

    @abstractmethod
    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The output of the rows, in their order."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The remaining output after the last row."""
        return iter(())


class CountingEncoder(Codec):
    """An encoder for Spark, which counts by a column: it holds what each batch of messages lost (`OutOfRange`).

    Args:
        encoder: the encoder.
    """

    schema = pa.schema([*MESSAGES, ("lost", pa.string())])

    def __init__(self, encoder: Codec) -> None:
        self._encoder = encoder
        self._told = OutOfRange()

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The messages of rows, in their order."""
        yield from self._with_counts(self._encoder.feed(batch))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """What the encoder has left."""
        yield from self._with_counts(self._encoder.finish())

    def _with_counts(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            now = self._encoder.out_of_range
            lost = pa.array([now.since(self._told).to_text(), *[None] * (batch.num_rows - 1)], pa.string())
            yield pa.RecordBatch.from_arrays([*batch.columns, lost], schema=self.schema)
            self._told = now


def tallied(rows: DataFrame, make: Callable[[], Codec], may_lose: bool, observed: Observation | str) -> DataFrame:
    """Run an encoder over rows, with its count in an observation where it can lose something.

    Args:
        rows: the columns that it reads.
        make: makes the encoder of a task.
        may_lose: whether a column may have values that the wire does not hold.
        observed: what counts when the messages are computed.
    """
    from pyspark.sql import functions as sf

    if not may_lose:
        return in_spark(rows, make, MESSAGES)
    messages = in_spark(rows, lambda: CountingEncoder(make()), CountingEncoder.schema)
    # An observation gives no lists.
    return messages.observe(observed, sf.concat_ws("\n", sf.collect_list("lost")).alias("lost")).drop("lost")


class ArrowFormat(Format):
    """A format whose directions are codecs. It is picklable: what it holds is its options."""

    written_columns: ClassVar[tuple[str, ...]] = ()
    """The columns of change rows that encoders read beside `has_types`; no other is handed over.

    Where images are structs, `schema_id` is not read.
    """

    @abstractmethod
    def decoder(self, facts: Facts) -> Codec:
        """From columns of `KAFKA` to change rows."""

    def encoder(self, facts: Facts) -> Codec:
        """From change rows to messages of `MESSAGES`.

        Beside their columns, `has_types` says whether a row follows a schema that is more than names of columns.
        """
        raise OptionError(f"Format '{self.name}' can't be encoded.", remedy="Choose a format that can.")

    @property
    def needs_spark(self) -> bool:
        """Whether messages can't be decoded without a Spark session, by these options."""
        given = self.settings.schema
        return given is not None and not given.several

    def prepare_decoding(self, lookup: Lookup) -> Facts:
        """What decoders need to know; runs on the driver."""
        given = self.settings.schema
        if given is None:
            return Facts()
        if given.single:
            return Facts(typed=given.only(self.settings.keys))
        return Facts(tables=given.tables)

    def decode(self, messages: DataFrame) -> DataFrame:
        """Messages to change rows, by one call in executors; with `schema`, images are structs of its types.

        Raises:
            OptionError: `schema` and `keys` contradict each other.
        """
        return self.decode_and(messages, lambda decoder: decoder)

    def decode_and(self, messages: DataFrame, work: Callable[[Codec], Codec]) -> DataFrame:
        """As `decode`, with more work on the change rows by the same call.

        Args:
            messages: Kafka's columns.
            work: makes of a task's decoder what gives change rows, too.
        """
        rows = kafka_columns(messages)
        facts = self.prepare_decoding(SparkLookup(rows))
        # Each column costs on the way to Python, and decoders make those that are missing.
        there = rows.select(*(name for name in rows.columns if name in set(messages.columns)))
        return in_spark(there, lambda: work(self.decoder(facts)), change_schema(facts.typed))

    def decoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Change rows without Spark, errors treated as `on_error` says; without messages that are not events.

        Args:
            batches: columns of `KAFKA`; those that they lack are null.

        Raises:
            FormatError: a message can't be read, and `on_error` is `fail`.
        """
        mode, held = self.settings.on_error, list(batches)
        for rows in run_codec(self.decoder(self.prepare_decoding(ArrowLookup(held))), held):
            events = rows.filter(rows.column("op").is_valid())
            errors = pc.equal(events.column("op"), "error")
            if mode == "fail" and pc.any(errors).as_py():
                raise _unreadable(events.filter(errors).slice(0, 1).to_pylist()[0])
            yield events.filter(pc.invert(errors)) if mode == "drop" else events

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows to messages, by one call in executors.

        Raises:
            OptionError: a streaming DataFrame with map images without `schema`; structs that are not of that schema; a
            bad `topic`; options that don't fit the schemas.
        """
        return self.encoded(changes, observation_name(self.name))

    def encode_batch(self, changes: DataFrame) -> EncodedBatch:
        """A batch's messages, and the values that were replaced."""
        return observed_batch(lambda observation: self.encoded(changes, observation))

    def encoded(self, changes: DataFrame, observed: Observation | str) -> DataFrame:
        """The same, counted into an observation where the format may not hold all values."""
        # Malformed options are an error here, and not in a task.
        self.check(writes=True)
        facts, rows = self.handed(changes)
        encoder = self.encoder(facts)
        encoder.check()
        return tallied(rows, lambda: self.encoder(facts), encoder.may_lose, observed)

    def handed(self, changes: DataFrame) -> tuple[Facts, DataFrame]:
        """What encoders need to know of change rows, and the columns that they read."""
        from pyspark.sql.functions import lit

        given, keys = self.settings.schema, self.settings.keys
        if has_struct_images(changes):
            facts = Facts(typed=struct_schema(changes, given, keys))
            rows = changes.withColumn("has_types", lit(True))
        else:
            typed = changes["schema_id"].isNotNull() if given is None else lit(True)
            marked = changes.withColumn("has_types", typed)
            rows, tables = with_schema_ids(marked, given, owner=f"format '{self.name}'", keys=keys)
            facts = Facts(tables=tables)
        facts = self.prepare_encoding(facts)
        if not rows.isStreaming:
            rows = self.with_schemas(rows, facts)
        read = (name for name in self.written_columns if facts.typed is None or name != "schema_id")
        return facts, self.with_counts(rows).select(*read, "has_types")

    def check(self, *, writes: bool) -> None:
        """Whether there is a topic for messages that are written."""
        if writes:
            self.topic_for(TableId("", "", ""))

    @property
    def encodes_alone(self) -> bool:
        """Whether an encoder that knows the schemas gives for each task what `encode` does."""
        kind = type(self)
        ours = ArrowFormat
        driver_side = (ours.encode, ours.encode_batch, ours.encoded, ours.handed)
        prepared = (ours.prepare_encoding, ours.with_schemas, ours.with_counts)
        return all(getattr(kind, method.__name__) is method for method in (*driver_side, *prepared))

    def prepare_encoding(self, facts: Facts) -> Facts:
        """What encoders need to know; runs on the driver.

        Args:
            facts: the schemas of the rows.
        """
        return facts

    def with_schemas(self, changes: DataFrame, facts: Facts) -> DataFrame:
        """The change rows of a batch, with `schema` rows that the encoder needs in front; none, for most formats."""
        return changes

    def with_counts(self, changes: DataFrame) -> DataFrame:
        """Change rows with what the encoder must know of the whole batch; nothing, for most formats."""
        return changes


def _unreadable(row: dict[str, Any]) -> FormatError:
    message = row["message"]
    origin = " ".join(
        f"{name} {message[name]}" for name in ("topic", "partition", "offset") if message[name] is not None
    )
    return FormatError(
        f"A message can't be read ({origin}): {row['error']}",
        remedy="Set on_error to row to keep such messages as rows, or to drop to skip them.",
    )


def change_schema(typed: TableSchema | None) -> pa.Schema:
    """The schema of change rows; with a table schema, their images are structs of its types."""
    schema = arrow_schema()
    if typed is None:
        return schema
    image = pa.struct([(column.name, arrow_type(column.logical)) for column in typed.columns])
    for name in ("before", "after"):
        schema = schema.set(schema.get_field_index(name), pa.field(name, image))
    return schema


def in_spark(rows: DataFrame, make: Callable[[], Codec], schema: pa.Schema) -> DataFrame:
    """Run a codec over each partition of a DataFrame, lazily. The order inside a partition is kept."""
    from pyspark.sql.pandas.types import from_arrow_schema

    handed, lists = _with_lists_packed(rows)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from run_codec(make(), (with_lists(batch, lists) for batch in batches))
        _keep_what_is_loaded()

    return handed.mapInArrow(run, from_arrow_schema(schema, prefer_timestamp_ntz=True))


@cache
def _keep_what_is_loaded() -> None:
    """Leave what is loaded out of garbage collection, once in a worker.

    PySpark collects after each task, before its worker takes the next one: 75 milliseconds with numba's modules.
    """
    gc.collect()
    gc.freeze()


def _with_lists_packed(rows: DataFrame) -> tuple[DataFrame, dict[str, list[str]]]:
    """Rows whose lists of one type are a list of lists, empty where all of them are null; and the names of each.

    Spark weighs a batch after each row: each column costs, and a list that is null makes it walk over all nulls since
    the last list. Three columns of null lists cost about 25 microseconds per row on the way to Python.
    """
    of_kind: dict[str, list[str]] = {}
    for field in rows.schema:
        if field.dataType.typeName() == "array":
            of_kind.setdefault(field.dataType.simpleString(), []).append(field.name)
    lists = {f"lists {number}": names for number, names in enumerate(of_kind.values())}
    columns = [f"`{name}`" for name in rows.columns if not any(name in names for names in lists.values())]
    for kind, (packed, names) in zip(of_kind, lists.items(), strict=True):
        known = " or ".join(f"`{name}` is not null" for name in names)
        every = ", ".join(f"`{name}`" for name in names)
        columns.append(f"if({known}, array({every}), cast(array() as array<{kind}>)) as `{packed}`")
    return rows.selectExpr(*columns), lists


def with_lists(batch: pa.RecordBatch, lists: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
    """A batch with the lists that were packed: for each column of packed ones the names of those in it."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for packed, names in lists.items():
        column = columns.pop(packed)
        inner = column.flatten()
        if not len(inner):
            columns |= {name: pa.nulls(batch.num_rows, inner.type) for name in names}
            continue
        none = pc.equal(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        first = len(names) * (np.cumsum(~none) - 1)
        columns |= {name: inner.take(pa.array(first + index, mask=none)) for index, name in enumerate(names)}
    return pa.RecordBatch.from_pydict(columns)


def run_codec(codec: Codec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All that a codec gives for a task's input; without Spark, too."""
    for batch in batches:
        for part in parts(batch):
            yield from codec.feed(part)
    yield from codec.finish()


def parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of at most `ROWS` rows, and of `BYTES` bytes where a row is not larger by itself."""
    average = max(1, batch.nbytes // max(1, batch.num_rows))
    step = max(1, min(ROWS, BYTES // average))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def kafka_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with exactly the columns of `KAFKA`; those that it lacks are null, texts are taken as their bytes.

    Raises:
        OptionError: the column `value` is missing.
    """
    have = set(batch.schema.names)
    if "value" not in have:
        raise OptionError("The messages have no column 'value'.", remedy="Pass a DataFrame with Kafka's columns.")
    columns = [
        batch.column(field.name).cast(field.type) if field.name in have else pa.nulls(batch.num_rows, field.type)
        for field in KAFKA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=KAFKA)


def change_batch(columns: Mapping[str, pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Change rows of these columns; those that are not given are null."""
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def all_rows(
    whole: pa.RecordBatch,
    rows: Numbers,
    problems: Mapping[int, str],
    batch: pa.RecordBatch,
    others: Callable[[int], list[dict[str, Any]]],
    *,
    announce: Callable[[Numbers, Numbers], list[tuple[Numbers, pa.RecordBatch]]] | None = None,
    index: int | None = None,
) -> pa.RecordBatch:
    """All change rows of a batch, in the order of its messages.

    Args:
        whole: the rows of ordinary messages.
        rows: the message of each.
        problems: why some messages can't be read after all; each gives one row.
        batch: the messages.
        others: makes the rows of a message that is not ordinary.
        announce: creates the `schema` rows that precede some of the ordinary ones, from their messages and numbers.
        index: the index in their messages that rows of problems have.
    """
    plain = np.zeros(batch.num_rows, bool)
    plain[rows] = True
    plain[list(problems)] = False
    kept = plain[rows]
    if not kept.all():
        rows, whole = rows[kept], whole.filter(pa.array(kept))
    batches = [] if announce is None else announce(rows, np.flatnonzero(kept))
    batches.append((rows, whole))
    odd: list[dict[str, Any]] = []
    numbers: list[int] = []
    for number in map(int, np.flatnonzero(~plain)):
        row = [error_row(batch, number, problems[number], index)] if number in problems else others(number)
        odd += row
        numbers += [number] * len(row)
    if odd:
        batches.append((np.array(numbers), pa.RecordBatch.from_pylist(odd, whole.schema)))
    return in_order(batches)


def in_order(batches: list[tuple[Numbers, pa.RecordBatch]]) -> pa.RecordBatch:
    """Batches as one, in the order of the numbers beside them; of equal numbers, those of the earlier batch first."""
    if len(batches) == 1:
        return batches[0][1]
    order = np.argsort(np.concatenate([numbers for numbers, _ in batches]), kind="stable")
    together = pa.concat_batches([batch for _, batch in batches])
    return together.take(pa.array(order))
