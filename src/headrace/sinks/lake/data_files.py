"""Data files of lakehouse tables, written by pyarrow: no Spark job, in a worker or in the driver.

A file has the columns of its table in Parquet's types as Spark writes them: instants and local timestamps in
microseconds, decimals with the column's own digits. What its columns hold is known when it is closed, so that the log
of a table gets statistics without a second read.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType, TracebackType
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.sinks.lake.partitions import WHOLE, Partition
from headrace.sinks.lake.storage import Folder

_COMPRESSION = "zstd"
_OWN_NAME = re.compile(r"(?:.*/)?headrace-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[a-z]+\.parquet")
_ROW_GROUP = 1 << 20
_PLAIN = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SPARK_VERSION = "org.apache.spark.version"
"""Readers of Spark 3 refuse days before 1582 in files that do not say by which calendar they were written; from this
key on they take them as they are."""

FIELD_ID = "PARQUET:field_id"
"""Where pyarrow keeps the number of a column."""
_OWN_NAMES: Mapping[str, str] = MappingProxyType({})

Ordered = int | float | str | Decimal
"""A value with an order: days and microseconds since 1970 are numbers."""


def is_own_name(path: str) -> bool:
    """Whether a file has a name that `DataFileWriter` gives, and no other writer of lake tables."""
    return _OWN_NAME.fullmatch(path) is not None


def arrow_type(spark_type: str) -> pa.DataType | None:
    """The Arrow type of a column in a data file; None for a Spark type that is not written by pyarrow.

    Args:
        spark_type: as DDL, `decimal(10,2)`.
    """
    if spark_type.startswith("decimal("):
        precision, scale = spark_type[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return _PLAIN.get(spark_type)


def numbered(name: str, kind: pa.DataType | None, number: int | None, *, required: bool = False) -> pa.Field:
    """A column of a data file, whose number says which of the table's it is; None for a table without numbers."""
    return pa.field(name, kind, not required, None if number is None else {FIELD_ID: str(number)})


@dataclass(frozen=True)
class ColumnRange:
    """What a column of a data file holds.

    Args:
        nulls: how many values are null.
        least: not greater than any value; None where nothing is known, or there is no value.
        greatest: not less than any value; likewise.
    """

    nulls: int = 0
    least: Ordered | None = None
    greatest: Ordered | None = None


@dataclass(frozen=True)
class DataFile:
    """A data file that was written and closed. Can be pickled.

    Args:
        path: relative to the table's folder.
        size: in bytes.
        rows: how many it has.
        modified: when it was closed, in milliseconds since 1970.
        ranges: what its columns hold, by name.
        partition: of which partition its rows are.
    """

    path: str
    size: int
    rows: int
    modified: int
    ranges: Mapping[str, ColumnRange]
    partition: Partition = WHOLE


class DataFileWriter(AbstractContextManager["DataFileWriter"]):
    """Writes one data file, under a name that no other attempt has. Runs where the rows are: a worker or the driver.

    Until a commit names the file, no reader of the table sees it. An attempt that fails closes the file without a
    footer; what is left is not a data file of any table.

    Args:
        folder: the table's.
        schema: names and types of the columns (`arrow_type`), in the table's order.
        partition: of which partition its rows are; whose folder is made.
        names: those that columns have in the file, where these are not their own.

    Raises:
        OSError: the folder can't be written.
    """

    def __init__(
        self,
        folder: Folder,
        schema: pa.Schema,
        *,
        partition: Partition = WHOLE,
        names: Mapping[str, str] = _OWN_NAMES,
    ) -> None:
        self._storage = folder.storage
        self._partition = partition
        if partition.folder:
            self._storage.make_folder(folder.location(partition.folder))
        self._path = f"{partition.folder}headrace-{uuid4()}.{_COMPRESSION}.parquet"
        self._location = folder.location(self._path)
        self._schema = schema
        self._inside = pa.schema(
            [field.with_name(names.get(field.name, field.name)) for field in schema],
            {_SPARK_VERSION: _spark_version()},
        )
        self._rows = 0
        self._ranges = [_Range(field.type) for field in schema]
        self._stream = self._storage.system.open_output_stream(self._location)
        self._writer = pq.ParquetWriter(
            self._stream,
            self._inside,
            compression=_COMPRESSION,
            store_schema=False,
        )
        self._closed = False

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows, in order. Their columns have the file's names and types."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        inside = pa.Table.from_arrays(table.cast(self._schema).columns, schema=self._inside)
        self._writer.write_table(inside, row_group_size=_ROW_GROUP)
        self._rows += table.num_rows
        for known, column in zip(self._ranges, table.columns, strict=True):
            known.add(column)

    @property
    def rows(self) -> int:
        """How many rows were written so far."""
        return self._rows

    @property
    def size(self) -> int:
        """How many bytes were written so far; rows that wait for their row group don't count."""
        return int(self._stream.tell())

    def close(self) -> DataFile:
        """Finish the file.

        Returns:
            What a commit needs to know of it.
        """
        self._writer.close()
        size = self.size
        self._stream.close()
        self._closed = True
        modified = int(time.time() * 1000)
        ranges = {field.name: known.found for field, known in zip(self._schema, self._ranges, strict=True)}
        return DataFile(self._path, size, self._rows, modified, ranges, self._partition)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file where `close` was not reached, and delete it: nothing names it."""
        if self._closed:
            return
        try:
            self._writer.close()
            self._stream.close()
        finally:
            self._storage.delete(self._location)


def write_data_file(
    folder: Folder,
    rows: pa.Table,
    *,
    partition: Partition = WHOLE,
    names: Mapping[str, str] = _OWN_NAMES,
) -> DataFile:
    """Write rows, at least one, as one data file (`DataFileWriter`)."""
    with DataFileWriter(folder, rows.schema, partition=partition, names=names) as writer:
        writer.write(rows)
        return writer.close()


def delete_data_files(folder: Folder, written: Iterable[DataFile]) -> None:
    for file in written:
        folder.storage.delete(folder.location(file.path))


@functools.cache
def _spark_version() -> str:
    return importlib.metadata.version("pyspark")


class _Range:
    """Least and greatest value of a column that comes in parts."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._nulls = 0
        self._least: Ordered | None = None
        self._greatest: Ordered | None = None
        self._is_known = not (pa.types.is_boolean(kind) or pa.types.is_binary(kind))

    def add(self, values: pa.ChunkedArray) -> None:
        self._nulls += values.null_count
        if not self._is_known or values.null_count == len(values):
            return
        if pa.types.is_floating(self._kind) and pc.any(pc.is_nan(values)).as_py():
            # It is the greatest value to some readers, and to others none at all.
            self._is_known = False
            return
        ends = pc.min_max(_countable(values))
        least, greatest = ends["min"].as_py(), ends["max"].as_py()
        self._least = least if self._least is None else min(self._least, least)
        self._greatest = greatest if self._greatest is None else max(self._greatest, greatest)

    @property
    def found(self) -> ColumnRange:
        if not self._is_known:
            return ColumnRange(self._nulls)
        least, greatest = self._least, self._greatest
        if isinstance(least, float) and isinstance(greatest, float):
            # The two zeros are one value, and which of them is the least depends on the reader.
            least, greatest = -0.0 if least == 0 else least, 0.0 if greatest == 0 else greatest
            return ColumnRange(self._nulls, _finite(least), _finite(greatest))
        return ColumnRange(self._nulls, least, greatest)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _countable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Days and moments as numbers: Python has none beyond the year 9999."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
