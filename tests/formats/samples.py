"""Golden samples of a format: messages as they are on the wire, and the rows that they mean.

A folder `tests/golden/<format>/` with a `samples.jsonl` is all that a format needs to be tested by `test_samples.py`;
a `registry.json` beside it maps ids to Avro schemas. One JSON object per line: `case`, `key`, `value` (text, or
`{"base64": ..}`), `headers`, `expect` (rows), and where needed `options`, `framing`, `sequence` (lines of one sequence
are one topic, in order), `expect_error`, `typed`, `tx`, `expect_schema`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.formats.codec import ArrowFormat
from headrace.registry import find

GOLDEN = Path(__file__).parents[1] / "golden"
_OPERATIONS = {
    "c": "insert",
    "u": "update",
    "d": "delete",
    "r": "snapshot",
    "t": "truncate",
    "schema": "ddl",
    "begin": "begin",
    "end": "commit",
    "heartbeat": "heartbeat",
    "tombstone": "tombstone",
    "message": "message",
}


@dataclass(frozen=True)
class Sample:
    """One line of a samples file; `number` is its place, used as the message's offset."""

    number: int
    data: Mapping[str, Any]

    @property
    def case(self) -> str:
        return str(self.data["case"])

    @property
    def message(self) -> tuple[Any, ...]:
        headers = [(h["key"], _bytes(h.get("value", {"base64": h.get("base64")}))) for h in self.data["headers"] or ()]
        key, value = _bytes(self.data["key"]), _bytes(self.data["value"])
        return (None, 0, self.number, None, key, value, headers or None)

    @property
    def options(self) -> dict[str, Any]:
        options = dict(self.data.get("options") or {})
        if self.data.get("framing"):
            options["framing"] = self.data["framing"]
        return options

    @property
    def expected(self) -> list[dict[str, Any]]:
        """The rows, with the values that type information gives where the sample knows them."""
        rows = [dict(row) for row in self.data["expect"]]
        for row, typed in zip(rows, self.data.get("typed") or (), strict=False):
            row |= typed
        return rows


def _bytes(given: Any) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    return None if given["base64"] is None else base64.b64decode(given["base64"])


def formats_with_samples() -> list[Any]:
    """The formats whose folder has samples, as parameters; one that is not on Arrow needs Spark."""
    names = sorted(path.parent.name for path in GOLDEN.glob("*/samples.jsonl"))
    on_arrow = {name for name in names if issubclass(find("format", name), ArrowFormat)}
    return [pytest.param(name, marks=() if name in on_arrow else pytest.mark.jvm) for name in names]


def samples_of(format: str) -> list[Sample]:
    """The samples of a format, numbers kept as they are printed."""
    lines = (GOLDEN / format / "samples.jsonl").read_text().splitlines()
    return [Sample(n, json.loads(line, parse_float=str)) for n, line in enumerate(lines)]


def registry_of(format: str) -> dict[int, Any] | None:
    """The Avro schemas by id of a format's folder."""
    path = GOLDEN / format / "registry.json"
    return {int(id): schema for id, schema in json.loads(path.read_text()).items()} if path.exists() else None


def text(value: Any) -> Any:
    """An expected value as canonical text; nested values stay parsed."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict) and set(value) == {"$b64"}:
        return value["$b64"]
    return value if isinstance(value, (dict, list)) else str(value)


def difference(sample: Sample, rows: list[Any]) -> str | None:
    """What differs between what a sample expects and the change rows of its message; None where nothing does."""
    errors = [row for row in rows if row.op == "error"]
    if sample.data.get("expect_error"):
        if len(errors) == 1 and errors[0].error and errors[0].message.value == sample.message[5]:
            return None
        return f"no error row that keeps the message, but {rows}"
    if errors:
        return f"an error row: {errors[0].error}"
    wanted = sample.data.get("expect_schema")
    if wanted is not None:
        return _schema_difference(wanted, [row for row in rows if row.table_schema])
    # Structures are announced beside the rows of many messages.
    rows = [row for row in rows if not (row.op == "schema" and row.table_schema and not (row.source or {}).get("ddl"))]
    if len(rows) != len(sample.expected):
        return f"{len(rows)} rows instead of {len(sample.expected)}: {rows}"
    found = [_row_difference(expected, row) for expected, row in zip(sample.expected, rows, strict=True)]
    transaction = sample.data.get("tx")
    if transaction and rows:
        got = rows[-1].transaction
        if got is None or (got.id, got.total_order) != (transaction["id"], transaction["seq"]):
            found.append(f"transaction {got} instead of {transaction}")
    return "; ".join(filter(None, found)) or None


def _row_difference(expected: Mapping[str, Any], row: Any) -> str | None:
    got: dict[str, Any] = {
        "op": _OPERATIONS.get(row.op, row.op),
        "database": row.table and (row.table.database or None),
        "schema": row.table and (row.table.schema or None),
        "table": row.table and (row.table.name or None),
        "before": row.before,
        "after": row.after,
        "ts_ms": None if row.event_ms is None else str(row.event_ms),
        "sql": (row.source or {}).get("ddl"),
        "pk": row.key_names,
        "pk_values": row.key,
        "changed": row.changed,
    }
    found = []
    for name, wanted in expected.items():
        if name == "unavailable":
            held = [column for column in wanted if column in (row.after or {})]
            if held:
                found.append(f"{held[0]} is in the new image")
        elif name in got and not _same(wanted, got[name]):
            found.append(f"{name}: {got[name]!r} instead of {wanted!r}")
    return "; ".join(found) or None


def _same(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, dict) and set(wanted) != {"$b64"}:
        if not isinstance(got, dict) or set(wanted) != set(got):
            return False
        return all(_same_value(value, got[name]) for name, value in wanted.items())
    if isinstance(wanted, list):
        return wanted == list(got or ())
    return text(wanted) == got


def _same_value(wanted: Any, got: str | None) -> bool:
    if isinstance(wanted, (dict, list)) and not (isinstance(wanted, dict) and set(wanted) == {"$b64"}):
        return got is not None and _plain(wanted) == _plain(json.loads(got, parse_float=str))
    return text(wanted) == got


def _plain(value: Any) -> Any:
    """A nested value with bytes as base64 text."""
    if isinstance(value, dict):
        return value["$b64"] if set(value) == {"$b64"} else {name: _plain(v) for name, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _schema_difference(wanted: Mapping[str, Any], rows: list[Any]) -> str | None:
    if len(rows) != 1:
        return f"{len(rows)} schema rows instead of one"
    structure = json.loads(rows[0].table_schema)
    got = {
        "schema": structure["tableId"][1],
        "table": structure["tableId"][2],
        "columns": [column["name"] for column in structure["columns"]],
        "primary_key": structure["primaryKeyColumnNames"],
    }
    bad = [name for name, value in got.items() if wanted[name] != value]
    return f"{bad[0]}: {got[bad[0]]} instead of {wanted[bad[0]]}" if bad else None
