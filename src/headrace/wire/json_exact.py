"""What JSON is here, in plain Python: the specification that the kernel is tested against.

RFC 8259, and nothing beside it: no comments, no `NaN`, no control characters inside strings, no bytes that are no
UTF-8, no half of a surrogate pair (which no UTF-8 can write), and nothing but white space after the value. Numbers
stay the text that they are. Of a name that an object repeats, the reader keeps all; who makes a map takes the last.
"""

from __future__ import annotations

import re
from typing import NamedTuple

ABSENT, NULL, TRUE, FALSE, NUMBER, STRING, ESCAPED, OBJECT, ARRAY, NAME, ESCAPED_NAME = range(11)
"""Kinds of tokens. `ESCAPED` is a string with escapes in it; only names that have some are `ESCAPED_NAME`."""

READ, BROKEN, MORE = 0, 1, 2
"""What came of a message: read; no JSON; a JSON value with something else after it."""

_SPACE = re.compile(rb"[ \t\n\r]*")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_LIKE = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]*)?")
_STRING = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+)"')
_UNIT = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_WORDS = {b"null": NULL, b"true": TRUE, b"false": FALSE}


class JsonToken(NamedTuple):
    """One value or name: what it is, where its text stands, and the number of the token after all that it holds.

    A string's text is what stands between the quotes, an object's or array's reaches from bracket to bracket. The value
    of a name is the token after it.
    """

    kind: int
    start: int
    size: int
    after: int


class NotJson(ValueError):
    """The text is not JSON, or more than one (`verdict`)."""

    def __init__(self, verdict: int) -> None:
        super().__init__(verdict)
        self.verdict = verdict


def read(text: bytes) -> list[JsonToken]:
    """The tokens of one JSON text, in order.

    Raises:
        NotJson: it is none, or more than that.
    """
    tokens: list[JsonToken] = []
    open_: list[int] = []
    at = _blank(text, 0)
    while True:
        at = _value(text, at, tokens, open_)
        # Behind a value: close what ends here, until there is another value to come.
        while True:
            at = _blank(text, at)
            if not open_:
                if at < len(text):
                    raise NotJson(MORE)
                return tokens
            parent = tokens[open_[-1]]
            is_object, is_empty = parent.kind == OBJECT, open_[-1] == len(tokens) - 1
            if text[at : at + 1] == (b"}" if is_object else b"]"):
                at += 1
                tokens[open_.pop()] = JsonToken(parent.kind, parent.start, at - parent.start, len(tokens))
                continue
            if not is_empty:
                if text[at : at + 1] != b",":
                    raise NotJson(BROKEN)
                at = _blank(text, at + 1)
            if is_object:
                at = _name(text, at, tokens)
            break


def _value(text: bytes, at: int, tokens: list[JsonToken], open_: list[int]) -> int:
    """Read one scalar, or the opening bracket of what holds others; where it ends."""
    after = len(tokens) + 1
    first = text[at : at + 1]
    if first in (b"{", b"["):
        open_.append(len(tokens))
        tokens.append(JsonToken(OBJECT if first == b"{" else ARRAY, at, 0, 0))
        return at + 1
    if first == b'"':
        end, escaped = _string(text, at)
        tokens.append(JsonToken(ESCAPED if escaped else STRING, at + 1, end - at - 2, after))
        return end
    for word, kind in _WORDS.items():
        if text.startswith(word, at):
            tokens.append(JsonToken(kind, at, len(word), after))
            return at + len(word)
    # A point or an exponent without digits is broken, and not the number before it with something behind.
    match = _NUMBER_LIKE.match(text, at)
    if match is None or not _NUMBER.fullmatch(match[0]):
        raise NotJson(BROKEN)
    tokens.append(JsonToken(NUMBER, at, match.end() - at, after))
    return match.end()


def _name(text: bytes, at: int, tokens: list[JsonToken]) -> int:
    end, escaped = _string(text, at)
    tokens.append(JsonToken(ESCAPED_NAME if escaped else NAME, at + 1, end - at - 2, len(tokens) + 1))
    at = _blank(text, end)
    if text[at : at + 1] != b":":
        raise NotJson(BROKEN)
    return _blank(text, at + 1)


def _string(text: bytes, at: int) -> tuple[int, bool]:
    """Where a string ends, and whether it has escapes."""
    match = _STRING.match(text, at)
    if match is None:
        raise NotJson(BROKEN)
    inside = match[1]
    try:
        inside.decode()
    except UnicodeDecodeError as error:
        raise NotJson(BROKEN) from error
    if b"\\" not in inside:
        return match.end(), False
    high = -1  # where a first half of a pair ended
    for unit in _UNIT.finditer(inside):
        code = int(unit[1], 16) if unit[1] else 0
        is_second = 0xDC00 <= code < 0xE000
        if is_second != (high == unit.start()) or (high >= 0 and not is_second):
            raise NotJson(BROKEN)
        high = unit.end() if 0xD800 <= code < 0xDC00 else -1
    if high >= 0:
        raise NotJson(BROKEN)
    return match.end(), True


def _blank(text: bytes, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()
