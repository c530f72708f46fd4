"""When a run that should end (`--once`) has everything: what the source offered at its start rests in all sinks, and
planning once more finds nothing left to do. Asked in the driver, beside the run.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.errors import ConnectError
from headrace.pipeline.kafka_source import OffsetRange, reached, require_not_older
from headrace.sources.databases import Databases, Offsets

_PLAN_SECONDS = 1.0


class Ending(Protocol):
    """Says when a run may end."""

    def is_reached(self, committed: int | None) -> bool:
        """Whether nothing is left behind a batch.

        Args:
            committed: the newest batch that rests in all sinks; None before the first.

        Raises:
            HeadraceError: the run can't go on from there.
        """


class DatabasesEnding:
    """At the commits that the databases had at the start, when the next batch would have nothing.

    What a new process does only once (`snapshot.mode: always` reads all tables again) is due until a batch shows it.

    Args:
        databases: the source.
        offset: where a batch ends, in Spark's text; null for one that is not kept any more.
        planned: the newest batch that was planned before the run began; None for none.
    """

    def __init__(self, databases: Databases, offset: Callable[[int], str | None], planned: int | None) -> None:
        self._databases = databases
        self._offset = offset
        self._planned = -1 if planned is None else planned
        self._followed = self._planned - 1
        self._heads = databases.head()
        self._due = set() if planned is None else set(databases.sources)
        self._asked = float("-inf")

    def is_reached(self, committed: int | None) -> bool:
        """Whether the heads are reached and planning finds nothing more; planning is asked at most once a second."""
        if committed is None:
            return False
        offsets = self._follow(committed)
        if offsets is None or not offsets.finished(self._heads) or time.monotonic() - self._asked < _PLAN_SECONDS:
            return False
        now = dt.datetime.now(dt.UTC)
        try:
            return self._databases.finished(offsets, self._heads, now, self._due)
        except ConnectError:
            # The run asks the same server; it tries again for as long as its options say, and says it when it gives up.
            return False
        finally:
            self._asked = time.monotonic()

    def _follow(self, committed: int) -> Offsets | None:
        """Where the batch ends; on the way it is seen what the run has begun."""
        offsets = None
        for batch in range(min(max(self._followed + 1, 0), committed), committed + 1):
            text = self._offset(batch)
            offsets = Offsets.from_text(text)
            self._due = {name for name in self._due if not self._begun(name, batch, offsets)}
        self._followed = max(self._followed, committed)
        return offsets

    def _begun(self, database: str, batch: int, offsets: Offsets | None) -> bool:
        if offsets is None:
            return True
        if self._databases.sources[database].snapshots.at_every_start:
            return batch >= self._planned and offsets.of(database).initial
        return batch > self._planned


class TopicsEnding:
    """At the offsets that the topics had at the start.

    Args:
        head: what they held.
        offset: where a batch ends, in Spark's text.
        begun: where the newest committed batch ended at the start; None before the first.
        newest_only: whether what was there before the first start is not wanted.
        fail_on_data_loss: whether messages that are gone stop the run.

    Raises:
        DataLossError: a topic is shorter than what was read of it, and that is to stop the run.
    """

    def __init__(
        self,
        head: Mapping[str, Mapping[str, OffsetRange]],
        offset: Callable[[int], str | None],
        begun: str | None,
        *,
        newest_only: bool,
        fail_on_data_loss: bool,
    ) -> None:
        if fail_on_data_loss:
            require_not_older(begun, head)
        self._head = head
        self._offset = offset
        self._newest_only = newest_only

    def is_reached(self, committed: int | None) -> bool:
        """Whether every partition was read up to there."""
        text = None if committed is None else self._offset(committed)
        # From `latest` on, what was there before the first start is not wanted, so there is nothing to wait for.
        return (text is None and self._newest_only) or reached(text, self._head)
