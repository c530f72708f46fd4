"""Canal's JSON (FlatMessage), as Canal itself, Alibaba DTS and Flink write it."""

from __future__ import annotations

import re
import zoneinfo
from typing import TYPE_CHECKING, Any

from headrace.formats.base import COMMON, Format, topic_option
from headrace.formats.canal_decode import DecodePlan, decode
from headrace.formats.canal_encode import EncodePlan
from headrace.formats.canal_structs import decode as decode_structs
from headrace.formats.encoding import has_struct_images, struct_schema, with_structures_known
from headrace.formats.features import Feature
from headrace.options import Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def time_zone(given: Any) -> str:
    """The name of a zone (`Asia/Shanghai`) or an offset (`+08:00`)."""
    text = str(given).strip()
    if re.fullmatch(r"[+-](?:0\d|1[0-8]):[0-5]\d", text):
        return text
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("it is no time zone, such as Asia/Shanghai or +08:00") from error
    return text


class CanalJson(Format):
    """Canal's messages: one event of MySQL's binlog each, with all the rows that it changed.

    Decoding: INSERT, UPDATE, DELETE and DTS's INIT give a row per element of `data`, in its order; DDL gives a `schema`
    row with the text in `source['ddl']`, or a truncate; MHEARTBEAT a heartbeat; GTID, XACOMMIT, XAROLLBACK, statements
    without rows and empty `data` are no event. The old image of an update is the new one with `old` laid over it, and
    `changed` names what `old` holds. A message whose rows can't all be read is one `error` row, and none of its rows is
    given. Where a message has `mysqlType` (else `sqlType`), enums and sets become their labels and bytes base64.
    `source` has `id` (which several messages share), `ts`, `gtid`; `event_time` is `es`.

    Ordering: the offset, then the place in the message. Idempotence: the message alone decides its rows. Process:
    expressions in executors; for a batch, one job when `decode` is called looks for structures, unless `schema` is
    given.

    Source: seed 002; spec/format_canal_json.md.
    """

    name = "canal_json"
    options = (
        *COMMON,
        Option(
            "dts_legacy_old",
            bool,
            "Decoding: whether `data` holds the old row of an update and `old` the new one, as Alibaba DTS instances "
            "that were created before 2022-03-20 write; a message does not show it.",
            default=False,
        ),
        Option(
            "time_zone",
            time_zone,
            "The zone of `timestamp` values, which Canal writes in the server's without saying it; they become "
            "instants. Without it they are local timestamps.",
            default=None,
            aliases=("server_time_zone",),
        ),
        Option(
            "bytes",
            str,
            "How bytes are written: `characters`, one per byte (ISO-8859-1), as Canal does, or `base64`, as Flink "
            "does.",
            default="characters",
            choices=("characters", "base64"),
        ),
        Option(
            "flavour",
            str,
            "Encoding: `native` as Canal writes, `dts` as Alibaba DTS does: snapshot rows as INIT, all columns in "
            "`old`, short DDL messages.",
            default="native",
            choices=("native", "dts"),
        ),
        Option(
            "message_key",
            str,
            "Encoding: `none`, as Canal, which spreads the changes of a row over partitions; or `primary_key`: the "
            "row's key as a JSON array of texts, so that they stay in one partition.",
            default="none",
            choices=("none", "primary_key"),
        ),
        topic_option(),
    )
    reads = frozenset(
        (
            Feature.READ, Feature.TRUNCATE, Feature.TOMBSTONE, Feature.SCHEMA, Feature.DDL, Feature.HEARTBEAT,
            Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.CHANGED, Feature.KEY, Feature.KEY_CHANGE,
            Feature.TYPES, Feature.DATABASE, Feature.EVENT_TIME, Feature.EVENT_MILLISECONDS, Feature.TRANSACTION,
            Feature.BYTES, Feature.SOURCE,
        )
    )  # fmt: skip

    writes = frozenset(
        (
            Feature.TRUNCATE, Feature.DDL, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.CHANGED, Feature.KEY,
            Feature.KEY_CHANGE, Feature.TYPES, Feature.DATABASE, Feature.EVENT_TIME, Feature.EVENT_MILLISECONDS,
            Feature.BYTES,
        )
    )  # fmt: skip

    def decode(self, messages: DataFrame) -> DataFrame:
        """Canal messages to change rows; with `schema`, images are structs of its types.

        Raises:
            OptionError: `schema` and `keys` contradict each other.
        """
        settings, given = self.settings, self.settings["schema"]
        plan = DecodePlan(
            legacy_old=settings["dts_legacy_old"],
            zone=settings["time_zone"],
            base64=settings["bytes"] == "base64",
            keys=settings["keys"],
            tables=given.tables if given is not None else None,
        )
        if given is not None and given.single:
            return decode_structs(messages, given.only(settings["keys"]), plan)
        return decode(messages, plan)

    def encode(self, changes: DataFrame) -> DataFrame:
        """Change rows to Canal messages.

        Raises:
            OptionError: a streaming DataFrame with map images without `schema`.
        """
        from pyspark.sql.functions import lit

        settings = self.settings
        plan = EncodePlan(
            dts=settings["flavour"] == "dts",
            zone=settings["time_zone"],
            base64=settings["bytes"] == "base64",
            topic=settings["topic"],
            with_key=settings["message_key"] == "primary_key",
        )
        given, keys = settings["schema"], settings["keys"]
        if has_struct_images(changes):
            return plan.of_structs(changes, struct_schema(changes, given, keys))
        # A structure that is only inferred holds no types, and messages then say none.
        marked = changes.withColumn("has_types", changes["schema_id"].isNotNull() if given is None else lit(True))
        known, schemas = with_structures_known(marked, given, owner="format 'canal_json'", keys=keys)
        return plan.of_maps(known, schemas)
