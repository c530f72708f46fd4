"""Every pair of format and target: any history, written in the format and read again, leaves what the plain model has.

A history is that of a small database: tables with a key, with a key of two columns and without one, a snapshot, then
changes of every kind, and columns that are added. It goes in batches through `encode` and `decode` into a sink, some of
them again. What a format has no place for stands in its list of features, and is left out of the history by that list:
partial images, truncates, bytes. A format that says no types is given the structures, as its users give them.

The short suite has each format once and each target at least once, with a fixed seed. `make soak` has all pairs, with
seeds of its own; `HEADRACE_TEST_SEED` repeats one.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from change_history import Batch, Model
from tests.formats.column_values import random_text
from tests.formats.test_any_to_any import FORMATS, Way, as_messages, features
from tests.sinks.databases import KINDS, fresh_database, serving
from tests.sinks.test_delta import DeltaTarget
from tests.sinks.test_iceberg import IcebergTarget
from tests.sinks.test_jdbc import JdbcTarget
from tests.sinks.test_memory import MemoryTarget

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.formats.convert import format_named, read
from headrace.formats.features import Feature
from headrace.sinks.base import BatchId
from headrace.sinks.memory import MemorySink

COLUMNS = [
    ("id", "int32", "int"),
    ("part", "string", "varchar(20)"),
    ("amount", "decimal(12,2)", "decimal(12,2)"),
    ("huge", "decimal(38,10)", "decimal(38,10)"),
    ("day", "date", "date"),
    ("made", "timestamp(6)", "datetime(6)"),
    ("note", "string", "longtext"),
    ("picture", "bytes", "blob"),
]
ADDED = [("extra", "decimal(9,3)", "decimal(9,3)"), ("remark", "string", "varchar(50)")]
KEYS = {"orders": ("id",), "lines": ("part", "id"), "events": ()}
PARTS = ["a", "A", "\u00e4", "a b", "q'\"\\"]
"""Keys that a careless comparison takes for one another."""
ABSENT_KINDS = {"debezium_avro": ("string", "bytes")}
"""Where a format tells only columns of some types that an image does not carry: Avro has a placeholder for these."""
TARGETS = ["delta", "iceberg", "postgresql", "mariadb", "memory"]
_SERVERS = {param.values[0]: param.marks for param in KINDS}
SHORT = [(format, TARGETS[number % len(TARGETS)]) for number, format in enumerate(FORMATS)]
ALL = [(format, target) for format in FORMATS for target in TARGETS]


def pairs(found: list[tuple[str, str]]) -> list[Any]:
    """As parameters; a database server that the machine lacks is a declared gap."""
    return [pytest.param(*pair, marks=_SERVERS.get(pair[1], ()), id="-".join(pair)) for pair in found]


class History:
    """A source database with a random course of events, and the model of its tables.

    Args:
        seed: decides everything.
        kept: what the format can carry.
        tables: their names.
        absent: the kinds of columns that a partial image may lack; None for all.
    """

    def __init__(
        self, seed: int, kept: frozenset[Feature], tables: list[str], absent: tuple[str, ...] | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.absent = absent
        self.kept = kept
        self.schemas = {name: self._schema(name, COLUMNS) for name in tables}
        self.rows: dict[str, list[dict[str, str | None]]] = {name: [] for name in tables}
        self.models = {name: Model(schema) for name, schema in self.schemas.items()}
        self.at = 0
        self.batch = Batch()

    def _schema(self, name: str, columns: list[tuple[str, str, str]]) -> TableSchema:
        key = KEYS[name]
        made = [
            Column(n, i, LogicalType.parse(kind), native, nullable=n not in key)
            for i, (n, kind, native) in enumerate(columns, 1)
            if kind != "bytes" or Feature.BYTES in self.kept
        ]
        return TableSchema(TableId("shop", "dbo", name), tuple(made), key)

    def snapshot(self, size: int) -> Batch:
        """The rows that are there at the beginning, as reads."""
        batch = self._begin()
        for name in self.schemas:
            for _ in range(size):
                row = self._new(name)
                if row is not None:
                    self._tell("r", name, row)
        return self._end(batch)

    def changes(self, steps: int, adding: str | None = None) -> Batch:
        """A batch of changes; one table gets a column, in the middle where the format tells structures."""
        batch = self._begin()
        for step in range(steps):
            if adding is not None and step == (steps // 2 if Feature.TYPES in self.kept else 0):
                self._add_column(adding)
            self._change(self.rng.choice(list(self.schemas)))
        return self._end(batch)

    def _begin(self) -> Batch:
        self.batch = Batch()
        for schema in self.schemas.values():
            self.at += 1
            self.batch.structure(schema, self.at)
        return self.batch

    def _end(self, batch: Batch) -> Batch:
        for name, model in self.models.items():
            model.schema = self.schemas[name]
            for row in model.keyed.values():
                row |= {column.name: row.get(column.name) for column in model.schema.columns}
            width = len(model.schema.columns)
            model.bag = [(at, (*row, *[None] * (width - len(row)))) for at, row in model.bag]
            model.apply(line for line in batch.lines if line["table"]["name"] == name)
        return batch

    def _tell(self, op: str, name: str, after: Any, before: Any = None) -> None:
        self.at += 1
        moment = dt.datetime(2024, 2, 29, 23, 59, 58, tzinfo=dt.UTC) + dt.timedelta(milliseconds=self.at)
        self.batch.add(op, self.schemas[name], self.at, after, before, snapshot="true" if op == "r" else None)
        self.batch.lines[-1] |= {"event_time": moment, "capture_time": moment, "source": {"connector": "mysql"}}

    def _value(self, column: Column) -> str | None:
        if column.name == "part":
            return self.rng.choice(PARTS)
        if column.name == "id":
            return str(self.rng.randrange(-3, 60))
        return None if self.rng.random() < 0.15 else random_text(column.logical, self.rng)

    def _new(self, name: str) -> dict[str, str | None] | None:
        """A new row; None where its key is taken."""
        schema = self.schemas[name]
        row = {column.name: self._value(column) for column in schema.columns}
        if schema.key and any(all(row[k] == other[k] for k in schema.key) for other in self.rows[name]):
            return None
        self.rows[name].append(row)
        return row

    def _change(self, name: str) -> None:
        rows, schema, rng = self.rows[name], self.schemas[name], self.rng
        what = rng.choice(["new"] * 4 + ["update"] * 5 + ["partial"] * 3 + ["move"] * 2 + ["delete"] * 3)
        if rng.random() < 0.01 and Feature.TRUNCATE in self.kept:
            rows.clear()
            self._tell("t", name, None)
        elif what == "new" or not rows:
            row = self._new(name)
            if row is not None:
                self._tell("c", name, row)
        elif what == "delete":
            row = rows.pop(rng.randrange(len(rows)))
            self._tell("d", name, None, row)
            if rng.random() < 0.3:
                # The same key again at once.
                rows.append({**self._drawn(name), **{k: row[k] for k in schema.key}})
                self._tell("c", name, rows[-1])
        elif what == "move" and schema.key:
            number = rng.randrange(len(rows))
            moved = {**rows[number], **{k: self._value(schema.column(k)) for k in schema.key}}
            if not any(all(moved[k] == other[k] for k in schema.key) for other in rows):
                self._tell("u", name, moved, rows[number])
                rows[number] = moved
        else:
            self._update(name, partial=what == "partial")

    def _drawn(self, name: str) -> dict[str, str | None]:
        return {column.name: self._value(column) for column in self.schemas[name].columns}

    def _update(self, name: str, *, partial: bool) -> None:
        rows, schema, rng = self.rows[name], self.schemas[name], self.rng
        number = rng.randrange(len(rows))
        old, new = rows[number], self._drawn(name)
        rest = [column.name for column in schema.columns if column.name not in schema.key]
        changed = set(rng.sample(rest, rng.randrange(1, 4)))
        rows[number] = {n: new[n] if n in changed else value for n, value in old.items()}
        if not (partial and schema.key and Feature.ABSENT in self.kept):
            self._tell("u", name, rows[number], old)
            return
        whole = {c.name for c in schema.columns if self.absent is not None and c.logical.kind not in self.absent}
        told = {*schema.key, *changed, *whole}
        before = {n: value for n, value in old.items() if n in told}
        self._tell("u", name, {n: value for n, value in rows[number].items() if n in told}, before)

    def _add_column(self, name: str) -> None:
        known = {column.name for column in self.schemas[name].columns}
        rest = [column for column in ADDED if column[0] not in known]
        if rest:
            old = self.schemas[name]
            n, kind, native = rest[0]
            new = Column(n, len(old.columns) + 1, LogicalType.parse(kind), native)
            self.schemas[name] = TableSchema(old.id, (*old.columns, new), old.key)
            self.rows[name] = [{**row, n: None} for row in self.rows[name]]
            self.at += 1
            self.batch.structure(self.schemas[name], self.at)


class Feed:
    """A format as the way from a history to a sink.

    Qlik's Avro goes in its envelope, because the schemas of a registry do not tell keys.

    Args:
        way: encodes and decodes.
        format: the format's name.
    """

    def __init__(self, way: Way, format: str) -> None:
        self.way = way
        self.format = format
        self.kept = features(format)
        self.offset = 0

    def sent(self, batch: Batch, schemas: list[TableSchema], spark: Any) -> Any:
        """A batch's rows as they come out of the format, persisted."""
        messages = as_messages(self.way.encode(batch.rows(spark), self.format), first=self.offset)
        self.offset += 1_000_000
        if Feature.TYPES in self.kept:
            rows = self.way.decode(messages, self.format, on_error="fail")
        else:
            given = [TableSchema(self.named(s.id.name), s.columns, s.key) for s in schemas]
            # As a pipeline reads: with the given structures in front.
            rows = read(format_named(self.format, {"schema": given}), messages)
        return rows.persist()

    def named(self, table: str) -> TableId:
        """A table of the history as the format names it."""
        database = "shop" if Feature.DATABASE in self.kept else ""
        return TableId(database, "dbo" if Feature.SCHEMA_NAME in self.kept else "", table)


def meaning(value: Any) -> Any:
    """A cell in a form in which drivers agree."""
    if isinstance(value, int | Decimal):
        return Decimal(value).normalize()
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def expected(model: Model) -> list[Any]:
    kinds = [column.logical for column in model.schema.columns]
    rows = (
        tuple(None if text is None else meaning(kind.from_text(text)) for kind, text in zip(kinds, row, strict=True))
        for row in model.content()
    )
    return sorted(rows, key=repr)


def content(target: Any, schema: TableSchema) -> list[Any]:
    if isinstance(target, DeltaTarget | IcebergTarget):
        rows = target.sink().now(target.spark, schema)
        found = [] if rows is None else [tuple(row) for row in rows.collect()]
    else:
        found = target.content(schema)
    return sorted((tuple(map(meaning, row)) for row in found), key=repr)


@pytest.fixture(scope="module")
def way() -> Iterator[Way]:
    from headrace.testing.schema_registry import SchemaRegistryServer

    with SchemaRegistryServer(level="NONE") as server:
        made = Way(server.url)
        del made.registry["qlik_avro"]
        yield made


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Any]]:
    """Database servers, started when they are first asked for."""

    class Started(dict[str, Any]):
        def __missing__(self, kind: str) -> Any:
            self[kind] = held.enter_context(serving(kind))
            return self[kind]

    with ExitStack() as held:
        yield Started()


def made_target(kind: str, spark: Any, folder: Path, servers: dict[str, Any]) -> Any:
    if kind == "delta":
        return DeltaTarget(spark, folder / "lake")
    if kind == "iceberg":
        return IcebergTarget(spark, folder / "lake")
    if kind == "memory":
        return MemoryTarget(spark)
    return JdbcTarget(spark, fresh_database(kind, servers[kind]))


def carried(feed: Feed, target: Any, seed: int, tables: list[str], *, batches: int, steps: int) -> None:
    """Send a history through the feed into the target; after each batch the target holds what the model has."""
    history = History(seed, feed.kept, tables, ABSENT_KINDS.get(feed.format))
    for number in range(batches):
        adding = tables[number % len(tables)] if number else None
        batch = history.changes(steps, adding) if number else history.snapshot(steps // 6)
        rows = feed.sent(batch, list(history.schemas.values()), target.spark)
        try:
            for _ in range(1 + number % 2):
                target.sink().write(rows, BatchId("pair", "checkpoint", number))
            for name, model in history.models.items():
                id = feed.named(name)
                schema = TableSchema(id, history.schemas[name].columns, KEYS[name])
                found, wanted = content(target, schema), expected(model)
                missing = [row for row in wanted if row not in found][:3]
                extra = [row for row in found if row not in wanted][:3]
                assert found == wanted, f"seed {seed}, batch {number}, {name}: missing {missing}, extra {extra}"
        finally:
            rows.unpersist()
    if isinstance(target, MemoryTarget):
        MemorySink.forget(target.name)


@pytest.mark.parametrize(("format", "target"), pairs(SHORT))
def test_a_history_through_a_format_into_a_target_is_what_the_model_has(
    spark: Any, way: Way, servers: dict[str, Any], tmp_path: Path, format: str, target: str
) -> None:
    feed = Feed(way, format)
    # Two of the three tables, in turn: each costs commits of its own.
    tables = [name for number, name in enumerate(KEYS) if number != FORMATS.index(format) % len(KEYS)]
    carried(feed, made_target(target, spark, tmp_path, servers), 6, tables, batches=2, steps=120)


@pytest.mark.soak
@pytest.mark.parametrize(("format", "target"), pairs(ALL))
def test_many_histories_through_every_format_into_every_target(
    spark: Any, way: Way, servers: dict[str, Any], tmp_path: Path, format: str, target: str
) -> None:
    given = os.environ.get("HEADRACE_TEST_SEED")
    for number in range(1 if given else 3):
        seed = int(given) if given else random.SystemRandom().randrange(2**32)
        print(f"HEADRACE_TEST_SEED={seed}")
        made = made_target(target, spark, tmp_path / str(number), servers)
        carried(Feed(way, format), made, seed, list(KEYS), batches=5, steps=200)
