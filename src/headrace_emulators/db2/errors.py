"""Errors as ibm_db_dbi raises them: DB-API classes by the SQLSTATE's class, the server's sentence and its codes."""

from __future__ import annotations


class Error(Exception):
    """What a statement ended with.

    Args:
        number: the SQLCODE.
        state: the SQLSTATE.
        text: the sentence.
    """

    def __init__(self, number: int, state: str, text: str) -> None:
        code = f"SQL{abs(number):04d}N"
        super().__init__(f"[IBM][CLI Driver][DB2/LINUXX8664] {code}  {text}  SQLSTATE={state} SQLCODE={number}")
        self.number = number
        self.state = state


class DatabaseError(Error):
    """Something about the database."""


class OperationalError(DatabaseError):
    """The server can't be reached, or is busy."""


class ProgrammingError(DatabaseError):
    """The statement is wrong, or names something that does not exist."""


class DataError(DatabaseError):
    """A value does not fit."""


class IntegrityError(DatabaseError):
    """A key or a condition refuses a row."""


class InternalError(DatabaseError):
    """The state of the server does not allow it."""


class NotSupportedError(DatabaseError):
    """Db2 knows it; this emulator does not."""


def syntax_error(near: str) -> ProgrammingError:
    return ProgrammingError(-104, "42601", f'An unexpected token "{near}" was found.')


def undefined(name: str) -> ProgrammingError:
    return ProgrammingError(-204, "42704", f'"{name}" is an undefined name.')


def unknown_column(name: str) -> ProgrammingError:
    return ProgrammingError(-206, "42703", f'"{name}" is not valid in the context where it is used.')


def not_emulated(what: str) -> NotSupportedError:
    """A part of SQL that is not known here; it is refused and never guessed."""
    return NotSupportedError(-142, "42612", f"This emulator does not know {what}.")


def overflow(kind: str) -> DataError:
    return DataError(-413, "22003", f"Overflow occurred during numeric data type conversion to {kind}.")


def too_long(value: str) -> DataError:
    return DataError(-433, "22001", f'Value "{value[:30]}" is too long.')


def not_convertible(value: object, kind: str) -> DataError:
    return DataError(-420, "22018", f'Invalid character found in "{str(value)[:30]}" for a value of {kind}.')


def bad_moment(value: object) -> DataError:
    return DataError(-180, "22007", f'The string "{str(value)[:40]}" is not a date, time or timestamp.')


def null_refused(column: str) -> IntegrityError:
    return IntegrityError(-407, "23502", f'Assignment of a NULL value to a NOT NULL column "{column}" is not allowed.')


def duplicate(name: str) -> IntegrityError:
    return IntegrityError(
        -803, "23505", f'One or more values would produce duplicate rows in the index or constraint of "{name}".'
    )


def busy() -> InternalError:
    """SQL0911N with reason 68."""
    return InternalError(
        -911, "40001", 'The current transaction has been rolled back because of a timeout. Reason code "68".'
    )
