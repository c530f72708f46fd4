"""Python workers that Spark gives up because they did not connect to it in time: what needs them is tried again.

Spark waits ten seconds for a worker. On a machine that is too busy for that it fails the task or the query, although
nothing is wrong with either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from headrace.pipeline.recover import is_starved

_LOG = logging.getLogger("headrace.pipeline")
_Result = TypeVar("_Result")

ATTEMPTS = 3
"""How often a batch is written, and a query started, before the run ends. Each attempt has waited ten seconds."""


class Attempts:
    """The attempts of one piece of work.

    Args:
        work: what is tried, as a log says it.
    """

    def __init__(self, work: str) -> None:
        self._work = work
        self._failed = 0

    def may_follow(self, failure: BaseException | None) -> bool:
        """Count a failed attempt: whether another one follows, because a worker did not connect in time."""
        if failure is None or not is_starved(failure):
            return False
        self._failed += 1
        if self._failed >= ATTEMPTS:
            return False
        _LOG.warning(
            "A Python worker did not connect to Spark in time, because this machine is too busy. %s is tried again.",
            self._work,
        )
        return True

    def run(self, action: Callable[[], _Result]) -> _Result:
        """What an action gives, tried again as long as attempts may follow."""
        while True:
            try:
                return action()
            except Exception as failure:
                if not self.may_follow(failure):
                    raise
