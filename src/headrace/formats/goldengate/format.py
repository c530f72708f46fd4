"""Oracle GoldenGate's JSON, one operation per message (GoldenGate for Big Data, `format=json`).

`headrace decode` recognises a message by names and values of JSON fields that only its messages have.
"""

from __future__ import annotations

from headrace.formats.base import FormatSettings, topic_option
from headrace.formats.codec import ArrowFormat, Facts
from headrace.formats.features import Feature
from headrace.formats.given_tables import TableOptions
from headrace.formats.goldengate.decode import GoldenGateDecoder
from headrace.formats.goldengate.encode import GoldenGateEncoder
from headrace.formats.recognition import Evidence, Sample


def recognise(message: Sample) -> Evidence | None:
    """Why the message is one of GoldenGate's; None where nothing says so."""
    fields = message.fields
    if fields.get("op_type") in ("I", "U", "D", "T") and isinstance(fields.get("table"), str) and "op_ts" in fields:
        return Evidence("an `op_type` of one letter beside `table` and `op_ts`")
    return None


class OggSettings(FormatSettings):
    """Of the format `ogg_json`."""

    topic: str = topic_option()


class OggJson(ArrowFormat):
    """GoldenGate's operations: insert, update, delete and truncate, each with the images that it has.

    Decoding: `before` and `after` are taken as they are; a column that one does not hold (compressed updates hold the
    key and what changed) is absent, and an image without columns is none. The table's name is read from its end: name,
    schema, container. `op_ts` is UTC and becomes `event_time`; `source` has `pos`, and `csn`, `xid`, `tokens` where
    they are written. The key is named by `primary_keys`. Encoding: images as they are; numbers as JSON numbers; the
    Kafka key is the values of the row's key with `_` between.

    Ordering: the offset. Idempotence: the rows alone decide the bytes. Process: executors; nothing is
    asked when `decode` is called.
    """

    name = "ogg_json"
    settings: OggSettings
    reads = frozenset(
        (
            Feature.TRUNCATE, Feature.TOMBSTONE, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.KEY,
            Feature.KEY_CHANGE, Feature.DATABASE, Feature.SCHEMA_NAME, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.EVENT_MILLISECONDS,
            Feature.EVENT_MICROSECONDS, Feature.TRANSACTION, Feature.SOURCE,
        )
    )  # fmt: skip
    writes = frozenset(
        (
            Feature.TRUNCATE, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.KEY, Feature.KEY_CHANGE,
            Feature.SCHEMA_NAME, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.EVENT_MILLISECONDS, Feature.EVENT_MICROSECONDS,
            Feature.TRANSACTION,
        )
    )  # fmt: skip

    written_columns = (
        "op", "table", "key", "before", "after", "before_absent", "after_absent", "position", "event_time",
        "capture_time", "transaction", "source", "schema_id",
    )  # fmt: skip

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        """An `op_type` of one letter beside `table` and `op_ts`."""
        return recognise(message)

    def decoder(self, facts: Facts) -> GoldenGateDecoder:
        return GoldenGateDecoder(TableOptions.of(self.settings, facts))

    def encoder(self, facts: Facts) -> GoldenGateEncoder:
        return GoldenGateEncoder(facts, self.settings.topic)
