"""Which dead letters were replayed: kept beside Spark's own files in the checkpoint, so that none is replayed twice."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.observe.checkpoint import REPLAYED, reading
from headrace.versions import require_readable

_VERSION = 1

DeadLetterRows = Mapping[str, Mapping[int, tuple[tuple[int, int], ...]]]
"""Offsets of dead letters: first and last of those that follow one another, in order, by topic and partition."""


@dataclass(frozen=True)
class ReplayedBatch:
    """One replay.

    Args:
        batch: the batch of the checkpoint under which sinks have it.
        at: when it was finished.
        letters: how many dead letters it settled.
    """

    batch: int
    at: dt.datetime
    letters: int


@dataclass(frozen=True)
class Replayed:
    """All replays of a checkpoint.

    Args:
        letters: the dead letters that need not be replayed again.
        batches: the replays, in order.
    """

    letters: DeadLetterRows = field(default_factory=dict)
    batches: tuple[ReplayedBatch, ...] = ()

    @property
    def count(self) -> int:
        """How many dead letters were replayed."""
        return sum(batch.letters for batch in self.batches)

    def ranges(self) -> list[tuple[str, int, int, int]]:
        """Topic, partition, first and last offset of what was replayed."""
        return [
            (topic, partition, first, last)
            for topic, partitions in self.letters.items()
            for partition, found in partitions.items()
            for first, last in found
        ]

    def with_batch(self, batch: ReplayedBatch, ranges: Iterable[tuple[str, int, int, int]]) -> Replayed:
        """With one replay more."""
        by_partition: dict[str, dict[int, list[tuple[int, int]]]] = {}
        for topic, partition, first, last in [*self.ranges(), *ranges]:
            by_partition.setdefault(topic, {}).setdefault(partition, []).append((first, last))
        letters = {
            topic: {partition: _joined(found) for partition, found in sorted(partitions.items())}
            for topic, partitions in sorted(by_partition.items())
        }
        return Replayed(letters, (*self.batches, batch))

    def to_text(self) -> str:
        """As it is kept."""
        letters = {
            topic: {str(p): found for p, found in partitions.items()} for topic, partitions in self.letters.items()
        }
        batches = [
            {"batch": batch.batch, "at": batch.at.isoformat(), "letters": batch.letters} for batch in self.batches
        ]
        return json.dumps({"version": _VERSION, "letters": letters, "batches": batches})

    @classmethod
    def from_text(cls, text: str | None) -> Replayed:
        """Back from `to_text`; nothing where nothing was replayed.

        Raises:
            OptionError: it can't be read.
        """
        if text is None:
            return cls()
        with reading(REPLAYED, without="Without the file, all dead letters can be replayed again."):
            data: Any = json.loads(text)
            require_readable(
                data["version"], _VERSION, what=f"The checkpoint's '{REPLAYED}'", remedy="Replay with that release."
            )
            letters = {
                topic: {int(p): tuple((int(first), int(last)) for first, last in found) for p, found in parts.items()}
                for topic, parts in data["letters"].items()
            }
            batches = tuple(
                ReplayedBatch(int(one["batch"]), dt.datetime.fromisoformat(one["at"]), int(one["letters"]))
                for one in data["batches"]
            )
        return cls(letters, batches)


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same offsets in order, in as few ranges as can be."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)
