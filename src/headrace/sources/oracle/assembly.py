"""A committed transaction's events, in mined order: what was taken back is left out, pieces of large values are put to
their rows.

Rows are read from staging as they are needed. A transaction may be larger than memory: held are one batch of rows, one
event with its large values, and, while work was rolled back to a savepoint, the row ids of a bounded part of that.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Operation
from headrace.errors import CaptureError
from headrace.sources.oracle.ledger import Transaction
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.redo import RedoPiece, RedoRow, RedoShape, RedoSyntaxError, parse
from headrace.sources.oracle.redo_codes import (
    CHANGES,
    DDL,
    DELETE,
    INSERT,
    UNSUPPORTED,
    UPDATE,
    VALUE_BEGINS,
    VALUE_ENDS,
    VALUE_WRITES,
)
from headrace.sources.table_errors import FAIL, WARN

_REMEDY = (
    "Take a new snapshot, or set 'unreadable_changes' to warn. Where tables are altered, 'log_mining_strategy' "
    "redo_log_catalog reads such changes from its start on."
)
_OPERATIONS = {INSERT: Operation.CREATE, DELETE: Operation.DELETE, UPDATE: Operation.UPDATE}
_UNDONE_AT_ONCE = 500_000
_UNREADABLE = 2
"""The status of a row that LogMiner has no whole statement for."""
_PIECES_ONLY = RedoShape(changed=("",))
"""The shape of an update of which only pieces are known, by identity."""
_LOG = logging.getLogger("headrace.sources")
Read = Callable[[Sequence[str] | None], Iterator[pa.RecordBatch]]
"""Gives a transaction's rows from the beginning, all columns or some."""


class MinedRow(NamedTuple):
    """A row of LogMiner, as staging keeps it.

    Attributes:
        scn, rs_id, ssn, thread: of its record.
        code: what it is (`redo_codes`).
        owner, name: its table.
        row_id: its row.
        undo: whether it takes another one back.
        user: who made the change.
        status: whether LogMiner could print it.
        info: what LogMiner says about it.
        sql: the statement.
    """

    scn: int
    rs_id: str
    ssn: int
    code: int
    owner: str | None
    name: str | None
    row_id: str | None
    undo: bool
    user: str | None
    thread: int
    status: int | None
    info: str | None
    sql: str | None

    @property
    def path(self) -> str:
        """`owner.name` of its table."""
        return f"{self.owner}.{self.name}"


@dataclass
class Event:
    """One change of one row, or a truncate.

    Args:
        op: create, update, delete or truncate; error for a change that can't be read.
        path: `schema.table`.
        row: the parsed statement; None for a truncate and an error.
        scn, rs_id, ssn, thread, row_id, user, sql: of its record.
        values: large values that came in pieces, by column, as text or bytes; null for NULL.
        lost: columns whose value can't be known.
        error: why it can't be read.
    """

    op: Operation
    path: str
    row: RedoRow | None
    scn: int
    rs_id: str
    ssn: int
    thread: int
    row_id: str | None
    user: str | None
    sql: str
    values: dict[str, str | bytes | None] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    error: str | None = None


@dataclass
class _Value:
    """A large value that is being put together."""

    event: Event
    column: str
    kind: str
    fresh: bool
    parts: list[tuple[int, str | bytes]] = field(default_factory=list)
    document: list[str | bytes] = field(default_factory=list)
    null: bool = False

    def write(self, piece: RedoPiece) -> None:
        data: str | bytes | None = bytes.fromhex(piece.hex) if piece.hex is not None else piece.text
        if data is None:
            self.null = True
        elif piece.op == "lob_write":
            self.parts.append(((piece.offset or 1) - 1, data))
        else:
            self.document.append(data)

    def finish(self) -> None:
        event = self.event
        if self.kind == "document":
            parts = [part.encode() if isinstance(part, str) else part for part in self.document]
            event.values[self.column] = None if self.null or not parts else b"".join(parts).decode("utf-8", "replace")
            return
        if not self.parts:
            return
        if not self.fresh and min(offset for offset, _ in self.parts) > 0:
            # The beginning was written before, by another transaction: the whole is not in the log.
            event.lost.add(self.column)
            return
        size = max(offset + len(data) for offset, data in self.parts)
        if isinstance(self.parts[0][1], bytes):
            whole = bytearray(size)
            for offset, data in self.parts:
                whole[offset : offset + len(data)] = data if isinstance(data, bytes) else data.encode()
            event.values[self.column] = bytes(whole)
            return
        text = [" "] * size
        for offset, data in self.parts:
            text[offset : offset + len(data)] = str(data)
        event.values[self.column] = "".join(text)


class Assembly:
    """The events of one transaction.

    Args:
        transaction: it.
        read: reads its rows from staging; it is called several times.
        tables: paths of the captured tables.
        settings: the source's options.
    """

    def __init__(self, transaction: Transaction, read: Read, tables: frozenset[str], settings: OracleSettings) -> None:
        self._transaction = transaction
        self._read = read
        self._tables = tables
        self._settings = settings
        self._held: Event | None = None
        self._ghost: Event | None = None
        self._value: _Value | None = None
        self._errors: list[Event] = []

    def events(self) -> Iterator[Event]:
        """In mined order.

        Raises:
            CaptureError: a change can't be read, and the options say to stop.
        """
        undone = self._undone() if self._transaction.undo else None
        ordinal = 0
        for batch in self._read(None):
            columns = [batch.column(name).to_pylist() for name in MinedRow._fields]
            for mined in map(MinedRow._make, zip(*columns, strict=True)):
                yield from self._take(mined, undone is not None and bool(undone[ordinal]))
                if self._held is None:
                    yield from self._refused()
                ordinal += 1
        yield from self._released()

    def _take(self, mined: MinedRow, undone: bool) -> Iterator[Event]:
        code = mined.code
        if mined.undo:
            return
        if code in CHANGES:
            if undone:
                self._ghost = self._parsed(mined)
                return
            event = self._parsed(mined)
            if event is not None:
                yield from self._released()
                self._held, self._ghost = event, None
        elif code in VALUE_BEGINS:
            if undone:
                # The writes that follow are of no value.
                self._end_value()
                return
            yield from self._begin(mined)
        elif code in VALUE_WRITES:
            if self._value is not None:
                piece = self._piece(mined)
                if piece is not None:
                    self._value.write(piece)
                else:
                    self._lose()
        elif code in VALUE_ENDS:
            self._end_value()
        elif code == DDL:
            path = mined.path
            if path in self._tables and (mined.sql or "").lstrip().upper().startswith("TRUNCATE"):
                yield from self._released()
                yield self._event(Operation.TRUNCATE, path, None, mined)
        elif code == UNSUPPORTED:
            if mined.path in self._tables:
                self._refuse(mined, "LogMiner can't print it")
        elif self._value is not None:
            # A LOB that is cut or erased in part: what is left is not in the log.
            self._lose()

    def _begin(self, mined: MinedRow) -> Iterator[Event]:
        self._end_value()
        piece = self._piece(mined)
        if piece is None or piece.lob_column is None or piece.schema is None:
            return
        if f"{piece.schema}.{piece.table}" not in self._tables:
            return
        if self._ghost is not None and _same_row(self._ghost, piece):
            return
        held = self._held
        if held is None or not _same_row(held, piece):
            yield from self._released()
            key = dict(piece.after or {})
            row = RedoRow("update", piece.schema, piece.table or "", key, dict(key), _PIECES_ONLY)
            held = self._held = self._event(Operation.UPDATE, f"{piece.schema}.{piece.table}", row, mined)
        after = held.row.after if held.row is not None else None
        fresh = after is not None and piece.lob_column in after
        kind = "document" if piece.op in ("xml_begin", "ext_string_begin") else piece.lob_kind or "clob"
        self._value = _Value(held, piece.lob_column, kind, fresh)
        self._value_piece(piece)

    def _value_piece(self, piece: RedoPiece) -> None:
        """A block may write in the statement that selects the locator."""
        if self._value is not None and (piece.text is not None or piece.hex is not None):
            self._value.write(piece)

    def _end_value(self) -> None:
        if self._value is not None:
            self._value.finish()
            self._value = None

    def _lose(self) -> None:
        """The value that is being put together can't be known."""
        if self._value is not None:
            self._value.event.lost.add(self._value.column)
            self._value = None

    def _refused(self) -> Iterator[Event]:
        """What can't be read, after the event that it came after."""
        errors, self._errors = self._errors, []
        yield from errors

    def _released(self) -> Iterator[Event]:
        self._end_value()
        held, self._held = self._held, None
        if held is not None and not (held.row is not None and held.row.shape is _PIECES_ONLY and not held.values):
            # A locator without a write changes nothing.
            yield held
        yield from self._refused()

    def _parsed(self, mined: MinedRow) -> Event | None:
        path = mined.path
        if path not in self._tables:
            if mined.owner == "UNKNOWN" or (mined.name or "").startswith("OBJ#"):
                self._refuse(mined, "its table was changed or dropped since, so that LogMiner knows no names for it")
            return None
        sql = mined.sql or ""
        if mined.status == _UNREADABLE and mined.info:
            self._refuse(mined, f"LogMiner says: {mined.info}")
            return None
        if not sql:
            self._refuse(mined, "it has no statement")
            return None
        try:
            row = parse(sql, relaxed_quotes=self._settings.relaxed_quotes)
        except RedoSyntaxError as error:
            self._refuse(mined, str(error))
            return None
        if not isinstance(row, RedoRow):
            self._refuse(mined, "its statement is not a row change")
            return None
        return self._event(_OPERATIONS[mined.code], path, row, mined)

    def _piece(self, mined: MinedRow) -> RedoPiece | None:
        try:
            piece = parse(mined.sql or "")
        except RedoSyntaxError as error:
            self._refuse(mined, str(error))
            return None
        return piece if isinstance(piece, RedoPiece) else None

    def _event(self, op: Operation, path: str, row: RedoRow | None, mined: MinedRow) -> Event:
        sql = mined.sql or ""
        return Event(op, path, row, mined.scn, mined.rs_id, mined.ssn, mined.thread, mined.row_id, mined.user, sql)

    def _refuse(self, mined: MinedRow, why: str) -> None:
        mode = self._settings.unreadable_changes
        message = (
            f"A change of table {mined.path} can't be read: {why} (SCN {mined.scn}, transaction "
            f"{self._transaction.xid}, RS_ID {mined.rs_id}, SSN {mined.ssn})."
        )
        if mode == FAIL:
            raise CaptureError(message, remedy=_REMEDY)
        if mode == WARN:
            _LOG.warning("%s It is left out.", message)
        event = self._event(Operation.ERROR, mined.path, None, mined)
        # One reason for all that is refused for it: the position is the row's position.
        event.error = f"A change of table {mined.path} can't be read: {why}."
        self._errors.append(event)

    # What was rolled back to a savepoint.

    def _undone(self) -> np.ndarray:
        """For each row of the transaction whether a later one takes it back.

        A row that takes back cancels the newest change of the same row of the table that is not cancelled yet.
        """
        undone: np.ndarray = np.zeros(self._transaction.rows, dtype=bool)
        for suffixes in self._parts():
            stacks: dict[tuple[str, str], list[int]] = defaultdict(list)
            taken_back = self._taken_back(suffixes)
            for ordinal, code, table, row_id, undo in self._row_ids(suffixes):
                row = (table, row_id)
                if code not in CHANGES:
                    continue
                if undo:
                    stack = stacks.get(row)
                    if stack:
                        undone[stack.pop()] = True
                    else:
                        _LOG.warning(
                            "Transaction %s takes back a change of table %s that it did not make.",
                            self._transaction.xid,
                            table,
                        )
                elif row in taken_back:
                    stacks[row].append(ordinal)
        self._mark_undone_values(undone)
        return undone

    def _mark_undone_values(self, undone: np.ndarray) -> None:
        """The beginnings of large values that were taken back: their rows have no id, so by table, key and column."""
        taken_back = {value for _, _, value in self._begins(taken_back=True)}
        if not taken_back:
            return
        stacks: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for ordinal, undo, value in self._begins():
            if undo and stacks[value]:
                undone[stacks[value].pop()] = True
            elif not undo and value in taken_back:
                stacks[value].append(ordinal)

    def _begins(self, *, taken_back: bool = False) -> Iterator[tuple[int, bool, tuple[object, ...]]]:
        """Of each row that begins a large value, or takes one back: its number, whether it does that, whose value."""
        codes = pa.array(sorted(VALUE_BEGINS), pa.int32())
        start = 0
        for batch in self._read(("code", "undo", "sql")):
            wanted = pc.is_in(batch.column("code"), value_set=codes)
            if taken_back:
                wanted = pc.and_(wanted, batch.column("undo"))
            chosen = pc.indices_nonzero(wanted)
            begins = batch.take(chosen)
            for number, undo, sql in zip(
                chosen.to_pylist(), begins.column("undo").to_pylist(), begins.column("sql").to_pylist(), strict=True
            ):
                try:
                    piece = parse(str(sql or ""))
                except RedoSyntaxError:
                    # What can't be read is refused where it is delivered.
                    continue
                if isinstance(piece, RedoPiece):
                    key = tuple(sorted((piece.after or {}).items()))
                    yield start + number, undo, (piece.schema, piece.table, piece.lob_column, key)
            start += batch.num_rows

    def _parts(self) -> list[set[str]]:
        """The ends of row ids, in parts that have a bounded number of rows that take back."""
        counts: dict[str, int] = defaultdict(int)
        for batch in self._read(("row_id", "undo")):
            ends = pc.utf8_slice_codeunits(batch.filter(batch.column("undo")).column("row_id"), -2)
            for counted in pc.value_counts(ends).to_pylist():
                counts[counted["values"]] += counted["counts"]
        parts: list[set[str]] = []
        size = _UNDONE_AT_ONCE
        for end, count in counts.items():
            if size + count > _UNDONE_AT_ONCE:
                parts.append(set())
                size = 0
            parts[-1].add(end)
            size += count
        return parts

    def _taken_back(self, suffixes: set[str]) -> set[tuple[str, str]]:
        return {(table, row_id) for _, _, table, row_id, undo in self._row_ids(suffixes) if undo}

    def _row_ids(self, suffixes: set[str]) -> Iterator[tuple[int, int, str, str, bool]]:
        wanted = pa.array(sorted(suffixes), pa.string())
        start = 0
        for batch in self._read(("code", "owner", "name", "row_id", "undo")):
            ends = pc.utf8_slice_codeunits(batch.column("row_id"), -2)
            chosen = pc.indices_nonzero(pc.is_in(ends, value_set=wanted))
            changes = batch.take(chosen)
            names = pc.binary_join_element_wise(changes.column("owner"), changes.column("name"), ".")
            yield from zip(
                (chosen.to_numpy(zero_copy_only=False) + start).tolist(),
                changes.column("code").to_pylist(),
                names.to_pylist(),
                changes.column("row_id").to_pylist(),
                changes.column("undo").to_pylist(),
                strict=True,
            )
            start += batch.num_rows


def _same_row(event: Event, piece: RedoPiece) -> bool:
    if event.row is None or event.row.after is None or event.path != f"{piece.schema}.{piece.table}":
        return False
    after = event.row.after
    return all(name in after and after[name] == text for name, text in (piece.after or {}).items())


def own_rows(transaction: Transaction, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A transaction's rows without those of an earlier transaction that had the same id."""
    for batch in batches:
        if transaction.start is None:
            yield batch
            continue
        is_own = pc.greater_equal(batch.column("scn"), pa.scalar(transaction.start, pa.uint64()))
        yield batch if pc.all(is_own).as_py() else batch.filter(is_own)
