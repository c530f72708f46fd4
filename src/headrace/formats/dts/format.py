"""Alibaba DTS Avro: the records of a change tracking channel, as they stand in its Kafka topic.

`headrace decode` recognises a message that is a DTS record with a time and a position; other bytes seldom are.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.formats.base import FormatSettings, topic_option
from headrace.formats.codec import ArrowFormat, Facts
from headrace.formats.dts.decode import DtsDecoder
from headrace.formats.dts.encode import DtsEncoder, EncodeSettings
from headrace.formats.dts.record import FIELD, SCHEMA
from headrace.formats.features import Feature
from headrace.formats.given_tables import TableOptions
from headrace.formats.recognition import Evidence, Sample
from headrace.settings import option
from headrace.wire.avro_tape import AvroTape

_SECONDS_MOST = 10**11


def recognise(message: Sample) -> Evidence | None:
    """Why the message is one of DTS; None where nothing says so."""
    if message.value is None or message.is_object:
        return None
    tape = AvroTape(pa.array([message.value], pa.binary()), SCHEMA)
    fields = tape.records(tape.root, len(FIELD))
    seconds, position = tape.numbers(fields[FIELD["sourceTimestamp"]])[0], fields[FIELD["sourcePosition"]]
    known = 0 < seconds < _SECONDS_MOST and tape.is_text(position)[0] and tape.text(position[0])
    return Evidence("a DTS record, without any frame") if known else None


class DtsSettings(FormatSettings):
    """Of the format `dts_avro`."""

    born_timestamp: bool = option(
        "Encoding: whether records end with `bornTimestamp` (milliseconds), as newer writers write them.",
        default=True,
    )
    message_key: str = option(
        "Encoding: `none`, with partition 0 for all rows, as DTS does, which keeps the order across tables; or "
        "`primary_key`: the row's key as a JSON array of texts, which spreads rows over partitions.",
        default="none",
        choices=("none", "primary_key"),
    )
    topic: str = topic_option("dts")


class DtsAvro(ArrowFormat):
    """Records of Alibaba DTS: bare Avro of one fixed schema, one record per message, all tables in one topic.

    Decoding: INSERT, UPDATE and DELETE give rows, INIT rows of a snapshot; DDL (and COMMAND with a text, as of
    MongoDB) a `schema` row with the text in `source['ddl']`, or a truncate; BEGIN and COMMIT the edges of a
    transaction; HEARTBEAT and CHECKPOINT a heartbeat. All other operations, and values of exactly 48 bytes (with which
    the broker fills gaps), are no event. A value that the log did not have (EmptyObject NONE) is absent. Records
    without the last field, and with bytes after it, are read too. `source` has the record's fields by their names and
    its tags; `event_time` is `sourceTimestamp`, to the second.

    Values are written by the branch of their union. The schema of a table comes from the fields' `dataTypeNumber`,
    of MySQL's and PostgreSQL's records; it says no length, scale or sign, so integers get a type that holds the
    unsigned range too. For other sources give `schema`.

    Ordering: the offset, which is the order of the topic's one partition. Idempotence: the message alone decides its
    row. Process: executors; nothing is asked when `decode` is called.

    Encoding: a record per row; tombstones, messages, gaps and errors give none. What the source says beside the fields
    of a record stands in its tags. `id` is that of the record a row came from, and of captured rows their serial number
    (`source['id']`), which pipelines and readers of messages ask the source for, and other readers with
    `serialNumbers`; else the number at the beginning of the position. Sorting the records of a table by it gives the
    order of the source.

    Source: Alibaba DTS's documentation of its formats in Kafka, and its Avro schema.
    """

    name = "dts_avro"
    numbered = True
    settings: DtsSettings
    reads = frozenset(
        (
            Feature.READ, Feature.TRUNCATE, Feature.TOMBSTONE, Feature.SCHEMA, Feature.DDL, Feature.EDGES,
            Feature.HEARTBEAT, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.KEY, Feature.KEY_CHANGE,
            Feature.TYPES, Feature.DATABASE, Feature.SCHEMA_NAME, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.TRANSACTION,
            Feature.BYTES, Feature.SOURCE,
        )
    )  # fmt: skip
    writes = frozenset(
        (
            Feature.READ, Feature.TRUNCATE, Feature.DDL, Feature.EDGES, Feature.HEARTBEAT, Feature.BEFORE,
            Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.KEY, Feature.KEY_CHANGE, Feature.DATABASE,
            Feature.SCHEMA_NAME, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.TRANSACTION, Feature.BYTES, Feature.SOURCE,
        )
    )  # fmt: skip

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        return recognise(message)

    def decoder(self, facts: Facts) -> DtsDecoder:
        return DtsDecoder(TableOptions.of(self.settings, facts))

    written_columns = (
        "op", "table", "key", "key_text", "before", "after", "before_absent", "after_absent", "position", "event_time",
        "capture_time", "transaction", "source", "schema_id",
    )  # fmt: skip

    def encoder(self, facts: Facts) -> DtsEncoder:
        settings = self.settings
        with_key = settings.message_key == "primary_key"
        return DtsEncoder(facts, EncodeSettings(settings.topic, settings.born_timestamp, with_key))
