"""The positions of events in their transactions, and the BEGIN and END around them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headrace.changes import Operation
from headrace.sources.postgresql.blocks import Block, Transactions
from headrace.sources.postgresql.change_rows import FIRST, LAST, Rows
from headrace.sources.postgresql.layouts import Layouts
from headrace.sources.transaction_numbers import Tally, number_events
from headrace.wire import pgoutput_kernels as kernels
from headrace.wire.spans import Array

MESSAGES = "message"
"""What the end of a transaction calls its logical messages, which are of no table."""


class EventNumbers:
    """Numbers the events of transactions; keeps what was counted of one that goes on.

    Args:
        layouts: the tables that rows are of.
    """

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._open = Tally()
        self._names: dict[str, int] = {MESSAGES: 0}
        self._of_layouts: list[int] = []

    def number(self, rows: Rows, block: Block, transactions: Transactions) -> tuple[Rows, Mapping[str, dict[int, str]]]:
        """The rows with their numbers and the edges of transactions, and the facts of these.

        Args:
            rows: those that are events have in `total` for how many they count; with 0 they are left out.
            block: where they come from.
            transactions: those of the block.
        """
        rows = rows.only(rows.total != 0)
        events = np.flatnonzero(rows.total > 0)
        count = int(transactions.of.max(initial=0)) + 1
        tallies = [self._open, *(Tally() for _ in range(count - 1))]
        before = self._open.events
        begins = rows.only(events[:0])
        if len(events):
            groups = rows.transactions[events]
            total, own = number_events(groups, self._tables(rows.tables[events]), rows.total[events], tallies)
            numbered = rows._replace(total=rows.total.copy(), own=rows.own.copy())
            numbered.total[events], numbered.own[events] = total, own
            rows = numbered
            begun, firsts = np.unique(groups, return_index=True)
            begins = self._begins(rows.only(events[firsts if not before or begun[0] else firsts[1:]]), transactions)
        ends, facts = self._ends(block, transactions, tallies)
        goes_on = transactions.between.open is not None
        self._open = tallies[-1] if goes_on else Tally()
        return Rows.together([begins, rows, ends]), {"data_collections": facts}

    @staticmethod
    def _begins(first: Rows, transactions: Transactions) -> Rows:
        return Rows.at(
            first.messages,
            FIRST,
            Operation.BEGIN,
            transactions=first.transactions,
            ordinals=-1,
            lsns=transactions.commits[first.transactions],
        )

    def _ends(self, block: Block, transactions: Transactions, tallies: list[Tally]) -> tuple[Rows, dict[int, str]]:
        at = np.flatnonzero(block.messages.kinds == kernels.COMMIT)
        counts = np.array([tally.events for tally in tallies], np.int64)[transactions.of[at]]
        at, counts = at[counts > 0], counts[counts > 0]
        of = transactions.of[at]
        rows = Rows.at(
            at,
            LAST,
            Operation.END,
            transactions=of,
            ordinals=-1,
            lsns=transactions.commits[of],
            mark="z",
            total=counts,
        )
        names = list(self._names)
        said = {
            place: tallies[number].collections(names)
            for place, number in zip(rows.order.tolist(), of.tolist(), strict=True)
        }
        return rows, said

    def _tables(self, layouts: Array) -> Array:
        """The number of the name of each row's table."""
        for layout in self._layouts.all[len(self._of_layouts) :]:
            self._of_layouts.append(self._names.setdefault(layout.table.id.path, len(self._names)))
        # The last is for rows of no table, whose layout is -1.
        return np.array([*self._of_layouts, 0], np.int64)[layouts]
