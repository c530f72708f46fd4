"""The differential suite for ad-hoc snapshots: asked by the recorded signal, tables are read as Debezium read them.

Its watermark rows are not compared, because we write none, and neither are the LSNs that read rows have from them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import recorded
from tests.support.recorded_events import CLOCK, NOW, comparable, differences, encoded, expected

from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.reader import source_named
from headrace_emulators.sqlserver import EmulatedServer

SIGNAL = 0x00000050_00000001_0001
LSNS = {f".value.payload.source.{name}" for name in ("change_lsn", "commit_lsn", "event_serial_no")}


def committed(number: int, table: str, rows: list[str]) -> list[str]:
    """The statements by which the recording's triggers captured a transaction."""
    lsn = f"0x{number:020X}"
    return [
        *(f"INSERT INTO cdc.dbo_{table}_CT VALUES ({row.format(lsn=lsn)})" for row in rows),
        f"INSERT INTO cdc.lsn_time_mapping VALUES ({lsn}, GETUTCDATE(), GETUTCDATE(), 0x0000000000A1, {lsn})",
    ]


def signal(script: str) -> list[str]:
    (statement,) = recorded.statements(script)
    values = statement.strip().partition("values(")[2].removesuffix(")")
    return [
        statement,
        *committed(SIGNAL, "debezium_signal", ["{lsn}, NULL, {lsn}, 2, 0x07, " + braced(values) + ", 1"]),
    ]


def braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


OLD = "{lsn}, NULL, {lsn}, 3, 0x08, 1002, 'George', 'Bailey', 'gbailey@foobar.com', 1"
IN_WINDOW = committed(
    0x00000050_00000003_0001,
    "customers",
    [OLD, OLD.replace(" 3,", " 4,").replace("gbailey@", "in-window@")],
)


def test_tables_are_read_again_as_recorded(tmp_path, spark, monkeypatch):
    server = EmulatedServer(tmp_path / "server")
    database = server.create_database("testDB", enable_cdc=False)
    source = source_named(
        "sqlserver",
        {
            "driver": "emulator",
            "hostname": str(server.directory),
            "database": "testDB",
            "tables": ",".join(f"dbo.{table}" for table in recorded.TABLES),
            "provide.transaction.metadata": "true",
            "signal.data.collection": "testDB.dbo.debezium_signal",
            "incremental.snapshot.chunk.size": "2",
        },
    )
    window = list(IN_WINDOW)

    def reach(name: str) -> None:
        while name == "source.incremental.read" and window:
            database.execute(window.pop(0))

    monkeypatch.setattr("headrace.faultpoints.reach", reach)
    offset = Offset.nothing()
    changes: list[Any] = []
    steps = [[sql for script in scripts for sql in recorded.statements(script)] for scripts in recorded.STEPS]
    for statements in (*steps, signal("07_signal.sql")):
        changes.clear()
        for statement in statements:
            database.execute(statement)
        while (end := source.advance(offset, Limit(), NOW)) != offset:
            changes += [batch for piece in source.plan(offset, end) for batch in source.read(piece)]
            offset = end
    got = encoded(spark, pa.Table.from_batches(changes), {"shape": "1.7"})
    wanted = expected("1.7.2_incremental")
    for table, rows in (("customers", 3), ("composite", 3)):
        mine, theirs = (
            [m for m in messages[f"server1.dbo.{table}"] if m["value"] and read_beside(m)] for messages in (got, wanted)
        )
        assert len(mine) == len(theirs) == rows
        for left, right in zip(mine, theirs, strict=True):
            assert set(differences(without_time(left), without_time(right))) <= LSNS
    updates = [m["value"]["payload"]["op"] for m in got["server1.dbo.customers"]]
    assert updates == ["r", "r", "r", "u"]


def read_beside(message: dict[str, Any]) -> bool:
    return bool(message["value"]["payload"]["source"]["snapshot"] == "incremental")


def without_time(message: dict[str, Any]) -> dict[str, Any]:
    found = comparable(message)
    found["value"]["payload"]["source"]["ts_ms"] = CLOCK
    return found
