"""The positions of events in their transactions, and what the end of a transaction says of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Tally:
    """What was counted of a transaction so far.

    Args:
        events: all of them.
        by_table: those of each table, by its number, in the order in which the tables came.
    """

    events: int = 0
    by_table: dict[int, int] = field(default_factory=dict)

    def collections(self, names: Sequence[str]) -> str:
        """The counts of all tables, as the fact `data_collections` of an END.

        Args:
            names: `database.schema.table` by the table's number.
        """
        found = [
            {"data_collection": names[table], "event_count": count} for table, count in self.by_table.items() if count
        ]
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def number_events(
    groups: np.ndarray, tables: np.ndarray, weights: np.ndarray, tallies: Sequence[Tally]
) -> tuple[np.ndarray, np.ndarray]:
    """The number of each event in its transaction, and in it among those of its table; counts them, too.

    Args:
        groups: the number of each event's transaction; they ascend.
        tables: the number of its table.
        weights: for how many events it counts; what follows it has a number that is higher by that.
        tallies: what was counted before of each transaction; it is counted on.
    """
    total = _running(groups, weights, np.array([tally.events for tally in tallies], np.int64))
    width = int(tables.max(initial=0)) + 1
    pairs, firsts, places = np.unique(groups * width + tables, return_index=True, return_inverse=True)
    of_group, of_table = (part.tolist() for part in np.divmod(pairs, width))
    before = [tallies[group].by_table.get(table, 0) for group, table in zip(of_group, of_table, strict=True)]
    own = _running(places, weights, np.array(before, np.int64))
    counts = np.bincount(places, weights).astype(np.int64).tolist()
    # In order of first appearance, as the list of collections has it.
    for pair in np.argsort(firsts).tolist():
        tally, table = tallies[of_group[pair]], of_table[pair]
        tally.by_table[table] = tally.by_table.get(table, 0) + counts[pair]
        tally.events += counts[pair]
    return total, own


def _running(groups: np.ndarray, weights: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The number of each event in its group: that of its first message, after what was counted before."""
    order = np.argsort(groups, kind="stable")
    sorted_groups, sorted_weights = groups[order], weights[order]
    sums = np.cumsum(sorted_weights) - sorted_weights
    starts = np.searchsorted(sorted_groups, np.arange(len(before)))
    numbers: np.ndarray = np.empty(len(groups), dtype=np.int64)
    numbers[order] = sums - sums[np.minimum(starts, len(groups) - 1)][sorted_groups] + before[sorted_groups] + 1
    return numbers
