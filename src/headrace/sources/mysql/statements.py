"""What a logged statement means for captured tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from headrace.errors import SchemaError
from headrace.sources.mysql.charsets import charset_of, text_of
from headrace.sources.mysql.events import EventBytes

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<open>/\*M?!\d*)
    | (?P<comment>/\*.*?(?:\*/|\Z) | \#[^\n]* | --(?=\s|\Z)[^\n]*)
    | (?P<close>\*/)
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
    | (?P<word>[\w$@\x80-\U0010ffff]+)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_FIRST_CHARACTERS = 60

_DATABASE = frozenset(("DATABASE", "SCHEMA"))
_LOSING_PARTITIONS = frozenset(("TRUNCATE", "DROP", "EXCHANGE", "CONVERT"))
_FIXED = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8}
"""How many bytes the status variables of one length have."""
_CHARSETS, _OLD_CATALOG, _TIME_ZONE, _CATALOG, _INVOKER, _DATABASES = 4, 2, 5, 6, 11, 12
_MICROSECONDS = (13, 128)
_TOO_MANY = 254


class Meaning(Enum):
    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    """The work of the transaction is undone, but for rows of tables that know no transactions."""
    ROLLBACK_TO = auto()
    """What came after a savepoint is undone."""
    XA_START = auto()
    XA_COMMIT = auto()
    XA_ROLLBACK = auto()
    TRUNCATE = auto()
    DEFINITION = auto()
    """A table's structure is changed."""
    UNLOGGED_ROWS = auto()
    """A table loses or gets rows that are not in the log, beside a change of its structure; so does one that comes in
    the place of another, unless a tool for schema changes made it, which copied the rows."""
    NOTHING = auto()
    """It changes no table: savepoints, users, views, procedures."""
    ROWS = auto()
    """Rows are changed by a statement that is logged as text."""
    UNKNOWN = auto()


@dataclass(frozen=True)
class Named:
    """A table that a statement names.

    Args:
        database: None for the one that the session used.
        name: the table's name; empty for all tables of the database.
    """

    database: str | None
    name: str


@dataclass(frozen=True)
class Statement:
    """A statement as far as it was read.

    Args:
        meaning: what it is.
        tables: those whose structure or rows it changes, but of `ROWS` none.
        renamed: old and new name of each table that it renames.
        xid: of XA COMMIT and XA ROLLBACK the transaction, as in `Xid.text`.
        words: how it begins; no value of a cell is in it.
    """

    meaning: Meaning
    tables: tuple[Named, ...] = ()
    renamed: tuple[tuple[Named, Named], ...] = ()
    xid: str | None = None
    words: str = ""


@dataclass(frozen=True)
class Token:
    """What a statement is made of.

    Args:
        kind: `word`, `quoted`, `text` or `sign`.
        text: as it stands in the statement.
    """

    kind: str
    text: str

    @property
    def word(self) -> str:
        """In upper case, where it may be one of SQL; else the empty text."""
        return self.text.upper() if self.kind in ("word", "sign") else ""

    @property
    def name(self) -> str | None:
        """What it names; None where it is not a name."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        if self.kind == "text" and self.text[0] == '"':
            return self.text[1:-1].replace('""', '"')
        return self.text if self.kind == "word" else None


def words_of(text: str) -> frozenset[str]:
    """The words of a list with spaces between."""
    return frozenset(text.split())


_ROWS = words_of("INSERT UPDATE DELETE REPLACE LOAD CALL WITH SELECT DO TABLE VALUES HANDLER EXECUTE IMPORT BINLOG (")
_NOTHING = words_of(
    "SAVEPOINT RELEASE GRANT REVOKE SET FLUSH ANALYZE OPTIMIZE REPAIR CHECK CHECKSUM INSTALL UNINSTALL USE "
    "KILL RESET CHANGE LOCK UNLOCK SHUTDOWN PURGE CLONE SIGNAL"
)
_MODIFIERS = words_of(
    "OR REPLACE TEMPORARY UNIQUE FULLTEXT SPATIAL VECTOR ONLINE OFFLINE IGNORE AGGREGATE SQL SECURITY DEFINER "
    "INVOKER ALGORITHM = UNDEFINED MERGE TEMPTABLE"
)
_OBJECTS = words_of(
    "USER ROLE VIEW TRIGGER PROCEDURE FUNCTION EVENT SERVER SEQUENCE TABLESPACE LOGFILE UNDO PACKAGE RESOURCE "
    "INSTANCE LIBRARY MASKING_POLICY JSON"
)


def _renaming(renamed: Sequence[tuple[Named, Named]], otherwise: Meaning = Meaning.DEFINITION) -> Meaning:
    """What it means that tables get other names."""
    return otherwise if not renamed or is_tools_swap(renamed) else Meaning.UNLOGGED_ROWS


def is_tools_swap(renamed: Sequence[tuple[Named, Named]]) -> bool:
    """Whether tables are renamed as tools for schema changes do it, which have copied the rows."""
    return bool(renamed) and all(_is_copy(old.name, new.name) or _is_copy(new.name, old.name) for old, new in renamed)


def _is_copy(name: str, table: str) -> bool:
    """Whether gh-ost, pt-online-schema-change or a tool like them calls a table so that replaces or was another."""
    return re.fullmatch(rf"_+{re.escape(table)}_(gho|new|old|(\d+_)?del)", name, re.ASCII) is not None


def read_statement(text: str, *, by_server: bool = False) -> Statement:
    """What a statement means.

    Args:
        text: all of it, as it was logged.
        by_server: whether the server made it, and not a session.
    """
    tokens = statement_tokens(text)
    if not tokens:
        return Statement(Meaning.NOTHING)
    reader = _Reader(tokens)
    statement = (reader.emptied() if by_server else None) or _Reader(tokens).statement()
    words = " ".join(token.text for token in tokens[:3] if token.kind in ("word", "quoted"))[:_FIRST_CHARACTERS]
    return Statement(statement.meaning, statement.tables, statement.renamed, statement.xid, words)


def names_in(text: str) -> frozenset[str]:
    """All words of a statement that may be names, in lower case."""
    return frozenset(name.casefold() for token in tokens_of(text) if (name := token.name) is not None)


def statement_tokens(text: str) -> list[Token]:
    """The tokens of the statement proper, without variables that are set for it alone (SET STATEMENT ... FOR)."""
    tokens = list(tokens_of(text))
    is_prefixed = [token.word for token in tokens[:2]] == ["SET", "STATEMENT"]
    return _after_for(tokens) if is_prefixed else tokens


def tokens_of(text: str) -> Iterator[Token]:
    """The tokens of a statement, without comments; what stands in executable comments is of it."""
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind in ("word", "quoted", "text", "sign"):
            yield Token(kind, match.group())


def _after_for(tokens: Sequence[Token]) -> list[Token]:
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if not depth and token.word == "FOR":
            return list(tokens[index + 1 :])
    return list(tokens)


class _Reader:
    """The tokens that are left of a statement."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._index = 0

    def statement(self) -> Statement:
        first = self._next()
        match first:
            case "BEGIN":
                return Statement(Meaning.BEGIN)
            case "START":
                return Statement(Meaning.BEGIN if self._word == "TRANSACTION" else Meaning.NOTHING)
            case "COMMIT":
                return Statement(Meaning.COMMIT)
            case "ROLLBACK":
                rest = [token.word for token in self._tokens[self._index :]]
                return Statement(Meaning.ROLLBACK_TO if "TO" in rest else Meaning.ROLLBACK)
            case "XA":
                return self._xa()
            case "TRUNCATE":
                self._skip("TABLE")
                return Statement(Meaning.TRUNCATE, self._tables(1))
            case "RENAME":
                return self._rename()
            case "CREATE" | "ALTER" | "DROP":
                return self._definition(first)
        if first in _ROWS:
            return Statement(Meaning.ROWS)
        return Statement(Meaning.NOTHING if first in _NOTHING else Meaning.UNKNOWN)

    def emptied(self) -> Statement | None:
        """The statement by which a server says that it lost the rows of a table in memory; None for any other."""
        if not self._skip("DELETE", "FROM"):
            return None
        tables = self._tables(1)
        is_whole = bool(tables) and tables[0].database is not None and self._index == len(self._tokens)
        return Statement(Meaning.TRUNCATE, tables) if is_whole else None

    @property
    def _word(self) -> str:
        return self._tokens[self._index].word if self._index < len(self._tokens) else ""

    def _next(self) -> str:
        word = self._word
        self._index += 1
        return word

    def _skip(self, *words: str) -> bool:
        """Go over a word, or over several that stand together."""
        words_there = [token.word for token in self._tokens[self._index : self._index + len(words)]]
        if words_there != list(words):
            return False
        self._index += len(words)
        return True

    def _name(self) -> str | None:
        name = self._tokens[self._index].name if self._index < len(self._tokens) else None
        self._index += name is not None
        return name

    def _table(self) -> Named | None:
        first = self._name()
        if first is None:
            return None
        if self._skip("."):
            second = self._name()
            return None if second is None else Named(first, second)
        return Named(None, first)

    def _tables(self, most: int) -> tuple[Named, ...]:
        tables: list[Named] = []
        while len(tables) < most:
            table = self._table()
            if table is None:
                break
            tables.append(table)
            if not self._skip(","):
                break
        return tuple(tables)

    def _xa(self) -> Statement:
        word = self._next()
        meaning = {"COMMIT": Meaning.XA_COMMIT, "ROLLBACK": Meaning.XA_ROLLBACK}.get(word)
        if meaning is None:
            if word in ("START", "BEGIN"):
                return Statement(Meaning.XA_START)
            known = word in ("END", "PREPARE", "RECOVER")
            return Statement(Meaning.NOTHING if known else Meaning.UNKNOWN)
        text = "".join(token.text for token in self._tokens[self._index :])
        match = re.match(r"X'([0-9a-f]*)',X'([0-9a-f]*)',(\d+)", text, re.IGNORECASE)
        xid = f"X'{match[1].lower()}',X'{match[2].lower()}',{match[3]}" if match else None
        return Statement(meaning if xid else Meaning.UNKNOWN, xid=xid)

    def _rename(self) -> Statement:
        if self._next() not in ("TABLE", "TABLES"):
            return Statement(Meaning.NOTHING)
        self._skip("IF", "EXISTS")
        renamed = []
        while (old := self._table()) is not None:
            self._wait()
            new = self._table() if self._skip("TO") else None
            if new is None:
                return Statement(Meaning.UNKNOWN)
            renamed.append((old, new))
            if not self._skip(","):
                break
        tables = tuple(dict.fromkeys(name for pair in renamed for name in pair))
        return Statement(_renaming(renamed) if renamed else Meaning.UNKNOWN, tables, tuple(renamed))

    def _wait(self) -> None:
        """Go over how long MariaDB waits for a lock."""
        if self._skip("WAIT"):
            self._index += 1
        else:
            self._skip("NOWAIT")

    def _definition(self, first: str) -> Statement:
        temporary = replaces = False
        while self._word in _MODIFIERS or self._word == "DEFINER":
            word = self._next()
            temporary |= word == "TEMPORARY"
            replaces |= word == "REPLACE"
            if word == "DEFINER" and self._skip("="):
                self._account()
        kind = self._next()
        self._skip("IF", "NOT", "EXISTS") or self._skip("IF", "EXISTS")
        if kind in _OBJECTS:
            return Statement(Meaning.NOTHING)
        if kind in _DATABASE:
            return self._database(first)
        if kind == "INDEX":
            while self._index < len(self._tokens) and self._next() != "ON":
                pass
            return self._of_table(Meaning.DEFINITION)
        if kind not in ("TABLE", "TABLES"):
            return Statement(Meaning.UNKNOWN)
        if temporary:
            return Statement(Meaning.NOTHING)
        if first == "CREATE":
            return self._of_table(Meaning.UNLOGGED_ROWS if replaces else Meaning.DEFINITION)
        if first == "DROP":
            tables = self._tables(len(self._tokens))
            return Statement(Meaning.UNLOGGED_ROWS if tables else Meaning.UNKNOWN, tables)
        return self._alter()

    def _of_table(self, meaning: Meaning) -> Statement:
        tables = self._tables(1)
        return Statement(meaning if tables else Meaning.UNKNOWN, tables)

    def _account(self) -> None:
        """Go over a user's name: `root`@`localhost`, or CURRENT_USER with or without parentheses."""
        self._index += 1
        while self._index < len(self._tokens) and self._tokens[self._index].text[0] in "@()":
            whole = self._tokens[self._index].text == "@"
            self._index += 1 + whole

    def _database(self, first: str) -> Statement:
        name = self._name()
        if first != "DROP":
            return Statement(Meaning.NOTHING)
        return Statement(Meaning.UNLOGGED_ROWS, (Named(name, ""),)) if name else Statement(Meaning.UNKNOWN)

    def _alter(self) -> Statement:
        table = self._table()
        if table is None:
            return Statement(Meaning.UNKNOWN)
        self._wait()
        meaning, tables = Meaning.DEFINITION, [table]
        renamed: list[tuple[Named, Named]] = []
        depth, begins = 0, True
        while self._index < len(self._tokens):
            if depth or not begins:
                text = self._tokens[self._index].text
                depth += (text == "(") - (text == ")")
                self._index += 1
                begins = not depth and text == ","
                continue
            begins = False
            word = self._next()
            if word in _LOSING_PARTITIONS and self._word == "PARTITION":
                meaning = Meaning.UNLOGGED_ROWS
                tables += self._exchanged()
            elif word == "CONVERT" and self._skip("TABLE"):
                meaning = Meaning.UNLOGGED_ROWS
                tables += self._tables(1)
            elif word in ("DISCARD", "IMPORT"):
                meaning = Meaning.UNLOGGED_ROWS
            elif word == "RENAME" and self._word not in ("COLUMN", "INDEX", "KEY", "CONSTRAINT"):
                self._skip("TO") or self._skip("AS") or self._skip("=")
                new = self._table()
                if new is None:
                    return Statement(Meaning.UNKNOWN, (table,))
                renamed.append((table, new))
                tables.append(new)
                begins = self._skip(",")
            else:
                # Its first word may be all there is of it, as of FORCE, or open parentheses.
                self._index -= 1
                text = self._tokens[self._index].text
                depth += text == "("
                self._index += 1
                begins = text == ","
        return Statement(_renaming(renamed, meaning), tuple(dict.fromkeys(tables)), tuple(renamed))

    def _exchanged(self) -> list[Named]:
        """The other table that a partition is exchanged with or becomes."""
        for index in range(self._index, len(self._tokens) - 1):
            if self._tokens[index].word in ("WITH", "TO") and self._tokens[index + 1].word == "TABLE":
                self._index = index + 2
                table = self._table()
                return [] if table is None else [table]
        return []


@dataclass(frozen=True)
class Query:
    """A QUERY event.

    Args:
        thread: the session's number.
        database: the one that it used.
        statement: in the character set of the client.
        collation: the number of the client's collation; None where the event does not say it.
        microseconds: those beside the second in the event's header; None where the event does not say them.
        databases: those that the statement changes besides, as far as the event says it.
    """

    thread: int
    database: str
    statement: bytes
    collation: int | None = None
    microseconds: int | None = None
    databases: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The statement; escapes stand where it has bytes that are no text in the character set of the client."""
        if self.collation is not None and not self.statement.isascii():
            try:
                return text_of(self.statement, charset_of(self.collation))
            except (SchemaError, ValueError):
                pass
        return self.statement.decode("utf-8", "backslashreplace")


def read_query(body: bytes) -> Query:
    """A QUERY event, or one that MariaDB compressed and that is plain now.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(body, "QUERY")
    thread = data.number(4)
    data.number(4)
    size = data.number(1)
    data.number(2)
    status = data.part(data.number(2))
    database = data.utf8(data.take(size))
    if data.number(1):
        raise data.wrong("has a database without an end")
    statement = data.rest()
    collation = microseconds = None
    databases: tuple[str, ...] = ()
    while status.left:
        code = status.number(1)
        if code == _CHARSETS:
            collation = status.number(2)
            status.take(4)
        elif code in _MICROSECONDS:
            microseconds = status.number(3)
        elif code in _FIXED:
            status.take(_FIXED[code])
        elif code in (_TIME_ZONE, _CATALOG):
            status.short_text()
        elif code == _OLD_CATALOG:
            status.short_text()
            status.number(1)
        elif code == _INVOKER:
            status.short_text()
            status.short_text()
        elif code == _DATABASES:
            databases = _databases(status)
        else:
            # Nothing says how long an unknown one is, and all that are needed come before those that are new.
            break
    return Query(thread, database, statement, collation, microseconds, databases)


def _databases(status: EventBytes) -> tuple[str, ...]:
    count = status.number(1)
    databases = []
    for _ in range(0 if count == _TOO_MANY else count):
        name = bytearray()
        while letter := status.number(1):
            name.append(letter)
        databases.append(status.utf8(bytes(name)))
    return tuple(databases)
