"""Db2's statements read: word by word for definitions, as a tree for what reads and writes rows."""

from __future__ import annotations

import re
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace_emulators.db2.errors import ProgrammingError, syntax_error

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")*")"""
    r"""|(?P<number>\d+(?:\.\d*)?(?:[Ee][+-]?\d+)?|\.\d+)|(?P<word>[^\W\d][\w$#@]*)|(?P<other>.)""",
    re.DOTALL,
)
_PIECES = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/)""", re.DOTALL)
_REGISTERS = {
    r"\bCURRENT[ _]TIMESTAMP\b": "db2_now()",
    r"\bCURRENT[ _]TIMEZONE\b": "db2_timezone()",
    r"\bCURRENT[ _]DATE\b": "db2_today()",
    r"\b(\w+\.\w+)\s*-\s*1\s+MINUTE\b": r"db2_minute_before(\1)",
    r"\bXMLSERIALIZE\s*\(": "CAST(",
    r"\b(?:VARCHAR|CHAR|CHARACTER)\s*\(\s*(\d+)\s*\)\s*FOR\s+BIT\s+DATA\b": r"VARBINARY(\1)",
    r"\b([CB]LOB|DBCLOB)\s*\(\s*\d+\s*[KMG]?\s*\)": r"\1",
    r"\s+EXCLUDING\s+XMLDECLARATION\b": "",
    r"\b(?<!AS )(CHAR)\s*\(": "db2_char(",
    r"\bLONG\s+VARCHAR\b": "CLOB",
}
_ENDING = re.compile(
    r"(?:\s+FOR\s+(?:READ|FETCH)\s+ONLY)?(?:\s+WITH\s+(?:UR|CS|RS|RR)(?:\s+USE\s+AND\s+KEEP\s+\w+\s+LOCKS)?)?\s*;?\s*$",
    re.IGNORECASE,
)

_KEPT_LOCKS = re.compile(r"\sWITH\s+R[RS]\s+USE\s+AND\s+KEEP\s+\w+\s+LOCKS(?:\s*;)?\s*$", re.IGNORECASE)


def keeps_locks(statement: str) -> bool:
    """Whether a SELECT holds off writers until its transaction ends."""
    return _KEPT_LOCKS.search(statement) is not None


class _Tokenizer(sqlglot.Tokenizer):
    HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012


class Db2Dialect(sqlglot.Dialect):
    """What of Db2's SQL sqlglot's own dialect lacks."""

    Tokenizer = _Tokenizer


@lru_cache(maxsize=1024)
def parse(statement: str) -> exp.Expr:
    """The tree of a SELECT, VALUES, INSERT, UPDATE or DELETE.

    Raises:
        ProgrammingError: it can't be read (SQL0104N).
    """
    text = _ENDING.sub("", statement)
    parts = _PIECES.split(text)
    for number in range(0, len(parts), 2):
        for pattern, made in _REGISTERS.items():
            parts[number] = re.sub(pattern, made, parts[number], flags=re.IGNORECASE)
    try:
        trees = Db2Dialect().parse("".join(parts))
    except SqlglotError as error:
        raise syntax_error(str(error).split("\n")[0]) from None
    if len(trees) != 1 or trees[0] is None:
        raise syntax_error(";")
    return trees[0]


def statements(script: str) -> list[str]:
    found, start = [], 0
    for token in _TOKEN.finditer(script):
        if token["other"] == ";":
            found.append(script[start : token.start()])
            start = token.end()
    found.append(script[start:])
    return [text.strip() for text in found if text.strip()]


class Reader:
    """Walks over the words of one statement.

    Args:
        text: the statement.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = [token for token in _TOKEN.finditer(text) if not token["skip"] and token["other"] != ";"]
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._tokens)

    def word(self, ahead: int = 0) -> str:
        """A word to come in capitals; text in quotes is not a word."""
        place = self._at + ahead
        if place >= len(self._tokens):
            return ""
        token = self._tokens[place]
        return "" if token["quoted"] or token["text"] else str(token[0]).upper()

    def accept(self, *words: str) -> bool:
        """Take the words if they are the next ones."""
        if all(self.word(n) == word for n, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        """Take the words; raises SQL0104N when others come."""
        if not self.accept(*words):
            raise self.unexpected()

    def unexpected(self) -> ProgrammingError:
        return syntax_error(self._tokens[self._at][0] if not self.done else "END-OF-STATEMENT")

    def name(self) -> str:
        """Take an identifier: as it is in quotes, in capitals without."""
        if self.done:
            raise self.unexpected()
        token = self._tokens[self._at]
        if token["quoted"]:
            found = token["quoted"][1:-1].replace('""', '"')
        elif token["word"]:
            found = token["word"].upper()
        else:
            raise self.unexpected()
        self._at += 1
        return found

    def path(self, schema: str) -> tuple[str, str]:
        """Take `[schema.]name`."""
        first = self.name()
        return (first, self.name()) if self.accept(".") else (schema, first)

    def names(self) -> tuple[str, ...]:
        """Take `(a, b)`."""
        self.expect("(")
        found = []
        while True:
            found.append(self.name())
            if not self.accept("ASC"):
                self.accept("DESC")
            if self.accept(")"):
                return tuple(found)
            self.expect(",")

    def constant(self) -> str:
        """Take a text in quotes."""
        if self.done or not self._tokens[self._at]["text"]:
            raise self.unexpected()
        self._at += 1
        return str(self._tokens[self._at - 1][0])[1:-1].replace("''", "'")

    def integer(self) -> int:
        """Take a whole number with its sign."""
        sign = -1 if self.accept("-") else 1
        if self.done or not self._tokens[self._at][0].isdigit():
            raise self.unexpected()
        self._at += 1
        return sign * int(self._tokens[self._at - 1][0])

    def parenthesised(self) -> str:
        """Take everything from `(` to its `)` as text."""
        start, depth = self._tokens[self._at].start(), 0
        while not self.done:
            token = self._tokens[self._at]
            self._at += 1
            depth += (token[0] == "(") - (token[0] == ")")
            if depth == 0:
                return self.text[start : token.end()]
        raise self.unexpected()

    def type(self) -> str:
        words = [self.name()]
        if words[0] == "LONG" or (words[0] in ("CHARACTER", "CHAR") and self.word() == "VARYING"):
            words.append(self.name())
        elif words[0] == "DOUBLE":
            self.accept("PRECISION")
        elif words[0] in ("CHARACTER", "BINARY") and self.word() == "LARGE":
            words += [self.name(), self.name()]
        text = " ".join(words)
        if self.word() == "(":
            text += self.parenthesised()
        return text + (" FOR BIT DATA" if self.accept("FOR", "BIT", "DATA") else "")

    def literal(self) -> str:
        """Take a constant or a special register as text, such as a DEFAULT has it."""
        if self.done:
            raise self.unexpected()
        mark = self._at
        if self.word() in ("-", "+"):
            self._at += 1
        if self.accept("CURRENT"):
            self.name()
            return self.text[self._tokens[mark].start() : self._tokens[self._at - 1].end()]
        self._at += 1
        if self.word() == "" and self._tokens[self._at - 1][0].upper() in ("X", "BX", "GX") and not self.done:
            self._at += 1
        return self.text[self._tokens[mark].start() : self._tokens[self._at - 1].end()]

    def finish(self) -> None:
        """Check that nothing is left."""
        if not self.done:
            raise self.unexpected()
