"""Rule: a change of a database that can't be read is counted as left out, wherever its batch is encoded, and no sink
takes it for a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
import pytest

from headrace import registry
from headrace.changes import Position
from headrace.observe.messages import OTHER_REASONS, MessageCounts
from headrace.observe.progress import ProgressBoard
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, EncodedInput, RowInput
from headrace.pipeline.target import Target
from headrace.settings import Settings
from headrace.sinks.base import BatchId, Sink
from headrace.sources.change_tables.unreadable import error_rows
from headrace.sources.messages import Messages
from headrace.sources.rows import change_batch, schema_batch, table_column
from headrace.testing.change_history import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REASON = "Column 'n' of table 'dbo.t' is declared date, with a value that can't be converted."


class Sent(Sink):
    """Remembers the keys of its messages."""

    name: ClassVar[str] = "sent"
    options = ()
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    takes: ClassVar[Literal["messages", "changes"]] = "messages"

    def __init__(self) -> None:
        super().__init__(Settings())
        self.keys: list[str] = []

    def check(self) -> None:
        return None

    def write(self, rows: Any, batch: BatchId) -> None:
        self.keys += [bytes(row["key"]).decode() for row in rows.collect()]


@pytest.mark.parametrize(("by_workers", "reason"), [(False, REASON), (True, OTHER_REASONS)])
def test_it_is_counted_as_left_out_and_no_message(spark: SparkSession, by_workers: bool, reason: str) -> None:
    schema = table(key=("id",), id="int32", n="date")
    kind = pa.map_(pa.string(), pa.string())
    created = {
        "op": pa.array(["c"]),
        "table": table_column(schema.id, 1),
        "position": pa.array(["c1/1/2"]),
        "key": pa.array([[("id", "1")]], kind),
        "key_text": pa.array(['["1"]']),
        "after": pa.array([[("id", "1"), ("n", None)]], kind),
        "source": pa.array([[("connector", "sqlserver"), ("commit_lsn", "c1")]], kind),
        "schema_id": pa.array([schema.fingerprint]),
    }
    rows = [
        schema_batch(schema, Position("c0", "s"), None, "sqlserver"),
        change_batch(1, created),
        error_rows(schema.id, REASON, {"position": pa.array(["c1/2/2"])}),
    ]
    options = {"topic.prefix": "s", "include.schema.changes": "false"}
    format = registry.find("format", "debezium_json").of(options)
    given = Messages(format, counted=True).of(rows, [schema]) if by_workers else iter(rows)
    sink, kept, board = Sent(), list[MessageCounts](), ProgressBoard()
    target = Target("sent", sink, format, "debezium", "sink 1 (sent)")
    delivery = Delivery([target], board, keep=lambda _, counts: kept.append(counts))
    writer = BatchWriter("p", EncodedInput() if by_workers else RowInput(), delivery)
    writer.begin("c")
    writer(spark.createDataFrame(pa.Table.from_batches(given)), 0)
    assert sink.keys == ['{"id":1}']
    assert kept == [MessageCounts({reason: 1}, left_out=1)]
    assert [counts.rows.get("error") for counts in board.progress(None, None).tables] == [1]
