"""Rule: a slice reaches its task as JSON values and is there what it was."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from headrace.changes import Column, LogicalType, Operation, Position, TableId, TableSchema
from headrace.sources.markers import Marker
from headrace.sources.oracle import slices
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.definitions import Definition
from headrace.sources.oracle.ledger import Transaction
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.types import NativeType
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import IncrementalChunk

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
TIME = "2026-11-21T12:00:00+00:00"
ID = Column("ID", 1, LogicalType.parse("int64"), "number", nullable=False)
TABLE = OracleTable(TableSchema(TableId("X", "S", "T"), (ID,), ("ID",)), (NativeType("NUMBER", 22, 9, 0),), ("ID",))
DROP = Definition(60, "S.T", "drop table T", 55, "0x1.1.1", "aa", None, "2024-01-01 00:00:00", "+00:00")
END = Marker(Operation.SCHEMA, Position("50", "z"), {"connector": "oracle"}, TABLE.schema.id, schema=TABLE.schema)
TRANSACTION = Transaction("aa", 40, rows=2, first=41, ranges=[ScnRange(30, 50)], commit=60)
PLANNED = [
    (
        slices.MiningSlice(ScnRange(1, 9), ("S.T",), ("X", "1")),
        {"range": [1, 9], "tables": ["S.T"], "mark": ["X", "1"]},
    ),
    (
        slices.SnapshotSlice(TABLE, Chunk("S.T", 0, 1, ("4",), None, "50", None, "last"), NOW),
        {**TABLE.to_json(), "chunk": {"table": "S.T", "ordinal": 0, "number": 1, "lower": ["4"], "upper": None,
         "commit": "50", "opening": None, "closing": "last", "read": 0}, "capture_time": TIME},
    ),
    (
        slices.EmptyTableSlice(TABLE, Position("50", "z"), NOW),
        {"table": TABLE.to_json(), "position": "50/z/", "capture_time": TIME},
    ),
    (
        slices.MarkerSlice((END,), NOW),
        {"rows": [{"op": "schema", "table": ["X", "S", "T"], "position": "50/z/", "source": {"connector": "oracle"},
         "schema_id": TABLE.schema.fingerprint, "table_schema": TABLE.schema.to_text(), "snapshot": None,
         "event_time": None, "capture_time": None, "error": None}], "capture_time": TIME},
    ),
    (
        slices.IncrementalSlice(TABLE, IncrementalChunk("S.T", 1, 0, None, ("9",), "ID > 1", True), "50", NOW),
        {"table": TABLE.to_json(), "asked": {"table": "S.T", "request": 1, "number": 0, "lower": None, "upper": ["9"],
         "filter": "ID > 1", "opening": True, "read": 0, "key": []}, "commit": "50", "capture_time": TIME},
    ),
    (
        slices.GapsSlice("X", {"S.T": ("1", "9")}, None),
        {"database": "X", "gaps": {"S.T": ["1", "9"]}, "capture_time": None},
    ),
    (slices.HeartbeatSlice("50", None, NOW), {"commit": "50", "time": None, "capture_time": TIME}),
    (
        slices.SchemasSlice((TABLE,), "49", (slices.AppliedDefinition(DROP, "X", None),), NOW),
        {"tables": [TABLE.to_json()], "after": "49", "definitions": [{"commit": 60, "table": "S.T",
         "sql": "drop table T", "scn": 55, "rs_id": "0x1.1.1", "xid": "aa", "user": None,
         "time": "2024-01-01 00:00:00", "zone": "+00:00", "database": "X", "structure": None}], "capture_time": TIME},
    ),
    (
        slices.TransactionsSlice((TRANSACTION,), {"S.T": TABLE}, ("X", "1"), NOW),
        {"transactions": [{"xid": "aa", "start": 40, "start_time": None, "user": None, "first": 41, "rows": 2,
         "undo": 0, "ranges": [[30, 50]], "commit": 60, "time": None, "thread": 0, "rs_id": "", "ssn": 0,
         "zone": "+00:00", "dropped": False}], "structures": {"S.T": TABLE.to_json()}, "mark": ["X", "1"],
         "capture_time": TIME},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("planned", "values"), PLANNED, ids=[planned.kind for planned, _ in PLANNED])
def test_a_slice_is_written_and_read_as_json_values(planned, values):
    text = json.dumps(planned.to_json())
    assert text == json.dumps(values)
    assert type(planned).from_json(json.loads(text)) == planned


def test_every_kind_of_slice_is_read():
    assert set(slices._KINDS) == {planned.kind for planned, _ in PLANNED}
