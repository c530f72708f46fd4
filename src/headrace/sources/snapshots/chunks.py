"""Snapshots in chunks: which key ranges a batch reads, and how its rows are marked. Pure; no database, no Spark.

A chunk is a key range (lower, upper] of one table. Its bounds stand in the batch's end offset, so a replay reads the
same ranges, and a killed run goes on at the first chunk that no batch has delivered.

In the predicate of a range every comparison is true or false and never UNKNOWN, whatever is NULL, and NULL has the
position that the server's ORDER BY gives it. So of two neighbouring ranges each row is in exactly one, and ranges
without gaps hold the table.

Options decide which captured tables are read first; of the others only changes are streamed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from headrace.changes import TableId
from headrace.changes.position import Position, order_of_read
from headrace.changes.table_pattern import TablePattern
from headrace.options import items
from headrace.sources.offset import Key, Offset, TableProgress
from headrace.sources.tables.lost import WITHOUT_ROWS

FIRST = "first"
FIRST_OF_TABLE = "first_in_data_collection"
BETWEEN = "true"
LAST_OF_TABLE = "last_in_data_collection"
LAST = "last"


@dataclass(frozen=True)
class Chunk:
    """One key range of one table's snapshot.

    Args:
        table: `schema.name`.
        ordinal: the table's position in the include list, for the order of positions.
        number: 0 for the table's first chunk.
        lower: rows after this key; None from the beginning.
        upper: rows up to and with this key; None to the end.
        commit: the commit at which the table is read.
        read: which read of the source this is, see `TableProgress.read`.
        opening: mark of the chunk's first row, where it is not an ordinary one.
        closing: mark of the chunk's last row, where it is not an ordinary one.
    """

    table: str
    ordinal: int
    number: int
    lower: Key | None
    upper: Key | None
    commit: str
    opening: str | None
    closing: str | None
    read: int = 0

    def position(self, row: int) -> Position:
        """The position of a row of the chunk.

        After every streamed change of the commit, in table, chunk and row order.
        """
        order = f"{order_of_read(self.read)}{self.ordinal:05x}:{self.number:08x}"
        return Position(self.commit, order, f"{row:08x}")


def plan_chunks(start: Offset, end: Offset) -> list[Chunk]:
    """The snapshot chunks of the batch (start, end], in include-list order.

    The first row of the first snapshot is marked `first`, the last one `last`; first and last rows of other tables
    carry their own marks.
    """
    chunks: list[Chunk] = []
    for ordinal, table in enumerate(end.known):
        progress = end.tables.get(table)
        if progress is None:
            continue
        lower = progress.lower
        for i, upper in enumerate(progress.bounds):
            number = progress.chunk + i
            opening = FIRST_OF_TABLE if number == 0 else None
            closing = LAST_OF_TABLE if progress.done and i == len(progress.bounds) - 1 else None
            chunks.append(Chunk(table, ordinal, number, lower, upper, progress.commit, opening, closing, progress.read))
            lower = upper
    untouched = not any(progress.chunk or progress.bounds for progress in start.tables.values())
    if chunks and start.initial and untouched:
        chunks[0] = _marked(chunks[0], opening=FIRST)
    if chunks and start.initial and not end.initial:
        chunks[-1] = _marked(chunks[-1], closing=LAST)
    return chunks


def next_bounds(keys: Sequence[Key], last: Key, budget: int) -> tuple[tuple[Key, ...], bool]:
    """The upper keys of the next chunks of a table, and whether the table ends with them.

    Args:
        keys: the keys at which chunks end, up to the last one; the server's answer.
        last: the table's last key.
        budget: how many keys were asked for, at least one.
    """
    if keys and keys[-1] == last:
        return tuple(keys), True
    return ((*keys, last), True) if len(keys) < budget else (tuple(keys), False)


def with_further_chunks(
    progress: TableProgress,
    budget: int,
    greatest: Callable[[], Key | None],
    bounds: Callable[[Key], Sequence[Key]],
) -> TableProgress:
    """A table's snapshot with its next chunks, which end at keys.

    Args:
        progress: as no batch has read a further chunk yet.
        budget: how many chunks at the most, at least one.
        greatest: asks for the table's last key; None where it has no row any more.
        bounds: asks for up to `budget` keys at which chunks end, up to the last one.
    """
    last = progress.last or greatest()
    if last is None:
        return replace(progress, done=True, empty=True)
    ends, done = next_bounds(bounds(last), last, budget)
    # One chunk is the whole table: it needs no bound, and the server reads it in the way it likes best.
    is_whole = ends == (last,) and progress.chunk == 0
    return replace(progress, last=last, bounds=(None,) if is_whole else ends, done=done)


def found_empty(start: Offset, end: Offset) -> list[tuple[str, Position]]:
    """The tables whose snapshot the batch (start, end] completes without a row, and where the end is announced."""
    return [
        (table, end_position(end.tables[table].commit, ordinal, end.tables[table].read))
        for ordinal, table in enumerate(end.known)
        if end.finds_empty(start, table)
    ]


def end_position(commit: str, ordinal: int, read: int) -> Position:
    """The position of the `schema` row that ends a table's snapshot where no row is there to do it.

    After every row of the table's snapshot.
    """
    return Position(commit, f"{order_of_read(read)}{ordinal:05x}:z")


def snapshot_finished(offset: Offset) -> bool:
    """Whether every table's snapshot is complete with the batch that ends here."""
    return all(progress.done for progress in offset.tables.values())


def marks(chunk: Chunk, row: int, count: int, *, last: bool) -> list[str]:
    """The snapshot marks of some rows of a chunk that follow one another.

    Args:
        chunk: the chunk.
        row: the number of the first of them in the chunk.
        count: how many they are, at least one.
        last: whether no more rows of the chunk follow.
    """
    between = [BETWEEN] * count
    if row == 0:
        between[0] = mark(chunk, first=True, last=last and count == 1)
    if last and not (row == 0 and count == 1):
        between[-1] = mark(chunk, first=False, last=True)
    return between


def mark(chunk: Chunk, *, first: bool, last: bool) -> str:
    """The snapshot mark of a chunk's first or last row (or its only one).

    The whole snapshot's edges before a table's.
    """
    if last and chunk.closing == LAST:
        return LAST
    if first and chunk.opening == FIRST:
        return FIRST
    if last and chunk.closing is not None:
        return chunk.closing
    if first and chunk.opening is not None:
        return chunk.opening
    return BETWEEN


def unmarked_end(chunk: Chunk, count: int) -> str | None:
    """The mark of the end of a table's snapshot where no row of its last chunk carries it; else null.

    Args:
        chunk: the chunk.
        count: how many rows it had: none where they went since the chunk was planned, or a single one that is the
            first of the whole snapshot and says that.
    """
    if count == 0 or (count == 1 and mark(chunk, first=True, last=True) != chunk.closing):
        return chunk.closing
    return None


def _marked(chunk: Chunk, *, opening: str | None = None, closing: str | None = None) -> Chunk:
    return replace(chunk, opening=opening or chunk.opening, closing=closing or chunk.closing)


@dataclass(frozen=True)
class KeyLimit:
    """A key column, and what a bound says of it.

    Args:
        column: as the statement writes it.
        nullable: whether it may be NULL.
        marker: where the value stands in the statement; empty for a bound of NULL.
        value: what is bound there.
    """

    column: str
    nullable: bool
    marker: str = ""
    value: object = None


Bound = Sequence[KeyLimit]
"""A key, column by column."""
Predicate = tuple[str, list[object]]
"""Its text, and what is bound, in order of the markers."""


def between(lower: Bound | None, upper: Bound | None, *, nulls_first: bool) -> Predicate:
    """The key is in (lower, upper]; without bounds, any key is, and the text is empty.

    Args:
        lower: keys after this one; None from the beginning.
        upper: keys up to and with this one; None to the end.
        nulls_first: whether the server's ORDER BY puts NULL before all values or after them.
    """
    texts: list[str] = []
    values: list[object] = []
    if lower is not None:
        sql, bound = after(lower, nulls_first=nulls_first)
        seek, first = _seek(lower, ">=")
        texts.append(f"{seek}{sql}")
        values += [*first, *bound]
    if upper is not None:
        sql, bound = after(upper, nulls_first=nulls_first)
        seek, first = _seek(upper, "<=")
        texts.append(f"{seek}NOT {sql}")
        values += [*first, *bound]
    return " AND ".join(texts), values


def after(bound: Bound, *, nulls_first: bool) -> Predicate:
    """The key is greater than a bound: the first column that differs decides."""
    terms: list[str] = []
    values: list[object] = []
    for number, limit in enumerate(bound):
        greater = _greater(limit, nulls_first=nulls_first)
        if greater is None:
            continue
        same = [_same(before) for before in bound[:number]]
        terms.append("(" + " AND ".join((*same, greater)) + ")")
        values += [before.value for before in bound[: number + 1] if before.marker]
    return f"({' OR '.join(terms)})" if terms else "(1 = 0)", values


def _greater(limit: KeyLimit, *, nulls_first: bool) -> str | None:
    """The column is greater than its bound; None when nothing is."""
    column = limit.column
    if not limit.marker:
        return f"{column} IS NOT NULL" if nulls_first else None
    greater = f"{column} > {limit.marker}"
    if not limit.nullable:
        return greater
    return f"({column} IS NOT NULL AND {greater})" if nulls_first else f"({column} IS NULL OR {greater})"


def _same(limit: KeyLimit) -> str:
    column = limit.column
    if not limit.marker:
        return f"{column} IS NULL"
    same = f"{column} = {limit.marker}"
    return f"({column} IS NOT NULL AND {same})" if limit.nullable else same


def _seek(bound: Bound, operator: str) -> Predicate:
    """What a bound says of the key's first column alone: it adds nothing, but an index can seek it, unlike the rest.

    Empty where the first column is the whole key, or may be NULL.
    """
    first = bound[0]
    if len(bound) < 2 or first.nullable or not first.marker:
        return "", []
    return f"{first.column} {operator} {first.marker} AND ", [first.value]


_COMMA = re.compile(r"(?<!\\),")


class FirstReadSettings(Protocol):
    """The options that say it."""

    @property
    def snapshot_mode(self) -> str:
        """When tables are read."""

    @property
    def snapshot_include_collection_list(self) -> tuple[str, ...]:
        """The only tables that are read; empty for all."""


def collections(given: Any) -> tuple[str, ...]:
    """Names and regular expressions of tables, from a list or from text with commas between; used as an option's kind.

    In text a comma inside an expression is written with a backslash before it.

    Raises:
        ValueError: one of them is not a regular expression.
    """
    names = tuple(items(given, _COMMA.split))
    for text in names:
        pattern = TablePattern(text, in_source=True)
        if pattern.is_expression:
            # Found wrong before a run, not at the first table.
            _ = pattern.expression
    return names


def is_read_first(settings: FirstReadSettings, table: TableId) -> bool:
    """Whether a table's rows are read before its changes: the mode reads tables, and the list has this one.

    What a signal asks for is read in any case.
    """
    if settings.snapshot_mode in WITHOUT_ROWS:
        return False
    chosen = settings.snapshot_include_collection_list
    return not chosen or any(TablePattern(text, in_source=True).among([table], lambda id: id) for text in chosen)


def read_first(settings: FirstReadSettings, tables: Iterable[TableId]) -> list[str]:
    """The paths of those of these tables that are read before their changes, in their order."""
    return [table.path for table in tables if is_read_first(settings, table)]


def reads_all(settings: FirstReadSettings, tables: Iterable[TableId]) -> bool:
    """Whether reading again mends whatever was lost of these tables: mode `when_needed`, with each of them."""
    return settings.snapshot_mode == "when_needed" and all(is_read_first(settings, table) for table in tables)
