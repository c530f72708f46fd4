"""Folded rows by hand, brought into a target as the jdbc sink does but without Spark, and the model of a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
from tests.sinks.databases import Running

from headrace.changes import TableSchema
from headrace.sinks.base import BatchId
from headrace.sinks.jdbc.dialect import Mirror, TableName
from headrace.sinks.jdbc.target import MirrorPlan, StagedBatch, TargetProgress, TargetTables

_ARROW = {"int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "float32": pa.float32(), "bytes": pa.binary()}
POSITION = "_headrace_position"


@dataclass(frozen=True)
class Folded:
    """One folded row: `u` upsert, `p` upsert of an image that lacks columns, `d` delete, `i` insert without a key."""

    op: str
    position: str
    row: Mapping[str, Any]
    present: frozenset[str] | None = None
    occurrences: int | None = None
    since: str | None = None


def record_batch(schema: TableSchema, rows: Sequence[Folded], types: Mapping[str, Any] | None = None) -> pa.RecordBatch:
    rest = [column.name for column in schema.columns if column.name not in schema.key]
    masks = [
        None if row.present is None else "".join("1" if name in row.present else "0" for name in rest) for row in rows
    ]
    columns: dict[str, pa.Array] = {
        "o": pa.array([row.op for row in rows], pa.string()),
        "p": pa.array([row.position for row in rows], pa.string()),
        "m": pa.array(masks, pa.string()),
        "f": pa.array([row.since for row in rows], pa.string()),
        "n": pa.array([row.occurrences for row in rows], pa.int64()),
    }
    arrays = list(columns.values())
    for column in schema.columns:
        kind = (types or {}).get(column.name) or _ARROW.get(column.logical.kind, pa.string())
        arrays.append(pa.array([row.row.get(column.name) for row in rows], kind))
    return pa.RecordBatch.from_arrays(arrays, [*columns, *(f"c{n}" for n in range(len(schema.columns)))])


@dataclass
class Target:
    """The mirror of one source table in one database."""

    running: Running
    schema: TableSchema
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or self.schema.id.name

    def tables(self, connection: Any) -> tuple[TargetTables, Mirror]:
        database = self.running.at
        schema = database.default_schema(connection)
        tables = TargetTables(database, TableName(schema, "_headrace_progress"))
        return tables, Mirror(TableName(schema, self.name), self.schema, POSITION)

    def plan(self, number: int = 0, owner: str = "p", takeover: bool = False) -> MirrorPlan:
        with closing(self.running.at.connect()) as connection:
            tables, mirror = self.tables(connection)
            return tables.plan(connection, mirror, BatchId(owner, "c", number), takeover=takeover)

    def progress(self) -> TargetProgress | None:
        with closing(self.running.at.connect()) as connection:
            tables, mirror = self.tables(connection)
            return tables.read(connection, mirror.name)

    def write(
        self,
        rows: Sequence[Folded] | None,
        number: int = 0,
        *,
        owner: str = "p",
        takeover: bool = False,
        types: Mapping[str, Any] | None = None,
        strays: Sequence[Folded] = (),
        meanwhile: Callable[[], None] | None = None,
        **staged: Any,
    ) -> bool:
        """Write one batch; `strays` are rows that an attempt left behind which failed.

        `meanwhile` happens when the rows are staged and not applied.
        """
        batch = BatchId(owner, "c", number)
        with closing(self.running.at.connect()) as looking:
            tables, mirror = self.tables(looking)
            database = tables.database
            with database.connected(self.schema.id, mirror.name) as connection:
                plan = tables.plan(connection, mirror, batch, takeover=takeover)
                connection.rollback()
                tables.begin(connection, [plan], batch)

                def load() -> StagedBatch:
                    labels = []
                    with database.connected(self.schema.id, mirror.name) as loading:
                        # Two attempts that count, as of two tasks, and one that does not.
                        halves = [list(rows or ())[0::2], list(rows or ())[1::2]]
                        for half, counts in (*((half, True) for half in halves), (list(strays), False)):
                            label = uuid4().hex
                            if half:
                                database.stage(loading, mirror, label, [record_batch(self.schema, half, types)])
                            if half and counts:
                                labels.append(label)
                        loading.commit()
                    if meanwhile is not None:
                        meanwhile()
                    return StagedBatch(labels=tuple(labels), rows=len(rows or ()), **staged)

                return tables.write(connection, plan, batch, None if rows is None else load)

    def content(self) -> list[tuple[Any, ...]]:
        return self.running.content(self.name)

    def drop(self) -> None:
        quoted = self.running.quoted
        if self.running.columns("_headrace_progress"):
            self.running.run("DELETE FROM _headrace_progress")
        self.running.run(f"DROP TABLE IF EXISTS {quoted(self.name)}")


@dataclass
class Expected:
    """What a target holds, in Python: the meaning of folded rows."""

    schema: TableSchema
    rows: dict[Any, dict[str, Any]] = field(default_factory=dict)
    bag: Counter[Any] = field(default_factory=Counter)

    def write(self, folded: Sequence[Folded], truncate_at: str | None = None) -> None:
        names = [column.name for column in self.schema.columns]
        if truncate_at is not None:
            self.rows = {key: row for key, row in self.rows.items() if row[POSITION] >= truncate_at}
            self.bag.clear()
        for change in folded:
            if not self.schema.key:
                whole = tuple(change.row.get(name) for name in names)
                n = change.occurrences or 1
                self.bag[whole] = max(0, self.bag[whole] + (n if change.op == "i" else -n))
                continue
            key = tuple(change.row[name] for name in self.schema.key)
            old = self.rows.get(key)
            if old is not None and old[POSITION] >= change.position:
                continue
            if change.op == "d":
                self.rows.pop(key, None)
                continue
            full = {name: change.row.get(name) for name in names}
            if change.present is not None and old is not None:
                kept = {name: old[name] for name in names if name not in change.present and name not in key}
                full |= {name: value for name, value in kept.items() if name not in self.schema.key}
            self.rows[key] = {**full, POSITION: change.position}

    def content(self) -> list[tuple[Any, ...]]:
        if not self.schema.key:
            return sorted(self.bag.elements(), key=repr)
        names = [column.name for column in self.schema.columns]
        return sorted((tuple(row[name] for name in names) for row in self.rows.values()), key=repr)
