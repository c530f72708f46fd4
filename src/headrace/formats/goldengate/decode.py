"""GoldenGate messages to change rows: those of rows together, every other message by itself.

A message that is not of a row, or can't be read, becomes one row that is found by reading it by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.images import constant
from headrace.formats.change_columns import (
    error_row,
    origin_columns,
    present,
    single_row,
    table_parts,
    transaction_column,
    upper,
)
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.given_tables import ResolvedTables, TableOptions, image_columns
from headrace.formats.goldengate.message import FACTS, OPERATIONS, Messages, table_of
from headrace.formats.json_images import ObjectImage
from headrace.formats.json_messages import unread
from headrace.wire.arrays import map_of
from headrace.wire.json_exact import MORE
from headrace.wire.spans import Array
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


_CODES = constant(list(OPERATIONS.values()))
_C, _U, _D = range(3)


class GoldenGateDecoder(Codec):
    """Reads messages; what it remembers is which tables it knows."""

    def __init__(self, given: TableOptions) -> None:
        self._given = given
        self.schema = change_schema(given.typed)
        self._tables = ResolvedTables(given)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = kafka_batch(batch)
        messages = Messages(batch.column("value"))
        rows = np.flatnonzero(messages.ordinary)
        problems: dict[int, str] = {}
        whole = self._columns(batch, messages, rows, problems)
        yield all_rows(whole, rows, problems, batch, lambda number: [other_row(batch, messages, number)])

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: Array, problems: dict[int, str]
    ) -> pa.RecordBatch:
        tape, op, nothing = messages.tape, messages.op[rows], np.int32(-1)
        table = messages.tables(rows)
        known = self._tables.numbers(table, messages.key_names(rows))
        old = np.where(op == _C, nothing, messages.before[rows])
        new = np.where(op == _D, nothing, messages.after[rows])
        self._tables.write_canonical(tape, np.concatenate([old, new]), np.tile(known, 2))
        before, after = ObjectImage.of(tape, old), ObjectImage.of(tape, new)
        moments = instants(tape, messages.index("op_ts", rows)).values
        tokens = messages.index("tokens", rows)
        tape.compact(tokens)
        facts = {name: messages.texts(name, rows) for name in FACTS}
        # Where it is not a time, the fact is all that is left of it.
        facts["op_ts"] = pc.if_else(moments.is_valid(), pa.scalar(None, pa.string()), messages.texts("op_ts", rows))
        columns: dict[str, pa.Array] = {
            **origin_columns(batch, rows),
            **self._tables.columns(table, after.or_else(before), known),
            "op": _CODES.take(pa.array(op)),
            "event_time": moments,
            "transaction": transaction_column(facts["xid"]),
            "source": map_of([("connector", pa.repeat("oracle", rows.size)), *facts.items()]),
        }
        images = {"before": before, "after": after}
        columns |= image_columns(
            images, columns["key"], self._given, self.schema, rows, problems, self._tables.given(known)
        )
        return change_batch(columns, self.schema, rows.size)
