"""From the bytes of pgoutput to change rows, one window of the log at a time.

Messages are taken together in blocks. What a block's messages are and where their values stand is found by kernels, and
a batch of change rows is made of all tables' rows at once, so that its cost depends on the number of values, and not on
how many tables and transactions they belong to.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headrace import faultpoints
from headrace.changes import Operation
from headrace.changes.one_table import about
from headrace.errors import CaptureError, FormatError
from headrace.sources.log.row_images import RowImages
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.blocks import IS_CHANGE, Between, Block, Transactions
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.change_rows import ANNOUNCED, CODES, ITSELF, EventNumbers, Rows, RowWriter
from headrace.sources.postgresql.earlier_structures import statement
from headrace.sources.postgresql.layouts import Layouts, read_images
from headrace.sources.postgresql.logical_messages import LogicalMessages
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.pgoutput import Truncate, TypeMessage, read
from headrace.sources.postgresql.relation import Relation, table_of, under_known_names
from headrace.sources.postgresql.types import CatalogType, TypeCatalog
from headrace.sources.rows import BATCH_BYTES
from headrace.sources.stream_options import events_of_key_change
from headrace.sources.tables.masks import Masks
from headrace.wire import pgoutput_kernels as kernels
from headrace.wire.cell_kernels import mark_new
from headrace.wire.spans import Array

BLOCK_ROWS = 50_000
"""Messages of a block at the most, if they are not larger than `BATCH_BYTES` before."""
_LETTERS = {"c": kernels.INSERT, "u": kernels.UPDATE, "d": kernels.DELETE}
_OPERATIONS = {
    kernels.INSERT: CODES[Operation.CREATE],
    kernels.UPDATE: CODES[Operation.UPDATE],
    kernels.DELETE: CODES[Operation.DELETE],
}
_IS_EDGE = np.zeros(53, np.bool_)
"""Which sizes of payloads are those of a keepalive, a BEGIN and a COMMIT, and may be those of others."""
_IS_EDGE[[18, 46, 51]] = True
_UNKNOWN = -2


@dataclass(frozen=True)
class Before:
    """What tables and types were before changes of structure that the stream has not passed.

    Args:
        tables: the tables that were others, by their oids.
        types: the types that were others.
        until: the LSN after these changes; rows that were written before it are read by the earlier structures.
    """

    tables: Mapping[int, PostgresTable] = field(default_factory=dict)
    types: Mapping[int, CatalogType] = field(default_factory=dict)
    until: int = 0


class WindowDecoder:
    """Makes change rows of what the server sends of one window: `start_boundary <= C.lsn < end_boundary`.

    Rows come in the order of their positions. The same window gives the same rows however its messages are cut into
    feeds. Memory does not grow with a transaction. Not thread-safe; one for each window.

    Args:
        start_boundary, end_boundary: LSNs. Transactions whose commit record begins in between are of the window, and
            logical messages outside of transactions whose record begins there.
        tables: what is known of captured tables, by the oids that the log says; others are left out.
        types: what is known of types.
        settings: the source's options.
        database: the database's name.
        capture_time: when the batch was planned.
        after: for tables whose snapshot is newer than the stream, the LSN up to which commits are in it; rows of these
            commits are left out.
        kept: the oids of the tables whose rows have the name that `tables` gives, whatever the log calls them.
        before: what tables and types were before the latest changes of structure.
    """

    def __init__(
        self,
        start_boundary: int,
        end_boundary: int,
        tables: Mapping[int, PostgresTable],
        types: TypeCatalog,
        settings: PostgresSettings,
        database: str,
        capture_time: dt.datetime | None,
        after: Mapping[int, int] | None = None,
        kept: frozenset[int] = frozenset(),
        before: Before | None = None,
    ) -> None:
        self._before = before or Before()
        self._kept = kept
        self._after = {oid: commit for oid, commit in (after or {}).items() if commit >= start_boundary}
        self._start, self._end = start_boundary, end_boundary
        self._tables, self._settings, self._database = tables, settings, database
        self._types = types.with_gone(self._before.types)
        self._types_before = types.before(self._before.types)
        self._layouts = Layouts(Masks.of(settings), self._table_of)
        self._numbered = settings.provide_transaction_metadata
        self._numbers = EventNumbers(self._layouts)
        self._messages = LogicalMessages(settings, start_boundary, end_boundary, capture_time)
        self._writer = RowWriter(self._layouts, capture_time, numbered=self._numbered)
        self._key_change_events = events_of_key_change(settings.skipped_operations)
        self._skipped = np.zeros(256, np.bool_)
        self._skipped[[letter for op, letter in _LETTERS.items() if op in settings.skipped_operations]] = True
        self._between = Between(start_boundary)
        self._states: dict[int, tuple[int, int]] = {}
        self._announced = np.full(0, -1, np.int64)
        self._shown = dict(self._before.tables)
        self._waiting: list[bytes] = []
        self._sizes: list[Array] = []
        self._size = 0
        self._inside = False
        self.finished = False
        """Whether all of the window came."""

    def feed(self, payloads: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Payloads of CopyData as they came, `w` and `k`, and the rows of those that make a batch full.

        Raises:
            FormatError: a payload is not as the protocol says.
            CaptureError: the log does not say what is needed, or a text is not UTF-8.
        """
        sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
        for part in _parts(sizes):
            if self.finished:
                break
            self.finished = self._is_last(payloads[part], sizes[part])
            if len(self._waiting) + part.stop - part.start > BLOCK_ROWS:
                yield from self._flush()
            self._waiting += payloads[part]
            self._sizes.append(sizes[part])
            self._size += int(sizes[part].sum())
            if self._size >= BATCH_BYTES or self.finished:
                yield from self._flush()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows that are left.

        Raises:
            FormatError: a transaction of the window is not complete.
        """
        yield from self._flush()
        if self._between.open is not None:
            commit = lsn.to_server(self._between.open.commit)
            raise FormatError(f"The log ended inside of the transaction that commits at {commit}.")

    def _is_last(self, payloads: Sequence[bytes], sizes: Array) -> bool:
        """Whether the window ends here: by the last edge of a transaction and what is said after it."""
        reached = 0
        for number in np.flatnonzero(_IS_EDGE[np.minimum(sizes, len(_IS_EDGE) - 1)])[::-1].tolist():
            payload = payloads[number]
            kind = payload[25:26] if payload[:1] == b"w" else payload[:1]
            if kind == b"k":
                reached = max(reached, int.from_bytes(payload[1:9]))
            elif kind == b"B":
                self._inside = True
                return int.from_bytes(payload[26:34]) >= self._end
            elif kind == b"C":
                self._inside = False
                reached = max(reached, int.from_bytes(payload[35:43]))
                break
        return not self._inside and reached >= self._end

    def _flush(self) -> Iterator[pa.RecordBatch]:
        waiting, sizes = self._waiting, self._sizes
        self._waiting, self._sizes, self._size = [], [], 0
        if not waiting:
            return
        batch = self._decode(Block.of(waiting, np.concatenate(sizes), self._end))
        if batch.num_rows:
            yield batch
            faultpoints.reach("source.stream.batch")

    def _decode(self, block: Block) -> pa.RecordBatch:
        transactions = Transactions.in_block(block, self._between)
        self._between = transactions.between
        states = self._states_in(block)
        changes, images = self._changes(block, transactions, states)
        logical = self._messages.read(block, transactions)
        transactions = logical.transactions
        rows = Rows.together([changes, self._truncates(block, transactions, states), logical.rows])
        facts = logical.facts
        if self._numbered:
            rows, order = self._numbers.number(rows, block, transactions)
            facts = {**facts, **order}
        schemas = self._schemas(rows)
        facts = {**facts, "ddl": self._statements(schemas)}
        return self._writer.batch(Rows.together([schemas, rows]), images, transactions, facts)

    def _table_of(self, relation: Relation, before: bool = False) -> tuple[Relation, PostgresTable] | None:
        known = self._tables.get(relation.oid)
        if known is None:
            return None
        if relation.oid in self._kept:
            relation = replace(relation, schema=known.id.schema, name=known.id.name)
        earlier = self._before.tables.get(relation.oid)
        states = [known] if earlier is None else [earlier, known] if before else [known, earlier]
        types = self._types_before if before else self._types
        relation = under_known_names(relation, states, known, types)
        return relation, table_of(relation, states, types, self._settings, self._database)

    def _states_in(self, block: Block) -> _States:
        states = [(oid, 0, *numbers) for oid, numbers in self._states.items()]
        for at in block.of_kinds(b"RY"):
            content = block.content(at)
            if isinstance(content, TypeMessage):
                logged = (content.oid, content.schema, content.name)
                self._types = self._types.with_logged(*logged)
                self._types_before = self._types_before.with_logged(*logged)
                continue
            assert isinstance(content, Relation)
            number = self._layouts.number(content)
            before = self._layouts.number(content, before=True) if self._before.until else number
            states.append((content.oid, at + 1, number, before))
            self._states[content.oid] = number, before
        return _States(states, self._before.until)

    def _changes(self, block: Block, transactions: Transactions, states: _States) -> tuple[Rows, RowImages]:
        messages = block.messages
        at = np.flatnonzero(IS_CHANGE[messages.kinds])
        tables = states.at(messages.oids[at], at, messages.lsns[at])
        if (tables == _UNKNOWN).any():
            raise _without_relation(int(messages.lsns[at[tables == _UNKNOWN][0]]))
        commits = transactions.commits[transactions.of[at]]
        kept = (tables >= 0) & (commits >= self._start)
        for oid, after in self._after.items():
            kept &= (messages.oids[at] != oid) | (commits > after)
        kept &= ~self._skipped[messages.kinds[at]]
        at, tables = at[kept], tables[kept]
        kinds = messages.kinds[at]
        is_update = kinds == kernels.UPDATE
        has_old = (kinds == kernels.DELETE) | (is_update & (messages.tags[at] != kernels.NEW))
        has_new = kinds != kernels.DELETE
        arrays = self._layouts.arrays
        images, wrong = read_images(block.data, block.starts, at, tables, has_old, has_new, arrays.widths)
        if wrong >= 0:
            read(block.payloads[at[wrong]])
            place = lsn.to_server(int(messages.lsns[at[wrong]]))
            error = FormatError(f"The row of pgoutput at {place} has not the columns that its table was said to have.")
            raise about(error, self._layouts.all[tables[wrong]].table.id)
        images.write(arrays.written, arrays.by, arrays.encodings)
        ops = np.zeros(256, np.int64)
        for letter, code in _OPERATIONS.items():
            ops[letter] = code
        rows = Rows.at(
            at,
            ITSELF,
            ops[kinds],
            transactions=transactions.of[at],
            ordinals=transactions.ordinals[at],
            lsns=messages.lsns[at],
            tables=tables,
            old=images.old,
            new=images.new,
            total=self._weights(is_update & has_old, images),
        )
        self._check_keys(rows, images)
        if self._settings.skip_messages_without_change:
            alike = images.alike(arrays.captured, unknown=False)
            rows = rows.only(~(is_update & alike)) if alike.any() else rows
        return rows, images

    def _weights(self, has_both: Array, images: RowImages) -> Array:
        """For how many events each row counts."""
        counts = np.ones(len(has_both), np.int64)
        if self._numbered and has_both.any():
            moved = has_both & ~images.alike(self._layouts.arrays.key, unknown=True)
            counts[moved] = self._key_change_events
        return counts

    def _check_keys(self, rows: Rows, images: RowImages) -> None:
        """Stop where the log does not say all of a key."""
        arrays = self._layouts.arrays
        if not len(arrays.key.columns):
            return
        lacking = images.lacking(np.where(rows.new >= 0, rows.new, rows.old), arrays.key)
        if lacking < 0:
            return
        table = self._layouts.all[rows.tables[lacking]].table.id
        path = table.path
        error = CaptureError(
            f"The change of table '{path}' at {lsn.to_server(int(rows.lsns[lacking]))} does not have all columns of "
            "the table's key.",
            remedy=f"Run ALTER TABLE {path} REPLICA IDENTITY FULL and read the table again, or set "
            "'message_key_columns' to columns of its replica identity.",
        )
        raise about(error, table)

    def _truncates(self, block: Block, transactions: Transactions, states: _States) -> Rows:
        truncates: list[tuple[int, int, int]] = []
        if "t" not in self._settings.skipped_operations:
            for at in block.of_kinds(b"T"):
                content = block.content(at)
                assert isinstance(content, Truncate)
                oids = np.array(content.oids, np.int64)
                place = int(block.messages.lsns[at])
                tables = states.at(oids, np.full(len(oids), at), np.full(len(oids), place))
                if (tables == _UNKNOWN).any():
                    raise _without_relation(place)
                commit = transactions.commits[transactions.of[at]]
                if commit >= self._start:
                    chosen = enumerate(zip(content.oids, tables.tolist(), strict=True))
                    truncates += [
                        (at, sub, t) for sub, (oid, t) in chosen if t >= 0 and commit > self._after.get(oid, -1)
                    ]
        numbers, lsns, of = np.array(truncates, np.int64).reshape(-1, 3).T
        return Rows.at(
            numbers,
            ITSELF,
            Operation.TRUNCATE,
            transactions=transactions.of[numbers],
            ordinals=transactions.ordinals[numbers],
            lsns=block.messages.lsns[numbers],
            subs=lsns,
            tables=of,
            total=1,
        )

    def _schemas(self, rows: Rows) -> Rows:
        """The rows that announce schemas, each before the first row that follows it."""
        arrays = self._layouts.arrays
        missing = int(arrays.holders.max(initial=-1)) + 1 - len(self._announced)
        self._announced = np.concatenate([self._announced, np.full(missing, -1, np.int64)])
        is_new = np.zeros(len(rows.order), np.bool_)
        mark_new(rows.tables, arrays.holders, arrays.schemas, self._announced, is_new)
        first = rows.only(is_new)
        nothing = np.full(len(first.order), -1, np.int64)
        return first._replace(
            order=first.order - ITSELF + ANNOUNCED,
            ops=np.full(len(first.order), CODES[Operation.SCHEMA], np.int64),
            ordinals=first.ordinals - 1,
            marks=np.full(len(first.order), ord("s"), np.uint8),
            old=nothing,
            new=nothing,
            total=nothing,
            own=nothing,
        )

    def _statements(self, schemas: Rows) -> dict[int, str]:
        """What was done to the names of columns since the structure before, by the order of the row."""
        statements = {}
        for order, number in zip(schemas.order.tolist(), schemas.tables.tolist(), strict=True):
            table = self._layouts.all[number].table
            before = self._shown.get(table.oid)
            if before is not None and (text := statement(before, table)):
                statements[order] = text
            self._shown[table.oid] = table
        return statements

    @property
    def shown(self) -> Mapping[int, PostgresTable]:
        """The tables as they were announced last, by oid; before that as they were before the window."""
        return self._shown


def _parts(sizes: Array) -> Iterator[slice]:
    """Payloads in parts that are no larger than a block, but for a payload that is."""
    ends = np.cumsum(sizes)
    first, before = 0, 0
    while first < len(sizes):
        upto = int(np.searchsorted(ends, before + BATCH_BYTES, side="right"))
        upto = max(first + 1, min(upto, first + BLOCK_ROWS))
        yield slice(first, upto)
        first, before = upto, int(ends[upto - 1])


class _States:
    """The states of tables over the messages of a block.

    Args:
        found: the oid of a table, from which message on it has a state, the state's number, and its number for rows
            that were written before a change of structure.
        until: the LSN after that change; 0 for none.
    """

    def __init__(self, states: list[tuple[int, int, int, int]], until: int) -> None:
        states = sorted(states)
        self._keys = np.array([oid << 31 | at for oid, at, *_ in states], np.int64)
        self._oids = np.array([oid for oid, *_ in states], np.int64)
        self._numbers = np.array([number for _, _, number, _ in states], np.int64)
        self._before = np.array([number for *_, number in states], np.int64)
        self._until = until

    def at(self, oids: Array, messages: Array, lsns: Array) -> Array:
        """The state's number of each table at a message: -1 where it is not captured, `_UNKNOWN` without a state.

        Args:
            oids: the tables.
            messages: the numbers of the messages.
            lsns: their LSNs.
        """
        if not len(self._keys):
            return np.full(len(oids), _UNKNOWN, np.int64)
        indexes = np.searchsorted(self._keys, (oids << 31) | (messages + 1), side="right") - 1
        numbers = self._numbers[indexes]
        if self._until:
            numbers = np.where(lsns < self._until, self._before[indexes], numbers)
        return np.where((indexes >= 0) & (self._oids[indexes] == oids), numbers, _UNKNOWN)


def _without_relation(place: int) -> FormatError:
    return FormatError(f"The log has a change at {lsn.to_server(place)} of a table that it did not describe before.")
