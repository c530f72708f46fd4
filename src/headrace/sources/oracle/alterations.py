"""What an ALTER TABLE does to rows that were there before, by its text. Pure; no database.

Oracle's catalog has no number by which a column is known from a later one of its name, and the log has the statement of
every definition: so each statement is proven by itself, and what it did not say by both structures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise

from headrace.changes import Column
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.types import NativeType, Unreadable
from headrace.sources.tables.rewrites import Rewrite

_TOKEN = re.compile(
    r"""(?P<skipped>\s+|--[^\n]*|/\*.*?\*/)|(?P<name>"[^"]*")|(?P<text>[nN]?'(?:[^']|'')*')|(?P<number>\d+(?:\.\d*)?|\.\d+)"""
    r"""|(?P<word>[A-Za-z_][\w$\#]*)|(?P<sign>.)""",
    re.DOTALL,
)
_VERBS = frozenset(("ADD", "MODIFY", "DROP", "RENAME", "SET", "TRUNCATE", "EXCHANGE"))
_KEEPING = frozenset(
    ("ALLOCATE", "CACHE", "COALESCE", "COMPRESS", "DEALLOCATE", "DISABLE", "ENABLE", "FLASHBACK", "ILM", "INDEXING",
     "INITRANS", "INMEMORY", "LOGGING", "MERGE", "MINIMIZE", "MONITORING", "MOVE", "NO", "NOCACHE", "NOCOMPRESS",
     "NOLOGGING", "NOMONITORING", "NOMINIMIZE", "NOPARALLEL", "OVERFLOW", "PARALLEL", "PCTFREE", "PCTUSED", "READ",
     "RECORDS_PER_BLOCK", "RESULT_CACHE", "ROW", "SHRINK", "SPLIT", "STORAGE", "UPGRADE")
)  # fmt: skip
"""First words of clauses that move or mark rows, and change no value of them."""
_NO_COLUMN = {
    "ADD": ("CHECK", "CONSTRAINT", "FOREIGN", "PARTITION", "PERIOD", "PRIMARY", "REF", "SCOPE", "SUBPARTITION",
            "SUPPLEMENTAL", "UNIQUE"),
    "MODIFY": ("CONSTRAINT", "DEFAULT", "LOB", "NESTED", "OPAQUE", "PARTITION", "PRIMARY", "SUBPARTITION", "TABLE",
               "UNIQUE", "VARRAY"),
}  # fmt: skip
"""What these verbs may name that is not a column."""
_OPTIONS = frozenset(
    ("ANNOTATIONS", "AS", "CHECK", "COLLATE", "CONSTRAINT", "DECRYPT", "DEFAULT", "DROP", "ENCRYPT", "GENERATED",
     "INVISIBLE", "NOT", "NULL", "PRIMARY", "REFERENCES", "SORT", "UNIQUE", "VISIBLE")
)  # fmt: skip
"""Words of a column that its type stands before."""
_SYNONYMS = {
    "CHARACTER": "CHAR", "DEC": "NUMBER", "DECIMAL": "NUMBER", "INT": "NUMBER", "INTEGER": "NUMBER",
    "NUMERIC": "NUMBER", "REAL": "FLOAT", "SMALLINT": "NUMBER", "VARCHAR": "VARCHAR2",
}  # fmt: skip
_PADDED = frozenset(("CHAR", "NCHAR"))
_SAME_VALUES = frozenset((("CHAR", "VARCHAR2"), ("NCHAR", "NVARCHAR2"), ("DATE", "TIMESTAMP")))
"""Types that values go over to as they are."""
_TEXTS = frozenset(("VARCHAR2", "NVARCHAR2"))


@dataclass(frozen=True)
class Token:
    """A piece of a statement: a word, a name in quotes, a constant, a sign, or what stands in parentheses.

    Args:
        text: as it stands there; of a name in quotes without them.
        kind: `word`, `name`, `text`, `number`, `sign` or `group`.
        inner: the pieces of a group.
    """

    text: str
    kind: str
    inner: tuple[Token, ...] = ()

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words, which are in capitals."""
        return self.kind == "word" and self.text.upper() in words

    @property
    def column(self) -> str:
        return self.text if self.kind == "name" else self.text.upper()


@dataclass
class Effects:
    """What one statement does to rows that were there.

    Args:
        reasons: what is not proven harmless, as clauses.
        added: the columns that have one constant in all rows, as SQL has it; None for NULL.
        renamed: the names that columns got.
        left: the names that columns had which were dropped or renamed.
        retyped: the columns that were given a type.
    """

    reasons: list[str] = field(default_factory=list)
    added: dict[str, str | None] = field(default_factory=dict)
    renamed: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    retyped: set[str] = field(default_factory=set)


def altered(sql: str, before: OracleTable, after: OracleTable) -> tuple[OracleTable, Rewrite | None]:
    """A table after a statement, and what that did to rows that were there, as far as it is not proven harmless.

    Args:
        sql: an ALTER TABLE of the table.
        before: the table as it was captured.
        after: as the catalog shows it now, which may be after later statements.
    """
    effects = _effects(sql, dict(_natives(before)))
    now = {column.name: column for column in after.schema.columns}
    known = {column.name for column in before.schema.columns}
    # Targets keep a column that is dropped, so its name stands for another one when it comes again.
    gone = {*before.dropped, *(effects.left & known)}
    reasons = list(effects.reasons)
    constants: dict[str, str | None] = {}
    for name, literal in effects.added.items():
        if (name in after.columns and name not in now) or (literal is None and name not in gone):
            continue
        value = _kept(literal, after.native(name), now[name]) if literal is not None and name in now else None
        if value is None and literal is not None:
            reasons.append(f"column '{name}' was added with the default {literal}")
        else:
            constants[name] = value
    reasons += [f"column '{name}' is another one than before" for name in sorted(effects.renamed & gone)]
    reasons += _unsaid(effects, before, after)
    dropped = (gone - ({*effects.added, *effects.renamed} & set(now))) | (known - set(now))
    table = replace(after, dropped=tuple(sorted(dropped)))
    if not reasons and not constants:
        return table, None
    changed = [f"column '{name}' was added with a constant in all rows" for name in constants]
    return table, Rewrite(after.id.path, " and ".join(reasons or changed), {} if reasons else constants)


def _natives(table: OracleTable) -> Iterator[tuple[str, NativeType]]:
    return zip((column.name for column in table.schema.columns), table.natives, strict=True)


def _unsaid(effects: Effects, before: OracleTable, after: OracleTable) -> Iterator[str]:
    """What both structures show and the statement does not say: a later one did it, or none that is in the log."""
    old = dict(_natives(before))
    explained = {*effects.added, *effects.renamed, *effects.left, *effects.retyped}
    for name, native in _natives(after):
        was = old.get(name)
        if name in explained:
            continue
        if was is None:
            yield f"column '{name}' is captured from now on"
        elif was != native and _converts(was.family, native.family):
            yield f"column '{name}' was {was.name} and is {native.name}"


def _effects(sql: str, known: dict[str, NativeType]) -> Effects:
    tokens = list(_tokens(sql))
    effects = Effects()
    # ALTER TABLE, and the name with or without its schema.
    verb = 5 if len(tokens) > 4 and tokens[3].text == "." else 3
    if len(tokens) <= verb or not (tokens[0].is_word("ALTER") and tokens[1].is_word("TABLE")):
        effects.reasons.append("a statement that can't be read altered it")
        return effects
    if any(a.is_word("INCLUDING") and b.is_word("ROWS") for a, b in pairwise(tokens)):
        effects.reasons.append("rows were left out while it was moved (INCLUDING ROWS)")
    if not tokens[verb].is_word(*_VERBS, *_KEEPING):
        effects.reasons.append(f"it was altered by {tokens[verb].text.upper()}")
    clauses: list[list[Token]] = []
    for token in tokens[verb:]:
        if token.is_word(*_VERBS) or not clauses:
            clauses.append([])
        clauses[-1].append(token)
    for clause in clauses:
        _follow(clause, known, effects)
    return effects


def _follow(clause: list[Token], known: dict[str, NativeType], effects: Effects) -> None:
    verb, rest = clause[0].text.upper(), clause[1:]
    target = rest[0].text.upper() if rest and rest[0].kind == "word" else ""
    if verb in ("TRUNCATE", "EXCHANGE") or (verb == "DROP" and target.startswith(("PARTITION", "SUBPARTITION"))):
        effects.reasons.append(f"a partition was changed as a whole ({verb} PARTITION)")
    elif verb == "RENAME" and target == "COLUMN" and len(rest) == 4:
        effects.left.add(rest[1].column)
        effects.renamed.add(rest[3].column)
    elif verb == "DROP" or (verb == "SET" and target == "UNUSED"):
        effects.left |= {token.column for token in _flat(rest) if token.kind in ("word", "name")}
    elif verb in ("ADD", "MODIFY") and target not in _NO_COLUMN[verb]:
        follow = _add if verb == "ADD" else _modify
        for item in _items(rest):
            if item and not item[0].is_word(*_NO_COLUMN[verb]):
                follow(item[0].column, item[1:], known, effects)


def _add(name: str, rest: Sequence[Token], known: dict[str, NativeType], effects: Effects) -> None:
    del known
    words = [token.text.upper() if token.kind == "word" else "" for token in rest]
    if "IDENTITY" in words:
        effects.reasons.append(f"column '{name}' was added as an identity")
        effects.added[name] = None
    elif "DEFAULT" in words:
        literal = _literal(rest[words.index("DEFAULT") + 1 :])
        if literal is None:
            effects.reasons.append(f"column '{name}' was added with a default that is no constant")
        effects.added[name] = None if literal is None or literal.upper() == "NULL" else literal
    else:
        effects.added[name] = None


def _literal(tokens: Sequence[Token]) -> str | None:
    """The constant that follows DEFAULT; None where there is an expression."""
    tokens = list(tokens)
    if len(tokens) > 1 and tokens[0].is_word("ON") and tokens[1].is_word("NULL"):
        tokens = tokens[2:]
        if len(tokens) > 1 and tokens[0].is_word("FOR") and tokens[1].is_word("INSERT"):
            while tokens and not tokens[0].is_word("ONLY", "UPDATE"):
                tokens = tokens[1:]
            tokens = tokens[1:]
    sign = tokens.pop(0).text if tokens and tokens[0].kind == "sign" and tokens[0].text in "+-" else ""
    if not tokens or (len(tokens) > 1 and not tokens[1].is_word(*_OPTIONS)):
        return None
    if tokens[0].kind == "number" or (tokens[0].kind == "text" and not sign) or tokens[0].is_word("NULL"):
        return sign + tokens[0].text
    return None


def _kept(literal: str, native: NativeType, column: Column) -> str | None:
    """A literal as canonical text of a column that holds it as it is; None where the server changes it on the way."""
    if literal.endswith("'"):
        if native.family not in _TEXTS:
            return None
        return literal[literal.index("'") + 1 : -1].replace("''", "'") or None
    if native.family != "NUMBER" or column.logical.kind not in ("int8", "int16", "int32", "int64", "decimal"):
        return None
    number = Decimal(literal)
    scale = native.scale
    if scale is not None and number != round(number, scale):
        return None
    try:
        return native.decoded([str(number)])[0]
    except Unreadable:
        return None


def _modify(name: str, rest: Sequence[Token], known: dict[str, NativeType], effects: Effects) -> None:
    if not rest or rest[0].is_word(*_OPTIONS) or name not in known:
        return
    effects.retyped.add(name)
    family, was = _family(rest), known[name].family
    if _converts(was, family):
        effects.reasons.append(f"column '{name}' was {was} and was made {family}")


def _converts(was: str, now: str) -> bool:
    """Whether values may be others afterwards. The server refuses to cut values, and pads those of fixed length."""
    return now in _PADDED or (was != now and (was, now) not in _SAME_VALUES)


def _family(tokens: Sequence[Token]) -> str:
    """The type that a column is declared as, as `NativeType.family` has it."""
    words = []
    for token in tokens:
        if token.is_word(*_OPTIONS):
            break
        if token.kind == "word":
            words.append(token.text.upper())
    if words[:2] in (["CHARACTER", "VARYING"], ["CHAR", "VARYING"]):
        return "VARCHAR2"
    if words[:1] == ["NATIONAL"]:
        return "NVARCHAR2" if "VARYING" in words else "NCHAR"
    if words[:1] == ["NCHAR"] and "VARYING" in words:
        return "NVARCHAR2"
    if words[:1] == ["DOUBLE"]:
        return "FLOAT"
    return _SYNONYMS.get(" ".join(words), " ".join(words))


def _items(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """The columns and constraints of a clause, which may stand in parentheses with commas between."""
    inner = tokens[0].inner if tokens and tokens[0].kind == "group" else tokens
    item: list[Token] = []
    for token in inner:
        if token.text == "," and token.kind == "sign":
            yield item
            item = []
        else:
            item.append(token)
    yield item


def _flat(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.inner)


@lru_cache(maxsize=256)
def _tokens(sql: str) -> tuple[Token, ...]:
    """The pieces of a statement; what stands in parentheses is one."""
    levels: list[list[Token]] = [[]]
    for match in _TOKEN.finditer(sql):
        kind, text = str(match.lastgroup), match[0]
        if kind == "skipped":
            continue
        if text == "(":
            levels.append([])
        elif text == ")" and kind == "sign":
            inner = levels.pop() if len(levels) > 1 else []
            levels[-1].append(Token("()", "group", tuple(inner)))
        else:
            levels[-1].append(Token(text[1:-1] if kind == "name" else text, kind))
    while len(levels) > 1:
        inner = levels.pop()
        levels[-1].append(Token("()", "group", tuple(inner)))
    return tuple(levels[0])
