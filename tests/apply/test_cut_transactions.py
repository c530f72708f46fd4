"""Transactions of messages that are cut between two batches: as if they had come in one, or the batch stops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from tests.support.moving_keys import MAPPINGS, Database, mapped, messages, written

from headrace.testing.change_history import Batch

WAYS = [
    ("oracle", {"pairs": False, "headers": False, "before": "whole"}),
    ("oracle", {"pairs": True, "headers": False, "before": "whole"}),
    ("db2", {"pairs": True, "headers": True, "before": "whole"}),
]


def cut_at(made: Sequence[tuple[Database, Sequence[int]]], connector: str, said: Any) -> list[Batch]:
    """The messages of databases in batches, each cut before these messages of its own."""
    parts: list[Batch] = []
    for database, cuts in made:
        every = Batch()
        messages(every, database, connector, **said)
        edges = [0, *cuts, len(every.lines)]
        for number, (begin, end) in enumerate(pairwise(edges)):
            if number == len(parts):
                parts.append(Batch(database.schema))
            parts[number].lines += every.lines[begin:end]
    return parts


def differing(spark: Any, made: Sequence[tuple[Database, Sequence[int]]], connector: str, said: Any) -> dict[str, Any]:
    held = written(spark, cut_at(made, connector, said)).values()
    return {
        database.case: (cuts, database.log[1:], sorted(row for row in held if row[0] == database.case))
        for database, cuts in made
        if {row for row in held if row[0] == database.case} != database.content()
    }


@pytest.mark.parametrize(("connector", "said"), WAYS)
def test_keys_that_move_along_in_a_transaction_that_is_cut_anywhere_lose_no_row(
    spark: Any, connector: str, said: Any
) -> None:
    size = 6 if said["pairs"] else 3
    made = [
        (mapped(f"{number}/{cut}/{more}", *mapping), (3 + cut, 3 + more))
        for number, mapping in enumerate(MAPPINGS)
        for cut in range(1, size)
        for more in {cut, size - 1}
    ]
    assert not differing(spark, made, connector, said)
