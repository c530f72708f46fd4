"""Maxwell messages to change rows: those of rows together, every other message by itself (`others`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.constant import constant
from headrace.formats.change_columns import origin_columns, snapshot_column, table_column, transaction_column
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.given_tables import ResolvedTables, TableOptions, image_columns
from headrace.formats.json_images import ObjectImage
from headrace.formats.maxwell.message import DATA, FACTS, Messages
from headrace.formats.maxwell.others import FIRST_SECOND, LAST_MS, MILLISECONDS, other_row
from headrace.wire.arrays import map_of
from headrace.wire.spans import Array
from headrace.wire.typed import integers

_CODES = constant(list(DATA.values()))
_C, _U, _D, _R = (list(DATA.values()).index(op) for op in "cudr")
_MOST = 2**63 - 2


class MaxwellDecoder(Codec):
    """Reads messages; what it remembers is which tables it knows."""

    def __init__(self, given: TableOptions) -> None:
        self._given = given
        self.schema = change_schema(given.typed)
        self._tables = ResolvedTables(given)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The change rows of messages, in their order."""
        batch = kafka_batch(batch)
        messages = Messages(batch.column("value"), batch.column("key"))
        rows = np.flatnonzero(messages.ordinary)
        problems: dict[int, str] = {}
        whole = self._columns(batch, messages, rows, problems)
        yield all_rows(whole, rows, problems, batch, lambda number: [other_row(batch, messages, number)])

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: Array, problems: dict[int, str]
    ) -> pa.RecordBatch:
        tape, count, op = messages.tape, rows.size, messages.op[rows]
        head = {name: messages.index(name, rows) for name in ("database", "table", "ts", "xid", "xoffset", *FACTS)}
        table = table_column(tape.texts(head["database"]), tape.texts(head["table"]))
        known = self._tables.numbers(table, messages.key_names(rows))
        data, old = messages.index("data", rows), messages.index("old", rows)
        old[(op != _U) | ~tape.is_value(old)] = -1
        self._tables.write_canonical(tape, np.concatenate([data, old]), np.tile(known, 2))
        nothing = np.int32(-1)
        laid = old >= 0
        before = ObjectImage.of(tape, np.where((op == _D) | laid, data, nothing), old)
        after = ObjectImage.of(tape, np.where(op == _D, nothing, data))
        ts, xid, xoffset = integers(tape, head["ts"]), tape.texts(head["xid"]), integers(tape, head["xoffset"])
        is_time = pc.fill_null(pc.and_(pc.greater_equal(ts, FIRST_SECOND), pc.less_equal(ts, LAST_MS)), False)
        in_time = pc.if_else(is_time, ts, None)
        millis = pc.if_else(pc.greater_equal(in_time, MILLISECONDS), in_time, pc.multiply(in_time, 1000))
        counted = pc.and_(pc.greater_equal(xoffset, 0), pc.less_equal(xoffset, _MOST))
        order = pc.add(pc.if_else(counted, xoffset, None), 1)
        columns: dict[str, pa.Array] = {
            **origin_columns(batch, rows),
            **self._tables.columns(table, after.or_else(before), known),
            "op": _CODES.take(pa.array(op)),
            "changed": ObjectImage.of(tape, old).names(),
            "event_time": millis.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            "snapshot": snapshot_column(op == _R),
            "transaction": transaction_column(xid, total_order=order),
            "source": self._source(messages, head, is_time),
        }
        images = {"after": after, "before": before}
        columns |= image_columns(
            images, columns["key"], self._given, self.schema, rows, problems, self._tables.given(known)
        )
        return change_batch(columns, self.schema, count)

    def _source(self, messages: Messages, head: dict[str, Array], is_time: pa.BooleanArray) -> pa.MapArray:
        tape, nothing = messages.tape, pa.scalar(None, pa.string())
        facts = {name: tape.texts(head[name]) for name in FACTS}
        facts["commit"] = pc.if_else(pc.equal(facts["commit"], "true"), "true", nothing)
        # Where it is not a time, the fact is all that is left of it.
        facts["ts"] = pc.if_else(is_time, nothing, tape.texts(head["ts"]))
        return map_of([("connector", pa.repeat("mysql", len(is_time))), *facts.items()])
