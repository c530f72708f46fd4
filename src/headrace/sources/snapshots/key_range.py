"""The predicate of a range of keys: which rows of a table are in a snapshot's chunk. Pure; texts of SQL, no database.

Every comparison is true or false and never UNKNOWN, whatever is NULL, and NULL has the position that the server's
ORDER BY gives it. So of two neighbouring ranges each row is in exactly one, and ranges without gaps hold the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
