"""From the text of a redo statement to what it changes, with one plan per statement shape."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.sources.oracle.redo.documents import xml_begin_plan, xml_update_plan, xml_write
from headrace.sources.oracle.redo.error import RedoSyntaxError, placed
from headrace.sources.oracle.redo.pieces import block_plan
from headrace.sources.oracle.redo.plan import PiecePlan, RowPlan
from headrace.sources.oracle.redo.reader import Reader
from headrace.sources.oracle.redo.row import RedoPiece, RedoRow
from headrace.sources.oracle.redo.row_changes import delete_plan, insert_plan, update_of, update_plan
from headrace.sources.oracle.redo.split import at_literals, at_quotes, at_relaxed_literals
from headrace.sources.oracle.redo.tokens import tokens_of

# Plans by the texts between the literals. Some KB each; a schema of some hundred tables has some thousand shapes.
_MOST_PLANS = 16_384
_plans: dict[tuple[str, ...], RowPlan] = {}
_ROW_CHANGES = {"INSERT": insert_plan, "UPDATE": update_plan, "DELETE": delete_plan}


def parse(sql: str, *, relaxed_quotes: bool = False) -> RedoRow | RedoPiece:
    """Read one redo statement.

    Args:
        sql: SQL_REDO of one change, its continuation rows (CSF) appended.
        relaxed_quotes: also read inserts, updates and deletes whose literals hold quotes that are not doubled, as
            LogMiner prints extended strings. A statement that is well-formed reads the same with and without.

    Returns:
        A `RedoRow` for an insert, update or delete; a `RedoPiece` for a statement that writes to a LOB, an XML
        document or an extended string.

    Raises:
        RedoSyntaxError: the text is none of these statements. Nothing else is ever raised for a text.

    The result depends on the text alone. It runs where it is called; a plan for each statement shape is kept in the
    process (spec/oracle.md sections 9, 10 and 14).
    """
    parts = sql.split("'")
    plan = _plans.get(tuple(parts[::2]))
    if plan is not None:
        return plan(parts, False)
    return _planned(sql, relaxed_quotes)


def parse_many(
    statements: Iterable[str], *, relaxed_quotes: bool = False
) -> list[RedoRow | RedoPiece | RedoSyntaxError]:
    """Read many redo statements, in their order; the error of a statement stands in its place.

    Faster than `parse` for each, and one bad statement does not cost the others.
    """
    found: list[RedoRow | RedoPiece | RedoSyntaxError] = []
    add = found.append
    plan_of = _plans.get
    for sql in statements:
        parts = sql.split("'")
        plan = plan_of(tuple(parts[::2]))
        if plan is not None:
            add(plan(parts, False))
        else:
            try:
                add(_planned(sql, relaxed_quotes))
            except RedoSyntaxError as error:
                add(error)
    return found


def _planned(sql: str, relaxed_quotes: bool) -> RedoRow | RedoPiece:
    """Read a statement whose shape is new, or whose literals hold quotes."""
    written = xml_write(sql)
    if written is not None:
        return written
    problem: RedoSyntaxError | None = None
    for parts_of in (at_quotes, at_literals, at_relaxed_literals) if relaxed_quotes else (at_quotes, at_literals):
        try:
            return _read(parts_of(sql))
        except RedoSyntaxError as error:
            problem = error
    assert problem is not None
    raise problem


def _read(parts: list[str]) -> RedoRow | RedoPiece:
    texts = tuple(parts[::2])
    doubled = any("''" in literal for literal in parts[1::2])
    plan = _plans.get(texts)
    if plan is not None:
        return plan(parts, doubled)
    with placed(parts):
        reader = Reader(texts)
        make = _ROW_CHANGES.get(reader.word or "")
        made = make(reader, len(parts)) if make is not None else None
        if made is None:
            return _piece(Reader(texts), len(parts))(parts, doubled)
    # A shape with a quote in it is not kept: it could be met again where that quote begins or ends a literal.
    if not any("'" in text for text in texts):
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[texts] = made
    return made(parts, doubled)


def _piece(reader: Reader, parts: int) -> PiecePlan:
    """What writes large values has offsets in its shape, which is not met again, or is rare: no plan is kept."""
    match reader.word:
        case "UPDATE":
            return xml_update_plan(update_of(reader), parts)
        case "XML":
            return xml_begin_plan(reader, parts)
        case _:
            return block_plan(reader, parts)


def forget_shapes() -> None:
    """Drop what is kept of the statements seen so far; the next ones are read as if they were the first."""
    _plans.clear()
    tokens_of.cache_clear()
