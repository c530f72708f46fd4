"""What an offset keeps of the binary log besides the commit that it reached: which server's it is, and which log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.sources.log.window import WindowState
from headrace.sources.offset import Offset


@dataclass(frozen=True)
class LogState:
    """The server and the log that an offset was reached with.

    Args:
        kind: `mysql`, `percona` or `mariadb`.
        server: what tells it from all other servers, and stays the same when it is started again.
        base: the base name of the log's files.
        mark: what the file of the offset says of itself, by which another file with its name is known.
        epoch: as `Place.epoch`.
        gtids: the groups that the offset has, as the server writes sets of them; empty where the log has no GTIDs.
    """

    kind: str
    server: str
    base: str
    mark: str
    epoch: int = 0
    gtids: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "kind": self.kind,
            "server": self.server,
            "base": self.base,
            "mark": self.mark,
            "epoch": self.epoch,
            "gtids": self.gtids,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LogState:
        """Read `to_json`'s form back."""
        return cls(data["kind"], data["server"], data["base"], data["mark"], data["epoch"], data["gtids"])


@dataclass(frozen=True)
class StreamState(WindowState):
    """Where the log is read.

    Args:
        log: the server and its log.
    """

    log: LogState

    @classmethod
    def of(cls, offset: Offset) -> StreamState:
        """The state at an offset."""
        data = offset.log
        return cls(
            LogState.from_json(data["server"]),
            cuts=tuple(data["cuts"]),
            reads=data["reads"],
            waiting=tuple(data["waiting"]),
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "server": self.log.to_json(),
            "cuts": list(self.cuts),
            "reads": self.reads,
            "waiting": list(self.waiting),
        }
