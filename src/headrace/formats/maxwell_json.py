"""Maxwell's JSON: one message per row of MySQL's binlog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.formats.base import COMMON, Format, topic_option
from headrace.formats.encoding import has_struct_images, struct_schema, with_structures_known
from headrace.formats.features import Feature
from headrace.formats.maxwell_decode import decode_maps, decode_structs
from headrace.formats.maxwell_encode import of_maps, of_structs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class MaxwellJson(Format):
    """Maxwell's messages: one row change each, and the table changes that it sees.

    Decoding: insert, update, delete; bootstrap-insert is a snapshot row, and bootstrap-start and bootstrap-complete are
    no event; table and database changes give a `schema` row with the text in `source['ddl']`. The old image of an
    update is the new one with `old` laid over it, and `changed` names what `old` holds. `ts` is in seconds (in
    milliseconds where it is too large for that, as in table changes) and becomes `event_time`; `xid` is the
    transaction's id and `xoffset` counts in it from 0, `total_order` from 1; the last row of a transaction has
    `source['commit']`. The key is named by `primary_key_columns`, else by Maxwell's Kafka key.

    Encoding: numbers are JSON numbers, booleans JSON booleans, all else strings, bytes as base64; snapshot rows are
    bootstrap-insert. The Kafka key is Maxwell's (`{"database":..,"table":..,"pk.id":..}`), null for a table without a
    key. A change of a key is one update.

    Ordering: the offset. Idempotence: the rows alone decide the bytes. Process: expressions in executors.

    Source: spec/format_peers.md; seed samples of Maxwell.
    """

    name = "maxwell_json"
    options = (*COMMON, topic_option("maxwell"))
    reads = frozenset(
        (
            Feature.READ, Feature.TOMBSTONE, Feature.DDL, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT,
            Feature.CHANGED, Feature.KEY, Feature.KEY_CHANGE, Feature.DATABASE, Feature.EVENT_TIME,
            Feature.TRANSACTION, Feature.TRANSACTION_ORDER, Feature.SOURCE,
        )
    )  # fmt: skip
    writes = frozenset(
        (
            Feature.READ, Feature.TOMBSTONE, Feature.DDL, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.CHANGED,
            Feature.KEY, Feature.KEY_CHANGE, Feature.DATABASE, Feature.EVENT_TIME, Feature.TRANSACTION,
            Feature.TRANSACTION_ORDER,
        )
    )  # fmt: skip

    def decode(self, messages: DataFrame) -> DataFrame:
        """Maxwell messages to change rows; with `schema`, images are structs of its types.

        Raises:
            OptionError: `schema` and `keys` contradict each other.
        """
        given, keys = self.settings["schema"], self.settings["keys"]
        if given is not None and given.single:
            return decode_structs(messages, given.only(keys), keys)
        return decode_maps(messages, keys, given.tables if given is not None else ())

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows to Maxwell messages.

        Raises:
            OptionError: a streaming DataFrame with map images without `schema`.
        """
        given, keys, topic = self.settings["schema"], self.settings["keys"], self.settings["topic"]
        if has_struct_images(changes):
            return of_structs(changes, struct_schema(changes, given, keys), topic)
        known, schemas = with_structures_known(changes, given, owner="format 'maxwell_json'", keys=keys)
        return of_maps(known, schemas, topic)
