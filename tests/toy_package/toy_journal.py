"""A source: the commits that a program appends to a file, one JSON object per line.

{"commit": 7, "time": "2026-05-01T12:00:00+00:00", "changes": [{"op": "c", "before": null, "after": {"id": "1"}}]}
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.changes import Column, LogicalType, Operation, Position, TableId, TableSchema
from headrace.errors import ConnectError, DataLossError, PositionMismatch
from headrace.settings import Settings, option
from headrace.sources.base import Limit, Slice, Source
from headrace.sources.offset import Offset
from headrace.sources.rows import ChangeRow, change_rows


class JournalSettings(Settings):
    """Where the journal is, and what its table looks like."""

    path: str = option("The journal, a file.")
    columns: tuple[str, ...] = option("The columns of its table, all texts; the first one is the key.")


class Journal(Source):
    """Reads a journal. It has one table and takes no snapshot: what was there before its first line is not known."""

    name = "journal"
    settings: JournalSettings

    def tables(self, known: Collection[str] = ()) -> Sequence[TableSchema]:
        names = self.settings.columns
        columns = tuple(Column(name, n, LogicalType("string"), nullable=n > 1) for n, name in enumerate(names, 1))
        return [TableSchema(TableId("", "", Path(self.settings.path).stem), columns, names[:1])]

    def head(self) -> str:
        return _text(max((commit["commit"] for commit in self._commits()), default=0))

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        source = f"journal:{self.settings.path}"
        if start.source not in ("", source):
            raise PositionMismatch(
                f"The checkpoint belongs to '{start.source}', not to '{source}'.",
                remedy="Use the checkpoint of this journal, or a new one.",
            )
        if start.is_nothing:
            # Where there is no checkpoint, the run begins in front of the first commit that is there.
            first = min((commit["commit"] for commit in self._commits()), default=1)
            return Offset(source=source, commit=_text(first - 1), capture_time=now, initial=False)
        new = self._between(start.commit, limit.upto or "~")
        new = new[: limit.commits or None]
        if not new:
            return start
        time = dt.datetime.fromisoformat(new[-1]["time"])
        return Offset(source=source, commit=_text(new[-1]["commit"]), commit_time=time, capture_time=now, initial=False)

    def plan(self, start: Offset, end: Offset) -> list[Slice]:
        if start.is_nothing:
            return []
        # One task reads all; a source of large batches cuts them, in the order of their commits.
        facts = {"after": start.commit, "until": end.commit, "captured": str(end.capture_time)}
        return [Slice("commits", facts)]

    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        [schema] = self.tables()
        rows = [
            ChangeRow(
                Operation(change["op"]),
                schema,
                Position(_text(commit["commit"]), f"{n:08}"),
                change["before"],
                change["after"],
                dt.datetime.fromisoformat(commit["time"]),
                {"connector": "journal"},
            )
            for commit in self._between(slice.details["after"], slice.details["until"])
            for n, change in enumerate(commit["changes"])
        ]
        yield change_rows(rows, dt.datetime.fromisoformat(slice.details["captured"]))

    def _between(self, after: str, until: str) -> list[dict[str, Any]]:
        commits = self._commits()
        oldest = min((commit["commit"] for commit in commits), default=0)
        if oldest > int(after) + 1:
            raise DataLossError(
                f"The journal '{self.settings.path}' begins with commit {oldest}, and commit {int(after) + 1} is next.",
                remedy="Put the older part back, or start with a new checkpoint.",
            )
        return [commit for commit in commits if after < _text(commit["commit"]) <= until]

    def _commits(self) -> list[dict[str, Any]]:
        try:
            text = Path(self.settings.path).read_text("utf-8")
        except OSError as error:
            raise ConnectError(
                f"The journal '{self.settings.path}' can't be read: {error.strerror}.", remedy="Check the path."
            ) from error
        # What follows the last line's end is still being written.
        return [json.loads(line) for line in text.split("\n")[:-1]]


def _text(commit: int) -> str:
    """A commit as it stands in positions and offsets: texts compare as the numbers do."""
    return f"{commit:016}"
