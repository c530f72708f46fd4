"""Whole recordings of Debezium's SQL Server connector, every topic in one batch, against the tables that it read.

What the tables held comes from the change tables themselves (golden/sqlserver/input/readback.jsonl), not from messages.
Event by event, the same recordings are compared in test_debezium_decode.py.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from codec_rows import events_of
from tests.real.database_texts import same
from tests.real.recording import message_lines
from tests.real.replay import replayed

from headrace.changes import LogicalType

GOLDEN = Path(__file__).parents[1] / "golden" / "sqlserver"
RUNS = ("1.7.2_initial", "3.6.1_initial", "1.7.2_incremental")
KEYS = {"customers": ["id"], "composite": ["k2", "k1"], "orders": ["id"]}
DEFAULTS_FOR_NULL = {("orders", "qty"): "1"}
"""A NULL in a nullable column with a default is sent as the default."""
FLOATS = {"c_real": "float32", "c_float24": "float32", "c_float": "float64", "nn_float": "float64"}
DELETE, BEFORE_UPDATE = 1, 3


def records(run: str) -> list[dict[str, Any]]:
    """The events as Kafka records: offsets by topic, and the run's name before the topic's, to keep runs apart."""
    offsets: dict[str, int] = defaultdict(int)
    found = []
    for line in (GOLDEN / f"{run}.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        topic = f"{run}/{event['topic']}"
        headers = [[header["name"], text(header["value"])] for header in event["headers"]]
        found.append(
            {
                "topic": topic, "partition": 0, "offset": offsets[topic], "timestamp": 0,
                "key": text(event["key"]), "value": text(event["value"]), "headers": headers,
            }
        )  # fmt: skip
        offsets[topic] += 1
    return found


def text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.fixture(scope="module")
def decoded() -> Mapping[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {run: [] for run in RUNS}
    for row in events_of("debezium_json", message_lines([r for run in RUNS for r in records(run)])):
        found[row.message.topic.partition("/")[0]].append(row.asDict(recursive=True))
    return found


def readback() -> dict[str, list[dict[str, Any]]]:
    """The rows of each table and change table as they were read back in the end."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (GOLDEN / "input" / "readback.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found[row["table"]].append(row["row"])
    return found


def held(table: str) -> list[dict[str, str | None]]:
    """What the table holds after all changes: its rows before, and the change tables' rows in the log's order."""
    read = readback()
    rows = {tuple(row[name] for name in KEYS[table]): dict(row) for row in read[f"dbo.{table}"]}
    for change_table in (f"cdc.dbo_{table}_CT", f"cdc.dbo_{table}_v2_CT"):

        def order(row: dict[str, Any]) -> tuple[str, str, int, int]:
            number = row["__$operation"]
            return row["__$start_lsn"]["hex"], row["__$seqval"]["hex"], row["__$command_id"], number

        for row in sorted(read.get(change_table, []), key=order):
            key = tuple(row[name] for name in KEYS[table])
            if row["__$operation"] in (DELETE, BEFORE_UPDATE):
                rows.pop(key)
            else:
                rows[key] = {name: value for name, value in row.items() if not name.startswith("__$")}
    return [{name: None if value is None else str(value) for name, value in row.items()} for row in rows.values()]


@pytest.mark.parametrize("run", RUNS)
def test_every_message_is_read_and_none_is_an_error(decoded: Any, run: str) -> None:
    errors = [(row["message"]["topic"], row["message"]["offset"], row["error"]) for row in decoded[run]]
    assert [error for error in errors if error[2] is not None] == []
    read = {(row["message"]["topic"], row["message"]["offset"]) for row in decoded[run]}
    assert {(record["topic"], record["offset"]) for record in records(run)} - read == set()


@pytest.mark.parametrize("table", KEYS)
@pytest.mark.parametrize("run", ["1.7.2_initial", "3.6.1_initial"])
def test_the_changes_replayed_by_key_are_the_tables(decoded: Any, run: str, table: str) -> None:
    tables = {topic.rpartition(".")[2]: found for topic, found in replayed(decoded[run]).items()}
    got = {tuple(row.values[name] for name in KEYS[table]): row.values for row in tables[table].rows.values()}
    wanted = held(table)
    assert {tuple(row[name] for name in KEYS[table]) for row in wanted} == set(got)
    for row in wanted:
        values = got[tuple(row[name] for name in KEYS[table])]
        for name, value in row.items():
            sent = DEFAULTS_FOR_NULL.get((table, name)) if value is None else None
            assert same(value, values.get(name)) or values.get(name) == sent, (table, name, row)


@pytest.mark.parametrize("run", ["1.7.2_initial", "3.6.1_initial"])
def test_values_of_every_type_are_those_of_the_snapshot(decoded: Any, run: str) -> None:
    read = {row["id"]: row for row in readback()["dbo.all_types"]}
    rows = [row for row in decoded[run] if row["op"] == "r" and row["message"]["topic"].endswith("all_types")]
    compared = 0
    for row in rows:
        truth = read[int(row["after"]["id"])]
        for name, value in truth.items():
            if value is None or (name == "c_deffn" and truth["id"] == 3):
                # NULL beside a default comes as the default; that default is the time of the insert.
                continue
            got = row["after"][name]
            wanted = written(name, value)
            assert same(wanted, got), (name, truth["id"], wanted, got)
            compared += 1
    assert compared > 120


def written(name: str, value: Any) -> str:
    """Canonical text of a value as it was read back."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return base64.b64encode(bytes.fromhex(value["hex"])).decode()
    if name in FLOATS:
        # A binary number of 32 bits was read back with the digits of 64.
        return LogicalType(FLOATS[name]).to_text(value)
    if name == "c_guid":
        return str(value).upper()
    if value == "0E-10":
        return "0.0000000000"
    if name.startswith("c_dto"):
        return str(value).replace("+00:00", "Z")
    return str(value).replace("T", " ") if "T" in str(value) and str(value)[:1].isdigit() else str(value)
