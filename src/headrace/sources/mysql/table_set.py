"""Which tables are captured, as the options and the catalog have it. Runs in the driver."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.sources.mysql.captured_table import MysqlTable, columns_of, tables_of
from headrace.sources.mysql.catalog import Catalog, means
from headrace.sources.mysql.connection import Connection
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.stream_state import StreamState
from headrace.sources.offset import Offset
from headrace.sources.signals import say
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.first_reads import read_first
from headrace.sources.tables.lost import say_returned, say_uncaptured, uncaptured_tables
from headrace.sources.tables.unmatched import require_matched_by, require_still_matched

_REMEDY = "Create it"


class TableSet:
    """The captured tables of one process, looked up again when the log says that tables were altered.

    Args:
        settings: the source's options.
    """

    def __init__(self, settings: MysqlSettings) -> None:
        self._settings = settings

    def captured(self, connection: Connection, *, strict: bool) -> dict[str, MysqlTable]:
        """The tables that the options mean, by path."""
        return Catalog(connection, self._settings).captured(strict=strict)

    def looked_up(
        self, connection: Connection, start: Offset, *, restarted: bool, emptied: Collection[str] = ()
    ) -> Offset:
        """The offset with the tables as they are now; `start` itself where nothing has changed.

        Args:
            connection: to the server.
            start: where the last batch ended.
            restarted: whether a new process does it, whose options may be others.
            emptied: tables of which rows came or went without rows in the log.
        """
        known, state = tables_of(start.schemas), StreamState.of(start)
        found = self.captured(connection, strict=False)
        self._require_matched(known, found, [path for path in found if path not in known])
        read = read_first(self._settings, (table.id for table in found.values()))
        fresh = [path for path in found if path not in known]
        kept = [path for path in start.known if path in found]
        uncaptured = uncaptured_tables(start, found, lambda path: means(self._settings, path))
        say_uncaptured(list(uncaptured), () if restarted else start.uncaptured, self._settings, _REMEDY)
        for path in fresh:
            if path in start.tables_seen:
                after = start.uncaptured.get(path, start.commit)
                say_returned(path, f"commit {after}", self._settings, read_again=path in read)
        ad_hoc, waiting = AdHoc.from_json(start.ad_hoc), tuple(path for path in state.waiting if path in found)
        waiting = tuple(dict.fromkeys((*waiting, *(path for path in fresh if path in read))))
        again = [path for path in kept if path in emptied or f"{found[path].id.database}." in emptied]
        for path in again:
            _say_emptied(path, takes_rows=path in read)
        wanted = [path for path in (*fresh, *again) if path in read]
        if wanted:
            ad_hoc = replace(ad_hoc, blocking=tuple(dict.fromkeys((*ad_hoc.blocking, *wanted))))
        end = replace(
            start,
            known=(*kept, *fresh),
            schemas={path: table.to_json() for path, table in found.items()},
            uncaptured=uncaptured,
            ad_hoc=ad_hoc.to_json(),
            tables={path: progress for path, progress in start.tables.items() if path in found and path not in fresh},
        )
        end = replace(state, waiting=waiting).in_offset(end)
        return start if end == start else end

    def _require_matched(
        self, known: Mapping[str, MysqlTable], found: Mapping[str, MysqlTable], fresh: list[str]
    ) -> None:
        """See that names and patterns of the options still match something in tables that may have changed."""
        for path in fresh:
            require_matched_by(self._settings, found[path].id, list(map(columns_of, found.values())))
        for path, table in known.items():
            if path in found:
                held = [column.name for column in table.schema.columns]
                require_still_matched(self._settings, columns_of(found[path]), table.names, table.protected, held)


def _say_emptied(path: str, *, takes_rows: bool) -> None:
    sentence = f"A statement made or took rows of table '{path}' that are not in the log."
    mended = "The table is read again." if takes_rows else "Ask for a blocking snapshot of it (headrace signal)."
    say(f"{sentence} {mended}")
