"""Rule: a slice of change tables reaches its task pickled and is there what it was."""

from __future__ import annotations

import datetime as dt
import pickle

import pytest

from headrace.changes import Column, LogicalType, Operation, Position, TableId, TableSchema
from headrace.sources.change_tables import slices
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.rows import Marker
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import IncrementalChunk
from headrace.sources.sqlserver.types import NativeType

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
SCHEMA = TableSchema(
    TableId("x", "s", "t"), (Column("id", 1, LogicalType.parse("int32"), "int", nullable=False),), ("id",)
)
INSTANCE = CaptureInstance("s_t", None, (("id", 1),), True, 7)
TABLE = CapturedTable(SCHEMA, (NativeType("int", 4, 10, 0),), ("id",), instance=INSTANCE)
CHUNK = Chunk("s.t", 0, 1, ("4",), None, "50", None, "last")
WINDOW = Window(TABLE, "40", "50", newest=False)
ALTERED = Marker(
    Operation.SCHEMA, Position("40", "s", "00000"), {"connector": "c", "change": "ALTER"}, SCHEMA.id, SCHEMA
)
BEAT = Marker(Operation.HEARTBEAT, Position("50", "z"), {"connector": "c"}, event_time=NOW, capture_time=NOW)
PLANNED = [
    slices.MarkerSlice((ALTERED, BEAT), NOW),
    slices.SnapshotSlice(TABLE, CHUNK, NOW),
    slices.SessionSlice(((TABLE, CHUNK),), None),
    slices.IncrementalSlice(TABLE, IncrementalChunk("s.t", 1, 0, None, ("9",), "id > 1", True), "50", NOW),
    slices.StreamSlice(WINDOW, NOW, "Europe/Berlin", first=True),
    slices.TransactionsSlice((WINDOW,), NOW, "+02:00"),
]


@pytest.mark.parametrize("planned", PLANNED, ids=lambda planned: planned.kind)
def test_a_slice_is_the_same_in_its_task(planned):
    slice = pickle.loads(pickle.dumps(planned.planned()))
    assert slice == planned.planned()
    assert slices.slice_of(slice) == planned


@pytest.mark.parametrize("planned", PLANNED, ids=lambda planned: planned.kind)
def test_a_slice_knows_its_tables_and_their_schemas(planned):
    assert (planned.tables, list(planned.schemas)) == (("s.t",), [SCHEMA])
    assert (planned.planned().tables, planned.planned().weight) == (("s.t",), planned.weight)


def test_a_slice_begins_behind_the_commit_before_its_rows():
    begins = {planned.kind: planned.begin for planned in PLANNED}
    assert begins == {
        "markers": "40/s/00000",
        "snapshot": "50/r/",
        "session": "50/r/",
        "incremental": "50/r/",
        "stream": "40/t/",
        "transactions": "40/t/",
    }
