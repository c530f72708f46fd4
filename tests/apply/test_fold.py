"""Tables with a key: a batch becomes one row per key, the one that its last change leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.apply import carried, fold, profile
from headrace.changes import Column, LogicalType
from headrace.testing.change_history import Batch, pos, table

T = table()
NEWER = replace(T, columns=(*T.columns, Column("c", 4, LogicalType("string"))))
A = {"id": "1", "a": "x", "b": "y"}
KEEPS = "keeps"
"""The column stays what it is in the target."""


def folded(spark: Any, batch: Batch, standing: Any = None) -> dict[int | None, Any]:
    """Per key: None for a delete, else its values; with the position, and `!` where a row is missing that can't be."""
    rows = batch.rows(spark)
    (found,) = profile(rows)
    with carried(rows, found, standing) as whole:
        lines = fold(whole, found).collect()
    out: dict[int | None, Any] = {}
    for row in lines:
        values = row["row"].asDict()
        key = values.pop("id")
        assert key not in out
        if row["op"] == "delete":
            out[key] = (None, row["position"])
            continue
        if row["present"] is not None:
            values = {name: value if name in row["present"] else KEEPS for name, value in values.items()}
        out[key] = (values, row["position"] if row["whole"] else "!" + row["position"])
    return out


CASES = {
    "the last of several changes wins": (
        [("c", 1, A, None), ("u", 2, {**A, "a": "x2"}, A), ("u", 3, {**A, "a": "x3", "b": None}, None)],
        {1: ({"a": "x3", "b": None}, pos(3))},
    ),
    "a deleted row stays deleted": (
        [("u", 1, A, None), ("d", 2, None, A)],
        {1: (None, pos(2))},
    ),
    "deleted and inserted again": (
        [("d", 1, None, A), ("c", 2, {**A, "a": "new"}, None)],
        {1: ({"a": "new", "b": "y"}, pos(2))},
    ),
    "inserted and deleted": ([("c", 1, A, None), ("d", 2, None, A)], {1: (None, pos(2))}),
    "a snapshot row before a change loses": (
        [("r", 1, A, None), ("u", 2, {**A, "a": "newer"}, None)],
        {1: ({"a": "newer", "b": "y"}, pos(2))},
    ),
    "a key change leaves the old key and takes the new one": (
        [("u", 1, {**A, "id": "2"}, A)],
        {1: (None, pos(1)), 2: ({"a": "x", "b": "y"}, pos(1))},
    ),
    "a key changed twice": (
        [("u", 1, {**A, "id": "2"}, A), ("u", 2, {**A, "id": "3"}, {**A, "id": "2"})],
        {1: (None, pos(1)), 2: (None, pos(2)), 3: ({"a": "x", "b": "y"}, pos(2))},
    ),
    "two rows swap keys": (
        [
            ("u", 1, {**A, "id": "9"}, A),
            ("u", 2, {"id": "1", "a": "two", "b": None}, {"id": "2", "a": "two", "b": None}),
            ("u", 3, {**A, "id": "2"}, {**A, "id": "9"}),
        ],
        {1: ({"a": "two", "b": None}, pos(2)), 2: ({"a": "x", "b": "y"}, pos(3)), 9: (None, pos(3))},
    ),
    "what an image does not carry stays": (
        [("u", 1, {"id": "1", "a": "x2"}, None)],
        {1: ({"a": "x2", "b": KEEPS}, "!" + pos(1))},
    ),
    "null is a value and absent is not": (
        [("u", 1, {"id": "1", "a": None}, None)],
        {1: ({"a": None, "b": KEEPS}, "!" + pos(1))},
    ),
    "partial images lie over one another": (
        [("u", 1, {"id": "1", "a": "x1"}, None), ("u", 2, {"id": "1", "b": None}, None)],
        {1: ({"a": "x1", "b": None}, "!" + pos(2))},
    ),
    "a partial image over a whole one is whole": (
        [("c", 1, A, None), ("u", 2, {"id": "1", "b": "y2"}, None)],
        {1: ({"a": "x", "b": "y2"}, pos(2))},
    ),
    "a whole image over a partial one is whole": (
        [("u", 1, {"id": "1", "b": "y1"}, None), ("u", 2, A, None)],
        {1: ({"a": "x", "b": "y"}, pos(2))},
    ),
    "a partial update after a delete has nothing to keep": (
        [("d", 1, None, A), ("u", 2, {"id": "1", "b": "y2"}, None)],
        {1: ({"a": None, "b": "y2"}, "!" + pos(2))},
    ),
    "a key change with a partial image takes the rest from before": (
        [("u", 1, {"id": "2"}, A)],
        {1: (None, pos(1)), 2: ({"a": "x", "b": "y"}, pos(1))},
    ),
    "a key change without a whole image can't stand alone": (
        [("u", 1, {"id": "2"}, {"id": "1"})],
        {1: (None, pos(1)), 2: ({"a": KEEPS, "b": KEEPS}, "!" + pos(1))},
    ),
    "what came before a truncate is gone": (
        [("c", 1, A, None), ("t", 2, None, None), ("c", 3, {**A, "id": "2"}, None)],
        {2: ({"a": "x", "b": "y"}, pos(3))},
    ),
    "after a truncate there is nothing to keep": (
        [("t", 1, None, None), ("u", 2, {"id": "1", "a": "x"}, None)],
        {1: ({"a": "x", "b": None}, "!" + pos(2))},
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES.keys())
def test_changes_fold_to_the_last_row_of_each_key(spark: Any, changes: Any, expected: Any) -> None:
    batch = Batch(T)
    for op, at, after, before in changes:
        batch.add(op, T, at, after, before)
    assert folded(spark, batch) == expected


def test_an_update_of_the_older_structure_leaves_newer_columns_alone(spark: Any) -> None:
    batch = Batch(T).structure(NEWER, 1).add("u", T, 1, A)
    assert folded(spark, batch) == {1: ({"a": "x", "b": "y", "c": KEEPS}, pos(1))}


def test_an_insert_of_the_older_structure_has_null_in_newer_columns(spark: Any) -> None:
    batch = Batch(T).structure(NEWER, 1).add("d", T, 1, None, A).add("c", T, 2, A)
    assert folded(spark, batch) == {1: ({"a": "x", "b": "y", "c": None}, pos(2))}


@pytest.mark.parametrize("op", ["r", "c"])
def test_an_insert_that_is_older_than_the_given_structure_lacks_nothing(spark: Any, op: str) -> None:
    rest = {"a": "x2"} if op == "c" else {"a": "x2", "c": KEEPS}
    batch = Batch().structure(NEWER, "").add(op, NEWER, 1, A).add("u", NEWER, 2, {"id": "1", "a": "x2"}, {"id": "1"})
    assert folded(spark, batch) == {1: ({"b": "y", "c": None, **rest}, pos(2))}
    # Of an update it is not known what it lacks.
    assert folded(spark, Batch().structure(NEWER, "").add("u", NEWER, 1, A)) == {
        1: ({"a": "x", "b": "y", "c": KEEPS}, "!" + pos(1))
    }


def test_rows_over_a_structure_change_lie_over_one_another(spark: Any) -> None:
    batch = Batch(T).structure(NEWER, 2).add("c", T, 1, A).add("u", NEWER, 2, {**A, "c": "z"})
    batch.add("u", T, 3, {**A, "a": "late"})
    assert folded(spark, batch) == {1: ({"a": "late", "b": "y", "c": "z"}, pos(3))}


def test_null_in_a_key_column_is_one_key(spark: Any) -> None:
    two = table(key=("id", "k"), id="int32", k="string", a="string")
    batch = (
        Batch(two).add("c", two, 1, {"id": "1", "k": None, "a": "x"}).add("u", two, 2, {"id": "1", "k": None, "a": "y"})
    )
    batch.add("c", two, 3, {"id": "1", "k": "null", "a": "z"})
    rows = batch.rows(spark)
    (found,) = profile(rows)
    got = {(r["row"]["id"], r["row"]["k"], r["row"]["a"]) for r in fold(rows, found).collect()}
    assert got == {(1, None, "y"), (1, "null", "z")}


def test_keys_are_compared_by_value_and_not_by_spelling(spark: Any) -> None:
    priced = table(id="decimal(10,2)", a="string")
    batch = Batch(priced).add("c", priced, 1, {"id": "12.5", "a": "x"}).add("d", priced, 2, None, {"id": "12.50"})
    rows = batch.rows(spark)
    (found,) = profile(rows)
    assert [r["op"] for r in fold(rows, found).collect()] == ["delete"]


def test_other_tables_are_left_out(spark: Any) -> None:
    other = table("other")
    rows = Batch(T, other).add("c", T, 1, A).add("c", other, 2, {**A, "id": "2"}).rows(spark)
    first, _ = profile(rows)
    assert [r["row"]["id"] for r in fold(rows, first).collect()] == [2]


@pytest.mark.smoke("changes1-*")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # What the batch said of the old key goes over.
        (
            [("c", 1, A, None), ("u", 2, {"id": "2", "b": "w"}, {"id": "1"})],
            {1: (None, pos(2)), 2: ({"a": "x", "b": "w"}, pos(2))},
        ),
        # So it does over several changes of key, one after the other and crosswise.
        (
            [
                ("c", 1, A, None),
                ("c", 2, {**A, "id": "2", "a": "other"}, None),
                ("u", 3, {"id": "9"}, {"id": "1"}),
                ("u", 4, {"id": "1"}, {"id": "2"}),
                ("u", 5, {"id": "2"}, {"id": "9"}),
            ],
            {1: ({"a": "other", "b": "y"}, pos(4)), 2: ({"a": "x", "b": "y"}, pos(5)), 9: (None, pos(5))},
        ),
        # An older row of the old key is not the one that moves.
        (
            [
                ("c", 1, A, None),
                ("d", 2, None, A),
                ("c", 3, {**A, "a": "second"}, None),
                ("u", 4, {"id": "2"}, {"id": "1"}),
            ],
            {1: (None, pos(4)), 2: ({"a": "second", "b": "y"}, pos(4))},
        ),
        # What was said before an update of the old key counts too.
        (
            [
                ("c", 1, A, None),
                ("u", 2, {"id": "1", "b": "z"}, None),
                ("u", 3, {"id": "2"}, {"id": "1"}),
                ("u", 4, {"id": "2", "a": "last"}, None),
            ],
            {1: (None, pos(3)), 2: ({"a": "last", "b": "z"}, pos(4))},
        ),
    ],
)
def test_a_change_of_key_takes_over_what_it_does_not_say(spark: Any, changes: Any, expected: Any) -> None:
    batch = Batch(T)
    for op, at, after, before in changes:
        batch.add(op, T, at, after, before)
    assert folded(spark, batch) == expected


def at_read(n: int) -> str:
    """The position of a row that was read, in a read that began at this commit."""
    return f"{n:08}/r00001:00000001/00000000"


AFTER = {"id": "2", "a": "moved", "b": "large"}
ANOTHER = {"id": "1", "a": "other", "b": "small"}


@pytest.mark.smoke("*the target")
@pytest.mark.parametrize("within", ["the target", "the batch"])
@pytest.mark.parametrize("left", [False, True], ids=["", "after another row left the new key"])
def test_a_change_of_key_takes_what_a_read_beside_the_stream_found_of_its_row(
    spark: Any, within: str, left: bool
) -> None:
    """A read stands at the commit at which it began and sees later ones, so its rows may be from after the change."""
    batch, stood = Batch(T), []
    old = {"id": "1", "a": "moved", "b": "large"}
    # What the read found: the row under its new key, and another one that came to the old key since. Or everything as
    # it was, and a row at the new key that leaves it first.
    read = [old, {"id": "2", "a": "leaves", "b": "gone"}] if left else [ANOTHER, AFTER]
    for image in read:
        if within == "the batch":
            batch.add("r", T, at_read(1), image)
        else:
            stood.append((int(image["id"]), image["a"], image["b"], at_read(1)))
    if left:
        batch.add("d", T, 4, None, {"id": "2"})
    batch.add("u", T, 5, {"id": "2", "a": "moved"}, {"id": "1"})
    standing = spark.createDataFrame(stood, "id int, a string, b string, since string").selectExpr(
        "struct(id, a, b) as row", "since", "cast(null as string) as until"
    )
    values = {"a": "moved", "b": "large"}
    assert folded(spark, batch, lambda _: standing) == {1: (None, pos(5)), 2: (values, pos(5))}
