"""What planners of batches have in common, whatever the database is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from headrace.errors import PositionMismatch
from headrace.sources.base import Limit
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.snapshots.chunks import snapshot_finished


class PlannedSettings(Protocol):
    """The options by which batches are planned."""

    @property
    def snapshot_mode(self) -> str:
        """When tables are read."""

    @property
    def snapshot_include_collection_list(self) -> tuple[str, ...]:
        """The only tables that are read before their changes; empty for all."""

    @property
    def snapshot_chunk_rows(self) -> int:
        """How many rows a chunk has; 0 for a table in one piece."""

    @property
    def snapshot_chunks_per_batch(self) -> int:
        """How many chunks a batch has at the most."""

    @property
    def max_commits_per_trigger(self) -> int:
        """How many commits a batch has at the most; 0 for no bound."""

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often a heartbeat is planned; 0 for never."""

    @property
    def fail_on_data_loss(self) -> bool:
        """Whether a loss stops the run."""


AnySettings = TypeVar("AnySettings", bound=PlannedSettings)


class BatchPlanner(Generic[AnySettings]):
    """Decides where the next batch ends. Runs in the driver.

    Args:
        settings: the source's options.
        identity: `Offset.source`.
        restarted: whether this process has planned no batch yet.
    """

    def __init__(self, settings: AnySettings, identity: str, *, restarted: bool) -> None:
        self._settings = settings
        self._identity = identity
        self._restarted = restarted

    def _require_own(self, start: Offset) -> None:
        """See that an offset is of this database.

        Raises:
            PositionMismatch: it is not.
        """
        if start.source != self._identity:
            raise PositionMismatch(
                f"The checkpoint belongs to '{start.source}', not to '{self._identity}'.",
                remedy="Use another checkpoint for another database.",
            )

    def _heartbeat_is_due(self, start: Offset, now: dt.datetime) -> bool:
        every = self._settings.heartbeat_interval_ms
        if not every:
            return False
        return start.heartbeat is None or now - start.heartbeat >= dt.timedelta(milliseconds=every)

    def _planned(self, start: Offset, end: Offset, now: dt.datetime) -> Offset:
        """The end of a batch that is planned now, with what each batch says."""
        end = replace(end, initial=end.initial and not snapshot_finished(end), capture_time=now)
        end = end.counting_reads(start)
        return replace(end, heartbeat=now) if self._heartbeat_is_due(start, now) else end

    def _with_chunks(
        self,
        lagging: Mapping[str, TableProgress],
        limit: Limit,
        more: Callable[[str, TableProgress, int], TableProgress],
    ) -> dict[str, TableProgress]:
        """Snapshots with the chunks that one batch may hold, tables one after another.

        Args:
            lagging: as no batch has read a further chunk yet, by table.
            limit: how many a batch may hold.
            more: gives a table's snapshot with up to so many further chunks.
        """
        budget = limit.chunks or self._settings.snapshot_chunks_per_batch
        advanced = {}
        for path, progress in lagging.items():
            if not progress.done:
                progress = more(path, progress, budget)
                # The chunks of a table without a key may be more.
                budget = max(0, budget - len(progress.bounds))
            advanced[path] = progress
        return advanced
