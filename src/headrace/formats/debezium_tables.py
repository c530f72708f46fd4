"""The structures of an encode, and Spark SQL that depends on a row's: by the table's number, in the column `t`.

What is only a constant is looked up in an array. Other expressions are chosen by halving the numbers, and tables of
equal structure stand beside each other and share one, so that the cost of a row grows hardly with the number of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.changes import TableId, TableSchema
from headrace.changes.refusal import unknown_structure
from headrace.changes.typed import literal

_NONE = TableSchema(TableId("", "", ""), ())


def in_order(schemas: Sequence[TableSchema]) -> tuple[TableSchema, ...]:
    """Each structure once, equal columns beside each other; the order depends on the structures alone."""
    found = {schema.fingerprint: schema for schema in schemas}
    return tuple(sorted(found.values(), key=lambda s: (repr((s.columns, s.key)), s.fingerprint)))


@dataclass(frozen=True)
class Tables:
    """The structures of one encode.

    Args:
        schemas: the structures, as `in_order` gives them.
        given: whether they are the option's; then rows without a `schema_id` are told by their table.
        single: whether the option holds one structure, which all rows follow.
    """

    schemas: tuple[TableSchema, ...]
    given: bool = False
    single: bool = False

    @property
    def nameless(self) -> bool:
        """Whether the one structure has no name (a DDL): then rows are named by their own table."""
        return len(self.schemas) == 1 and not self.schemas[0].id.name

    @property
    def any(self) -> TableSchema:
        """One of the structures; an empty one where there is none."""
        return self.schemas[0] if self.schemas else _NONE

    def known(self, *, checked: bool) -> str:
        """Spark SQL: true for rows of a known structure; stops the query at another.

        Args:
            checked: whether rows may be of another at all.
        """
        if not checked or self._all_alike:
            return "true"
        known = ", ".join(literal(schema.fingerprint) for schema in self.schemas) or "''"
        tests = f"coalesce(schema_id in ({known}), false)"
        if self.given:
            tests = f"{tests} or {self._by_name()} is not null"
        return f"({tests} or {unknown_structure()})"

    def number(self) -> str:
        """Spark SQL for the number of a row's structure; null for a row of none."""
        if not self.schemas or self._all_alike:
            return "0"
        ordered = sorted((schema.fingerprint, number) for number, schema in enumerate(self.schemas))
        found = _halved(
            [f"if(schema_id = {literal(fingerprint)}, {number}, null)" for fingerprint, number in ordered],
            lambda middle: f"schema_id < {literal(ordered[middle][0])}",
        )
        return f"coalesce({found}, {self._by_name()})" if self.given else found

    @property
    def _all_alike(self) -> bool:
        return self.single and self.nameless

    def _by_name(self) -> str:
        """The number of the structure with a row's table; the first of several of one table."""
        names: dict[TableId, int] = {}
        for number, schema in enumerate(self.schemas):
            names.setdefault(schema.id, number)
        parts = ("database", "schema", "name")
        branches = []
        for id, number in names.items():
            tests = [
                f"coalesce(table.{part}, '') = {literal(text)}"
                for part, text in zip(parts, (id.database, id.schema, id.name), strict=True)
            ]
            branches.append(f"when {' and '.join(tests)} then {number}")
        # One structure alone is meant for its table whatever the rows say of theirs; several are told apart.
        free = "true" if self.single else "schema_id is null"
        return f"if({free}, case {' '.join(branches)} end, null)"

    def text(self, make: Callable[[TableSchema], str]) -> str:
        """Spark SQL for a text that is a constant of each table."""
        return self.constant(lambda schema: literal(make(schema)))

    def constant(self, make: Callable[[TableSchema], str]) -> str:
        """Spark SQL for a constant of each table, given as Spark SQL; all of one type."""
        made = [make(schema) for schema in self.schemas]
        if len(set(made)) <= 1:
            return made[0] if made else "null"
        # get(), because `[t]` looks at rows of no table too.
        return f"get(array({', '.join(made)}), t)"

    def choice(self, make: Callable[[TableSchema], str | None], otherwise: str = "null") -> str:
        """Spark SQL that takes the table's own of as many expressions as there are tables.

        Args:
            otherwise: what stands for None, and where there are no tables.
        """
        runs: list[tuple[int, str]] = []
        for number, schema in enumerate(self.schemas):
            expression = make(schema) or otherwise
            if not runs or runs[-1][1] != expression:
                runs.append((number, expression))
        if not runs:
            return otherwise
        return _halved([expression for _, expression in runs], lambda middle: f"t < {runs[middle][0]}")


def _halved(expressions: Sequence[str], below: Callable[[int], str]) -> str:
    """One of the expressions by a binary search; `below(n)` tests for those before the n-th.

    CASE, not if(): Spark puts the branches of a CASE into methods of their own.
    """
    if len(expressions) == 1:
        return expressions[0]
    middle = len(expressions) // 2
    first = _halved(expressions[:middle], below)
    last = _halved(expressions[middle:], lambda n: below(n + middle))
    return f"case when {below(middle)} then {first} else {last} end"
