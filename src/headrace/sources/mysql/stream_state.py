"""What the offset keeps of the log besides the commit that it reached: `Offset.log` of a MySQL or MariaDB source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from headrace.changes.foreign_key import ForeignKey
from headrace.sources.log.window import WindowState
from headrace.sources.mysql.captured_table import MysqlTable, table_of_json
from headrace.sources.mysql.groups import Prepared
from headrace.sources.mysql.log_state import LogState
from headrace.sources.offset import Offset, all_known

_PARTS = frozenset(["server", "prepared", "unsettled", "cuts", "reads", "waiting", "states", "unsure", "cascades"])

States = Mapping[str, tuple[tuple[str, MysqlTable | None], ...]]
"""By the path of a table that a window alters, how it is from which place on, in order; null where that is not known.
The first place is the empty text: from the window's start."""


@dataclass(frozen=True)
class StreamState(WindowState):
    """Where the log is read.

    Args:
        log: the server and its log.
        prepared: distributed transactions that were prepared before the offset and are not decided at it. Their rows
            are read again when they are committed.
        unsettled: the commit up to which changes may be in rows already that a snapshot read; empty for none.
        states: of the batch that ends here.
        unsure: tables that the catalog may have shown as they are behind the offset only.
        cascades: the foreign keys of captured tables whose actions are not logged.
    """

    log: LogState
    prepared: tuple[Prepared, ...] = ()
    unsettled: str = ""
    states: States = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    cascades: tuple[ForeignKey, ...] = ()

    def settled(self) -> Self:
        """The same place, seen from a batch without a window."""
        return replace(super().settled(), states={})

    @classmethod
    def of(cls, offset: Offset) -> StreamState:
        """The state at an offset.

        Raises:
            NewerRelease: a later release wrote it.
        """
        data = offset.log
        all_known(data, _PARTS)
        return cls(
            LogState.from_json(data["server"]),
            tuple(map(Prepared.from_json, data["prepared"])),
            data["unsettled"],
            cuts=tuple(data["cuts"]),
            reads=data["reads"],
            waiting=tuple(data["waiting"]),
            states={path: states_of_json(given) for path, given in data.get("states", {}).items()},
            unsure=tuple(data.get("unsure", ())),
            cascades=tuple(map(ForeignKey.from_json, data.get("cascades", ()))),
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "server": self.log.to_json(),
            "prepared": [one.to_json() for one in self.prepared],
            "unsettled": self.unsettled,
            "cuts": list(self.cuts),
            "reads": self.reads,
            "waiting": list(self.waiting),
            **({"states": {path: states_json(given) for path, given in self.states.items()}} if self.states else {}),
            **({"unsure": list(self.unsure)} if self.unsure else {}),
            **({"cascades": [key.to_json() for key in self.cascades]} if self.cascades else {}),
        }


def states_json(given: Sequence[tuple[str, MysqlTable | None]]) -> list[Any]:
    """JSON values: a state that was there before is the number of that one."""
    found: list[Any] = []
    tables: list[MysqlTable | None] = []
    for place, table in given:
        known = next((n for n, other in enumerate(tables) if other is table and table is not None), None)
        found.append([place, table.to_json() if known is None and table is not None else known])
        tables.append(table)
    return found


def states_of_json(data: Sequence[Any]) -> tuple[tuple[str, MysqlTable | None], ...]:
    """Read `states_json`'s form back.

    Raises:
        NewerRelease: a later release wrote one of the tables.
    """
    found: list[tuple[str, MysqlTable | None]] = []
    for place, given in data:
        if isinstance(given, int):
            found.append((place, found[given][1]))
        else:
            found.append((place, None if given is None else table_of_json(given)))
    return tuple(found)
