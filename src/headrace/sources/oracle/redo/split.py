"""Cuts a statement at its literals: text, literal, text, literal, ..., text.

The texts between the literals are the statement's shape; LogMiner prints the same few again and again. Every cut has
an odd number of parts; literals are at the odd positions, without their outer quotes and with inner quotes still
doubled, so that the parts joined by `'` are the statement.

Cutting at every quote is right unless a quote is in a quoted name or in a comment. Then a text has a name or a
comment that does not end, which the grammar refuses, and `at_literals` cuts again, slowly and exactly.

The text between two literals is made of tokens. Under supplemental logging of all columns a row's conditions name every
column, so a table with twenty nullable columns has as many shapes as its rows have patterns of NULL. With a slot like a
literal's in the place of each NULL it has one shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from headrace.sources.oracle.redo.row import RedoSyntaxError

# Names and comments; one that does not end takes the rest, which the grammar refuses.
_SKIPPED = r""""[^"]*(?:"|\Z)|/\*.*?(?:\*/|\Z)|--[^\n]*"""
_EXACT = re.compile(rf"(?P<skipped>{_SKIPPED})|'(?P<literal>[^']*(?:''[^']*)*)(?P<end>'?)", re.DOTALL)
_UNCLOSED = "the quote that ends this literal"


def at_quotes(sql: str) -> list[str]:
    """Cut at the quotes that are not doubled.

    Raises:
        RedoSyntaxError: a literal does not end.
    """
    parts = sql.split("'")
    if len(parts) % 2 == 0:
        raise RedoSyntaxError(sql.rindex("'"), _UNCLOSED)
    if "" not in parts[2:-2:2]:
        return parts
    # Two quotes without a text between them are one inside a literal: no statement has two literals side by side.
    whole = parts[:1]
    literal: list[str] = []
    last = len(parts) - 2
    for index in range(1, last + 1, 2):
        literal.append(parts[index])
        if parts[index + 1] or index == last:
            whole += ("''".join(literal), parts[index + 1])
            literal = []
    return whole


def at_literals(sql: str) -> list[str]:
    """Cut where literals are, knowing names and comments.

    Raises:
        RedoSyntaxError: a literal does not end.
    """
    parts: list[str] = []
    text = 0
    for match in _EXACT.finditer(sql):
        if match["skipped"] is not None:
            continue
        if not match["end"]:
            raise RedoSyntaxError(match.start(), _UNCLOSED)
        parts += (sql[text : match.start()], match["literal"])
        text = match.end()
    parts.append(sql[text:])
    return parts


_INSERT, _UPDATE = re.compile(r"\s*insert\b", re.IGNORECASE), re.compile(r"\s*(update|delete)\b", re.IGNORECASE)
_COLUMN = r'(?:[\w$#]+\.|"[^"]+"\.)?"[^"]+"'
_END = r"\s*(?:;\s*)?\Z"
# Where a literal ends when quotes inside are not doubled: at a quote that what follows a value comes after. LogMiner
# prints no blank between the values of an insert, and always a column's name after the blanks of SET and WHERE.
_AFTER_INSERTED = re.compile(
    rf"'(?=,(?:N?'|NULL\b|Unsupported\b|[-+.]?[0-9]|/\*|[A-Z_][\w$#.]*\()|\){_END})", re.IGNORECASE
)
_AFTER_SET = re.compile(rf"'(?=\s*,\s*{_COLUMN}\s*=|\s+where\s+(?:{_COLUMN}|ROWID\b)|{_END})", re.IGNORECASE)
_AFTER_WHERE = re.compile(rf"'(?=\s+and\s+(?:{_COLUMN}|ROWID\b)\s*(?:=|IS\b)|{_END})", re.IGNORECASE)
_STRICT_LITERAL = re.compile(r"'[^']*(?:''[^']*)*'")
_BETWEEN = re.compile(
    rf"(?P<skipped>{_SKIPPED})|(?P<quote>')|(?P<open>\()|(?P<close>\))|(?P<where>\bwhere\b)", re.I | re.S
)


def at_relaxed_literals(sql: str) -> list[str]:
    """Cut where literals are when the quotes inside them may not be doubled.

    Inside function calls quotes are always doubled. Ambiguous by nature: a value that holds what follows a value in
    such a statement, quote included, is cut short.

    Raises:
        RedoSyntaxError: the text is not an insert, update or delete, or a literal does not end.
    """
    inserts = _INSERT.match(sql) is not None
    if not inserts and not _UPDATE.match(sql):
        raise RedoSyntaxError(0, "insert, update or delete, where quotes may be relaxed")
    parts: list[str] = []
    text = position = depth = 0
    after = _AFTER_INSERTED if inserts else _AFTER_SET if sql.lstrip()[:1] in "uU" else _AFTER_WHERE
    while match := _BETWEEN.search(sql, position):
        position = match.end()
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
        elif match["where"]:
            after = after if inserts else _AFTER_WHERE
        elif match["quote"]:
            start = match.start()
            if depth > (1 if inserts else 0):
                whole = _STRICT_LITERAL.match(sql, start)
                end = whole.end() if whole else 0
            else:
                closing = after.search(sql, start + 1)
                end = closing.end() if closing else 0
            if not end:
                raise RedoSyntaxError(start, _UNCLOSED)
            parts += (sql[text:start], sql[start + 1 : end - 1])
            text = position = end
    parts.append(sql[text:])
    return parts


_TOKEN = re.compile(
    r"""
    (?P<blank>\s+)
    | (?P<comment>/\*.*?\*/|--[^\n]*\n)
    | "(?P<name>[^"]+)"
    | (?P<number>[+-]?(?:
          (?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?
          | (?:[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN])(?!\s*[(."])
      )(?![\w$#]))
    | (?P<malformed>[+-]?\.?[0-9][\w$#.]*+)
    | (?P<word>[^\W\d][\w$#]*)
    | (?P<unclosed>"[^"]*\Z|"|/\*.*)
    | (?P<rest>--.*)
    | (?P<symbol>\|\||:=|[(),.=;:])
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_new = tuple.__new__
_JSON = re.compile(r"/\*\s*JSON\s*\*/")


class Token(NamedTuple):
    """A token.

    Attributes:
        kind: `name` (was in double quotes), `word`, `number`, `literal`, `end`; a symbol is its own kind; `unclosed`
            a name or comment that does not end here; `rest` a line comment that no line break ends, which goes on
            unless the text is the statement's last; `malformed` no number though it begins as one; `other`.
        value: a word in upper case, a name without its quotes, a number as printed.
        start, end: its position in the text.
        lead: where the comment begins that LogMiner marks JSON values with, if it is directly before; else `start`.
    """

    kind: str
    value: str
    start: int
    end: int
    lead: int


@lru_cache(maxsize=8192)
def tokens_of(text: str) -> tuple[Token, ...]:
    """The tokens of a text, comments and blanks left out. Texts repeat even where whole statements do not."""
    tokens: list[Token] = []
    lead = -1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "blank":
            continue
        if kind == "comment":
            lead = match.start() if _JSON.fullmatch(match[0]) else -1
            continue
        value = match[kind]
        if kind == "symbol":
            kind = value
        elif kind == "word":
            value = value.upper()
        start, end = match.span()
        tokens.append(_new(Token, (kind, value, start, end, start if lead < 0 else lead)))
        lead = -1
    return tuple(tokens)


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
