"""The part of the binary log that one task reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.sources.mysql.binlog_position import BinlogPosition
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.stream_state import States
from headrace.sources.mysql.transactions import Prepared


@dataclass(frozen=True)
class Window:
    """A part of the log that one task reads: the transactions with `start <= position < end`.

    Args:
        start, end: boundaries.
        log: the base name of the log's files.
        connector: `mysql` or `mariadb`.
        tables: those whose rows are taken, by path.
        after: for tables whose snapshot is newer than the stream, the commit up to which their changes are in it.
        prepared: distributed transactions that were prepared before the window and may be decided in it.
        server: whose log it is, as `LogState.server`; empty where any server will do.
        mark: what the file at its start says of itself, as `LogState.mark`; empty where that is not known.
        folds_names: see `ServerKind`.
        unsettled: see `StreamState`.
        states: see `StreamState`.
        unsure: tables of which it is not known how they are at the start.
        gone: tables that are not captured any more at its end. What can't be known of them is left out.
    """

    start: BinlogPosition
    end: BinlogPosition
    log: str
    connector: str
    tables: Mapping[str, MysqlTable]
    after: Mapping[str, str] = field(default_factory=dict)
    prepared: tuple[Prepared, ...] = ()
    server: str = ""
    mark: str = ""
    folds_names: bool = False
    unsettled: str = ""
    states: States = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def names(self) -> dict[tuple[str, str], str]:
        """The paths of the tables, by database and name as the log writes them."""
        return {(table.id.database or "", table.id.name): path for path, table in self.tables.items()}

    def without(self, table: str) -> Window:
        """The same part of the log without the changes of one table."""
        tables = {path: one for path, one in self.tables.items() if path != table}
        return replace(self, tables=tables, after={path: upto for path, upto in self.after.items() if path != table})
