"""What the offset keeps of the log besides the commit that it reached: `Offset.log` of a PostgreSQL source.

`LogState` says on which server the log is read, and by which slot and publication.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from headrace.errors import CaptureError
from headrace.sources.log.window import WindowState
from headrace.sources.offset import Offset, all_known
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.connection import Connection
from headrace.sources.postgresql.earlier_structures import EarlierStructures
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.publication import OPERATIONS, PublicationState
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.postgresql.unsent_changes import TableFiles

# The timeline is in the name of the file that is written now; the control file has that of the last checkpoint.
_SERVER = """
SELECT system_identifier::text, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) FROM pg_control_system()
"""
_INSERT_LSN = "SELECT pg_current_wal_insert_lsn()::text"
_LOG_PARTS = frozenset(
    ["system", "timeline", "slot", "publication", "publication_oid", "operations", "via_root", "members"]
)


def written_commit(connection: Connection) -> str:
    """A commit behind everything that the server has written to its log, on disk or not."""
    return lsn.commit_before(lsn.written_up_to(connection.value(_INSERT_LSN)))


@dataclass(frozen=True)
class LogState:
    """The server and the publication that an offset was reached with.

    Args:
        system: the cluster's identifier, which its copies share.
        timeline: its history; a promoted standby begins another.
        slot: the permanent slot's name.
        publication: the publication's name.
        publication_oid: it; one that was dropped and made again has another.
        operations: which of insert, update, delete and truncate it publishes.
        via_root: whether rows of partitions come as rows of the partitioned table.
        members: for the oid of each of its tables what says that it is in there; a table that was taken out and put in
            again has another. Empty for a publication of all tables.
    """

    system: str
    timeline: int
    slot: str
    publication: str
    publication_oid: int
    operations: tuple[str, ...] = OPERATIONS
    via_root: bool = True
    members: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, connection: Connection, settings: PostgresSettings, *, streams: bool = True) -> LogState:
        """As it is now, on a primary.

        Args:
            connection: to the database.
            settings: the source's options.
            streams: whether changes are read, which needs a publication.

        Raises:
            CaptureError: the publication is not there.
        """
        name = settings.publication_name
        publication = PublicationState.of(connection, name)
        if publication is None and not streams:
            publication = PublicationState(name, 0)
        if publication is None:
            raise CaptureError(
                f"Publication '{name}' is not there.", remedy="Set 'publication_autocreate' to filtered, or make it."
            )
        [(system, timeline)] = connection.rows(_SERVER)
        return cls(
            system=system,
            timeline=int(timeline, 16),
            slot=settings.slot,
            publication=name,
            publication_oid=publication.oid,
            operations=publication.operations,
            via_root=publication.via_root,
            members={table: member.oid for table, member in publication.members.items() if member.oid},
        )

    def rejoined(self, before: LogState) -> frozenset[int]:
        """The oids of tables that came into the publication since, be it again; none where it had no list before."""
        if not before.members:
            return frozenset()
        return frozenset(table for table, member in self.members.items() if before.members.get(table) != member)

    def to_json(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "timeline": self.timeline,
            "slot": self.slot,
            "publication": self.publication,
            "publication_oid": self.publication_oid,
            "operations": list(self.operations),
            "via_root": self.via_root,
            "members": [[table, member] for table, member in sorted(self.members.items())],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LogState:
        """Read `to_json`'s form back.

        Raises:
            NewerRelease: a later release wrote it.
        """
        all_known(data, _LOG_PARTS)
        return cls(
            data["system"],
            data["timeline"],
            data["slot"],
            data["publication"],
            data["publication_oid"],
            tuple(data["operations"]),
            data["via_root"],
            dict(data["members"]),
        )


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
