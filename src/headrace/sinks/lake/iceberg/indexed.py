"""Small batches into an Iceberg table without a Spark job: an index says where rows stand, a file of positions marks
those that go.

What the table is at a snapshot, its metadata says, and the commit is Iceberg's own row delta. It counts as having read
the whole table: where another commit brought or deleted rows in between, an append too, it fails, and the batch is
brought again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace import faultpoints
from headrace.sinks.lake.data_files import DataFile, numbered, write_data_file
from headrace.sinks.lake.iceberg.facts import TableFacts, partition_text
from headrace.sinks.lake.iceberg.java import JavaTable
from headrace.sinks.lake.iceberg.live_files import PATH, POSITION, LiveFiles
from headrace.sinks.lake.indexed import IndexedTable, Rows, indexed, unfit
from headrace.sinks.lake.key_index import Bounded
from headrace.sinks.lake.keys import KeyForm
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.whole_rows import CollectedRows

_POSITIONS = pa.schema(
    [
        numbered(PATH, pa.string(), 2147483546, required=True),
        numbered(POSITION, pa.int64(), 2147483545, required=True),
    ]
)
"""A file of positions; the numbers of its columns are Iceberg's for all tables."""


def indexed_table(
    indexes: Bounded[IndexedTable[LiveFiles]],
    location: str,
    table: JavaTable,
    change: CollectedRows,
    snapshot: int | None,
) -> IndexedTable[LiveFiles] | None:
    """The table with the keys of all rows that it has at a snapshot; None where they need more memory than there may
    be.

    Args:
        indexes: those of all tables.
        location: under which name it is kept.
        table: Iceberg's own.
        change: the batch.
        snapshot: which snapshot; None for an empty table that has none.

    Raises:
        as `LiveFiles.advance` and `IndexedTable.index`.
    """
    facts = table.facts
    form = KeyForm({name: facts.columns[name] for name in change.key}, change.nullable)
    numbers = tuple(facts.ids[name] for name in (*change.key, change.position))
    assert facts.folder is not None
    live = LiveFiles(facts.folder, facts.default_scheme)
    kept = IndexedTable((facts.id, numbers), form, change.position, live)

    def advance(files: LiveFiles) -> None:
        assert facts.folder is not None
        files.folder = facts.folder
        files.names = {number: name for name, number in facts.ids.items()}
        table.advance(files, snapshot)

    return indexed(indexes, location, kept, advance)


def commit_change(
    known: IndexedTable[LiveFiles],
    table: JavaTable,
    change: CollectedRows,
    mark: Mapping[str, str],
    branch: str | None,
    label: str,
) -> None:
    """Make the commit of a batch, which validates that the table stands where `known` was read, but for commits that
    leave its rows.

    Args:
        known: the rows of the table at the snapshot that the commit starts from.
        table: Iceberg's own.
        change: what the batch does.
        mark: what the commit leaves in the snapshot's summary.
        branch: the branch that it goes to; None for the table's own.
        label: the table as messages name it.

    Raises:
        LogUnreadable: a file can't be read; nothing has happened.
        OSError: a file can't be written; likewise.
        SchemaError: which of two changes is the later one is not known.
    """
    facts, files = table.facts, known.files
    effect = known.effect(change, facts.schema, label)
    assert facts.folder is not None
    folder = facts.folder
    folder.make()
    commit = table.own.newRowDelta()
    partitioning = facts.partitioning
    assert partitioning is not None
    marks: dict[str, dict[str, Rows]] = defaultdict(dict)
    for path, gone in effect.marks.items():
        marks[files.partition(path)][path] = gone

    def add(file: DataFile, keys: pa.Table, gone: Rows | None = None) -> None:
        location = f"{facts.data}/{file.path}"
        partition = partition_text(partitioning, facts.spec, facts.columns, file.partition)
        commit.addRows(table.data_file(location, file.size, partition))
        known.wrote(location, keys, file.size)
        if gone is not None and len(gone):
            marks[partition][location] = gone

    for partition, rows in (*partitioning.split(effect.comes), *partitioning.split(effect.moved)):
        add(write_data_file(folder, rows, partition=partition), rows)
    for written in effect.written:
        add(*written)
    for path in (*effect.ends, *effect.young):
        commit.removeRows(table.gone_file(path, known.rows_of(path), known.bytes_of(path), files.partition(path)))
    # A file of positions counts in its own partition only.
    for values, of in marks.items():
        name = f"{uuid4()}-deletes.parquet"
        size = _write_positions(folder, name, of)
        commit.addDeletes(table.position_deletes(f"{facts.data}/{name}", size, of, values))
    commit.validateDataFilesExist(list(effect.marks)).validateDeletedFiles()
    commit.validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
    if files.snapshot is not None:
        commit.validateFromSnapshot(files.snapshot)
    for name, text in mark.items():
        commit.set(name, text)
    if branch is not None:
        commit.toBranch(branch)
    faultpoints.reach("sink.iceberg.before_publish")
    commit.commit()


def _write_positions(folder: Folder, name: str, marks: Mapping[str, Rows]) -> int:
    """Write a file of positions, ordered as readers want it.

    Returns:
        Its size in bytes.
    """
    paths = sorted(marks)
    counts = [len(marks[path]) for path in paths]
    names = pa.DictionaryArray.from_arrays(np.repeat(np.arange(len(paths), dtype=np.int32), counts), paths)
    positions = np.concatenate([np.sort(marks[path]) for path in paths])
    table = pa.Table.from_arrays([names.cast(pa.string()), pa.array(positions)], schema=_POSITIONS)
    written = pa.BufferOutputStream()
    pq.write_table(table, written, compression="zstd", store_schema=False)
    data = written.getvalue()
    folder.storage.write(folder.location(name), data)
    return int(data.size)


def takes(change: CollectedRows, facts: TableFacts) -> bool:
    """Whether a table takes the rows of a batch as they are."""
    if change.written is not None:
        return change.written.matches(facts.schema)
    if unfit(change.types, facts.columns):
        return False
    return not any(change.rows.column(name).filter(change.comes).null_count for name in facts.required)
