"""Rule: a slice reaches its task pickled and is there what it was."""

from __future__ import annotations

import datetime as dt
import pickle

import pytest

from headrace.changes import Column, LogicalType, Operation, Position, TableId, TableSchema
from headrace.sources.oracle import slices
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.definitions import Definition
from headrace.sources.oracle.ledger import Transaction
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.types import NativeType
from headrace.sources.rows import Marker
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import IncrementalChunk

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
ID = Column("ID", 1, LogicalType.parse("int64"), "number", nullable=False)
TABLE = OracleTable(TableSchema(TableId("X", "S", "T"), (ID,), ("ID",)), (NativeType("NUMBER", 22, 9, 0),), ("ID",))
DROP = Definition(60, "S.T", "drop table T", 55, "0x1.1.1", "aa", None, "2024-01-01 00:00:00", "+00:00")
END = Marker(Operation.SCHEMA, Position("50", "z"), {"connector": "oracle"}, TABLE.schema.id, schema=TABLE.schema)
TRANSACTION = Transaction("aa", 40, rows=2, first=41, ranges=[ScnRange(30, 50)], commit=60)
PLANNED = [
    slices.MiningSlice(ScnRange(1, 9), ("S.T",), ("X", "1")),
    slices.SnapshotSlice(TABLE, Chunk("S.T", 0, 1, ("4",), None, "50", None, "last"), NOW),
    slices.EmptyTableSlice(TABLE, Position("50", "z"), NOW),
    slices.MarkerSlice((END,), NOW),
    slices.IncrementalSlice(TABLE, IncrementalChunk("S.T", 1, 0, None, ("9",), "ID > 1", True), "50", NOW),
    slices.GapsSlice("X", {"S.T": ("1", "9")}, None),
    slices.HeartbeatSlice("50", None, NOW),
    slices.SchemasSlice((TABLE,), "49", (slices.AppliedDefinition(DROP, "X", None),), NOW),
    slices.TransactionsSlice((TRANSACTION,), {"S.T": TABLE}, ("X", "1"), NOW),
]


@pytest.mark.parametrize("planned", PLANNED, ids=lambda planned: planned.kind)
def test_a_slice_is_the_same_in_its_task(planned):
    slice = pickle.loads(pickle.dumps(planned.planned()))
    assert slice == planned.planned()
    assert slice.details["slice"] == planned
