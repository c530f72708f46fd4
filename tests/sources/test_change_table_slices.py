"""Rule: a slice of change tables reaches its task as JSON values and is there what it was."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from headrace.changes import Column, LogicalType, Operation, Position, TableId, TableSchema
from headrace.sources.change_tables import slices
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance
from headrace.sources.change_tables.schema_history import Window
from headrace.sources.markers import Marker
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import IncrementalChunk
from headrace.sources.sqlserver.dialect import SqlServer
from headrace.sources.sqlserver.types import NativeType

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
TIME = "2026-11-21T12:00:00+00:00"
SCHEMA = TableSchema(
    TableId("x", "s", "t"), (Column("id", 1, LogicalType.parse("int32"), "int", nullable=False),), ("id",)
)
INSTANCE = CaptureInstance("s_t", None, (("id", 1),), True, 7)
TABLE = CapturedTable(SCHEMA, (NativeType("int", 4, 10, 0),), ("id",), instance=INSTANCE)
CHUNK = Chunk("s.t", 0, 1, ("4",), None, "50", None, "last")
CHUNK_JSON = {"table": "s.t", "ordinal": 0, "number": 1, "lower": ["4"], "upper": None, "commit": "50",
              "opening": None, "closing": "last", "read": 0}  # fmt: skip
WINDOW = Window(TABLE, "40", "50", newest=False)
WINDOW_JSON = {**TABLE.to_json(), "after": "40", "upto": "50", "newest": False}
ALTERED = Marker(
    Operation.SCHEMA, Position("40", "s", "00000"), {"connector": "c", "change": "ALTER"}, SCHEMA.id, SCHEMA
)
BEAT = Marker(Operation.HEARTBEAT, Position("50", "z"), {"connector": "c"}, event_time=NOW, capture_time=NOW)
NOTHING = {"table": None, "schema_id": None, "table_schema": None, "snapshot": None, "event_time": None,
           "capture_time": None, "error": None}  # fmt: skip
PLANNED = [
    (
        slices.MarkerSlice((ALTERED, BEAT), NOW),
        {"rows": [{**NOTHING, "op": "schema", "table": ["x", "s", "t"], "position": "40/s/00000",
         "source": {"connector": "c", "change": "ALTER"}, "schema_id": SCHEMA.fingerprint,
         "table_schema": SCHEMA.to_text()}, {**NOTHING, "op": "heartbeat", "position": "50/z/",
         "source": {"connector": "c"}, "event_time": TIME, "capture_time": TIME}], "capture_time": TIME},
    ),
    (
        slices.SnapshotSlice(TABLE, CHUNK, NOW),
        {**TABLE.to_json(), "chunk": CHUNK_JSON, "capture_time": TIME},
    ),
    (
        slices.SessionSlice(((TABLE, CHUNK),), None),
        {"tables": [{**TABLE.to_json(), "chunk": CHUNK_JSON}], "capture_time": None},
    ),
    (
        slices.IncrementalSlice(TABLE, IncrementalChunk("s.t", 1, 0, None, ("9",), "id > 1", True), "50", NOW),
        {**TABLE.to_json(), "chunk": {"table": "s.t", "request": 1, "number": 0, "lower": None, "upper": ["9"],
         "filter": "id > 1", "opening": True, "read": 0, "key": []}, "commit": "50", "capture_time": TIME},
    ),
    (
        slices.StreamSlice(WINDOW, NOW, "Europe/Berlin", first=True),
        {**WINDOW_JSON, "capture_time": TIME, "zone": "Europe/Berlin", "first": True},
    ),
    (
        slices.TransactionsSlice((WINDOW,), NOW, "+02:00"),
        {"windows": [WINDOW_JSON], "capture_time": TIME, "zone": "+02:00"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("planned", "values"), PLANNED, ids=[planned.kind for planned, _ in PLANNED])
def test_a_slice_is_written_and_read_as_json_values(planned, values):
    text = json.dumps(planned.to_json(), sort_keys=True)
    assert text == json.dumps(values, sort_keys=True)
    assert type(planned).from_json(json.loads(text), SqlServer()) == planned
    assert slices.slice_of(planned.planned(), SqlServer()) == planned


def test_every_kind_of_slice_is_read():
    assert set(slices._KINDS) == {planned.kind for planned, _ in PLANNED}


@pytest.mark.parametrize(("planned", "values"), PLANNED, ids=[planned.kind for planned, _ in PLANNED])
def test_a_slice_knows_its_tables_and_their_schemas(planned, values):
    assert (planned.tables, list(planned.schemas)) == (("s.t",), [SCHEMA])
    assert (planned.planned().tables, planned.planned().weight) == (("s.t",), planned.weight)


def test_a_slice_begins_behind_the_commit_before_its_rows():
    begins = {planned.kind: planned.begin for planned, _ in PLANNED}
    assert begins == {
        "markers": "40/s/00000",
        "snapshot": "50/r/",
        "session": "50/r/",
        "incremental": "50/r/",
        "stream": "40/t/",
        "transactions": "40/t/",
    }
