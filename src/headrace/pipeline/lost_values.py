"""How many values of a batch its messages and tables do not hold, by the sinks that lack them; the log says it once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from headrace.changes import TableId
from headrace.formats.encoded_batch import OutOfRange
from headrace.pipeline.target import Target
from headrace.sinks.base import BatchId

_LOG = logging.getLogger("headrace.pipeline")


_Counts = dict[str, dict[str, int]]
"""How many values by table and column."""


def count_out_of_range(made: Sequence[tuple[Target, OutOfRange]], batch: BatchId, *, several: bool) -> _Counts:
    """How many values a batch's formats did not hold by table and column; each format that has some is logged.

    Args:
        made: the sinks, with what was counted for them.
        batch: the batch.
        several: whether names of tables begin with their database.
    """
    for target, lost in made:
        if lost.values:
            _LOG.warning(
                "Batch %d: the format of %s does not hold some values (%s). Null stands there, or the nearest value "
                "where the column can't be NULL (event.converting.failure.handling.mode). The first is in %s.",
                batch.number,
                target.label,
                _listed(lost.columns),
                lost.first,
            )
    return _named([lost.columns for _, lost in made], several=several)


def count_nulled(targets: Sequence[Target], batch: BatchId, *, several: bool) -> _Counts:
    """How many values sinks wrote as NULL by table and column; each sink that did is logged.

    Args:
        targets: the sinks that got rows of the batch.
        batch: the batch.
        several: whether names of tables begin with their database.
    """
    found = []
    for target in targets:
        tables = target.sink.nulled()
        nulled = {(id, name): count for id, columns in tables.items() for name, count in columns.items()}
        found.append(nulled)
        if nulled:
            _LOG.warning(
                "Batch %d: columns of %s have no place for some values, and NULL stands there (unrepresentable): %s.",
                batch.number,
                target.label,
                _listed(nulled),
            )
    return _named(found, several=several)


def _listed(columns: Mapping[tuple[TableId, str], int]) -> str:
    lines = sorted((f"{id}.{name}", count) for (id, name), count in columns.items())
    return "; ".join(f"{count:,} in {column}" for column, count in lines)


def _named(sinks: Sequence[Mapping[tuple[TableId, str], int]], *, several: bool) -> _Counts:
    found: dict[str, Counter[str]] = {}
    for (id, name), count in (line for columns in sinks for line in columns.items()):
        found.setdefault(id.full_path if several else id.path, Counter())[name] += count
    return {table: dict(columns) for table, columns in found.items()}
