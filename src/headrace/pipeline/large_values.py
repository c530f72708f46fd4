"""Changes whose messages would be too large: their large values become columns that were not sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import SinkError
from headrace.local_rows import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def without_large_values(rows: DataFrame, positions: Sequence[str], most: int) -> DataFrame:
    """All change rows, those at some positions without their large values, which are then absent from both images.

    Values of the key stay. Lazy and pure: a replay leaves out the same.

    Args:
        rows: the change rows of a batch with images as maps.
        positions: where they are. Where several rows have a position (topics with several partitions), it
            means all of them.
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
    named = local_rows(rows.sparkSession, [(position,) for position in positions], "_large string")
    joined = rows.join(sf.broadcast(named), sf.expr("position = _large"), "left")
    small = f"(k, v) -> v is null or octet_length(v) <= {most} or coalesce(map_contains_key(key, k), false)"
    for image in ("before", "after"):
        joined = joined.withColumn(image, sf.expr(f"if(_large is null, {image}, map_filter({image}, {small}))"))
    return joined.drop("_large")
