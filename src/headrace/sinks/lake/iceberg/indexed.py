"""Small batches into an Iceberg table without a Spark job: an index says where rows stand, a file of positions or
vectors mark those that go.

What the table is at a snapshot, its metadata says, and the commit is Iceberg's own row delta. It counts as having read
the whole table: where another commit brought or deleted rows in between, an append too, it fails, and the batch is
brought again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from headrace import faultpoints
from headrace.sinks.lake.data_files import DataFile, write_data_file
from headrace.sinks.lake.iceberg.deletes import Deletes, write_positions, write_vectors
from headrace.sinks.lake.iceberg.facts import TableFacts, number_of, partition_text
from headrace.sinks.lake.iceberg.java import JavaTable
from headrace.sinks.lake.iceberg.live_files import LiveFiles
from headrace.sinks.lake.indexed import IndexedTable, Rows, indexed, of_one_size, unfit
from headrace.sinks.lake.key_index import Bounded
from headrace.sinks.lake.keys import KeyForm
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.whole_rows import CollectedRows


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
    kept = IndexedTable((facts.id, facts.format, numbers), form, change.position, live)

    def advance(files: LiveFiles) -> None:
        assert facts.folder is not None
        files.folder = facts.folder
        files.names = {number_of(field): field.name for field in (*facts.schema, *facts.lineage)}
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
    assert facts.folder is not None
    folder = facts.folder
    effect = known.effect(change.with_nulls(facts.lineage), pa.schema([*facts.schema, *facts.lineage]), label)
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
        if all(rows.column(name).null_count == rows.num_rows for name in facts.lineage.names):
            rows = rows.drop_columns(facts.lineage.names)
        add(write_data_file(folder, rows, partition=partition), rows)
    for written in effect.written:
        add(*written)
    for path in (*effect.ends, *effect.young):
        commit.removeRows(table.gone_file(path, known.rows_of(path), known.bytes_of(path), files.partition(path)))
    removed = {*effect.ends, *effect.young}
    added, superseded = (_vectors if facts.format >= 3 else _positions)(files, folder, facts.data, marks, removed)
    for deletes in added:
        commit.addDeletes(table.deletes(deletes, new=True))
    for deletes in superseded:
        commit.removeDeletes(table.deletes(deletes, new=False))
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


_Marks = Mapping[str, dict[str, Rows]]
"""Rows that go in this commit, by partition and data file."""


def _positions(
    files: LiveFiles, folder: Folder, table_folder: str, marks: _Marks, removed: Collection[str]
) -> tuple[list[Deletes], list[Deletes]]:
    """The new file of positions of each partition, which counts in that one only, and those that it replaces: many of
    about one size become one, as data files do."""
    new, superseded = [], []
    for partition, rows in marks.items():
        small = {deletes.identity: deletes for deletes in files.position_files(partition)}
        alike = of_one_size({identity: (deletes.size, partition) for identity, deletes in small.items()})
        for deletes in map(small.__getitem__, alike):
            superseded.append(deletes)
            for path, gone in deletes.rows.items():
                if path in files.rows and path not in removed:
                    rows[path] = np.union1d(rows.get(path, gone), gone)
        new.append(write_positions(folder, table_folder, partition, rows))
    return new, superseded


def _vectors(
    files: LiveFiles, folder: Folder, table_folder: str, marks: _Marks, removed: Collection[str]
) -> tuple[list[Deletes], list[Deletes]]:
    """The new vectors, each of which has all that is gone from its data file, and what they replace."""
    for rows in marks.values():
        rows.update({path: np.union1d(files.gone(path), gone) for path, gone in rows.items()})
    # A file of positions from the time of format 2 may have rows of other data files too.
    touched = {path for rows in marks.values() for path in rows} | set(removed)
    superseded = {d.identity: d for path in touched for d in files.deletes(path) if d.rows.keys() <= touched}
    return write_vectors(folder, table_folder, marks), list(superseded.values())


def takes(change: CollectedRows, facts: TableFacts) -> bool:
    if change.written is not None:
        return change.written.matches(facts.schema)
    if unfit(change.types, facts.columns):
        return False
    return not any(change.rows.column(name).filter(change.comes).null_count for name in facts.required)
