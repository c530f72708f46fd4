"""One connection's work: statements in, results out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from headrace_emulators.engine.result import Result
from headrace_emulators.engine.storage import Storage


class Session(ABC):
    """Runs statements in a database file."""

    storage: Storage

    @abstractmethod
    def execute(self, text: str, parameters: Sequence[object] = ()) -> Result[Any]:
        """Run a text; raises the driver's errors, as a server would answer."""

    def commit(self) -> None:
        self.storage.commit()

    def rollback(self) -> None:
        self.storage.rollback()

    def close(self) -> None:
        self.storage.close()
