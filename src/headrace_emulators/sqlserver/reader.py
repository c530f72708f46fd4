"""Reading statements word by word: definitions and calls of procedures, which need no tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace_emulators.sqlserver.dialect import Token, TokenType, scan
from headrace_emulators.sqlserver.errors import NotSupportedError, ProgrammingError, not_emulated, syntax_error
from headrace_emulators.sqlserver.types import SqlType, check_collation, parse_type

_TEXTS = frozenset((TokenType.STRING, TokenType.NATIONAL_STRING))
_NO_NAMES = frozenset(
    (*_TEXTS, TokenType.NUMBER, TokenType.HEX_STRING, TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN)
)


@dataclass(frozen=True)
class AliasType:
    """A type that CREATE TYPE made.

    Args:
        number: its user_type_id.
        base: the type that it is another name for.
        nullable: whether its columns may be NULL unless they are declared otherwise.
    """

    number: int
    base: SqlType
    nullable: bool


class StatementReader:
    """Walks over the tokens of one statement.

    Args:
        text: the statement.
        types: the alias types it may name, in lower case.
    """

    def __init__(self, text: str, types: Mapping[str, AliasType] | None = None) -> None:
        self.text = text
        self._types = types or {}
        self.alias: AliasType | None = None
        """The alias type that `type` took last; None when it took none."""
        self._tokens = scan(text)
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._tokens)

    def word(self, ahead: int = 0) -> str:
        """The word to come, in upper case; empty at the end."""
        index = self._at + ahead
        return self._tokens[index].text.upper() if index < len(self._tokens) else ""

    def next(self) -> Token:
        """Take one token; raises error 102 at the end."""
        if self.done:
            raise syntax_error(self._tokens[-1].text if self._tokens else self.text)
        self._at += 1
        return self._tokens[self._at - 1]

    def accept(self, *words: str) -> bool:
        """Take the words if they are the next ones and not in quotes."""
        for offset, word in enumerate(words):
            index = self._at + offset
            if self.word(offset) != word or self._tokens[index].token_type in (*_TEXTS, TokenType.IDENTIFIER):
                return False
        self._at += len(words)
        return True

    def after(self, *words: str) -> StatementReader:
        """This reader, with the words taken; raises error 102 when others come."""
        self.expect(*words)
        return self

    def expect(self, *words: str) -> None:
        """Take the words; raises error 102 when others come."""
        if not self.accept(*words):
            raise syntax_error(self.word() or self._tokens[-1].text)

    def name(self) -> str:
        """Take an identifier, in brackets or not."""
        token = self.next()
        if token.token_type in _NO_NAMES:
            raise syntax_error(token.text)
        return token.text

    def path(self) -> tuple[str, str, str]:
        """Take `[database.][schema.]name`; the schema is dbo unless given."""
        parts = [self.name()]
        while self.accept("."):
            parts.append("" if self.word() == "." else self.name())
        database, schema, name = ([""] * 2 + parts)[-3:]
        return database, schema or "dbo", name

    def names(self) -> list[str]:
        """Take `(a, b DESC, ...)`."""
        self.expect("(")
        found = []
        while True:
            found.append(self.name())
            if not self.accept("ASC"):
                self.accept("DESC")
            if self.accept(")"):
                return found
            self.expect(",")

    def type(self) -> SqlType:
        """Take a type with its size and collation."""
        text = self.name()
        self.alias = None
        if text.upper() == "DOUBLE" and self.accept("PRECISION"):
            text = "float"
        if self.accept("."):
            schema, text = text, self.name()
            self.alias = self._types.get(f"{schema}.{text}".lower())
        else:
            self.alias = self._types.get(text.lower())
        if self.alias is not None:
            return self.alias.base
        if self.word() == "(":
            text += self.parenthesised()
        declared = parse_type(text)
        if not self.accept("COLLATE"):
            return declared
        collation = self.name()
        check_collation(collation)
        return parse_type(text, collation)

    def parenthesised(self) -> str:
        """Take everything from `(` to its `)` as text."""
        start, depth = self._tokens[self._at].start, 0
        while True:
            token = self.next()
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            if depth == 0:
                return self.text[start : token.end + 1]

    def until(self, *words: str) -> str:
        """Take everything up to one of the words outside of parentheses, or to the end, as text; raises error 102."""
        start, depth = self._at, 0
        while not self.done:
            word = self.word() if self._tokens[self._at].token_type not in _TEXTS else ""
            if depth == 0 and self._at > start and word in words:
                break
            depth += (word == "(") - (word == ")")
            if depth < 0:
                break
            self._at += 1
        if self._at == start:
            raise syntax_error(self.word() or self.text)
        return self.text_since(start)

    def integer(self) -> int:
        """Take a whole number with its sign."""
        sign = -1 if self.accept("-") else 1
        return sign * int(self.next().text)

    def text_since(self, mark: int) -> str:
        """The text from a token that was reached before to the one taken last."""
        return self.text[self._tokens[mark].start : self._tokens[self._at - 1].end + 1]

    def rest(self) -> str:
        return "" if self.done else self.text[self._tokens[self._at].start :]

    @property
    def mark(self) -> int:
        return self._at

    def constant(self) -> object:
        """Take a literal as a value: text, number, bytes, NULL, or a bare word."""
        token = self.next()
        if token.token_type in _TEXTS:
            return token.text
        if token.token_type is TokenType.HEX_STRING:
            return bytes.fromhex(token.text.rjust(len(token.text) + len(token.text) % 2, "0"))
        if token.text == "-":
            return -float(self.next().text) if "." in self.word() else -int(self.next().text)
        if token.token_type is TokenType.NUMBER:
            return float(token.text) if "." in token.text else int(token.text)
        return None if token.text.upper() == "NULL" else token.text

    def finish(self) -> None:
        """Check that nothing is left; raises error 102."""
        if not self.done:
            raise syntax_error(self.word())

    def unknown(self, what: str) -> NotSupportedError:
        return not_emulated(what, self.text)


_GREATEST_INT = 2**31 - 1


def default_text(text: str) -> str:
    """A default as sys.default_constraints shows it: numbers in two pairs of parentheses, everything else in one."""
    inner = text.strip()
    while inner.startswith("(") and _closes_at_end(inner):
        inner = inner[1:-1].strip()
    tokens = scan(inner)
    if not tokens:
        raise ProgrammingError("Incorrect syntax near ')'.", 102)
    last = tokens[-1]
    if last.token_type is TokenType.NUMBER and (len(tokens) == 1 or (len(tokens) == 2 and tokens[0].text in "+-")):
        number = inner.lstrip("+").replace(" ", "")
        # An integer beyond int is a decimal to the server, which shows it with its point.
        beyond = number.lstrip("-").isdigit() and int(number.lstrip("-")) > _GREATEST_INT
        return f"(({number}{'.' if beyond else ''}))"
    if len(tokens) >= 3 and tokens[1].token_type is TokenType.L_PAREN:
        return f"({inner[: tokens[0].end + 1].lower()}{inner[tokens[0].end + 1 :]})"
    if len(tokens) == 1 and inner.upper() in ("NULL", "CURRENT_TIMESTAMP"):
        return "(NULL)" if inner.upper() == "NULL" else "(getdate())"
    return f"({inner})"


def _closes_at_end(text: str) -> bool:
    depth = 0
    for token in scan(text):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            return token.end == len(text) - 1
    return False
