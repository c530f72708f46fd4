"""Which names of columns a target takes: decided from the names alone, before anything of a target is made.

Every way to write a table puts the source's names into Spark SQL and into the target's own structure. Both have names
of their own, and both have a say in which two names are one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.changes.typed import unfit_in_sql
from headrace.errors import SchemaError

_RENAME = "Leave the column out with the source's option 'column_exclude_list', or give it another name: a transform "
_RENAME += "with 'computed_columns' and 'exclude_columns' does that."
_OUR_COLUMN = "Set the sink's option that names Headrace's column ('position_column', or 'deleted_column') to another "
_OUR_COLUMN += "name, or leave the source's column out."


def spark_folded(name: str) -> str:
    """A name as Spark compares names: letter by letter, as Java's `equalsIgnoreCase` does.

    Not as `str.lower`: the long s is an `S`, and both of Turkish's letters are an `I`.
    """
    return "".join(map(_folded_letter, name))


def lower_letters(name: str) -> str:
    """A name in lower case, letter by letter: whatever stands beside a letter."""
    return "".join(letter.lower()[0] for letter in name)


def _folded_letter(letter: str) -> str:
    upper = letter.upper()
    return (upper if len(upper) == 1 else letter).lower()[0]


@dataclass(frozen=True)
class ColumnRules:
    """The names that a kind of target takes.

    Args:
        title: what messages call it.
        taken: names that it has for itself, as `folded` gives them.
        folded: names that are equal after this are one to it.
        most: how long a name may be; 0 for any length.
        in_bytes: whether that is counted in bytes of UTF-8, and not in characters.
        wrong: a regular expression of names that it refuses, and why: the end of a sentence that begins with the name.
    """

    title: str
    taken: frozenset[str] = frozenset()
    folded: Callable[[str], str] = spark_folded
    most: int = 0
    in_bytes: bool = False
    wrong: tuple[tuple[str, str], ...] = ()

    def problem(self, name: str) -> str:
        """Why the target can't have a column of this name, as the end of a sentence; empty where it can."""
        if reason := unfit_in_sql(name):
            return reason
        if self.folded(name) in self.taken:
            return f"which is {self.title}'s own"
        if self.most and self.length(name) > self.most:
            return f"which does not fit {self.title}, which takes {self.most} {self.unit}"
        return next((why for pattern, why in self.wrong if re.search(pattern, name)), "")

    @property
    def unit(self) -> str:
        """In what the length of a name is counted."""
        return "bytes" if self.in_bytes else "characters"

    def length(self, name: str) -> int:
        return len(name.encode()) if self.in_bytes else len(name)

    def refuse(self, table: object, names: Iterable[str], added: Iterable[str] = ()) -> None:
        """Stop where the target can't have all of these columns.

        Args:
            table: the source's table, for messages.
            names: its columns.
            added: Headrace's columns beside them.

        Raises:
            SchemaError: it can't take a name, or two of them would be one column.
        """
        ways = [(self.title, self.folded, {self.folded(name): "" for name in added})]
        ways += [("Spark", spark_folded, {spark_folded(name): "" for name in added})]
        for name in names:
            if problem := self.problem(name):
                raise SchemaError(f"Table {table} has a column '{name}', {problem}.", remedy=_RENAME)
            for holder, folded, known in ways:
                other = known.setdefault(folded(name), name)
                if not other:
                    raise SchemaError(
                        f"Table {table} has a column '{name}', which is Headrace's own in a mirror.", remedy=_OUR_COLUMN
                    )
                if other != name:
                    raise SchemaError(
                        f"Columns '{other}' and '{name}' of table {table} differ only in case; {holder} can't hold "
                        "both.",
                        remedy=_RENAME,
                    )
