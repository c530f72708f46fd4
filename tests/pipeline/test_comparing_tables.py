"""Two tables compared: equal ones cheaply, others down to the rows and columns that differ."""

from __future__ import annotations

from typing import Any

from headrace.pipeline.comparison import Comparison, Difference, compare
from headrace.spark.local_rows import local_rows

DDL = "id int, a string, b decimal(5,2)"


def found(spark: Any, expected: list[Any], actual: list[Any], key: tuple[str, ...] = ("id",), **how: Any) -> Comparison:
    left = local_rows(spark, expected, "id int, a string, b string").selectExpr(
        "id", "a", "cast(b as decimal(5,2)) as b"
    )
    right = local_rows(spark, actual, "a string, b string, id bigint")
    return compare(left, right, key, chunks=4, **how)


def test_rows_that_are_missing_extra_or_different_are_told_by_key(spark: Any) -> None:
    expected = [(n, "x", "1.50") for n in range(10)] + [(10, None, None)]
    actual = [("x", "1.50", n) for n in range(9)] + [(None, None, 10)]
    assert found(spark, [*expected[:9], expected[10]], actual) == Comparison(10, 10, 4)
    # NULL in one column is not NULL in the other, and a key is in one place only.
    actual[3] = (None, "1.51", 3)
    told = found(spark, expected, [*actual[:5], *actual[6:], ("x", "1.50", 77)])
    assert (told.expected, told.actual, told.differing_rows, told.equal) == (11, 10, 4, False)
    assert told.differences == (
        Difference("different", '{"id":3}', ("a", "b")),
        Difference("missing", '{"id":5}'),
        Difference("extra", '{"id":77}'),
        Difference("missing", '{"id":9}'),
    )
    # Without a key, rows are told apart by their values and counted.
    told = found(spark, [(1, "x", "1"), (1, "x", "1")], [("x", "1", 1)], key=(), most=1)
    assert told.differences == (Difference("different", '{"id":1,"a":"x","b":1.00}'),)


def test_a_value_that_the_sources_type_can_not_hold_is_a_difference(spark: Any) -> None:
    left = local_rows(spark, [(1, "1.23", 7), (2, "2", 7)], "id int, p string, n int")
    left = left.selectExpr("id", "cast(p as decimal(10,2)) as p", "cast(n as tinyint) as n", "id as t")
    right = local_rows(spark, [(1, "1.2345", 5000, "1"), (2, "2.0000", 7, "x")], "id bigint, p string, n int, t string")
    right = right.selectExpr("id", "cast(p as decimal(10,4)) as p", "n", "t")
    assert compare(left, right, ["id"]).differences == (
        Difference("different", '{"id":1}', ("p", "n")),
        Difference("different", '{"id":2}', ("t",)),
    )
