"""SharePlex messages to change rows: those of rows together, every other message by itself (`others`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.constant import constant
from headrace.formats.change_columns import origin_columns, transaction_column
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.given_tables import ResolvedTables, TableOptions, image_columns
from headrace.formats.given_values import misfit
from headrace.formats.json_images import ObjectImage
from headrace.formats.json_messages import key_names
from headrace.formats.shareplex.message import NEW, OLD, C, D, Messages, U
from headrace.formats.shareplex.others import other_row
from headrace.wire.arrays import map_of
from headrace.wire.spans import Array

_CODES = constant(["c", "u", "d", None, "u"])
"""Operations by the index of a kind; the first half of an update gives no row."""


class SharePlexDecoder(Codec):
    """Reads messages; what it remembers is which tables it knows, and first halves of updates.

    Args:
        given: what the user said of the tables.
        pair: whether the old image of an UPDATE AFTER is that of the UPDATE BEFORE in front of it.
    """

    def __init__(self, given: TableOptions, *, pair: bool) -> None:
        self._given, self._pair = given, pair
        self.schema = change_schema(given.typed)
        self._tables = ResolvedTables(given)
        self._halves: pa.RecordBatch | None = None

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The change rows of messages, in their order."""
        batch = kafka_batch(batch)
        # First halves that still wait are read once more, with the messages in which their second ones may be.
        waiting = 0 if self._halves is None else self._halves.num_rows
        if self._halves is not None:
            batch = pa.concat_batches([self._halves, batch])
        messages = Messages(batch.column("value"))
        old = _old_objects(messages)
        if self._pair:
            left = _paired(batch, messages, old)
            self._halves = batch.take(pa.array(left)) if left else None
        rows = np.flatnonzero(messages.ordinary)
        problems: dict[int, str] = {}
        whole = self._columns(batch, messages, rows, old[rows], problems)
        found = all_rows(whole, rows, problems, batch, lambda number: [other_row(batch, messages, number)])
        yield found.slice(waiting)

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: Array, old: Array, problems: dict[int, str]
    ) -> pa.RecordBatch:
        tape, kind, nothing = messages.tape, messages.kind[rows], np.int32(-1)
        data, key_part = messages.data[rows], messages.key[rows]
        is_update = (kind == U) | (kind == NEW)
        laid = is_update & (key_part >= 0) & (data >= 0)
        new = np.where(kind == C, data, np.where(is_update, np.where(key_part >= 0, key_part, data), nothing))
        over = np.where(laid, data, nothing)
        table = messages.tables.take(pa.array(rows))
        keys = batch.column("key").take(pa.array(rows))
        known = self._tables.numbers(table, key_names(keys))
        wrong = self._tables.write_canonical(tape, np.concatenate([old, new, over]), np.tile(known, 3))
        before = ObjectImage.of(tape, np.where(kind == OLD, nothing, old))
        after = ObjectImage.of(tape, new, over)
        newest = ObjectImage.of(tape, np.where(kind == D, old, new), over)
        seq, size, trans = messages.numbers("seq", rows), messages.numbers("size", rows), messages.texts("trans", rows)
        facts = {
            "scn": messages.texts("scn", rows),
            "rowid": messages.texts("rowid", rows),
            "userid": messages.texts("userid", rows),
            "size": size.cast(pa.string()),
            "posttime": messages.texts("posttime", rows),
        }
        columns: dict[str, pa.Array] = {
            **origin_columns(batch, rows),
            **self._tables.columns(table, newest, known),
            "op": _CODES.take(pa.array(kind)),
            "changed": ObjectImage.of(tape, over).names(),
            "event_time": messages.times.values.take(pa.array(rows)),
            "transaction": transaction_column(trans, pc.or_(trans.is_valid(), seq.is_valid()), total_order=seq),
            "source": map_of([("connector", pa.repeat("oracle", rows.size)), *facts.items()]),
        }
        if self._given.typed is not None:
            declared = {column.name: column for column in self._given.typed.columns}
            for number, column, at in wrong:
                row = number % max(1, rows.size)
                if declared[column].logical.spark_type == "binary":
                    problems.setdefault(int(rows[row]), misfit(declared[column], tape.text(at) or ""))
        images = {"before": before, "after": after}
        columns |= image_columns(
            images, columns["key"], self._given, self.schema, rows, problems, self._tables.given(known)
        )
        return change_batch(columns, self.schema, rows.size)


def _old_objects(messages: Messages) -> Array:
    """The row before, or a deleted row, of each message; -1 where it has none."""
    kind, nothing = messages.kind, np.int32(-1)
    whole = np.where(messages.data >= 0, messages.data, messages.key)
    old = np.where(np.isin(kind, (D, OLD)), whole, np.where(np.isin(kind, (U, NEW)), messages.key, nothing))
    return old.astype(np.int32)


def _paired(batch: pa.RecordBatch, messages: Messages, old: Array) -> list[int]:
    """Give second halves of updates the old images of their first ones; the first halves that still wait."""
    last: dict[tuple[object, ...], int | None] = {}
    halves = np.flatnonzero(messages.is_form & np.isin(messages.kind, (OLD, NEW)))
    if not halves.size:
        return []
    seq = messages.numbers("seq", halves).to_pylist()
    order = dict(zip(halves.tolist(), seq, strict=True))
    said = [messages.texts(name, halves).to_pylist() for name in ("table", "trans", "rowid")]
    offsets = batch.column("offset")
    for index, number in enumerate(halves.tolist()):
        where = (batch.column("topic")[number].as_py(), batch.column("partition")[number].as_py())
        of = (*where, *(column[index] for column in said))
        first = last.get(of)
        last[of] = number if messages.kind[number] == OLD else None
        if messages.kind[number] != NEW or first is None:
            continue
        # Without a row id only the very next message can be the other half.
        beside = said[2][index] is not None or offsets[number].as_py() == (offsets[first].as_py() or 0) + 1
        here, there = order[number], order[first]
        if beside and (here is None or there is None or here - there in (0, 1)):
            old[number] = old[first]
    return sorted(number for number in last.values() if number is not None)
