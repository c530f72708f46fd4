"""Maxwell's JSON: one message per row of MySQL's binlog.

`headrace decode` recognises a message by names and values of JSON fields that only its messages have.
"""

from __future__ import annotations

import re

from headrace.changes import TableId
from headrace.formats.base import FormatSettings, topic_option
from headrace.formats.codec import ArrowFormat, Facts
from headrace.formats.features import Feature
from headrace.formats.given_tables import TableOptions
from headrace.formats.maxwell.decode import MaxwellDecoder
from headrace.formats.maxwell.encode import MaxwellEncoder
from headrace.formats.recognition import Evidence, Sample

_KINDS = re.compile(r"(insert|update|delete|bootstrap-\w+|(table|database)-(create|alter|drop))")


def recognise(message: Sample) -> Evidence | None:
    """Why the message is one of Maxwell's; None where nothing says so."""
    fields = message.fields
    kind = fields.get("type")
    if not isinstance(kind, str) or not _KINDS.fullmatch(kind) or "database" not in fields or "ts" not in fields:
        return None
    return Evidence("a lower-case `type` beside `database` and `ts`")


class MaxwellSettings(FormatSettings):
    """Of the format `maxwell_json`."""

    topic: str = topic_option("maxwell")


class MaxwellJson(ArrowFormat):
    """Maxwell's messages: one row change each, and the table changes that it sees.

    Decoding: insert, update, delete; bootstrap-insert is a snapshot row, and bootstrap-start and bootstrap-complete
    are no event, and heartbeat is one; table and database changes give a `schema` row with the text in
    `source['ddl']`. The old image of an update is the new one with `old` laid over it, and `changed` names what
    `old` holds. `ts` is in seconds (in milliseconds where it is too large for that, as in table changes) and
    becomes `event_time`; `xid` is the transaction's id and `xoffset` counts in it from 0, `total_order` from 1; the
    last row of a transaction has `source['commit']`. The key is named by `primary_key_columns`, else by Maxwell's
    Kafka key.

    Encoding: numbers are JSON numbers, booleans JSON booleans, all else strings, bytes as base64; snapshot rows are
    bootstrap-insert. The Kafka key is Maxwell's (`{"database":..,"table":..,"pk.id":..}`), null for a table without a
    key. A change of a key is one update. Rows that know their position in MySQL's log say it: `position`, `gtid`,
    `server_id`, `thread_id`, and the statement as `query`; `xid` is the GTID where the transaction's id is one.

    Ordering: the offset. Idempotence: the rows alone decide the bytes. Process: executors; nothing is
    asked when `decode` is called.
    """

    name = "maxwell_json"
    settings: MaxwellSettings
    reads = frozenset(
        (
            Feature.READ, Feature.TOMBSTONE, Feature.DDL, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT,
            Feature.CHANGED, Feature.KEY, Feature.KEY_CHANGE, Feature.DATABASE, Feature.EVENT_TIME, Feature.READ_TIME,
            Feature.TRANSACTION, Feature.TRANSACTION_ORDER, Feature.SOURCE,
        )
    )  # fmt: skip
    writes = frozenset(
        (
            Feature.READ, Feature.TOMBSTONE, Feature.DDL, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.CHANGED,
            Feature.KEY, Feature.KEY_CHANGE, Feature.DATABASE, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.TRANSACTION,
            Feature.TRANSACTION_ORDER,
        )
    )  # fmt: skip

    written_columns = (
        "op", "table", "key", "before", "after", "changed", "before_absent", "after_absent", "position", "event_time",
        "transaction", "source", "schema_id",
    )  # fmt: skip

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        """A lower-case `type` beside `database` and `ts`."""
        return recognise(message)

    def decoder(self, facts: Facts) -> MaxwellDecoder:
        return MaxwellDecoder(TableOptions.of(self.settings, facts))

    def encoder(self, facts: Facts) -> MaxwellEncoder:
        return MaxwellEncoder(facts, self.settings.topic)

    def name_for(self, table: TableId, connector: str = "") -> str:
        return f"{table.database}.{table.name}"
