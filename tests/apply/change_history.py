"""Change rows by hand, and the plain Python model of what a table holds after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.key_text import key_text
from headrace.changes.row import CHANGE_ROW_DDL
from headrace.local_rows import local_rows

Image = Mapping[str, str | None]


def table(name: str = "t", key: tuple[str, ...] = ("id",), database: str = "db", **columns: str) -> TableSchema:
    columns = columns or {"id": "int32", "a": "string", "b": "string"}
    return schema_of(TableId(database, "dbo", name), columns, key)


def schema_of(id: TableId, columns: Mapping[str, str], key: tuple[str, ...]) -> TableSchema:
    made = tuple(
        Column(n, i, LogicalType.parse(t), nullable=n not in key) for i, (n, t) in enumerate(columns.items(), 1)
    )
    return TableSchema(id, made, key)


def pos(n: int | str) -> str:
    return f"{n:08}//" if isinstance(n, int) else n


class Batch:
    """Change rows of one batch, built one by one; `rows(spark)` is the DataFrame in a scrambled order."""

    def __init__(self, *schemas: TableSchema) -> None:
        self.lines: list[dict[str, Any]] = []
        for schema in schemas:
            self.structure(schema)

    def structure(self, schema: TableSchema, at: int = 0) -> Batch:
        return self._add("schema", schema, at, table_schema=schema.to_text())

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
        key = {name: image.get(name) for name in schema.key} if schema.key else None
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
        names = local_rows(spark, [], CHANGE_ROW_DDL).columns
        data = [tuple(line.get(name) for name in names) for line in reversed(self.lines)]
        return local_rows(spark, data, CHANGE_ROW_DDL).repartition(2, "position")


class Model:
    """What tables hold: per key the row, or without a key how often each row is there."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.keyed: dict[tuple[str | None, ...], dict[str, str | None]] = {}
        self.bag: Counter[tuple[str | None, ...]] = Counter()

    def apply(self, lines: Iterable[Mapping[str, Any]]) -> None:
        for line in sorted(lines, key=lambda found: found["position"]):
            op, before, after = line["op"], line.get("before"), line.get("after")
            if op == "t":
                self.keyed.clear()
                self.bag.clear()
            elif op in ("r", "c", "u", "d"):
                self._row(op, before, after)

    def _row(self, op: str, before: Image | None, after: Image | None) -> None:
        names = [column.name for column in self.schema.columns]
        if not self.schema.key:
            if op in ("u", "d") and before is not None:
                self.bag[tuple(before.get(n) for n in names)] -= 1
            if op != "d" and after is not None:
                self.bag[tuple(after.get(n) for n in names)] += 1
            return
        old = tuple((before or after or {}).get(n) for n in self.schema.key)
        row = self.keyed.pop(old, None) if op in ("u", "d") else None
        if op != "d" and after is not None:
            new = tuple(after.get(n) for n in self.schema.key)
            self.keyed[new] = {**(row or dict.fromkeys(names)), **after}

    def content(self) -> list[tuple[str | None, ...]]:
        if not self.schema.key:
            return sorted(self.bag.elements(), key=repr)
        names = [column.name for column in self.schema.columns]
        return sorted((tuple(row[n] for n in names) for row in self.keyed.values()), key=repr)
