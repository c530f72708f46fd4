"""SharePlex's JSON messages, as Alibaba DTS writes them to Kafka.

`headrace decode` recognises a message by names and values of JSON fields that only its messages have.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.changes import TableId
from headrace.formats.base import FormatSettings, topic_option
from headrace.formats.codec import ArrowFormat, Facts
from headrace.formats.event_numbers import EVENT, SIZE, with_event_numbers
from headrace.formats.features import Feature
from headrace.formats.given_tables import TableOptions
from headrace.formats.recognition import Evidence, Sample
from headrace.formats.shareplex.decode import SharePlexDecoder
from headrace.formats.shareplex.encode import OPERATIONS, EncodeSettings, SharePlexEncoder
from headrace.settings import option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPERATIONS = re.compile(r"ins|upd|del|trunc|ddl|commit|insert|update( before| after)?|delete|truncate|drop column")


def recognise(message: Sample) -> Evidence | None:
    """Why the message is one of SharePlex'; None where nothing says so."""
    meta = message.fields.get("meta")
    if isinstance(meta, dict) and _OPERATIONS.fullmatch(str(meta.get("op")).lower()):
        return Evidence("an operation in `meta.op`")
    return None


class SharePlexSettings(FormatSettings):
    """Of the format `shareplex_json`."""

    pair_updates: bool = option(
        "Whether UPDATE BEFORE and UPDATE AFTER messages become one update with both images, if one task reads both; "
        "otherwise such an update has no old image.",
        default=True,
    )
    binary: str = option(
        "How bytes are written in the messages: `hex`, as Oracle writes them, or `base64`.",
        default="hex",
        choices=("hex", "base64"),
    )
    table_parts: int = option(
        "Encoding: the maximum number of parts of a table's name, from the right, in `meta.table`.",
        default=3,
        minimum=1,
    )
    topic: str = topic_option()


class SharePlexJson(ArrowFormat):
    """SharePlex JSON: `meta`, `data`, and for updates `key`, which is the row before.

    Decoding. An update's new row is `key` overlaid with `data`, where a null in `data` is a set NULL and a column that
    does not stand there did not change; `changed` names the columns of `data`. Values are texts without types: give
    `schema` for typed structs, and `keys` for the key, which messages do not say (else the names in a JSON object that
    is the Kafka key). The commit time is `meta.time`, in UTC where it has no zone; `posttime` is kept in `source` only.
    DROP COLUMN is a `schema` row with `source['ddl_kind']` and the names in `source['columns']`; a DDL record one with
    `source['ddl']`. No row closes a transaction: it ends where `transaction.total_order` equals `source['size']`; only
    a commit record gives an `end` row. An UPDATE BEFORE gives no row; its image is the old one of the UPDATE AFTER
    after it (same transaction and row id) where one task reads both: not where a batch, or a task's share of a
    partition, ends between them.

    Encoding. Creates and reads become `ins`, updates `upd` with the whole old row in `key` and the changed columns in
    `data`, deletes `del`, truncates `truncate`. Times and bytes are written as Oracle's texts (`T` between day and
    clock, hex), where the schema is known. `seq`, `size` and `idx` number the changes of a transaction: those of
    captured rows are counted in the batch, which has whole transactions, where the source names them
    (`provide_transaction_metadata`), and decoded ones keep theirs. They count messages, so that a change of a key is
    one; of a DataFrame that was cut elsewhere they count the part. `scn` is Oracle's; of
    other databases it is the commit's log sequence number as a decimal. The Kafka key is a JSON object of the key's
    columns.

    Ordering: none is imposed; `position` is the Kafka offset, as in all formats. Idempotence: messages alone decide
    the rows, rows alone the bytes. Process: executors; nothing is asked when `decode` is called; `encode` asks a
    batch of maps for its schemas, unless `schema` is given, and counts its transactions.
    """

    name = "shareplex_json"
    settings: SharePlexSettings
    of_transactions = "trans, seq, size and idx"
    reads = frozenset(
        (
            Feature.TRUNCATE, Feature.TOMBSTONE, Feature.DDL, Feature.EDGES, Feature.BEFORE, Feature.WHOLE_BEFORE,
            Feature.ABSENT, Feature.CHANGED, Feature.KEY_CHANGE, Feature.KEY, Feature.DATABASE, Feature.SCHEMA_NAME,
            Feature.EVENT_TIME, Feature.READ_TIME, Feature.EVENT_MILLISECONDS, Feature.EVENT_MICROSECONDS,
            Feature.TRANSACTION, Feature.TRANSACTION_ORDER, Feature.SOURCE,
        )
    )  # fmt: skip
    # No TRANSACTION_ORDER: the messages that are written are numbered, and not the source's events.
    # No DATABASE: that of a table without a schema stands where a schema would.
    writes = frozenset(
        (
            Feature.TRUNCATE, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.CHANGED,
            Feature.KEY_CHANGE, Feature.KEY, Feature.SCHEMA_NAME, Feature.EVENT_TIME, Feature.READ_TIME,
            Feature.TRANSACTION,
        )
    )  # fmt: skip

    written_columns = (
        "op", "table", "key", "before", "after", "changed", "before_absent", "after_absent", "position", "event_time",
        "transaction", "source", "schema_id", EVENT, SIZE,
    )  # fmt: skip

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        """An operation in `meta.op`."""
        return recognise(message)

    def decoder(self, facts: Facts) -> SharePlexDecoder:
        settings = self.settings
        given = TableOptions.of(settings, facts, hex=settings.binary == "hex", messages_first=False)
        return SharePlexDecoder(given, pair=settings.pair_updates)

    def encoder(self, facts: Facts) -> SharePlexEncoder:
        """From change rows to messages; their column `transaction_size` may be missing."""
        settings = self.settings
        writing = EncodeSettings(settings.topic, settings.table_parts, settings.binary == "hex", settings.keys)
        return SharePlexEncoder(facts, writing)

    def with_counts(self, changes: DataFrame) -> DataFrame:
        """Captured rows of a batch with their numbers in their transactions."""
        return with_event_numbers(changes, OPERATIONS)

    def name_for(self, table: TableId, connector: str = "") -> str:
        """As many parts of the name as `table_parts` allows."""
        return ".".join((table.database, table.schema, table.name)[-min(self.settings.table_parts, 3) :])
