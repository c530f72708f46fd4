"""The marker rows of a source of a log: ends of empty snapshots, gaps, heartbeats, and tables that come and go."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Mapping

from headrace.changes import Operation, Position, TableId, TableSchema
from headrace.sources.rows import Marker
from headrace.sources.snapshots.chunks import LAST_OF_TABLE

_GAP_ORDER = "g"
"""Order of a gap: after every streamed change of the commit before it."""
_TABLES_ORDER = "s"
"""Order of tables that come and go: after every streamed change of the commit before it."""
_HEARTBEAT_ORDER = "z"
"""Order of a heartbeat: after everything of its commit."""


class LogMarkers(ABC):
    """The announcements of a batch. Commits are in the form of `Offset.commit`.

    Args:
        connector: the connector's name in events.
        database: that of the tables; empty where their paths say it.
    """

    def __init__(self, connector: str, database: str = "") -> None:
        self.connector = connector
        self._database = database

    @abstractmethod
    def facts(self, commit: str) -> Mapping[str, str]:
        """What `source` says of a commit, the connector first."""

    def table_id(self, path: str) -> TableId:
        """The table of a path."""
        schema, _, name = path.partition(".")
        return TableId(self._database, schema, name)

    @abstractmethod
    def lost(self, after: str, upto: str) -> tuple[Mapping[str, str], str, str]:
        """What `source` says of the changes in (after, upto], which ones they are, and why they may be lost."""

    def empty_table(self, schema: TableSchema, position: Position) -> Marker:
        """Ends the snapshot of a table without rows."""
        facts = {"connector": self.connector}
        return Marker(Operation.SCHEMA, position, facts, schema.id, schema=schema, snapshot=LAST_OF_TABLE)

    def gap(self, path: str, after: str, upto: str, *, skipped: bool) -> Marker:
        """Reports that changes of a table are lost, or were left out because a user wanted that."""
        facts, span, why = self.lost(after, upto)
        why = "a repair skipped them" if skipped else why
        return Marker(
            Operation.GAP,
            Position(after, _GAP_ORDER),
            {"connector": self.connector, **facts},
            self.table_id(path),
            error=f"Changes of table '{path}' {span} are lost: {why}.",
        )

    def created(self, schema: TableSchema, commit: str) -> Marker:
        """Reports that a table is captured from now on."""
        facts = {**self.facts(commit), "change": "CREATE"}
        return Marker(Operation.SCHEMA, Position(commit, _TABLES_ORDER), facts, schema.id, schema=schema)

    def altered(self, schema: TableSchema, commit: str, statement: str) -> Marker:
        """Reports what was done to the names of a table's columns, where no row that follows shows it."""
        facts = {**self.facts(commit), "ddl": statement}
        return Marker(Operation.SCHEMA, Position(commit, _TABLES_ORDER), facts, schema.id, schema=schema)

    def dropped(self, table: TableId, commit: str) -> Marker:
        """Reports that a table is not captured any more."""
        facts = {**self.facts(commit), "change": "DROP", "ddl": "N/A"}
        return Marker(Operation.SCHEMA, Position(commit, _TABLES_ORDER), facts, table)

    def heartbeat(self, commit: str, time: dt.datetime | None) -> Marker:
        """Reports how far the log was read."""
        return Marker(Operation.HEARTBEAT, Position(commit, _HEARTBEAT_ORDER), self.facts(commit), event_time=time)
