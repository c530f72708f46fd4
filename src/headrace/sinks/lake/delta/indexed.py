"""Small batches into a Delta table without a Spark job: an index says where rows stand, vectors mark those that go.

What the table is at a version, its log says, and the commit is Delta's own. It counts as having read the whole table:
where another commit of data came in between, it fails, and the batch is brought again.
"""

from __future__ import annotations

import time

import numpy as np

from headrace import faultpoints
from headrace.sinks.lake.data_files import DataFile, arrow_type, write_data_file
from headrace.sinks.lake.delta.actions import Action, added, indexed_columns, marked, removed, statistics
from headrace.sinks.lake.delta.deletion_vectors import write_vectors
from headrace.sinks.lake.delta.facts import TableFacts
from headrace.sinks.lake.delta.live_files import LiveFiles
from headrace.sinks.lake.delta.log import BatchMark, Transaction
from headrace.sinks.lake.indexed import Effect, IndexedTable, indexed, unfit
from headrace.sinks.lake.key_index import Bounded
from headrace.sinks.lake.keys import KeyForm
from headrace.sinks.lake.whole_rows import CollectedRows


def indexed_table(
    indexes: Bounded[IndexedTable[LiveFiles]], location: str, facts: TableFacts, change: CollectedRows, version: int
) -> IndexedTable[LiveFiles] | None:
    """The table with the keys of all rows that it has at a version; None where they need more memory than there may be.

    Args:
        indexes: those of all tables.
        location: under which name it is kept.
        facts: the table.
        change: the batch.
        version: which version.

    Raises:
        as `LiveFiles.advance` and `IndexedTable.index`.
    """
    assert facts.folder is not None
    form = KeyForm({name: facts.columns[name] for name in change.key}, change.nullable)
    # A column that was dropped and came again is another one, whatever its name.
    stored = tuple(facts.names.get(name, name) for name in (*change.key, change.position))
    table = IndexedTable((facts.id, facts.location, stored), form, change.position, LiveFiles(facts.folder))

    def advance(files: LiveFiles) -> None:
        # The same place, with the login of now.
        assert facts.folder is not None
        files.folder = facts.folder
        files.names = facts.names
        files.types = {name: arrow_type(facts.columns[name]) for name in facts.partitions}
        files.advance(version)

    return indexed(indexes, location, table, advance)


def commit_change(
    table: IndexedTable[LiveFiles],
    commit: Transaction,
    change: CollectedRows,
    facts: TableFacts,
    mark: BatchMark | None,
    label: str,
) -> None:
    """Make the commit of a batch.

    Args:
        table: at the version that the commit starts from.
        commit: to be made.
        change: what the batch does.
        facts: the table.
        mark: what the commit leaves in the log.
        label: the table as messages name it.

    Raises:
        LogUnreadable: a file can't be read; nothing has happened.
        OSError: a file can't be written; likewise.
        SchemaError: which of two changes is the later one is not known.
    """
    schema = facts.schema
    effect = table.effect(change, schema, label)
    actions = _goes(table, effect)
    actions += _written(table, effect, facts)
    for all_rows, new in ((effect.comes, True), (effect.moved, False)):
        for partition, rows in facts.partitioning.split(all_rows):
            inside = rows.select(facts.inside)
            file = write_data_file(table.files.folder, inside, partition=partition, names=facts.names)
            actions.append(_added(file, facts, new=new))
            table.wrote(file.path, rows, file.size)
    faultpoints.reach("sink.delta.files_written")
    commit.commit(commit.described(actions), mark)


def takes(change: CollectedRows, facts: TableFacts) -> bool:
    if change.written is not None:
        return change.written.matches(facts.schema)
    return not unfit(change.types, facts.columns)


def _added(file: DataFile, facts: TableFacts, *, new: bool = True) -> Action:
    shown = statistics(file, facts.schema, indexed_columns(facts.inside, facts.properties), facts.names)
    return added(file, shown, facts.partitioning, facts.columns, facts.names, new=new)


def _written(table: IndexedTable[LiveFiles], effect: Effect, facts: TableFacts) -> list[Action]:
    """The actions that name files which tasks wrote."""
    actions = [_added(file, facts) for file, _, _ in effect.written]
    some = [number for number, (_, _, rows) in enumerate(effect.written) if len(rows)]
    vectors = write_vectors(table.files.folder, [effect.written[number][2] for number in some])
    for number, vector in zip(some, vectors, strict=True):
        table.files.keep(vector, effect.written[number][2])
        actions[number] = marked(actions[number]["add"], vector, effect.written[number][0].rows)
    for file, keys, _ in effect.written:
        table.wrote(file.path, keys, file.size)
    return actions


def _goes(table: IndexedTable[LiveFiles], effect: Effect) -> list[Action]:
    """The actions that mark rows, and that remove files."""
    files, now = table.files, int(time.time() * 1000)
    actions = [removed(files.entries[path], now) for path in (*effect.marks, *effect.ends)]
    actions += [removed(files.entries[path], now, moved=True) for path in effect.young]
    marks = [np.union1d(files.gone(path), rows) for path, rows in effect.marks.items()]
    for path, rows, vector in zip(effect.marks, marks, write_vectors(files.folder, marks), strict=True):
        files.keep(vector, rows)
        actions.append(marked(files.entries[path], vector, table.rows_of(path)))
    return actions
