"""Changes of rows that no log carries: what a catalog shows of them, and what alterations did to rows that were there.

Nobody can bring such changes, so they are named, with the table and what to do. The page on faults lists what no
catalog shows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache

from headrace.changes import Column, TableSchema

_INTEGERS = ("int8", "int16", "int32", "int64")
_LOG = logging.getLogger("headrace.sources")
_READ_AGAIN = "Read the table again: headrace repair reread <pipeline> {}."


@dataclass(frozen=True)
class Unlogged:
    """A way by which a table's rows change, and no change records it.

    Args:
        table: `schema.name`.
        sentence: which way.
        remedy: what to do.
    """

    table: str
    sentence: str
    remedy: str


def read_again(path: str) -> str:
    """How a table is read again, as a sentence."""
    return _READ_AGAIN.format(path)


def by_alteration(before: TableSchema, after: TableSchema, *, late: bool = False) -> list[str]:
    """What a table's alteration did, or may have done, to rows that were there, as sentences.

    Args:
        before: the table as it was.
        after: as it is.
        late: whether changes carry a new column only from some time after it was added.
    """
    path = after.id.path
    old = {column.name: column for column in before.columns}
    found = []
    for column in after.columns:
        was = old.get(column.name)
        if was is None and column.generated:
            found.append(f"Column '{column.name}' of table '{path}' is new and computed: rows from before have values.")
        elif was is None and column.default_expression is not None:
            found.append(
                f"Column '{column.name}' of table '{path}' is new with the default {column.default_expression}: "
                "rows from before may have it."
            )
        elif was is None and (column.identity or not column.nullable):
            found.append(
                f"Column '{column.name}' of table '{path}' is new and never NULL: rows from before have values."
            )
        elif was is None and late:
            found.append(
                f"Column '{column.name}' of table '{path}' is captured from now on: rows from before may have values."
            )
        elif was is not None and not _keeps(was, column):
            found.append(
                f"Column '{column.name}' of table '{path}' was {_typed(was)} and is {_typed(column)}: values of rows "
                "from before were converted."
            )
    return found


def say_altered(before: TableSchema, after: TableSchema, *, late: bool = False) -> None:
    """Log what an alteration did to rows that were there, because no change records it; once per process."""
    for sentence in by_alteration(before, after, late=late):
        _say(f"{sentence} No change records them. {read_again(after.id.path)}")


@lru_cache(maxsize=4096)
def _say(sentence: str) -> None:
    # Planning may look at the same alteration several times.
    _LOG.warning("%s", sentence)


def _keeps(was: Column, now: Column) -> bool:
    """Whether every value of the one type is the same in the other."""
    a, b = str(was.logical), str(now.logical)
    if a in _INTEGERS and b in _INTEGERS:
        return _INTEGERS.index(b) >= _INTEGERS.index(a)
    if a.partition("(")[0] != b.partition("(")[0]:
        return False
    whole = (now.length or 0) - (now.scale or 0) >= (was.length or 0) - (was.scale or 0)
    return whole and (now.scale or 0) >= (was.scale or 0)


def _typed(column: Column) -> str:
    size = [str(part) for part in (column.length, column.scale) if part is not None]
    return f"{column.native_type}({', '.join(size)})" if size else column.native_type
