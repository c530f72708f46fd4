"""Serial numbers of captured changes, for formats whose messages carry one (`source['id']`).

A number says the batch and the position in it, and needs no count of what other tasks read. The batch's number stands
in its end offset, so that a replay gives the same numbers; it is the time of planning in seconds, or one more than that
of the batch before, so that numbers also grow where a pipeline begins with a new checkpoint. A batch has 2^32 numbers,
which are shared out to its slices when it is planned; a slice numbers its rows in their order.

Sorting the changes of one table by their numbers gives the order of the source. Changes of several tables have
different numbers too, unless a slice has more rows than its own share. All fit in 63 bits, until 2088.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.errors import CaptureError
from headrace.sources.base import Slice
from headrace.sources.rows import with_fact

FACT = "id"
"""The name of a number in `source`."""
_BITS = 32
_BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


def next_batch(before: int, now: dt.datetime) -> int:
    """The number of the batch that is planned now.

    Args:
        before: that of the batch before.
        now: the time.
    """
    return max(before + 1, int((now - _BEGIN).total_seconds()))


def shares(slices: Sequence[tuple[str, Slice]], batch: int) -> list[range]:
    """The numbers of each slice's rows.

    Slices with rows of the same table have numbers one after another, in the order given. Others may stand side by
    side: each begins in the first half of what they share, and may go on to its end.

    Args:
        slices: of a batch, each with its database.
        batch: its number.
    """
    layers = _layers(slices)
    room = (1 << _BITS) // (max(layers, default=0) + 1)
    beside, begun = Counter(layers), Counter[int]()
    ranges = []
    for layer in layers:
        first = (batch << _BITS) + layer * room
        ranges.append(range(first + begun[layer] * (room // (2 * beside[layer])), first + room))
        begun[layer] += 1
    return ranges


def _layers(slices: Sequence[tuple[str, Slice]]) -> list[int]:
    """How many slices have to come before each one."""
    layers: list[int] = []
    last: dict[tuple[str, str], int] = {}
    # All tables are behind this one.
    floor = 0
    for database, piece in slices:
        if piece.tables is None:
            layers.append(max(layers, default=-1) + 1)
            floor = layers[-1] + 1
            continue
        tables = [(database, table) for table in piece.tables]
        layers.append(max([floor, *(last[table] + 1 for table in tables if table in last)]))
        last |= dict.fromkeys(tables, layers[-1])
    return layers


def numbered(batches: Iterable[pa.RecordBatch], numbers: range) -> Iterator[pa.RecordBatch]:
    """The change rows of a slice with their numbers.

    Raises:
        CaptureError: there are more rows than numbers.
    """
    for batch in batches:
        taken, numbers = numbers[: batch.num_rows], numbers[batch.num_rows :]
        if len(taken) < batch.num_rows:
            raise CaptureError(
                "The changes that one task reads are more than the serial numbers it has.",
                remedy="Set commits_per_slice higher, so that the batch has fewer tasks with more numbers each.",
            )
        texts = pa.array(np.arange(taken.start, taken.stop)).cast(pa.string())
        yield with_fact(batch, FACT, texts)
