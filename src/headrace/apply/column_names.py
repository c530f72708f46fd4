"""What DDL statements do to the names of a table's columns, and what a column of an older schema is called now.

A schema does not say that a column was renamed: one name is gone and another is there. The statement that came with
it does. Nothing is taken from the place or the type of a column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from headrace.changes.table import TableSchema
from headrace.errors import SchemaError

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

_DIALECTS = {"mysql": "mysql", "mariadb": "mysql", "oracle": "oracle", "postgresql": "postgres", "sqlserver": "tsql"}
_CASES: Mapping[str, Callable[[str], str]] = {"oracle": str.upper, "db2": str.upper, "postgresql": str.lower}
"""How the database stores a name without quotes."""
_BEFORE_TABLE = ("ONLINE", "OFFLINE", "IGNORE", "FOREIGN")
_NO_COLUMN = (
    *("INDEX", "KEY", "PRIMARY", "FOREIGN", "UNIQUE", "CONSTRAINT", "CHECK", "PARTITION", "FULLTEXT", "SPATIAL"),
    *("PERIOD", "SYSTEM", "SUPPLEMENTAL", "COLUMN", "COLUMNS", "RESTRICT", "VERSIONING", "TO", "AS"),
)


@dataclass(frozen=True)
class Step:
    """One change of a table's column names.

    Args:
        kind: what happened to a column.
        name: the column.
        to: its name afterwards, where it was renamed.
        captured: a source captured the statement itself. It reads a table again in which a name became another
            column's.
    """

    kind: Literal["rename", "drop", "add"]
    name: str
    to: str = ""
    captured: bool = False


def steps_of(text: str, connector: str | None = None, *, captured: bool = False) -> tuple[Step, ...]:
    """What an `ALTER TABLE` does to the names of columns, one after another; empty for anything else.

    The clauses of one statement all speak of the names before it, so they are put into an order in which no name is
    taken when it is given. A text that can't be read, or that is about several tables, says nothing. Needs sqlglot,
    whose tokens it reads. Runs in the driver.

    Args:
        text: one or more statements.
        connector: the kind of database (`mysql`, `oracle`, ...), which decides how names are quoted.
        captured: see `Step`.
    """
    from sqlglot import tokenize
    from sqlglot.errors import SqlglotError

    dialect = _DIALECTS.get(connector or "", "mysql" if "`" in text else None)
    try:
        tokens = tokenize(text, read=dialect)
    except SqlglotError:
        return ()
    steps: list[Step] = []
    tables: set[str] = set()
    for statement in _split(tokens, ";"):
        clauses = _Clauses(statement, _CASES.get(connector or "", str), texts_are_names=dialect == "mysql")
        table = clauses.table()
        if table is None:
            continue
        tables.add(table)
        steps += _in_order(list(clauses.steps()))
    if captured:
        steps = [replace(step, captured=True) for step in steps]
    return tuple(steps) if len(tables) == 1 else ()


def names_now(
    names: Collection[str], steps: Sequence[Step], final: Collection[str] | None, *, of: str
) -> dict[str, str | None]:
    """What columns are called after the steps: those with another name, and null for those that went away.

    The names may be those from before the first step or from between two of them. Where they stand is the place from
    which the rest of the steps leads to `final`. Letter case does not count where names don't need it. Where two
    names stay and mean other columns, steps that a source captured move no values, because it reads the table again.

    Args:
        names: of a schema or a target.
        steps: what happened, in order.
        final: the names after the last step; None where they are not known.
        of: the table, for messages.

    Raises:
        SchemaError: the names could be from before the steps or from after them, and would mean other columns then.
    """
    folded = _folding(names, final or ())
    if not any(step.kind == "rename" for step in steps):
        dropped = {folded(step.name) for step in steps if step.kind == "drop"}
        return {name: None for name in names if folded(name) in dropped}
    wanted = None if final is None else {folded(name): name for name in final}
    captured = all(step.captured for step in steps)
    candidates: list[tuple[tuple[int, int], dict[str, str | None]]] = []
    for start in range(len(steps) + 1):
        now = _walked({name: folded(name) for name in names}, steps[start:], folded)
        if now is None:
            continue
        left = {name for name in now.values() if name is not None}
        # A column that was dropped and added again is taken for the same one, as without statements.
        again = left if wanted is None else left & set(wanted)
        taken = {now[name] for name in names}
        now |= {n: folded(n) for n in names if now[n] is None and folded(n) in again and folded(n) not in taken}
        if wanted is None:
            candidates.append(((start, 0), now))
        else:
            candidates.append(
                ((len(left ^ set(wanted)), _unfollowed(names, steps[:start], folded) if captured else 0), now)
            )
    least = min(rank for rank, _ in candidates)
    best = [{name: now.get(name) for name in names} for rank, now in candidates if rank == least]
    if captured:
        here = {folded(name) for name in names}
        stay = here if wanted is None else here & set(wanted)
        best = [{n: folded(n) if to in here and folded(n) in stay else to for n, to in one.items()} for one in best]
        for one in best:
            free = stay.difference(to for to in one.values() if to is not None)
            one.update({n: folded(n) for n, to in one.items() if to is None and folded(n) in free})
        if all(set(one.values()) == set(best[0].values()) for one in best):
            # Columns took each other's names, and the values come again with the table.
            best = best[:1]
        elif any(one != best[0] for one in best):
            # The same, where not all of them are here.
            best = [{n: folded(n) if folded(n) in stay else to for n, to in one.items()} for one in best]
    mixed = wanted is None and set(best[0].values()) == {folded(name) for name in names}
    if any(one != best[0] for one in best) or (mixed and any(folded(name) != to for name, to in best[0].items())):
        raise SchemaError(
            f"Headrace can't follow the renamed columns of table {of}: a name now belongs to another column, or "
            "the statements do not lead to the columns that exist.",
            remedy="Move the table's targets away and take a new snapshot of it with a new checkpoint.",
        )
    written = {folded(step.to): step.to for step in steps if step.kind == "rename"} | (wanted or {})
    return {name: None if to is None else written.get(to, to) for name, to in best[0].items() if to != folded(name)}


def renamed_keys(
    names: Collection[str], steps: Sequence[Step], final: Collection[str], *, of: str, given: bool = False
) -> dict[str, str]:
    """Under which names the columns of an image have to be looked for that follows a schema with these names.

    A column that went away gets a name that no column has.

    Args:
        names: of the schema.
        steps: what happened, in order.
        final: the names after the last step.
        of: the table, for messages.
        given: the schema is the user's, who may have changed it since; an image may have the names before it.

    Raises:
        SchemaError: see `names_now`.
    """
    if not any(step.kind == "rename" for step in steps):
        return {}
    now = names_now(names, steps, final, of=of)
    if given:
        folded = _folding(names, final)
        wanted, known = {folded(name): name for name in final}, {folded(name) for name in names}
        for index, step in enumerate(steps):
            if step.kind == "rename" and folded(step.name) not in known:
                walked = _walked({step.name: folded(step.name)}, steps[index:], folded) or {}
                to = walked.get(step.name)
                if to in wanted and to != folded(step.name):
                    now.setdefault(step.name, wanted[to])
    return {name: f"{name}/gone" if to is None else to for name, to in now.items()}


def after_steps(schema: TableSchema, steps: Sequence[Step]) -> TableSchema:
    now = names_now([column.name for column in schema.columns], steps, None, of=str(schema.id))
    if not any(now.values()):
        return schema
    renamed = {name: to for name, to in now.items() if to is not None}
    return replace(
        schema,
        columns=tuple(
            replace(column, name=renamed.get(column.name, column.name))
            for column in schema.columns
            if column.name not in now or now[column.name] is not None
        ),
        key=tuple(renamed.get(name, name) for name in schema.key if name not in now or now[name] is not None),
    )


def renames_in_order(renames: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Old and new names, in an order in which no name is taken when it is given. There are no circles."""
    for step in _in_order([Step("rename", old, new) for old, new in renames.items()]):
        yield step.name, step.to


def _folding(*names: Collection[str]) -> Callable[[str], str]:
    """How names are compared: without regard to case, unless a table needs it."""
    unique = all(len({name.lower() for name in column_names}) == len(column_names) for column_names in names)
    return str.lower if unique else str


def _walked(
    now: dict[str, str | None], steps: Iterable[Step], folded: Callable[[str], str]
) -> dict[str, str | None] | None:
    """The names after the steps by the names before; None where the steps can't have been done to these names.

    Columns that were added stand under keys that no name is.
    """
    for step in steps:
        name = folded(step.name)
        at = next((key for key, value in now.items() if value == name), None)
        if step.kind == "add":
            if at is not None:
                return None
            now = {**now, f"\0{len(now)}": name}
        elif step.kind == "drop":
            if at is not None:
                now = {**now, at: None}
        else:
            to = folded(step.to)
            # One that is not there is not captured, or has its new name already.
            if at is not None:
                if to in now.values() and to != name:
                    return None
                now = {**now, at: to}
    return now


def _unfollowed(names: Collection[str], steps: Sequence[Step], folded: Callable[[str], str]) -> int:
    """How many renames have not reached these names yet: the old name is there and the new one is not."""
    there, unfollowed = {folded(name) for name in names}, 0
    for step in reversed(steps):
        name, to = folded(step.name), folded(step.to)
        if step.kind == "add":
            there.discard(name)
        elif step.kind == "rename" and to in there:
            there = (there - {to}) | {name}
        elif step.kind == "rename" and name in there:
            unfollowed += 1
    return unfollowed


def _in_order(steps: list[Step]) -> list[Step]:
    """Drops, then renames so that each new name is free, then adds. A circle goes over a name that nobody has."""
    renames = [step for step in steps if step.kind == "rename"]
    ordered = [step for step in steps if step.kind == "drop"]
    while renames:
        taken = {step.name for step in renames}
        free = next((step for step in renames if step.to not in taken), None)
        if free is None:
            free = Step("rename", renames[0].name, f"\0{renames[0].name}")
            renames[0] = Step("rename", free.to, renames[0].to)
        else:
            renames.remove(free)
        ordered.append(free)
    return [*ordered, *(step for step in steps if step.kind == "add")]


def _split(tokens: Sequence[Token], mark: str) -> Iterator[list[Token]]:
    """The tokens between marks that stand in no parentheses."""
    depth = 0
    part: list[Token] = []
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if token.text == mark and not depth and not _quoted(token):
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _quoted(token: Token) -> bool:
    return token.token_type.name in ("IDENTIFIER", "STRING")


class _Clauses:
    """One statement, read from its first token to its last.

    Args:
        tokens: its tokens.
        cased: how the database stores a name without quotes.
        texts_are_names: whether a text where a name has to be is one, as with MySQL's ANSI_QUOTES.
    """

    def __init__(self, tokens: list[Token], cased: Callable[[str], str], *, texts_are_names: bool = False) -> None:
        self._tokens = tokens
        self._cased = cased
        self._texts_are_names = texts_are_names
        self._at = 0

    def table(self) -> str | None:
        """The table that is altered; None for another statement."""
        if not self._skip("ALTER"):
            return None
        while any(self._skip(word) for word in _BEFORE_TABLE):
            pass
        if not self._skip("TABLE"):
            return None
        self._skip("IF", "EXISTS")
        self._skip("ONLY")
        name = self._name()
        while name is not None and self._skip("."):
            name = self._name()
        return name

    def steps(self) -> Iterator[Step]:
        for clause in _split(self._tokens[self._at :], ","):
            yield from self._within(clause)._of_clause()

    def _within(self, tokens: list[Token]) -> _Clauses:
        return _Clauses(tokens, self._cased, texts_are_names=self._texts_are_names)

    def _of_clause(self) -> Iterator[Step]:
        """The steps of one clause; Db2 has several in one, without a comma between."""
        first = True
        while self._at < len(self._tokens):
            here = self._at
            step = self._renamed(first) or self._gone_or_new(first)
            if step is None:
                self._at = here + 1
            else:
                yield from step
            first = False

    def _renamed(self, first: bool) -> list[Step] | None:
        here = self._at
        if self._skip("RENAME", "COLUMN") or (first and self._skip("RENAME")):
            self._skip("IF", "EXISTS")
            old = self._column()
            new = self._column() if old is not None and self._skip("TO") else None
            if old is not None and new is not None:
                return [Step("rename", old, new)]
        elif first and self._skip("CHANGE"):
            self._skip("COLUMN")
            self._skip("IF", "EXISTS")
            old, new = self._column(), self._column()
            if old is not None and new is not None:
                return [Step("rename", old, new)] if old != new else []
        self._at = here
        return None

    def _gone_or_new(self, first: bool) -> list[Step] | None:
        here = self._at
        for word, kind in (("DROP", "drop"), ("ADD", "add")):
            if not (self._skip(word, "COLUMN") or (first and self._skip(word))):
                continue
            self._skip("IF", "NOT", "EXISTS")
            self._skip("IF", "EXISTS")
            names = [self._column()]
            if self._skip("("):
                parts = _split(self._tokens[self._at : self._closing()], ",")
                names = [self._within(part)._column() for part in parts]
            return [Step(kind, name) for name in names if name is not None]  # type: ignore[arg-type]
        self._at = here
        return None

    def _closing(self) -> int:
        """Where the parenthesis ends that is open."""
        depth = 1
        for at in range(self._at, len(self._tokens)):
            depth += (self._tokens[at].text == "(") - (self._tokens[at].text == ")")
            if not depth:
                return at
        return len(self._tokens)

    def _skip(self, *words: str) -> bool:
        """Whether these words come next, which are then behind."""
        here = self._tokens[self._at : self._at + len(words)]
        if [token.text.upper() for token in here if not _quoted(token)] != list(words):
            return False
        self._at += len(words)
        return True

    def _name(self) -> str | None:
        """The name that comes next, which is then behind."""
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        is_text = token is not None and token.token_type.name == "STRING"
        if token is None or (is_text and not self._texts_are_names) or not token.text.strip("(),.=*"):
            return None
        self._at += 1
        return token.text if _quoted(token) else self._cased(token.text)

    def _column(self) -> str | None:
        """The same of a column: not a word that says that something else is meant."""
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is not None and not _quoted(token) and token.text.upper().split()[0] in _NO_COLUMN:
            return None
        return self._name()
