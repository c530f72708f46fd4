"""Every pair of format and target: any history, written in the format and read again, leaves what the plain model has.

The history is a state machine of hypothesis (pair_machine.py). A format that says no types is given the structures, as
its users give them. `make test` has each format with the target in memory, `make test-all` each target, too, always the
same course. `make soak` has all pairs and new courses; what fails there prints the words that repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.sinks.databases import KINDS, fresh_database, serving
from tests.sinks.pair_machine import ABSENT_KINDS, KEYS, SmallDatabase, machine_through
from tests.support.delta_target import DeltaTarget
from tests.support.format_ways import FORMATS, Way, as_messages, features
from tests.support.iceberg_target import IcebergTarget
from tests.support.jdbc_target import JdbcTarget
from tests.support.memory_target import MemoryTarget

from headrace.changes import TableId, TableSchema
from headrace.formats.convert import format_named, read
from headrace.formats.features import Feature
from headrace.sinks.base import BatchId
from headrace.sinks.memory import MemorySink
from headrace.testing.change_history import Batch, Model

TARGETS = ["delta", "iceberg", "postgresql", "mariadb", "memory"]
_SERVERS = {param.values[0]: param.marks for param in KINDS}
ALIKE = [(format, "memory") for format in FORMATS]
ONCE = [(format, TARGETS[number % len(TARGETS)]) for number, format in enumerate(FORMATS)]
SLOW = settings(deadline=None, suppress_health_check=[*HealthCheck])
ALL = [(format, target) for format in FORMATS for target in TARGETS]


def pairs(found: list[tuple[str, str]], *marks: pytest.MarkDecorator) -> list[Any]:
    """As parameters; a database server that the machine lacks is a declared gap."""
    return [pytest.param(*pair, marks=[*_SERVERS.get(pair[1], ()), *marks], id="-".join(pair)) for pair in found]


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
    from headrace_emulators.schema_registry.server import SchemaRegistryServer

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


class Course:
    """One course of events on its way through a feed into a target of its own."""

    def __init__(self, feed: Feed, target: Any) -> None:
        self.feed = feed
        self.target = target

    def write(self, database: SmallDatabase, batch: Batch, number: int, times: int) -> None:
        """Write a batch once or again; then the target holds what the model has."""
        rows = self.feed.sent(batch, list(database.schemas.values()), self.target.spark)
        try:
            for _ in range(times):
                self.target.sink().write(rows, BatchId("pair", "checkpoint", number))
        finally:
            rows.unpersist()
        for name, model in database.models.items():
            schema = TableSchema(self.feed.named(name), database.schemas[name].columns, KEYS[name])
            found, wanted = content(self.target, schema), expected(model)
            missing = [row for row in wanted if row not in found][:3]
            extra = [row for row in found if row not in wanted][:3]
            assert found == wanted, f"batch {number}, {name}: missing {missing}, extra {extra}"


class Pair:
    """A format and a kind of target, for as many courses as are asked for."""

    def __init__(self, spark: Any, way: Way, servers: dict[str, Any], folder: Path, format: str, target: str) -> None:
        self.spark = spark
        self.way = way
        self.servers = servers
        self.folder = folder
        self.format = format
        self.target = target
        self.targets: list[Any] = []

    def run(self, courses: settings) -> None:
        machine = machine_through(features(self.format), ABSENT_KINDS.get(self.format), self._begin)
        try:
            run_state_machine_as_test(machine, settings=courses)
        finally:
            for made in self.targets:
                if isinstance(made, MemoryTarget):
                    MemorySink.forget(made.name)

    def _begin(self) -> Callable[[SmallDatabase, Batch, int, int], None]:
        made = made_target(self.target, self.spark, self.folder / str(len(self.targets)), self.servers)
        self.targets.append(made)
        return Course(Feed(self.way, self.format), made).write


@pytest.mark.parametrize(
    ("format", "target"), [*pairs(ALIKE), *pairs([pair for pair in ONCE if pair not in ALIKE], pytest.mark.system)]
)
def test_a_history_through_a_format_into_a_target_is_what_the_model_has(
    spark: Any,
    way: Way,
    servers: dict[str, Any],
    tmp_path: Path,
    format: str,
    target: str,
) -> None:
    Pair(spark, way, servers, tmp_path, format, target).run(
        # A course that fails is shown as it is: making it smaller takes minutes of Spark.
        settings(max_examples=1, stateful_step_count=2, derandomize=True, phases=[Phase.generate], parent=SLOW)
    )


@pytest.mark.soak
@pytest.mark.parametrize(("format", "target"), pairs(ALL))
def test_many_histories_through_every_format_into_every_target(
    spark: Any, way: Way, servers: dict[str, Any], tmp_path: Path, format: str, target: str
) -> None:
    Pair(spark, way, servers, tmp_path, format, target).run(
        settings(max_examples=2, stateful_step_count=4, print_blob=True, parent=SLOW)
    )
