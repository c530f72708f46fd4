"""The memory sink: batches kept in the driver's process, for tests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.changes.table import TableId
from headrace.settings import Settings, option
from headrace.sinks.base import BatchId, LastBatch, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_lock = threading.Lock()
_kept: dict[str, dict[BatchId, list[Any]]] = {}


class MemorySettings(Settings):
    """Where in the process's memory batches are kept."""

    name: str = option("The name of the batches; see `MemorySink.batches`.", default="memory")


class MemorySink(Sink):
    """Keeps the change rows of every batch in this process under a name. For tests and small trials only.

    Order: rows lie in position order. Idempotence: a batch that is there already is not taken again; another one under
    the same number stops. Runs in the
    driver.
    """

    name: ClassVar[str] = "memory"
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    takes: ClassVar[Literal["messages", "changes"]] = "changes"
    takes_errors: ClassVar[bool] = True
    is_one_place: ClassVar[bool] = True
    settings: MemorySettings

    def check(self) -> None:
        """Memory is always there."""

    def permissions(self, tables: Sequence[TableId], topics: Sequence[str]) -> None:
        """There is nobody to ask."""

    def places(self, table: TableId | None = None, topic: str | None = None) -> frozenset[str]:
        return frozenset([f"memory '{self.settings.name}'"])

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        name = self.settings.name
        with _lock:
            ours = [kept for kept in _kept.get(name, {}) if (kept.owner, kept.sink) == (batch.owner, batch.sink)]
            same = next((kept for kept in ours if kept.number == batch.number), None)
            newest = same or max(ours, key=lambda kept: kept.number, default=None)
            if newest is not None and LastBatch(newest.number, newest.offsets).covers(batch, f"memory '{name}'"):
                return
        collected = rows.orderBy("position").collect()
        with _lock:
            _kept.setdefault(name, {}).setdefault(batch, collected)

    @staticmethod
    def batches(name: str = "memory") -> dict[BatchId, list[Any]]:
        """The batches kept under a name, in the order in which they came; each a list of Spark rows."""
        with _lock:
            return dict(_kept.get(name, {}))

    @staticmethod
    def forget(name: str = "memory") -> None:
        """Drop what is kept under a name."""
        with _lock:
            _kept.pop(name, None)
