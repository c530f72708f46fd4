"""Messages that are not of rows, or can't be read: one row each, found by looking at the message by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.changes.key_text import key_text
from headrace.formats.change_columns import error_row, present, single_row
from headrace.formats.json_messages import unread
from headrace.formats.shareplex.message import KINDS, NEW, OLD, C, D, Messages

_FACTS = ("scn", "rowid", "userid", "posttime")


def other_row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    """The row of a message that is not ordinary: an event without images, or an error."""
    value = batch.column("value")[number].as_py()
    if value is None:
        return single_row(batch, number) | {"op": "tombstone", "source": None}
    problem = _problem(value, messages, number)
    if problem is not None:
        return error_row(batch, number, problem)
    rows = np.array([number])
    kind = KINDS[messages.kind[number]]
    seq, size = (messages.numbers(name, rows)[0].as_py() for name in ("seq", "size"))
    facts = {"connector": "oracle"} | {name: messages.text(name, number) for name in _FACTS}
    facts["size"] = None if size is None else str(size)
    said = messages.members(messages.data[number])
    op = kind
    if kind == "drop":
        op = "schema"
        facts |= {"ddl_kind": "drop_column", "columns": key_text(list(said)) if said else None}
    elif kind == "ddl":
        statement = said.get("ddl") if said.get("ddl") is not None else said.get("sql")
        op = "t" if (statement or "").lstrip().lower().split(None, 1)[:1] == ["truncate"] else "schema"
        facts["ddl"] = statement
    trans = messages.text("trans", number)
    moment = messages.times.values[number]
    return single_row(batch, number) | {
        "op": op,
        "table": messages.tables[number].as_py(),
        "event_time": moment.value,
        "transaction": None if trans is None and seq is None else {"id": trans, "total_order": seq},
        "source": present(facts),
    }


def _problem(value: bytes, messages: Messages, number: int) -> str | None:
    """Why a message can't be read; None where it can."""
    if not messages.is_form[number]:
        return unread(value, messages.tape.verdict[number], "whose meta, data and key are objects")
    if not messages.has_meta[number]:
        return "The message has no meta."
    op, kind = messages.text("op", number), messages.kind[number]
    if op is None:
        return "The message has no meta.op."
    if kind < 0:
        return f"Unknown operation: {op[:80]}."
    if messages.bad_times[number]:
        return f"The time can't be read: {messages.text('time', number)}."
    if messages.bad_tables[number]:
        return f"The table can't be read: {messages.text('table', number)}."
    if kind > NEW or messages.ordinary[number]:
        return None
    if kind == C:
        return "An insert has no data."
    in_old = kind in (D, OLD)
    return "A deleted or old row has neither data nor key." if in_old else "An update has neither data nor key."
