"""Looks at pipelines from outside, whether they run or not, here or elsewhere: what `headrace ui` shows."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.observe.history import Reading
from headrace.observe.page import figures, figures_of_status
from headrace.observe.progress import PipelineProgress
from headrace.observe.troubles import Troubles
from headrace.pipeline.flow import flow_of
from headrace.pipeline.model import Model
from headrace.pipeline.status import pipeline_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST = 3600
_FIGURES_SECONDS = 2.0
_STATUS_SECONDS = 5.0


class StatusWatcher:
    """One pipeline, looked at every few seconds by a thread of its own until it is closed.

    Where a run keeps its figures in the checkpoint, they are read, and nobody else is asked. Else the source is.

    Args:
        model: the pipeline.
        spark: a classic session, for a checkpoint that is not on this machine.
        clock: seconds since 1970.
    """

    def __init__(self, model: Model, spark: SparkSession | None, clock: Callable[[], float] = time.time) -> None:
        self.name = model.name
        self._model = model
        self._spark = spark
        self._clock = clock
        self._flow = flow_of(model)
        self._points: deque[dict[str, Any]] = deque(maxlen=_MOST)
        self._figures: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_refreshing, name=f"headrace-status-{self.name}", daemon=True)

    def begin(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more. A look that waits for a server is not waited for."""
        self._closed.set()

    def points(self, since: float) -> list[dict[str, Any]]:
        """Lag and rate after a time."""
        with self._lock:
            return [point for point in self._points if point["time"] > since]

    def figures(self) -> dict[str, Any] | None:
        """The state of the last look; None before the first."""
        with self._lock:
            return self._figures

    def refresh(self) -> float:
        """Look now. Gives how many seconds later to look again."""
        found, pause = self._read_figures()
        with self._lock:
            self._figures = found
            if not self._points or found["time"] > self._points[-1]["time"]:
                self._points.append({name: found[name] for name in ("time", "lag_seconds", "rows_per_second")})
        return pause

    def _read_figures(self) -> tuple[dict[str, Any], float]:
        now = self._clock()
        try:
            status = pipeline_status(self._model, self._spark, ask_source=False)
            if status.told_by_run(now) is not None:
                return figures_of_status(status, self._flow, now), _FIGURES_SECONDS
            status = pipeline_status(self._model, self._spark, ask_source=True)
            return figures_of_status(status, self._flow, now), _STATUS_SECONDS
        except Exception as error:
            # Whatever it is, the next look may be better.
            met = Troubles()
            met.add(error)
            found = figures(Reading(now, PipelineProgress(troubles=met.recent())), self._flow)
            return found | {"level": "bad", "state": "can't be looked at"}, _STATUS_SECONDS

    def _keep_refreshing(self) -> None:
        while not self._closed.is_set():
            self._closed.wait(self.refresh())
