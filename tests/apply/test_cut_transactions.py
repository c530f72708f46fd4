"""Transactions of messages that are cut between batches: as if they had come in one, or the batch stops."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.smoke import examples
from tests.support.moving_keys import BARE, MAPPINGS, Database, T, gone, mapped, messages, written

from headrace.apply.history import change_events, ordered, versions
from headrace.changes.refusal import refused
from headrace.testing.change_history import Batch

WHOLE = {"pairs": False, "headers": False, "before": "whole"}
PAIRS = {**WHOLE, "pairs": True}
MARKED = {**PAIRS, "headers": True}


def lines_of(database: Database, connector: str, said: Any) -> list[dict[str, Any]]:
    every = Batch()
    messages(every, database, connector, **said)
    return every.lines


def cut(made: Sequence[tuple[Database, Sequence[Any]]], connector: str, said: Any) -> list[Batch]:
    """The messages of databases in batches, each cut before these messages of its own; by partition where a cut says
    so."""
    parts: list[Batch] = []
    for database, cuts in made:
        lines = lines_of(database, connector, said)
        edges = [0, *cuts, len(lines)]
        for number, (begin, end) in enumerate(pairwise(edges)):
            if number == len(parts):
                parts.append(Batch(database.schema))
            parts[number].lines += [
                line for at, line in enumerate(lines) if _edge(begin, line, 0) <= at < _edge(end, line, len(lines))
            ]
    return parts


def _edge(edge: Any, line: dict[str, Any], default: int) -> int:
    return edge.get(line["message"]["partition"], default) if isinstance(edge, dict) else edge


def everywhere(database: Database, connector: str, said: Any) -> list[tuple[Database, tuple[int, int]]]:
    """The database with its second transaction cut once and twice at every place."""
    whole = lines_of(database, connector, said)
    first = sum(line["transaction"][0].endswith(":0") for line in whole)
    places = range(first + 1, len(whole))
    return [
        (replace(database, case=f"{database.case}/{one}/{two}"), (one, two))
        for one in places
        for two in {one, places[-1]}
    ]


def renamed(made: Sequence[tuple[Database, Any]]) -> list[tuple[Database, Any]]:
    """The same with the name of the case in every row."""
    out = []
    for database, cuts in made:
        case = {"case": database.case}
        log = [
            [(op, *({**image, **case} if image else None for image in images)) for op, *images in changes]
            for changes in database.log
        ]
        rows = {name: {**row, **case} for name, row in database.rows.items()}
        out.append((replace(database, log=log, rows=rows), cuts))
    return out


def differing(made: Sequence[tuple[Database, Any]], held: Any) -> dict[str, Any]:
    found: dict[str, set[Any]] = {}
    for row in held:
        found.setdefault(row[0], set()).add(row)
    return {
        database.case: (cuts, database.log[1:], found.get(database.case))
        for database, cuts in made
        if found.get(database.case, set()) != database.content()
    }


@pytest.mark.smoke("oracle-said1")
@pytest.mark.parametrize(
    ("connector", "said"),
    [("oracle", WHOLE), ("oracle", PAIRS), ("postgresql", MARKED), ("db2", {**MARKED, "partitions": 3})],
)
def test_keys_that_move_along_and_rows_that_come_and_go_in_a_transaction_that_is_cut_anywhere(
    spark: Any, connector: str, said: Any
) -> None:
    made = [one for n, mapping in enumerate(MAPPINGS) for one in everywhere(mapped(f"{n}", *mapping), connector, said)]
    for database in gone():
        # A row that comes to a key and leaves it for another one stops where it is cut, see below.
        if said is PAIRS or database.case not in ("moved on", "swapped by a free key"):
            made += everywhere(database, connector, said)
    made = renamed(made)[:: (120 // examples(120)) ** 2]
    if said.get("partitions"):
        draw = random.Random(34)
        made = [
            (database, [{p: place + draw.choice([-1, 0, 1, 2]) for p in range(3)} for place in cuts[:1]])
            for database, cuts in made
        ]
    parts = cut(made, connector, said)
    # A batch may come again.
    assert not differing(made, written(spark, [parts[0], *parts[:2], *parts[1:]]).values())


@pytest.mark.system
def test_a_history_of_a_transaction_that_is_cut_has_a_version_of_each_row(spark: Any) -> None:
    made = renamed(
        [one for n, mapping in enumerate(MAPPINGS) for one in everywhere(mapped(f"{n}", *mapping), "oracle", WHOLE)][
            ::3
        ]
    )
    events: list[Any] = []

    def keep(rows: Any, found: Any) -> None:
        events.append(change_events(rows, found).persist())
        # What a batch carries is freed at its end.
        events[-1].count()

    written(spark, cut(made, "oracle", WHOLE), keep)
    every = events[0]
    for more in events[1:]:
        every = every.unionByName(more)
    names = [column.name for column in T.columns]
    standing = versions(ordered(every, T.key, names, names), T.key).where("end is null").collect()
    assert not differing(made, [tuple(None if v is None else str(v) for v in line["row"]) for line in standing])


def swapped_by_a_free_key() -> Database:
    return next(database for database in gone() if database.case == "swapped by a free key")


@pytest.mark.parametrize(
    ("database", "said", "at", "sentence"),
    [
        (mapped("1", "123", "234"), {**WHOLE, "before": "key"}, 4, "the images before these changes lack columns"),
        (mapped("1", "123", "234", schema=BARE), MARKED, 5, "an earlier batch has the beginning"),
        # Another row may have been at the key by which the first one goes.
        (swapped_by_a_free_key(), WHOLE, 3, "an earlier batch has the beginning"),
    ],
)
def test_what_a_cut_leaves_unknown_stops_the_batch(
    spark: Any, database: Database, said: Any, at: int, sentence: str
) -> None:
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as caught:
        written(spark, cut([(database, (at,))], "informix" if said["pairs"] else "goldengate", said))
    error = refused(str(caught.value))
    assert error is not None
    assert f"Table db.dbo.{database.schema.id.name} has rows that take over each other's keys" in error.message
    assert sentence in error.message


def test_without_transactions_each_batch_is_one_and_the_last_change_of_a_key_decides(spark: Any) -> None:
    database = mapped("1", "123", "234")
    parts = cut([(database, (5,))], "oracle", {**MARKED, "transaction": False})
    # The first row came to key 2 before the second one left it.
    assert set(written(spark, parts).values()) == {row for row in database.content() if row[1] != "2"}
