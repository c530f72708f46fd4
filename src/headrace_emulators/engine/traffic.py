"""What a demo database does: its history at once, then transactions in order, and a count of everything."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class Cursor(Protocol):
    """What a workload sends its changes through."""

    @property
    def rowcount(self) -> int:
        """Rows changed by the last statement."""

    def execute(self, sql: str, parameters: Sequence[Any], /) -> Cursor:
        """Run one statement."""


class DemoDatabase(Protocol):
    """A database that is captured, as a demo controls it."""

    @property
    def path(self) -> Path:
        """Its file."""

    def capturing(self) -> AbstractContextManager[object]:
        """Capture what is committed, in a thread, for as long as a block lasts."""

    def capture(self) -> int:
        """One look at the log: gives how many transactions became visible."""


Database = TypeVar("Database", bound=DemoDatabase)


class Workload(ABC, Generic[Database]):
    """A database with seeded traffic. The same seed gives the same rows, transactions and order.

    Args:
        database: made by `create`.

    Attributes:
        counts: rows changed by (table, `insert`, `update` or `delete`), in committed transactions only.
        transactions: how many were committed.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.counts: Counter[tuple[str, str]] = Counter()
        self.transactions = 0
        self._done: Counter[tuple[str, str]] = Counter()
        self._steps: Iterator[bool] | None = None

    @classmethod
    @abstractmethod
    def create(cls, server: Any, seed: int = 1, *, name: str = "") -> Workload[Database]:
        """Make the database with its tables, capture and history. Nothing of the history is in the change tables."""

    @abstractmethod
    def steps(self) -> Iterator[bool]:
        """Do one transaction per item; the item is whether it was committed."""

    def step(self) -> bool:
        """Do the next transaction; false at the end."""
        if self._steps is None:
            self._steps = self.steps()
        committed = next(self._steps, None)
        if committed is None:
            return False
        if committed:
            self.counts.update(self._done)
            self.transactions += 1
        self._done.clear()
        return True

    def replay(
        self, stop: threading.Event | None = None, *, rate: float | None = None, transactions: int | None = None
    ) -> int:
        """Do transactions until stopped or out of them. Runs in the caller's thread.

        Args:
            stop: set it to end after the current transaction.
            rate: transactions per second; None for as fast as possible.
            transactions: how many at most.

        Returns:
            How many were tried, with those rolled back.
        """
        began, tried = time.monotonic(), 0
        while (transactions is None or tried < transactions) and not (stop is not None and stop.is_set()):
            if not self.step():
                break
            tried += 1
            if rate is not None:
                ahead = began + tried / rate - time.monotonic()
                if ahead > 0 and stop is not None:
                    stop.wait(ahead)
                elif ahead > 0:
                    time.sleep(ahead)
        return tried

    def change(self, cursor: Cursor, table: str, operation: str, sql: str, *parameters: object) -> int:
        """Run a change and count its rows; they count only if the transaction commits."""
        rows = cursor.execute(sql, list(parameters)).rowcount
        self._done[table, operation] += rows
        return rows
