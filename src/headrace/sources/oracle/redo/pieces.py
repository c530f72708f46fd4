"""The statements in which LogMiner prints LOBs, extended strings and XML documents, piece by piece."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headrace.sources.oracle.redo.plan import PiecePlan, Values, pieces
from headrace.sources.oracle.redo.reader import RedoColumn, RedoReader, RedoTable, RedoValue, unistr_text
from headrace.sources.oracle.redo.row import RedoPiece, RedoSyntaxError, Unexpected, placed
from headrace.sources.oracle.redo.row_changes import Update, columns_of, image_of, place_of, update_of
from headrace.sources.oracle.redo.split import at_literals

_KINDS = {"LOC_C": "clob", "LOC_NC": "nclob", "LOC_B": "blob"}
_COUNT = re.compile(r"[0-9]{1,18}")
_HEX = re.compile(r"(?i:HEXTORAW)\s*\(\s*'((?:[0-9A-Fa-f]{2})*)'\s*\)")
_STATEMENT = "a statement that LogMiner prints for rows or large values"


class Locator(NamedTuple):
    """A row and the column of it that is written."""

    column: str
    variable: str
    table: RedoTable
    columns: list[RedoColumn]


class _Assigned(NamedTuple):
    value: RedoValue
    at: tuple[int, int]


def locator_of(reader: RedoReader) -> Locator:
    """`select C into V from T where .. for update`; what reads an XML document has no INTO."""
    reader.take_words("SELECT")
    column = reader.path("a column")[-1]
    variable = reader.take("word", "a variable") if reader.accept_word("INTO") else ""
    reader.take_words("FROM")
    table = reader.table(follows=("WHERE", "FOR"))
    columns = columns_of(reader, reader.conditions(table))
    if reader.accept_word("FOR"):
        reader.take_words("UPDATE")
    return Locator(column, variable, table, columns)


def locator_plan(
    piece: RedoPiece,
    locator: Locator | None,
    parts: int,
    content: tuple[RedoValue, Callable[[str], dict[str, Any]]] | None = None,
) -> PiecePlan:
    """The plan of a piece, with the row that its statement names if it names one."""
    values = Values(parts)
    names: tuple[str, ...] | None = None
    indexes: Sequence[int] = ()
    if locator is not None:
        names, indexes = image_of(locator.columns, values)
    placed_content = (place_of(content[0], values), content[1]) if content else None
    return pieces(piece, names, indexes, values, placed_content)


def block_plan(reader: RedoReader, parts: int) -> PiecePlan:
    """The PL/SQL that finds a LOB, writes, trims or erases it, or that begins an extended string."""
    if reader.accept_word("DECLARE"):
        while reader.word != "BEGIN":
            reader.skip()
    reader.accept_word("BEGIN")
    locator: Locator | None = None
    assigned: dict[str, _Assigned] = {}
    step: _Step | None = None
    while reader.kind != "end" and not reader.accept_word("END"):
        if reader.accept(";"):
            continue
        if reader.word == "SELECT" and locator is None:
            locator = locator_of(reader)
        elif reader.word == "DBMS_LOB" and step is None:
            step = _step_of(reader, assigned)
        elif reader.assigns:
            variable = reader.take("word")
            reader.take(":=")
            index = reader.index
            assigned[variable] = _Assigned(reader.value(), index)
        else:
            reader.fail(_STATEMENT)
    reader.end()
    extended = assigned.get("STMT")
    if extended is not None and extended.value.kind == "literal" and locator is None and step is None:
        content = (extended.value, _extended_string(extended.at))
        return locator_plan(RedoPiece("ext_string_begin"), None, parts, content)
    if step is None and locator is None:
        reader.fail(_STATEMENT)
    piece = RedoPiece("lob_locator") if step is None else step.piece
    variable = locator.variable if locator is not None else step.variable if step is not None else ""
    piece = piece._replace(lob_kind=_KINDS.get(variable))
    if locator is not None:
        piece = piece._replace(schema=locator.table.schema, table=locator.table.name, lob_column=locator.column)
    return locator_plan(piece, locator, parts, step.content if step is not None else None)


class _Step(NamedTuple):
    piece: RedoPiece
    variable: str
    content: tuple[RedoValue, Callable[[str], dict[str, Any]]] | None = None


def _step_of(reader: RedoReader, assigned: dict[str, _Assigned]) -> _Step:
    """One call of DBMS_LOB."""
    reader.take_words("DBMS_LOB")
    reader.take(".")
    called = reader.word
    if called not in ("WRITE", "TRIM", "ERASE"):
        reader.fail("write, trim or erase")
    reader.take("word")
    reader.take("(")
    variable = reader.take("word", "a LOB locator")
    reader.take(",")
    length = _count(reader, assigned)
    if called == "TRIM":
        step = _Step(RedoPiece("lob_trim", length=length), variable)
    else:
        reader.take(",")
        offset = _count(reader, assigned)
        step = _Step(RedoPiece("lob_erase", offset=offset, length=length), variable)
        if called == "WRITE":
            reader.take(",")
            buffer = assigned.get(reader.word or "")
            if buffer is None or buffer.value.kind not in ("literal", "joined", "call"):
                reader.fail("a buffer that was assigned before")
            reader.take("word")
            written = _text if buffer.value.kind != "call" else _call(buffer.at)
            piece = RedoPiece("lob_write", offset=offset, length=length)
            step = _Step(piece, variable, (buffer.value, written))
    reader.take(")")
    return step


def _count(reader: RedoReader, assigned: dict[str, _Assigned]) -> int:
    """A number, or a variable that was given one."""
    index = reader.index
    if reader.word is None:
        text: str | None = reader.take("number", "a number")
    else:
        known = assigned.get(reader.take("word"))
        text = known.value.text if known else None
    if text is None or not _COUNT.fullmatch(text):
        raise Unexpected(*index, "a whole number")
    return int(text)


def _text(literal: str) -> dict[str, Any]:
    return {"text": literal}


def _call(index: tuple[int, int]) -> Callable[[str], dict[str, Any]]:
    """Reads what HEXTORAW or UNISTR stand for; a piece has no column type that would say it later."""

    def fields(call: str) -> dict[str, Any]:
        if digits := _HEX.fullmatch(call):
            return {"hex": digits[1]}
        text = unistr_text(call)
        if text is None:
            raise Unexpected(*index, "a literal, HEXTORAW of pairs of hexadecimal digits, or UNISTR")
        return {"text": text}

    return fields


def _extended_string(index: tuple[int, int]) -> Callable[[str], dict[str, Any]]:
    """Reads the update that a literal holds; its own literals have their quotes doubled once more."""

    def fields(statement: str) -> dict[str, Any]:
        try:
            return _bound_update(statement)
        except RedoSyntaxError as error:
            # Back to where it is in the block: after the literal's quote, every quote being two there.
            position = error.position + statement.count("'", 0, error.position) + 1
            raise Unexpected(index[0], index[1] + position, error.expected) from None

    return fields


def _bound_update(statement: str) -> dict[str, Any]:
    """`update T a set a."C" = :C where ..`."""
    parts = at_literals(statement)
    with placed(parts):
        update = update_of(RedoReader(parts[::2], binds=True))
        sets = update.sets
        if len(sets) != 1 or sets[0].value.kind != "bind":
            raise Unexpected(0, 0, "an update that sets one column to a bind variable")
    locator = Locator(sets[0].name, "", update.table, update.columns)
    doubled = any("''" in literal for literal in parts[1::2])
    piece = locator_plan(RedoPiece("ext_string_begin"), locator, len(parts))(list(parts), doubled)
    return {
        "schema": update.table.schema,
        "table": update.table.name,
        "lob_column": locator.column,
        "after": piece.after,
    }


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
            parts = match.groupdict()
            text, length = parts.get("text"), parts.get("length")
            if text is not None and "'" not in text.replace("''", ""):
                text = text.replace("''", "'")
            return RedoPiece("xml_write", hex=parts.get("hex"), text=text, length=int(length) if length else None)
    raise RedoSyntaxError(start.end(), "a literal, HEXTORAW of pairs of hexadecimal digits, or NULL")
