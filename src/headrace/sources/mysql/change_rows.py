"""Change rows of a block of steps: of changes, of statements, and of the edges of transactions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Operation
from headrace.changes.images import constant
from headrace.sources.log.row_images import RowImages
from headrace.sources.mysql.binlog_position import BinlogPosition, file_name
from headrace.sources.mysql.layouts import Layouts
from headrace.sources.mysql.transactions import Transaction
from headrace.sources.rows import change_batch, instants, with_fact
from headrace.wire.arrays import fixed_texts, map_of
from headrace.wire.json_writer import string_lists
from headrace.wire.spans import Array

_OPERATIONS = (
    Operation.CREATE,
    Operation.UPDATE,
    Operation.DELETE,
    Operation.TRUNCATE,
    Operation.SCHEMA,
    Operation.BEGIN,
    Operation.END,
)
_TEXTS = constant([op.value for op in _OPERATIONS])
CODES = {op: code for code, op in enumerate(_OPERATIONS)}
"""The number of each operation in `Rows`."""
UNCHECKED = "off"
"""The fact `foreign_key_checks` of rows whose session had foreign keys switched off; others have no such fact."""
_RANKS = 3
FIRST, ITSELF, LAST = range(_RANKS)
"""Where a row stands among those of one step."""
_ORDINAL, _SUB = b"0" * 10, b"0" * 5


class TransactionFacts(NamedTuple):
    """What rows say of their transaction.

    Args:
        commit: the text of its position.
        gtid, time, server: see `Transaction`.
    """

    commit: str
    gtid: str | None
    time: int
    server: int


@dataclass
class Steps:
    """What rows say of the events that they come from.

    Args:
        log: the base name of the log's files.
        transactions: the transactions of a block.
        of: of each event the number of its transaction.
        files: the number of its file.
        positions: where it begins.
        threads, queries, statements: what `source` says besides.
        unchecked: whether the session had foreign keys switched off.
    """

    log: str
    transactions: list[TransactionFacts] = field(default_factory=list)
    of: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    threads: list[int | None] = field(default_factory=list)
    queries: list[str | None] = field(default_factory=list)
    statements: list[str | None] = field(default_factory=list)
    unchecked: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.of)

    def add(
        self,
        transaction: Transaction,
        file: int,
        position: int,
        thread: int | None = None,
        query: str | None = None,
        statement: str | None = None,
        *,
        unchecked: bool = False,
    ) -> None:
        facts = TransactionFacts(transaction.position.text, transaction.gtid, transaction.time, transaction.server)
        if not self.transactions or self.transactions[-1].commit != facts.commit:
            self.transactions.append(facts)
        # What the transaction says of itself may come with its first statement.
        self.transactions[-1] = facts
        self.of.append(len(self.transactions) - 1)
        self.files.append(file)
        self.positions.append(position)
        self.threads.append(thread)
        self.queries.append(query)
        self.statements.append(statement)
        self.unchecked.append(unchecked)

    def extend(
        self,
        transactions: list[TransactionFacts],
        of: list[int],
        file: int,
        positions: list[int],
        threads: list[int | None],
        unchecked: list[bool],
    ) -> None:
        """Events of transactions that begin here.

        Args:
            transactions: those transactions.
            of: of each event which of them it is of.
            file: the number of their file.
            positions: of each event.
            threads: of each transaction.
            unchecked: of each event.
        """
        first = len(self.transactions)
        self.transactions += transactions
        self.of += [first + number for number in of]
        self.files += [file] * len(of)
        self.positions += positions
        self.threads += [threads[number] for number in of]
        self.queries += [None] * len(of)
        self.statements += [None] * len(of)
        self.unchecked += unchecked


class Rows(NamedTuple):
    """Rows that a batch will have, a column each.

    Args:
        order: where each stands: after all with a lower number. Its step and its rank there are in it.
        ops: the number of the operation.
        ordinals: the ordinal in the position; -1 for none.
        marks: the letter after it; 0 for none.
        subs: the sub-order in the position; -1 for none.
        tables: the number of the layout; -1 for none.
        old, new: the numbers of the images; -1 for none.
        index: which row of its event it is; -1 for none.
        total: how many events the transaction has up to here, this one included; of an END all; -1 for no event. As
            long as nothing is numbered, for how many events the row counts.
        own: the same among the events of the table.
    """

    order: Array
    ops: Array
    ordinals: Array
    marks: Array
    subs: Array
    tables: Array
    old: Array
    new: Array
    index: Array
    total: Array
    own: Array

    @classmethod
    def at(
        cls,
        steps: Array,
        rank: int,
        op: Operation | Array,
        *,
        ordinals: Array | int,
        mark: str = "\0",
        subs: Array | int = -1,
        tables: Array | int = -1,
        old: Array | int = -1,
        new: Array | int = -1,
        index: Array | int = -1,
        total: Array | int = -1,
    ) -> Self:
        def whole(part: Array | int) -> Array:
            return part if isinstance(part, np.ndarray) else np.full(len(steps), part, np.int64)

        codes = CODES[op] if isinstance(op, Operation) else op
        columns = (codes, ordinals, ord(mark), subs, tables, old, new, index, total, -1)
        return cls(steps * _RANKS + rank, *map(whole, columns))

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
    def steps(self) -> Array:
        return self.order // _RANKS

    def only(self, chosen: Array | slice) -> Self:
        """Some of the rows: a mask, their numbers, or a slice."""
        return type(self)(*(column[chosen] for column in self))

    def announcing(self, chosen: Array) -> Self:
        """Rows with all that is chosen, and before each of these the row that announces its schema."""
        at = np.flatnonzero(chosen)
        if not len(at):
            return self
        first = self.only(at)
        nothing = np.full(len(at), -1, np.int64)
        schemas = first._replace(
            ops=np.full(len(at), CODES[Operation.SCHEMA], np.int64),
            ordinals=first.ordinals - 1,
            marks=np.full(len(at), ord("s"), np.int64),
            old=nothing,
            new=nothing,
            index=nothing,
            total=nothing,
            own=nothing,
        )
        return type(self)(*(np.insert(column, at, more) for column, more in zip(self, schemas, strict=True)))


class RowWriter:
    """Makes batches of change rows.

    Args:
        connector: its name in events.
        layouts: the tables that rows are of.
        capture_time: when the batch was planned.
        numbered: whether rows say their position in their transaction.
    """

    def __init__(self, connector: str, layouts: Layouts, capture_time: dt.datetime | None, *, numbered: bool) -> None:
        self._connector = connector
        self._layouts = layouts
        self._capture_time = capture_time
        self._numbered = numbered

    def batch(self, rows: Rows, images: RowImages, steps: Steps, collections: Mapping[int, str]) -> pa.RecordBatch:
        """Change rows.

        Args:
            rows: in their order.
            images: those that rows speak of.
            steps: those that rows speak of.
            collections: the fact `data_collections` of ENDs, by the order of the row.
        """
        arrays, count = self._layouts.arrays, len(rows.order)
        at = rows.steps
        transactions = np.array(steps.of, np.int64)[at]
        times = np.array([transaction.time for transaction in steps.transactions], np.int64)
        columns = {
            "op": _TEXTS.take(pa.array(rows.ops)),
            "position": _positions(rows, steps, transactions),
            "event_time": pa.array(times[transactions]).cast(pa.timestamp("us", tz="UTC")),
            "capture_time": instants(self._capture_time, count),
            "source": self._facts(rows, steps, at, transactions),
            "before": images.maps(rows.old, arrays.captured, arrays.names),
            "after": images.maps(rows.new, arrays.captured, arrays.names),
        }
        if len(self._layouts.all):
            columns |= self._tables(rows, images, at, steps)
        if self._numbered:
            columns["transaction"] = self._places(rows, steps, transactions)
        batch = change_batch(count, columns)
        if collections:
            names = [collections.get(order) for order in rows.order.tolist()]
            batch = with_fact(batch, "data_collections", pa.array(names, pa.string()))
        return batch

    def _tables(self, rows: Rows, images: RowImages, at: Array, steps: Steps) -> dict[str, pa.Array]:
        arrays = self._layouts.arrays
        none = rows.tables < 0
        tables = pa.array(rows.tables, mask=none if none.any() else None)
        parts = [part.take(tables) for part in (arrays.databases, arrays.namespaces, arrays.tables)]
        mask = pa.array(none) if none.any() else None
        columns = {
            "table": pa.StructArray.from_arrays(parts, names=["database", "schema", "name"], mask=mask),
            "schema_id": arrays.fingerprints.take(tables),
            **self._keys(rows, images),
        }
        is_schema = rows.ops == CODES[Operation.SCHEMA]
        if is_schema.any():
            announced: list[str | None] = [None] * len(none)
            for row in np.flatnonzero(is_schema & (rows.marks != 0)).tolist():
                announced[row] = self._layouts.all[rows.tables[row]].table.schema.to_text()
            columns["table_schema"] = pa.array(announced, pa.string())
            # What a statement makes of the table is said by the rows that follow.
            stated = pa.array(is_schema & (rows.marks == 0))
            columns["schema_id"] = pc.if_else(stated, pa.scalar(None, pa.string()), columns["schema_id"])
        return columns

    def _keys(self, rows: Rows, images: RowImages) -> dict[str, pa.Array]:
        arrays = self._layouts.arrays
        chosen: Array = np.where(rows.new >= 0, rows.new, rows.old)
        chosen[arrays.key_sizes[rows.tables] == 0] = -1
        keys = images.maps(chosen, arrays.key, arrays.key_names)
        offsets = keys.offsets.to_numpy()
        return {"key": keys, "key_text": string_lists(offsets, keys.items, chosen >= 0)}

    def _facts(self, rows: Rows, steps: Steps, at: Array, transactions: Array) -> pa.MapArray:
        # Each event once, and from there to its rows.
        first, last = (int(at.min()), int(at.max()) + 1) if len(at) else (0, 0)
        near = pa.array(at - first)
        of_group = slice(first, last)
        names = {number: file_name(steps.log, number) for number in set(steps.files[of_group])}
        files = [names[number] for number in steps.files[of_group]]
        of = pa.array(transactions)
        columns = [
            ("connector", pa.array([self._connector]).take(pa.array(np.zeros(len(at), np.int64)))),
            ("server_id", _numbers([transaction.server for transaction in steps.transactions]).take(of)),
            ("gtid", pa.array([transaction.gtid for transaction in steps.transactions], pa.string()).take(of)),
            ("file", pa.array(files, pa.string()).take(near)),
            ("pos", _numbers(steps.positions[of_group]).take(near)),
            ("row", pa.array(rows.index, mask=rows.index < 0).cast(pa.string())),
            ("thread", _numbers(steps.threads[of_group]).take(near)),
            ("query", pa.array(steps.queries[of_group], pa.string()).take(near)),
        ]
        if any(steps.unchecked[of_group]):
            off = pa.array([UNCHECKED if one else None for one in steps.unchecked[of_group]], pa.string())
            columns.append(("foreign_key_checks", off.take(near)))
        stated = (rows.ops == CODES[Operation.SCHEMA]) & (rows.marks == 0)
        if stated.any():
            texts = pa.array(steps.statements[of_group], pa.string()).take(near)
            columns.append(("ddl", pc.if_else(pa.array(stated), texts, pa.scalar(None, pa.string()))))
        return map_of([(name, texts) for name, texts in columns if texts.null_count < len(texts)] or columns[:1])

    def _places(self, rows: Rows, steps: Steps, transactions: Array) -> pa.StructArray:
        """The column `transaction`."""
        names = [
            transaction.gtid or _named(steps.log, BinlogPosition.of(transaction.commit))
            for transaction in steps.transactions
        ]
        is_edge = (rows.ops == CODES[Operation.BEGIN]) | (rows.ops == CODES[Operation.END])
        counted = [pa.array(column, mask=column < 0) for column in (rows.total, rows.own)]
        return pa.StructArray.from_arrays(
            [pa.array(names, pa.string()).take(pa.array(transactions)), *counted],
            names=["id", "total_order", "data_collection_order"],
            mask=pa.array((rows.total < 0) & ~is_edge),
        )


def _named(log: str, position: BinlogPosition) -> str:
    return f"{file_name(log, position.file)}:{position.position}"


def _numbers(numbers: Sequence[int | None]) -> pa.StringArray:
    return pa.array(numbers, pa.int64()).cast(pa.string())


def _positions(rows: Rows, steps: Steps, transactions: Array) -> pa.StringArray:
    commits = pa.array([transaction.commit for transaction in steps.transactions], pa.string()).take(
        pa.array(transactions)
    )
    orders = _digits(_ORDINAL, rows.ordinals)
    if rows.marks.any():
        marks = pa.array(np.where(rows.marks == ord("s"), 1, np.where(rows.marks == ord("z"), 2, 0)))
        orders = pc.binary_join_element_wise(orders, pa.array(["", "s", "z"]).take(marks), "")
    return pc.binary_join_element_wise(commits, orders, _digits(_SUB, rows.subs), "/")


def _digits(template: bytes, numbers: Array) -> pa.StringArray:
    """Numbers in so many digits; nothing for -1."""
    if not (numbers >= 0).any():
        return pa.array([""]).take(pa.array(np.zeros(len(numbers), np.int64)))
    texts = fixed_texts(template, [np.maximum(numbers, 0)])
    if (numbers >= 0).all():
        return texts
    return pc.if_else(pa.array(numbers >= 0), texts, "")
