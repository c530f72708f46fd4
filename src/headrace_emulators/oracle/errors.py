"""What the emulated server answers when it refuses: Oracle's numbers, in the driver's form."""

from __future__ import annotations

import sqlite3


class ErrorDetails:
    """What an error of the driver carries as its first argument.

    Args:
        code: the number after `ORA-`.
        message: the sentence, with the number in front.
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message


class Error(Exception):
    """The base of DB-API."""


class DatabaseError(Error):
    """A statement that the server refuses."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(ErrorDetails(code, f"ORA-{code:05}: {message}"))

    @property
    def code(self) -> int:
        """The number after `ORA-`."""
        details: ErrorDetails = self.args[0]
        return details.code


class IntegrityError(DatabaseError):
    """A value that a key or a condition does not allow."""


class NotSupportedError(DatabaseError):
    """What the emulator does not know. A real server may well know it."""

    def __init__(self, what: str) -> None:
        super().__init__(3001, f"unimplemented feature in the emulator: {what}")


def refusal_of(error: sqlite3.Error) -> DatabaseError:
    """What Oracle would answer where SQLite refused."""
    text = str(error)
    if "no such table" in text:
        return DatabaseError(942, "table or view does not exist")
    if "no such column" in text:
        return DatabaseError(904, f'"{text.rpartition(": ")[2]}": invalid identifier')
    if "user-defined function" in text:
        return DatabaseError(1722, "invalid number")
    return DatabaseError(600, f"internal error in the emulator: {text}")
