"""In Spark a codec keeps the order of each partition, whatever stands before and behind it in the plan."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from samples import samples_of

import headrace
from headrace.formats.codec import ROWS

COUNT = 2 * ROWS + 17
PLANS = {
    "coalesced": lambda rows: rows.coalesce(1),
    "a union": lambda rows: rows.where("partition = 0").unionAll(rows.where("partition > 0")),
    "a shuffle that is planned while it runs": lambda rows: rows.repartition("partition").sortWithinPartitions(
        "partition", "offset"
    ),
}


@pytest.mark.parametrize("plan", PLANS)
def test_rows_come_in_the_order_of_their_messages(spark: Any, plan: str) -> None:
    value = next(sample.message[5] for sample in samples_of("maxwell_json") if sample.message[5])
    messages = spark.range(COUNT, numPartitions=2).selectExpr(
        "'t' as topic", "cast(spark_partition_id() as int) as partition", "id as offset",
        f"cast(unhex('{value.hex()}') as binary) as value",
    )  # fmt: skip
    rows = headrace.decode(PLANS[plan](messages), format="maxwell_json")
    sent = headrace.encode(rows.where("op is not null"), format="maxwell_json")
    for made in (rows.select("position"), sent.select("position")):
        placed = made.selectExpr("position", "spark_partition_id() as p").collect()
        assert len(placed) == COUNT
        for _, part in itertools.groupby(placed, lambda row: row.p):
            positions = [row.position for row in part]
            assert positions == sorted(positions)
