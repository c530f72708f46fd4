"""SharePlex's JSON messages, as Alibaba DTS writes them to Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.formats.base import COMMON, Format, topic_option
from headrace.formats.encoding import has_struct_images, struct_schema, topic_of, with_structures_known
from headrace.formats.features import Feature
from headrace.formats.messages import kafka_columns
from headrace.formats.shareplex_decode import decoded
from headrace.formats.shareplex_encode import Wire, encoded_maps, encoded_structs
from headrace.formats.shareplex_images import MapImages, StructImages
from headrace.options import Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SharePlexJson(Format):
    """SharePlex JSON: `meta`, `data`, and for updates `key`, which is the row before.

    Decoding. An update's new row is `key` overlaid with `data`, where a null in `data` is a set NULL and a column that
    does not stand there did not change; `changed` names the columns of `data`. Values are texts without types: give
    `schema` for typed structs, and `keys` for the key, which messages do not say (else the names in a JSON object that
    is the Kafka key). The commit time is `meta.time`, in UTC where it has no zone; `posttime` is kept in `source` only.
    DROP COLUMN is a `schema` row with `source['ddl_kind']` and the names in `source['columns']`; a DDL record one with
    `source['ddl']`. No row closes a transaction: it ends where `transaction.total_order` equals `source['size']`; only
    a commit record gives an `end` row. An UPDATE BEFORE gives no row; in a batch DataFrame its image is the old one of
    the UPDATE AFTER behind it (same transaction and row id), in a stream an UPDATE AFTER has no old image.

    Encoding. Creates and reads become `ins`, updates `upd` with the whole old row in `key` and the changed columns in
    `data`, deletes `del`, truncates `truncate`. Times and bytes are written as Oracle's texts (`T` between day and
    clock, hex), where the structure is known. The Kafka key is a JSON object of the key's columns.

    Ordering: none is imposed; `position` is the Kafka offset, as in all formats. Idempotence: messages alone decide
    the rows, rows alone the bytes. Process: expressions in executors; encoding a batch of maps asks for its structures
    by a small job when `encode` is called, unless `schema` is given.

    Source: seed 002 (SharePlex JSON); spec/format_shareplex_json.md.
    """

    name = "shareplex_json"
    options = (
        *COMMON,
        Option(
            "pair_updates",
            bool,
            "Whether UPDATE BEFORE and UPDATE AFTER messages of a batch become one update with both images, for which "
            "a job looks through the messages when `decode` is called; without it, and in streams, such an update has "
            "no old image.",
            default=True,
        ),
        Option(
            "binary",
            str,
            "How bytes are written in the messages: `hex`, as Oracle spells them, or `base64`.",
            default="hex",
            choices=("hex", "base64"),
        ),
        Option(
            "table_parts",
            int,
            "Encoding: how many parts of a table's name, from the right, `meta.table` has at most.",
            default=3,
            minimum=1,
        ),
        topic_option(),
    )
    reads = frozenset(
        (
            Feature.TRUNCATE,
            Feature.TOMBSTONE,
            Feature.DDL,
            Feature.EDGES,
            Feature.BEFORE,
            Feature.WHOLE_BEFORE,
            Feature.ABSENT,
            Feature.CHANGED,
            Feature.KEY_CHANGE,
            Feature.KEY,
            Feature.DATABASE,
            Feature.SCHEMA_NAME,
            Feature.EVENT_TIME,
            Feature.EVENT_MILLISECONDS,
            Feature.EVENT_MICROSECONDS,
            Feature.TRANSACTION,
            Feature.TRANSACTION_ORDER,
            Feature.SOURCE,
        )
    )
    writes = frozenset(
        (
            Feature.TRUNCATE,
            Feature.BEFORE,
            Feature.WHOLE_BEFORE,
            Feature.ABSENT,
            Feature.CHANGED,
            Feature.KEY_CHANGE,
            Feature.KEY,
            # No DATABASE: that of a table without a schema stands where a schema would.
            Feature.SCHEMA_NAME,
            Feature.EVENT_TIME,
            Feature.TRANSACTION,
            Feature.TRANSACTION_ORDER,
        )
    )

    def decode(self, messages: DataFrame) -> DataFrame:
        """Kafka columns to change rows, with structs where `schema` holds one structure, else maps.

        Raises:
            OptionError: `schema` can't be read, or `keys` names a column that it lacks.
        """
        given, keys = self.settings["schema"], tuple(self.settings["keys"])
        images: MapImages | StructImages
        if given is not None and given.single:
            images = StructImages(given.only(keys), self.settings["binary"])
        else:
            images = MapImages(given.tables if given is not None else (), keys, self.settings["binary"])
        pair = self.settings["pair_updates"] and not messages.isStreaming
        return decoded(kafka_columns(messages), images, pair=pair)

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows to messages; reads become inserts, and rows that are no data give no message.

        Raises:
            OptionError: a streaming DataFrame of map images without the option `schema`, or a bad `topic`.
        """
        given, keys = self.settings["schema"], tuple(self.settings["keys"])
        wire = Wire(topic_of(self.settings["topic"]), self.settings["table_parts"], self.settings["binary"])
        if has_struct_images(changes):
            schema = struct_schema(changes, given, keys)
            return encoded_structs(changes, schema, wire)
        rows, schemas = with_structures_known(changes, given, owner=f"format '{self.name}'", keys=keys)
        return encoded_maps(rows, schemas, keys, wire)
