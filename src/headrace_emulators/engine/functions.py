"""Python functions that SQLite calls, and the error that one of them raised."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Error = TypeVar("Error", bound=Exception)


class FunctionHost(Generic[Error]):
    """Registers scalar functions and keeps the error that one raised, because SQLite drops it.

    Args:
        connection: where the functions live.
        wording: the driver's error for an exception in a function, by the function's name; null where the driver has
            none.
    """

    def __init__(self, connection: sqlite3.Connection, wording: Callable[[str, Exception], Error | None]) -> None:
        self._connection = connection
        self._wording = wording
        self._failure: Error | None = None

    def register_plain(self, name: str, count: int, function: Callable[..., Any]) -> None:
        """Add a function that never raises and differs from call to call; for those called once per changed row."""
        self._connection.create_function(name, count, function)

    def register(self, name: str, count: int, function: Callable[..., Any], *, deterministic: bool = True) -> None:
        """Add a function. SQLite computes a deterministic one once where its arguments are constants."""

        def guarded(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Exception as error:
                self._failure = self._wording(name, error)
                raise

        self._connection.create_function(name, count, guarded, deterministic=deterministic)

    def take_failure(self) -> Error | None:
        """The error that made the last statement fail, if a function raised it."""
        failure, self._failure = self._failure, None
        return failure
