"""What the offset keeps of the log besides the commit that it reached: `Offset.log` of a MySQL or MariaDB source.

`LogState` says which server's log an offset was reached with, and how that log is recognised.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from headrace.changes.foreign_key import ForeignKey
from headrace.sources.log.window import WindowState
from headrace.sources.mysql.captured_table import MysqlTable, tables_of
from headrace.sources.mysql.transactions import Prepared
from headrace.sources.offset import Offset, all_known

_LOG_PARTS = frozenset(["kind", "server", "base", "mark", "epoch", "gtids", "folds_names"])


@dataclass(frozen=True)
class LogState:
    """The server and the log that an offset was reached with.

    Args:
        kind: `mysql`, `percona` or `mariadb`.
        server: what tells it from all other servers, and stays the same when it is started again.
        base: the base name of the log's files.
        mark: what the file of the offset says of itself, by which another file with its name is known.
        epoch: as `BinlogPosition.epoch`.
        gtids: the transactions that the offset has, as the server writes sets of them; empty where the log has no
            GTIDs.
        folds_names: see `ServerKind`.
    """

    kind: str
    server: str
    base: str
    mark: str
    epoch: int = 0
    gtids: str = ""
    folds_names: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "server": self.server,
            "base": self.base,
            "mark": self.mark,
            "epoch": self.epoch,
            "gtids": self.gtids,
            "folds_names": self.folds_names,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LogState:
        """Read `to_json`'s form back.

        Raises:
            NewerRelease: a later release wrote it.
        """
        all_known(data, _LOG_PARTS)
        return cls(
            data["kind"],
            data["server"],
            data["base"],
            data["mark"],
            data["epoch"],
            data["gtids"],
            data["folds_names"],
        )


_PARTS = frozenset(
    ["server", "prepared", "unsettled", "cuts", "reads", "waiting", "states", "unsure", "dropped", "cascades"]
)

States = Mapping[str, tuple[tuple[str, MysqlTable | None], ...]]
"""By the path of a table that a window alters, how it is from which position on, in order; null where that is not
known. The first position is the empty text: from the window's start."""


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
        dropped: by path, the names of columns that went away. Another column that gets one of them is told by this.
    """

    log: LogState
    prepared: tuple[Prepared, ...] = ()
    unsettled: str = ""
    states: States = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    cascades: tuple[ForeignKey, ...] = ()
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def settled(self) -> Self:
        """The same position, seen from a batch without a window."""
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
            dropped={path: tuple(names) for path, names in data.get("dropped", {}).items()},
        )

    def to_json(self) -> dict[str, Any]:
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
            **({"dropped": {path: list(names) for path, names in self.dropped.items()}} if self.dropped else {}),
        }


def states_json(given: Sequence[tuple[str, MysqlTable | None]]) -> list[Any]:
    """JSON values: the first state that is known as a whole, and of the others the columns that it does not have."""
    first = next((table.to_json() for _, table in given if table is not None), {})
    return [
        first,
        [[position, None if table is None else _beside(first, table.to_json())] for position, table in given],
    ]


def states_of_json(data: Sequence[Any]) -> tuple[tuple[str, MysqlTable | None], ...]:
    """Read `states_json`'s form back.

    Raises:
        NewerRelease: a later release wrote one of the tables.
    """
    first, given = data
    return tuple(
        (position, None if state is None else tables_of.one(_whole(first, state))) for position, state in given
    )


def _beside(first: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """A table without the columns that another state has too: these are numbers."""
    known = {_text(column, native): position for position, (column, native) in enumerate(_columns(first))}
    schema = {name: value for name, value in table["schema"].items() if name != "columns"}
    rest = {name: value for name, value in table.items() if name not in ("schema", "natives")}
    columns = [known.get(_text(column, native), [column, native]) for column, native in _columns(table)]
    return {**rest, "schema": schema, "columns": columns}


def _whole(first: Mapping[str, Any], differences: Mapping[str, Any]) -> dict[str, Any]:
    known = list(_columns(first))
    columns = [known[given] if isinstance(given, int) else given for given in differences["columns"]]
    placed = [{**column, "position": position} for position, (column, _) in enumerate(columns, 1)]
    rest = {name: value for name, value in differences.items() if name != "columns"}
    return {
        **rest,
        "schema": {**differences["schema"], "columns": placed},
        "natives": [native for _, native in columns],
    }


def _columns(table: Mapping[str, Any]) -> Iterable[tuple[Any, Any]]:
    return zip(table["schema"]["columns"], table["natives"], strict=True)


def _text(column: Mapping[str, Any], native: Any) -> str:
    return json.dumps([{**column, "position": 0}, native], sort_keys=True)
