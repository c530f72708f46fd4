"""Large batches of a table: each task folds and types the rows that it holds and writes them as data files.

The driver learns of the keys and positions only. It says which of several changes of a key is the last one, by an index
which rows of the table go, and makes one commit. Rows cross into Python once, as texts, and never come back.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.apply import TableProfile
from headrace.errors import HeadraceError
from headrace.sinks.lake.collected import TEXTS, fold_texts, last_changes
from headrace.sinks.lake.data_files import DataFile, delete_data_files, write_data_file
from headrace.sinks.lake.keys import KeyForm
from headrace.sinks.lake.table_files import PreparedTable, explained
from headrace.sinks.lake.whole_rows import CollectedRows, RowsInFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST = 2_000_000
"""Up to how many rows of a table in a batch: the driver holds their keys."""
_ROWS = 250_000
_BYTES = 64 << 20
"""How many rows, and bytes of their texts, a task folds at once."""
_RESULT = pa.schema([("result", pa.binary())])


@dataclass(frozen=True)
class TableToWrite:
    """What tasks know of a table.

    Args:
        profile: what the batch holds of it.
        prepared: its folder and columns.
        nullable: the columns of its key that may be null.
        label: the target as messages name it.
    """

    profile: TableProfile
    prepared: PreparedTable
    nullable: frozenset[str]
    label: str

    def form(self) -> KeyForm:
        return KeyForm({c.name: c.logical.spark_type for c in self.profile.schema.key_columns}, self.nullable)


@dataclass(frozen=True)
class FoldedRows:
    """Some rows of a batch that one task folded.

    Args:
        file: the rows that come, all of one partition; None for rows that go.
        keys: the columns of the key and the position of the rows in their order, as a stream of Arrow.
    """

    file: DataFile | None
    keys: bytes


TaskResult = list[FoldedRows] | HeadraceError | None
"""What a task makes of some rows. The driver raises an error; None means that Spark must read a value's text."""


def results_of(rows: DataFrame, table: TableToWrite) -> list[TaskResult]:
    """Let tasks write a table's rows into data files. Runs one Spark job; an attempt that fails leaves files that no
    commit names.

    Args:
        rows: change rows among which those of the table are.
        table: a simple one (`headrace.sinks.lake.collected.is_simple`).
    """
    results = rows.where(table.profile.where).selectExpr(*TEXTS).mapInArrow(_writing(table), "result binary").collect()
    return [pickle.loads(line["result"]) for line in results]


def combine(results: Sequence[TaskResult], table: TableToWrite) -> CollectedRows | None:
    """The last change of each key among those of all tasks.

    Args:
        results: what the tasks report (`fold_into_files`).
        table: the table.

    Returns:
        The rows that come and go; None where a value's text is not the canonical one of its type, and then no file is
        left.

    Raises:
        SchemaError: which of two changes is the later one is not known.
        SinkError: a file can't be written, or the driver does not find it.
    """
    folded = [one for result in results if isinstance(result, list) for one in result]
    files = [one.file for one in folded if one.file is not None]
    if all(isinstance(result, list) for result in results):
        table.prepared.folder.require({file.path: file.size for file in files})
        return _last_of_all(folded, table)
    delete_files(results, table)
    for result in results:
        if isinstance(result, HeadraceError):
            raise result
    return None


def delete_files(results: Iterable[TaskResult], table: TableToWrite) -> None:
    """Delete what tasks wrote and no commit names."""
    folded = [one for result in results if isinstance(result, list) for one in result]
    delete_data_files(table.prepared.folder, [one.file for one in folded if one.file is not None])


def _last_of_all(folded: Sequence[FoldedRows], table: TableToWrite) -> CollectedRows:
    profile, position = table.profile, table.prepared.position
    files: list[tuple[DataFile, pa.Table]] = []
    keys_of: list[pa.Table] = []
    file_of, row_of = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for one in folded:
        keys = pa.ipc.open_stream(one.keys).read_all()
        file_of.append(np.full(keys.num_rows, -1 if one.file is None else len(files)))
        row_of.append(np.arange(keys.num_rows))
        keys_of.append(keys)
        if one.file is not None:
            files.append((one.file, keys))
    every = pa.concat_tables(keys_of).combine_chunks()
    at, number = np.concatenate(file_of), np.concatenate(row_of)
    positions = pa.concat_arrays(every.column(position).chunks)
    last = last_changes(table.form().keys(every), positions, profile, table.label)
    is_last = np.zeros(len(at), np.bool_)
    is_last[last] = True
    lost = [np.flatnonzero(~is_last[at == index]) for index in range(len(files))]
    in_files = RowsInFiles(table.prepared.folder, table.prepared.schema, files, at[is_last], number[is_last], lost)
    return CollectedRows(
        every.filter(pa.array(is_last)),
        pa.array(in_files.file_of >= 0),
        profile.schema.key,
        table.nullable,
        position,
        profile.decoded,
        profile.id.full_path,
        in_files,
    )


def _writing(table: TableToWrite) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for result in fold_into_files(batches, table):
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(result)])], schema=_RESULT)

    return write


def fold_into_files(batches: Iterable[pa.RecordBatch], table: TableToWrite) -> Iterator[TaskResult]:
    """What a task does: fold as many rows as memory allows at once, write those that come, report the keys of all.

    Args:
        batches: `TEXTS` of change rows.
        table: the table that they are of.
    """
    return (fold_and_write(some, table) for some in _gathered(batches))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ROWS or size >= _BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting)


def fold_and_write(rows: pa.Table, table: TableToWrite) -> TaskResult:
    """Fold some rows, write those that come into files, and report the keys of all.

    Args:
        rows: `TEXTS` of change rows.
        table: the table that they are of.
    """
    prepared = table.prepared
    try:
        change = fold_texts(rows, table.profile, table.nullable, prepared.position, table.label)
        if change is None:
            return None
        comes = change.rows.slice(0, change.comes.true_count).select(prepared.schema.names)
        if any(comes.column(field.name).null_count for field in prepared.schema if not field.nullable):
            return None
        folded = []
        for partition, some in prepared.partitioning.split(comes.cast(prepared.schema)):
            with explained(prepared.folder):
                inside = some.select(prepared.inside)
                file = write_data_file(prepared.folder, inside, partition=partition, names=prepared.names)
            folded.append(FoldedRows(file, _keys(some, change)))
    except HeadraceError as error:
        return error
    goes = change.rows.slice(comes.num_rows)
    return [*folded, FoldedRows(None, _keys(goes, change))] if goes.num_rows else folded


def _keys(rows: pa.Table, change: CollectedRows) -> bytes:
    names = [*change.key, change.position]
    # Files say what is never null, and rows that go don't.
    keys = rows.select(names).cast(change.rows.select(names).schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(keys)
    stream_bytes: bytes = sink.getvalue().to_pybytes()
    return stream_bytes
