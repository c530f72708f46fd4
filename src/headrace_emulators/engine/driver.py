"""What the emulated drivers have in common: the connections and cursors of DB-API."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

from headrace_emulators.engine.result import Row


class Session(Protocol):
    """What a connection ends its transactions by."""

    def commit(self) -> object:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo the transaction."""

    def close(self) -> None:
        """Close; what is not committed is undone."""


AnySession = TypeVar("AnySession", bound=Session)


class Connection(Generic[AnySession]):
    """A DB-API connection.

    Args:
        session: runs its statements.
    """

    def __init__(self, session: AnySession) -> None:
        self.session = session
        self._closed = False

    def commit(self) -> None:
        self.session.commit()

    def rollback(self) -> None:
        self.session.rollback()

    def close(self) -> None:
        """Close; what is not committed is undone."""
        if not self._closed:
            self._closed = True
            self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cursor:
    """A DB-API cursor: the rows of the last statement, fetched on demand."""

    arraysize = 1

    def __init__(self) -> None:
        self._rows: Iterator[Row] = iter(())

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(iter(self), None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        return list(itertools.islice(self, size or self.arraysize))

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self)

    def close(self) -> None:
        self._rows = iter(())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
