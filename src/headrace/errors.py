"""Errors that a user can act on.

Every error carries one sentence that names the thing that is wrong (option, table, position, server) and a remedy.
The command line prints exactly that sentence and exits with 2; `--debug` adds the stack trace. On a terminal a second
line names the page of the documentation that explains it. No message ever contains a password or the value of a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

Error = TypeVar("Error", bound="HeadraceError")


class HeadraceError(Exception):
    """Base of all errors that Headrace raises on purpose.

    Args:
        message: what is wrong, naming the option, table, position or server.
        remedy: what the user can do about it; becomes the end of the sentence.
    """

    page: ClassVar[str] = "reference/errors.md"
    """The page of the documentation that says more of this kind of error, below `docs`."""

    table: Any = None
    """The table (a `TableId`) whose trouble it is, where it is surely no other's; see `headrace.changes.one_table`."""
    others: tuple[HeadraceError, ...] = ()
    """Errors that were met together with this one; those of other tables each have their table too."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message} {remedy}".strip())

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (executor to driver) pickled; keyword-only arguments need this.
        return (_rebuild, (type(self), self.args), self.__dict__)


def first_of(errors: Sequence[Error]) -> Error:
    """The first of several errors, with the rest as its `others`."""
    first, *rest = errors
    first.others = (*first.others, *rest)
    return first


def _rebuild(kind: type[HeadraceError], texts: tuple[str, ...]) -> HeadraceError:
    return kind.__new__(kind, *texts)


class OptionError(HeadraceError):
    """An option is unknown, missing, malformed or contradicts another.

    Args:
        message: as of every error.
        remedy: as of every error.
        option: the option's name, in a text form that the user may have chosen; empty where several are meant.
    """

    page = "reference/options.md"

    def __init__(self, message: str, *, remedy: str = "", option: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.option = option


class FileError(OptionError):
    """As `OptionError`, in a file that the user wrote; the message begins with file and line.

    Args:
        file: the file's path.
        line: the number of the line.
        sentence: what is wrong there.
        remedy: as of every error.
    """

    page = "check.md"

    def __init__(self, file: str, line: int, sentence: str, *, remedy: str = "") -> None:
        super().__init__(f"{file}, line {line}: {sentence}", remedy=remedy)
        self.sentence = sentence


class ConnectError(HeadraceError):
    """A server could not be reached or refused the login."""

    page = "faults.md#what-is-retried"


class CaptureError(HeadraceError):
    """The source database is not set up for capture (change capture off, privilege missing, table unknown)."""

    page = "check.md"


class DataLossError(HeadraceError):
    """Changes that are still needed are no longer in the source's log; nothing of the batch was emitted."""

    page = "concepts/delivery.md#what-is-checked-before-you-lose-something"


class PositionMismatch(HeadraceError):
    """The stored position does not belong to this source (restored backup, other database)."""

    page = "repairs.md"


class FormatError(HeadraceError):
    """A message or a value does not follow its wire format. The only error that decoders and parsers raise."""

    page = "unreadable-messages.md"


class SchemaError(HeadraceError):
    """A table's schema is unknown, contradictory, or can't be carried by the target."""

    page = "apply.md#types-of-columns"


class SinkError(HeadraceError):
    """A sink can't be written, or belongs to another pipeline."""

    page = "apply.md#guarantees"


class NewerRelease(HeadraceError):
    """A later release of Headrace wrote what this one is to go on from; nothing was read or written."""

    page = "upgrades.md#go-back-to-an-earlier-release"


class HeadraceDeprecationWarning(FutureWarning):
    """A name that works on for now: the sentence says what to use, and which release no longer has it."""

    page: ClassVar[str] = "upgrades.md#how-a-name-goes"
