"""The events that the Oracle and Db2 connectors' documentation of generation 2.3 shows are written byte for byte.

golden/debezium_json/README.md lists what of the documents' text is not JSON and was taken out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import debezium_recordings as recordings
import pytest

from headrace.changes import Column, LogicalType, TableId, TableSchema

EVENTS = {
    connector: {event["case"]: event["event"] for event in recordings.events(f"{connector}_2.3")}
    for connector in ("oracle", "db2")
}
COLUMNS = tuple(
    Column(name, n, LogicalType.parse(kind), native, length, nullable=False)
    for n, (name, kind, native, length) in enumerate(
        [
            ("ID", "decimal(9,0)", "NUMBER", 9),
            ("FIRST_NAME", "string", "VARCHAR2", 255),
            ("LAST_NAME", "string", "VARCHAR2", 255),
            ("EMAIL", "string", "VARCHAR2", 255),
        ],
        1,
    )
)
DB2_COLUMNS = (Column("ID", 1, LogicalType("int32"), "INTEGER", nullable=False), *COLUMNS[1:])


def table_of(connector: str, database: str, schema: str, name: str) -> TableSchema:
    return TableSchema(TableId(database, schema, name), COLUMNS if connector == "oracle" else DB2_COLUMNS, ("ID",))


def row_of(event: Mapping[str, Any], schema: TableSchema) -> dict[str, Any]:
    """The change row of a documented event; its facts are all that the block says of the source."""
    payload = event["payload"]
    block = payload["source"]
    common = ("ts_ms", "snapshot", "db", "schema", "table", "sequence")
    facts = {name: str(value) for name, value in block.items() if name not in common and value is not None}
    images = {
        name: payload[name] and {column: str(value) for column, value in payload[name].items()}
        for name in ("before", "after")
    }
    image = images["after"] or images["before"]
    connector = "oracle" if "scn" in block else "db2"
    return {
        "op": payload["op"],
        "table": {"database": schema.id.database, "schema": schema.id.schema, "name": schema.id.name},
        "key": image and {"ID": image["ID"]},
        **images,
        "event_time": recordings.instant(block["ts_ms"] * 1000),
        "capture_time": recordings.instant(payload["ts_ms"] * 1000),
        "source": {"connector": connector} | facts,
        "schema_id": schema.fingerprint,
    }


def written(rows: list[dict[str, Any]], schemas: list[TableSchema], **options: Any) -> list[Any]:
    given = {"shape": "2.3", "schemas_enable": True, "skipped_operations": "none", "tombstones_on_delete": False}
    return recordings.encoded(rows, schemas, **given | options)


def text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


ORACLE = table_of("oracle", "", "DEBEZIUM", "CUSTOMERS")
DB2 = table_of("db2", "mydatabase", "MYSCHEMA", "CUSTOMERS")
CASES = [("oracle", "server1", ORACLE), ("db2", "mydatabase", DB2)]


@pytest.mark.parametrize(("connector", "prefix", "schema"), CASES, ids=["oracle", "db2"])
def test_documented_row_events_are_written_byte_for_byte(connector: str, prefix: str, schema: TableSchema) -> None:
    events = [EVENTS[connector][case] for case in ("create", "update", "delete")]
    found = written([row_of(event, schema) for event in events], [schema], topic_prefix=prefix)
    assert [row.topic for row in found] == [f"{prefix}.{schema.id.schema}.CUSTOMERS"] * 3
    # The document shows the schema once.
    for row, event in zip(found, events, strict=True):
        assert row.value.decode() == text({"schema": events[0]["schema"], "payload": event["payload"]})
    assert [json.loads(row.key)["payload"] for row in found] == [
        {"ID": event["payload"]["after" if event["payload"]["after"] else "before"]["ID"]} for event in events
    ]


@pytest.mark.parametrize(("connector", "prefix", "schema"), CASES, ids=["oracle", "db2"])
def test_documented_keys_are_written_byte_for_byte(connector: str, prefix: str, schema: TableSchema) -> None:
    # The Oracle document's key is of another schema than its values.
    named = schema if connector == "db2" else table_of("oracle", "", "INVENTORY", "CUSTOMERS")
    row = row_of(EVENTS[connector]["create"], named)
    row = row | {"key": {"ID": "1004"}, "after": row["after"] | {"ID": "1004"}}
    (found,) = written([row], [named], topic_prefix=prefix)
    assert found.key.decode() == text(EVENTS[connector]["key"])


def test_the_documented_truncate_is_written_byte_for_byte() -> None:
    event = EVENTS["oracle"]["truncate"]
    schema = table_of("oracle", "ORCLPDB1", "DEBEZIUM", "TEST_TABLE")
    (found,) = written([row_of(event, schema)], [schema], topic_prefix="oracle_server", schemas_enable=False)
    assert found.key is None
    assert found.value.decode() == text(event["payload"])


def test_rows_of_a_known_database_have_the_whole_block_and_its_schema() -> None:
    schema = table_of("oracle", "ORCLPDB1", "DEBEZIUM", "CUSTOMERS")
    row = row_of(EVENTS["oracle"]["update"], schema)
    moved = row | {
        "before": row["before"] | {"ID": "1"},
        "transaction": {"id": "6.9.809", "total_order": 1, "data_collection_order": 1},
    }
    found = written([row, moved], [schema], topic_prefix="server1", tombstones_on_delete=True)
    assert [json.loads(m.key)["payload"]["ID"] for m in found] == [1004, 1, 1, 1004]
    assert [[h.key for h in m.headers or ()] for m in found] == [
        [],
        ["__debezium.newkey"],
        ["__debezium.newkey"],
        ["__debezium.oldkey"],
    ]
    assert found[2].value is None
    update, delete, create = (json.loads(found[n].value) for n in (0, 1, 3))
    assert list(update["payload"]["source"]) == list(EVENTS["oracle"]["truncate"]["payload"]["source"])
    assert (update["payload"]["source"]["ssn"], update["payload"]["source"]["scn"]) == (1, "2125544")
    assert update["payload"]["transaction"] is None
    assert [e["payload"]["op"] for e in (delete, create)] == ["d", "c"]
    assert [e["payload"]["transaction"]["total_order"] for e in (delete, create)] == [1, 2]
    for event in (update, delete, create):
        fields = {field["field"]: field for field in event["schema"]["fields"]}
        assert list(fields) == list(event["payload"])
        assert [field["field"] for field in fields["source"]["fields"]] == list(event["payload"]["source"])


def test_a_transaction_is_told_where_the_documented_form_has_none() -> None:
    transaction = {"id": "x", "total_order": 3, "data_collection_order": 2}
    row = row_of(EVENTS["db2"]["create"], DB2) | {"transaction": transaction}
    (found,) = written([row], [DB2], topic_prefix="mydatabase")
    event = json.loads(found.value)
    assert event["payload"]["transaction"] == transaction
    assert [field["field"] for field in event["schema"]["fields"]] == list(event["payload"])
