"""What the offset keeps of the log besides the commit that it reached: `Offset.log` of a PostgreSQL source."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Self

from headrace.sources.log.window import WindowState
from headrace.sources.offset import Offset, all_known
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.earlier_structures import EarlierStructures
from headrace.sources.postgresql.log_state import LogState
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.postgresql.unsent_changes import TableFiles

_PARTS = frozenset(["server", "catalog", "types", "files", "visible", "cuts", "reads", "waiting", "earlier"])


@dataclass(frozen=True)
class StreamState(WindowState):
    """Where the log is read, and by what.

    Args:
        log: the server, slot and publication.
        catalog: the catalog's state when the tables were looked up; they are looked up again when it is another.
        types: the types that users made, by which columns are read.
        files: where the rows of the captured tables are, by which a table that was rewritten is known.
        earlier: tables and types as they were before changes that the stream has not passed.
    """

    log: LogState
    catalog: str
    types: TypeCatalog
    files: TableFiles = TableFiles()  # noqa: RUF009
    earlier: EarlierStructures = EarlierStructures()  # noqa: RUF009

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
            data["catalog"],
            TypeCatalog.from_json(data["types"]),
            TableFiles.from_json(data["files"], data.get("visible", "")),
            EarlierStructures.from_json(data["earlier"]) if "earlier" in data else EarlierStructures(),
            cuts=tuple(map(lsn.commit_before, data["cuts"])),
            reads=data["reads"],
            waiting=tuple(data["waiting"]),
        )

    def with_begun(self, tables: Collection[str]) -> Self:
        """As in any log; what such a table was before is not needed, because the read shows it as it is."""
        return replace(super().with_begun(tables), earlier=self.earlier.without(tables))

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "server": self.log.to_json(),
            "catalog": self.catalog,
            "types": self.types.to_json(),
            "files": self.files.to_json(),
            **({"visible": self.files.visible} if self.files.visible else {}),
            **({"earlier": self.earlier.to_json()} if self.earlier else {}),
            "cuts": list(map(lsn.boundary, self.cuts)),
            "reads": self.reads,
            "waiting": list(self.waiting),
        }
