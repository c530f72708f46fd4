"""Which errors are the trouble of one table alone, so that the other tables may go on without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from headrace.changes.table import TableId
from headrace.errors import Error, FormatError, HeadraceError, SchemaError, first_of

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def work_on(table: TableId, *more: type[HeadraceError]) -> Iterator[None]:
    """Attribute errors to a table while the block works on nothing else.

    What a structure or a value can't be (`SchemaError`, `FormatError`) is the table's. Any other error is only where
    the code that raises it says so by `about`: a lost connection or a full disk is met by one table and concerns all.

    Args:
        table: the table.
        more: further errors that can't be another's there.
    """
    kinds: tuple[type[HeadraceError], ...] = (SchemaError, FormatError, *more)
    try:
        yield
    except kinds as error:
        about(error, table)
        raise


def about(error: Error, table: TableId) -> Error:
    """The error as one of this table, unless it has one already."""
    if error.table is None:
        error.table = table
    return error


def raise_together(errors: Sequence[Exception]) -> NoReturn:
    """Raise what tables met that were worked on side by side: an error that concerns all, else those of the tables.

    Args:
        errors: at least one, in the order of the tables.
    """
    for error in errors:
        if not (isinstance(error, HeadraceError) and error.table is not None):
            raise error
    raise first_of([error for error in errors if isinstance(error, HeadraceError)])


def in_turn(items: Iterable[Item], do: Callable[[Item], Result]) -> list[Result]:
    """Do it for one item after the other; the failures of single tables are raised together at the end."""
    results, failures = [], []
    for item in items:
        try:
            results.append(do(item))
        except HeadraceError as error:
            if error.table is None:
                raise
            failures.append(error)
    if failures:
        raise_together(failures)
    return results
