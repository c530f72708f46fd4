"""Reads what all redo statements are made of: names, tables, values, conditions.

National character types are printed as `UNISTR(...)`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from headrace.sources.oracle.redo.plan import Call, PrintedPart
from headrace.sources.oracle.redo.row import Unexpected
from headrace.sources.oracle.redo.split import Token, tokens_of

# The hidden column of row archival: no column of the table.
HIDDEN = "ORA_ARCHIVE_STATE"
_OPEN_ENDED = frozenset({"end", "unclosed", "rest"})


class RedoValue(NamedTuple):
    """A value of a statement.

    Attributes:
        kind: `literal`, `constant` (a number; text None is NULL), `call`, `joined` (literals), `unsupported`, `bind`.
        text: of a constant or the name of a bind variable.
        indexes: of the literals.
        call: the function call.
    """

    kind: str
    text: str | None = None
    indexes: tuple[int, ...] = ()
    call: Call | None = None


class RedoTable(NamedTuple):
    """The table of a statement, and the names that may precede a column."""

    schema: str | None
    name: str
    qualifiers: frozenset[tuple[str, ...]]


class RedoColumn(NamedTuple):
    """A column with its value; `pseudo` for ROWID, which is not a column."""

    name: str
    value: RedoValue
    pseudo: bool


class RedoReader:
    """The tokens of one statement, read from left to right.

    Args:
        texts: the texts between the statement's literals.
        binds: whether values may be bind variables.
    """

    def __init__(self, texts: Sequence[str], *, binds: bool = False) -> None:
        self._texts = texts
        self._binds = binds
        self._tokens: list[Token] = []
        self._text_of: list[int] = []
        for index, text in enumerate(texts):
            tokens = tokens_of(text)
            kind = "literal" if index < len(texts) - 1 else "end"
            if kind == "end" and tokens and tokens[-1].kind == "rest":
                tokens = tokens[:-1]
            self._tokens += tokens
            self._text_of += [index] * (len(tokens) + 1)
            self._tokens.append(Token(kind, "", len(text), len(text), len(text)))
        self._next = 0

    @property
    def kind(self) -> str:
        return self._tokens[self._next].kind

    @property
    def word(self) -> str | None:
        token = self._tokens[self._next]
        return token.value if token.kind == "word" else None

    @property
    def assigns(self) -> bool:
        """Whether `variable :=` comes next."""
        return self.word is not None and self._tokens[self._next + 1].kind == ":="

    @property
    def index(self) -> tuple[int, int]:
        """Where the next token begins: which text, and the position in it."""
        return self._text_of[self._next], self._tokens[self._next].start

    def fail(self, expected: str) -> NoReturn:
        """Raise the error of the next token."""
        raise Unexpected(*self.index, expected)

    def take(self, kind: str, expected: str = "") -> str:
        """The value of the next token, which must be of a kind."""
        token = self._tokens[self._next]
        if token.kind != kind:
            self.fail(expected or f"{kind}")
        self._next += 1
        return token.value

    def accept(self, kind: str) -> bool:
        """Pass over the next token if it is of a kind."""
        if self._tokens[self._next].kind != kind:
            return False
        self._next += 1
        return True

    def accept_word(self, word: str) -> bool:
        """Pass over the next token if it is this word."""
        token = self._tokens[self._next]
        if token.value != word or token.kind != "word":
            return False
        self._next += 1
        return True

    def take_words(self, *words: str) -> None:
        for word in words:
            if not self.accept_word(word):
                self.fail(word)

    def skip(self) -> None:
        """Pass over any token but the end."""
        if self.kind in _OPEN_ENDED:
            self.fail("the rest of the statement")
        self._next += 1

    def end(self) -> None:
        """Nothing may follow but semicolons."""
        while self.accept(";"):
            pass
        if self.kind != "end":
            self.fail("the end of the statement")

    def _identifier(self, expected: str) -> str:
        token = self._tokens[self._next]
        if token.kind not in ("name", "word"):
            self.fail(expected)
        self._next += 1
        return token.value

    def path(self, expected: str) -> tuple[str, ...]:
        """Names joined by dots."""
        path = [self._identifier(expected)]
        while self.accept("."):
            path.append(self._identifier(expected))
        return tuple(path)

    def table(self, *, follows: tuple[str, ...] = ()) -> RedoTable:
        """A table with its alias; `follows` are the words that may come after it and therefore are no alias."""
        at = self._next
        path = self.path("a table")
        if len(path) > 2:
            self._next = at
            self.fail("a table with its schema")
        qualifiers = {path, path[-1:]}
        if follows and (self.kind == "name" or (self.word is not None and self.word not in follows)):
            qualifiers = {(self._identifier("an alias"),)}
        return RedoTable(path[0] if len(path) == 2 else None, path[-1], frozenset(qualifiers))

    def column(self, table: RedoTable) -> tuple[str, bool]:
        """A column of the table, and whether it is the pseudo column ROWID."""
        at = self._next
        path = self.path("a column")
        if len(path) > 1 and path[:-1] not in table.qualifiers:
            self._next = at
            self.fail("a column of this table")
        return path[-1], self._tokens[self._next - 1].kind == "word" and path[-1] == "ROWID"

    def assignment(self, table: RedoTable) -> RedoColumn:
        """`column = value`."""
        name, pseudo = self.column(table)
        self.take("=")
        return RedoColumn(name, self.value(), pseudo)

    def _predicate(self, table: RedoTable) -> RedoColumn:
        name, pseudo = self.column(table)
        if self.accept_word("IS"):
            self.take_words("NULL")
            return RedoColumn(name, RedoValue("constant"), pseudo)
        self.take("=", "= or IS NULL")
        return RedoColumn(name, self.value(), pseudo)

    def conditions(self, table: RedoTable) -> list[RedoColumn]:
        """`where` with predicates joined by `and`; nothing when it is missing."""
        if not self.accept_word("WHERE"):
            return []
        predicates = [self._predicate(table)]
        while self.accept_word("AND"):
            predicates.append(self._predicate(table))
        return predicates

    def value(self) -> RedoValue:
        """A literal, a number, NULL, a type that LogMiner can't print, or function calls."""
        token = self._tokens[self._next]
        if token.kind == "literal" and self._tokens[self._next + 1].kind != "||":
            self._next += 1
            return RedoValue("literal", indexes=(2 * self._text_of[self._next - 1] + 1,))
        if token.kind == "number":
            self._next += 1
            return RedoValue("constant", token.value)
        if token.kind == "word":
            if token.value == "NULL":
                self._next += 1
                return RedoValue("constant")
            if token.value == "UNSUPPORTED":
                self._next += 1
                self.accept_word("TYPE")
                return RedoValue("unsupported")
        if token.kind == ":" and self._binds:
            self._next += 1
            if self.kind == "number":
                return RedoValue("bind", self.take("number"))
            return RedoValue("bind", self._identifier("the name of a bind variable"))
        return self._joined()

    def _joined(self) -> RedoValue:
        slices = []
        indexes = []
        while True:
            start = self._next
            national = self._national()
            if self.kind == "literal":
                index = 2 * self._text_of[self._next] + 1
                indexes.append(index)
                slices.append(PrintedPart("N" if national else "", index, index))
                self._next += 1
            elif self.kind == "word" or (self.kind == "name" and self._tokens[self._next + 1].kind in (".", "(")):
                slices.append(self._call(start))
            else:
                self.fail("a value")
            if not self.accept("||"):
                break
        if len(indexes) == len(slices):
            return RedoValue("literal" if len(indexes) == 1 else "joined", indexes=tuple(indexes))
        return RedoValue("call", call=Call(tuple(slices)))

    def _national(self) -> bool:
        """Pass over the N that directly precedes a literal."""
        token, after = self._tokens[self._next], self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        if token.kind != "word" or token.value != "N" or after.kind != "literal" or token.end != after.start:
            return False
        self._next += 1
        return True

    def _call(self, start: int) -> PrintedPart:
        self.path("a function")
        self.take("(", "a value, or ( after a function")
        depth = 1
        while depth:
            if self.kind in _OPEN_ENDED:
                self.fail("the ) that ends this call")
            depth += (self.kind == "(") - (self.kind == ")")
            self._next += 1
        first, last = self._text_of[start], self._text_of[self._next - 1]
        lead, end = self._tokens[start].lead, self._tokens[self._next - 1].end
        if first == last:
            return PrintedPart(self._texts[first][lead:end])
        return PrintedPart(self._texts[first][lead:], 2 * first + 1, 2 * last - 1, self._texts[last][:end])


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
