"""`spark.readStream.format("sqlserver_cdc")`: sources as PySpark data sources. The only file that knows
`pyspark.sql.datasource`.

Where code runs: `latestOffset`, `partitions` and `commit` in one Python process beside the driver, alive as long as the
query; `read` in executors, on a pickled copy. What Spark 4.0 does, measured: `latestOffset` gets no start and is called
before `initialOffset`; a restart calls `partitions(end, end)` first, and for a batch that was not finished
`partitions(start, end)`. So the place to go on from is the end of the last `partitions` call, and nothing before the
first one. From Spark 4.2 on `latestOffset` gets the start and a limit, and a query with the trigger `availableNow` says
so before it begins; what an older Spark lacks is not called there.
"""

from __future__ import annotations

import datetime as dt
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headrace import registry
from headrace.changes import CHANGE_ROW_DDL, TableSchema
from headrace.errors import OptionError
from headrace.options import parse_options
from headrace.sources.base import Limit, Slice, Source
from headrace.sources.databases import Databases, Heads, Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_SPARK_OPTIONS = frozenset(("path",))
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
    database, take the structure from the stream's `schema` rows (`TableSchema.from_text`).

        [customers] = headrace.tables("sqlserver", table="dbo.customers", **options)

    Args:
        source: the source's name, such as `sqlserver`.
        options: those of `spark.readStream.format("sqlserver_cdc")`, in either spelling.

    Returns:
        Structures in the order of the include list, database after database.

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
    return kind(parse_options(kind.options, options, owner=f"source '{name}'", ignore=ignore))


@dataclass
class SlicePartition(InputPartition):
    """One slice of a batch, as Spark sends it to a task."""

    database: str
    slice: Slice

    def __init__(self, database: str, slice: Slice) -> None:
        super().__init__(slice)
        self.database = database
        self.slice = slice


class ChangeStreamReader(DataSourceStreamReader, _DRAINING):  # type: ignore[misc]
    """Spark's view of a source: offsets as dicts, batches as slices, rows as Arrow.

    Batches are bounded by the source's options on every Spark. With Spark 4.2 or newer the trigger `availableNow` runs
    bounded batches until everything is there that the source offered when the query began, and `once` takes all of it
    in one batch.
    """

    def __init__(self, name: str, options: dict[str, str]) -> None:
        self._name = name
        self._options = options
        self._databases = Databases(source_named(name, dict(options)))
        self._last = Offsets()
        self._goal: Heads | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Before everything: the first batch begins with the snapshot."""
        return Offsets().to_json()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Where the next batch ends. `start` is given from Spark 4.2 on; before, the last planned batch says it."""
        before = Offsets.from_json(start) if start else self._last
        everything = self._goal is None and _SPARK is not None and isinstance(limit, _SPARK.ReadAllAvailable)
        limit_of_batch = _EVERYTHING if everything else Limit()
        end = self._databases.advance(before, limit_of_batch, dt.datetime.now(dt.UTC), self._goal)
        return end.to_json()

    def getDefaultReadLimit(self) -> Any:
        """Some bound, so that Spark asks for everything only where it means it; the source's options say the real one.

        Spark knows limits of rows, bytes and files; ours are commits, which are never split, and snapshot chunks.
        """
        return _SPARK.ReadMaxRows(_NOMINAL_ROWS)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends when it has what the source offers now. Called by Spark 4.2 or newer."""
        self._goal = self._databases.head()

    def reportLatestOffset(self) -> dict[str, Any]:
        """The newest commit of each database, as `latestOffset` in the query's progress. From Spark 4.2 on."""
        return dict(self._databases.head())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch. Spark repeats the last finished batch's end on a restart, which costs nothing here."""
        first, last = Offsets.from_json(start), Offsets.from_json(end)
        self._last = last
        return [SlicePartition(database, slice) for database, slice in self._databases.plan(first, last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, SlicePartition)
        yield from self._databases.read(partition.database, partition.slice)

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

    def schema(self) -> str:
        """Change rows with images as maps: any table in one stream."""
        return CHANGE_ROW_DDL

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

    def schema(self) -> str:
        """Change rows with images as maps."""
        return CHANGE_ROW_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query."""
        options = dict(self.options)
        connector = next((options.pop(name) for name in list(options) if name.lower() == "connector"), None)
        if connector is None:
            known = ", ".join(registry.names("source"))
            raise OptionError("Option 'connector' of format 'headrace' is missing.", remedy=f"Known: {known}.")
        return ChangeStreamReader(connector, options)


def _data_source(name: str) -> type[ChangeDataSource]:
    return type(f"{name.capitalize()}DataSource", (ChangeDataSource,), {"source_name": name})
