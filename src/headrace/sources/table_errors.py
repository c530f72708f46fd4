"""What a task does when the rows of one table can't be read: an `error` row says so, and the others' rows come.

Only a reader that is asked for that does it (`parks_tables`); it is for a driver that then goes on without the table.

A change of the stream that can't become a change row stops the run or becomes an `error` row, as the options say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headrace import errors
from headrace.changes import Operation, TableId
from headrace.errors import HeadraceError
from headrace.settings import Settings, option
from headrace.sources.base import Slice
from headrace.sources.rows import change_batch, repeat, table_column

KIND, REMEDY = "table_error", "remedy"
"""What `source` of such a row has: the error's class, and its remedy."""


def rows_of_others(
    slice: Slice,
    read: Callable[[Slice], Iterator[pa.RecordBatch]],
    without: Callable[[Slice, str], Slice | None],
) -> Iterator[pa.RecordBatch]:
    """The rows of a slice; where one table's can't be read, a row that says why, and all rows of the other tables.

    Rows of that table may come in front. A slice whose other rows are not the same in a second reading is not read
    twice.

    Args:
        slice: what to read.
        read: reads a slice, in the order of positions.
        without: a slice without the rows of a table, as `Source.without`.

    Raises:
        HeadraceError: it can't be read for a reason that concerns all tables, or not without the table.
    """
    left: Slice | None = slice
    given = _Given()
    while left is not None:
        try:
            yield from given.rest_of(read(left))
            return
        except HeadraceError as error:
            table = error.table
            if not isinstance(table, TableId):
                raise
            before, left = left, without(left, table.path)
            if left == before:
                raise
            yield _error_row(table, error)
            given.begin_without(table)


class _Given:
    """The rows that were given, as far as a second reading needs that: up to which position, and those at it."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._at_last: list[pa.RecordBatch] = []
        self._skip = 0
        self._upto: str | None = None

    def begin_without(self, table: TableId) -> None:
        """The rows are read once more, those of one table aside."""
        self._at_last = [_others(batch, table) for batch in self._at_last]
        self._upto, self._skip = self._last, sum(batch.num_rows for batch in self._at_last)

    def rest_of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Those of the rows that were not given yet."""
        for batch in batches:
            rest = self._not_given(batch)
            if rest.num_rows:
                self._note(rest)
                yield rest

    def _not_given(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._upto is None or not batch.num_rows:
            return batch
        positions = batch.column("position")
        before = pc.sum(pc.less(positions, self._upto)).as_py() or 0
        same = pc.sum(pc.equal(positions, self._upto)).as_py() or 0
        skipped = min(self._skip, same)
        self._skip -= skipped
        return batch.slice(before + skipped)

    def _note(self, batch: pa.RecordBatch) -> None:
        last = batch.column("position")[-1].as_py()
        same = pc.sum(pc.equal(batch.column("position"), last)).as_py()
        if last != self._last:
            self._at_last = []
        self._last = last
        self._at_last.append(batch.slice(batch.num_rows - same))


def _others(batch: pa.RecordBatch, table: TableId) -> pa.RecordBatch:
    wanted = [row != {"database": table.database, "schema": table.schema, "name": table.name} for row in _tables(batch)]
    return batch.filter(pa.array(wanted, pa.bool_()))


def _tables(batch: pa.RecordBatch) -> list[Mapping[str, str] | None]:
    tables: list[Mapping[str, str] | None] = batch.column("table").to_pylist()
    return [None if row is None else {part: text or "" for part, text in row.items()} for row in tables]


def _error_row(table: TableId, error: HeadraceError) -> pa.RecordBatch:
    facts = {KIND: _declared(type(error)), REMEDY: error.remedy}
    return change_batch(
        1,
        {
            "op": repeat(Operation.ERROR.value, pa.string(), 1),
            "table": table_column(table, 1),
            "position": pa.array([""]),
            "error": pa.array([error.message]),
            "source": pa.array([list(facts.items())], pa.map_(pa.string(), pa.string())),
        },
    )


def _declared(kind: type[HeadraceError]) -> str:
    """The name of an error, or of the one in `headrace.errors` of which it is a special case."""
    return next(base.__name__ for base in kind.__mro__ if base.__module__ == errors.__name__)


def error_of(table: TableId, sentence: str, source: Mapping[str, str]) -> HeadraceError:
    """The error that such a row says.

    Args:
        table: whose rows can't be read.
        sentence: the row's `error`.
        source: the row's `source`.
    """
    kind: type[HeadraceError] = getattr(errors, source[KIND])
    error = kind(sentence, remedy=source[REMEDY])
    error.table = table
    return error


FAIL, WARN, SKIP = "fail", "warn", "skip"


class UnreadableSettings(Settings):
    """Whether a change that can't be read stops the run."""

    unreadable_changes: str = option(
        "What happens to a change that can't be read, because a value can't be converted or the server can't print "
        "it: `fail` stops the run; `warn` leaves it out and logs its position; `skip` leaves it out. A change that was "
        "left out is an `error` row, is counted, and `headrace status` reports it. A row of a snapshot that can't be "
        "read always stops the run.",
        default=FAIL,
        choices=(FAIL, WARN, SKIP),
        aliases=("event.processing.failure.handling.mode",),
    )
