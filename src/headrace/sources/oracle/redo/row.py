"""What a redo statement gives: a row change, or a piece of a value too large for one statement.

`RedoSyntaxError` is the one error of the redo parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from headrace.errors import FormatError


class RedoShape(NamedTuple):
    """A statement without its values; statements that differ in their literals alone share it.

    Attributes:
        changed: the columns that an update sets, in its order.
        before_calls, after_calls: columns whose text in the image is a function call as printed, so that the call
            `UNISTR('\\4E2D')` is never taken for a value that reads the same.
        unsupported: columns whose value LogMiner could not print. Their null is not known to be NULL.
    """

    changed: tuple[str, ...] = ()
    before_calls: frozenset[str] = frozenset()
    after_calls: frozenset[str] = frozenset()
    unsupported: frozenset[str] = frozenset()


class RedoRow(NamedTuple):
    """One changed row.

    Attributes:
        op: `insert`, `update` or `delete`.
        schema: the owner; None when the statement names a table alone.
        table: the table.
        before: column to text as the row was; None for inserts. Of an update the columns of WHERE, and no columns
            when there is no WHERE.
        after: column to text as the row became; None for deletes. Of an update `before` overlaid by SET.
        shape: which of the texts are function calls, and the like.

    Only columns that the statement names are in the images. A text is a literal without its quotes, a number as
    printed, or a function call as printed; None is NULL or a value that LogMiner could not print.
    """

    op: str
    schema: str | None
    table: str
    before: dict[str, str | None] | None
    after: dict[str, str | None] | None
    shape: RedoShape


class RedoPiece(NamedTuple):
    """One step of writing a LOB, an XML document or an extended string.

    Attributes:
        op: `lob_locator`, `lob_write`, `lob_trim`, `lob_erase`, `xml_begin`, `xml_write` or `ext_string_begin`.
        schema, table: where the row is; None when the text does not say, because a step before it did.
        before: always None.
        after: the columns that identify the row; None when the text does not say.
        lob_column: the column that is written.
        lob_kind: `clob`, `nclob` or `blob`.
        offset: where the piece begins, as printed: the first character or byte is 1.
        length: characters or bytes that are written, erased or left over (`lob_trim`), as printed.
        text: what is written to a CLOB or a document.
        hex: what is written to a BLOB, or a document in the database's character set; digits as printed.

    An `xml_write` with neither text nor hex sets the document to NULL.
    """

    op: str
    schema: str | None = None
    table: str | None = None
    before: None = None
    after: dict[str, str | None] | None = None
    lob_column: str | None = None
    lob_kind: str | None = None
    offset: int | None = None
    length: int | None = None
    text: str | None = None
    hex: str | None = None


class RedoSyntaxError(FormatError):
    """A redo text is not one of the statements that LogMiner prints.

    The message has the position and what was expected there, never the text itself: redo holds the values of rows.

    Args:
        position: characters before the position that could not be read; 0 is the start.
        expected: what should be there.
    """

    def __init__(self, position: int, expected: str) -> None:
        self.position = position
        self.expected = expected
        super().__init__(f"Redo SQL can't be read at character {position + 1}: expected {expected}.")

    def __reduce__(self) -> tuple[object, ...]:
        return (RedoSyntaxError, (self.position, self.expected))


class Unexpected(Exception):
    """A `RedoSyntaxError` of which only a text between two literals, and a position in it, are known."""

    def __init__(self, text: int, position: int, expected: str) -> None:
        super().__init__(expected)
        self.text, self.position, self.expected = text, position, expected


@contextmanager
def placed(parts: Sequence[str]) -> Iterator[None]:
    """Turn the errors of reading these parts of a statement into errors that know their position in the whole."""
    try:
        yield
    except Unexpected as error:
        before = parts[: 2 * error.text]
        raise RedoSyntaxError(sum(map(len, before)) + len(before) + error.position, error.expected) from None
