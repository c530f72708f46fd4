"""Change rows of a block: of changes, and of what stands between them.

Events are numbered in their transactions, which get their BEGIN and END.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Operation
from headrace.changes.images import constant
from headrace.sources.log.row_images import RowImages
from headrace.sources.postgresql.blocks import Block, Transactions
from headrace.sources.postgresql.layouts import Layouts
from headrace.sources.postgresql.markers import CONNECTOR
from headrace.sources.rows import Tally, change_batch, instants, number_events, with_fact
from headrace.wire import pgoutput_kernels as kernels
from headrace.wire.arrays import map_array, text_array
from headrace.wire.json_writer import string_lists
from headrace.wire.spans import Array

_OPERATIONS = (
    Operation.CREATE,
    Operation.UPDATE,
    Operation.DELETE,
    Operation.TRUNCATE,
    Operation.SCHEMA,
    Operation.MESSAGE,
    Operation.BEGIN,
    Operation.END,
)
_TEXTS = constant([op.value for op in _OPERATIONS])
CODES = {op: code for code, op in enumerate(_OPERATIONS)}
"""The number of each operation in `Rows`."""
_FACTS = constant(["connector", "txId", "lsn", "sequence"])
_CONNECTOR = np.frombuffer(CONNECTOR.encode(), np.uint8)
_MOST_OF_FACTS = 80 + len(CONNECTOR)
_MOST_OF_POSITION = 34
_RANKS = 4
FIRST, ANNOUNCED, ITSELF, LAST = range(_RANKS)
"""Where a row stands among those of one message."""


class Rows(NamedTuple):
    """Rows that a batch will have, a column each.

    Args:
        order: where each stands: after all with a lower number.
        ops: the number of the operation.
        transactions: the number of the transaction.
        ordinals: the ordinal in the position; -1 for none.
        marks: the letter after it; 0 for none.
        subs: the sub-order in the position; -1 for none.
        lsns: the LSN.
        tables: the number of the layout; -1 for none.
        old, new: the numbers of the images; -1 for none.
        total: how many events the transaction has up to here, this one included; of an END all; -1 for no event. As
            long as nothing is numbered, for how many events the row counts.
        own: the same among the events of the table.
    """

    order: Array
    ops: Array
    transactions: Array
    ordinals: Array
    marks: Array
    subs: Array
    lsns: Array
    tables: Array
    old: Array
    new: Array
    total: Array
    own: Array

    @classmethod
    def at(
        cls,
        messages: Array,
        rank: int,
        op: Operation | Array,
        *,
        transactions: Array,
        ordinals: Array | int,
        lsns: Array,
        mark: str = "\0",
        subs: Array | int = -1,
        tables: Array | int = -1,
        old: Array | int = -1,
        new: Array | int = -1,
        total: Array | int = -1,
    ) -> Self:
        """Rows at some messages of a block.

        Args:
            messages: their numbers.
            rank: where the row stands among those of its message.
            op: the operation, or for each row the number of its own.
            mark: the letter of all.
            transactions, ordinals, lsns, subs, tables, old, new, total: as of the class, or one number for all.
        """

        def whole(part: Array | int) -> Array:
            return part if isinstance(part, np.ndarray) else np.full(len(messages), part, np.int64)

        return cls(
            messages * _RANKS + rank,
            whole(CODES[op] if isinstance(op, Operation) else op),
            transactions,
            whole(ordinals),
            np.full(len(messages), ord(mark), np.uint8),
            whole(subs),
            lsns,
            whole(tables),
            whole(old),
            whole(new),
            whole(total),
            whole(-1),
        )

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """All rows in their order; those of one place stay in the order given."""
        filled = [part for part in parts if len(part.order)]
        if len(filled) == 1:
            return filled[0]
        if not filled:
            return parts[0]
        joined = cls(*(np.concatenate(columns) for columns in zip(*filled, strict=True)))
        return joined.only(np.argsort(joined.order, kind="stable"))

    @property
    def messages(self) -> Array:
        return self.order // _RANKS

    def only(self, chosen: Array) -> Self:
        """Some of the rows: a mask, or their numbers."""
        return type(self)(*(column[chosen] for column in self))


class RowWriter:
    """Makes batches of change rows.

    Args:
        layouts: the tables that rows are of.
        capture_time: when the batch was planned.
        numbered: whether rows say their position in their transaction.
    """

    def __init__(self, layouts: Layouts, capture_time: dt.datetime | None, *, numbered: bool) -> None:
        self._layouts = layouts
        self._capture_time = capture_time
        self._numbered = numbered

    def batch(
        self, rows: Rows, images: RowImages, transactions: Transactions, facts: Mapping[str, Mapping[int, str]]
    ) -> pa.RecordBatch:
        """Change rows.

        Args:
            rows: in their order.
            images: those that rows speak of.
            transactions: those that rows speak of.
            facts: what `source` says besides, by the order of the row.
        """
        arrays, count = self._layouts.arrays, len(rows.order)
        numbers = rows.transactions
        columns = {
            "op": _TEXTS.take(pa.array(rows.ops)),
            "position": _positions(rows, transactions.commits[numbers]),
            "event_time": pa.array(transactions.times[numbers]).cast(pa.timestamp("us", tz="UTC")),
            "capture_time": instants(self._capture_time, count),
            "source": _facts(rows.lsns, transactions.xids[numbers], transactions.previous[numbers]),
            "before": images.maps(rows.old, arrays.captured, arrays.names),
            "after": images.maps(rows.new, arrays.captured, arrays.names),
        }
        none = rows.tables < 0
        tables = pa.array(rows.tables, mask=none if none.any() else None)
        if len(arrays.names):
            parts = [part.take(tables) for part in (arrays.databases, arrays.namespaces, arrays.tables)]
            mask = pa.array(none) if none.any() else None
            columns["table"] = pa.StructArray.from_arrays(parts, names=["database", "schema", "name"], mask=mask)
            columns["schema_id"] = arrays.fingerprints.take(tables)
            columns |= self._keys(rows, images)
        announced = rows.ops == CODES[Operation.SCHEMA]
        if announced.any():
            announced_as: list[str | None] = [None] * count
            for row in np.flatnonzero(announced).tolist():
                announced_as[row] = self._layouts.all[rows.tables[row]].table.schema.to_text()
            columns["table_schema"] = pa.array(announced_as, pa.string())
        if self._numbered:
            columns["transaction"] = _places(rows, transactions)
        batch = change_batch(count, columns)
        if transactions.origins:
            batch = _with_origins(batch, numbers, transactions)
        for name, texts in facts.items():
            if texts:
                batch = with_fact(batch, name, pa.array([texts.get(at) for at in rows.order.tolist()], pa.string()))
        return batch

    def _keys(self, rows: Rows, images: RowImages) -> dict[str, pa.Array]:
        arrays = self._layouts.arrays
        chosen: Array = np.where(rows.new >= 0, rows.new, rows.old)
        chosen[arrays.key_sizes[rows.tables] == 0] = -1
        keys = images.maps(chosen, arrays.key, arrays.key_names)
        offsets = keys.offsets.to_numpy()
        return {"key": keys, "key_text": string_lists(offsets, keys.items, chosen >= 0)}


def _positions(rows: Rows, commits: Array) -> pa.StringArray:
    count = len(commits)
    offsets, out = np.empty(count + 1, np.int32), np.empty(count * _MOST_OF_POSITION, np.uint8)
    kernels.write_positions(commits, rows.ordinals, rows.marks, rows.subs, offsets, out)
    return text_array(offsets, out[: int(offsets[-1])], None, 0)


def _places(rows: Rows, transactions: Transactions) -> pa.StructArray:
    """The column `transaction`."""
    parts = [pa.array(numbers).cast(pa.string()) for numbers in (transactions.xids, transactions.commits)]
    ids = pc.binary_join_element_wise(*parts, ":").take(pa.array(rows.transactions))
    is_edge = (rows.ops == CODES[Operation.BEGIN]) | (rows.ops == CODES[Operation.END])
    counted = [pa.array(column, mask=column < 0) for column in (rows.total, rows.own)]
    return pa.StructArray.from_arrays(
        [ids, *counted],
        names=["id", "total_order", "data_collection_order"],
        mask=pa.array((rows.total < 0) & ~is_edge),
    )


def _facts(lsns: Array, xids: Array, previous: Array) -> pa.MapArray:
    count = len(lsns)
    maps, names = np.empty(count + 1, np.int32), np.empty(4 * count, np.int32)
    offsets, out = np.empty(4 * count + 1, np.int32), np.empty(count * _MOST_OF_FACTS, np.uint8)
    kernels.write_facts(_CONNECTOR, xids, lsns, previous, maps, names, offsets, out)
    size = int(maps[-1])
    values = text_array(offsets[: size + 1], out[: int(offsets[size])], None, 0)
    return map_array(maps, _FACTS.take(pa.array(names[:size])), values)


def _with_origins(batch: pa.RecordBatch, numbers: Array, transactions: Transactions) -> pa.RecordBatch:
    count = len(transactions.commits)
    origins = [transactions.origins.get(number) for number in range(count)]
    at = pa.array(numbers)
    names = pa.array([origin and origin.name for origin in origins], pa.string()).take(at)
    commits = pa.array([origin and str(origin.commit) for origin in origins], pa.string()).take(at)
    return with_fact(with_fact(batch, "origin", names), "origin_lsn", commits)


MESSAGES = "message"
"""What the end of a transaction calls its logical messages, which are of no table."""


class EventNumbers:
    """Numbers the events of transactions; keeps what was counted of one that goes on.

    Args:
        layouts: the tables that rows are of.
    """

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._open = Tally()
        self._names: dict[str, int] = {MESSAGES: 0}
        self._of_layouts: list[int] = []

    def number(self, rows: Rows, block: Block, transactions: Transactions) -> tuple[Rows, Mapping[str, dict[int, str]]]:
        """The rows with their numbers and the edges of transactions, and the facts of these.

        Args:
            rows: those that are events have in `total` for how many they count; with 0 they are left out.
            block: where they come from.
            transactions: those of the block.
        """
        rows = rows.only(rows.total != 0)
        events = np.flatnonzero(rows.total > 0)
        count = int(transactions.of.max(initial=0)) + 1
        tallies = [self._open, *(Tally() for _ in range(count - 1))]
        before = self._open.events
        begins = rows.only(events[:0])
        if len(events):
            groups = rows.transactions[events]
            total, of_table = number_events(groups, self._tables(rows.tables[events]), rows.total[events], tallies)
            numbered = rows._replace(total=rows.total.copy(), own=rows.own.copy())
            numbered.total[events], numbered.own[events] = total, of_table
            rows = numbered
            begun, firsts = np.unique(groups, return_index=True)
            begins = self._begins(rows.only(events[firsts if not before or begun[0] else firsts[1:]]), transactions)
        ends, facts = self._ends(block, transactions, tallies)
        goes_on = transactions.between.open is not None
        self._open = tallies[-1] if goes_on else Tally()
        return Rows.together([begins, rows, ends]), {"data_collections": facts}

    @staticmethod
    def _begins(first: Rows, transactions: Transactions) -> Rows:
        return Rows.at(
            first.messages,
            FIRST,
            Operation.BEGIN,
            transactions=first.transactions,
            ordinals=-1,
            lsns=transactions.commits[first.transactions],
        )

    def _ends(self, block: Block, transactions: Transactions, tallies: list[Tally]) -> tuple[Rows, dict[int, str]]:
        at = np.flatnonzero(block.messages.kinds == kernels.COMMIT)
        counts = np.array([tally.events for tally in tallies], np.int64)[transactions.of[at]]
        at, counts = at[counts > 0], counts[counts > 0]
        of = transactions.of[at]
        rows = Rows.at(
            at,
            LAST,
            Operation.END,
            transactions=of,
            ordinals=-1,
            lsns=transactions.commits[of],
            mark="z",
            total=counts,
        )
        names = list(self._names)
        facts = {
            place: tallies[number].collections(names)
            for place, number in zip(rows.order.tolist(), of.tolist(), strict=True)
        }
        return rows, facts

    def _tables(self, layouts: Array) -> Array:
        for layout in self._layouts.all[len(self._of_layouts) :]:
            self._of_layouts.append(self._names.setdefault(layout.table.id.path, len(self._names)))
        # The last is for rows of no table, whose layout is -1.
        return np.array([*self._of_layouts, 0], np.int64)[layouts]
