"""What captures by itself beside a demo or a test: a thread with a connection of its own that looks at the log."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from headrace_emulators.engine.storage import Storage

AnyStorage = TypeVar("AnyStorage", bound=Storage)


class CaptureThread(ABC, Generic[AnyStorage]):
    """A program that looks at a database's log again and again.

    Args:
        name: of the thread.
        open_storage: gives the connection.
        poll: seconds between two looks.
    """

    def __init__(self, name: str, open_storage: Callable[[], AnyStorage], poll: float) -> None:
        self._name = name
        self._open_storage = open_storage
        self._poll = poll
        self._stop = threading.Event()
        self._paused = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        self.looks = 0
        """How many times it has looked."""

    @abstractmethod
    def look(self, storage: AnyStorage) -> None:
        """Capture what was committed since the last look."""

    def start(self) -> Self:
        """Begin to look at the log; a second start does nothing."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return self

    def pause(self) -> None:
        """Let the log grow without capturing it."""
        self._paused.set()

    def resume(self) -> None:
        """Go on after a pause."""
        self._paused.clear()

    def stop(self) -> None:
        """End the thread after its current look; raises what stopped it before, if something did."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        storage = self._open_storage()
        try:
            while not self._stop.is_set():
                if not self._paused.is_set():
                    self.look(storage)
                    self.looks += 1
                self._stop.wait(self._poll)
        except Exception as error:
            self.error = error
        finally:
            storage.close()
