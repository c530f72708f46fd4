"""What went wrong lately in a run, with what to do about it: what its driver warned of, and errors that pass."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.errors import HeadraceError

_LOGGER = "headrace"
_MOST = 20


@dataclass(frozen=True)
class Trouble:
    """One thing that went wrong, once or again and again.

    Args:
        sentence: what is wrong.
        remedy: what to do about it; empty where nothing has to be done, or nobody knows.
        at: when it was last so.
        times: how often.
        fatal: whether it ended the run.
    """

    sentence: str
    remedy: str
    at: dt.datetime
    times: int = 1
    fatal: bool = False


class Troubles(logging.Handler):
    """The last troubles of a run. Collects what Headrace warns of in this process while it is open.

    What workers and the planner's own process warn of stands in their logs alone.

    Args:
        now: the time of day in UTC.
    """

    def __init__(self, now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)) -> None:
        super().__init__(logging.WARNING)
        self._now = now
        self._found: dict[tuple[str, str], Trouble] = {}
        self._guard = threading.Lock()
        self.count = 0
        """How many there were, each as often as it came."""

    def open(self) -> None:
        """Begin to collect what is logged."""
        logging.getLogger(_LOGGER).addHandler(self)

    def close(self) -> None:
        """Collect no more; what was collected stays."""
        logging.getLogger(_LOGGER).removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record of the log; an error in it says its remedy apart."""
        arguments = record.args if isinstance(record.args, tuple) else ()
        error = next((argument for argument in arguments if isinstance(argument, HeadraceError)), None)
        if error is None:
            self._add(record.getMessage(), "", record.getMessage())
            return
        # Attempts are numbered, and the same error all the same.
        sentence = record.getMessage().replace(str(error), error.message)
        self._add(sentence, error.remedy, error.message)

    def add(self, error: BaseException, *, fatal: bool = False) -> None:
        message = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
        self._add(message, error.remedy if isinstance(error, HeadraceError) else "", message, fatal=fatal)

    def recent(self) -> tuple[Trouble, ...]:
        """The last ones, oldest first."""
        with self._guard:
            return tuple(self._found.values())

    def _add(self, sentence: str, remedy: str, key: str, *, fatal: bool = False) -> None:
        with self._guard:
            self.count += 1
            before = self._found.pop((key, remedy), None)
            trouble = Trouble(sentence, remedy, self._now(), fatal=fatal)
            self._found[key, remedy] = trouble if before is None else replace(trouble, times=before.times + 1)
            while len(self._found) > _MOST:
                del self._found[next(iter(self._found))]
