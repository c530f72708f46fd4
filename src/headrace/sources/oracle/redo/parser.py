"""From the text of a redo statement to what it changes, with one plan per statement shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.sources.oracle.redo.pieces import block_plan, xml_begin_plan, xml_update_plan, xml_write
from headrace.sources.oracle.redo.plan import PiecePlan, RowPlan
from headrace.sources.oracle.redo.reader import RedoReader
from headrace.sources.oracle.redo.row import RedoPiece, RedoRow, RedoSyntaxError, Unexpected, placed
from headrace.sources.oracle.redo.row_changes import delete_plan, insert_plan, update_of, update_plan
from headrace.sources.oracle.redo.split import (
    at_literals,
    at_quotes,
    at_relaxed_literals,
    null_pieces,
    tokens_of,
    with_null_slots,
)

# Some KB each. A schema of some hundred tables has some thousand shapes, once NULLs are values like others.
_MOST_PLANS = 8192
# By the texts between the literals; the second without distinction of NULL.
_plans: dict[tuple[str, ...], RowPlan] = {}
_plans_with_slots: dict[tuple[str, ...], RowPlan] = {}
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
    process. docs/reference/oracle-redo.md lists what is read.
    """
    parts = sql.split("'")
    plan = _plans.get(tuple(parts[::2]))
    # An even number of parts means that the texts are known, but the last literal does not end.
    if plan is not None and len(parts) & 1:
        return plan(parts, False)
    return _planned(sql, relaxed_quotes)


def parse_many(
    statements: Iterable[str], *, relaxed_quotes: bool = False
) -> Iterator[RedoRow | RedoPiece | RedoSyntaxError]:
    """Read redo statements one after another, in their order.

    As `parse` for each, but the error of a statement takes its position, so that the others are not lost. Each is
    read on demand and none is kept: rows that are used at once stay in the processor's cache.
    """
    plan_of = _plans.get
    for sql in statements:
        parts = sql.split("'")
        plan = plan_of(tuple(parts[::2]))
        if plan is not None and len(parts) & 1:
            yield plan(parts, False)
        else:
            try:
                row = _planned(sql, relaxed_quotes)
            except RedoSyntaxError as error:
                yield error
            else:
                yield row


def parse_afresh(sql: str) -> RedoRow | RedoPiece:
    """What `parse` gives, by the grammar alone: no plan is used or kept, and each literal is looked for.

    Raises:
        RedoSyntaxError: as `parse` does.
    """
    written = xml_write(sql)
    if written is not None:
        return written
    parts = at_literals(sql)
    texts = tuple(parts[::2])
    with placed(parts):
        plan = _row_plan(texts) or _piece_plan(texts)
    return plan(parts, _has_doubled(parts))


def forget_shapes() -> None:
    """Drop what is kept of the statements seen so far; the next ones are read as if they were the first."""
    _plans.clear()
    _plans_with_slots.clear()
    tokens_of.cache_clear()
    null_pieces.cache_clear()


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
    doubled = _has_doubled(parts)
    plan = _plans.get(texts)
    if plan is not None:
        return plan(parts, doubled)
    with placed(parts):
        plan = _kept_plan(texts)
        whole = plan or _piece_plan(texts)
    return whole(parts, doubled)


def _kept_plan(texts: tuple[str, ...]) -> RowPlan | None:
    """The plan of a new shape, kept for the statements to come; None if it is not a row change.

    What writes large values has offsets in its shape, which is not met again. A shape with a quote in it could be met
    again by mistake: where that quote begins or ends a literal.
    """
    if any("'" in text for text in texts):
        return _row_plan(texts)
    plan = _plan_with_slots(texts) or _row_plan(texts)
    if plan is not None:
        _keep(_plans, texts, plan)
    return plan


def _plan_with_slots(texts: tuple[str, ...]) -> RowPlan | None:
    """The plan of a row change that says NULL, by way of the plan that it shares with others; None if it has none."""
    slots = with_null_slots(texts)
    if slots is None:
        return None
    slotted, parts_of = slots
    shared = _plans_with_slots.get(slotted)
    if shared is None:
        try:
            shared = _row_plan(slotted)
        except Unexpected:
            return None  # The statement as it is has the same problem, and its position.
        if shared is None:
            return None
        _keep(_plans_with_slots, slotted, shared)
    plan = shared
    return lambda parts, doubled: plan(parts_of(parts), doubled)


def _keep(plans: dict[tuple[str, ...], RowPlan], texts: tuple[str, ...], plan: RowPlan) -> None:
    if len(plans) >= _MOST_PLANS:
        plans.clear()
    plans[texts] = plan


def _has_doubled(parts: list[str]) -> bool:
    return any("''" in literal for literal in parts[1::2])


def _row_plan(texts: tuple[str, ...]) -> RowPlan | None:
    reader = RedoReader(texts)
    make = _ROW_CHANGES.get(reader.word or "")
    return make(reader, 2 * len(texts) - 1) if make is not None else None


def _piece_plan(texts: tuple[str, ...]) -> PiecePlan:
    reader, parts = RedoReader(texts), 2 * len(texts) - 1
    match reader.word:
        case "UPDATE":
            return xml_update_plan(update_of(reader), parts)
        case "XML":
            return xml_begin_plan(reader, parts)
        case _:
            return block_plan(reader, parts)
