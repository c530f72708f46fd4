"""Messages that are not of rows, or can't be read: one row each, found by looking at the message by itself."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from headrace.changes.key_text import key_text
from headrace.formats.change_columns import error_row, position_text, single_row
from headrace.formats.maxwell.message import DATA, DDL, FACTS, HEAD, NO_EVENT, Messages
from headrace.formats.words import lower
from headrace.wire.json_exact import MORE, NULL

_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
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
    if kind not in DDL:
        return row
    facts = [("type", kind), ("ddl", messages.text("sql", number) or "")]
    return row | {"op": "schema", "source": [*row["source"], *facts]}


def _row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    ts = messages.text("ts", number)
    moment = int(ts) if ts is not None and _INTEGER.fullmatch(ts) else None
    if moment is not None and not FIRST_SECOND <= moment <= LAST_MS:
        moment = None
    facts = {"connector": "mysql"} | {name: messages.text(name, number) for name in FACTS}
    facts["commit"] = "true" if facts["commit"] == "true" else None
    # Where it is no time, the fact is all that is left of it.
    facts["ts"] = ts if moment is None else None
    table = {name: messages.text(name, number) or "" for name in ("database", "table")}
    xid = messages.text("xid", number)
    return single_row(batch, number) | {
        "table": {"database": table["database"], "schema": "", "name": table["table"]},
        "position": position_text(batch, number, None),
        "event_time": None if moment is None else (moment if moment >= MILLISECONDS else moment * 1000) * 1000,
        "transaction": None if xid is None else {"id": xid},
        "source": [(name, text) for name, text in facts.items() if text is not None],
    }


def _tombstone(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    parts = messages.keys.parts(number)
    key = [(name[3:], value) for name, value in parts.items() if name.startswith("pk.")]
    return single_row(batch, number) | {
        "op": "tombstone",
        "table": {"database": parts.get("database") or "", "schema": "", "name": parts.get("table") or ""},
        "key": key or None,
        "key_text": key_text([value for _, value in key]) if key else None,
        "position": position_text(batch, number, None),
    }


def _problem(value: bytes, messages: Messages, number: int) -> str | None:
    """Why a message can't be read; None where it can."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return "The value is no UTF-8."
    if messages.tape.verdict[number] == MORE:
        return "Something stands behind the JSON object."
    if not messages.is_form[number]:
        return "The value is no JSON object of Maxwell's form."
    kind = messages.text("type", number)
    if kind is None:
        return "The message has no type."
    if lower(kind) not in (*DATA, *DDL, *NO_EVENT):
        return f"The type {kind} is not known."
    data = messages.tape.kinds(messages.at[HEAD["data"], number : number + 1])[0]
    return "The message has no data." if lower(kind) in DATA and data <= NULL else None
