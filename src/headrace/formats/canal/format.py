"""Canal's JSON (FlatMessage), as Canal itself, Alibaba DTS and Flink write it.

`headrace decode` recognises a message by names and values of JSON fields that only its messages have.
"""

from __future__ import annotations

import re
import zoneinfo
from typing import Any

from headrace.changes import TableId
from headrace.formats.base import FormatSettings, topic_option
from headrace.formats.canal.decode import CanalDecoder
from headrace.formats.canal.encode import CanalEncoder, EncodeSettings
from headrace.formats.canal.schemas import DecodeSettings
from headrace.formats.codec import ArrowFormat, Facts
from headrace.formats.features import Feature
from headrace.formats.recognition import Evidence, Sample
from headrace.settings import option

_ROWS = frozenset(("INSERT", "UPDATE", "DELETE", "INIT"))


def recognise(message: Sample) -> Evidence | None:
    """Why the message is one of Canal's; None where nothing says so."""
    fields = message.fields
    kind = fields.get("type")
    if not isinstance(kind, str) or not kind.isupper():
        return None
    if isinstance(fields.get("isDdl"), bool) and "es" in fields:
        return Evidence("an upper-case `type` beside `isDdl` and `es`")
    if kind in _ROWS and isinstance(fields.get("data"), list):
        return Evidence("an upper-case `type` beside rows in an array `data`")
    return None


def time_zone(given: Any) -> str:
    """The name of a zone (`Asia/Shanghai`) or an offset (`+08:00`)."""
    text = str(given).strip()
    if re.fullmatch(r"[+-](?:0\d|1[0-8]):[0-5]\d", text):
        return text
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("it is not a time zone such as Asia/Shanghai or +08:00") from error
    return text


class CanalSettings(FormatSettings):
    """Of the format `canal_json`."""

    dts_legacy_old: bool = option(
        "Decoding: whether `data` holds the old row of an update and `old` the new one, as in Alibaba DTS instances "
        "created before 2022-03-20. The messages themselves don't show it.",
        default=False,
    )
    time_zone: str | None = option(
        "The time zone of `timestamp` values, which Canal writes in the server's zone without naming it. With this "
        "option they become instants, without it local timestamps.",
        kind=time_zone,
        default=None,
        aliases=("server_time_zone",),
    )
    bytes: str = option(
        "How bytes are written: `characters`, one per byte (ISO-8859-1), as Canal does, or `base64`, as Flink does.",
        default="characters",
        choices=("characters", "base64"),
    )
    flavour: str = option(
        "Encoding: `native` writes as Canal does, `dts` as Alibaba DTS does: snapshot rows as INIT, all columns in "
        "`old`, short DDL messages.",
        default="native",
        choices=("native", "dts"),
    )
    message_key: str = option(
        "Encoding: `none`, as Canal does, which spreads the changes of a row over partitions; or `primary_key`: the "
        "row's key as a JSON array of texts, which keeps them in one partition.",
        default="none",
        choices=("none", "primary_key"),
    )
    topic: str = topic_option()


class CanalJson(ArrowFormat):
    """Canal's messages: one event of MySQL's binlog each, with all the rows that it changed.

    Decoding: INSERT, UPDATE, DELETE and DTS's INIT give a row per element of `data`, in its order; DDL gives a
    `schema` row with the text in `source['ddl']`, or a truncate; MHEARTBEAT and HEARTBEAT a heartbeat; GTID,
    XACOMMIT, XAROLLBACK, edges of transactions, TiCDC's TIDB_WATERMARK, statements without rows and empty `data`
    are no event. A message from which TiCDC left out columns (`onlyHandleKey`, a claim check) is an `error` row.
    The old image of an update is the new one with `old` laid over it, and `changed` names what `old` holds. A
    message whose rows can't all be read is one `error` row, and none of its rows is given. Where a message has
    `mysqlType` (else `sqlType`), enums and sets become their labels and bytes base64. `source` has `id` (which
    several messages share), `ts`, `gtid`; `event_time` is `es`.

    Structures are announced by a `schema` row before the first message that has them, in each task and for each topic
    and partition, unless `schema` is given.

    Encoding: `id` is that of the message a row came from, and of captured rows their serial number (`source['id']`),
    which pipelines and readers of messages ask the source for, and other readers with `serialNumbers`; else 0. Sorting
    the messages of a table by it gives the order of the source.

    Ordering: the offset, then the index in the message. Idempotence: the message alone decides its rows. Process:
    executors; nothing is asked when `decode` is called.

    Source: Canal's documentation and code (FlatMessage); Alibaba DTS's documentation of its formats in Kafka.
    """

    name = "canal_json"
    numbered = True
    settings: CanalSettings
    reads = frozenset(
        (
            Feature.READ, Feature.TRUNCATE, Feature.TOMBSTONE, Feature.SCHEMA, Feature.DDL, Feature.HEARTBEAT,
            Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.CHANGED, Feature.KEY, Feature.KEY_CHANGE,
            Feature.TYPES, Feature.DATABASE, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.EVENT_MILLISECONDS, Feature.TRANSACTION,
            Feature.BYTES, Feature.SOURCE,
        )
    )  # fmt: skip

    writes = frozenset(
        (
            Feature.TRUNCATE, Feature.DDL, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.CHANGED, Feature.KEY,
            Feature.KEY_CHANGE, Feature.TYPES, Feature.DATABASE, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.EVENT_MILLISECONDS,
            Feature.BYTES,
        )
    )  # fmt: skip

    written_columns = (
        "op", "table", "key", "key_text", "before", "after", "changed", "before_absent", "after_absent", "position",
        "event_time", "capture_time", "source", "schema_id",
    )  # fmt: skip

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        """An upper-case `type` beside what only Canal writes."""
        return recognise(message)

    def decoder(self, facts: Facts) -> CanalDecoder:
        settings = self.settings
        return CanalDecoder(
            DecodeSettings(
                legacy_old=settings.dts_legacy_old,
                zone=settings.time_zone,
                base64=settings.bytes == "base64",
                keys=settings.keys,
                given=None if settings.schema is None else facts.tables,
                typed=facts.typed,
                nulls=settings.unrepresentable == "null",
            )
        )

    def encoder(self, facts: Facts) -> CanalEncoder:
        settings = self.settings
        return CanalEncoder(
            facts,
            EncodeSettings(
                dts=settings.flavour == "dts",
                zone=settings.time_zone,
                base64=settings.bytes == "base64",
                topic=settings.topic,
                with_key=settings.message_key == "primary_key",
            ),
        )

    def name_for(self, table: TableId, connector: str = "") -> str:
        return f"{table.database}.{table.name}"
