"""The section `observe` of a pipeline file, and the servers of a run that others watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any

from headrace.observe.flow import Flow
from headrace.observe.history import ProgressHistory
from headrace.observe.page import Gone, figures, page_routes, points
from headrace.observe.progress import PipelineProgress
from headrace.observe.prometheus import CONTENT_TYPE, prometheus_text, require_prometheus
from headrace.observe.server import Answer, ListenAddress, WatchServer, parse_address
from headrace.settings import Settings, option

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


class Watch:
    """What is served of one run. Nothing listens before it is asked for, and everything ends with `close`.

    Args:
        name: the pipeline's.
        ask: gives the progress of now; called from a thread of its own, once a second, while something is served.
        hide: takes secrets out of a text.
        flow: what flows from where to where.
    """

    def __init__(
        self, name: str, ask: Callable[[], PipelineProgress], hide: Callable[[str], str], flow: Flow | None = None
    ) -> None:
        self._name = name
        self._hide = hide
        self._flow = flow or Flow()
        self._history = ProgressHistory(ask)
        self._open = ExitStack()
        self._begun = False
        self._wanted = False

    def serve_metrics(self, address: ListenAddress) -> WatchServer:
        """Answer Prometheus.

        Raises:
            OptionError: the address can't be listened on, or Prometheus' client is not installed.
        """
        require_prometheus()
        return self._serve(address, {"/metrics": self._metrics})

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
        """The state of now, for the page; null before the first look.

        Raises:
            Gone: the run has ended.
        """
        if self._history.failure is not None:
            raise Gone
        newest = self._history.newest
        return None if newest is None else figures(newest, self._flow)

    def begin(self) -> None:
        """The run is there and can be asked."""
        self._begun = True
        if self._wanted:
            self._history.start()

    def close(self) -> None:
        """Listen no more."""
        self._open.close()
        self._history.close()

    def _serve(
        self, address: ListenAddress, routes: Mapping[str, Callable[[Mapping[str, str]], Answer]]
    ) -> WatchServer:
        server = WatchServer(address, routes)
        self._open.callback(server.close)
        if self._begun and not self._wanted:
            self._history.start()
        self._wanted = True
        return server

    def _metrics(self, query: Mapping[str, str]) -> Answer:
        newest = self._history.newest
        if newest is None or self._history.failure is not None:
            why = "The run has just begun.\n" if self._history.failure is None else "The run can't be asked any more.\n"
            return Answer(_TEXT, why.encode(), HTTPStatus.SERVICE_UNAVAILABLE)
        text = prometheus_text(newest.progress, self._name)
        return Answer(CONTENT_TYPE, self._hide(text.decode()).encode())
