"""The actions of an ALTER TABLE: what each declares of columns, and whether it can change rows at all.

Only what is known for certain is named here. Any clause that is not understood is an `Unproven` action.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headrace.sources.mysql.statements import Token, statement_tokens, words_of

_SHOWN = 40


@dataclass(frozen=True)
class Definition:
    """A column as a statement declares it.

    Args:
        type: as the catalog writes types: `varchar(20)`, `int unsigned`; empty where it is not understood.
        charset: the character set that it names; None for none.
        nullable: what it says of NULL; None where it says nothing.
        default: the literal of its default as SQL; None where it has none, or one that is computed.
        computed: whether its default is not a literal.
        generated: whether its values are computed of other columns.
        identity: whether the server numbers its rows.
        in_key: whether it is the primary key, or unique.
    """

    type: str
    charset: str | None = None
    nullable: bool | None = None
    default: str | None = None
    computed: bool = False
    generated: bool = False
    identity: bool = False
    in_key: bool = False


@dataclass(frozen=True)
class Add:
    """A column is added.

    Args:
        name: the column.
        definition: what it is.
        after: the column in front of it; the empty text for the first place, None for the last.
    """

    name: str
    definition: Definition
    after: str | None = None


@dataclass(frozen=True)
class Drop:
    """A column is dropped."""

    name: str


@dataclass(frozen=True)
class Rename:
    """A column gets another name, and nothing else."""

    name: str
    to: str


@dataclass(frozen=True)
class Change:
    """A column is declared again, perhaps under another name.

    Args:
        name, to: the column before and after.
        definition: what it is then.
        after: see `Add`, but None where it stays at its place.
    """

    name: str
    to: str
    definition: Definition
    after: str | None = None


@dataclass(frozen=True)
class SetDefault:
    """A column gets another default for rows that are to come."""

    name: str


@dataclass(frozen=True)
class AddPrimaryKey:
    """Columns become the primary key, and never NULL."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class DropPrimaryKey:
    """The table has another primary key, or none."""


@dataclass(frozen=True)
class Convert:
    """All texts get a character set."""


@dataclass(frozen=True)
class Engine:
    """What stores the table."""

    name: str


@dataclass(frozen=True)
class Harmless:
    """It changes no row and no column: indexes, comments, options, partitions that keep their rows."""


@dataclass(frozen=True)
class Unproven:
    """It may change rows, or is not understood.

    Args:
        words: how it begins.
    """

    words: str


Action: TypeAlias = (
    "Add | Drop | Rename | Change | SetDefault | AddPrimaryKey | DropPrimaryKey | Convert | Engine | Harmless| Unproven"
)

_CONSTRAINTS = frozenset(("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "FOREIGN", "CHECK", "PRIMARY"))
_OPTIONS = words_of(
    "AUTO_INCREMENT AUTOEXTEND_SIZE AVG_ROW_LENGTH CHARACTER CHARSET CHECKSUM COLLATE COMMENT COMPRESSION "
    "DEFAULT DELAY_KEY_WRITE ENCRYPTED ENCRYPTION ENCRYPTION_KEY_ID ENGINE_ATTRIBUTE SECONDARY_ENGINE_ATTRIBUTE "
    "KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL ROW_FORMAT "
    "STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES TABLE_CHECKSUM TABLESPACE TRANSACTIONAL ALGORITHM "
    "LOCK"
)
"""What may stand before an equals sign and changes no row."""
_PARTITIONS_KEPT = words_of("ADD REORGANIZE COALESCE REBUILD ANALYZE CHECK OPTIMIZE")
_ATTRIBUTE_VALUES = frozenset(("COLUMN_FORMAT", "STORAGE", "COLLATE", "COMMENT", "SRID", "REF_SYSTEM_ID"))
_BARE = words_of("VISIBLE INVISIBLE VIRTUAL STORED PERSISTENT COMPRESSED ENFORCED SIGNED")
_NUMBER = re.compile(r"\d[\w.]*")


def actions_of(text: str) -> tuple[Action, ...] | None:
    """The actions of an `ALTER TABLE`, or of `CREATE INDEX` and `DROP INDEX`; None for any other statement.

    Args:
        text: the statement, as it was logged.
    """
    reader = _Reader(statement_tokens(text))
    first = reader.next()
    if first in ("CREATE", "DROP"):
        while reader.word in ("OR", "REPLACE", "ONLINE", "OFFLINE", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"):
            reader.next()
        return (Harmless(),) if reader.word == "INDEX" else None
    if first != "ALTER":
        return None
    ignored = False
    while reader.word in ("ONLINE", "OFFLINE", "IGNORE"):
        ignored |= reader.next() == "IGNORE"
    if not reader.skip("TABLE"):
        return None
    reader.skip("IF", "EXISTS")
    try:
        reader.table()
    except _NotUnderstood:
        return (Unproven("ALTER TABLE"),)
    if reader.skip("WAIT"):
        reader.next()
    reader.skip("NOWAIT")
    actions: list[Action] = [Unproven("IGNORE")] if ignored else []
    for clause in split(reader.rest, ","):
        actions += _clause(clause)
    return tuple(actions)


def split(tokens: Sequence[Token], mark: str) -> Iterator[list[Token]]:
    """The tokens between marks that stand in no parentheses."""
    depth, part = 0, list[Token]()
    for token in tokens:
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
        if token.kind == "sign" and token.text == mark and not depth:
            yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def _clause(tokens: list[Token]) -> Iterator[Action]:
    words = " ".join(token.text for token in tokens[:3] if token.kind in ("word", "quoted"))[:_SHOWN]
    try:
        yield from _Reader(tokens).actions()
    except _NotUnderstood:
        yield Unproven(words)


class _NotUnderstood(Exception):
    """A clause is of a form that is not known."""


class _Reader:
    """Tokens that are read one after another.

    Args:
        tokens: of a statement, or of one of its clauses.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._position = 0

    @property
    def rest(self) -> Sequence[Token]:
        return self._tokens[self._position :]

    @property
    def word(self) -> str:
        """The next word in upper case; empty for a name in quotes, a text, and at the end."""
        return self._tokens[self._position].word if self._position < len(self._tokens) else ""

    @property
    def is_done(self) -> bool:
        return self._position >= len(self._tokens)

    def next(self) -> str:
        """The next word, which is behind then."""
        word = self.word
        self._position += 1
        return word

    def skip(self, *words: str) -> bool:
        """Whether these words come next, which are behind then."""
        if [token.word for token in self._tokens[self._position : self._position + len(words)]] != list(words):
            return False
        self._position += len(words)
        return True

    def take(self) -> Token:
        """The next token, which is behind then."""
        if self.is_done:
            raise _NotUnderstood
        self._position += 1
        return self._tokens[self._position - 1]

    def name(self) -> str:
        """The next name, which is behind then."""
        name = self.take().name
        if name is None:
            raise _NotUnderstood
        return name

    def table(self) -> str:
        """The next name of a table, with or without its database."""
        name = self.name()
        return self.name() if self.skip(".") else name

    def parentheses(self) -> list[Token]:
        """What stands in the parentheses that open here."""
        if not self.skip("("):
            raise _NotUnderstood
        depth, begin = 1, self._position
        while depth:
            token = self.take()
            if token.kind == "sign":
                depth += (token.text == "(") - (token.text == ")")
        return list(self._tokens[begin : self._position - 1])

    def finish(self) -> None:
        """See that nothing is left."""
        if not self.is_done:
            raise _NotUnderstood

    # Clauses.

    def actions(self) -> Iterator[Action]:
        first = self.word
        following = [token.word for token in self._tokens[self._position + 1 : self._position + 2]]
        if first in _PARTITIONS_KEPT and following == ["PARTITION"]:
            yield Harmless()
        elif first == "ADD":
            yield from self._add()
        elif first == "DROP":
            yield self._drop()
        elif first in ("CHANGE", "MODIFY"):
            yield self._change()
        elif first == "RENAME":
            yield self._rename()
        elif first == "ALTER":
            yield self._alter()
        elif first == "CONVERT":
            self.next()
            if not self.skip("TO"):
                raise _NotUnderstood
            yield Convert()
        elif self.skip("PARTITION", "BY") or self.skip("REMOVE", "PARTITIONING"):
            yield Harmless()
        else:
            yield from self._options()

    def _add(self) -> Iterator[Action]:
        self.next()
        if self.skip("SYSTEM") or self.skip("PERIOD"):
            raise _NotUnderstood
        if not self.skip("COLUMN") and (self.word in _CONSTRAINTS or self.word == "CONSTRAINT"):
            yield self._constraint()
            return
        self.skip("IF", "NOT", "EXISTS")
        if self.word == "(":
            inside = self.parentheses()
            self.finish()
            for part in split(inside, ","):
                reader = _Reader(part)
                is_key = reader.word in _CONSTRAINTS or reader.word == "CONSTRAINT"
                yield reader._constraint() if is_key else reader._added()
            return
        yield self._added()

    def _added(self) -> Action:
        name = self.name()
        definition, after = self._definition()
        return Add(name, definition, after)

    def _constraint(self) -> Action:
        """An index or a rule; a primary key makes its columns NOT NULL."""
        if self.skip("CONSTRAINT") and self.word not in _CONSTRAINTS:
            self.name()
        if not self.skip("PRIMARY", "KEY"):
            return Harmless()
        self.skip("IF", "NOT", "EXISTS")
        while not self.is_done and self.word != "(":
            self.next()
        parts = split(self.parentheses(), ",")
        return AddPrimaryKey(tuple(_Reader(part).name() for part in parts))

    def _drop(self) -> Action:
        self.next()
        if self.word in ("PARTITION", "SYSTEM", "PERIOD"):
            raise _NotUnderstood
        if self.skip("PRIMARY"):
            return DropPrimaryKey()
        if not self.skip("COLUMN") and (self.word in _CONSTRAINTS or self.word == "CONSTRAINT"):
            return Harmless()
        self.skip("IF", "EXISTS")
        name = self.name()
        self.skip("RESTRICT") or self.skip("CASCADE")
        self.finish()
        return Drop(name)

    def _change(self) -> Action:
        first = self.next()
        self.skip("COLUMN")
        self.skip("IF", "EXISTS")
        name = self.name()
        to = self.name() if first == "CHANGE" else name
        definition, after = self._definition()
        return Change(name, to, definition, after)

    def _rename(self) -> Action:
        self.next()
        if self.word in ("INDEX", "KEY", "CONSTRAINT"):
            return Harmless()
        if not self.skip("COLUMN"):
            # The table's own name, which is the statement's matter.
            return Harmless()
        self.skip("IF", "EXISTS")
        name = self.name()
        if not self.skip("TO"):
            raise _NotUnderstood
        to = self.name()
        self.finish()
        return Rename(name, to)

    def _alter(self) -> Action:
        self.next()
        if self.word in ("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            return Harmless()
        self.skip("COLUMN")
        self.skip("IF", "EXISTS")
        name = self.name()
        if self.skip("SET", "DEFAULT") or self.skip("DROP", "DEFAULT"):
            return SetDefault(name)
        if self.skip("SET", "VISIBLE") or self.skip("SET", "INVISIBLE"):
            return Harmless()
        raise _NotUnderstood

    def _options(self) -> Iterator[Action]:
        """Options of the table, which may stand side by side."""
        while not self.is_done:
            word = self.next()
            if word in ("ENGINE", "TYPE"):
                self.skip("=")
                yield Engine(self.name().lower())
            elif word in ("WITH", "WITHOUT"):
                if not self.skip("VALIDATION"):
                    raise _NotUnderstood
                yield Harmless()
            elif word in ("DISABLE", "ENABLE"):
                if not self.skip("KEYS"):
                    raise _NotUnderstood
                yield Harmless()
            elif word == "ORDER" and self.skip("BY"):
                self._position = len(self._tokens)
                yield Harmless()
            elif word == "FORCE":
                yield Harmless()
            elif word in ("PARTITION", "REMOVE"):
                if not (self.skip("BY") or self.skip("PARTITIONING")):
                    raise _NotUnderstood
                yield Harmless()
                return
            elif word in _OPTIONS:
                if word == "DEFAULT":
                    word = self.next()
                if word == "CHARACTER" and not self.skip("SET"):
                    raise _NotUnderstood
                if word not in _OPTIONS:
                    raise _NotUnderstood
                self.skip("=")
                self.take()
                yield Harmless()
            else:
                raise _NotUnderstood

    # Columns.

    def _definition(self) -> tuple[Definition, str | None]:
        type = self._type()
        charset: str | None = None
        computed = generated = identity = in_key = False
        after: str | None = None
        nullable: bool | None = None
        default: str | None = None
        while not self.is_done:
            word = self.next()
            if word == "NOT":
                if not self.skip("NULL"):
                    raise _NotUnderstood
                nullable = False
            elif word == "NULL":
                nullable = True
            elif word == "DEFAULT":
                default = self._literal()
                computed = default is None
            elif word == "ON" and self.skip("UPDATE"):
                self._literal()
            elif word == "AUTO_INCREMENT":
                identity = True
            elif word == "UNIQUE":
                self.skip("KEY")
                in_key = True
            elif word == "PRIMARY" or word == "KEY":
                if word == "PRIMARY":
                    self.skip("KEY")
                in_key, nullable = True, False
            elif word in ("CHARACTER", "CHARSET"):
                if word == "CHARACTER" and not self.skip("SET"):
                    raise _NotUnderstood
                charset = self.name().lower()
            elif word in _ATTRIBUTE_VALUES:
                self.skip("=")
                self.take()
            elif word == "GENERATED":
                if not self.skip("ALWAYS"):
                    raise _NotUnderstood
                generated = True
            elif word == "AS":
                generated = True
                if self.word == "(":
                    self.parentheses()
            elif word in _BARE:
                pass
            elif word == "CHECK":
                self.parentheses()
                self.skip("NOT", "ENFORCED")
            elif word == "CONSTRAINT":
                if self.word != "CHECK":
                    self.name()
            elif word == "REFERENCES":
                self._references()
            elif word == "FIRST":
                after = ""
            elif word == "AFTER":
                after = self.name()
            else:
                raise _NotUnderstood
        definition = Definition(type, charset, nullable, default, computed, generated, identity, in_key)
        return definition, after

    def _references(self) -> None:
        self.table()
        if self.word == "(":
            self.parentheses()
        while self.word in ("ON", "MATCH", "DELETE", "UPDATE", "CASCADE", "RESTRICT", "SET", "NO", "ACTION", "FULL"):
            word = self.next()
            if word == "SET":
                self.next()

    def _type(self) -> str:
        """A type as the catalog writes it; empty where it is not understood."""
        kind = self.take()
        if kind.kind != "word":
            raise _NotUnderstood
        text = kind.text.lower()
        if text == "serial":
            raise _NotUnderstood
        if text == "double":
            self.skip("PRECISION")
        if text in ("national", "nchar", "nvarchar", "long") or self.word == "VARYING":
            text = ""
            while any(self.skip(word) for word in ("CHAR", "CHARACTER", "VARCHAR", "VARYING", "VARBINARY")):
                pass
        if self.word == "(":
            inside = self.parentheses()
            text = text and f"{text}({''.join(token.text for token in inside)})"
        while self.word in ("UNSIGNED", "SIGNED", "ZEROFILL"):
            word = self.next().lower()
            text = text and (text if word == "signed" else f"{text} {word}")
        if self.word in ("ASCII", "UNICODE", "BYTE"):
            self.next()
            text = ""
        elif self.skip("BINARY"):
            pass
        return text

    def _literal(self) -> str | None:
        """A literal as SQL; None for what is computed."""
        token = self.take()
        if token.kind == "text":
            return token.text
        word = token.word
        if word in ("NULL", "TRUE", "FALSE"):
            return word
        if word in ("+", "-"):
            following = self.take()
            return (word if word == "-" else "") + self._number(following)
        if _NUMBER.fullmatch(token.text):
            return self._number(token)
        if word == "(":
            self._position -= 1
            self.parentheses()
            return None
        if word in ("B", "X", "N", "DATE", "TIME", "TIMESTAMP") or word.startswith("_"):
            if not self.is_done and self._tokens[self._position].kind == "text":
                self.take()
            return None
        if token.kind != "word":
            raise _NotUnderstood
        if self.word == "(":
            self.parentheses()
        return None

    def _number(self, token: Token) -> str:
        """A number, whose point and exponent are tokens of their own."""
        text = token.text
        if self.word == ".":
            self.next()
            text += "." + (self.take().text if not self.is_done else "")
        return text
