"""`changeSequence` of rows that bring none along.

A change's number has 35 digits: 25 for the commit of its position, and 10 that count the changes of its table in that
commit. A position itself is too long for 35 digits, and commit times are no order, because clocks are set. So sorting
the messages of a table by it gives the source's order, and since a batch has whole commits, a repeated one repeats it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableId
from headrace.errors import FormatError
from headrace.formats.change_messages import tables_of

COMMIT, COUNT = 25, 10
_SHORT = 16


class Counter:
    """Numbers the changes that a task writes."""

    def __init__(self) -> None:
        self._last: dict[TableId, tuple[str, int]] = {}

    def sequences(self, rows: pa.RecordBatch) -> pa.StringArray:
        """The number of each change.

        Args:
            rows: changes with positions; those of a table and commit come in their order, in one task.
        """
        positions = rows.column("position").fill_null("")
        commits = pc.replace_substring_regex(positions, "/.*$", "").dictionary_encode()
        words = commits.dictionary.to_pylist()
        numbers, tables = tables_of(rows)
        table, commit = numbers.to_numpy(), commits.indices.to_numpy()
        group = table.astype(np.int64) * max(1, len(words)) + commit
        order = np.argsort(group, kind="stable")
        first = np.ones(order.size, bool)
        first[1:] = group[order][1:] != group[order][:-1]
        begin = np.maximum.accumulate(np.where(first, np.arange(order.size), 0))
        count = np.empty(order.size, np.int64)
        count[order] = np.arange(order.size) - begin + 1
        for number, known in ((n, self._last.get(id)) for n, id in enumerate(tables)):
            if known is not None and known[0] in words:
                count[group == number * len(words) + words.index(known[0])] += known[1]
        # The last row of each table says where its next ones go on.
        _, ends = np.unique(table[::-1], return_index=True)
        for row in table.size - 1 - ends:
            self._last[tables[table[row]]] = words[commit[row]], int(count[row])
        begins = pa.array([commit_digits(word) for word in words], pa.string()).take(commits.indices)
        return pc.binary_join_element_wise(begins, pc.utf8_lpad(pa.array(count).cast(pa.string()), COUNT, "0"), "")


def commit_digits(commit: str) -> str:
    """The commit of a position in digits, which compare as it does.

    Raises:
        FormatError: it is neither a number of any length in hexadecimal digits, nor as short as others fit.
    """
    word = commit.replace(":", "")
    # The length decides, because it is the same for all commits of a source.
    base = 36 if len(word) <= _SHORT else 16
    try:
        number = int(word or "0", base)
    except ValueError as error:
        raise FormatError(
            f"The position '{commit}' of a change can't be written as a number.",
            remedy="Write commits in hexadecimal digits, or with 16 letters at most.",
        ) from error
    return str(number).zfill(_width(base, len(word)))


@cache
def _width(base: int, size: int) -> int:
    """How many digits such numbers are written with."""
    return max(COMMIT, len(str(base**size)))
