"""Rule: all that is done with a batch is done with one reading of it, also when rows that were kept are lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from headrace.observe.progress import ProgressBoard
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, RowInput
from headrace.pipeline.target import Target
from headrace.settings import Settings
from headrace.sinks.base import BatchId, Sink


class LosingSink(Sink):
    """Loses the rows that Spark keeps before it reads them for the first time."""

    name: ClassVar[str] = "losing"
    options = ()
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    takes: ClassVar[Literal["messages", "changes"]] = "changes"

    def __init__(self) -> None:
        super().__init__(Settings())
        self.lost = 0
        self.found: list[str] = []

    def check(self) -> None:
        pass

    def write(self, rows: Any, batch: BatchId) -> None:
        context = rows.sparkSession.sparkContext
        if not self.lost:
            master = context._jvm.org.apache.spark.SparkEnv.get().blockManager().master()
            for number in list(context._jsc.getPersistentRDDs()):
                master.removeRdd(int(number), True)
                self.lost += 1
        self.found = sorted(row["schema_id"] for row in rows.select("schema_id").collect())


def test_a_batch_of_a_live_table_is_written_from_one_reading(spark: Any, tmp_path: Path) -> None:
    readings = tmp_path / "readings"
    readings.mkdir()
    kept = set(spark.sparkContext._jsc.getPersistentRDDs())

    def read(batches: Any) -> Any:
        for batch in batches:
            # What is read says the how-manieth reading it is.
            (n,) = batch.column("id").to_pylist()
            number = len(list(readings.glob(f"{n}.*")))
            (readings / f"{n}.{number}").touch()
            import pyarrow as pa

            yield pa.RecordBatch.from_pydict({"op": ["r"], "text": [f"reading {number} of {n}"]})

    given = spark.range(0, 2, 1, 2).mapInArrow(read, "op string, text string")
    rows = given.selectExpr(
        "op",
        "named_struct('database', 'd', 'schema', 's', 'name', text) as table",
        "timestamp'2026-01-01' as event_time",
        "timestamp'2026-01-01' as capture_time",
        "map('connector', 'x') as source",
        "text as schema_id",
    )
    sink = LosingSink()
    board = ProgressBoard()
    target = Target("losing", sink, None, "", "sink 1 (losing)")
    writer = BatchWriter("p", RowInput(live=lambda batch: True), Delivery([target], board))
    writer.begin("checkpoint")
    writer(rows, 0)
    assert sink.lost
    # What was counted is what was written: the second reading, as a whole.
    assert sink.found == ["reading 1 of 0", "reading 1 of 1"]
    assert sorted(table.table for table in board.progress(None, None).tables) == [f"s.{text}" for text in sink.found]
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= kept
