"""Random changes of several tables of a sink, with a way at random for each batch of each, beside a plain model."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from tests.support.lake_mirror import Mirror

from headrace.changes import TableSchema
from headrace.changes.table_files import WRITTEN, WRITTEN_ROWS
from headrace.changes.typed import literal
from headrace.sinks.base import BatchId
from headrace.sinks.lake import collected, indexed
from headrace.sinks.lake.key_index import Bounded
from headrace.testing.change_history import Batch, Model, pos, table

WIDE = {"a": "string", "n": "int32", "day": "date", "amount": "decimal(9,2)"}
CELLS: dict[str, list[str | None]] = {
    "a": ["", "EU", "O'Hara \"\\\n", "null", "\U0001f600" * 9, None],
    "n": ["-2147483648", "0", "7", None],
    "day": ["0001-01-01", "1969-12-31", "9999-12-31", None],
    "amount": ["-0.05", "10.65", None],
}
ODD = "a, (b)=c;d"
"""A name for which Delta needs column mapping."""
TABLES = [
    table("one", id="int64", **WIDE),
    table("two", key=("id", "code"), id="int32", code="string", **WIDE, **{ODD: "string"}),
    table("text", key=("code",), code="string", **WIDE),
    table("parted", **{"i d": "int64", "re;gion": "string"}, key=("i d",), **WIDE),
]
CODES = ["a", "b/c d", "é", "A", "a "]
MEMORY = [0, 1_200, 100 << 20]
"""None for an index, enough for the indexes of one or two tables, and enough for all."""


class Tables:
    """The tables of a sink, and what they must hold."""

    def __init__(self, mirror: Mirror, some: random.Random) -> None:
        self.mirror, self.some = mirror, some
        self.models = {schema.id.name: Model(schema) for schema in TABLES}
        self.at = 0
        self.changes = 0
        self.said: list[str] = []

    def image(self, schema: TableSchema, number: int) -> dict[str, str | None]:
        some = self.some
        cells: dict[str, str | None] = {name: some.choice(texts) for name, texts in CELLS.items()}
        names = [column.name for column in schema.columns]
        found = {
            **cells,
            "id": str(number),
            "i d": str(number),
            ODD: some.choice(["", "x", None]),
            "code": CODES[number % len(CODES)] + "x" * (number // len(CODES)),
        }
        found["re;gion"] = some.choice(["EU", "a/b=c%20", "US", None])
        return {name: found[name] for name in names}

    def read(self, count: int) -> None:
        """Read all tables for the first time, in chunks that one task writes into files or Spark appends."""
        rows = {schema.id.name: [self.image(schema, number) for number in range(count)] for schema in TABLES}
        chunks = 3
        for chunk in range(chunks):
            batch, model, files = Batch(), Batch(), self._files()
            for schema in TABLES:
                some = rows[schema.id.name][chunk::chunks]
                for image in some:
                    model.add("r", schema, 1, image, snapshot="true")
                self._add_chunk(batch, schema, some, files)
            self.bring(batch, model)

    def _files(self) -> Any:
        batch = BatchId("p", "checkpoint", self.mirror.number)
        wanted = [schema for schema in TABLES if self.some.random() < 0.6]
        return self.mirror.kept.table_files(self.mirror.spark, wanted, batch)[0] if wanted else None

    def _add_chunk(self, batch: Batch, schema: TableSchema, rows: list[dict[str, str | None]], files: Any) -> None:
        file = None if files is None else files.file(schema)
        texts = [pa.array([row[column.name] for row in rows], pa.string()) for column in schema.columns]
        if file is None or not file.write(texts, pos(1)):
            batch.structure(schema)
            for image in rows:
                batch.add("r", schema, 1, image, snapshot="true")
            return
        written = file.close()
        source = {"connector": "postgresql", WRITTEN: written.to_text(), WRITTEN_ROWS: str(written.rows)}
        batch._add("schema", schema, 1, source=source, table_schema=schema.to_text())

    def change(self, sizes: Sequence[tuple[int, int]]) -> None:
        """A batch of changes of some tables, of one of these sizes: up to how many changes a table has, of how many
        rows."""
        some, batch = self.some, Batch()
        most, rows = some.choice(sizes)
        for schema in TABLES:
            if some.random() < 0.3:
                continue
            batch.structure(schema)
            model = self.models[schema.id.name]
            for _ in range(some.randrange(1, most)):
                self.at += 1
                self._change(batch, model, schema, rows)
        self.bring(batch, batch)
        if some.random() < 0.3:
            self.meddle()

    def _change(self, batch: Batch, model: Model, schema: TableSchema, rows: int) -> None:
        some, at = self.some, self.at + 10
        image = self.image(schema, some.randrange(rows))
        lines = len(batch.lines)
        if some.random() < 0.3:
            batch.add("d", schema, at, before=image)
        else:
            batch.add(some.choice("uc"), schema, at, image)
        self.changes += len(batch.lines) - lines

    def meddle(self) -> None:
        """Somebody else does something to one table that a reader can see, or not."""
        some = self.some
        schema = some.choice(TABLES)
        held = self.models[schema.id.name].keyed
        if not held:
            return
        key = some.choice(list(held))
        here = " and ".join(f"`{name}` = {literal(str(text))}" for name, text in zip(schema.key, key, strict=True))
        image = self.image(schema, some.randrange(100, 120))
        column = some.choice(["a", "n", *sorted({ODD, "re;gion"} & {*image})])
        new = tuple(image[name] for name in schema.key)
        kinds = {c.name: c.logical.spark_type for c in schema.columns}
        values = {
            name: "null" if text is None else f"cast({literal(text)} as {kinds[name]})" for name, text in image.items()
        }
        # What others write has no position.
        values["_headrace_position"] = "cast(null as string)"
        if (what := some.randrange(7)) == 0:
            self._say("delete from {} where " + here, schema)
            del held[key]
        elif what == 1:
            self._say(f"update {{}} set `{column}` = {values[column]} where {here}", schema)
            held[key][column] = image[column]
        elif what == 2:
            # Rows that are rewritten, or marked and written anew, as they were.
            self._say(f"update {{}} set `{column}` = `{column}` where n is null or a = ''", schema)
        elif what == 3:
            named = ", ".join(f"{value} as `{name}`" for name, value in values.items())
            same = " and ".join(f"t.`{name}` = s.`{name}`" for name in schema.key)
            names, of = ", ".join(f"`{name}`" for name in values), ", ".join(f"s.`{name}`" for name in values)
            self._say(
                f"merge into {{}} t using (select {named}) s on {same} when matched then update set t.a = s.a "
                f"when not matched then insert ({names}) values ({of})",
                schema,
            )
            if new in held:
                held[new]["a"] = image["a"]
            else:
                held[new] = dict(image)
        elif what == 4:
            self.said.append(f"compact {schema.id.name}")
            self.mirror.compact(schema)
        elif what == 5:
            self.said.append(f"forget {schema.id.name}")
            self.mirror.forget(schema)
        elif new not in held:
            names = ", ".join(f"`{name}`" for name in values)
            self._say(f"insert into {{}} ({names}) values ({', '.join(values.values())})", schema)
            held[new] = dict(image)

    def _say(self, statement: str, schema: TableSchema) -> None:
        self.said.append(f"{statement} -- {schema.id.name}")
        self.mirror.sql(statement, schema)

    def bring(self, batch: Batch, model: Batch) -> None:
        some, mirror = self.some, self.mirror
        with self._ways():
            mirror.bring(batch)
        if some.random() < 0.1:
            # It comes again, as after a crash.
            mirror.number -= 1
            with self._ways():
                mirror.bring(batch)
        for found in self.models.values():
            found.apply(line for line in model.lines if line["table"]["name"] == found.schema.id.name)
        if some.random() < 0.05:
            number, self.mirror = mirror.number, mirror.successor()
            self.mirror.number = number

    @contextmanager
    def _ways(self) -> Iterator[None]:
        some, kept = self.some, self.mirror.kept
        known, by_driver, young = kept._indexes, collected.MOST, indexed.YOUNG
        kept._indexes = known if some.random() < 0.5 else Bounded(some.choice(MEMORY))
        collected.MOST, indexed.YOUNG = some.choice([by_driver, by_driver, 0]), some.choice([2, 5, 32])
        try:
            yield
        finally:
            collected.MOST, indexed.YOUNG = by_driver, young

    def differing(self) -> list[str]:
        """The tables that do not hold what they must."""
        found = []
        for name, model in self.models.items():
            schema = model.schema
            names = ", ".join(f"cast(`{column.name}` as string)" for column in schema.columns)
            rows = [tuple(row) for row in self.mirror.read_table(schema).selectExpr(f"array({names}) as v").collect()]
            held = sorted((tuple(row[0]) for row in rows), key=repr)
            if held != model.content():
                found.append(name)
        return found


def run(tables: Tables, changes: int, sizes: Sequence[tuple[int, int]]) -> None:
    """Read all tables, and make changes until there are so many. What the tables hold is looked at in between."""
    tables.read(30)
    assert tables.differing() == []
    looked = 0
    while tables.changes < changes:
        tables.change(sizes)
        looked += 1
        if looked % 10 == 0:
            assert tables.differing() == [], f"after {tables.changes} changes and {tables.said[-9:]}"
    assert tables.differing() == []
