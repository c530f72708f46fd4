"""Debezium's change events as JSON: what its connectors put into Kafka through Connect's JsonConverter.

`headrace decode` recognises a message by fields, schema names and texts that only Debezium's messages have.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import replace

from headrace.changes import TableId, TableSchema
from headrace.errors import OptionError
from headrace.formats.codec import ArrowFormat, Facts, Lookup
from headrace.formats.debezium.connect_fields import Opening, with_schema
from headrace.formats.debezium.connectors import CONNECTORS, OTHER, SHAPES
from headrace.formats.debezium.decode import DebeziumDecoder
from headrace.formats.debezium.encode import DebeziumEncoder
from headrace.formats.debezium.options import DebeziumJsonSettings, field_rules, unsigned_numbers, value_modes
from headrace.formats.debezium.payload import JsonConverter
from headrace.formats.debezium.schemas import DecodeSettings, given_table, given_tables
from headrace.formats.debezium.source_blocks import Forms
from headrace.formats.debezium.topics import TopicNames, topics
from headrace.formats.debezium.written import EncodeSettings
from headrace.formats.features import Feature
from headrace.formats.recognition import Evidence, Sample
from headrace.formats.registry.framing import recognise_framed

_SCHEMAS = (
    ".Envelope",
    ".Heartbeat",
    ".TransactionMetadataValue",
    ".SchemaChangeValue",
    ".Notification",
)
# What stands in an Avro datum in clear: two texts, each after its length, zigzag.
_SOURCE = re.compile(
    rb"[\x10-\x30]\d+\.\d+\.\d+\.(?:Final|Alpha\d*|Beta\d*|CR\d*|SNAPSHOT)[\x04-\x30]"
    rb"(?:mysql|mariadb|postgresql|sqlserver|oracle|db2|mongodb|informix|vitess|spanner|cassandra|cockroachdb)"
)


def recognise_json(message: Sample) -> Evidence | None:
    """Why the message is one of Debezium's in JSON; None where nothing says so."""
    fields = message.fields
    if fields.keys() == {"schema", "payload"} and isinstance(fields["payload"], dict):
        name = fields["schema"].get("name") if isinstance(fields["schema"], dict) else None
        if isinstance(name, str) and name.endswith(_SCHEMAS):
            return Evidence(f"a schema named `*{name[name.rindex('.') :]}`")
        fields = fields["payload"]
    source = fields.get("source")
    if isinstance(source, dict) and "connector" in source:
        if isinstance(fields.get("op"), str):
            return Evidence("`op` beside a block `source` with a `connector`")
        if "ddl" in fields or "tableChanges" in fields:
            return Evidence("`tableChanges` beside a block `source`")
    if fields.get("status") in ("BEGIN", "END") and {"id", "event_count", "data_collections"} <= fields.keys():
        return Evidence("a transaction's `status`, `event_count` and `data_collections`")
    marks = sorted(name for name in fields if name in ("__op", "__deleted") or name.startswith("__source_"))
    if marks:
        return Evidence(f"a flat row with `{marks[0]}`", (("unwrapped", "true"),))
    if "__op" in message.headers:
        return Evidence("a flat row with the header `__op`", (("unwrapped", "true"),))
    return None


def recognise_avro(message: Sample) -> Evidence | None:
    """Why the message may be one of Debezium's in Avro; None where nothing says so."""
    mark = _SOURCE.search(message.value or b"") is not None
    return recognise_framed(message, mark, "and a Debezium version before a connector's name")


class DebeziumJson(ArrowFormat):
    """Debezium's JSON events, in the shapes of its connectors 1.7, 2.3 and 3.

    Encoding: every data row becomes the event that Debezium writes for it, field for field and in the same order. The
    source block is that of the row's connector (`source['connector']`: sqlserver, oracle, db2, mysql, mariadb,
    postgresql) with the facts in `source`; rows of any other have what all blocks share. A delete is followed by its
    tombstone; an update that changes the key becomes delete, tombstone and create with Debezium's key headers. The
    messages of one change share its position, the second and third with `:1` and `:2` after it. A `schema` row that
    is a change (`source['change']` or `source['ddl']`) becomes a message of the schema-change topic, `begin` and `end`
    rows of the transaction topic, `heartbeat` rows of the heartbeat topic; other rows give no message (a delete makes
    its own tombstone). In shape 3 the schema changes of a snapshot come in the order of the tables' names.

    Images are maps or structs; the messages are the same, and structs (of one table) are faster. A column that an image
    does not carry has the unavailable-value placeholder, or is left out of the JSON object where Debezium has none for
    its type; shapes 1.7 and 3.0 write null.

    Shape 2.3 is that of the documentation of the Oracle and Db2 connectors: Db2 has a boolean `snapshot`, no `sequence`
    and no transaction block outside of transactions; Oracle has its whole block, but for rows that do not know their
    database the short one of the documented row events.

    Decoding: with schemas, images are typed by them, and each table schema gives a `schema` row before the first row
    that follows it, in each task and for each topic and partition. Without, values stay as they came, because a message
    does not say which mode its times, decimals and bytes were written in; with the option `schema` the options for
    these modes say it, and with one table or a DDL images are structs. Tombstones become `tombstone` rows (also
    `{"schema":null,"payload":null}`), schema changes `schema` rows, one per table, with `source['change']` and
    `source['ddl']`, edges of transactions `begin` and `end` rows, heartbeats `heartbeat` rows, logical messages
    `message` rows with `source['prefix']` and `source['content']`; notifications are no events. A column that holds the
    unavailable-value placeholder is left out of the image. The field that a router adds to keys (`key_field_name`) is
    left out of the key. What can't be read, and what is none of these, becomes an `error` row.

    Ordering: none is imposed; `position` gives it. Idempotence: the rows alone decide the bytes (the envelope's clock
    is `capture_time`). Process: executors. Decoding asks nothing when called, and `headrace decode` needs no Spark
    for it. Encoding asks a batch DataFrame with maps on the driver for its schemas when `encode` is called, which
    runs small jobs over it (persist the batch before, or give the option `schema`).

    Differences from recorded events, on purpose: NULL stays NULL beside a default (`null_as_default` for the recorded
    behaviour); a large value that a change does not carry has the placeholder whatever its type
    (`unavailable_max_as_null`); the commit time is the transaction's end, also as `ts_ms` of BEGIN and END; times keep
    their digits and defaults are unescaped where 1.7.2 cut them or did not; an interval keeps its text
    (`interval_handling_mode`; PostgreSQL's is written in ISO 8601); an unsigned 64-bit number is a decimal and never
    wrapped (`bigint_unsigned_handling_mode`). Of MySQL and MariaDB, years below 100 stay (`enable_time_adjuster`), the
    year 0000 is 0, labels in values are not escaped, an instant has all its fraction digits in snapshots, too, and a
    date that is none is null, or where NULL can't be the default or 1970. Of PostgreSQL's types, those that its
    connector leaves out are strings or JSON; dates before 1582 and before Christ are those of the stream, in snapshots,
    too; an array of arrays and a timestamp beyond the microseconds of 64 bits are null and counted
    (`event_converting_failure_handling_mode`). As its connector does, columns that an old row does not say are null, or
    the default or zero where they can't be.

    Source: Debezium's documentation of the SQL Server, Oracle, Db2, MySQL and PostgreSQL connectors (data change
    events).
    """

    name = "debezium_json"
    settings: DebeziumJsonSettings
    types_sent_by = "Debezium: value.converter.schemas.enable; Headrace: schemas.enable of the sink's format"
    reads = frozenset(Feature) - {Feature.CHANGED, Feature.KEY_CHANGE}
    writes = reads - {Feature.TOMBSTONE}
    written_columns = (
        "op", "table", "key", "before", "after", "before_absent", "after_absent", "position", "event_time",
        "capture_time", "snapshot", "transaction", "source", "schema_id", "table_schema",
    )  # fmt: skip

    def remarks(self, tables: Sequence[TableSchema]) -> Sequence[str]:
        """That unsigned 64-bit numbers are not written as numbers."""
        return unsigned_numbers(self.settings, tables)

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        """The envelope, its schema, or a flat row's own fields."""
        return recognise_json(message)

    def encoder(self, facts: Facts, opening: Opening = with_schema, *, float_texts: bool = False) -> DebeziumEncoder:
        """From change rows to messages.

        Args:
            facts: the schemas.
            opening: what stands in front of payloads with a schema.
            float_texts: whether binary numbers are strings with their canonical texts, for what reads them again.
        """
        self.check(writes=True)
        settings = self.settings
        prefix = self._prefix()
        shape = SHAPES[settings.shape]
        key_schemas, given = settings.key_schemas_enable, settings.schema
        writing = EncodeSettings(
            topics=topics(settings, shape),
            shape=shape,
            forms=Forms.of(shape, prefix, settings.connector_version),
            modes=replace(value_modes(settings), float_texts=float_texts),
            schema_names=settings.schema_name_adjustment_mode or shape.schema_names,
            rules=field_rules(settings, shape),
            value_schemas=settings.schemas_enable,
            key_schemas=settings.schemas_enable if key_schemas is None else key_schemas,
            tombstones=settings.tombstones_on_delete,
            skipped=settings.skipped_operations,
            context=settings.context_headers,
            run_id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"headrace:{prefix}")),
            schema_changes=settings.include_schema_changes,
            given=given is not None,
            single=given is not None and given.single,
        )
        return DebeziumEncoder(facts, writing, opening)

    def decoder(self, facts: Facts) -> DebeziumDecoder:
        return DebeziumDecoder(self.reading(facts), JsonConverter())

    def reading(self, facts: Facts) -> DecodeSettings:
        """How messages are read, whatever their keys and values are written in."""
        settings = self.settings
        return DecodeSettings(
            table_field=settings.key_field_name,
            binary=settings.binary_handling_mode,
            times=settings.time_precision_mode,
            placeholder=settings.unavailable_value_placeholder,
            heartbeats=settings.heartbeat_topics_prefix,
            unwrapped=settings.unwrapped_prefix if settings.unwrapped else None,
            tombstone_as_delete=settings.tombstone_as_delete,
            keys=settings.keys,
            tables=given_tables(settings, facts.tables) if self._has_tables else None,
            typed=None if facts.typed is None else given_table(settings, facts.typed),
            nulls=settings.unrepresentable == "null",
        )

    @property
    def _has_tables(self) -> bool:
        given = self.settings.schema
        return given is not None and given.several

    def prepare_decoding(self, look: Lookup) -> Facts:
        """What decoders need to know.

        Raises:
            OptionError: `schema` holds two schemas that can't be told apart.
        """
        facts = super().prepare_decoding(look)
        if self._has_tables:
            given_tables(self.settings, facts.tables)
        return facts

    def check(self, *, writes: bool) -> None:
        if not writes:
            return
        self._prefix()
        shape, mode = SHAPES[self.settings.shape], self.settings.time_precision_mode
        if mode not in shape.time_modes:
            raise OptionError(
                f"Option 'time_precision_mode' can't be '{mode}' in shape {shape.name}.",
                remedy=f"Known there: {', '.join(shape.time_modes)}.",
            )

    def topic_for(self, table: TableId, connector: str = "") -> str:
        self._prefix()
        return self._topics().of(table, database=_has_database(connector))

    def name_for(self, table: TableId, connector: str = "") -> str:
        """The topic before any routing: keys have nothing else that names a table, and routers' fields come from it."""
        return self._topics().unrouted(table, database=_has_database(connector))

    def _topics(self) -> TopicNames:
        return topics(self.settings, SHAPES[self.settings.shape])

    def _prefix(self) -> str:
        prefix = self.settings.topic_prefix
        if not prefix:
            raise OptionError(
                "Option 'topic_prefix' of format 'debezium_json' is missing.",
                remedy="Set it to the server's logical name, the first part of the topics.",
            )
        return prefix


def _has_database(connector: str) -> bool:
    """Whether a connector's topics name the database, in the shapes that can."""
    return next((one for one in CONNECTORS if one.name == connector), OTHER).database_in_topic
