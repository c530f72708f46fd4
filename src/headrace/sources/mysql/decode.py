"""From the events of the binary log to change rows, one window of the log at a time.

Rows events of all tables are taken together in blocks and read by kernels, so that the cost depends on the number of
values, and not on how many tables and transactions they belong to. Each is read by the TABLE_MAP in front of it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace import faultpoints
from headrace.changes import Operation
from headrace.changes.one_table import about, work_on
from headrace.errors import CaptureError, FormatError
from headrace.sources.log.row_images import RowImages
from headrace.sources.mysql.binlog_position import BinlogPosition, file_name
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.change_rows import CODES, FIRST, ITSELF, LAST, Rows, RowWriter, Steps, TransactionFacts
from headrace.sources.mysql.described_table import DescribedTable, described_table
from headrace.sources.mysql.events import event_at, events_in
from headrace.sources.mysql.layouts import Layouts, WrongRow, read_rows
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.ordinary import Run
from headrace.sources.mysql.statements import Meaning
from headrace.sources.mysql.table_map import read_table_map, table_named
from headrace.sources.mysql.transactions import (
    Decided,
    HeldRows,
    Prepared,
    RowsEvent,
    StatementEvent,
    Step,
    Transaction,
    TransactionEnd,
    TransactionReader,
)
from headrace.sources.mysql.window import Window
from headrace.sources.rows import Tally, number_events
from headrace.sources.stream_options import events_of_key_change
from headrace.sources.tables.masks import Masks
from headrace.wire.binlog_kernels import Events
from headrace.wire.cell_kernels import mark_new
from headrace.wire.spans import Array

BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes of rows events that are read together, if one alone does not have more."""
_BLOCK_STEPS = 50_000
KEPT_BYTES = 4 * 1024 * 1024
"""Bytes of rows of prepared transactions that are kept until these are decided; others are read again."""
_BATCH_ROWS = 50_000
_MOST_ROWS = 10**10
_EVENT_NUMBERS = 6
_FLAGS, _WITHOUT_FOREIGN_KEYS = 6, 2
"""Where the flags of a rows event are in its body, and which of them says that foreign keys were switched off."""
_LETTERS = {23: "c", 24: "u", 25: "d", 30: "c", 31: "u", 32: "d", 39: "u"}
_CODES = {"c": CODES[Operation.CREATE], "u": CODES[Operation.UPDATE], "d": CODES[Operation.DELETE]}
_OPS = np.array([_CODES.get(_LETTERS.get(kind, ""), -1) for kind in range(40)], np.int64)

Again = Callable[[BinlogPosition], Generator["bytes | memoryview", None, None]]
"""Reads the log once more, from a boundary on: whole events, as `BinlogConnection.receive` gives them."""
Earlier = Callable[[str], Prepared]
"""Finds a distributed transaction that was prepared before the window, by its name."""


@dataclass
class _Block:
    """What was taken and is not given out yet.

    Args:
        steps: the events that rows come from.
        rows: six numbers for each rows event: its step, its layout, its type, the ordinal before its first row, and
            where its body begins and ends in the pieces.
        pieces: bytes, in which the bodies are.
        size: of all pieces.
        truncates, statements: of each row its step, ordinal, sub-order and layout.
        ends: the steps at which transactions end.
    """

    steps: Steps
    rows: list[int] = field(default_factory=list)
    pieces: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0
    truncates: list[tuple[int, int, int, int]] = field(default_factory=list)
    statements: list[tuple[int, int, int, int]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return self.size >= BLOCK_BYTES or len(self.steps) >= _BLOCK_STEPS


@dataclass
class _Kept:
    """Rows of transactions that are prepared in the window, as far as they have room.

    Args:
        decided_later: by the names of the transactions.
        transaction: where the transaction begins whose rows come now.
        rows: those; None where they have no room.
        size: of all of them, in bytes.
    """

    decided_later: dict[str, list[RowsEvent]] = field(default_factory=dict)
    transaction: BinlogPosition | None = None
    rows: list[RowsEvent] | None = None
    size: int = 0

    def keep(self, event: RowsEvent) -> None:
        """Rows of a transaction that is to be prepared."""
        if self.transaction != event.transaction.position:
            self._drop(self.rows)
            self.transaction, self.rows = event.transaction.position, []
        if self.rows is None:
            return
        self.rows.append(event)
        self.size += len(event.body)
        if self.size > KEPT_BYTES:
            self._drop(self.rows)
            self.rows = None

    def prepared(self, step: Prepared) -> None:
        """All rows of the transaction have come."""
        if self.transaction == step.start and self.rows is not None:
            self.decided_later[step.xid] = self.rows
        self.transaction = self.rows = None

    def taken(self, xid: str) -> list[RowsEvent] | None:
        """The rows of a transaction that is decided; None where they are to be read again."""
        rows = self.decided_later.pop(xid, None)
        self._drop(rows)
        return rows

    def _drop(self, rows: list[RowsEvent] | None) -> None:
        self.size -= sum(len(row.body) for row in rows or ())


class WindowDecoder:
    """Makes change rows of what the server sends of one window.

    Rows come in the order of their positions, and the same window gives the same rows however the log is cut into
    feeds. Memory does not grow with a transaction, but with the largest rows event. Not thread-safe; one for each
    window.

    Args:
        window: what is read.
        settings: the source's options.
        capture_time: when the batch was planned.
        again: opens the log for the rows of a distributed transaction, which lie before its commit.
        earlier: asked for those that `Window.prepared` does not have.
    """

    def __init__(
        self,
        window: Window,
        settings: MysqlSettings,
        capture_time: dt.datetime | None,
        again: Again,
        earlier: Earlier,
    ) -> None:
        self._window, self._settings, self._again, self._earlier = window, settings, again, earlier
        self._paths = window.names
        self._reader = TransactionReader(
            window.start, window.end, self._paths, keeps=True, folds_names=window.folds_names
        )
        self._layouts = Layouts(Masks.of(settings))
        self._numbers: dict[bytes, tuple[str, int]] = {}
        self._now: dict[str, MysqlTable | None] = {
            path: _state_at(states, window.start) for path, states in window.states.items()
        } | dict.fromkeys(window.unsure)
        self._latest: dict[str, int] = {}
        self._prepared, self._kept = list(window.prepared), _Kept()
        self._numbered = settings.provide_transaction_metadata
        self._with_query = settings.include_query
        self._skipped = frozenset(settings.skipped_operations)
        # Texts of statements, edges of transactions and what a snapshot has are looked at one by one.
        self._takes_runs = not (self._with_query or self._numbered or window.after)
        self._writer = RowWriter(window.connector, self._layouts, capture_time, numbered=self._numbered)
        self._key_change_events = events_of_key_change(settings.skipped_operations)
        self._announced = np.full(0, -1, np.int64)
        self._block = _Block(Steps(window.log))
        self._tally, self._tallied = Tally(), ""
        self._names: dict[str, int] = {}

    @property
    def finished(self) -> bool:
        return self._reader.finished

    @property
    def boundary(self) -> BinlogPosition | None:
        return self._reader.boundary

    def feed(self, data: bytes | memoryview) -> Iterator[pa.RecordBatch]:
        """Whole events as they came, one after another, and the rows of those that make a block full.

        Raises:
            FormatError: an event is damaged, or its rows are not as their table was described.
            CaptureError: something may concern a captured table and can't be read.
        """
        position, view = 0, memoryview(data)
        while position < len(view) and not self.finished:
            run = self._reader.run(view, position) if self._takes_runs else None
            if run is not None:
                self._take_run(run, view)
                position = run.after
                if self._block.is_full:
                    yield from self._flush()
                continue
            event = event_at(view, position)
            position += len(event)
            for step in self._reader.read(event):
                yield from self._take(step)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows that are left.

        Raises:
            FormatError: the window did not come as a whole.
        """
        self._reader.finish()
        yield from self._flush()

    def _take(self, step: Step) -> Iterator[pa.RecordBatch]:
        if isinstance(step, RowsEvent):
            yield from self._take_rows(step, step.transaction)
        elif isinstance(step, StatementEvent):
            self._take_statement(step)
        elif isinstance(step, HeldRows):
            self._kept.keep(step.rows)
        elif isinstance(step, Prepared):
            self._prepared.append(step)
            self._kept.prepared(step)
        elif isinstance(step, Decided):
            yield from self._take_decided(step)
        elif self._numbered:
            self._take_end(step)
        if self._block.is_full:
            yield from self._flush()

    def _take_run(self, run: Run, data: memoryview) -> None:
        """The rows of ordinary transactions, or of statements of one."""
        layouts = np.full(len(run.maps), -1, np.int64)
        paths = [""] * len(run.maps)
        for number, described in enumerate(run.maps):
            if self._reader.is_captured(described) and not self._is_gone(self._paths[table_named(described)]):
                paths[number], layouts[number] = self._numbers.get(described) or self._described(described)
        chosen = layouts[run.of] >= 0
        kinds = run.events[:, 1]
        if self._skipped:
            chosen &= ~np.isin(kinds, [kind for kind, letter in _LETTERS.items() if letter in self._skipped])
        events, tables = run.events[chosen], run.of[chosen]
        if not len(events):
            return
        for table in tables[np.sort(len(tables) - 1 - np.unique(tables[::-1], return_index=True)[1])].tolist():
            self._latest[paths[table]] = int(layouts[table])
        block, here = self._block, self._reader.position
        of, kind, position, ordinal, start, end = events.T
        steps = np.arange(len(block.steps), len(block.steps) + len(events))
        first = int(start[0])
        shift = block.size - first
        columns = (steps, layouts[tables], kind, ordinal, start + shift, end + shift)
        block.rows.extend(np.column_stack(columns).ravel().tolist())
        block.pieces.append(data[first : int(end[-1])])
        block.size += int(end[-1]) - first
        transactions, numbers = np.unique(of, return_inverse=True)
        mariadb = self._window.connector == "mariadb"
        threads = [None if mariadb or run.threads[n] < 0 else run.threads[n] for n in transactions.tolist()]
        positions = [run.positions[n] for n in transactions.tolist()]
        known = [(run.gtids[n], run.times[n], run.servers[n]) for n in transactions.tolist()]
        commits = here.texts_at(positions)
        block.steps.extend(
            [TransactionFacts(commit, *facts) for commit, facts in zip(commits, known, strict=True)],
            numbers.tolist(),
            here.file,
            position.tolist(),
            threads,
            (np.frombuffer(data, np.uint8)[start + _FLAGS] & _WITHOUT_FOREIGN_KEYS > 0).tolist(),
        )

    def _take_rows(self, event: RowsEvent, transaction: Transaction) -> Iterator[pa.RecordBatch]:
        """Rows, which take effect in the transaction."""
        if _LETTERS[event.kind] in self._skipped:
            return
        path = self._paths[table_named(event.described)]
        if self._is_in_snapshot(path, transaction) or self._is_gone(path):
            return
        path, layout = self._numbers.get(event.described) or self._described(event.described)
        block = self._block
        query = None
        if self._with_query and event.query is not None:
            query = event.query.decode("utf-8", "backslashreplace")
        after = block.size + len(event.body)
        block.rows += (len(block.steps), layout, event.kind, event.ordinal, block.size, after)
        block.pieces.append(event.body)
        block.size = after
        unchecked = bool(event.body[_FLAGS] & _WITHOUT_FOREIGN_KEYS)
        position = event.transaction.position
        block.steps.add(transaction, position.file, event.position, self._thread(event), query, unchecked=unchecked)
        self._latest[path] = layout
        if block.size >= BLOCK_BYTES:
            yield from self._flush()

    def _take_statement(self, step: StatementEvent) -> None:
        """A row for each captured table that a statement names."""
        transaction, statement, block = step.transaction, step.statement, self._block
        empties = statement.meaning is Meaning.TRUNCATE
        if empties and "t" in self._skipped:
            return
        named = [
            path
            for (database, name), path in self._paths.items()
            if any(t.database == database and t.name in ("", name) for t in statement.tables)
        ]
        chosen = [path for path in named if not self._is_in_snapshot(path, transaction)]
        if not chosen:
            return
        if not empties:
            for path in named:
                self._alter(path, step)
        for sub, path in enumerate(chosen):
            numbers = (len(block.steps), step.ordinal + 1, sub, self._known(path))
            (block.truncates if empties else block.statements).append(numbers)
        block.steps.add(transaction, transaction.position.file, step.position, self._thread(step), statement=step.text)

    def _alter(self, path: str, step: StatementEvent) -> None:
        """A table is as it is behind a statement from now on."""
        states = self._window.states.get(path)
        if states is not None:
            self._now[path] = _state_at(states, step.transaction.position)
        elif not step.statement.words.upper().startswith("CREATE"):
            # Nothing was said of it when the batch was planned, because it was not captured then.
            self._now[path] = None
        for described in [outdated for outdated, (of, _) in self._numbers.items() if of == path]:
            del self._numbers[described]
        self._latest.pop(path, None)

    def _thread(self, event: RowsEvent | StatementEvent) -> int | None:
        # MariaDB has it in some events of a transaction only.
        return None if self._window.connector == "mariadb" else event.thread

    def _take_decided(self, step: Decided) -> Iterator[pa.RecordBatch]:
        """The rows of a distributed transaction, as they were kept, or from where they were prepared."""
        kept = self._kept.taken(step.xid)
        decided = [one for one in self._prepared if one.xid == step.xid and one.start <= step.transaction.position]
        self._prepared = [one for one in self._prepared if one not in decided]
        if not step.committed:
            return
        if kept is not None:
            for event in kept:
                yield from self._take_rows(event, step.transaction)
            return
        held = max(decided, key=lambda one: one.start) if decided else self._earlier(step.xid)
        if not held.captured:
            return
        reader = TransactionReader(held.start, held.end, self._paths, prepared=True)
        with closing(self._again(held.start)) as log:
            while not reader.finished:
                data = next(log, b"")
                if not data:
                    break
                for read in events_in(data):
                    for row in reader.read(read):
                        if isinstance(row, RowsEvent):
                            yield from self._take_rows(row, step.transaction)
        reader.finish()

    def _take_end(self, step: TransactionEnd) -> None:
        block = self._block
        block.ends.append(len(block.steps))
        block.steps.add(step.transaction, step.transaction.position.file, step.transaction.position.position)

    def _is_in_snapshot(self, path: str, transaction: Transaction) -> bool:
        upto = self._window.after.get(path)
        return upto is not None and transaction.position.text <= upto

    def _is_gone(self, path: str) -> bool:
        """Whether a table is not captured any more, and another one may be meant."""
        return path in self._window.gone and path in self._now and self._now[path] is None

    def _described(self, described: bytes) -> tuple[str, int]:
        """The table of a description that is new."""
        path = self._paths[table_named(described)]
        table = read_table_map(described, mariadb=self._window.connector == "mariadb")
        known, shown = self._now.get(path, self._window.tables[path]), self._window.tables[path]
        with work_on(shown.id, CaptureError):
            layout = described_table(table, known or shown, self._settings, altered=known is None)
        entry = path, self._layouts.add(layout)
        self._numbers[described] = entry
        return entry

    def _known(self, path: str) -> int:
        """The table as its last rows were described, else as the catalog showed it."""
        if path not in self._latest:
            known = self._now.get(path) or self._window.tables[path]
            self._latest[path] = self._layouts.add(DescribedTable(known))
        return self._latest[path]

    def _flush(self) -> Iterator[pa.RecordBatch]:
        block, self._block = self._block, _Block(Steps(self._window.log))
        if not len(block.steps):
            return
        changes, images = self._changes(block)
        rows = Rows.together([changes, self._stated(block)])
        rows, collections = self._with_numbers(rows, block) if self._numbered else (rows, {})
        rows = rows.announcing(self._marked(rows))
        for first in range(0, len(rows.order), _BATCH_ROWS):
            yield self._writer.batch(rows.only(slice(first, first + _BATCH_ROWS)), images, block.steps, collections)
            faultpoints.reach("source.stream.batch")

    def _changes(self, block: _Block) -> tuple[Rows, RowImages]:
        numbers = np.array(block.rows, np.int64).reshape(-1, _EVENT_NUMBERS).T
        steps, layouts, kinds, ordinals, starts, ends = np.ascontiguousarray(numbers)
        data = np.frombuffer(b"".join(block.pieces), np.uint8)
        arrays = self._layouts.arrays
        try:
            images, events = read_rows(data, Events(starts, ends, kinds, layouts), arrays.wire)
            images.complete()
            images.write(arrays.written, arrays.by, arrays.encodings)
        except WrongRow as error:
            raise self._wrong(error, block) from None
        counts = np.bincount(events, minlength=len(kinds))
        index = np.arange(len(events)) - np.repeat(np.cumsum(counts) - counts, counts)
        of_rows = ordinals[events] + index + 1
        if len(of_rows) and int(of_rows.max()) >= _MOST_ROWS:
            raise CaptureError(
                "A transaction is too large: its rows events have more than ten billion bytes.",
                remedy="Start with a new checkpoint, so that the tables are read again.",
            )
        of_events, tables = _OPS[kinds][events], layouts[events]
        is_update = of_events == CODES[Operation.UPDATE]
        total = np.ones(len(events), np.int64)
        is_unsettled = block.steps.transactions[0].commit <= self._window.unsettled
        if (self._numbered or is_unsettled) and is_update.any():
            moved = is_update & ~images.alike(arrays.key, unknown=True)
            if self._numbered:
                total[moved] = self._key_change_events
            if is_unsettled:
                self._check_moved(np.flatnonzero(moved), steps[events], tables, images, block)
        rows = Rows.at(
            steps[events],
            ITSELF,
            of_events,
            ordinals=of_rows,
            tables=tables,
            old=images.old,
            new=images.new,
            index=index,
            total=total,
        )
        self._check_keys(rows, images, block)
        if self._settings.skip_messages_without_change and is_update.any():
            rows = rows.only(~(is_update & images.alike(arrays.captured, unknown=False)))
        return rows, images

    def _wrong(self, error: WrongRow, block: _Block) -> FormatError:
        step, number = block.rows[error.event * _EVENT_NUMBERS :][:2]
        layout = self._layouts.all[number]
        column = ""
        if error.column in layout.positions:
            column = f" in column '{layout.table.schema.columns[layout.positions.index(error.column)].name}'"
        position = self._position(block, step)
        sentence = (
            f"The rows of table '{layout.table.path}' at {position} can't be read: an event {error.what}{column}."
        )
        return about(FormatError(sentence), layout.table.id)

    def _position(self, block: _Block, step: int) -> str:
        return f"{file_name(self._window.log, block.steps.files[step])}, position {block.steps.positions[step]}"

    def _check_keys(self, rows: Rows, images: RowImages, block: _Block) -> None:
        """Stop where the log does not say all of a key."""
        arrays = self._layouts.arrays
        if not len(arrays.key.columns):
            return
        lacking = images.lacking(np.where(rows.new >= 0, rows.new, rows.old), arrays.key)
        if lacking >= 0:
            table = self._layouts.all[rows.tables[lacking]].table
            position = self._position(block, int(rows.steps[lacking]))
            error = CaptureError(
                f"The change of table '{table.path}' at {position} does not have all columns of the table's key.",
                remedy="Run SET GLOBAL binlog_row_image = 'FULL' and start with a new checkpoint, or set "
                "'message_key_columns' to columns of the primary key.",
            )
            raise about(error, table.id)

    def _check_moved(self, moved: Array, steps: Array, tables: Array, images: RowImages, block: _Block) -> None:
        """Stop where a row got another key, and values are missing that would be taken from the row of the old one.

        A snapshot that was read later may have another row of that key.
        """
        lacking = images.lacking(images.new[moved], self._layouts.arrays.captured)
        if lacking < 0:
            return
        row = moved[lacking]
        if block.steps.transactions[block.steps.of[steps[row]]].commit > self._window.unsettled:
            return
        raise CaptureError(
            f"A row of table '{self._layouts.all[tables[row]].table.path}' got another key at "
            f"{self._position(block, int(steps[row]))} while the table was read, and the log does not have all of its "
            "values.",
            remedy="Run SET GLOBAL binlog_row_image = 'FULL' and start with a new checkpoint.",
        )

    def _stated(self, block: _Block) -> Rows:
        parts = []
        for numbers_of_op, op, total in (
            (block.truncates, Operation.TRUNCATE, 1),
            (block.statements, Operation.SCHEMA, -1),
        ):
            steps, ordinals, subs, tables = np.array(numbers_of_op, np.int64).reshape(-1, 4).T
            parts.append(Rows.at(steps, ITSELF, op, ordinals=ordinals, subs=subs, tables=tables, total=total))
        return Rows.together(parts)

    def _marked(self, rows: Rows) -> Array:
        """Before which rows their schema is announced."""
        arrays = self._layouts.arrays
        missing = int(arrays.holders.max(initial=-1)) + 1 - len(self._announced)
        self._announced = np.concatenate([self._announced, np.full(missing, -1, np.int64)])
        is_marked = np.zeros(len(rows.order), np.bool_)
        of_rows: Array = np.where(rows.ops == CODES[Operation.SCHEMA], -1, rows.tables)
        mark_new(of_rows, arrays.holders, arrays.schemas, self._announced, is_marked)
        return is_marked

    def _with_numbers(self, rows: Rows, block: _Block) -> tuple[Rows, dict[int, str]]:
        """The rows with their positions in their transactions, and the edges of these."""
        rows = rows.only(rows.total != 0)
        transactions = block.steps.transactions
        of = np.array(block.steps.of, np.int64)
        tallies = [Tally() for _ in transactions]
        if transactions[0].commit == self._tallied:
            tallies[0] = self._tally
        before = tallies[0].events
        events = np.flatnonzero(rows.total > 0)
        begins = rows.only(events[:0])
        if len(events):
            tables = [self._names.setdefault(one.table.path, len(self._names)) for one in self._layouts.all]
            of_events = of[rows.steps[events]]
            total, of_table = number_events(
                of_events, np.array(tables, np.int64)[rows.tables[events]], rows.total[events], tallies
            )
            rows = rows._replace(total=rows.total.copy(), own=rows.own.copy())
            rows.total[events], rows.own[events] = total, of_table
            begun, firsts = np.unique(of_events, return_index=True)
            first = rows.only(events[firsts[1:] if before and begun[0] == 0 else firsts])
            begins = Rows.at(first.steps, FIRST, Operation.BEGIN, ordinals=-1)
        self._tally, self._tallied = tallies[-1], transactions[-1].commit
        counts = {step: tallies[of[step]].events for step in block.ends}
        at = np.array([step for step, count in counts.items() if count], np.int64)
        ends = Rows.at(
            at, LAST, Operation.END, ordinals=-1, mark="z", total=np.array([counts[n] for n in at.tolist()], np.int64)
        )
        names = list(self._names)
        facts = {
            order: tallies[of[step]].collections(names)
            for order, step in zip(ends.order.tolist(), at.tolist(), strict=True)
        }
        return Rows.together([begins, rows, ends]), facts


def _state_at(states: Sequence[tuple[str, MysqlTable | None]], position: BinlogPosition) -> MysqlTable | None:
    return [table for begin, table in states if begin <= position.text][-1]
