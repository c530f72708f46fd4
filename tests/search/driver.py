"""A pipeline as Spark drives it, in one process and without Spark: the calls of PySpark's data source, in its order.

What Spark keeps is kept here: the offset of each planned batch and the number of the last that is done. A run that ends
in the midst of a batch, in whichever way, goes on from these two.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import yaml
from tests.search.database import SALT, SIGNALS, Database
from tests.search.drawn import AdHoc, Alter, Batch, Capture, Clean, Commit, Drain, Off, On, Once, Pipeline, Restart
from tests.search.model import Difference, compare

from headrace.changes import TableSchema
from headrace.changes.row import SNAPSHOT_ENDS
from headrace.errors import HeadraceError
from headrace.options import as_text
from headrace.pipeline.ending import DatabasesEnding
from headrace.pipeline.model import Model, read_model
from headrace.sources.databases import Databases
from headrace.sources.messages import Messages
from headrace.sources.offset import Offset
from headrace.sources.reader import ChangeStreamReader, SlicePartition

_ENDLESS = 300
DRIVERS = {"sqlserver": "emulator", "db2": "db2-emulator", "oracle": "oracle-emulator"}
_COLUMN_OPTIONS = {
    "left out": "column_exclude_list",
    "masked": "column.mask.with.3.chars",
    "cut": "column.truncate.to.2.chars",
    "hashed": "column.mask.hash.v2.SHA-256",
}
MESSAGES = Messages.named("debezium_json", {"topic_prefix": "search"})
Rows = list[dict[str, Any]]
Task = tuple[list[pa.RecordBatch], list[TableSchema]]
"""What a task read, and the schemas that its slices say."""


@dataclass
class Sink:
    """A plain sink: what it took, attempt by attempt.

    Args:
        kind: `once` takes a batch that it has not, `replacing` puts it in place of what it has of it, `appending` puts
            it behind.
    """

    kind: str
    batches: dict[int, list[Rows]] = field(default_factory=dict)

    def write(self, number: int, rows: Rows) -> None:
        held = self.batches.setdefault(number, [])
        if held and self.kind == "once":
            return
        if self.kind == "replacing":
            held.clear()
        held.append(rows)

    @property
    def attempts(self) -> list[list[Rows]]:
        """The attempts of each batch, in order."""
        return [self.batches[number] for number in sorted(self.batches)]


@dataclass
class Outcome:
    """How a pipeline went.

    Args:
        stopped: the error that stopped it; null where it went to its end.
        batches: how many batches were done.
        rows: how many rows the first sink has.
        refused: how many transactions the server refused.
    """

    stopped: HeadraceError | None
    batches: int
    rows: int
    refused: int


def write_file(pipeline: Pipeline, database: Database, folder: Path, sinks: list[dict[str, Any]]) -> Path:
    """The pipeline's YAML file."""
    options: dict[str, Any] = dict(pipeline.options)
    paths = [f"{database.schema}.{table.name}" for table in pipeline.tables if table.included]
    if database.has_signals:
        options["signal_data_collection"] = f"{database.schema}.{SIGNALS}"
        paths.append(options["signal_data_collection"])
    if pipeline.listed == "names":
        options["tables"] = paths
    elif pipeline.listed == "schema":
        options["tables"] = [f"{database.schema}.*"]
    if any(done == "hashed" for *_, done in pipeline.column_options):
        # Spark makes names of options lower-case, so a salt with capitals has an option of its own.
        options["column_mask_salt"] = SALT
    for number, place, done in pipeline.column_options:
        table = pipeline.tables[number]
        option = options.setdefault(_COLUMN_OPTIONS[done], [])
        option.append(escaped(f"{database.schema}.{table.name}.{table.columns[place].name}"))
    if database.server.source != "oracle":
        options |= {"errors_max_retries": 0, "capture_timeout_seconds": 5}
    source = {"type": database.server.source, **database.server.options, **options}
    data = {
        "source": source,
        "sinks": sinks,
        "pipeline": {"name": "search", "checkpoint": "./checkpoint", "trigger": "100ms", "on_table_error": "stop"},
    }
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    return file


def escaped(text: str) -> str:
    """A regular expression that means just this text."""
    return "".join(letter if letter.isalnum() or letter in "_ " else f"\\{letter}" for letter in text)


class Crashed(Exception):
    """The process is gone."""


class Driver:
    """What Spark does with one streaming query."""

    def __init__(self, pipeline: Pipeline, database: Database, folder: Path) -> None:
        # Filters are Spark's.
        self.pipeline = replace(pipeline, filtered=())
        self.database = database
        self.sinks = [Sink(kind) for kind in pipeline.sinks]
        sink = {"type": "memory", "name": str(folder)}
        self.model: Model = read_model(write_file(pipeline, database, folder, [sink]))
        self.databases = Databases(self.model.source)
        self.offsets: list[Any] = []
        self.done = 0
        self.begun: int | None = None
        self.reader: ChangeStreamReader | None = None

    def start(self) -> ChangeStreamReader:
        """The reader of the process that runs; a new process checks, and does again what was not done."""
        if self.reader is not None:
            return self.reader
        tables = Databases(self.model.source).tables()
        for target in self.model.targets:
            target.shaping.expect(tables)
        options = {name: as_text(value) for name, value in self.model.source_options.items() if value is not None}
        self.reader = ChangeStreamReader(self.model.source_type, options)
        if self.done:
            end = self.offsets[self.done - 1]
            assert list(self.reader.partitions(end, end)) == []
        if len(self.offsets) > self.done:
            self._run(Batch())
        return self.reader

    def schemas(self, piece: SlicePartition) -> list[TableSchema]:
        """The schemas that the rows of a task follow, where they are known before it runs."""
        if not self.databases.knows_schemas:
            return []
        return [schema for name, slice in piece.slices for schema in self.databases.schemas_in(name, slice)]

    def stop(self) -> None:
        """The process ends."""
        self.reader = None

    def batch(self, step: Batch) -> bool:
        """One trigger: whether there was anything new."""
        try:
            reader = self.start()
            if self.begun is None:
                self.begun = len(self.database.commits)
            end = _through_json(reader.latestOffset())
            if self.offsets and end == self.offsets[-1]:
                return False
            if self.done > 1:
                reader.commit(self.offsets[self.done - 2])
            streaming = bool(self.offsets) and _is_level(self.offsets[-1])
            self.offsets.append(end)
            self._run(step)
            if streaming:
                # Before that, schemas are those of the snapshot.
                self.database.look()
        except Crashed:
            self.stop()
        return True

    def _run(self, step: Batch) -> None:
        reader = self.reader
        assert reader is not None
        number = len(self.offsets) - 1
        start = self.offsets[number - 1] if number else _through_json(reader.initialOffset())
        _die(step, "planned")
        copy: ChangeStreamReader = pickle.loads(pickle.dumps(reader))
        rows: Rows = []
        tasks: list[Task] = []
        for partition in reader.partitions(start, self.offsets[number]):
            piece = pickle.loads(pickle.dumps(partition))
            first = _rows(copy.read(piece)) if step.twice else None
            batches = list(copy.read(piece))
            found = _rows(batches)
            if first is not None:
                _require_same(first, found)
            rows += found
            tasks.append((batches, self.schemas(piece)))
        if self.databases.knows_schemas:
            _require_same_messages(tasks)
        for place, sink in enumerate(self.sinks, 1):
            sink.write(number, rows)
            _die(step, f"written {place}")
        _die(step, "done")
        self.done = len(self.offsets)

    def once(self) -> None:
        """A new process that ends by itself."""
        self.stop()
        planned = len(self.offsets) - 1 if self.offsets else None
        ending = DatabasesEnding(Databases(self.model.source), lambda n: json.dumps(self.offsets[n]), planned)

        def more() -> bool:
            if ending.is_reached(self.done - 1 if self.done else None):
                return False
            if not self.batch(Batch()):
                # Who waits for a capture program that has nothing to do sees in time that it is awake.
                self.database.pass_time()
            return True

        _repeat(more)


def run(pipeline: Pipeline, folder: Path) -> Outcome:
    """Do everything that a pipeline says, comparing on the way.

    Raises:
        Difference: sinks do not hold what the model says, and nobody said so.
    """
    database = Database(pipeline, folder / "server")
    try:
        with _surrounded(database) as during:
            driver: Driver | None = None
            try:
                driver = Driver(pipeline, database, folder)
                for step in pipeline.steps:
                    _step(driver, step, during)
                stopped = None
            except HeadraceError as error:
                if not error.remedy:
                    raise Difference(f"an error without a remedy: {error.message}") from error
                stopped = error
        rows = 0 if driver is None else sum(len(a[-1]) for a in driver.sinks[0].attempts)
        return Outcome(stopped, 0 if driver is None else driver.done, rows, database.refused)
    finally:
        database.close()


def _step(driver: Driver, step: object, during: Callable[[Batch], Any]) -> None:
    database = driver.database
    if isinstance(step, Commit):
        database.commit(step)
    elif isinstance(step, Capture):
        database.capture()
    elif isinstance(step, AdHoc):
        database.signal(step)
    elif isinstance(step, Restart):
        driver.stop()
    elif isinstance(step, (Alter, Off, On, Clean)):
        database.happen(step)
    elif isinstance(step, Batch):
        with during(step):
            driver.batch(step)
    elif isinstance(step, Drain):
        database.capture()
        _repeat(lambda: driver.batch(Batch()))
        compare(driver.pipeline, database, driver.sinks, driver.begun)
    elif isinstance(step, Once):
        database.capture()
        driver.once()
        compare(driver.pipeline, database, driver.sinks, driver.begun)


def _repeat(more: Callable[[], bool]) -> None:
    for _ in range(_ENDLESS):
        if not more():
            return
    raise Difference("the run never comes to rest")


@contextmanager
def _surrounded(database: Database) -> Iterator[Callable[[Batch], Any]]:
    """Other people's commits at named points, and a capture program that works while someone waits for it."""
    waiting: list[Batch] = []

    def reach(name: str) -> None:
        while waiting and waiting[0].point == name:
            step = waiting.pop()
            if step.meanwhile is not None:
                database.commit(step.meanwhile)

    def sleep(seconds: float) -> None:
        # The pause of the source itself, shortened: whoever it waits for still gets a turn.
        time.sleep(min(seconds, 0.02))
        if seconds > 0.1:
            # Who pauses for so long waits for the capture program; a shorter pause may be under a lock.
            database.pass_time()

    @contextmanager
    def during(step: Batch) -> Iterator[None]:
        waiting[:] = [step] if step.point else []
        yield
        waiting.clear()

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    with (
        patch("headrace.pipeline.ending._PLAN_SECONDS", 0.0),
        patch("headrace.faultpoints.reach", reach),
        patch("headrace.sources.change_tables.snapshot_read.time", clock),
        patch("headrace.sources.change_tables.capture_wait.time", clock),
    ):
        yield during


def _die(step: Batch, at: str) -> None:
    if step.crash == at:
        raise Crashed(at)


def _rows(batches: Iterable[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in batch.to_pylist()]


def _require_same_messages(tasks: Sequence[Task]) -> None:
    """Workers that know what their slices say give the messages that are made where the whole batch is known."""
    texts = {row["table_schema"] for batches, _ in tasks for row in _rows(batches)} - {None}
    of_batch = [TableSchema.from_text(text) for text in texts]
    for batches, schemas in tasks:
        try:
            same = _rows(MESSAGES.of(batches, schemas)) == _rows(MESSAGES.of(batches, of_batch))
        except HeadraceError as error:
            raise Difference(f"messages can't be made: {error.message}") from error
        if not same:
            raise Difference("messages are others where they are made by the workers that read")


def _require_same(first: Rows, second: Rows) -> None:
    """A task that is done twice gives the same changes; what is read of a table may be newer."""
    # Whether the end of a table's snapshot is told by itself depends on how many rows are read.
    streamed = [
        [row for row in rows if row["op"] != "r" and row["snapshot"] not in SNAPSHOT_ENDS] for rows in (first, second)
    ]
    if streamed[0] != streamed[1]:
        raise Difference("a task that is done twice gives other changes")


def _is_level(offset: Any) -> bool:
    return all(Offset.from_json(one).is_level for one in offset["databases"].values())


def _through_json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))
