"""Which tables are captured, as the options and the catalog have it. Runs in the driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from headrace.sources.mysql.captured_table import MysqlTable, columns_of, tables_of
from headrace.sources.mysql.catalog import Catalog, means
from headrace.sources.mysql.connection import Connection
from headrace.sources.mysql.foreign_keys import require_followed, unlogged_keys
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.stream_state import StreamState
from headrace.sources.offset import Offset
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import read_first
from headrace.sources.tables.lost import say_returned, say_uncaptured, uncaptured_tables
from headrace.sources.tables.rewrites import Rewrite, follow_rewrites
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

    def with_cascades(self, connection: Connection, offset: Offset) -> Offset:
        """The offset with the foreign keys of its tables whose actions are not logged.

        Raises:
            CaptureError: there is one, and the options say to stop there.
        """
        keys, state = unlogged_keys(connection, tables_of(offset.schemas)), StreamState.of(offset)
        require_followed(keys, self._settings)
        return offset if keys == state.cascades else replace(state, cascades=keys).in_offset(offset)

    def follow(
        self,
        start: Offset,
        captured: Mapping[str, MysqlTable],
        *,
        restarted: bool,
        rewrites: Sequence[Rewrite] = (),
        replaced: Collection[str] = (),
        rows: Callable[[Sequence[MysqlTable]], Mapping[str, int]] = lambda _: {},
    ) -> Offset:
        """The offset with tables as they were found; `start` itself where nothing has changed.

        Args:
            start: where the last batch ended.
            captured: the captured tables.
            restarted: whether a new process does it, whose options may be others.
            rewrites: of tables whose rows may have changed without a change in the log.
            replaced: those of them of which all rows may be others.
            rows: asks about how many rows tables have, by path.

        Raises:
            CaptureError: the options say to stop at such a table.
        """
        known, state = tables_of(start.schemas), StreamState.of(start)
        self._require_matched(known, captured, [path for path in captured if path not in known])
        read = read_first(self._settings, (table.id for table in captured.values()))
        fresh = [path for path in captured if path not in known]
        kept = [path for path in start.known if path in captured]
        uncaptured = uncaptured_tables(start, captured, lambda path: means(self._settings, path))
        say_uncaptured(list(uncaptured), () if restarted else start.uncaptured, self._settings, _REMEDY)
        for path in fresh:
            if path in start.tables_seen:
                after = start.uncaptured.get(path, start.commit)
                say_returned(path, f"commit {after}", self._settings, read_again=path in read)
        ad_hoc = AdHoc.from_json(start.ad_hoc).after_added(start.commit)
        waiting = tuple(path for path in state.waiting if path in captured)
        waiting = tuple(dict.fromkeys((*waiting, *(path for path in fresh if path in read))))
        wanted = [path for path in fresh if path in read]
        # A snapshot of its own ends with what is gone.
        whole = {path: replace(captured[path], chunk_key=()) for path in replaced if path in captured}
        ad_hoc = follow_rewrites(
            [rewrite for rewrite in rewrites if rewrite.path in kept],
            ad_hoc,
            {**captured, **whole},
            self._settings,
            read=read,
            rows=rows,
            since=start.commit,
            under_way=start.tables,
        )
        if wanted:
            ad_hoc = replace(ad_hoc, blocking=tuple(dict.fromkeys((*ad_hoc.blocking, *wanted))))
        end = replace(
            start,
            known=(*kept, *fresh),
            schemas={path: table.to_json() for path, table in captured.items()},
            uncaptured=uncaptured,
            ad_hoc=ad_hoc.to_json(),
            tables={
                path: progress for path, progress in start.tables.items() if path in captured and path not in fresh
            },
        )
        end = replace(state, waiting=waiting).in_offset(end)
        return start if end == start else end

    def _require_matched(
        self, known: Mapping[str, MysqlTable], captured: Mapping[str, MysqlTable], fresh: list[str]
    ) -> None:
        """See that names and patterns of the options still match something in tables that may have changed."""
        for path in fresh:
            require_matched_by(self._settings, captured[path].id, list(map(columns_of, captured.values())))
        for path, table in known.items():
            if path in captured:
                held = [column.name for column in table.schema.columns]
                require_still_matched(self._settings, columns_of(captured[path]), table.names, table.protected, held)
