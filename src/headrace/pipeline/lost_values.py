"""How many values of a batch its messages and tables do not hold, by the sinks that lack them; the log says it once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from headrace.formats.encoded_batch import OutOfRange
from headrace.pipeline.target import Target
from headrace.sinks.base import BatchId

_LOG = logging.getLogger("headrace.pipeline")


def count_out_of_range(made: Sequence[tuple[Target, OutOfRange]], batch: BatchId) -> int:
    """How many values a batch's formats did not hold; each format that has some is logged."""
    found = 0
    for target, lost in made:
        found += lost.values
        if lost.values:
            _LOG.warning(
                "Batch %d: the format of %s does not hold %s, the first in %s. Null stands there, or the nearest value "
                "where the column can't be NULL (event.converting.failure.handling.mode).",
                batch.number,
                target.label,
                "a value" if lost.values == 1 else f"{lost.values:,} values",
                lost.first,
            )
    return found


def count_nulled(targets: Sequence[Target], batch: BatchId, *, several: bool) -> dict[str, dict[str, int]]:
    """How many values sinks wrote as NULL by table and column; each sink that did is logged.

    Args:
        targets: the sinks that got rows of the batch.
        batch: the batch.
        several: whether names of tables begin with their database.
    """
    found: dict[str, Counter[str]] = {}
    for target in targets:
        nulled = target.sink.nulled()
        for id, columns in nulled.items():
            found.setdefault(id.full_path if several else id.path, Counter()).update(columns)
        if nulled:
            _LOG.warning(
                "Batch %d: columns of %s have no place for some values, and NULL stands there (unrepresentable): %s.",
                batch.number,
                target.label,
                "; ".join(
                    f"{count:,} in {id}.{name}" for id, columns in nulled.items() for name, count in columns.items()
                ),
            )
    return {table: dict(columns) for table, columns in found.items()}
