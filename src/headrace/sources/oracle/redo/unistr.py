"""`UNISTR(...)`, the form in which LogMiner prints national character types."""

from __future__ import annotations

import re

_CALL = re.compile(r"(?i:UNISTR)\s*\(\s*'([^']*(?:''[^']*)*)'\s*\)")
_JOIN = re.compile(r"\s*\|\|\s*")
_ESCAPE = re.compile(r"\\(?:\\|([0-9A-Fa-f]{4}))")


def unistr_text(call: str) -> str | None:
    r"""Return the text that `UNISTR('..')`, or several joined by `||`, stands for; None if it is anything else.

    `\XXXX` is a UTF-16 code unit, so a character beyond the first plane is two; `\\` is a backslash; `''` a quote.
    A code unit without its other half stays what it is: a large value may be cut between them.
    """
    pieces = []
    position = 0
    while match := _CALL.match(call, position):
        pieces.append(match[1].replace("''", "'"))
        position = match.end()
        if position == len(call):
            text = _ESCAPE.sub(_unescaped, "".join(pieces))
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        join = _JOIN.match(call, position)
        if join is None:
            return None
        position = join.end()
    return None


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else "\\"
