"""Workers of a source encode by schemas that they know before, and by those that `schema` rows bring."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.changes import Column, LogicalType, Position, TableId, TableSchema
from headrace.sources.images import Images
from headrace.sources.messages import Messages
from headrace.sources.rows import change_batch, repeat, schema_batch, table_column

_TABLE = TableId("shop", "public", "t")


def _schema(kind: str) -> TableSchema:
    return TableSchema(_TABLE, (Column("n", 1, LogicalType.parse(kind), nullable=False),), ("n",))


def _rows(schema: TableSchema, commit: int, *values: str) -> list[pa.RecordBatch]:
    count = len(values)
    row = Images(("n",), [pa.array(values)]).maps(np.arange(count), count, np.arange(count))
    data = change_batch(
        count,
        {
            "op": repeat("c", pa.string(), count),
            "table": table_column(_TABLE, count),
            "after": row,
            "key": row,
            "position": pa.array([Position(f"{commit:02}", str(n)).text for n in range(count)]),
            "schema_id": repeat(schema.fingerprint, pa.string(), count),
        },
    )
    return [schema_batch(schema, Position(f"{commit:02}"), None, "postgresql"), data]


def test_a_schema_that_a_row_brings_encodes_the_rows_behind_it_like_one_known_before() -> None:
    old, new = _schema("int32"), _schema("decimal(9,2)")
    rows = [*_rows(old, 1, "1", "2"), *_rows(new, 2, "1.50")]
    messages = Messages.named("debezium_json", {"topic_prefix": "s", "schemas.enable": "true"})
    learnt = pa.Table.from_batches(messages.of(rows, []))
    assert learnt == pa.Table.from_batches(messages.of(rows, [old, new]))
    assert learnt.num_rows >= 3


def test_counts_add_up_over_schemas() -> None:
    rows = [*_rows(_schema("int32"), 1, "1", "2"), *_rows(_schema("int64"), 2, "3")]
    found = pa.Table.from_batches(
        Messages.named("debezium_json", {"topic_prefix": "s"}, counted=True).of(rows, [])
    ).to_pylist()
    counted = [row["counted"] for row in found if row["counted"]]
    assert sum(line["rows"] for line in counted if line["op"] == "c") == 3
