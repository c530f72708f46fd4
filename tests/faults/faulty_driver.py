"""The emulator's driver behind one that fails where a test says so, and counts what is open.

What a network does to a connection is shown here at the driver's border: the emulator has no wire. `happens` is called
before each login (`connect`), statement (`execute`), fetch of a small result (`fetch`) and Arrow batch (`batch`); what
it raises is what the driver raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace import registry
from headrace_emulators.sqlserver import driver as emulator


class DriverError(Exception):
    """What mssql-python raises: two sentences and no number."""

    def __init__(self, kind: str, text: str = "") -> None:
        super().__init__(f"Driver Error: {kind}; DDBC Error: [Microsoft][SQL Server]{text or kind}")


class FaultyDriver:
    """A driver whose connections are counted and can fail.

    Args:
        rows: rows per Arrow batch at the most.
    """

    def __init__(self, rows: int = 1_000_000) -> None:
        self.rows = rows
        self.open = 0
        self.logins = 0
        self.statements: list[tuple[str, tuple[Any, ...], int]] = []
        """Each statement with its parameters and its time-out in seconds."""
        self.happens: Callable[[str, str], None] = lambda event, sql: None
        self.changes: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch

    def install(self, monkeypatch: Any) -> FaultyDriver:
        """Be the driver of every source."""
        find = registry.find

        def found(kind: str, name: str) -> Any:
            return self.connect if kind == "driver" else find(kind, name)

        monkeypatch.setattr(registry, "find", found)
        return self

    def connect(self, settings: Mapping[str, Any]) -> _Connection:
        """A connection to the emulator."""
        self.happens("connect", "")
        made = _Connection(self, emulator.connect(settings))
        self.open += 1
        self.logins += 1
        return made

    def fails(self, error: Exception, event: str, *counts: int, containing: str = "") -> Counter[str]:
        """Raise an error at the n-th, m-th, ... of these events (from one), at all of them without a count.

        Gives the counter of such events.
        """
        seen: Counter[str] = Counter()

        def happens(now: str, sql: str) -> None:
            if now == event and containing in sql:
                seen[event] += 1
                if not counts or seen[event] in counts:
                    raise error

        self.happens = happens
        return seen


class _Connection:
    def __init__(self, driver: FaultyDriver, connection: emulator.Connection) -> None:
        self._driver = driver
        self._connection = connection
        self._open = True
        self.timeout = 0

    def cursor(self) -> _Cursor:
        return _Cursor(self._driver, self._connection.cursor(), self.timeout)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._driver.open -= 1
            self._connection.close()


class _Cursor:
    def __init__(self, driver: FaultyDriver, cursor: emulator.Cursor, timeout: int) -> None:
        self._driver = driver
        self._cursor = cursor
        self._timeout = timeout
        self._sql = ""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self._sql = sql
        self._driver.statements.append((sql, tuple(parameters), self._timeout))
        self._driver.happens("execute", sql)
        self._cursor.execute(sql, parameters)

    def fetchall(self) -> list[tuple[Any, ...]]:
        self._driver.happens("fetch", self._sql)
        return self._cursor.fetchall()

    def arrow_reader(self, rows: int) -> Iterator[pa.RecordBatch]:
        for batch in self._cursor.arrow_reader(min(rows, self._driver.rows)):
            self._driver.happens("batch", self._sql)
            yield self._driver.changes(batch)

    def close(self) -> None:
        self._cursor.close()
