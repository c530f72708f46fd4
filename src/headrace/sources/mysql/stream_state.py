"""What the offset keeps of the log besides the commit that it reached: `Offset.log` of a MySQL or MariaDB source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.sources.log.window import WindowState
from headrace.sources.mysql.groups import Prepared
from headrace.sources.mysql.log_state import LogState
from headrace.sources.offset import Offset, all_known

_PARTS = frozenset(["server", "prepared", "unsettled", "cuts", "reads", "waiting"])


@dataclass(frozen=True)
class StreamState(WindowState):
    """Where the log is read.

    Args:
        log: the server and its log.
        prepared: distributed transactions that were prepared before the offset and are not decided at it. Their rows
            are read again when they are committed.
        unsettled: the commit up to which changes may be in rows already that a snapshot read; empty for none.
    """

    log: LogState
    prepared: tuple[Prepared, ...] = ()
    unsettled: str = ""

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
        }
