"""What `Pipeline.status` and `headrace ui` show of a pipeline, whether it runs or not, here or elsewhere.

The checkpoint, its lease and the source are asked, never the run itself.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.observe.checkpoint import MESSAGE_COUNTS, batch_offsets, committed_batch, local_path, open_folder
from headrace.observe.completeness import offsets_of
from headrace.observe.history import FILE as FIGURES
from headrace.observe.history import KeptFigures, Reading
from headrace.observe.kept_offsets import check_checkpoint
from headrace.observe.messages import KeptCounts, skipped_messages
from headrace.observe.page import figures, figures_of_status
from headrace.observe.parked_tables import ParkedTable, of_database, parked_tables
from headrace.observe.progress import PipelineProgress
from headrace.observe.status import DatabaseStatus, PipelineStatus, database_status
from headrace.observe.troubles import Troubles
from headrace.pipeline.checkpoint import holder
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.lease import FOLDER as LEASES
from headrace.pipeline.lease import LeaseHolder, lease_holder
from headrace.pipeline.model import Model
from headrace.pipeline.written_tables import flow_of
from headrace.sources.base import Source
from headrace.sources.databases import Databases, Offsets
from headrace.sources.offset import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline_status(model: Model, spark: SparkSession | None, *, ask_source: bool) -> PipelineStatus:
    """Where a pipeline stands now. Nothing is written, and a run is not disturbed."""
    folder = open_folder(model.checkpoint, spark)
    check_checkpoint(folder, kind=model.source_type)
    batch = committed_batch(folder)
    lines = [] if batch is None else batch_offsets(folder, batch)
    line = lines[0] if lines else None
    here = local_path(model.checkpoint) is not None
    leased = here or bool(folder.names(LEASES))
    by = holder(model.checkpoint) if here else lease_holder(folder)
    status = PipelineStatus(
        name=model.name,
        checkpoint=model.checkpoint,
        batch=batch,
        running=by is not None if leased else None,
        process=None if by is None else by.process,
        host="" if not isinstance(by, LeaseHolder) else by.host,
        run=KeptFigures.from_text(folder.text(FIGURES)),
    )
    counts = KeptCounts.from_text(folder.text(MESSAGE_COUNTS)).up_to(batch)
    source = model.source
    if isinstance(source, KafkaTopics):
        return replace(
            status, topics=json.loads(line) if line else {}, messages=counts, skipped=skipped_messages(folder)
        )
    offsets = (offsets_of(line) if line else None) or Offsets()
    now = dt.datetime.now(dt.UTC)
    captured = Databases(source).sources
    parked, several = parked_tables(folder), len(captured) > 1
    parts = [
        _database(name, one, offsets.of(name), now, ask_source, of_database(parked, name, several=several))
        for name, one in captured.items()
    ]
    return replace(status, databases=tuple(parts), messages=counts or None)


def _database(
    name: str, source: Source, offset: Offset, now: dt.datetime, ask: bool, parked: Mapping[str, ParkedTable]
) -> DatabaseStatus:
    if not ask:
        return database_status(name, offset, None, None, now, asked=False, parked=parked)
    health = source.health(offset)
    try:
        head = source.head_after(offset)
    except HeadraceError as error:
        if not health.sentence:
            health = replace(health, sentence=f"The source can't be asked: {error.message}", remedy=error.remedy)
        return database_status(name, offset, None, health, now, parked=parked)
    return database_status(name, offset, head, health, now, parked=parked)


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
        values, pause = self._read_figures()
        with self._lock:
            self._figures = values
            if not self._points or values["time"] > self._points[-1]["time"]:
                self._points.append({name: values[name] for name in ("time", "lag_seconds", "rows_per_second")})
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
            values = figures(Reading(now, PipelineProgress(troubles=met.recent())), self._flow)
            return values | {"level": "bad", "state": "can't be looked at"}, _STATUS_SECONDS

    def _keep_refreshing(self) -> None:
        while not self._closed.is_set():
            self._closed.wait(self.refresh())
