"""Messages that are not of rows, or can't be read: one row each, found by looking at the message by itself."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.formats.change_columns import error_row, present, single_row, table_parts
from headrace.formats.goldengate.message import FACTS, OPERATIONS, Messages, table_of
from headrace.formats.json_messages import unread
from headrace.formats.words import upper
from headrace.wire.json_exact import MORE
from headrace.wire.typed import instants


def other_row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    """The row of a message that is not ordinary: a tombstone, a truncate, or an error."""
    value = batch.column("value")[number].as_py()
    if value is None:
        return single_row(batch, number) | {"op": "tombstone", "table": table_parts(None, None, None)}
    problem = _problem(value, messages, number)
    if problem is not None:
        return error_row(batch, number, problem)
    moment = instants(messages.tape, messages.index("op_ts", np.array([number]))).values[0]
    facts = {"connector": "oracle"} | {name: messages.text(name, number) for name in FACTS}
    facts["op_ts"] = None if moment.is_valid else messages.text("op_ts", number)
    id = table_of(messages.text("table", number) or "")
    return single_row(batch, number) | {
        "op": OPERATIONS[upper(messages.text("op_type", number) or "")],
        "table": table_parts(id.database, id.schema, id.name),
        "event_time": moment.value,
        "transaction": None if facts["xid"] is None else {"id": facts["xid"]},
        "source": present(facts),
    }


_SEVERAL = re.compile(rb"\}\s*\{")
_TRANSACTION = (
    "The value holds several JSON objects, as GoldenGate writes whole transactions (mode=tx). Headrace does not read "
    "that form: set gg.handler.name.mode=op."
)
_ROW_FORM = (
    "GoldenGate wrote the columns beside the operation (format=json_row), without before and after. Headrace does not "
    "read that form: set gg.handler.name.format=json."
)


def _problem(value: bytes, messages: Messages, number: int) -> str | None:
    """Why a message can't be read; None where it can."""
    if messages.tape.verdict[number] == MORE and _SEVERAL.search(value):
        return _TRANSACTION
    if not messages.is_form[number]:
        return unread(value, messages.tape.verdict[number], "of GoldenGate's form")
    letter = messages.text("op_type", number)
    if letter is None:
        return "The message has no op_type."
    op = OPERATIONS.get(upper(letter))
    if op is None:
        return f"Unknown operation {letter}."
    if messages.is_row_form(number):
        return _ROW_FORM
    if op in ("c", "u") and messages.after[number] < 0:
        return "The message has no image after the change."
    return "The message has no image before the change." if op == "d" and messages.before[number] < 0 else None
