"""Errors as the real driver raises them: DB-API classes, SQL Server's numbers and sentences."""

from __future__ import annotations


class Error(Exception):
    """Base of the driver's errors.

    Args:
        message: the sentence a server would send.
        number: SQL Server's error number; 0 when the emulator itself can't do it.
    """

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number
        self.statement = ""
        """The statement that failed, where it is known."""
        self.line = 0
        """Where that statement begins in its batch, from 1; 0 where it is not known."""

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self), self.number))


class DatabaseError(Error):
    """The server refused something."""


class OperationalError(DatabaseError):
    """The server could not be reached, or is busy."""


class ProgrammingError(DatabaseError):
    """A statement is wrong, names something unknown, or is not emulated."""


class IntegrityError(DatabaseError):
    """A constraint was violated."""


class DataError(DatabaseError):
    """A value does not fit its type."""


class NotSupportedError(DatabaseError):
    """The emulator does not know this T-SQL."""


def not_emulated(what: str, statement: str) -> NotSupportedError:
    """The error for T-SQL outside of what is emulated; names the part and the statement."""
    text = " ".join(statement.split())
    shown = text if len(text) <= 300 else text[:300] + "..."
    return NotSupportedError(f"The SQL Server emulator can't translate {what} in the statement: {shown}")


def invalid_object(name: str) -> ProgrammingError:
    """A table, view or function that does not exist."""
    return ProgrammingError(f"Invalid object name '{name}'.", 208)


def no_database(name: str) -> ProgrammingError:
    return ProgrammingError(f"Database '{name}' does not exist. Make sure that the name is entered correctly.", 911)


def invalid_column(name: str) -> ProgrammingError:
    return ProgrammingError(f"Invalid column name '{name}'.", 207)


def syntax_error(near: str) -> ProgrammingError:
    """Text that is not T-SQL."""
    return ProgrammingError(f"Incorrect syntax near '{near}'.", 102)


def conversion_failed(source: str, target: str) -> DataError:
    """A value that can't become another type. The value itself is not shown."""
    return DataError(f"Conversion failed when converting the {source} value to data type {target}.", 245)


def overflow(target: str) -> DataError:
    """A number outside of its type."""
    return DataError(f"Arithmetic overflow error converting expression to data type {target}.", 8115)


def bad_date(target: str) -> DataError:
    """A text that is not a date or time, or a date or time outside of its type."""
    return DataError(f"Conversion failed when converting date and/or time from character string ({target}).", 241)


def truncated(column: str) -> DataError:
    """A text or binary value longer than its column."""
    return DataError(f"String or binary data would be truncated in column '{column}'.", 2628)


def null_refused(column: str, table: str) -> IntegrityError:
    return IntegrityError(
        f"Cannot insert the value NULL into column '{column}', table '{table}'; column does not allow nulls.", 515
    )


def duplicate_key(constraint: str, table: str) -> IntegrityError:
    """A second row with the same key."""
    return IntegrityError(
        f"Violation of UNIQUE or PRIMARY KEY constraint '{constraint}'. Cannot insert duplicate key in object"
        f" '{table}'.",
        2627,
    )


def range_refused() -> ProgrammingError:
    """What a change function answers to a range outside of what its instance holds."""
    return ProgrammingError(
        "An insufficient number of arguments were supplied for the procedure or function cdc.fn_cdc_get_all_changes_"
        " ... .",
        313,
    )
