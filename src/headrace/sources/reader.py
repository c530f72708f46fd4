"""`spark.readStream.format("sqlserver_cdc")`: sources as PySpark data sources. The only file that knows
`pyspark.sql.datasource`.

Where code runs: `latestOffset`, `partitions` and `commit` in one Python process beside the driver, alive as long as the
query; `read` in executors, on a pickled copy. What Spark 4.0 does, measured: `latestOffset` gets no start and is called
before `initialOffset`; a restart calls `partitions(end, end)` first, and for a batch that was not finished
`partitions(start, end)`. So the position to go on from is the end of the last `partitions` call, and nothing before the
first one. From Spark 4.2 on `latestOffset` gets the start and a limit, and a query with the trigger `availableNow` says
so before it begins; what an older Spark lacks is not called there.
"""

from __future__ import annotations

import datetime as dt
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headrace import registry
from headrace.changes import CHANGE_ROW_DDL, TableSchema
from headrace.changes.direct_producer import Delivery, DirectProducer, Unsent
from headrace.changes.table_files import TABLE_FILES, TableFiles
from headrace.errors import HeadraceError, OptionError
from headrace.settings import Settings, option
from headrace.sources.base import Limit, Slice, Source
from headrace.sources.databases import Databases, Heads, Offsets
from headrace.sources.messages import Messages
from headrace.sources.serial_numbers import numbered, shares
from headrace.sources.table_errors import rows_of_others
from headrace.sources.table_versions import with_versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_SPARK_OPTIONS = frozenset(("path",))
_FORMAT, _COUNTS, _LINES, _DIRECT_PRODUCER = "format", "counts", "lines", "outlet.secret"
_SNAPSHOT = "snapshot"
_MOST_JOINED = 4
_BATCH_NUMBER = "streaming.sql.batchId"
"""Where Spark tells a task the number of its batch."""
_EVERYTHING = Limit(commits=2**31 - 1, chunks=2**31 - 1)
_NOMINAL_ROWS = 1_000_000


def _admission_control() -> Any:
    """Spark's words for limits and for `availableNow`; null before Spark 4.2, which has neither."""
    try:
        return importlib.import_module("pyspark.sql.streaming.datasource")
    except ModuleNotFoundError:
        return None


_SPARK: Any = _admission_control()
_DRAINING: type = object if _SPARK is None else _SPARK.SupportsTriggerAvailableNow


def register(spark: SparkSession) -> None:
    """Make every source available as `spark.readStream.format("<name>_cdc")`, such as `sqlserver_cdc`.

    Options are the source's own, in camelCase or snake case; an unknown one is an error when the stream starts.
    Repeating the call is harmless.
    """
    for name in registry.names("source"):
        spark.dataSource.register(_data_source(name))


def tables(source: str, /, **options: Any) -> list[TableSchema]:
    """The tables that a source captures now, and how they look: what `headrace.typed` needs.

    Connects to the database from this process. On Spark Connect that is the client; where only the cluster reaches the
    database, take the schema from the stream's `schema` rows (`TableSchema.from_text`).

        [customers] = headrace.tables("sqlserver", table="dbo.customers", **options)

    Args:
        source: the source's name, such as `sqlserver`.
        options: those of `spark.readStream.format("sqlserver_cdc")`, in either form.

    Returns:
        Schemas in the order of the include list, database after database.

    Raises:
        OptionError: the source or an option is unknown or malformed.
        CaptureError: an included table does not exist or is not set up for capture.
        ConnectError: the server can't be reached or refuses the login.
    """
    return list(Databases(source_named(source, options)).tables())


def source_named(name: str, options: dict[str, Any]) -> Source:
    """The source of that name with its options checked; connects to nothing yet.

    Raises:
        OptionError: the source or an option is unknown or malformed.
    """
    kind: type[Source] = registry.find("source", name)
    ignore = _SPARK_OPTIONS.__contains__
    return kind.of(options, ignore=ignore)


_OF_READER = frozenset(["parallelism", "serialnumbers", "followslog", "parkstables", "storagesecret"])


def _of_reader(name: str) -> bool:
    return name.replace("_", "").lower() in (
        "parallelism",
        "serialnumbers",
        "followslog",
        "parkstables",
        "storagesecret",
    )


def _of_format(name: str) -> bool:
    return name.lower() == _FORMAT or name.lower().startswith(f"{_FORMAT}.")


class ReadingSettings(Settings):
    """Of every reader, beside its source's."""

    parallelism: int | None = option(
        "By how many tasks the tables of a range of commits are read at the most.",
        default=None,
        minimum=1,
    )
    serial_numbers: bool = option(
        "Whether each change has a serial number in `source['id']`, as messages of Canal and DTS say it. Pipelines set "
        "it for these formats. Without it, the `id` of Canal's messages is 0, and that of DTS's is the number at the "
        "beginning of the position, which many share.",
        default=False,
    )
    follows_log: bool = option(
        "Whether an empty batch follows the log as soon as it goes on without changes of captured tables, for a query "
        "that waits for a place in the log. Otherwise it takes some minutes, or some megabytes of log.",
        default=False,
    )
    parks_tables: bool = option(
        "Whether one table whose rows can't be read stops the query no more, for a driver that leaves its changes out: "
        "an `error` row whose `source` has `table_error` says why.",
        default=False,
    )
    storage_secret: str | None = option(
        "How workers log in where they write files of tables. Pipelines set it; Spark does not show it.", default=None
    )


@dataclass(frozen=True)
class Reading:
    """What a user asks a reader for.

    Args:
        source: the source's name.
        options: its options.
        messages: what its workers make of change rows; None where they give these.
        parallelism: by how many tasks light slices are read that together are the work of one.
        serial_numbers: whether each change has a serial number (`sources.serial_numbers`).
        follows_log: whether empty batches follow the log at once.
        parks_tables: whether a table that can't be read is an `error` row.
        storage_secret: how workers log in where they write files of tables; empty for local folders.
    """

    source: str
    options: Mapping[str, Any]
    messages: Messages | None = None
    parallelism: int = 1
    serial_numbers: bool = False
    follows_log: bool = False
    parks_tables: bool = False
    storage_secret: str = field(default="", repr=False)

    @classmethod
    def of(cls, source: str, options: Mapping[str, Any], /) -> Reading:
        """From the options of a reader: the source's own, `parallelism` (else the cores of the machine that plans),
        `serialNumbers`, `followsLog`, `format`, and the format's as `format.<option>`.

        Raises:
            OptionError: the format is unknown, can't be encoded by workers, or one of its options is malformed.
        """
        source_options = {name: value for name, value in options.items() if not _of_format(name)}
        named = {name.lower(): value for name, value in options.items() if _of_format(name)}
        ours = {name: source_options.pop(name) for name in list(source_options) if _of_reader(name)}
        settings = ReadingSettings.parse(ours, owner=f"source '{source}'")
        parallelism, numbers = settings.parallelism or os.cpu_count() or 1, settings.serial_numbers
        if not named:
            asked = settings.follows_log, settings.parks_tables, settings.storage_secret or ""
            return cls(source, source_options, None, parallelism, numbers, *asked)
        format = named.pop(_FORMAT, None)
        if format is None:
            raise OptionError(f"Option '{next(iter(named))}' needs the option 'format'.", remedy="Name the format.")
        of_format = {name[len(_FORMAT) + 1 :]: value for name, value in named.items()}
        counted, lines = (of_format.pop(name, "") == "true" for name in (_COUNTS, _LINES))
        messages = Messages.named(
            format,
            of_format,
            counted=counted,
            lines=lines,
            direct_producer=_direct_producer(of_format.pop(_DIRECT_PRODUCER, "")),
        )
        return cls(
            source, source_options, messages, parallelism, numbers or messages.format.numbered, settings.follows_log
        )

    @property
    def ddl(self) -> str:
        """The columns that are read: change rows with images as maps (any table in one stream), or messages."""
        return CHANGE_ROW_DDL if self.messages is None else self.messages.ddl


@contextmanager
def _sentence_first() -> Iterator[None]:
    """In a process of Spark's, an error of Headrace's is handed over as its sentence, without the trace in front of it:
    so the user of a plain stream reads it before Spark's plan."""
    try:
        yield
    except HeadraceError:
        if any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ):
            # Spark's worker goes by it when it hands an error over, and ends.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _direct_producer(text: str) -> DirectProducer | None:
    """Where workers send messages, as a pipeline says it to its reader: the sink's name, and what belongs to it."""
    if not text:
        return None
    sink, _, rest = text.partition(" ")
    direct_producers: type[DirectProducer] = registry.find("sink", sink).direct_producers
    return direct_producers.from_text(rest)


def _table_files(login: str) -> TableFiles | None:
    """Where this task may write rows; None for nowhere."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(TABLE_FILES)
    if not text:
        return None
    sink, _, rest = text.partition(" ")
    kind: type[TableFiles] = registry.find("sink", sink).files
    return kind.from_text(rest, login)


def only_chunks(slices: Sequence[tuple[str, Slice]]) -> frozenset[int]:
    """The positions of those slices of a batch whose tables have no other rows in it than chunks of their snapshot."""
    others: set[tuple[str, str]] = set()
    streamed: set[str] = set()
    for name, slice in slices:
        if slice.kind != _SNAPSHOT:
            others |= {(name, table) for table in slice.tables or ()}
            streamed |= {name} if slice.tables is None else set()
    return frozenset(
        index
        for index, (name, slice) in enumerate(slices)
        if slice.kind == _SNAPSHOT
        and name not in streamed
        and slice.tables is not None
        and not any((name, table) in others for table in slice.tables)
    )


def tasks(slices: Sequence[tuple[str, Slice]], parallelism: int) -> list[list[tuple[str, Slice]]]:
    """Slices by the tasks that read them, in their order.

    A Python source costs Spark 30 to 60 ms for each task, however few rows it gives. So neighbours that are light are
    read by one task: what would be the work of one, such as all tables of a range of commits, by at most `parallelism`.
    """
    planned: list[list[tuple[str, Slice]]] = []
    last, before = -1, 0.0
    for piece in slices:
        # Three thirds are a little more or less than one.
        share = int(before * parallelism + 1e-6)
        if share > last:
            planned.append([])
        planned[-1].append(piece)
        last, before = share, before + piece[1].weight
    return planned


def in_order_of_reading(planned: list[list[tuple[str, Slice]]]) -> list[list[tuple[str, Slice]]]:
    """The tasks of a batch whose messages are sent by the one task that reads it.

    A few chunks of a snapshot become the work of one: that takes less than to have Spark bring the messages of several
    tasks into order.
    """
    chunks = all(piece.kind == _SNAPSHOT for task in planned for _, piece in task)
    return [[piece for task in planned for piece in task]] if chunks and 1 < len(planned) <= _MOST_JOINED else planned


@dataclass
class SlicePartition(InputPartition):
    """Slices of a batch as Spark sends them to a task, each with its database; the serial numbers of their rows, the
    versions of schemas, how many tasks the batch has, and which slices may be written into files.
    """

    slices: tuple[tuple[str, Slice], ...]
    numbers: tuple[range, ...]
    versions: Mapping[str, int]
    tasks: int
    to_files: tuple[bool, ...]

    def __init__(
        self,
        slices: Sequence[tuple[str, Slice]],
        numbers: Sequence[range],
        versions: Mapping[str, int],
        tasks: int,
        to_files: Sequence[bool],
    ) -> None:
        super().__init__(slices)
        self.slices = tuple(slices)
        self.numbers = tuple(numbers)
        self.versions = versions
        self.tasks = tasks
        self.to_files = tuple(to_files)


class ChangeStreamReader(DataSourceStreamReader, _DRAINING):  # type: ignore[misc]
    """Spark's view of a source: offsets as dicts, batches as slices, rows as Arrow.

    Batches are bounded by the source's options on every Spark. With Spark 4.2 or newer the trigger `availableNow` runs
    bounded batches until everything is there that the source offered when the query began, and `once` takes all of it
    in one batch.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        reading = Reading.of(name, options)
        self._messages, self._parallelism = reading.messages, reading.parallelism
        self._login = reading.storage_secret
        self._serial_numbers = reading.serial_numbers
        self._parks_tables = reading.parks_tables
        self._limit = Limit(follows=reading.follows_log)
        self._databases = Databases(source_named(name, dict(reading.options)))
        if self._messages is not None and not self._databases.knows_schemas:
            raise OptionError(
                f"Source '{name}' can't give messages, because it learns schemas while it reads.",
                remedy="Leave out the option 'format', and encode the change rows inside foreachBatch.",
            )
        self._last = Offsets()
        self._goal: Heads | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Before everything: the first batch begins with the snapshot."""
        return Offsets().to_json()

    @_sentence_first()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Where the next batch ends. `start` is given from Spark 4.2 on; before, the last planned batch says it."""
        before = Offsets.from_json(start) if start else self._last
        everything = self._goal is None and _SPARK is not None and isinstance(limit, _SPARK.ReadAllAvailable)
        limit_of_batch = _EVERYTHING if everything else self._limit
        end = self._databases.advance(before, limit_of_batch, dt.datetime.now(dt.UTC), self._goal)
        return end.to_json()

    def getDefaultReadLimit(self) -> Any:
        """Some bound, so that Spark asks for everything only where it means it; the source's options say the real one.

        Spark knows limits of rows, bytes and files; ours are commits, which are never split, and snapshot chunks.
        """
        return _SPARK.ReadMaxRows(_NOMINAL_ROWS)

    @_sentence_first()
    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends when it has what the source offers now. Called by Spark 4.2 or newer."""
        self._goal = self._databases.head()

    @_sentence_first()
    def reportLatestOffset(self) -> dict[str, Any]:
        """The newest commit of each database, as `latestOffset` in the query's progress. From Spark 4.2 on."""
        return dict(self._databases.head())

    @_sentence_first()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch. Spark repeats the last finished batch's end on a restart, which costs nothing here."""
        first, last = Offsets.from_json(start), Offsets.from_json(end)
        self._last = last
        slices = self._databases.plan(first, last)
        numbers, versions = iter(shares(slices, last.batch)), self._databases.versions(last)
        planned = tasks(slices, self._parallelism)
        if self._messages is not None and self._messages.direct_producer is not None:
            planned = in_order_of_reading(planned)
        chunks = only_chunks(slices)
        alone = iter([index in chunks for index in range(len(slices))])
        return [
            SlicePartition(
                task, list(islice(numbers, len(task))), versions, len(planned), list(islice(alone, len(task)))
            )
            for task in planned
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, or what is made of them."""
        assert isinstance(partition, SlicePartition)
        files = _table_files(self._login) if self._messages is None else None
        given = (files if may else None for may in partition.to_files)
        pieces = map(self._rows, partition.slices, partition.numbers, given)
        rows: Iterator[pa.RecordBatch] = chain.from_iterable(pieces)
        with _sentence_first():
            if partition.versions:
                rows = with_versions(rows, partition.versions)
            if self._messages is None:
                yield from rows
                return
            known = [schema for name, slice in partition.slices for schema in self._databases.schemas_in(name, slice)]
            yield from self._messages.of(rows, known, self._delivery(partition))

    def _delivery(self, partition: SlicePartition) -> Delivery | None:
        """What sends the messages of a task. One task alone keeps the order of a batch's messages."""
        assert self._messages is not None
        if self._messages.direct_producer is None:
            return None
        if partition.tasks > 1:
            return Unsent("several tasks read the batch")
        context = TaskContext.get()
        number = None if context is None else context.getLocalProperty(_BATCH_NUMBER)
        if number is None:
            return Unsent("Spark does not say the number of the batch")
        return self._messages.direct_producer.delivery(int(number))

    def _rows(
        self, piece: tuple[str, Slice], numbers: range, files: TableFiles | None = None
    ) -> Iterator[pa.RecordBatch]:
        name, slice = piece
        read = partial(self._databases.read, name, files=files)
        if self._parks_tables:
            rows = rows_of_others(slice, read, partial(self._databases.without, name))
        else:
            rows = read(slice)
        return numbered(rows, numbers) if self._serial_numbers else rows

    @_sentence_first()
    def commit(self, end: dict[str, Any]) -> None:
        """The batch that ends here rests in the sinks. Spark says so one batch late, and not at all when idle."""
        self._databases.acknowledge(Offsets.from_json(end))


class ChangeDataSource(DataSource):
    """A source under the name `<source>_cdc`. Subclasses name theirs; made by `register`."""

    source_name = ""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return f"{cls.source_name}_cdc"

    @_sentence_first()
    def schema(self) -> str:
        """The columns that are read."""
        return Reading.of(self.source_name, dict(self.options)).ddl

    @_sentence_first()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query."""
        return ChangeStreamReader(self.source_name, dict(self.options))


class DefaultSource(DataSource):
    """Every source under the one name `headrace`, which Spark finds without `register`.

    The option `connector` says which.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headrace"

    @_sentence_first()
    def schema(self) -> str:
        """The columns that are read."""
        return Reading.of(*self._named).ddl

    @_sentence_first()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query."""
        return ChangeStreamReader(*self._named)

    @property
    def _named(self) -> tuple[str, dict[str, Any]]:
        options = dict(self.options)
        connector = next((options.pop(name) for name in list(options) if name.lower() == "connector"), None)
        if connector is None:
            known = ", ".join(registry.names("source"))
            raise OptionError("Option 'connector' of format 'headrace' is missing.", remedy=f"Known: {known}.")
        return connector, options


def _data_source(name: str) -> type[ChangeDataSource]:
    return type(f"{name.capitalize()}DataSource", (ChangeDataSource,), {"source_name": name})
