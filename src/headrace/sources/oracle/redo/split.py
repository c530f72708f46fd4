"""Cuts a statement at its literals: text, literal, text, literal, ..., text.

The texts between the literals are the statement's shape; LogMiner prints the same few again and again. Every cut has
an odd number of parts; literals are at the odd positions, without their outer quotes and with inner quotes still
doubled, so that the parts joined by `'` are the statement.

Cutting at every quote is right unless a quote is in a quoted name or in a comment. Then a text has a name or a
comment that does not end, which the grammar refuses, and `at_literals` cuts again, slowly and exactly.
"""

from __future__ import annotations

import re

from headrace.sources.oracle.redo.error import RedoSyntaxError

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
