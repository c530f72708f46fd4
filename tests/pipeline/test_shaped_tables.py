"""What a Delta table holds after batches that were routed and filtered on their way, snapshots above all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.changes import TableId, TableSchema
from headrace.changes.table_pattern import table_patterns
from headrace.pipeline.shaping.routes import Route, Routes
from headrace.pipeline.shaping.shape import Shaping
from headrace.pipeline.shaping.transforms import Transform
from headrace.sinks.base import BatchId
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.testing.change_history import Batch, schema_of, table


def held(spark: Any, folder: Path, shaping: Shaping, location: str, *batches: Batch) -> list[tuple[Any, ...]]:
    """The rows of a table after the batches."""
    sink = DeltaSink.of({"path": str(folder)})
    for number, batch in enumerate(batches):
        sink.write(shaping.rows(batch.rows(spark)).persist(), BatchId("p", "c", number))
    rows = spark.read.format("delta").load(str(folder / location)).drop("_headrace_position").collect()
    return sorted(map(tuple, rows))


def test_the_end_of_one_shards_snapshot_leaves_the_rows_of_the_others(spark: Any, tmp_path: Path) -> None:
    def shard(number: int) -> TableSchema:
        return schema_of(TableId("db", f"shard_{number}", "orders"), {"id": "int32", "a": "string"}, ("id",))

    batches = [
        Batch(shard(n)).add("r", shard(n), n, {"id": str(n), "a": "read"}, snapshot="last_in_data_collection")
        for n in (1, 2)
    ]
    shaping = Shaping(routes=Routes((Route(table_patterns("shard_*.orders"), "all.orders", merge=True),)))
    assert held(spark, tmp_path, shaping, "all/orders", *batches) == [(1, "read"), (2, "read")]


def test_what_vanished_before_a_new_snapshot_goes_though_the_filter_leaves_its_last_row_out(
    spark: Any, tmp_path: Path
) -> None:
    def row(id: int, a: str) -> dict[str, str | None]:
        return {"id": str(id), "a": a, "b": None}

    t = table()
    first = Batch(t).add("r", t, 1, row(1, "x"), snapshot="first").add("r", t, 1, row(2, "x"), snapshot="last")
    again = Batch(t).add("r", t, 5, row(1, "x"), snapshot="first").add("r", t, 5, row(3, "no"), snapshot="last")
    shaping = Shaping((Transform("transform 1", filter="a <> 'no'"),))
    assert held(spark, tmp_path, shaping, "dbo/t", first, again) == [(1, "x", None)]
