"""Rule: chunks are a partition of the table, whatever columns the key has, whichever of them are NULL, wherever the
server's ORDER BY puts NULL, and however large the chunks are."""

from __future__ import annotations

from functools import cache

import hypothesis.strategies as st
import sqlglot
from hypothesis import example, given
from sqlglot import exp

from headrace.sources.snapshots.chunks import KeyLimit, after, between

NAMES = ("a", "b", "c")


@cache
def parsed(sql):
    return sqlglot.parse_one(f"SELECT 1 WHERE {sql}").args["where"].this


def truth(sql, values, row):
    """What a predicate is of a row by SQL's three values: True, False, or None for UNKNOWN."""
    given = iter(values)

    def value(node):
        return next(given) if isinstance(node, exp.Placeholder) else row[node.name]

    def of(node):
        if isinstance(node, exp.Paren):
            return of(node.this)
        if isinstance(node, exp.Not):
            inner = of(node.this)
            return None if inner is None else not inner
        if isinstance(node, exp.And | exp.Or):
            left, right = of(node.left), of(node.right)
            decisive = isinstance(node, exp.Or)
            if decisive in (left, right):
                return decisive
            return None if None in (left, right) else not decisive
        if isinstance(node, exp.Is):
            return value(node.this) is None
        left, right = value(node.this), value(node.expression)
        if left is None or right is None:
            return None
        return {exp.EQ: left == right, exp.GT: left > right, exp.GTE: left >= right, exp.LTE: left <= right}[type(node)]

    # The one predicate without a column is that nothing is greater than NULL.
    found = of(parsed(sql.replace("(1 = 0)", "(a IS NULL AND NOT a IS NULL)")))
    assert not list(given)
    return found


def order(key, nulls_first):
    """How the server's ORDER BY sorts a key."""
    return tuple(((value is not None) == nulls_first, value or 0) for value in key)


def limits(key, nullable):
    columns = zip(NAMES, key, nullable, strict=False)
    return [KeyLimit(n, may) if value is None else KeyLimit(n, may, "?", value) for n, value, may in columns]


@st.composite
def tables(draw):
    """Which columns of the key may be NULL, and the keys of a table; they need not be unique."""
    nullable = draw(st.lists(st.booleans(), min_size=1, max_size=3))
    values = [st.integers(-1, 1) | st.none() if may else st.integers(-1, 1) for may in nullable]
    return tuple(nullable), draw(st.lists(st.tuples(*values), min_size=1, max_size=12))


@given(table=tables(), rows=st.integers(1, 5), nulls_first=st.booleans())
@example(table=((True, False), [(None, 1), (None, 2), (None, 3), (1, None), (1, 2)]), rows=1, nulls_first=True)
def test_chunks_are_a_partition_of_the_table(table, rows, nulls_first):
    nullable, keys = table
    keys = sorted(keys, key=lambda key: order(key, nulls_first))
    bounds = [limits(key, nullable) for key in (*keys[rows - 1 : -1 : rows], keys[-1])]
    chunks = [between(*ends, nulls_first=nulls_first) for ends in zip((None, *bounds), bounds, strict=False)]
    for key in keys:
        of = [truth(*chunk, dict(zip(NAMES, key, strict=False))) for chunk in chunks]
        assert None not in of
        assert of.count(True) == 1


@given(table=tables(), nulls_first=st.booleans())
def test_a_key_is_after_a_bound_where_the_server_sorts_it_so(table, nulls_first):
    nullable, keys = table
    bound, *others = keys
    sql, values = after(limits(bound, nullable), nulls_first=nulls_first)
    for key in others:
        found = truth(sql, values, dict(zip(NAMES, key, strict=False)))
        assert found is (order(key, nulls_first) > order(bound, nulls_first))


def test_without_bounds_any_key_is_in_the_range():
    assert between(None, None, nulls_first=True) == ("", [])


def test_the_first_of_several_columns_stands_alone_as_well_so_that_an_index_can_seek_it():
    sql, values = between(limits((1, 2), (False, False)), None, nulls_first=True)
    assert (sql, values) == ("a >= ? AND ((a > ?) OR (a = ? AND b > ?))", [1, 1, 1, 2])
