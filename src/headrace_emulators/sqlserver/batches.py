"""Scripts as T-SQL takes them: batches that GO ends, and in a batch statements that need no semicolon between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from headrace_emulators.sqlserver.dialect import Token, TokenType, scan
from headrace_emulators.sqlserver.errors import syntax_error

_GO = re.compile(r"\s*GO(?:\s+(\d+))?\s*(?:--.*)?", re.IGNORECASE)
_QUOTED = frozenset((TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.IDENTIFIER))
_STARTS = frozenset((
    "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "ALTER", "DROP", "TRUNCATE", "EXEC", "EXECUTE",
    "DECLARE", "SET", "IF", "WHILE", "BEGIN", "COMMIT", "ROLLBACK", "SAVE", "PRINT", "GRANT", "DENY", "REVOKE", "USE",
    "RAISERROR", "THROW", "RETURN", "BREAK", "CONTINUE", "WAITFOR", "ENABLE", "DISABLE",
))  # fmt: skip
_QUERIES = frozenset(("SELECT", "INSERT", "UPDATE", "DELETE", "MERGE"))
_MODULES = frozenset(("FUNCTION", "PROC", "PROCEDURE", "TRIGGER", "VIEW"))
_CHAINS = frozenset(("UNION", "ALL", "EXCEPT", "INTERSECT", "FOR", "AS"))


@dataclass(frozen=True)
class Batch:
    """What a script sends at once.

    Args:
        text: without the GO.
        line: of its first line in the script, from 1.
        times: how often it is sent (`GO 5`).
    """

    text: str
    line: int
    times: int = 1


def batches(script: str) -> list[Batch]:
    """The batches of a script, which end at lines with GO, without empty ones."""
    found: list[Batch] = []
    lines: list[str] = []
    start = 1
    for number, line in enumerate([*script.removeprefix("\ufeff").splitlines(), "GO"], 1):
        end = _GO.fullmatch(line)
        if end is None:
            lines.append(line)
            continue
        text = "\n".join(lines)
        if text.strip():
            found.append(Batch(text, start, int(end[1] or 1)))
        lines, start = [], number + 1
    return found


@dataclass(frozen=True)
class Simple:
    """One statement.

    Args:
        words: its first words in upper case.
        text: the statement.
        line: where it begins in its batch, from 1.
    """

    words: str
    text: str
    line: int


@dataclass(frozen=True)
class Block:
    """BEGIN ... END, or a whole batch."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Choice:
    """IF ... ELSE.

    Args:
        condition: its text.
        yes: what runs when it holds.
        no: what runs else.
        line: where it begins in its batch.
    """

    condition: str
    yes: Statement
    no: Statement | None
    line: int


@dataclass(frozen=True)
class Loop:
    """WHILE.

    Args:
        condition: its text.
        body: what runs while it holds.
        line: where it begins in its batch.
    """

    condition: str
    body: Statement
    line: int


@dataclass(frozen=True)
class Attempt:
    """BEGIN TRY ... END TRY BEGIN CATCH ... END CATCH."""

    body: Block
    handler: Block


Statement = Simple | Block | Choice | Loop | Attempt


@lru_cache(maxsize=1024)
def statements(batch: str) -> Block:
    """The statements of a batch. A new one begins at each word that can only begin a statement.

    Raises:
        ProgrammingError: a block that does not end, or the like (error 102).
    """
    return _Splitter(batch).batch()


class _Splitter:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: tuple[Token, ...] = scan(text)
        self._words = [t.text.upper() if t.token_type not in _QUOTED else "" for t in self._tokens]
        self._at = 0

    def batch(self) -> Block:
        found: list[Statement] = []
        while self._more():
            found.append(self._statement())
        return Block(tuple(found))

    def _word(self, ahead: int = 0) -> str:
        index = self._at + ahead
        return self._words[index] if 0 <= index < len(self._words) else ""

    def _more(self) -> bool:
        while self._word() == ";":
            self._at += 1
        return self._at < len(self._tokens)

    def _line(self, index: int) -> int:
        return self._text.count("\n", 0, self._tokens[index].start) + 1

    def _between(self, start: int, end: int) -> str:
        return self._text[self._tokens[start].start : self._tokens[end - 1].end + 1]

    def _statement(self) -> Statement:
        if not self._more():
            raise syntax_error(self._tokens[-1].text if self._tokens else self._text)
        word = self._word()
        if word == "IF":
            return self._choice()
        if word == "WHILE":
            line = self._line(self._at)
            return Loop(self._condition(), self._statement(), line)
        if word == "BEGIN" and self._word(1) == "TRY":
            body = self._block("TRY")
            self._more()
            if (self._word(), self._word(1)) != ("BEGIN", "CATCH"):
                raise syntax_error(self._word() or "TRY")
            return Attempt(body, self._block("CATCH"))
        if word == "BEGIN" and self._word(1) not in ("TRAN", "TRANSACTION", "DISTRIBUTED"):
            return self._block("")
        if word in ("END", "ELSE"):
            raise syntax_error(word)
        return self._simple()

    def _block(self, kind: str) -> Block:
        self._at += 2 if kind else 1
        found: list[Statement] = []
        while True:
            if not self._more():
                raise syntax_error("BEGIN")
            if self._word() == "END":
                if kind and self._word(1) != kind:
                    raise syntax_error(self._word(1) or "END")
                self._at += 2 if kind else 1
                return Block(tuple(found))
            found.append(self._statement())

    def _choice(self) -> Choice:
        line = self._line(self._at)
        condition = self._condition()
        yes = self._statement()
        mark = self._at
        if self._more() and self._word() == "ELSE":
            self._at += 1
            return Choice(condition, yes, self._statement(), line)
        self._at = mark
        return Choice(condition, yes, None, line)

    def _condition(self) -> str:
        self._at += 1
        start, depth = self._at, 0
        while self._at < len(self._tokens):
            word = self._word()
            depth += (word == "(") - (word == ")")
            if depth == 0 and self._at > start and word in _STARTS:
                return self._between(start, self._at)
            self._at += 1
        raise syntax_error(self._tokens[-1].text)

    def _simple(self) -> Simple:
        start = self._at
        words = " ".join(self._tokens[i].text.upper() for i in range(start, min(start + 4, len(self._tokens))))
        head = self._word()
        if head in ("CREATE", "ALTER"):
            skipped = self._word(1) == "OR" and self._word(2) == "ALTER"
            if self._word(3 if skipped else 1) in _MODULES:
                self._at = len(self._tokens)
                return Simple(words, self._between(start, self._at), self._line(start))
        self._skip(head)
        return Simple(words, self._between(start, self._at), self._line(start))

    def _skip(self, head: str) -> None:
        """Go to the end of a statement that begins here."""
        # A WITH and an INSERT still wait for the query that is part of them; an UPDATE for its SET.
        waits = head in ("WITH", "INSERT")
        assigns = head == "UPDATE"
        # What is granted may be called like a statement, up to the word that names who gets it.
        grants = head in ("GRANT", "DENY", "REVOKE")
        depth = cases = 0
        self._at += 1
        while self._at < len(self._tokens):
            word, before = self._word(), self._word(-1)
            depth += (word == "(") - (word == ")")
            if depth == 0:
                if word == ";":
                    return
                if grants and word in ("TO", "FROM"):
                    grants = False
                if word == "CASE":
                    cases += 1
                elif word == "END" and cases:
                    cases -= 1
                elif word in ("END", "ELSE") and not cases:
                    return
                elif head != "MERGE" and word in _STARTS and not cases and not grants:
                    if waits and word in (*_QUERIES, "EXEC", "EXECUTE"):
                        waits, assigns = word == "INSERT", word == "UPDATE"
                        head = "MERGE" if word == "MERGE" else head
                    elif assigns and word == "SET":
                        assigns = False
                    elif not self._continues(head, word, before):
                        return
                elif word in ("VALUES", "DEFAULT") and head == "INSERT":
                    waits = False
            self._at += 1

    def _continues(self, head: str, word: str, before: str) -> bool:
        if word == "SELECT":
            return before in _CHAINS
        if word in ("UPDATE", "DELETE"):
            return before == "ON"
        if word == "SET":
            return before in ("UPDATE", "DELETE") or (head == "ALTER" and "DATABASE" in self._words[: self._at])
        if word in ("DROP", "ALTER") and head == "ALTER":
            return self._word(1) in ("COLUMN", "CONSTRAINT", "MEMBER")
        if word == "IF":
            return head in ("DROP", "ALTER") and self._word(1) == "EXISTS"
        if word in ("ROLLBACK", "GRANT"):
            return before == "WITH"
        if word == "SAVE":
            return self._word(1) not in ("TRAN", "TRANSACTION")
        if word in ("ENABLE", "DISABLE"):
            return self._word(1) != "TRIGGER"
        return word == "TRUNCATE" and self._word(1) != "TABLE"
