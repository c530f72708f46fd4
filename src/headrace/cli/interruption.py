"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second for a quick one."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interruption:
    """Whether the user, or the system, wants the program to end."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.asked_again = threading.Event()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked.is_set():
            self.asked_again.set()
            raise KeyboardInterrupt
        self.asked.set()


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Take SIGINT and SIGTERM over while the block runs.

    Enter it after Spark has started: PySpark installs a handler of its own then, which cancels all jobs.
    """
    asked = Interruption()
    before = {number: signal.signal(number, asked._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
