"""The section `observe` of a pipeline file, and the servers of a run that others watch.

How many rows of the current batch were read is taken from what Spark reports of its tasks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from headrace.observe.flow import Flow
from headrace.observe.history import Follower, KeptFigures, ProgressHistory, Reading
from headrace.observe.metrics import CONTENT_TYPE, prometheus_text, require_prometheus
from headrace.observe.open_telemetry import Telemetry, otlp_reader, parse_endpoint
from headrace.observe.page import Gone, figures, page_routes, points
from headrace.observe.progress import PipelineProgress
from headrace.observe.server import Answer, ListenAddress, WatchServer, parse_address
from headrace.observe.troubles import Trouble
from headrace.settings import Settings, option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("headrace.pipeline")
_TEXT = "text/plain; charset=utf-8"


class ObserveSettings(Settings):
    """Of the section `observe`."""

    prometheus: ListenAddress | None = option(
        "Where a run answers `GET /metrics` in Prometheus' text format: `127.0.0.1:9464`, or a port alone, which "
        "only this machine reaches. Without it nothing listens. There is no login and no TLS, so name another "
        "address only where others may read it.",
        kind=parse_address,
        default=None,
    )
    opentelemetry: str | None = option(
        "The collector to which a run sends the same numbers over HTTP (OTLP): `http://collector:4318`. The variables "
        "`OTEL_*` say the rest, such as headers and how often.",
        kind=parse_endpoint,
        default=None,
    )
    openlineage: str | None = option(
        "The namespace of the pipeline's job in OpenLineage. With it, a run tells what it reads and writes; to whom, "
        "the variables `OPENLINEAGE_*` or an `openlineage.yml` say.",
        default=None,
    )


class FigureKeeper:
    """Keeps the last figures of a run where others find them.

    Args:
        keep: writes a text in place of the older one.
        every: seconds between two times.
        flow: what flows from where to where.
        hide: takes secrets out of a text.
    """

    def __init__(self, keep: Callable[[str], None], every: float, flow: Flow, hide: Callable[[str], str]) -> None:
        self._keep = keep
        self._every = every
        self._flow = flow
        self._hide = hide
        self._kept = float("-inf")

    def observed(self, moment: Reading) -> None:
        """Keep them, if it is time."""
        if moment.time - self._kept >= self._every:
            self._kept = moment.time
            self.ended(moment)

    def ended(self, last: Reading) -> None:
        """Keep the last ones."""
        text = KeptFigures(figures(last, self._flow), self._every).to_text()
        try:
            self._keep(self._hide(text))
        except Exception as error:
            # Nothing depends on them, and why a run can't write says its next batch.
            _LOG.info("The figures of the run were not kept: %s", error)


class Watch:
    """What is served of one run. Nothing listens before it is asked for, and everything ends with `close`.

    Args:
        name: the pipeline's.
        ask: gives the progress of now; called from a thread of its own, once a second, while something is served.
        hide: takes secrets out of a text.
        flow: what flows from where to where.
        followers: who is told of each look, once somebody wants the run to be looked at.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[], PipelineProgress],
        hide: Callable[[str], str],
        flow: Flow | None = None,
        followers: Iterable[Follower] = (),
    ) -> None:
        self._name = name
        self._hide = hide
        self._flow = flow or Flow()
        self._history = ProgressHistory(ask, observed=self._on_observed)
        self._followers = list(followers)
        self._open = ExitStack()
        self._begun = False
        self._wanted = False
        self._closed = False

    def serve_metrics(self, address: ListenAddress) -> WatchServer:
        """Answer Prometheus.

        Raises:
            OptionError: the address can't be listened on, or Prometheus' client is not installed.
        """
        require_prometheus()
        return self._serve(address, {"/metrics": self._metrics})

    def send_metrics(self, endpoint: str) -> None:
        """Send the numbers to a collector of OpenTelemetry, until the run ends.

        Raises:
            OptionError: the packages are not installed.
        """
        self.follow(Telemetry(self._name, self._newest, otlp_reader(endpoint)))

    def serve_page(self, address: ListenAddress) -> WatchServer:
        """Show the run to a browser: what flows, how far it is, where time goes, and what is wrong.

        Raises:
            OptionError: the address can't be listened on.
        """
        return self._serve(address, page_routes([self], self._hide))

    @property
    def name(self) -> str:
        """The pipeline's."""
        return self._name

    def points(self, since: float) -> list[dict[str, Any]]:
        """Lag and rate after a time, for the page."""
        return points(self._history.moments(since))

    def figures(self) -> dict[str, Any] | None:
        """The state of now, for the page; None before the first look.

        Raises:
            Gone: the run has ended.
        """
        if self._history.failure is not None:
            raise Gone
        newest = self._history.newest
        return None if newest is None else figures(newest, self._flow)

    def follow(self, *followers: Follower) -> None:
        """Look at the run once a second, though nothing is served, and tell whoever is named, and those named before.

        Args:
            followers: who is told of each look.
        """
        self._followers += followers
        if self._begun and not self._wanted:
            self._history.start()
        self._wanted = True

    def begin(self) -> None:
        """The run is there and can be asked."""
        self._begun = True
        if self._wanted:
            self._history.start()

    def close(self, troubles: Sequence[Trouble] | None = None) -> None:
        """Listen no more, and tell those who follow that the run has ended, if it ever began.

        Args:
            troubles: what went wrong, the reason of the end among it; None where that did not change.
        """
        self._open.close()
        self._history.close()
        if self._wanted and self._begun and not self._closed:
            try:
                # The last batch may have come after the last look.
                self._history.observe()
            except Exception as error:
                _LOG.info("The run was not looked at once more at its end: %s", error)
            last = self._history.newest or Reading(time.time(), PipelineProgress())
            at_end = last.progress if troubles is None else replace(last.progress, troubles=tuple(troubles))
            for follower in self._followers:
                follower.ended(replace(last, progress=at_end))
        self._closed = True

    def _newest(self) -> PipelineProgress | None:
        newest = self._history.newest
        return None if newest is None else newest.progress

    def _on_observed(self, moment: Reading) -> None:
        for follower in self._followers:
            follower.observed(moment)

    def _serve(
        self, address: ListenAddress, routes: Mapping[str, Callable[[Mapping[str, str]], Answer]]
    ) -> WatchServer:
        server = WatchServer(address, routes)
        self._open.callback(server.close)
        self.follow()
        return server

    def _metrics(self, query: Mapping[str, str]) -> Answer:
        newest = self._history.newest
        if newest is None or self._history.failure is not None:
            why = "The run has just begun.\n" if self._history.failure is None else "The run can't be asked any more.\n"
            return Answer(_TEXT, why.encode(), HTTPStatus.SERVICE_UNAVAILABLE)
        text = prometheus_text(newest.progress, self._name)
        return Answer(CONTENT_TYPE, self._hide(text.decode()).encode())


def rows_read(spark: SparkSession, group: str, planned: int = 0) -> int:
    """How many rows the running jobs of a query have read in the tasks that are done; Spark says it when a task ends.

    Runs in the driver and starts no job.

    Args:
        spark: the session that the query runs in.
        group: the query's run, which is the group of its jobs.
        planned: about how many rows workers write into files, of which Spark sees none; these count by tasks.
    """
    from py4j.protocol import Py4JError

    tracker = spark.sparkContext.statusTracker()
    store: Any = spark.sparkContext._jsc.sc().statusStore()
    rows = 0
    for job in tracker.getActiveJobsIds():
        try:
            if store.job(job).jobGroup().toString() != f"Some({group})":
                continue
            info = tracker.getJobInfo(job)
            # The first stage reads; what follows counts or writes.
            stage = tracker.getStageInfo(min(info.stageIds)) if info is not None and info.stageIds else None
            if stage is None:
                continue
            in_files = planned * stage.numCompletedTasks // max(1, stage.numTasks)
            rows += max(int(store.lastStageAttempt(stage.stageId).inputRecords()), in_files)
        except Py4JError:
            # It ended meanwhile, and Spark no longer knows it.
            continue
    return rows
