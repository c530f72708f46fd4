"""Change rows by hand, and the plain Python model of what a table holds after them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.position import ADDED_COLUMNS, READ_AGAIN_FROM
from headrace.changes.row import spark_schema
from headrace.changes.texts import key_text
from headrace.spark.local_rows import local_rows

Image = Mapping[str, str | None]
_schema = cache(spark_schema)


def table(name: str = "t", key: tuple[str, ...] = ("id",), database: str = "db", **columns: str) -> TableSchema:
    """A table with these columns (name to logical type); without any, `id`, `a` and `b`."""
    columns = columns or {"id": "int32", "a": "string", "b": "string"}
    return schema_of(TableId(database, "dbo", name), columns, key)


def schema_of(id: TableId, columns: Mapping[str, str], key: tuple[str, ...]) -> TableSchema:
    """A table of any name with these columns."""
    typed = tuple(
        Column(n, i, LogicalType.parse(t), nullable=n not in key) for i, (n, t) in enumerate(columns.items(), 1)
    )
    return TableSchema(id, typed, key)


def pos(n: int | str) -> str:
    """A number as a position; a position as it is."""
    return f"{n:08}//" if isinstance(n, int) else n


class Batch:
    """Change rows of one batch, built one by one; `rows(spark)` is the DataFrame in a scrambled order."""

    def __init__(self, *schemas: TableSchema) -> None:
        self.lines: list[dict[str, Any]] = []
        for schema in schemas:
            self.structure(schema)

    def structure(self, schema: TableSchema, at: int | str = 0, snapshot: str | None = None) -> Batch:
        return self._add("schema", schema, at, table_schema=schema.to_text(), snapshot=snapshot)

    def ended(self, schema: TableSchema, at: str, *, since: str) -> Batch:
        """The end of a read beside the stream that began at a position."""
        source = {"connector": "postgresql", READ_AGAIN_FROM: since}
        return self._add("schema", schema, at, source=source, table_schema=schema.to_text())

    def added(self, schema: TableSchema, at: str, before: str, **values: str | None) -> Batch:
        """The values that rows from before have in columns that were added."""
        stated = {name: [text, before] for name, text in values.items()}
        source = {"connector": "postgresql", ADDED_COLUMNS: json.dumps(stated)}
        return self._add("schema", schema, at, source=source, table_schema=schema.to_text())

    def statement(self, schema: TableSchema, at: int | str, text: str, after: TableSchema | None = None) -> Batch:
        """A DDL statement, with the structure that it leaves where the source tells it."""
        source = {"connector": "mysql", "ddl": text}
        if after is not None:
            return self._add("schema", after, at, source=source, table_schema=after.to_text())
        self._add("schema", schema, at, source=source)
        self.lines[-1]["schema_id"] = None
        return self

    def add(
        self,
        op: str,
        schema: TableSchema,
        at: int | str,
        after: Image | None = None,
        before: Image | None = None,
        snapshot: str | None = None,
    ) -> Batch:
        image = after or before or {}
        key = {name: image.get(name) for name in schema.key} if schema.key and image else None
        return self._add(op, schema, at, after=after, before=before, key=key, snapshot=snapshot)

    def _add(self, op: str, schema: TableSchema, at: int | str, **given: Any) -> Batch:
        id = schema.id
        key = given.get("key")
        self.lines.append(
            {
                "op": op,
                "table": {"database": id.database, "schema": id.schema, "name": id.name},
                "position": pos(at),
                "schema_id": schema.fingerprint,
                "key_text": key_text(list(key.values())) if key else None,
                **given,
            }
        )
        return self

    def rows(self, spark: Any) -> Any:
        # Spark reads local rows in as many partitions as it has cores: neighbours come from different ones, backwards.
        scrambled = [*self.lines[::-2], *self.lines[-2::-2]]
        return local_rows(spark, [tuple(map(line.get, _schema().names)) for line in scrambled], _schema())


def from_message(batch: Batch, topic: str, partition: int, source: dict[str, str] | None = None) -> Batch:
    """The batch, whose last change came from a message."""
    at = {"topic": topic, "partition": partition, "offset": 7, "timestamp": None}
    batch.lines[-1] |= {"message": {**at, "key": None, "value": None, "headers": None}, "source": source}
    return batch


class Model:
    """What tables hold: per key the row, or without a key how often each row is there.

    Args:
        schema: the table.
        keeps_deleted: whether rows that were deleted stay, marked by one value more in each row.
    """

    def __init__(self, schema: TableSchema, *, keeps_deleted: bool = False) -> None:
        self.schema = schema
        self.keeps_deleted = keeps_deleted
        self.deleted: dict[tuple[str | None, ...], dict[str, str | None]] = {}
        self.keyed: dict[tuple[str | None, ...], dict[str, str | None]] = {}
        self.bag: list[tuple[str, tuple[str | None, ...]]] = []
        self.changed_at: dict[tuple[str | None, ...], str] = {}

    def apply(self, lines: Iterable[Mapping[str, Any]]) -> None:
        for line in sorted(lines, key=lambda found: found["position"]):
            op, at, before, after = line["op"], line["position"], line.get("before"), line.get("after")
            if op == "t":
                self._empty(at)
            elif op in ("r", "c", "u", "d"):
                self._row(op, at, before, after)
            # Only a source's own read is known to be of the whole table, and when it began.
            if line.get("snapshot") in ("last", "last_in_data_collection") and line.get("message") is None:
                self._empty(at.partition("/")[0] + "/")
            since = dict(line.get("source") or {}).get(READ_AGAIN_FROM)
            if op == "schema" and since is not None:
                self._empty(since)

    def _empty(self, before: str) -> None:
        """What was last changed before a position is gone."""
        gone = {key: row for key, row in self.keyed.items() if self.changed_at[key] < before}
        self.deleted |= gone
        self.keyed = {key: row for key, row in self.keyed.items() if key not in gone}
        self.bag = [(at, row) for at, row in self.bag if at >= before]

    def _row(self, op: str, at: str, before: Image | None, after: Image | None) -> None:
        names = [column.name for column in self.schema.columns]
        if not self.schema.key:
            if op in ("u", "d") and before is not None:
                gone = tuple(before.get(n) for n in names)
                self.bag.remove(min(kept for kept in self.bag if kept[1] == gone))
            if op != "d" and after is not None:
                self.bag.append((at, tuple(after.get(n) for n in names)))
            return
        old = tuple((before or after or {}).get(n) for n in self.schema.key)
        row = self.keyed.pop(old, None) if op in ("u", "d") else None
        if row is not None:
            self.deleted[old] = row
        if op != "d" and after is not None:
            new = tuple(after.get(n) for n in self.schema.key)
            self.keyed[new] = {**(row or dict.fromkeys(names)), **after}
            self.changed_at[new] = at
            self.deleted.pop(new, None)

    def content(self) -> list[tuple[Any, ...]]:
        if not self.schema.key:
            return sorted((row for _, row in self.bag), key=repr)
        names = [column.name for column in self.schema.columns]
        if self.keeps_deleted:
            marked = [
                (row, gone) for rows, gone in ((self.keyed, False), (self.deleted, True)) for row in rows.values()
            ]
            return sorted(((*(row.get(n) for n in names), gone) for row, gone in marked), key=repr)
        return sorted((tuple(row[n] for n in names) for row in self.keyed.values()), key=repr)
