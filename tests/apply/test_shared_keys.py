"""Rows that take over each other's keys in one transaction: all of them are there in the end, and no other is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.moving_keys import BARE, MAPPINGS, Database, T, gone, mapped, messages, random_database, written

from headrace.apply import carried, fold, profile, sequenced
from headrace.apply.history import change_events, ordered, versions
from headrace.changes.position import Position
from headrace.changes.refusal import refused
from headrace.testing.change_history import Batch


def at(transaction: int, number: int) -> str:
    return Position(f"{transaction:08}", f"{number:04}").text


def batches(databases: Sequence[Database], cuts: Sequence[Sequence[int]]) -> list[Batch]:
    """All logs in as many batches as there are cuts, of which each says per database the transactions that it has."""
    out, done = [], [0] * len(databases)
    for cut in cuts:
        batch = Batch(databases[0].schema)
        for number, (database, upto) in enumerate(zip(databases, cut, strict=True)):
            for transaction in range(done[number], upto):
                for place, (op, after, before) in enumerate(database.log[transaction]):
                    batch.add(op, database.schema, at(transaction + 1, place), after, before)
                    batch.lines[-1]["source"] = {"connector": "postgresql"}
            done[number] = upto
        out.append(batch)
    return out


def test_any_transactions_cut_between_any_of_them_leave_the_rows_of_the_database(spark: Any) -> None:
    draw = random.Random(33)
    databases = [random_database(f"{number}", draw) for number in range(400)]
    cuts = [sorted(draw.randint(0, 4) for _ in range(2)) for _ in databases]
    parts = batches(databases, [[cut[0] for cut in cuts], [cut[1] for cut in cuts], [4] * len(databases)])
    held = set(written(spark, [parts[0], parts[0], *parts[1:], parts[2]]).values())
    differing = {
        database.case: (database.log, database.content())
        for database in databases
        if {row for row in held if row[0] == database.case} != database.content()
    }
    assert not differing


@pytest.mark.parametrize("schema", [T, BARE], ids=["equal rows", "keys alone"])
def test_rows_that_are_equal_are_none_lost(spark: Any, schema: Any) -> None:
    databases = [mapped(f"{n}", *mapping, schema=schema, a="same") for n, mapping in enumerate(MAPPINGS)]
    # The key of a circle by way of a free one never had a row.
    by_a_free_key = Database("free", schema)
    by_a_free_key.begin()
    first, second = by_a_free_key.insert(1, "same"), by_a_free_key.insert(2, "same")
    by_a_free_key.begin()
    for row, key in ((first, "9"), (second, "1"), (first, "2")):
        by_a_free_key.change(row, id=key)
    databases.append(by_a_free_key)
    held = written(spark, batches(databases, [[1] * len(databases), [2] * len(databases)]))
    assert set(held.values()) == set().union(*(database.content() for database in databases))


def by_transaction(batch: Batch) -> tuple[list[Any], list[Any]]:
    """The lines of the first transaction of each database, and those of the second."""
    numbered = [(line["transaction"][0].endswith(":1"), line) for line in batch.lines if line["op"] != "schema"]
    return [line for second, line in numbered if not second], [line for second, line in numbered if second]


@pytest.mark.smoke("schema0-oracle-False-False", "schema3-postgresql-True-True")
@pytest.mark.parametrize(
    ("schema", "connector", "pairs", "headers"),
    [
        (T, "oracle", False, False),
        (T, "oracle", True, False),
        (T, "postgresql", True, True),
        (BARE, "postgresql", True, True),
    ],
)
def test_messages_of_rows_that_are_equal_lose_none(
    spark: Any, schema: Any, connector: str, pairs: bool, headers: bool
) -> None:
    whole, cut, parts, expected = Batch(schema), Batch(), [Batch(schema), Batch(schema)], set()
    for times, batch in ((1, whole), (2, whole), (1, cut), (2, cut)):
        kind = f"{'cut' if batch is cut else 'whole'} {times}"
        made = [
            mapped(f"{kind} {n}", *m, schema=schema, a="same") for n, m in enumerate(MAPPINGS) if n % 2 == times % 2
        ]
        for database in (*made, *gone(schema, "same", kind)):
            expected |= database.content()
            # Messages come at least once.
            for _ in range(times):
                messages(batch, database, connector, pairs=pairs, headers=headers, before="whole")
    for part, lines in zip(parts, by_transaction(cut), strict=True):
        part.lines += lines
    assert set(written(spark, [whole, *parts]).values()) == expected


@pytest.mark.smoke("oracle-said3", "postgresql-said5")
@pytest.mark.parametrize(
    ("connector", "said"),
    [
        ("oracle", {"pairs": False, "headers": False, "before": "whole"}),
        ("oracle", {"pairs": False, "headers": False, "before": "whole", "transaction": False}),
        ("mysql", {"pairs": False, "headers": False, "before": "whole", "transaction": False}),
        ("oracle", {"pairs": True, "headers": False, "before": "whole"}),
        ("oracle", {"pairs": True, "headers": True, "before": "whole", "transaction": False}),
        ("postgresql", {"pairs": True, "headers": True, "before": "whole"}),
    ],
)
def test_messages_of_keys_that_move_along_lose_no_row(spark: Any, connector: str, said: Any) -> None:
    databases, batch = [mapped(f"{n}", *mapping) for n, mapping in enumerate(MAPPINGS)], Batch(T)
    for made in databases:
        messages(batch, made, connector, **said)
    held = written(spark, [batch, batch])
    assert set(held.values()) == set().union(*(made.content() for made in databases))


# Debezium fills images of MySQL and PostgreSQL; Oracle's have the whole row.
@pytest.mark.smoke("True-oracle-whole", "False-postgresql-filled")
@pytest.mark.parametrize(
    ("connector", "before"),
    [("oracle", "whole"), *((name, before) for name in ("mysql", "postgresql") for before in ("whole", "filled"))],
)
@pytest.mark.parametrize("pairs", [False, True])
def test_what_left_a_key_in_its_transaction_is_not_there(spark: Any, connector: str, pairs: bool, before: str) -> None:
    batch = Batch(T)
    for made in gone():
        messages(batch, made, connector, pairs=pairs, headers=pairs, before=before)
        # Messages come at least once.
        messages(batch, made, connector, pairs=pairs, headers=pairs, before=before)
    held = written(spark, [batch])
    assert set(held.values()) == set().union(*(made.content() for made in gone()))


@pytest.mark.parametrize(("onto", "stops"), [("234", True), ("456", False)])
def test_images_that_do_not_tell_which_row_left_a_key_stop_the_batch(spark: Any, onto: str, stops: bool) -> None:
    made, batch = mapped("1", "123", onto), Batch(T)
    messages(batch, made, "oracle", pairs=False, headers=False, before="key")
    if not stops:
        assert set(written(spark, [batch]).values()) == made.content()
        return
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as caught:
        written(spark, [batch])
    error = refused(str(caught.value))
    assert error is not None
    assert error.message.startswith("Table db.dbo.t has rows that take over each other's keys in one transaction")


def test_of_equal_rows_none_is_lost_in_a_target_that_is_not_there(spark: Any) -> None:
    made, batch = mapped("1", "123", "234", a="same"), Batch(T)
    messages(batch, made, "oracle", pairs=False, headers=False, before="whole")
    rows = sequenced(batch.rows(spark))
    (found,) = profile(rows)
    with carried(rows, found) as whole:
        lines = fold(whole, found).where("op = 'upsert'").collect()
    assert {tuple(None if v is None else str(v) for v in line["row"]) for line in lines} == made.content()


def test_equal_rows_stop_where_images_do_not_tell_which_one_left_an_occupied_key(spark: Any) -> None:
    moved_on = Database("2")
    for change in (1, 2):
        moved_on.begin()
        row = moved_on.insert(1, "same") if change == 1 else "row 1"
    for key in ("9", "8"):
        moved_on.change(row, id=key)
    for made, stops in ((mapped("1", "123", "234", a="same"), True), (moved_on, False)):
        every, parts = Batch(), [Batch(T), Batch(T)]
        messages(every, made, "oracle", pairs=False, headers=False, before="key")
        for part, lines in zip(parts, by_transaction(every), strict=True):
            part.lines += lines
        if not stops:
            assert set(written(spark, parts).values()) == made.content()
            continue
        with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as caught:
            written(spark, parts)
        error = refused(str(caught.value))
        assert error is not None
        assert "the images before these changes lack columns" in error.message


def test_a_history_has_a_version_of_each_row_at_its_key(spark: Any) -> None:
    databases = [mapped(f"{n}", *mapping) for n, mapping in enumerate(MAPPINGS)]
    (batch,) = batches(databases, [[2] * len(databases)])
    rows = batch.rows(spark)
    (found,) = profile(rows)
    names = [column.name for column in T.columns]
    events = ordered(change_events(rows, found), T.key, names, names)
    standing = versions(events, T.key).where("end is null").collect()
    held = {tuple(None if v is None else str(v) for v in line["row"]) for line in standing}
    assert held == set().union(*(made.content() for made in databases))
