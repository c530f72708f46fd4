"""A foreign key by which the database itself deletes or changes rows of the table that has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headrace.changes.table import TableId
from headrace.changes.texts import key_text

Action = Literal["", "cascade", "set null"]
"""What happens to the rows that refer to a row; empty where the database refuses the change instead."""
Match = Literal["", "p", "c"]
"""How two values are compared: exactly; as texts without spaces at their ends; so, and in lower case."""


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key whose actions change rows.

    Args:
        name: the constraint's name.
        child: the table that has it.
        columns: its columns there.
        parent: the table that these refer to.
        referenced: the columns there, in the same order.
        on_delete: what follows from a delete of a row of `parent`.
        on_update: what follows from a change of `referenced`.
        matches: how each column's values are compared.
    """

    name: str
    child: TableId
    columns: tuple[str, ...]
    parent: TableId
    referenced: tuple[str, ...]
    on_delete: Action
    on_update: Action
    matches: tuple[Match, ...]

    @property
    def clauses(self) -> str:
        """Its actions, as SQL has them."""
        actions = [("DELETE", self.on_delete), ("UPDATE", self.on_update)]
        return " ".join(f"ON {event} {action.upper()}" for event, action in actions if action)

    def of_child(self, image: Mapping[str, str | None] | None) -> str | None:
        """What a row of `child` refers to, as a text that is the same for equal values; None where to nothing."""
        return self._text(image, self.columns)

    def of_parent(self, image: Mapping[str, str | None] | None) -> str | None:
        """The same of a row of `parent`: what refers to it; None where nothing can, or the image does not say it."""
        return self._text(image, self.referenced)

    def _text(self, image: Mapping[str, str | None] | None, columns: Sequence[str]) -> str | None:
        values = [None if image is None else image.get(column) for column in columns]
        texts = [_compared(text, match) for text, match in zip(values, self.matches, strict=True) if text is not None]
        return key_text(texts) if len(texts) == len(columns) else None

    def to_json(self) -> list[Any]:
        """JSON values."""
        child, parent = ([table.database, table.schema, table.name] for table in (self.child, self.parent))
        actions = [self.on_delete, self.on_update]
        return [self.name, child, list(self.columns), parent, list(self.referenced), *actions, list(self.matches)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> ForeignKey:
        """Read `to_json`'s form back."""
        name, child, columns, parent, referenced, on_delete, on_update, matches = data
        tables = TableId(*child), TableId(*parent)
        return cls(name, tables[0], tuple(columns), tables[1], tuple(referenced), on_delete, on_update, tuple(matches))


def _compared(text: str, match: Match) -> str:
    plain = text.rstrip(" ") if match else text
    return plain.lower() if match == "c" else plain


@dataclass(frozen=True)
class Cascade:
    """A foreign key whose actions are in no log.

    Args:
        key: it.
        lack: why the rows that it changes can't be told from changes of `key.parent`, as a clause; empty where they
            can.
        certain: whether it was there, as it is, for all changes of the batch.
        computed: columns of `key.child` that the server may compute from those that it changes.
    """

    key: ForeignKey
    lack: str = ""
    certain: bool = True
    computed: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What it does, without a full stop."""
        key = self.key
        return (
            f"Foreign key '{key.name}' changes rows of table '{key.child.path}' with rows of '{key.parent.path}' "
            f"({key.clauses}), and the server does not log that"
        )
