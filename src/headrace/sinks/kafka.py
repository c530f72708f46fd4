"""The Kafka sink: encoded messages to topics, in order per key."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace import faultpoints
from headrace.errors import OptionError, SinkError
from headrace.options import Option, Options
from headrace.sinks.base import BatchId, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POSITION_HEADER = "headrace.position"
"""The header by which a consumer knows a repeated change."""

_CONNECT_SECONDS = 5.0
_PROMISED = {"kafka.acks": ("all", "-1"), "kafka.enable.idempotence": ("true",)}


class KafkaSink(Sink):
    """Writes messages to Kafka with Spark's own Kafka writer, at least once.

    Order: messages of one key are written by one task in position order, so a consumer of a partition sees each key's
    changes in order; a retry repeats a prefix and then goes on. Messages without a key keep that order per topic.
    Idempotence: a replayed batch repeats its messages byte for byte, each with the header `headrace.position`, by
    which consumers can drop them. Runs in the driver, which starts a Spark job; executors write. The sink gets bytes
    and does not know their format.
    """

    name: ClassVar[str] = "kafka"
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "at-least-once"
    takes: ClassVar[Literal["messages", "changes"]] = "messages"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "bootstrap_servers",
            str,
            "The brokers to ask first, `host:port` with commas between.",
            aliases=("bootstrap.servers", "kafka.bootstrap.servers"),
        ),
        Option(
            "kafka.*",
            str,
            "Any setting of Kafka's producer, handed on as it is (`kafka.security.protocol`). `kafka.acks` stays `all` "
            "and `kafka.enable.idempotence` stays `true`.",
            default=None,
        ),
    )

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        for name, value in (options["kafka.*"] or {}).items():
            allowed = _PROMISED.get(name.lower())
            if allowed is not None and value.lower() not in allowed:
                raise OptionError(
                    f"Option '{name}' of sink 'kafka' can't be '{value}'.",
                    remedy=f"Messages could be lost or change order; leave it out, or set it to '{allowed[0]}'.",
                )

    def check(self) -> None:
        """Whether one of the brokers can be reached. Runs in the driver; writes nothing.

        Raises:
            SinkError: none answers on its port within five seconds each.
        """
        servers = [server.strip() for server in self.settings["bootstrap_servers"].split(",") if server.strip()]
        failures = []
        for server in servers:
            host, port = _address(server)
            try:
                with socket.create_connection((host, port), timeout=_CONNECT_SECONDS):
                    return
            except OSError as failure:
                failures.append(failure)
        raise SinkError(
            f"No Kafka broker answers at {', '.join(servers)}.",
            remedy="Check the sink's option 'bootstrap_servers' and whether the broker runs.",
        ) from (failures[0] if failures else None)

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Write a batch's messages. A replay writes them again.

        Raises:
            SinkError: Kafka did not take them; a part of them may be there.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        faultpoints.reach("sink.kafka.before_write")
        settings = {**(self.settings["kafka.*"] or {}), "kafka.acks": "all", "kafka.enable.idempotence": "true"}
        settings["kafka.bootstrap.servers"] = self.settings["bootstrap_servers"]
        try:
            in_order(rows).write.format("kafka").options(**settings).save()
        except (PySparkException, Py4JError) as failure:
            raise SinkError(
                f"Kafka at {self.settings['bootstrap_servers']} did not take batch {batch.number}.",
                remedy="--debug shows Kafka's own message. The batch can be repeated.",
            ) from failure
        faultpoints.reach("sink.kafka.after_write")


def in_order(rows: DataFrame) -> DataFrame:
    """Messages as Kafka's writer takes them: each key in one task, in position order, with the position as a header.

    Messages of one row have one position; they keep the order in which the format gave them.
    """
    from pyspark.sql import functions as sf

    numbered = rows.withColumn("_nth", sf.monotonically_increasing_id())
    together = sf.expr("coalesce(key, cast(concat_ws('/', topic, partition) as binary))")
    header = f"array(named_struct('key', '{POSITION_HEADER}', 'value', cast(position as binary)))"
    partitions = max(1, _parallelism(rows))
    return (
        numbered.repartition(partitions, together)
        .sortWithinPartitions("position", "_nth")
        .selectExpr(
            "topic",
            "partition",
            "key",
            "value",
            f"if(headers is null, {header}, concat(headers, {header})) as headers",
        )
    )


def _parallelism(rows: DataFrame) -> int:
    spark: Any = rows.sparkSession
    if hasattr(spark, "_jsparkSession"):
        return int(spark.sparkContext.defaultParallelism)
    return int(spark.conf.get("spark.sql.shuffle.partitions"))


def _address(server: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:[A-Za-z_]+://)?(\[[^\]]+\]|[^:]+):(\d+)", server)
    if found is None:
        raise SinkError(
            f"'{server}' is no broker address.", remedy="Write the option 'bootstrap_servers' as host:port,host:port."
        )
    return found[1].strip("[]"), int(found[2])
