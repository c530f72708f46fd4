"""Which server's log an offset was reached with, and by what that log is known again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.sources.offset import all_known

_PARTS = frozenset(["kind", "server", "base", "mark", "epoch", "gtids", "folds_names"])


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
        """JSON values."""
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
        all_known(data, _PARTS)
        return cls(
            data["kind"],
            data["server"],
            data["base"],
            data["mark"],
            data["epoch"],
            data["gtids"],
            data["folds_names"],
        )
