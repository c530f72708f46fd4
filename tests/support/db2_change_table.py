"""Rows of a change table of Db2 as the driver gives them, read as the source reads them."""

from __future__ import annotations

import pyarrow as pa

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.db2.change_rows import ChangeReader
from headrace.sources.db2.types import NativeType

NATIVES = (NativeType("INTEGER", 4, 0), NativeType("VARCHAR", 20, 0))
COLUMNS = (Column("ID", 1, LogicalType("int32"), "INTEGER"), Column("V", 2, LogicalType("string"), "VARCHAR"))


def rows_of(changes, *, key=("ID",), size=100, **options):
    """What a reader makes of rows written as `commit operation id value`."""
    schema = TableSchema(TableId("db", "S", "T"), COLUMNS, key)
    raw = []
    for number, change in enumerate(changes):
        commit, operation, id, value = change.split()
        sequences = (f"{int(commit):032X}", f"{number:032X}")
        raw.append((*sequences, operation, int(id), None if value == "-" else value))
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(column) for column in zip(*raw[start : start + size], strict=True)], names=list("csoiv")
        )
        for start in range(0, len(raw), size)
    ]
    reader = ChangeReader(schema, NATIVES, key, "change table", CommitTimes.unknown(), None, **options)
    return [row for batch in reader.read(iter(batches)) for row in batch.to_pylist()]
