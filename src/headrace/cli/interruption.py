"""Ctrl-C and SIGTERM: the first stops the program in order, the second at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interruption:
    """Whether the user, or the system, wants the program to end."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.repeated = threading.Event()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.requested.is_set():
            self.repeated.set()
            raise KeyboardInterrupt
        self.requested.set()


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Take SIGINT and SIGTERM over while the block runs.

    Enter it after Spark has started: PySpark installs a handler of its own then, which cancels all jobs.
    """
    request = Interruption()
    before = {number: signal.signal(number, request._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
