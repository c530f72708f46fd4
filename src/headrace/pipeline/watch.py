"""The section `observe` of a pipeline file, and the servers of a run that others watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from http import HTTPStatus

from headrace.observe.history import ProgressHistory
from headrace.observe.progress import Progress
from headrace.observe.prometheus import CONTENT_TYPE, prometheus_text, require_prometheus
from headrace.observe.server import Address, Answer, WatchServer, parse_address
from headrace.options import Option

_TEXT = "text/plain; charset=utf-8"


PROMETHEUS = Option(
    "prometheus",
    parse_address,
    "Where a run answers `GET /metrics` in Prometheus' text format: `127.0.0.1:9464`, or a port alone, which only this "
    "machine reaches. Without it nothing listens. There is no login and no TLS, so name another address only where "
    "others may read it.",
    default=None,
)
OPTIONS = (PROMETHEUS,)


class Watch:
    """What is served of one run. Nothing listens before it is asked for, and everything ends with `close`.

    Args:
        name: the pipeline's.
        ask: gives the progress of now; called from a thread of its own, once a second, while something is served.
    """

    def __init__(self, name: str, ask: Callable[[], Progress]) -> None:
        self._name = name
        self._history = ProgressHistory(ask)
        self._open = ExitStack()
        self._begun = False
        self._wanted = False

    def serve_metrics(self, address: Address) -> WatchServer:
        """Answer Prometheus.

        Raises:
            OptionError: the address can't be listened on, or Prometheus' client is not installed.
        """
        require_prometheus()
        return self._serve(address, {"/metrics": self._metrics})

    def begin(self) -> None:
        """The run is there and can be asked."""
        self._begun = True
        if self._wanted:
            self._history.start()

    def close(self) -> None:
        """Listen no more."""
        self._open.close()
        self._history.close()

    def _serve(self, address: Address, routes: Mapping[str, Callable[[Mapping[str, str]], Answer]]) -> WatchServer:
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
        return Answer(CONTENT_TYPE, prometheus_text(newest.progress, self._name))
