"""The statements in which LogMiner prints XML documents, piece by piece."""

from __future__ import annotations

import re

from headrace.sources.oracle.redo.error import RedoSyntaxError
from headrace.sources.oracle.redo.pieces import Locator, locator_of, locator_plan
from headrace.sources.oracle.redo.plan import PiecePlan
from headrace.sources.oracle.redo.reader import RedoReader
from headrace.sources.oracle.redo.row import RedoPiece
from headrace.sources.oracle.redo.row_changes import Update

_START = re.compile(r"\s*XML_REDO\s*:=\s*", re.IGNORECASE)
_LENGTH = r"\s*(?:(?::|amount:)\s*(?P<length>[0-9]{1,18})\s*)?(?:;\s*)?\Z"
_NULL = re.compile(rf"NULL{_LENGTH}", re.IGNORECASE)
# LogMiner leaves the closing quote out at the end of some documents.
_DIGITS = re.compile(rf"HEXTORAW\s*\(\s*'(?P<hex>(?:[0-9A-Fa-f]{{2}})*)'?\s*\)?{_LENGTH}", re.IGNORECASE)
_TEXT = re.compile(rf"'(?P<text>.*)'{_LENGTH}", re.IGNORECASE | re.DOTALL)
_OPEN_TEXT = re.compile(r"'(?P<text>[^']*)\Z")


def xml_begin_plan(reader: RedoReader, parts: int) -> PiecePlan:
    """`XML DOC BEGIN: select C from T where ..`, how documents in binary storage begin."""
    reader.take_words("XML", "DOC", "BEGIN")
    reader.take(":")
    locator = locator_of(reader)
    reader.end()
    return _begin_plan(locator, parts)


def xml_update_plan(update: Update, parts: int) -> PiecePlan:
    """`update T set C = XMLType(:1) where ..`, how documents stored as text begin."""
    return _begin_plan(Locator(update.sets[0].name, "", update.table, update.columns), parts)


def _begin_plan(locator: Locator, parts: int) -> PiecePlan:
    table = locator.table
    piece = RedoPiece("xml_begin", table.schema, table.name, lob_column=locator.column)
    return locator_plan(piece, locator, parts)


def xml_write(sql: str) -> RedoPiece | None:
    """`XML_REDO := ..`, a piece of a document; None if the statement is another.

    A piece is cut anywhere, so its text follows no rule but that of its quotes: doubled, unless one is alone.

    Raises:
        RedoSyntaxError: what follows is neither a literal nor HEXTORAW nor NULL.
    """
    start = _START.match(sql)
    if start is None:
        return None
    for form in (_NULL, _DIGITS, _TEXT, _OPEN_TEXT):
        match = form.match(sql, start.end())
        if match:
            found = match.groupdict()
            text, length = found.get("text"), found.get("length")
            if text is not None and "'" not in text.replace("''", ""):
                text = text.replace("''", "'")
            return RedoPiece("xml_write", hex=found.get("hex"), text=text, length=int(length) if length else None)
    raise RedoSyntaxError(start.end(), "a literal, HEXTORAW of pairs of hexadecimal digits, or NULL")
