"""Rule: what the server sends of a window becomes its change rows, in the order of their positions."""

import datetime as dt

import pyarrow as pa
from tests.sources.postgresql.recorded_messages import recorded

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.decode import WindowDecoder
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.types import TypeCatalog

RECORDING = recorded("changes")
KEYS = {"plain": "id", "whole": "id", "by_index": "code", "typed": "id", "emptied": "id", "emptied_too": "id"}
TIME = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def settings(**options):
    return PostgresSettings.parse({"database": "db", **options}, owner="source")


def captured(*names):
    found = {}
    for name in names or RECORDING.oids:
        key = () if name not in KEYS else (KEYS[name],)
        columns = tuple(Column(column, 1, LogicalType("string")) for column in key)
        oid, natives = RECORDING.oids[name], (TypeCatalog().resolve(25),) * len(key)
        schema = TableSchema(TableId("db", "public", name), columns, key)
        found[oid] = PostgresTable(schema, natives, oid=oid, leaves=(oid,))
    return found


def decoded(start, end, *, tables=None, feeds=1000, payloads=RECORDING.payloads, **options):
    """The change rows of a window."""
    decoder = WindowDecoder(start, end, tables or captured(), TypeCatalog(), settings(**options), "db", TIME)
    found = []
    for first in range(0, len(payloads), feeds):
        found += decoder.feed(payloads[first : first + feeds])
    assert decoder.finished
    found += decoder.finish()
    return pa.Table.from_batches(found).to_pylist() if found else []


def of_step(step, **options):
    return decoded(*RECORDING.window(step), **options)


def data(rows):
    return [row for row in rows if row["op"] != "schema"]


def images(rows):
    return [
        (row["op"], *(None if row[name] is None else dict(row[name]) for name in ("key", "before", "after")))
        for row in data(rows)
    ]


def test_a_schema_comes_before_the_first_row_that_follows_it():
    schema, first, second = of_step("insert")
    assert schema["op"] == "schema" and schema["schema_id"] == first["schema_id"] == second["schema_id"]
    assert [row["position"].partition("/")[2] for row in (schema, first, second)] == [
        "0000000000s/",
        "0000000001/",
        "0000000002/",
    ]


def test_a_new_row_has_its_values_and_its_key():
    _, first, _ = of_step("insert")
    assert images([first]) == [
        (
            "c",
            {"id": "1"},
            None,
            {"id": "1", "name": "one", "ok": "true", "price": "1.50", "at": "2026-01-02 03:04:05.000000", "big": None},
        )
    ]
    assert first["key_text"] == '["1"]'
    assert first["table"] == {"database": "db", "schema": "public", "name": "plain"}


def test_positions_ascend_over_all_windows():
    rows = decoded(RECORDING.bounds[0], RECORDING.bounds[-1], provide_transaction_metadata=True, messages=True)
    positions = [row["position"] for row in rows]
    assert positions == sorted(positions) and len(set(positions)) == len(positions)
