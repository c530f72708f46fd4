"""Messages that are not of rows, or can't be read: one row each, found by looking at the message by itself."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from headrace.formats.canal.message import CUT, DATA, DDL, HEARTBEATS, NO_EVENT, Messages
from headrace.formats.change_columns import FIRST_MS, LAST_MS, error_row, present, single_row, table_parts, whole_within
from headrace.formats.json_messages import unread
from headrace.formats.words import BLANK, upper
from headrace.wire.json_exact import NULL

BEFORE_DDL = rf"(?is){BLANK}*+"
_TRUNCATE = re.compile(BEFORE_DDL + r"TRUNCATE\b")


def other_row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    """The row of a message that is not ordinary: an event without rows, no event (its `op` is null), or an error."""
    value = batch.column("value")[number].as_py()
    if value is None:
        return _row(batch, messages, number, "tombstone") | {"source": None}
    problem = _problem(value, messages, number)
    if problem is not None:
        return error_row(batch, number, problem, 0)
    kind = upper(messages.text("type", number) or "")
    if not _is_ddl(messages, number, kind):
        return _row(batch, messages, number, "heartbeat" if kind in HEARTBEATS else None)
    sql = messages.text("sql", number) or ""
    op = "t" if kind == "TRUNCATE" or _TRUNCATE.match(sql) else "schema"
    row = _row(batch, messages, number, op)
    source = [(name, text) for name, text in row["source"] if name != "sql"]
    return row | {"source": [*source, ("type", kind), ("ddl", sql)]}


def _row(batch: pa.RecordBatch, messages: Messages, number: int, op: str | None) -> dict[str, Any]:
    es, gtid = messages.text("es", number), messages.text("gtid", number) or None
    moment = whole_within(es, FIRST_MS, LAST_MS)
    facts = {
        "connector": "mysql",
        "id": messages.text("id", number),
        "ts": messages.text("ts", number),
        "gtid": gtid,
        "es": None if moment is not None else es,
        "sql": messages.text("sql", number) or None,
    }
    return single_row(batch, number, 0) | {
        "op": op,
        "table": table_parts(messages.text("database", number), None, messages.text("table", number)),
        "event_time": None if moment is None else moment * 1000,
        "transaction": None if gtid is None else {"id": gtid},
        "source": present(facts),
    }


def _is_ddl(messages: Messages, number: int, kind: str) -> bool:
    return upper(messages.text("isDdl", number) or "") == "TRUE" or kind in DDL


def _problem(value: bytes, messages: Messages, number: int) -> str | None:
    """Why a message can't be read; None where it can."""
    if not messages.is_form(number):
        return unread(value, messages.tape.verdict[number], "of the Canal form")
    kind = messages.text("type", number)
    if kind is None:
        return "The message has no type."
    kind = upper(kind)
    if _is_ddl(messages, number, kind):
        return None
    if kind not in DATA:
        return None if kind in (*NO_EVENT, *HEARTBEATS) else f"Unknown type {kind}."
    return _problem_of_rows(messages, number, DATA[kind])


def _problem_of_rows(messages: Messages, number: int, op: str) -> str | None:
    if messages.cut[number] >= 0:
        return list(CUT.values())[int(messages.cut[number])]
    data, old = messages.items("data", number), messages.items("old", number)
    if data is None and old is None:
        return "The message has neither data nor old."
    if data is None and op == "u":
        return "The update has no data."
    if NULL in (old if data is None else data):  # type: ignore[operator]
        return "A row of the message is null."
    if op != "u" or data is None:
        return None
    if messages.legacy_old and (old is None or NULL in old):
        return "The update has no new row in old."
    if old is not None and len(old) != len(data):
        return f"The message has {len(data)} rows in data and {len(old)} in old."
    return None
