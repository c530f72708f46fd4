"""Rule: rows that a snapshot read stand in the order in which they came, each at a place of its own where it is asked
for."""

import pyarrow as pa
import pytest

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.snapshot_rows import SnapshotRows, _numbered_positions
from headrace.sources.tables.masks import Masks

C = "00000027:00000758:0005"
CHUNK = Chunk("s.t", 3, 7, None, None, C, "first", "last", 2)


def texts(count):
    return [pa.array([str(number) for number in range(count)])]


@pytest.mark.parametrize("numbered", [True, False])
def test_rows_have_the_places_of_their_chunk(numbered):
    schema = TableSchema(TableId("d", "s", "t"), (Column("v", 1, LogicalType("int32")),))
    rows = SnapshotRows(
        "c",
        schema,
        Masks().of_table(schema, ()),
        lambda _, count: pa.nulls(count, pa.map_(pa.string(), pa.string())),
        None,
    )
    batches = list(rows.of_chunk(CHUNK, [texts(1), texts(300), texts(0), texts(17)], numbered=numbered))
    found = [text for batch in batches for text in batch.column("position").to_pylist()]
    assert found == [CHUNK.position(number if numbered else 0).text for number in range(318)]


@pytest.mark.parametrize("row", [0, 15, 0xFFFF, 0x0FFFFFF0, 0xFFFFFFF0, 0xFFFFFFFD, 1 << 33])
def test_places_are_those_of_one_row_after_the_other(row):
    assert _numbered_positions(CHUNK, row, 5).to_pylist() == [CHUNK.position(row + number).text for number in range(5)]
