"""Maxwell messages to change rows: those of rows together, every other message by itself (`others`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.change_columns import message_column, positions, struct_column, table_column
from headrace.formats.codec import Codec, change_batch, change_schema, kafka_batch, single_rows
from headrace.formats.given_tables import Given, KnownTables, image_columns
from headrace.formats.json_images import ObjectImage
from headrace.formats.maxwell.message import DATA, FACTS, Messages
from headrace.formats.maxwell.others import FIRST_SECOND, LAST_MS, MILLISECONDS, other_row
from headrace.wire.arrays import map_of
from headrace.wire.spans import Array
from headrace.wire.typed import integers

_CODES = pa.array(list(DATA.values()), pa.string())
_C, _U, _D, _R = (list(DATA.values()).index(op) for op in "cudr")
_MOST = 2**63 - 2


class MaxwellDecoder(Codec):
    """Reads messages; what it remembers is which tables it knows."""

    def __init__(self, given: Given) -> None:
        self._typed = given.typed
        self.schema = change_schema(given.typed)
        self._tables = KnownTables(given)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The change rows of messages, in their order."""
        batch = kafka_batch(batch)
        messages = Messages(batch.column("value"), batch.column("key"))
        rows = np.flatnonzero(messages.ordinary)
        problems: dict[int, str] = {}
        whole = self._columns(batch, messages, rows, problems)
        yield single_rows(whole, rows, problems, batch, lambda number: other_row(batch, messages, number))

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: Array, problems: dict[int, str]
    ) -> pa.RecordBatch:
        tape, count, op = messages.tape, rows.size, messages.op[rows]
        head = {name: messages.place(name, rows) for name in ("database", "table", "ts", "xid", "xoffset", *FACTS)}
        table = table_column(tape.texts(head["database"]), tape.texts(head["table"]))
        known = self._tables.numbers(table, messages.key_names(rows))
        data, old = messages.place("data", rows), messages.place("old", rows)
        old[(op != _U) | ~tape.is_value(old)] = -1
        self._tables.spell(tape, np.concatenate([data, old]), np.tile(known, 2))
        nothing = np.int32(-1)
        laid = old >= 0
        before = ObjectImage.of(tape, np.where((op == _D) | laid, data, nothing), old)
        after = ObjectImage.of(tape, np.where(op == _D, nothing, data))
        key, key_text = after.or_else(before).key(self._tables.key_sets(), known)
        ts, xid, xoffset = integers(tape, head["ts"]), tape.texts(head["xid"]), integers(tape, head["xoffset"])
        is_time = pc.fill_null(pc.and_(pc.greater_equal(ts, FIRST_SECOND), pc.less_equal(ts, LAST_MS)), False)
        in_time = pc.if_else(is_time, ts, None)
        millis = pc.if_else(pc.greater_equal(in_time, MILLISECONDS), in_time, pc.multiply(in_time, 1000))
        counted = pc.and_(pc.greater_equal(xoffset, 0), pc.less_equal(xoffset, _MOST))
        order = pc.add(pc.if_else(counted, xoffset, None), 1)
        of_batch = batch if count == batch.num_rows else batch.take(pa.array(rows))
        columns: dict[str, pa.Array] = {
            "op": _CODES.take(pa.array(op)),
            "table": table,
            "key": key,
            "key_text": key_text,
            "changed": ObjectImage.of(tape, old).names(),
            "position": positions(of_batch.column("offset")),
            "event_time": millis.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            "capture_time": of_batch.column("timestamp"),
            "snapshot": pc.if_else(pa.array(op == _R), "true", pa.scalar(None, pa.string())),
            "transaction": struct_column(
                self.schema.field("transaction").type, {"id": xid, "total_order": order}, xid.is_valid()
            ),
            "source": self._source(messages, head, is_time),
            "schema_id": self._tables.schema_ids(known),
            "message": message_column(of_batch),
        }
        columns |= image_columns({"after": after, "before": before}, self._typed, self.schema, rows, problems)
        return change_batch(columns, self.schema, count)

    def _source(self, messages: Messages, head: dict[str, Array], is_time: pa.BooleanArray) -> pa.MapArray:
        tape, nothing = messages.tape, pa.scalar(None, pa.string())
        facts = {name: tape.texts(head[name]) for name in FACTS}
        facts["commit"] = pc.if_else(pc.equal(facts["commit"], "true"), "true", nothing)
        # Where it is no time, the fact is all that is left of it.
        facts["ts"] = pc.if_else(is_time, nothing, tape.texts(head["ts"]))
        connector = pa.array(["mysql"]).take(pa.array(np.zeros(len(is_time), np.int64)))
        return map_of([("connector", connector), *facts.items()])
