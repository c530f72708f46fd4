"""The tokens of a text between two literals."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

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
    found: list[Token] = []
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
        found.append(_new(Token, (kind, value, start, end, start if lead < 0 else lead)))
        lead = -1
    return tuple(found)
