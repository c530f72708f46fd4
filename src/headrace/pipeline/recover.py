"""Our own error out of what Spark made of it.

An error that is raised in a Python worker reaches the driver as text inside a `StreamingQueryException`, under a page
of stack traces. Every Headrace error prints as one line `headrace.errors.Kind: sentence`, so it can be found there
again. So does what a query refuses (`headrace.changes.refusal`).

What fails because a Python worker did not connect in time is tried again: Spark waits ten seconds for a worker, and on
a busy machine it then fails a task or query with which nothing is wrong.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from headrace import errors
from headrace.changes.refusal import refused
from headrace.errors import ConnectError, HeadraceError

_STARVED = "Python worker failed to connect back"
_NO_TOPIC = "UnknownTopicOrPartitionException"
_OURS = re.compile(r"headrace(?:\.\w+)*\.([A-Za-z]+): ([^\n\r]+)")


def recover(error: BaseException | None) -> HeadraceError | None:
    links = list(_chain(error))
    for link in links:
        # The query's own sentence says more than the sink that met it.
        raised = refused(full_text(link))
        if raised is not None:
            return raised
    for link in links:
        if isinstance(link, HeadraceError):
            return link
    for link in links:
        recovered = find_in_text(full_text(link))
        if recovered is not None:
            return recovered
    if is_starved(error):
        return ConnectError(
            f"Spark gave up: a {_STARVED} within ten seconds, several times, because this machine was too busy.",
            remedy="Nothing is lost. Start it again, with less beside it or on more cores.",
        )
    if any(_NO_TOPIC in full_text(link) for link in links):
        return ConnectError(
            "Kafka does not have a topic that is to be read, or did not have it yet.",
            remedy="See that the topics are there, and start it again; nothing is lost.",
        )
    return None


def is_starved(error: BaseException | None) -> bool:
    """Whether something failed because a Python worker did not connect to Spark in time."""
    return any(_STARVED in full_text(link) for link in _chain(error))


def find_in_text(text: str) -> HeadraceError | None:
    """The last Headrace error in a text of stack traces: Python prints causes first, the error itself last."""
    # A trace that was itself put into a message has its line ends written out.
    for kind, sentence in reversed(_OURS.findall(text.replace("\\n", "\n"))):
        cls = _declared(kind)
        if cls is not None:
            return cls(sentence.strip())
    return None


def _declared(name: str) -> type[HeadraceError] | None:
    """The error of that name, or the one in `headrace.errors` of which it is a special case."""
    kinds: list[type[HeadraceError]] = [HeadraceError]
    while kinds:
        kind = kinds.pop()
        if kind.__name__ == name:
            return next(base for base in kind.__mro__ if base.__module__ == errors.__name__)
        kinds += kind.__subclasses__()
    return None


def one_line(error: BaseException) -> str:
    """The first line of an error that Headrace did not raise, for a sentence of its own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def full_text(error: BaseException) -> str:
    """All that an error says, with the trace of Java where it has one."""
    # PySpark's converted exceptions keep the Java trace apart from the message.
    parts = [str(error), *(str(getattr(error, name, "") or "") for name in ("_stackTrace", "_desc", "stackTrace"))]
    return "\n".join(parts)


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
