"""Makes statements that differ in what is NULL the same shape.

Under supplemental logging of all columns a row's conditions name every column, so a table with twenty nullable columns
has as many shapes as its rows have patterns of NULL. With a slot like a literal's in the place of each NULL it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any

from headrace.sources.oracle.redo.tokens import Token, tokens_of

_FOLLOWS_VALUE = frozenset({",", ")", ";"})
_FOLLOWS_VALUE_WORDS = frozenset({"WHERE", "AND"})


def with_null_slots(texts: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[list[Any]], list[Any]]] | None:
    """Give every NULL that is a whole value of its own a literal's position.

    Args:
        texts: the texts between the literals of a statement.

    Returns:
        The texts of a statement with literals in place of the NULLs, and what makes its parts out of the parts of the
        statement; None without NULL, and for what is not a row change.
    """
    if "NULL" not in "".join(texts).upper():
        return None
    first = tokens_of(texts[0])
    if not first or first[0].value not in ("INSERT", "UPDATE", "DELETE"):
        return None
    inserts = first[0].value == "INSERT"
    depth, clause, last = 0, False, len(texts) - 1
    slotted: list[str] = []
    order: list[int] = []
    null = 2 * last + 1
    for index, text in enumerate(texts):
        pieces, depth, clause = null_pieces(text, inserts, depth, clause, index == last)
        if index:
            order.append(2 * index - 1)
        order.append(2 * index)
        order += (null, null) * (len(pieces) - 1)
        slotted += pieces
    if len(slotted) == len(texts):
        return None
    pick = itemgetter(*order)

    def parts_of(parts: list[Any]) -> list[Any]:
        parts.append(None)
        return list(pick(parts))

    return tuple(slotted), parts_of


@lru_cache(maxsize=8192)
def null_pieces(text: str, inserts: bool, depth: int, clause: bool, last: bool) -> tuple[tuple[str, ...], int, bool]:
    """Cut one text at its NULLs.

    Args:
        text: the text between two literals.
        inserts: whether the statement is an insert.
        depth: how many parentheses are open before the text.
        clause: whether VALUES or WHERE has come before it.
        last: whether no literal follows.

    Returns:
        The pieces, and depth and clause after the text.
    """
    tokens = tokens_of(text)
    pieces = []
    start = 0
    for index, token in enumerate(tokens):
        if token.kind == "(":
            depth += 1
        elif token.kind == ")":
            depth -= 1
        elif token.kind == "word":
            if depth == 0 and token.value == ("VALUES" if inserts else "WHERE"):
                clause = True
            elif token.value == "NULL" and index and _ends_value(tokens, index + 1, last):
                before = tokens[index - 1]
                if inserts:
                    if clause and depth == 1 and before.kind in ("(", ","):
                        pieces.append(text[start : token.start])
                        start = token.end
                elif depth == 0 and before.kind == "=":
                    pieces.append(text[start : token.start])
                    start = token.end
                elif depth == 0 and clause and before.kind == "word" and before.value == "IS":
                    pieces.append(text[start : before.start] + "= ")
                    start = token.end
    pieces.append(text[start:])
    return tuple(pieces), depth, clause


def _ends_value(tokens: tuple[Token, ...], index: int, last: bool) -> bool:
    if index == len(tokens):
        return last
    token = tokens[index]
    return token.kind in _FOLLOWS_VALUE or (token.kind == "word" and token.value in _FOLLOWS_VALUE_WORDS)
