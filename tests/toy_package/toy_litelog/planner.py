"""Where the next batch ends. Headrace's planner decides; here are the questions that it has to the log and its tables.

Runs in the driver.
"""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.errors import PositionMismatch
from headrace.sources.log.ad_hoc_reads import AdHocReads
from headrace.sources.log.planner import LogPlanner
from headrace.sources.log.table_changes import TableChanges
from headrace.sources.log.window import Window, WindowState
from headrace.sources.offset import Key, Offset
from headrace.sources.signals import Signal
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import read_first
from toy_litelog import log
from toy_litelog.catalog import LiteTable, captured, database, means, quoted, tables_of
from toy_litelog.options import LitelogSettings
from toy_litelog.rows import in_range


@dataclass(frozen=True)
class LitelogState(WindowState):
    """What the offset keeps of the log.

    Args:
        log: by what it is known again.
    """

    log: str


@dataclass(frozen=True)
class Keys:
    """Where chunks of a table end, as the table is now."""

    connection: sqlite3.Connection

    def greatest(self, table: LiteTable, condition: str | None) -> Sequence[Key]:
        return self._keys(table, [condition] if condition else [], [], "DESC", "LIMIT 1")

    def bounds(
        self, table: LiteTable, lower: Key | None, last: Key, rows: int, chunks: int, condition: str | None = None
    ) -> Sequence[Key]:
        bounds: list[Key] = []
        while len(bounds) < chunks:
            limits, values = in_range(table, lower, last)
            found = self._keys(
                table, [*limits, *([condition] if condition else [])], values, "", f"LIMIT 1 OFFSET {rows - 1}"
            )
            if not found:
                break
            lower = found[0]
            bounds.append(lower)
        return bounds

    def definition(self, table: LiteTable, before: str = "") -> str:
        sql = "SELECT sql FROM sqlite_master WHERE name = ?"
        return str(self.connection.execute(sql, (table.id.name,)).fetchone())

    def _keys(self, table: LiteTable, limits: Sequence[str], values: Sequence[Any], order: str, rest: str) -> list[Key]:
        where = f"WHERE {' AND '.join(f'({limit})' for limit in limits)} " if limits else ""
        by = ", ".join(f"{quoted(name)} {order}" for name in table.chunk_key)
        keys = ", ".join(table.native(name).sql(quoted(name)) for name in table.chunk_key)
        lines = self.connection.execute(
            f"SELECT {keys} FROM {quoted(table.id.name)} {where}ORDER BY {by} {rest}", values
        )
        natives = [table.native(name) for name in table.chunk_key]
        return [tuple(str(n.canonical(v)) for n, v in zip(natives, line, strict=True)) for line in lines]


class Planner(LogPlanner[LitelogSettings, LiteTable, sqlite3.Connection]):
    """Plans the batches of one process."""

    kept_tables = tables_of
    kept_state = LitelogState

    def __init__(self, settings: LitelogSettings) -> None:
        reads = AdHocReads(settings, database(settings.path), tables_of, ("skip",))
        super().__init__(settings, f"litelog:{settings.path}", reads)

    def _connect(self) -> sqlite3.Connection:
        return log.connect(self._settings.path)

    def _in_same_log(self, start: Offset) -> Offset:
        if LitelogState.of(start).log != log.identity(self._sql):
            raise PositionMismatch(
                f"The log in '{self._settings.path}' is not the one that the checkpoint is of.",
                remedy="Put the database back, or start with a new checkpoint.",
            )
        log.require_kept(self._sql, int(start.commit))
        return start

    def _head(self) -> tuple[str, dt.datetime]:
        return log.text(log.head(self._sql)), dt.datetime.now(dt.UTC)

    def _window(self, start: Offset, upto: str, commits: int) -> Window:
        after = int(start.commit)
        log.require_kept(self._sql, after)
        tables = {table.id.name: path for path, table in tables_of(start.schemas).items()}
        found = [entry for entry in log.entries(self._sql, after, int(upto)) if entry.table in tables]
        asked = self._ad_hoc.table(start)
        inserted = [e.after for e in found if asked is not None and e.table == asked.id.name and e.op == "c"]
        return Window(
            end=upto,
            rows=bool(found),
            commit_time=found[-1].time if found else None,
            signals=tuple(_signal(image) for image in inserted if image),
            size=int(upto) - after,
        )

    def _later(self, start: Offset) -> str | None:
        return log.text(log.first_kept(self._sql) - 1)

    def _follow_tables(self, start: Offset, window: Window | None, *, read_only: bool = False) -> Offset:
        now, known = captured(self._sql, self._settings), tables_of(start.schemas)
        if now == known:
            return start
        changes = TableChanges.said(
            self._settings,
            start,
            now,
            [path for path in now if path not in known],
            partial(means, self._settings),
            read=read_first(self._settings, (table.id for table in now.values())),
            remedy="Capture it again with toy_litelog.install.capture.",
            restarted=window is None,
        )
        return changes.in_offset(start, LitelogState.of(start), changes.with_reads(AdHoc.from_json(start.ad_hoc)))

    def _beginning(self) -> Offset:
        # Tables are read after this moment, and the log brings what changes in between.
        tables = captured(self._sql, self._settings)
        return self._begun_at(self._head()[0], tables, LitelogState(log.identity(self._sql)))

    def _ranges(self) -> AbstractContextManager[Keys]:
        return nullcontext(Keys(self._sql))


def _signal(image: str) -> Signal:
    id, kind, data, *_ = json.loads(image).values()
    return Signal(str(id), str(kind), data)
