"""`changeSequence` of rows that bring none along.

A change's number has 35 digits: 25 for the commit of its position, and 10 that count the changes in that commit, of all
tables. A position itself is too long for 35 digits, and commit times are no order, because clocks are set. So sorting
messages by it gives the source's order, and since a batch has whole commits, a repeated one repeats it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FormatError
from headrace.formats.event_numbers import PLACE
from headrace.wire.spans import Array

COMMIT, COUNT = 25, 10
_SHORT = 16


class Counter:
    """Numbers the changes that a task writes, as far as they were not counted over the whole batch."""

    def __init__(self) -> None:
        self._last: tuple[str, int] = ("", 0)

    def sequences(self, rows: pa.RecordBatch) -> pa.StringArray:
        """The number of each change.

        Args:
            rows: changes with positions, and with their numbers in commits where those were counted; those of a commit
                come in their order, in one task, where they were not.
        """
        positions = rows.column("position").fill_null("")
        commits = pc.replace_substring_regex(positions, "/.*$", "").dictionary_encode()
        count = pa.array(self._counts(commits))
        if PLACE in rows.schema.names:
            count = pc.coalesce(rows.column(PLACE), count)
        begins = pa.array([commit_digits(word) for word in commits.dictionary.to_pylist()], pa.string())
        digits = pc.utf8_lpad(count.cast(pa.string()), COUNT, "0")
        return pc.binary_join_element_wise(begins.take(commits.indices), digits, "")

    def _counts(self, commits: pa.DictionaryArray) -> Array:
        """The number of each change among those of its commit."""
        words, of = commits.dictionary.to_pylist(), commits.indices.to_numpy()
        count: Array = np.empty(of.size, np.int64)
        order = np.argsort(of, kind="stable")
        begins = np.searchsorted(of[order], np.arange(len(words)))
        count[order] = np.arange(of.size) - begins[of[order]] + 1
        if of.size:
            commit, known = self._last
            if commit in words:
                count[of == words.index(commit)] += known
            self._last = words[of[-1]], int(count[-1])
        return count


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
