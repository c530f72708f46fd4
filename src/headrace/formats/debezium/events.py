"""Events of change rows: their kinds, and the images and keys that they hold, as maps or as structs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.images import constant
from headrace.formats.debezium.written import WrittenColumn, WrittenSchema, columns_of, equal_values, typed_texts
from headrace.formats.images import carried
from headrace.wire.json_columns import JsonColumns
from headrace.wire.json_rows import Cells, moved
from headrace.wire.spans import Array

DATA = ("r", "c", "u", "d", "t")
MOVED_FROM, MOVED_TO = 5, 6
LETTERS = constant([*DATA, "d", "c"])
"""The operations of events by number: those of rows, and the two of a changed key."""
READ, CREATE, UPDATE, DELETE, TRUNCATE = range(5)
HAS_BEFORE, HAS_AFTER = (UPDATE, DELETE, MOVED_FROM), (READ, CREATE, UPDATE, MOVED_TO)


@dataclass
class Events:
    """Events of one form: change rows, and what kind of event each gives.

    Args:
        rows: the change rows.
        row: their numbers in the batch.
        kind: the operation of each event, as its index in `LETTERS`.
        index: the index of its message among those of the row.
        schema_number: the number of its schema.
        connector: the name of the connector of its row.
    """

    rows: pa.RecordBatch
    row: Array
    kind: Array
    index: Array
    schema_number: Array
    connector: pa.DictionaryArray

    def only(self, kept: Array) -> Events:
        """Some of them, by their numbers, which may come more than once."""
        rows, connector = (column.take(pa.array(kept)) for column in (self.rows, self.connector))
        return Events(rows, self.row[kept], self.kind[kept], self.index[kept], self.schema_number[kept], connector)


class Layouts:
    """The columns of the schemas that a task has met, as rows and keys are written of them."""

    def __init__(self, written: Sequence[WrittenSchema]) -> None:
        self.written = tuple(written)
        self.rows: list[WrittenColumn] = [s for one in written for s in one.row]
        self.key_columns: list[WrittenColumn] = [s for one in written for s in one.key]
        self.any_columns: list[WrittenColumn] = [s for one in written for s in one.any_key]
        self.row: JsonColumns = columns_of([one.row for one in written])
        alike = all(one.old_row is one.row for one in written)
        self.old_row: JsonColumns = self.row if alike else columns_of([one.old_row for one in written])
        # A router may add a field to the key, so the closing brace is written after it.
        self.key: JsonColumns = columns_of([one.key for one in written], "")
        self.typed_key: JsonColumns = columns_of([one.typed_key for one in written], "")
        self.any_key: JsonColumns = columns_of([one.any_key for one in written])
        self.keyed: Array = np.array([bool(one.schema.key) for one in written], np.bool_)
        self.has_columns: Array = np.array([bool(one.schema.columns) for one in written], np.bool_)
        indexes = []
        for one in written:
            index = {column.name: n for n, column in enumerate(one.schema.columns)}
            indexes += [index[name] for name in one.schema.key]
        self.key_indexes: Array = np.array(indexes, np.int64)


class EventImages:
    """The images of events, as maps or as structs of typed columns."""

    def __init__(self, layouts: Layouts, events: Events, *, typed: bool) -> None:
        self._layouts, self._events, self._typed = layouts, events, typed
        self._texts: dict[str, list[pa.StringArray]] = {}
        self._cells: dict[str, Cells] = {}

    def key_moved(self) -> Array:
        """Which updates changed the key: a key column that the old image carries and that differs."""
        events, rows = self._events, self._events.rows
        asked = (
            (events.kind == UPDATE) & self._layouts.keyed[events.schema_number] if len(self._layouts.keyed) else None
        )
        if asked is None or not asked.any():
            return np.zeros(events.kind.size, np.bool_)
        asked &= rows.column("before").is_valid().to_numpy(zero_copy_only=False)
        if self._typed:
            return self._typed_moved(asked)
        old = self.cells("before", np.isin(events.kind, HAS_BEFORE))
        layouts = self._layouts
        first, count = layouts.key.layout.first, layouts.key.layout.count
        is_moved = np.zeros(asked.size, np.bool_)
        for cells in self._own_keys(asked):
            is_moved |= moved(old, cells, asked, layouts.key_indexes, first, count)
        return is_moved

    def _own_keys(self, asked: Array) -> list[Cells]:
        keys, events = self._events.rows.column("key"), self._events
        cells = [Cells.of_maps(self._layouts.key, keys, events.schema_number, asked)]
        without = asked & keys.is_null().to_numpy(zero_copy_only=False)
        if without.any():
            cells.append(Cells.of_maps(self._layouts.key, events.rows.column("after"), events.schema_number, without))
        return cells

    def _typed_moved(self, asked: Array) -> Array:
        rows, schema = self._events.rows, self._layouts.written[0].schema
        before, after = rows.column("before"), rows.column("after")
        kept = self._carried("before")
        is_moved = np.zeros(asked.size, np.bool_)
        for name, index in zip(schema.key, self._layouts.key_indexes, strict=True):
            differs = ~equal_values(pc.struct_field(before, name), pc.struct_field(after, name))
            is_moved |= differs if kept is None else differs & kept[:, index]
        return is_moved & asked

    def cells(self, name: str, held: Array) -> Cells:
        cached = self._cells.get(name)
        if cached is not None:
            return cached
        column, events = self._events.rows.column(name), self._events
        columns = self._layouts.old_row if name == "before" else self._layouts.row
        if not self._typed:
            cached = Cells.of_maps(columns, column, events.schema_number, held)
        else:
            present = held & column.is_valid().to_numpy(zero_copy_only=False)
            cached = Cells.of_columns(columns, self._column_texts(name), present, self._carried(name))
        self._cells[name] = cached
        return cached

    def _column_texts(self, name: str) -> list[pa.StringArray]:
        texts = self._texts.get(name)
        if texts is None:
            columns = self._events.rows.column(name).flatten()
            written = self._layouts.written[0].row
            texts = [typed_texts(values, one) for values, one in zip(columns, written, strict=True)]
            self._texts[name] = texts
        return texts

    def _carried(self, name: str) -> Array | None:
        """Which columns the structs of a row carry; None where all carry all."""
        columns = self._layouts.written[0].schema.columns
        return carried(self._events.rows.column(f"{name}_absent"), [column.name for column in columns])

    def keys(self, old: Array, keyed: Array, from_map: Array) -> list[Cells]:
        """The cells of keys, each event's in one of them.

        Args:
            old: whether the key is that of the old row.
            keyed: whether the event has a key.
            from_map: whether it is that of the row's `key`.
        """
        events, layouts = self._events, self._layouts
        rows = events.rows
        keys = rows.column("key")
        has_map = keys.is_valid().to_numpy(zero_copy_only=False)
        if self._typed:
            return self._typed_keys(old, keyed)
        direct = keyed & from_map & has_map
        images = [Cells.of_maps(layouts.key, keys, events.schema_number, direct)]
        rest = keyed & ~direct
        if rest.any():
            images += [
                Cells.of_maps(layouts.key, rows.column(name), events.schema_number, rest & of)
                for name, of in (("before", old), ("after", ~old))
            ]
        return images

    def _typed_keys(self, old: Array, keyed: Array) -> list[Cells]:
        rows, layouts, events = self._events.rows, self._layouts, self._events
        keyed = keyed & (events.kind != TRUNCATE)
        before, after = (rows.column(name).is_valid().to_numpy(zero_copy_only=False) for name in ("before", "after"))
        there = np.where(old, before, after)
        cells = []
        if (keyed & there).any():
            choice = pa.array(old)
            texts = []
            for index in layouts.key_indexes:
                new = self._column_texts("after")[index]
                texts.append(pc.if_else(choice, self._column_texts("before")[index], new) if old.any() else new)
            cells.append(Cells.of_columns(layouts.typed_key, texts, keyed & there, None))
        cells.append(Cells.of_maps(layouts.key, rows.column("key"), events.schema_number, keyed & ~there))
        return cells
