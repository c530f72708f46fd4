"""Debezium's change events as Avro with a schema registry: what its connectors write through an Avro converter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from headrace.changes import TableId, TableSchema
from headrace.formats.codec import ArrowFormat, Facts, Lookup, in_spark, tallied
from headrace.formats.debezium.avro_encode import AvroEncoder, SubjectFinder
from headrace.formats.debezium.connect_fields import Opening
from headrace.formats.debezium.decode import DebeziumDecoder
from headrace.formats.debezium.encode import DebeziumEncoder
from headrace.formats.debezium.format import DebeziumJson, recognise_avro
from headrace.formats.debezium.options import DebeziumJsonSettings, EventSettings, unsigned_numbers
from headrace.formats.debezium.payload import AvroConverter
from headrace.formats.recognition import Evidence, Sample
from headrace.formats.registry.client import Registry, avro_given
from headrace.formats.registry.schemas import SchemaSource
from headrace.formats.registry.settings import RegistrySettings, registry_of
from headrace.formats.registry.subjects import Subject, Subjects
from headrace.settings import Settings, option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


class GivenSchemas(Settings):
    """The schemas of messages that name none."""

    value_schema: str | None = option(
        "Framing `none`: the Avro schema of all values, as JSON. Without it the only schema of `registry` is meant, "
        "where that has one.",
        kind=avro_given,
        default=None,
    )
    key_schema: str | None = option(
        "Framing `none`: the Avro schema of all keys, as JSON; without it keys are not read.",
        kind=avro_given,
        default=None,
    )


class DebeziumAvroSettings(RegistrySettings, GivenSchemas, EventSettings):
    """Of the format `debezium_avro`."""


class DebeziumAvro(ArrowFormat):
    """Debezium's Avro events, whatever registry and converter wrote them.

    The events are those of `debezium_json`: same options, same rows, same text form of values. A schema id that appears
    while a stream runs is fetched then; an id that the registry does not know gives an `error` row, which may be read
    again later; a registry that can't be asked for an id that this process has not seen stops the query, because
    nothing may be lost. Ids that were seen go on working while the registry is down.

    Schemas may refer to others of the registry; a topic of several tables may have a union of their schemas. A column
    of several types has the one that holds them all, or is text; one whose text would not say what it means (bytes or
    dates beside texts) is an error of that table's rows. What holds itself is JSON. Logical types count without
    Connect's names, and where they stand beside the type.

    Which process runs it: executors read the messages. Schemas of batch DataFrames (so pipelines and `foreachBatch`)
    are fetched on the driver, by a job that looks for the ids of the batch when `decode` is called, and executors ask
    nobody. In a plain streaming DataFrame executors ask the registry for ids that they have not seen. Schemas that are
    written are registered likewise: of a batch by the driver, when `encode` is called, by a job over the rows without
    their images (persist what is expensive before); of a stream by the executors that meet them.

    Source: Debezium's documentation (Avro serialization); Confluent's documentation of its wire format.
    """

    name = "debezium_avro"
    examples: ClassVar[Mapping[str, str]] = {"registry": "http://localhost:8081"}
    settings: DebeziumAvroSettings
    reads = DebeziumJson.reads
    writes = DebeziumJson.writes
    written_columns = DebeziumJson.written_columns

    def remarks(self, tables: Sequence[TableSchema]) -> Sequence[str]:
        """That unsigned 64-bit numbers are not written as numbers."""
        return unsigned_numbers(self.settings, tables)

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        """A frame, and in it the texts of Debezium's block `source`."""
        return recognise_avro(message)

    def prepare_decoding(self, look: Lookup) -> Facts:
        """What decoders need to know, with the schemas of a batch's messages, found by a job over their first bytes.

        Raises:
            OptionError: there is no registry, and no schema in its place; or as `debezium_json`.
            ConnectError: the registry can't be asked for a schema that this process has not seen.
        """
        return replace(self._json().prepare_decoding(look), schemas=look.schemas(self._schemas()))

    def decoder(self, facts: Facts) -> DebeziumDecoder:
        return DebeziumDecoder(self._json().reading(facts), AvroConverter(facts.schemas or self._schemas()))

    def encoded(self, changes: DataFrame, observed: Observation | str) -> DataFrame:
        """Change rows to the events that Debezium writes through an Avro converter, and their schemas to the registry.

        The same events as `debezium_json`, with the same options; names of schemas and columns are made fit for Avro.
        Schemas are registered under `<topic>-key` and `<topic>-value` before anything is written; with a mapping in
        `registry` they must be in it. Headers that hold a key (of a changed key) hold it as plain JSON.

        Raises:
            OptionError: as `debezium_json`; a mapping lacks a schema.
            ConnectError: the registry can't be reached or refuses a schema.
        """
        self.check(writes=True)
        subjects, events = self._subjects(), self._json()
        facts, rows = self.handed(changes)
        encoder = events.encoder(facts)
        encoder.check()
        if subjects.is_named and not rows.isStreaming:
            subjects = subjects.registered(self._met(rows, facts))
        make = self._in_json(facts)
        return tallied(rows, lambda: AvroEncoder(make, subjects), encoder.may_lose, observed)

    def _met(self, rows: DataFrame, facts: Facts) -> Iterator[Subject]:
        """The subjects of a batch's messages, found by a job."""
        from pyspark.sql import functions as F  # noqa: N812

        make = self._in_json(facts)
        # An image says nothing of the schemas, but where it has to say the key.
        images = {name: F.when(F.col("key").isNull(), F.col(name)) for name in ("before", "after")}
        subjects = in_spark(rows.withColumns(images), lambda: SubjectFinder(make), SubjectFinder.schema)
        return (Subject(*row) for row in subjects.distinct().collect())

    def encoder(self, facts: Facts) -> AvroEncoder:
        """From change rows to messages; registers what it meets."""
        return AvroEncoder(self._in_json(facts), self._subjects())

    def _in_json(self, facts: Facts) -> Callable[[Opening], DebeziumEncoder]:
        """Makes what writes the same messages in JSON."""
        return partial(self._json().encoder, facts, float_texts=True)

    def check(self, *, writes: bool) -> None:
        """Whether there is a registry, or schemas in its place, and what `debezium_json` needs."""
        if writes:
            self._subjects()
            self._json().check(writes=True)
        else:
            self._schemas()

    def _subjects(self) -> Subjects:
        framing = self.settings.framing
        bare = framing == "none" and self.settings.registry is None
        return Subjects(framing, Registry() if bare else registry_of(self.settings, f"format '{self.name}'"))

    def topic_for(self, table: TableId, connector: str = "") -> str:
        return self._json().topic_for(table, connector)

    def name_for(self, table: TableId, connector: str = "") -> str:
        """As those of `debezium_json`."""
        return self._json().name_for(table, connector)

    def _json(self) -> DebeziumJson:
        settings = self.settings
        return DebeziumJson(
            settings.cast_to(
                DebeziumJsonSettings,
                schemas_enable=True,
                key_schemas_enable=True,
                schema_name_adjustment_mode="avro",
                field_name_adjustment_mode="avro",
            )
        )

    def _schemas(self) -> SchemaSource:
        settings = self.settings
        alone = settings.framing == "none" and settings.registry is None and settings.value_schema is not None
        registry = Registry() if alone else registry_of(settings, f"format '{self.name}'")
        return SchemaSource.of(settings, registry, key=settings.key_schema, value=settings.value_schema)
