"""Changes whose messages would be too large: their large values become columns that were not sent.

A change is known by where it comes from (topic, partition and offset, or table and key) and its position there; a
position alone is shared by rows of other partitions, and by all rows of a snapshot.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes.typed import literal
from headrace.errors import SinkError
from headrace.formats.base import Format
from headrace.sinks.base import Sink
from headrace.spark.local_rows import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger("headrace.pipeline")
_MOST_TOLD = 5
_DATA = "op in ('r', 'c', 'u', 'd')"
_ORIGIN = (
    "if(message.topic is null, concat('table ', concat_ws('.', nullif(table.schema, ''), table.name)), "
    "concat('topic ', message.topic, ', partition ', message.partition, ', offset ', message.offset))"
)


@dataclass(frozen=True)
class LargeChange:
    """Which change of a batch: one row, wherever the batch comes from.

    Args:
        origin: topic, partition and offset, or the table of a captured row.
        position: inside that.
        key: the key as text; None for a row without one.
    """

    origin: str
    position: str
    key: str | None

    def __str__(self) -> str:
        return self.origin if self.origin.startswith("topic ") else f"{self.origin} at position {self.position}"

    @property
    def is_it(self) -> str:
        """Spark SQL: is a row this change?"""
        key = "key_text is null" if self.key is None else f"key_text = {literal(self.key)}"
        return f"{_DATA} and position = {literal(self.position)} and {key} and {_ORIGIN} = {literal(self.origin)}"


def fitting(
    rows: DataFrame, messages: DataFrame, format: Format, sink: Sink
) -> tuple[DataFrame, Sequence[LargeChange]]:
    """The messages that a sink takes: where some are too large, all are made again, and theirs lack the large values.

    Looks at all messages in a Spark job of its own; persist them if they are dear to compute. A replay leaves out the
    same values.

    Returns:
        The messages, and the changes that lack values.

    Raises:
        SinkError: images are structs, which have all their columns.
    """
    most = sink.largest_value
    positions = [] if most is None else sink.too_large(messages)
    if most is None or not positions:
        return messages, ()
    changes = _large_changes(rows, positions, format, sink)
    _LOG.warning(
        "%d changes are sent to Kafka without their values of more than %d bytes, because their messages would be too "
        "large: %s%s.",
        len(changes),
        most,
        "; ".join(map(str, changes[:_MOST_TOLD])),
        f"; and {len(changes) - _MOST_TOLD} more" if len(changes) > _MOST_TOLD else "",
    )
    return format.encode(without_large_values(rows, changes, most)), changes


def _large_changes(rows: DataFrame, positions: Sequence[str], format: Format, sink: Sink) -> list[LargeChange]:
    """The changes behind messages at these positions.

    Where several changes have a position, which of them it is shows in the messages of each alone: a Spark job for
    every one of these, which are few, because large messages are.
    """
    from pyspark.sql import functions as sf

    # The second and third message of a change have `:1` and `:2` after its position.
    named = sorted({*positions, *(position.rpartition(":")[0] for position in positions if ":" in position)})
    wanted = sf.broadcast(local_rows(rows.sparkSession, [(position,) for position in named], "position string"))
    lines = (
        rows.where(_DATA)
        .join(wanted, "position", "left_semi")
        .selectExpr(f"{_ORIGIN} as origin", "position", "key_text")
        .distinct()
        .collect()
    )
    changes = sorted(
        (LargeChange(*row) for row in lines), key=lambda change: (change.origin, change.position, change.key or "")
    )
    shared = Counter(change.position for change in changes)

    def is_large(change: LargeChange) -> bool:
        alone = rows.where(f"op = 'schema' or ({change.is_it})")
        of_it = {change.position, f"{change.position}:1", f"{change.position}:2"}
        return any(position in of_it for position in sink.too_large(format.encode(alone)))

    return [change for change in changes if shared[change.position] == 1 or is_large(change)]


def without_large_values(rows: DataFrame, changes: Sequence[LargeChange], most: int) -> DataFrame:
    """All change rows, some without their large values, which are then absent from both images.

    Values of the key stay. Lazy and pure: a replay leaves out the same.

    Args:
        rows: the change rows of a batch with images as maps.
        changes: which ones.
        most: the bytes of the largest value, as text, that stays.

    Raises:
        SinkError: images are structs, which have all their columns.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import MapType

    if not isinstance(rows.schema["after"].dataType, MapType):
        raise SinkError(
            "Large columns can't be left out of changes whose images are structs.",
            remedy="Remove the format's option 'schema', or the sink's 'on_oversized: drop_columns'.",
        )
    lines = [(change.origin, change.position, change.key) for change in changes]
    named = local_rows(rows.sparkSession, lines, "_origin string, _position string, _key string")
    same = f"position = _position and key_text <=> _key and {_ORIGIN} = _origin and {_DATA}"
    joined = rows.join(sf.broadcast(named), sf.expr(same), "left")
    small = f"(k, v) -> v is null or octet_length(v) <= {most} or coalesce(map_contains_key(key, k), false)"
    for image in ("before", "after"):
        joined = joined.withColumn(image, sf.expr(f"if(_position is null, {image}, map_filter({image}, {small}))"))
    return joined.drop("_origin", "_position", "_key")
