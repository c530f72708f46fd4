"""Which slices make a batch: announcements, snapshot chunks, and windows of commits of the tables that changed.

Tables without a change in their window cost nothing but their share of one query. What is read, and how, stands in the
offsets; the server only has to say which change tables have rows, where long windows can be cut, and for the last event
before a schema changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from headrace.changes import Operation, Position, TableId, TableSchema
from headrace.sources.base import Slice
from headrace.sources.change_tables import chunks, lsn
from headrace.sources.change_tables.captured_table import CapturedTable
from headrace.sources.change_tables.clock import CommitClock
from headrace.sources.change_tables.connection import Connection, MissingObject
from headrace.sources.change_tables.guards import Retention, require_retained
from headrace.sources.change_tables.history_mark import HistoryMark
from headrace.sources.change_tables.markers import SWITCHED_OFF, say_switched_off
from headrace.sources.change_tables.options import ChangeTableSettings
from headrace.sources.change_tables.schema_history import Window, schema_histories
from headrace.sources.change_tables.slices import (
    ChangeTableSlice,
    IncrementalSlice,
    MarkerSlice,
    SessionSlice,
    SnapshotSlice,
    StreamSlice,
    TransactionsSlice,
)
from headrace.sources.offset import Offset
from headrace.sources.rows import Marker
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.chunks import LAST_OF_TABLE, found_empty, plan_chunks, reads_all
from headrace.sources.snapshots.ends_equal import end_markers

_TABLES_PER_QUERY = 500
_COMMITS_BACK = 10
"""How many commits before a schema change are searched for an event of a captured table."""


class Slicing:
    """The slices of the batch (start, end].

    Args:
        connection: to the database.
        settings: the source's options.
        start: the end of the batch before.
        end: the end of this one.
    """

    def __init__(self, connection: Connection, settings: ChangeTableSettings, start: Offset, end: Offset) -> None:
        self._connection = connection
        self._statements = connection.statements
        self._settings = settings
        self._start = start
        self._end = end
        self._histories = schema_histories(end.schemas, connection.dialect)
        self._markers: list[Marker] = []
        self._retention = Retention(connection)
        self._restored = HistoryMark.from_json(end.log).restored
        self._known_cuts: dict[tuple[str, str], list[str]] = {}
        self.lost: set[str] = set()
        """Tables of which this batch lacks changes that were cleaned after it was planned."""

    def slices(self) -> list[Slice]:
        """All of them; those of a table in the order of its rows."""
        self._note_schemas()
        self._note_empty()
        self._note_gaps()
        self._note_ends()
        self._note_heartbeat()
        return [piece.planned() for piece in self._with_markers(self._snapshot() + self._stream() + self._requested())]

    def _with_markers(self, slices: list[ChangeTableSlice]) -> list[ChangeTableSlice]:
        """The slices, with announcements: first, except those that follow changes of their table."""
        begun = [(piece.begin, piece.tables) for piece in slices]
        announced: dict[int, list[Marker]] = {}
        for marker in sorted(self._markers, key=lambda marker: marker.position.text):
            path, at = marker.table and marker.table.path, marker.position.text
            before = [n for n, (begin, tables) in enumerate(begun) if path in tables and begin < at]
            announced.setdefault(before[-1] + 1 if before else 0, []).append(marker)
        with_markers: list[ChangeTableSlice] = []
        for number in range(len(slices) + 1):
            if number in announced:
                with_markers.append(MarkerSlice(tuple(announced[number]), self._end.capture_time))
            with_markers += slices[number : number + 1]
        return with_markers

    # Snapshot.

    def _snapshot(self) -> list[ChangeTableSlice]:
        planned = plan_chunks(self._start, self._end)
        pieces = [(self._histories[chunk.table].newest, chunk) for chunk in planned]
        if pieces and chunks.in_one_session(self._settings):
            return [SessionSlice(tuple(pieces), self._end.capture_time)]
        return [SnapshotSlice(table, chunk, self._end.capture_time) for table, chunk in pieces]

    def _requested(self) -> list[ChangeTableSlice]:
        """The chunks of ad-hoc snapshots; those of an offset with nothing new were read by an earlier batch."""
        if self._end.ad_hoc == self._start.ad_hoc:
            return []
        commit, capture_time = self._end.commit, self._end.capture_time
        return [
            IncrementalSlice(self._histories[chunk.table].newest, chunk, commit, capture_time)
            for chunk in AdHoc.from_json(self._end.ad_hoc).chunks(self._end.reads)
        ]

    # Stream.

    def _stream(self) -> list[ChangeTableSlice]:
        if self._start.initial:
            return []
        changed = self._read_from(self._windows())
        if not self._settings.provide_transaction_metadata:
            return [piece for window in changed for piece in self._apart(window, 1 / len(changed))]
        # What a table catches up with belongs to transactions that were announced before.
        begin = self._start.commit
        early = [replace(w, upto=min(w.upto, begin)) for w in changed if w.after < begin]
        late = [replace(w, after=max(w.after, begin)) for w in changed if w.upto > begin]
        return [*(piece for window in early for piece in self._apart(window, 1 / len(early))), *self._together(late)]

    def _windows(self) -> list[Window]:
        """The commits of this batch for each table, cut where its schema changes."""
        start, end = self._start, self._end
        parts = []
        for path in end.known:
            if path not in start.known or end.captures_newly(start, path):
                # Newly captured by this batch.
                continue
            progress = start.tables.get(path)
            if progress is not None and not progress.done:
                continue
            after = start.commit if progress is None else progress.commit
            if path in end.gaps:
                _, oldest = end.gaps[path]
                after = max(after, lsn.before(oldest))
            parts += self._histories[path].windows(after, end.commit)
        return parts

    def _read_from(self, windows: list[Window]) -> list[Window]:
        """The windows that have changes.

        A change table that was cleaned, or recreated under its name, looks as if nothing had changed. So what is there
        is read before and after the query for tables that changed, until both answers are the same.
        """
        there = self._there() if windows else {}
        while True:
            markers, lost = [*self._markers], {*self.lost}
            present = self._present(windows, there)
            missing: MissingObject | None = None
            try:
                changed = self._changed(present)
            except MissingObject as error:
                missing = error
            now = self._there() if present else there
            if now == there:
                if missing is not None:
                    raise missing
                return changed
            there, self._markers, self.lost = now, markers, lost

    def _there(self) -> dict[int, str | None]:
        """The oldest LSN that each change table holds, by its number."""
        rows = self._connection.rows(self._statements.INSTANCES)
        return {int(number): None if start is None else lsn.read(start) for _, number, start in rows}

    def _present(self, windows: list[Window], there: Mapping[int, str | None]) -> list[Window]:
        """The windows whose change table is still there, and what is left of those that were cleaned.

        What went since the batch was planned is refused, or reported as lost.
        """
        present = []
        for window in windows:
            number = window.table.instance.object_id
            if number not in there:
                self._note_gone(window)
                continue
            oldest = there[number]
            if oldest is None or self._retention.holds(window.after, oldest):
                present.append(window)
                continue
            if self._settings.fail_on_data_loss and not reads_all(self._settings, [window.table.id]):
                require_retained(self._connection, window.table.id, window.after, oldest)
            upto = min(window.upto, lsn.before(oldest))
            self._note_gap(window.table.id, window.after, upto, "they were cleaned on the server")
            self.lost.add(window.table.id.path)
            if upto < window.upto:
                present.append(replace(window, after=upto))
        return present

    def _note_gone(self, window: Window) -> None:
        """Say that a change table went with what it held, or stop for it."""
        if not window.newest and self._retention.holds(window.after, lsn.after(window.upto)):
            # The newest change table is there, and the server lists no transaction in the window.
            return
        if window.newest or not reads_all(self._settings, [window.table.id]):
            say_switched_off(window, self._settings)
        self._note_gap(window.table.id, window.after, window.upto, SWITCHED_OFF)
        self.lost.add(window.table.id.path)

    def _changed(self, windows: list[Window]) -> list[Window]:
        changed: list[Window] = []
        for first in range(0, len(windows), _TABLES_PER_QUERY):
            part = windows[first : first + _TABLES_PER_QUERY]
            sql = self._statements.changed_instances([window.table.instance.name for window in part])
            parameters = [lsn.to_bytes(edge) for window in part for edge in (window.after, window.upto)]
            numbers = sorted(int(number) for (number,) in self._connection.rows(sql, parameters))
            changed += [part[number] for number in numbers]
        return changed

    def _apart(self, window: Window, weight: float) -> list[StreamSlice]:
        """One table's window by commit ranges, whose changes are spread over as many tables as there are windows."""
        edges = [window.after, *self._cuts(window.after, window.upto), window.upto]
        capture_time, zone = self._end.capture_time, self._end.clock
        return [
            StreamSlice(replace(window, after=low, upto=high), capture_time, zone, first=number == 0, weight=weight)
            for number, (low, high) in enumerate(pairwise(edges))
        ]

    def _together(self, windows: list[Window]) -> list[TransactionsSlice]:
        """All tables' windows by the same commit ranges, so that transactions stay whole.

        They are cut where a schema changes, so that the change can be announced between two slices.
        """
        if not windows:
            return []
        begin, end = self._start.commit, self._end.commit
        edges = sorted({begin, *self._cuts(begin, end), *(w.after for w in windows if w.after > begin), end})
        joined = []
        for low, high in pairwise(edges):
            part = [replace(w, after=max(w.after, low), upto=min(w.upto, high)) for w in windows]
            part = [window for window in part if window.after < window.upto]
            if part:
                joined.append(TransactionsSlice(tuple(part), self._end.capture_time, self._end.clock))
        return joined

    def _cuts(self, after: str, upto: str) -> list[str]:
        # All tables that are level share one window.
        if (after, upto) not in self._known_cuts:
            edges = (lsn.to_bytes(after), lsn.to_bytes(upto), self._settings.commits_per_slice)
            rows = self._connection.rows(self._statements.EVERY_NTH_COMMIT, edges)
            texts = (lsn.read(commit) for (commit,) in rows)
            self._known_cuts[after, upto] = [text for text in texts if text < upto]
        return self._known_cuts[after, upto]

    # Announcements.

    def _note(self, op: Operation, position: Position, source: Mapping[str, str], **facts: Any) -> None:
        source = {"connector": self._connection.dialect.connector, **source}
        self._markers.append(Marker(op, position, source, **facts))

    def _note_schema(self, position: Position, source: Mapping[str, str], schema: TableSchema, **facts: Any) -> None:
        self._note(Operation.SCHEMA, position, source, table=schema.id, schema=schema, **facts)

    def _note_schemas(self) -> None:
        start, end = self._start, self._end
        for ordinal, path in enumerate(end.known):
            before = schema_histories(start.schemas, self._connection.dialect).get(path)
            history = self._histories[path]
            known = before.versions if before is not None else ()
            instances = {version.table.instance.object_id for version in known}
            if (
                before is None
                or (path in end.tables and history.versions[0].table.instance.object_id not in instances)
                or self._returned(path)
            ):
                self._note_newly_captured(path, ordinal, history.newest)
                continue
            last = known[-1].table
            progress = start.tables.get(path)
            # The first version that is still needed is kept as one without a beginning.
            begun = lsn.after(start.commit if progress is None else progress.commit)
            for version in history.versions:
                if any(version.table.same_rows(other.table) for other in known):
                    continue
                if version.table.schema.fingerprint != last.schema.fingerprint:
                    self._note_altered(version.table, max(version.since, begun), ordinal)
                last = version.table
        for ordinal, path in enumerate(start.known):
            if path not in end.known:
                self._note_switched_off(schema_histories(start.schemas, self._connection.dialect)[path].newest, ordinal)

    def _note_newly_captured(self, path: str, ordinal: int, table: CapturedTable) -> None:
        progress = self._end.tables.get(path)
        commit = self._end.commit if progress is None else progress.commit
        source = {"change": "CREATE", "commit_lsn": commit}
        position = Position(commit, "q", f"{ordinal:05x}")
        self._note_schema(position, source, table.schema, snapshot="true")

    def _note_altered(self, table: CapturedTable, since: str, ordinal: int) -> None:
        source, at = self._last_event(since)
        source = {"change": "ALTER", "ddl": "N/A", **source}
        position = Position(lsn.before(since), "s", f"{ordinal:05x}")
        self._note_schema(position, source, table.schema, event_time=at)

    def _note_switched_off(self, table: CapturedTable, ordinal: int) -> None:
        source, at = self._last_event(lsn.after(self._end.commit))
        source = {"change": "DROP", "ddl": "N/A", **source}
        position = Position(self._end.commit, "s", f"{ordinal:05x}")
        self._note_schema(position, source, table.schema, event_time=at)

    def _note_empty(self) -> None:
        for path, position in found_empty(self._start, self._end):
            source = {"commit_lsn": position.commit}
            table = self._histories[path].newest.schema
            self._note_schema(position, source, table, snapshot=LAST_OF_TABLE)

    def _note_ends(self) -> None:
        newest = {path: history.newest for path, history in self._histories.items()}
        self._markers += end_markers(self._start, self._end, self._connection.dialect.connector, newest)

    def _note_gaps(self) -> None:
        for path, (after, oldest) in self._end.gaps.items():
            if self._start.gaps.get(path) != (after, oldest):
                table = self._histories[path].newest.id
                self._note_gap(table, after, lsn.before(oldest), self._why_lost(path))

    def _why_lost(self, path: str) -> str:
        if self._end.skipped.get(path) != self._start.skipped.get(path):
            return "a repair skipped them"
        if self._restored:
            return "the database was restored"
        return "the table was not captured" if self._returned(path) else "they were cleaned on the server"

    def _returned(self, path: str) -> bool:
        """Whether this batch takes in a table that was not captured for a time."""
        gap, progress = self._end.gaps.get(path), self._end.tables.get(path)
        if gap is None or progress is None or gap == self._start.gaps.get(path) or self._restored:
            return False
        _, oldest = gap
        return oldest == lsn.after(progress.commit)

    def _note_gap(self, table: TableId, after: str, upto: str, why: str) -> None:
        self._note(
            Operation.GAP,
            Position(after, "s", "g"),
            {"from_lsn": lsn.after(after), "to_lsn": upto, "commit_lsn": after},
            table=table,
            error=f"Changes of table '{table.path}' from LSN {lsn.after(after)} to {upto} are lost: {why}.",
        )

    def _note_heartbeat(self) -> None:
        if self._end.heartbeat != self._start.heartbeat and self._end.heartbeat is not None:
            self._note(
                Operation.HEARTBEAT,
                Position(self._end.commit, "z"),
                {"commit_lsn": self._end.commit},
                event_time=self._end.commit_time,
                capture_time=self._end.heartbeat,
            )

    def _last_event(self, before: str) -> tuple[dict[str, str], Any]:
        """The last event of a captured table in a commit before an LSN, and when it was committed.

        Searched in a few commits only; the commit alone where there is none.
        """
        rows = self._connection.rows(self._statements.TRANSACTIONS_BEFORE, (_COMMITS_BACK, lsn.to_bytes(before)))
        server = CommitClock(self._connection, self._end.clock or "+00:00")
        for start_lsn, ended, begun in rows:
            commit = lsn.read(start_lsn)
            at = server.end(commit, ended)
            if self._settings.get("commit_time", "end") == "begin":
                at = server.begin(begun, at)
            event = self._event_of(commit)
            if event is not None:
                change, serial = event
                return {"commit_lsn": commit, "change_lsn": change, "event_serial_no": str(serial)}, at
        return {"commit_lsn": lsn.before(before)}, None

    def _event_of(self, commit: str) -> tuple[str, int] | None:
        """The last event of a commit: its sequence value, and how many rows of it there were."""
        windows = [
            window
            for path in self._end.known
            for window in self._histories[path].windows(lsn.before(commit), commit)
            if window.table.instance.object_id
        ]
        last: tuple[tuple[int, str, int], str] | None = None
        for window in self._changed(self._still(windows)):
            instance = window.table.instance
            sql = self._statements.last_change(instance.name, instance.has_command_id)
            for command, change, operation in self._connection.rows(sql, (lsn.to_bytes(commit),)):
                order = (int(command or 0), lsn.read(change), int(operation))
                if last is None or order > last[0]:
                    last = (order, instance.name)
        if last is None:
            return None
        change = last[0][1]
        count = self._connection.value(
            self._statements.rows_of_change(last[1]), (lsn.to_bytes(commit), lsn.to_bytes(change))
        )
        return change, int(count)

    def _still(self, windows: Sequence[Window]) -> list[Window]:
        try:
            there = {int(number) for _, number, _ in self._connection.rows(self._statements.INSTANCES)}
        except MissingObject:
            return []
        return [window for window in windows if window.table.instance.object_id in there]
