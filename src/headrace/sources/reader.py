"""`spark.readStream.format("sqlserver_cdc")`: sources as PySpark data sources. The only file that knows
`pyspark.sql.datasource`.

Where code runs: `latestOffset`, `partitions` and `commit` in one Python process beside the driver, alive as long as the
query; `read` in executors, on a pickled copy. What Spark 4.0 does, measured: `latestOffset` gets no start and is called
before `initialOffset`; a restart calls `partitions(end, end)` first, and for a batch that was not finished
`partitions(start, end)`. So the place to go on from is the end of the last `partitions` call, and nothing before the
first one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headrace import registry
from headrace.changes import CHANGE_ROW_DDL
from headrace.errors import OptionError
from headrace.options import parse_options
from headrace.sources.base import Limit, Slice, Source
from headrace.sources.offset import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_SPARK_OPTIONS = frozenset(("path",))


def register(spark: SparkSession) -> None:
    """Make every source available as `spark.readStream.format("<name>_cdc")`, such as `sqlserver_cdc`.

    Options are the source's own, in camelCase or snake case; an unknown one is an error when the stream starts.
    Repeating the call is harmless.
    """
    for name in registry.names("source"):
        spark.dataSource.register(_data_source(name))


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

    slice: Slice

    def __init__(self, slice: Slice) -> None:
        super().__init__(slice)
        self.slice = slice


class ChangeStreamReader(DataSourceStreamReader):
    """Spark's view of a source: offsets as dicts, batches as slices, rows as Arrow."""

    def __init__(self, name: str, options: dict[str, str]) -> None:
        self._name = name
        self._options = options
        self._source = source_named(name, dict(options))
        self._last = Offset.nothing()

    def initialOffset(self) -> dict[str, Any]:
        """Before everything: the first batch begins with the snapshot."""
        return Offset.nothing().to_json()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Where the next batch ends. `start` is given from Spark 4.2 on; before, the last planned batch says it."""
        del limit
        before = Offset.from_json(start) if start else self._last
        end = self._source.advance(before, Limit(), dt.datetime.now(dt.UTC))
        return end.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch. Spark repeats the last finished batch's end on a restart, which costs nothing here."""
        first, last = Offset.from_json(start), Offset.from_json(end)
        self._last = last
        return [SlicePartition(slice) for slice in self._source.plan(first, last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, SlicePartition)
        yield from self._source.read(partition.slice)

    def commit(self, end: dict[str, Any]) -> None:
        """The batch that ends here rests in the sinks. Spark says so one batch late, and not at all when idle."""
        self._source.acknowledge(Offset.from_json(end))


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
