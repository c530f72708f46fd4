"""What an offset keeps of a database's history, by which a database that was restored is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.sources.offset import all_known


class Transaction(NamedTuple):
    """A captured transaction.

    Args:
        commit: its LSN.
        time: when it was committed, as the server writes it.
    """

    commit: str
    time: str


class ChangeTable(NamedTuple):
    """A change table; one that is recreated under its name has another number."""

    name: str
    number: int


class NewestChange(NamedTuple):
    """The newest change in any change table.

    Args:
        commit: its LSN.
        table: the change table.
    """

    commit: str
    table: ChangeTable


@dataclass(frozen=True)
class HistoryMark:
    """The JSON values of `Offset.log`; those of a server that keeps idle commits have neither transaction nor change.

    Args:
        transaction: the last captured transaction.
        newest: the newest change up to the batch's end.
        restored: whether the database was restored before this batch.
    """

    transaction: Transaction | None = None
    newest: NewestChange | None = None
    restored: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON values, without what is not known."""
        newest = self.newest
        return {
            **({} if self.transaction is None else {"transaction": list(self.transaction)}),
            **({} if newest is None else {"newest": [newest.commit, newest.table.name, newest.table.number]}),
            **({"restored": True} if self.restored else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HistoryMark:
        """Read `to_json`'s form back.

        Raises:
            NewerRelease: a later release wrote it.
        """
        all_known(data, ("transaction", "newest", "restored"))
        transaction, newest = data.get("transaction"), None
        if "newest" in data:
            commit, name, number = data["newest"]
            newest = NewestChange(commit, ChangeTable(name, number))
        return cls(None if transaction is None else Transaction(*transaction), newest, data.get("restored", False))
