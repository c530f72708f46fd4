"""A mirror that follows changes of structure as table sinks do: statements rename its columns, a column that went away
stays, and one that comes has no value in rows from before.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tests.support.mirror import Held, Line, Mirror

from headrace.apply.column_names import Step, names_now, steps_of
from headrace.changes import TableSchema
from headrace.sources.base import Source
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.testing.sources import SourceRun

_ZEROS = re.compile(r"(?<=\d)\.(\d*?)0+$")
"""A change of structure may add digits to a number or a time that are zeros: the same value."""


class EvolvingMirror(Mirror):
    """Keeps tables whose structure changes."""

    def __init__(self, keys: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(keys)
        self._steps: dict[str, list[Step]] = {table: [] for table in keys}

    def _take(self, table: str, row: Mapping[str, Any]) -> None:
        source = dict(row["source"] or ())
        if row["op"] == "schema" and (ddl := source.get("ddl")):
            self._steps[table] += steps_of(ddl, source.get("connector"), captured=True)
        if row["op"] == "schema" and row["table_schema"]:
            self._rename(table, [c.name for c in TableSchema.from_text(row["table_schema"]).columns])
        super()._take(table, row)

    def _rename(self, table: str, final: Sequence[str]) -> None:
        """Give columns the names that the statements since the last structure lead to."""
        steps, self._steps[table] = self._steps[table], []
        for key, (position, image) in self._held[table].items() if steps else ():
            names = names_now(list(image), steps, final, of=table)
            self._held[table][key] = (position, {names.get(name) or name: text for name, text in image.items()})

    def unequal(self, truth: Mapping[str, Held]) -> dict[str, tuple[list[Line], list[Line]]]:
        """For each table that is not as it should be: rows that it lacks, and rows that only it has."""
        found = {}
        for table, (names, rows) in truth.items():
            self._rename(table, names)
            theirs = Counter(tuple(map(_plain, row)) for row in rows)
            ours = Counter(tuple(_plain(row.get(name)) for name in names) for row in self.rows(table))
            if theirs != ours:
                found[table] = (sorted((theirs - ours), key=str)[:5], sorted((ours - theirs), key=str)[:5])
        return found


class History(Protocol):
    """What changes rows and structures."""

    def change(self) -> None:
        """A transaction of some rows."""

    def alter(self) -> None:
        """One change of a structure, or several at once."""


def follow(history: History, make: Callable[[], Source], mirror: EvolvingMirror, *, seed: int, steps: int) -> None:
    """Let changes and changes of structure be made and batches be read in turn, until all is in the mirror.

    Batches are small, some follow many changes of structure at once, and some processes end.
    """
    moments = random.Random(seed)
    run = SourceRun(make)
    _replay_all(run, mirror)
    for _ in range(steps):
        for _ in range(moments.randrange(4)):
            history.change()
        for _ in range(moments.choice([0, 1, 1, 2, 3])):
            history.alter()
            if moments.random() < 0.7:
                history.change()
        for _ in range(moments.randrange(4)):
            mirror.replay(run.batch())
        if moments.random() < 0.2:
            run.source = make()
    changes = 0
    # A statement may be in the log a moment before the catalog shows what it did, and a server that nobody writes to
    # may keep the end of its log back, behind which a table that is read again is equal.
    while changes < 2 or AdHoc.from_json(run.offset.ad_hoc).waits_for:
        changes += 1
        assert changes < 20, f"a table is not read to its end: {run.offset.ad_hoc}"
        history.change()
        _replay_all(run, mirror)


def _replay_all(run: SourceRun, mirror: EvolvingMirror) -> None:
    before = None
    while run.offset != before:
        before = run.offset
        mirror.replay(run.batch())


def _plain(text: str | None) -> str | None:
    return text if text is None else _ZEROS.sub(lambda found: f".{found[1]}" if found[1] else "", text)
