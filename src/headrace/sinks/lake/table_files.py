"""Files of lakehouse tables that workers write from the rows of a first snapshot; the driver's commit names them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa

from headrace.changes.table import TableSchema
from headrace.changes.table_files import TableFile, TableFiles, WrittenFile
from headrace.errors import SinkError
from headrace.sinks.lake.data_files import DataFile, DataFileWriter, arrow_type, numbered
from headrace.sinks.lake.partitions import Partition, PartitionField, Partitioning
from headrace.sinks.lake.storage import LOCAL, Folder, Storage
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn

_ROWS = 250_000
_BYTES = 64 << 20
"""How many rows, and bytes of them, make a row group."""
_PARTITIONS = 100
"""So many files an attempt has open at once; rows of more partitions go on as change rows."""


@dataclass(frozen=True)
class PreparedTable(ABC):
    """A table that is there, and takes files with these columns. A subclass is one format's.

    Args:
        folder: where its data files are.
        columns: the source's, with their Spark types, as the table has them.
        position: the name of the column with the position of a row's last change.
        mark: the name of the column that marks deleted rows; empty for none.
        partitions: by what it is partitioned, each as the parts of a `PartitionField`.
        numbers: those of its columns; empty where they have none.
        names: those that columns have in files, where these are not their own.
    """

    folder: Folder
    columns: Mapping[str, str]
    position: str
    mark: str
    partitions: Sequence[tuple[str, str, int]]
    numbers: Mapping[str, int]
    names: Mapping[str, str]

    @property
    def partitioning(self) -> Partitioning:
        return Partitioning(tuple(PartitionField(*parts) for parts in self.partitions))

    @property
    def inside(self) -> list[str]:
        return list(self.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows: the source's, and ours."""
        own_types = {self.position: pa.string()} | ({self.mark: pa.bool_()} if self.mark else {})
        kinds = {name: arrow_type(kind) for name, kind in self.columns.items()} | own_types
        return pa.schema([numbered(name, kind, self.numbers.get(name)) for name, kind in kinds.items()])

    @abstractmethod
    def action(self, file: DataFile) -> dict[str, Any]:
        """What a commit says of a file, as JSON."""


@dataclass(frozen=True)
class LakeFiles(TableFiles):
    """Folders of tables of one format, each for one structure. A subclass is one sink's.

    Args:
        tables: by table and structure (`place_of`).
    """

    table: ClassVar[type[PreparedTable]]
    tables: Mapping[str, PreparedTable]

    def to_text(self) -> str:
        tables = {name: asdict(table) | {"folder": _location(table.folder)} for name, table in self.tables.items()}
        return json.dumps(tables, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str, login: str = "") -> Self:
        """Read `to_text`'s form back. Tables that another login reaches are left out."""
        prepared = {}
        for name, table in json.loads(text).items():
            path, fingerprint = table.pop("folder")
            storage = Storage(login) if fingerprint else LOCAL
            if storage.fingerprint == fingerprint:
                prepared[name] = cls.table(folder=Folder(path, storage), **table)
        return cls(prepared)

    def file(self, schema: TableSchema) -> LakeFile | None:
        table = self.tables.get(place_of(schema))
        return None if table is None else LakeFile(table, [column.name for column in schema.columns])


def _location(folder: Folder) -> tuple[str, str]:
    return folder.path, folder.storage.fingerprint


def place_of(schema: TableSchema) -> str:
    return f"{schema.id.full_path} {schema.fingerprint}"


class LakeFile(TableFile):
    """One Parquet file of each partition, under names that no other attempt has.

    Args:
        table: what it belongs to.
        names: the columns of the rows that come, in their order.
    """

    def __init__(self, table: PreparedTable, names: Sequence[str]) -> None:
        self.attempt = str(uuid4())
        self._table = table
        self._indexes = [names.index(name) for name in table.columns]
        self._schema = table.schema
        self._writers: dict[Partition, DataFileWriter] = {}
        self._waiting: dict[Partition, list[pa.Table]] = defaultdict(list)
        self._rows = self._bytes = 0

    def write(self, texts: Sequence[pa.Array], position: str) -> bool:
        """Take rows whose texts all have a value of their column's type, and of the table's partitions."""
        count = len(texts[0])
        arrays: list[pa.Array] = []
        for location, field in zip(self._indexes, self._schema, strict=False):
            values = _typed(texts[location], field.type)
            if values is None or (values.null_count and not field.nullable):
                return False
            arrays.append(values)
        arrays.append(pa.repeat(pa.scalar(position, pa.string()), count))
        if self._table.mark:
            arrays.append(pa.repeat(pa.scalar(False), count))
        rows = pa.Table.from_arrays(arrays, schema=self._schema)
        parts = self._table.partitioning.split(rows)
        coming = [partition for partition, _ in parts]
        if any(map(self._table.partitioning.loses, coming)):
            return False
        if len({*self._writers, *self._waiting, *coming}) > _PARTITIONS:
            return False
        for partition, some in parts:
            self._waiting[partition].append(some)
        self._rows += count
        self._bytes += rows.nbytes
        if self._rows >= _ROWS or self._bytes >= _BYTES:
            self._flush()
        return True

    def _flush(self) -> None:
        table = self._table
        with explained(table.folder):
            for partition, waiting in self._waiting.items():
                rows = pa.concat_tables(waiting).select(self._table.inside).combine_chunks()
                if partition not in self._writers:
                    self._writers[partition] = DataFileWriter(
                        table.folder, rows.schema, partition=partition, names=table.names
                    )
                self._writers[partition].write(rows)
        self._waiting.clear()
        self._rows = self._bytes = 0

    def close(self) -> WrittenFile:
        self._flush()
        with explained(self._table.folder):
            files = [writer.close() for writer in self._writers.values()]
        if not files:
            return WrittenFile(0, self.attempt)
        actions = [self._table.action(file) for file in files]
        return WrittenFile(sum(file.rows for file in files), self.attempt, json.dumps(actions, ensure_ascii=False))

    def discard(self) -> None:
        self._waiting.clear()
        with ExitStack() as files:
            for writer in self._writers.values():
                files.enter_context(writer)


@contextmanager
def explained(folder: Folder) -> Iterator[None]:
    """Says in one sentence that a data file can't be written, and what helps.

    Raises:
        SinkError: it can't.
    """
    try:
        yield
    except OSError as error:
        raise SinkError(
            f"Rows can't be written into the folder {folder}: {error}.",
            remedy="See that it can be written by the executors and has room. You can repeat the batch.",
        ) from error


def _typed(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Canonical texts as values; None where one is not a value of the type."""
    if pa.types.is_string(kind):
        return texts
    column = TypedColumn(Tape.of_texts(texts), np.arange(len(texts), dtype=np.int32), kind)
    return None if column.refused.size else column.values
