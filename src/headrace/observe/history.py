"""The progress of a run, looked at once a second and kept for a while: what pages and scrapes are answered from.

Any number of them asks the source no more often than one screen does, and none waits for it.

The last figures of a run stay beside Spark's own files, so that others see them without asking the run; nothing depends
on them. The file's name begins with a point, so that an earlier release, which does not know the file, goes on
from the checkpoint.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.observe.progress import PipelineProgress

_MOST = 3600


@dataclass(frozen=True)
class Reading:
    """One look.

    Args:
        time: seconds since 1970.
        progress: what it showed.
    """

    time: float
    progress: PipelineProgress


class Follower(Protocol):
    """Whoever is told of each look at a run, and of its end."""

    def observed(self, moment: Reading) -> None:
        """A look, from the thread that looks."""

    def ended(self, last: Reading) -> None:
        """The run has ended. `last` is the last look, with why it ended among its troubles where it failed."""


class ProgressHistory:
    """Looks at a run from its own thread, until it is closed or the run has ended.

    Args:
        ask: gives the progress of now.
        every: seconds between two looks.
        most: how many are kept; the oldest go first.
        clock: seconds since 1970.
        observed: called with each look, by the thread that looks.
    """

    def __init__(
        self,
        ask: Callable[[], PipelineProgress],
        *,
        every: float = 1.0,
        most: int = _MOST,
        clock: Callable[[], float] = time.time,
        observed: Callable[[Reading], None] = lambda moment: None,
    ) -> None:
        self._ask = ask
        self._every = every
        self._clock = clock
        self._on_observed = observed
        self._moments: deque[Reading] = deque(maxlen=most)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_observing, name="headrace-history", daemon=True)
        self.failure: Exception | None = None
        """Why it looks no more, where it was not closed."""

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Look no more; a look that goes on is waited for."""
        self._closed.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def moments(self, since: float = 0.0) -> list[Reading]:
        """What was seen after a time, oldest first."""
        with self._lock:
            return [moment for moment in self._moments if moment.time > since]

    @property
    def newest(self) -> Reading | None:
        """The last look; None before the first."""
        with self._lock:
            return self._moments[-1] if self._moments else None

    def observe(self) -> None:
        moment = Reading(self._clock(), self._ask())
        with self._lock:
            self._moments.append(moment)
        self._on_observed(moment)

    def _keep_observing(self) -> None:
        while not self._closed.is_set():
            try:
                self.observe()
            except Exception as error:
                # The run ends, and Spark with it; the caller gets the error.
                self.failure = error
                return
            self._closed.wait(self._every)


FILE = ".headrace.progress.json"
_FORM = 1
_MISSED = 3
"""So many times in a row a run that works may be late."""


@dataclass(frozen=True)
class KeptFigures:
    """Figures of a moment.

    Args:
        figures: as `headrace.observe.page.figures` has them.
        every: seconds between two times that they are kept.
    """

    figures: Mapping[str, Any]
    every: float

    @property
    def time(self) -> float:
        """When they were so, in seconds since 1970."""
        return float(self.figures["time"])

    def are_fresh(self, now: float) -> bool:
        """Whether a run that still works may have kept them."""
        return now - self.time < _MISSED * self.every + 1

    def to_text(self) -> str:
        return json.dumps({"form": _FORM, "every": self.every, "figures": self.figures}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str | None) -> KeptFigures | None:
        """Back from `to_text`; None where there are none, where they are half written, or of another form."""
        try:
            data = json.loads(text or "")
            kept = cls(dict(data["figures"]), float(data["every"])) if data["form"] == _FORM else None
            return kept if kept is not None and kept.time else None
        except (ValueError, KeyError, TypeError):
            return None
