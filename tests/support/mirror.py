"""A mirror that replays change rows, and a history in which batches are read while changes are made."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from headrace.changes import TableSchema, arrow_schema
from headrace.changes.position import ADDED_COLUMNS, READ_AGAIN_FROM
from headrace.changes.row import SNAPSHOT_ENDS
from headrace.sources.base import Limit, Source
from headrace.testing.sources import SourceRun

Line = tuple[str | None, ...]
Held = tuple[Sequence[str], Iterable[Line]]
"""The columns and the rows of a table, as a database holds them."""


class Making(Protocol):
    """What makes changes."""

    rows: int
    """How many rows were changed."""

    def step(self, rows: int) -> None:
        """One transaction of about so many rows."""


def read_beside(
    make: Callable[[], Source], made: Making, mirror: Mirror, *, rows: int, transaction: int, seed: int
) -> int:
    """Let changes be made and batches be read in turn until so many rows were changed and all is in the mirror.

    Some batches are read a second time, by a process that knows nothing, and some processes end.

    Returns:
        How many batches there were.
    """
    moments = random.Random(seed)
    run, batches = SourceRun(make), 0
    while made.rows < rows:
        for _ in range(moments.randrange(40)):
            made.step(transaction)
        batches += _batch(run, mirror, make if moments.random() < 0.1 else None)
        if moments.random() < 0.05:
            run.source = make()
    while _batch(run, mirror, None):
        batches += 1
    return batches


def _batch(run: SourceRun, mirror: Mirror, again: Callable[[], Source] | None) -> bool:
    start = run.offset
    end = run.source.advance(start, Limit(), dt.datetime.now(dt.UTC))
    if end == start:
        return False
    run.source.acknowledge(start)
    found = pa.Table.from_batches(run.read(start, end), arrow_schema())
    if again and not start.is_nothing and start.is_level and end.is_level:
        run.source = again()
        assert pa.Table.from_batches(run.read(start, end), arrow_schema()).equals(found)
    mirror.take(found.to_batches())
    run.offset = end
    return True


class Mirror:
    """The tables as change rows leave them, each key's row as a mirror would have it.

    Args:
        keys: the key columns by table; a table without keeps equal rows apart by counting them.
    """

    def __init__(self, keys: Mapping[str, tuple[str, ...]]) -> None:
        self._keys = keys
        self._held: dict[str, dict[Any, tuple[str, dict[str, str | None]]]] = {table: {} for table in keys}
        # The changes whose structure lacks a column that rows from before have, with its name.
        self._lacks: dict[str, set[tuple[str, str]]] = {table: set() for table in keys}
        # The positions of equal rows, for tables without a key.
        self._equal: dict[str, defaultdict[Any, list[str]]] = {
            table: defaultdict(list) for table, key in keys.items() if not key
        }

    def take(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Replay the rows of a batch of the pipeline in the order of their positions."""
        columns = ["op", "table", "before", "after", "position", "snapshot", "source", "schema_id", "table_schema"]
        found = [row for batch in batches for row in batch.select(columns).to_pylist()]
        self.replay(found)

    def replay(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """The same for rows as dictionaries."""
        rows = list(rows)
        lacked = self._given_old_values(rows)
        rows = [{**row, "lacked": lacked.get(row["schema_id"], {})} for row in rows]
        for row in sorted(rows, key=lambda row: row["position"]):
            table = row["table"]["name"] if row["table"] else None
            if table in self._keys:
                self._take(table, row)

    def _given_old_values(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str | None]]:
        """The values that rows of the batch have in columns which their structure lacks, by `schema_id`; rows without a
        key that are there have them now.
        """
        schemas = {row["schema_id"]: TableSchema.from_text(row["table_schema"]) for row in rows if row["table_schema"]}
        found: dict[str, dict[str, str | None]] = {}
        for row in rows:
            told = _told(row)
            for id, schema in schemas.items() if told else ():
                if schema.id.name == row["table"]["name"]:
                    have = {column.name for column in schema.columns}
                    found[id] = {name: text for name, (text, _) in told.items() if name not in have}
            if told and row["table"]["name"] in self._equal:
                held = self._equal[row["table"]["name"]]
                for line in list(held):
                    new = {name: text for name, (text, before) in told.items() if before}
                    held[tuple(sorted({**dict(line), **new}.items()))] += held.pop(line)
        return found

    def _take(self, table: str, row: Mapping[str, Any]) -> None:
        op, key = row["op"], self._keys[table]
        before = dict(row["before"]) if row["before"] is not None else {}
        after = dict(row["after"]) if row["after"] is not None else {}
        if op == "t":
            self._held[table].clear()
            if not key:
                self._equal[table].clear()
        elif op in ("r", "c", "u", "d"):
            if not key:
                old = row["lacked"]
                self._count(table, op, before and {**old, **before}, after and {**old, **after}, row["position"])
            else:
                self._keep(table, op, before, after, row["position"])
                self._lacks[table] |= {(row["position"], name) for name in row["lacked"]}
        for name, (text, before) in _told(row).items():
            for place, image in self._held[table].values():
                # What is as new as the batch has it of itself, or the structure of its last change lacks it.
                is_old = place < before or (place, name) in self._lacks[table] or name not in image
                image[name] = text if is_old else image[name]
        since = dict(row["source"] or ()).get(READ_AGAIN_FROM) if op == "schema" else None
        if row["snapshot"] in SNAPSHOT_ENDS or since is not None:
            begun = since or row["position"].partition("/")[0]
            held = self._held[table]
            self._held[table] = {k: kept for k, kept in held.items() if kept[0] >= begun}
            for places in self._equal[table].values() if not key else ():
                places[:] = [place for place in places if place >= begun]

    def _keep(self, table: str, op: str, before: dict[str, Any], after: dict[str, Any], position: str) -> None:
        names, held = self._keys[table], self._held[table]
        old = tuple(before[name] for name in names) if all(name in before for name in names) else None
        if op == "d":
            assert old is not None, (table, before)
            held.pop(old, None)
            return
        new = tuple(after[name] for name in names)
        known = held.pop(old, None) if op == "u" and old is not None else held.get(new)
        merged = {**(known[1] if op == "u" and known else {}), **(before if op == "u" else {}), **after}
        held[new] = (position, merged)

    def _count(self, table: str, op: str, before: dict[str, Any], after: dict[str, Any], position: str) -> None:
        equal = self._equal[table]
        if op in ("u", "d"):
            places = equal[tuple(sorted(before.items()))]
            assert places, f"{table}: a row that is changed was never there"
            places.pop(0)
        if op != "d":
            equal[tuple(sorted({**before, **after}.items()))].append(position)

    def rows(self, table: str) -> Iterable[Mapping[str, str | None]]:
        """What the table holds, in no order."""
        if self._keys[table]:
            return [row for _, row in self._held[table].values()]
        return [dict(row) for row, places in self._equal[table].items() for _ in places]

    def differences(self, truth: Mapping[str, Held]) -> dict[str, tuple[list[Line], list[Line]]]:
        """For each table that is not as it should be: some rows that it lacks, and some that only it has.

        A column that a row never had is null.
        """
        found = {}
        for table, (names, rows) in truth.items():
            theirs = Counter(rows)
            ours = Counter(tuple(row.get(name) for name in names) for row in self.rows(table))
            if theirs != ours:
                found[table] = (list((theirs - ours).elements())[:5], list((ours - theirs).elements())[:5])
        return found


def _told(row: Mapping[str, Any]) -> dict[str, tuple[str | None, str]]:
    """The values of columns that were added, with the position before which rows have them."""
    text = dict(row["source"] or ()).get(ADDED_COLUMNS) if row["op"] == "schema" else None
    return {} if text is None else json.loads(text)
