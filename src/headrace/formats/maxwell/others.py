"""Messages that are not of rows, or can't be read: one row each, found by looking at the message by itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.changes.key_text import key_text
from headrace.formats.change_columns import error_row, present, single_row, table_parts, whole_within
from headrace.formats.json_messages import unread
from headrace.formats.maxwell.message import DATA, DDL, FACTS, HEARTBEAT, NO_EVENT, Messages
from headrace.formats.words import lower

FIRST_SECOND, LAST_MS = -62_135_596_800, 253_402_300_799_999
# Seconds reach this number in the year 5138, milliseconds passed it in 1973.
MILLISECONDS = 100_000_000_000


def other_row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    """The row of a message that is not ordinary: a tombstone, DDL, no event (its `op` is null), or an error."""
    value = batch.column("value")[number].as_py()
    if value is None:
        return _tombstone(batch, messages, number)
    problem = _problem(value, messages, number)
    if problem is not None:
        return error_row(batch, number, problem)
    kind = lower(messages.text("type", number) or "")
    row = _row(batch, messages, number)
    if kind == HEARTBEAT:
        return row | {"op": "heartbeat"}
    if kind not in DDL:
        return row
    facts = [("type", kind), ("ddl", messages.text("sql", number) or "")]
    return row | {"op": "schema", "source": [*row["source"], *facts]}


def _row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    ts = messages.text("ts", number)
    moment = whole_within(ts, FIRST_SECOND, LAST_MS)
    facts = {"connector": "mysql"} | {name: messages.text(name, number) for name in FACTS}
    facts["commit"] = "true" if facts["commit"] == "true" else None
    # Where it is not a time, the fact is all that is left of it.
    facts["ts"] = ts if moment is None else None
    xid = messages.text("xid", number)
    return single_row(batch, number) | {
        "table": table_parts(messages.text("database", number), None, messages.text("table", number)),
        "event_time": None if moment is None else (moment if moment >= MILLISECONDS else moment * 1000) * 1000,
        "transaction": None if xid is None else {"id": xid},
        "source": present(facts),
    }


def _tombstone(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    parts = messages.keys.parts(number)
    key = [(name[3:], value) for name, value in parts.items() if name.startswith("pk.")]
    return single_row(batch, number) | {
        "op": "tombstone",
        "table": table_parts(parts.get("database"), None, parts.get("table")),
        "key": key or None,
        "key_text": key_text([value for _, value in key]) if key else None,
    }


def _problem(value: bytes, messages: Messages, number: int) -> str | None:
    """Why a message can't be read; None where it can."""
    if not messages.is_form[number]:
        return unread(value, messages.tape.verdict[number], "of Maxwell's form")
    kind = messages.text("type", number)
    if kind is None:
        return "The message has no type."
    if lower(kind) not in (*DATA, *DDL, *NO_EVENT, HEARTBEAT):
        return f"Unknown type {kind}."
    has_data = messages.tape.is_value(messages.every("data")[number])
    return "The message has no data." if lower(kind) in DATA and not has_data else None
