"""What the emulated server answers when it refuses: Oracle's numbers, in the driver's form."""

from __future__ import annotations


class Told:
    """What an error of the driver carries as its first argument.

    Args:
        code: the number after `ORA-`.
        message: the sentence, with the number in front.
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.full_code = f"ORA-{code:05}"
        self.message = message

    def __str__(self) -> str:
        return self.message


class Error(Exception):
    """The base of DB-API."""


class DatabaseError(Error):
    """A statement that the server refuses."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(Told(code, f"ORA-{code:05}: {message}"))

    @property
    def code(self) -> int:
        """The number after `ORA-`."""
        told: Told = self.args[0]
        return told.code


class IntegrityError(DatabaseError):
    """A value that a key or a condition does not allow."""


class NotSupportedError(DatabaseError):
    """What the emulator does not know. A real server may well know it."""

    def __init__(self, what: str) -> None:
        super().__init__(3001, f"unimplemented feature in the emulator: {what}")
