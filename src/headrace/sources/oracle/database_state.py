"""The state of the database as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sources.oracle import statements
from headrace.sources.oracle.connection import Connection


@dataclass(frozen=True)
class DatabaseState:
    """How a database keeps its log.

    Args:
        name: its name.
        archives_log: whether it is in ARCHIVELOG mode.
        logs_minimum: whether it has minimal supplemental logging, which LogMiner needs.
        logs_all_columns: whether all tables log all their columns.
        resetlogs: its incarnation.
    """

    name: str
    archives_log: bool
    logs_minimum: bool
    logs_all_columns: bool
    resetlogs: str

    @classmethod
    def of(cls, connection: Connection) -> DatabaseState:
        [(name, mode, _, minimum, all_columns, _, resetlogs)] = connection.rows(statements.DATABASE)
        return cls(str(name), mode == "ARCHIVELOG", minimum != "NO", str(all_columns) == "YES", str(resetlogs))
