"""The same drawn pipelines as users run them: a file, `load_pipeline`, Spark, and real sinks.

A batch that ends in its midst is one that a fault point stops (`headrace.faultpoints`). What each sink then holds is
read by other means than Headrace's, put into the form of change rows where it is messages, and held against the model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.search.database import ADDED, Database, Image
from tests.search.drawn import AdHoc, Alter, Batch, Clean, Commit, Drain, Off, On, Once, Pipeline
from tests.search.driver import Outcome, escaped, write_file
from tests.search.model import Difference, compare, require_rows

from headrace import load_pipeline
from headrace.errors import HeadraceError
from headrace.sinks.lake.delta.table import folder_of
from headrace.sinks.memory import MemorySink
from headrace.testing.faults import InjectedFault
from headrace.testing.waiting import within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINKS = {"once": "delta", "replacing": "files", "appending": "memory"}
_SECONDS = 120
_STARTS = 3
_FASTER = {"snapshot_chunk_rows": 3, "snapshot_chunks_per_batch": 4, "max_commits_per_trigger": 0}
_POINTS = {"planned": "pipeline.batch.entered", "done": "pipeline.batch.done"}


@dataclass
class Held:
    """What a sink that keeps every change holds, batch by batch."""

    kind: str
    batches: Sequence[Sequence[Mapping[str, Any]]]

    @property
    def attempts(self) -> Sequence[Sequence[Sequence[Mapping[str, Any]]]]:
        return [[batch] for batch in self.batches]


def fewer_batches(pipeline: Pipeline) -> Pipeline:
    """The same with larger chunks: a batch costs seconds here."""
    options = {**dict(pipeline.options), **_FASTER}
    return replace(pipeline, options=tuple(options.items()))


def run(pipeline: Pipeline, folder: Path, spark: SparkSession) -> Outcome:
    """Do everything that a pipeline says, comparing on the way.

    Raises:
        Difference: sinks do not hold what the model says, and nobody said so.
    """
    database = Database(pipeline, folder / "server")
    name = str(folder)
    sinks = [_sink(pipeline, database, place, name) for place in range(1, len(pipeline.sinks) + 1)]
    begun: int | None = None
    try:
        file = write_file(pipeline, database, folder, sinks)
        for step in pipeline.steps:
            if isinstance(step, Commit):
                database.commit(step)
            elif isinstance(step, AdHoc):
                database.signal(step)
            elif isinstance(step, (Alter, Off, On, Clean)):
                database.happen(step)
            elif isinstance(step, Batch):
                _batch(file, folder, spark, database, step)
                # Whether the first batch is planned before the commit beside it or after it is chance.
                begun = len(database.commits) if begun is None else begun
            elif isinstance(step, (Drain, Once)):
                begun = len(database.commits) if begun is None else begun
                database.capture()
                with database.server.capturing():
                    _once(file, spark)
                _compare(pipeline, database, folder, spark, begun)
        return Outcome(None, _batches(folder), 0, database.refused)
    except HeadraceError as error:
        # What went through Spark has its remedy as the end of its text.
        if not error.remedy and ". " not in error.message:
            raise Difference(f"an error without a remedy: {error.message}") from error
        return Outcome(error, _batches(folder), 0, database.refused)
    finally:
        for place in range(1, len(sinks) + 1):
            MemorySink.forget(f"{name}-{place}")
        database.close()


def _sink(pipeline: Pipeline, database: Database, place: int, name: str) -> dict[str, Any]:
    transforms = []
    for _, number in (pair for pair in pipeline.filtered if pair[0] == place):
        table = pipeline.tables[number]
        column = table.columns[table.place("v")].name.replace("`", "``")
        path = f"re:{escaped(database.schema)}[.]{escaped(table.name)}"
        transforms.append({"tables": path, "filter": f"`{column}` % 2 = 0"})
    return {**_place(pipeline.sinks[place - 1], place, name), **({"transforms": transforms} if transforms else {})}


def _place(kind: str, place: int, name: str) -> dict[str, Any]:
    if kind == "once":
        return {"type": "delta", "path": f"./{place}"}
    if kind == "appending":
        return {"type": "memory", "name": f"{name}-{place}"}
    format = {
        "type": "debezium_json",
        "topic.prefix": "search",
        "schemas.enable": False,
        "decimal.handling.mode": "string",
    }
    return {"type": "files", "path": f"./{place}", "format": format}


def _batch(file: Path, folder: Path, spark: SparkSession, database: Database, step: Batch) -> None:
    """A run that is stopped after a batch, or in the midst of one."""
    before = _batches(folder)
    with database.server.capturing(), _armed(step.crash, folder):
        running = load_pipeline(file).start(spark)
        if step.meanwhile is not None:
            database.commit(step.meanwhile)
        # An idle source makes no batch, so the wait for a further one is short.
        within(lambda: _batches(folder) != before or not running.active, _SECONDS if before == 0 else 2)
        running.stop()
        # A step may end without a batch, so a worker that could not start is no finding.
        _ended(running, crashes=bool(step.crash), starves=True)


def _once(file: Path, spark: SparkSession) -> None:
    for _ in range(_STARTS):
        try:
            _ended(load_pipeline(file).start(spark, once=True))
            return
        except HeadraceError:
            raise
        except Exception as error:
            if not _starved(error):
                raise
    raise RuntimeError(f"the machine is too busy: Spark could not start a worker in {_STARTS} runs")


def _ended(running: Any, *, crashes: bool = False, starves: bool = False) -> None:
    try:
        if not running.wait(_SECONDS):
            running.stop()
            raise Difference("the run never comes to rest")
    except Exception as error:
        stopped = crashes and (isinstance(error, InjectedFault) or "fault injected" in str(error))
        if not (stopped or (starves and _starved(error))):
            raise


def _starved(error: Exception) -> bool:
    """Whether Spark gave up waiting for a worker to start: a fault of a busy machine."""
    return any(text in str(error) for text in ("CANNOT_OPEN_SOCKET", "failed to connect back"))


@contextmanager
def _armed(crash: str, folder: Path) -> Iterator[None]:
    point = _POINTS.get(crash) or (f"pipeline.sink.{crash.split()[-1]}.written" if crash else "")
    faults = folder / "faults"
    faults.mkdir(exist_ok=True)
    for old in faults.iterdir():
        old.unlink()
    armed = {"HEADRACE_FAULTPOINTS": f"{point}=raise" if point else "", "HEADRACE_FAULT_DIR": str(faults)}
    with patch.dict("os.environ", armed):
        yield


def _batches(folder: Path) -> int:
    return sum(file.name.isdigit() for file in (folder / "checkpoint" / "commits").glob("*"))


def _compare(pipeline: Pipeline, database: Database, folder: Path, spark: SparkSession, begun: int) -> None:
    logs = []
    for place, kind in enumerate(pipeline.sinks, 1):
        if kind == "once":
            for number in range(len(pipeline.tables)):
                held = _delta_rows(pipeline, database, number, folder / str(place), spark)
                require_rows(pipeline, database, place, number, held)
        elif kind == "appending":
            batches = MemorySink.batches(f"{folder}-{place}").values()
            logs.append(Held("memory", [[_plain(row) for row in batch] for batch in batches]))
        else:
            logs.append(Held("files", list(_messages(folder / str(place)))))
    places = [place for place, kind in enumerate(pipeline.sinks, 1) if kind != "once"]
    filtered = tuple((places.index(place) + 1, number) for place, number in pipeline.filtered if place in places)
    compare(replace(pipeline, filtered=filtered), database, logs, begun)


def _delta_rows(
    pipeline: Pipeline, database: Database, number: int, folder: Path, spark: SparkSession
) -> Counter[Image] | None:
    from headrace.changes import TableId

    place = folder_of(str(folder), TableId("", database.schema, pipeline.tables[number].name))
    if not Path(place).exists():
        return None
    found: Counter[Image] = Counter()
    for row in spark.read.format("delta").load(place).collect():
        values = {name: value for name, value in row.asDict().items() if not name.startswith((ADDED, "_headrace"))}
        found[tuple(sorted((name, None if value is None else str(value)) for name, value in values.items()))] += 1
    return found


def _plain(row: Any) -> dict[str, Any]:
    """A row of the memory sink as the reader gives it: maps as pairs."""
    plain = row.asDict()
    for name in ("key", "before", "after"):
        plain[name] = None if plain[name] is None else list(plain[name].items())
    return plain


def _messages(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """The events of each batch as change rows."""
    for batch in sorted(folder.glob("batch=*")):
        rows = []
        for part in sorted(batch.glob("part-*")):
            for line in part.read_text("utf-8").split("\n"):
                message = json.loads(line) if line else {}
                event = json.loads(message["value"]) if message.get("value") else {}
                if event.get("op") in ("r", "c", "u", "d"):
                    rows.append(_event(message, event))
        yield rows


def _event(message: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
    key = json.loads(message["key"]) if message["key"] else None
    read = str(event["source"].get("snapshot", "false"))
    return {
        "op": event["op"],
        "table": {"name": event["source"]["table"]},
        "key": None if key is None else [(name, _text(value)) for name, value in key.items()],
        "key_text": None if key is None else json.dumps([_text(value) for value in key.values()]),
        "before": _texts(event["before"]),
        "after": _texts(event["after"]),
        "position": message["position"],
        "snapshot": None if read == "false" else read,
    }


def _texts(image: Mapping[str, Any] | None) -> list[tuple[str, str | None]] | None:
    return None if image is None else [(name, _text(value)) for name, value in image.items()]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
