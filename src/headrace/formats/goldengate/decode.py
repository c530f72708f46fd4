"""GoldenGate messages to change rows: those of rows together, every other message by itself (`others`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.constant import constant
from headrace.formats.change_columns import origin_columns, transaction_column
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.given_tables import ResolvedTables, TableOptions, image_columns
from headrace.formats.goldengate.message import FACTS, OPERATIONS, Messages
from headrace.formats.goldengate.others import other_row
from headrace.formats.json_images import ObjectImage
from headrace.wire.arrays import map_of
from headrace.wire.spans import Array
from headrace.wire.typed import instants

_CODES = constant(list(OPERATIONS.values()))
_C, _U, _D = range(3)


class GoldenGateDecoder(Codec):
    """Reads messages; what it remembers is which tables it knows."""

    def __init__(self, given: TableOptions) -> None:
        self._given = given
        self.schema = change_schema(given.typed)
        self._tables = ResolvedTables(given)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The change rows of messages, in their order."""
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
