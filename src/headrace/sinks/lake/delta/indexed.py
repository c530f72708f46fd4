"""Small batches into a Delta table without a Spark job: an index says where rows stand, vectors mark those that go.

What the table is at a version, its log says, and the commit is Delta's own. It counts as having read the whole table:
where another commit of data came in between, it fails, and the batch is brought again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headrace import faultpoints
from headrace.apply.sequence import is_disordered, no_order
from headrace.sinks.lake.data_files import arrow_type, write_data_file
from headrace.sinks.lake.delta.actions import Action, added, marked, removed
from headrace.sinks.lake.delta.deletion_vectors import Rows, read_vector, write_vectors
from headrace.sinks.lake.delta.facts import TableFacts
from headrace.sinks.lake.delta.live_files import LiveFiles
from headrace.sinks.lake.delta.log import BatchMark, Transaction
from headrace.sinks.lake.delta.statistics import indexed_columns, statistics
from headrace.sinks.lake.key_index import Bounded, KeyIndex
from headrace.sinks.lake.keys import KeyForm, Keys
from headrace.sinks.lake.whole_rows import CollectedRows


class IndexedTable:
    """The files of a table at a version, with the keys of their rows. One batch at a time uses it.

    Args:
        facts: the table.
        form: how its keys are compared.
        position: the name of the column with the position.
    """

    def __init__(self, facts: TableFacts, form: KeyForm, position: str) -> None:
        assert facts.folder is not None
        self.identity = _identity(facts, form, position)
        self._form = form
        self._position = position
        self._files = LiveFiles(facts.folder)
        self._index = KeyIndex()
        self._newest: dict[str, str | None] = {}
        self._rows: dict[str, int] = {}
        self._vectors: dict[str, Rows] = {}
        self._written: dict[str, tuple[Keys, str | None]] = {}

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return self._index.size + sum(rows.nbytes for rows in self._vectors.values())

    def rows_to_index(self, version: int) -> int:
        """Read the log on to a version. How many rows there are whose keys are not known yet.

        Raises:
            LogUnreadable: the log can't be read.
        """
        self._files.advance(version)
        entries = self._files.entries
        self._index.drop([path for path in self._index.paths if path not in entries])
        for path in [path for path in self._newest if path not in entries]:
            del self._newest[path], self._rows[path]
        vectors = {_name(entry["deletionVector"]) for entry in entries.values() if entry.get("deletionVector")}
        self._vectors = {name: rows for name, rows in self._vectors.items() if name in vectors}
        for path, (keys, newest) in self._written.items():
            if path in entries:
                self._take_in(path, keys, newest)
        self._written = {}
        missing = (entry for path, entry in entries.items() if path not in self._index.paths)
        return sum(json.loads(entry.get("stats") or "{}").get("numRecords", 0) for entry in missing)

    def index(self) -> None:
        """Read the keys of the files that are new.

        Raises:
            OSError: a file can't be read.
            LogUnreadable: a file is somewhere else.
            KeyError: a file does not have the columns of the key.
            pyarrow.ArrowException: its values are none of the table's.
        """
        for path in self._files.entries:
            if path not in self._index.paths:
                with pq.ParquetFile(self._files.place(path)) as file:
                    keys = self._form.keys(file.read(columns=list(self._form.columns), use_threads=False))
                    self._take_in(path, keys, _newest(file.metadata, self._position), file.metadata.num_rows)

    def _take_in(self, path: str, keys: Keys, newest: str | None, rows: int | None = None) -> None:
        self._index.add(path, keys)
        self._newest[path] = newest
        self._rows[path] = len(keys) if rows is None else rows

    def commit(
        self, commit: Transaction, change: CollectedRows, facts: TableFacts, mark: BatchMark | None, label: str
    ) -> None:
        """Make the commit of a batch, after `index` for the version that it starts from.

        Args:
            commit: to be made.
            change: what the batch does.
            facts: the table.
            mark: what the commit leaves in the log.
            label: the table as messages name it.

        Raises:
            OSError: a file can't be read or written; nothing has happened.
            SchemaError: which of two changes is the later one is not known.
        """
        folder, now = self._files.folder, int(time.time() * 1000)
        keys = self._form.keys(change.rows)
        newer = np.zeros(change.rows.num_rows, np.bool_)
        gone: dict[str, Rows] = {}
        positions = change.rows.column(change.position).combine_chunks()
        for path, (places, rows) in self._index.look_up(keys).by_file().items():
            here = ~np.isin(rows, self._marked(path))
            places, rows = keys.rows[places[here]], rows[here]
            if not len(rows):
                continue
            is_older = self._are_older(path, rows, positions.take(pa.array(places)), change, label)
            newer[places[~is_older]] = True
            if is_older.any():
                gone[path] = np.unique(rows[is_older])
        coming = change.rows.filter(pc.and_(change.comes, pa.array(~newer)))
        actions: list[Action] = []
        if coming.num_rows:
            schema = pa.schema([(name, arrow_type(kind)) for name, kind in facts.columns.items()])
            coming = coming.select(schema.names).cast(schema)
            file = write_data_file(str(folder), coming)
            indexed = indexed_columns(schema.names, facts.properties)
            actions.append(added(file, statistics(file, schema, indexed)))
            newest = pc.min_max(coming.column(change.position))["max"].as_py()
            self._written[file.path] = self._form.keys(coming), newest
        actions += self._goes(folder, gone, now)
        faultpoints.reach("sink.delta.files_written")
        commit.commit(commit.described(actions), mark)

    def _goes(self, folder: Path, gone: Mapping[str, Rows], now: int) -> list[Action]:
        """The actions that mark rows, in files that keep some, and remove files that keep none."""
        actions, kept, marks = [], [], []
        for path, rows in gone.items():
            entry = self._files.entries[path]
            actions.append(removed(entry, now))
            marks_now = np.union1d(self._marked(path), rows)
            if len(marks_now) < self._rows[path]:
                kept.append(path)
                marks.append(marks_now)
        for path, rows, vector in zip(kept, marks, write_vectors(folder, marks), strict=True):
            self._vectors[_name(vector)] = rows
            actions.append(marked(self._files.entries[path], vector, self._rows[path]))
        return actions

    def _marked(self, path: str) -> Rows:
        """The rows of a file that are gone."""
        vector = self._files.entries[path].get("deletionVector")
        if not vector:
            return np.empty(0, np.int64)
        name = _name(vector)
        if name not in self._vectors:
            self._vectors[name] = read_vector(self._files.folder, vector)
        return self._vectors[name]

    def _are_older(self, path: str, rows: Rows, new: pa.Array, change: CollectedRows, label: str) -> NDArray[np.bool_]:
        """For each of these rows of a file whether it is older than the position beside it."""
        newest = self._newest[path]
        if not change.decoded and newest is not None and newest < pc.min_max(new)["min"].as_py():
            return np.ones(len(rows), np.bool_)
        with pq.ParquetFile(self._files.place(path)) as file:
            if self._position not in file.schema_arrow.names:
                return np.ones(len(rows), np.bool_)
            kept = _values(file, self._position, rows)
        if change.decoded and any(map(is_disordered, kept.to_pylist(), new.to_pylist())):
            raise no_order(change.source, label)
        found: NDArray[np.bool_] = pc.fill_null(pc.less(kept, new), True).to_numpy(zero_copy_only=False)
        return found


def fits(rows: pa.Table, columns: Mapping[str, str]) -> bool:
    """Whether rows have the types of a table's columns, so that nothing of them is cast."""
    return all(_plain(rows.schema.field(name).type) == arrow_type(kind) for name, kind in columns.items())


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of the same instants in UTC, whatever the session's zone, and of texts, however long they may be."""
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return pa.string() if pa.types.is_large_string(kind) else pa.binary()
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def indexed_table(
    indexes: Bounded[IndexedTable], place: str, facts: TableFacts, change: CollectedRows, version: int
) -> IndexedTable | None:
    """The table with the keys of all rows that it has at a version; None where they need more memory than there may be.

    Args:
        indexes: those of all tables.
        place: under which name it is kept.
        facts: the table.
        change: the batch.
        version: which version.

    Raises:
        as `IndexedTable.rows_to_index` and `IndexedTable.index`.
    """
    if indexes.is_too_large(place):
        return None
    form = KeyForm({name: facts.columns[name] for name in change.key}, change.nullable)
    table = indexes.get(place)
    if table is None or table.identity != _identity(facts, form, change.position):
        table = IndexedTable(facts, form, change.position)
    rows = table.rows_to_index(version)
    if table.size + rows * form.bytes_per_row > indexes.most:
        indexes.refuse(place)
        return None
    table.index()
    return table if indexes.put(place, table) else None


def _identity(facts: TableFacts, form: KeyForm, position: str) -> tuple[object, ...]:
    return facts.id, facts.location, form.identity, position


def _name(vector: Mapping[str, Any]) -> str:
    return f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _newest(metadata: pq.FileMetaData, position: str) -> str | None:
    """A position that is not less than any in a file; None where that is not known."""
    places = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path == position]
    if not places:
        # None has one.
        return ""
    newest = ""
    for group in range(metadata.num_row_groups):
        column = metadata.row_group(group).column(places[0])
        known = column.statistics
        if known is not None and known.has_null_count and known.null_count == column.num_values:
            continue
        if known is None or not known.has_min_max or not isinstance(known.max, str):
            return None
        newest = max(newest, known.max)
    return newest


def _values(file: pq.ParquetFile, column: str, rows: Rows) -> pa.Array:
    """The values of a column at some rows; only the row groups are read that have them."""
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    starts = np.cumsum([0, *sizes])
    groups = np.unique(np.searchsorted(starts, rows, "right") - 1)
    found = file.read_row_groups(groups.tolist(), columns=[column], use_threads=False).column(column)
    before = np.zeros(len(sizes), np.int64)
    before[groups] = np.cumsum([0, *(sizes[group] for group in groups)])[:-1]
    of = np.searchsorted(starts, rows, "right") - 1
    taken = found.take(pa.array(rows - starts[of] + before[of])).combine_chunks()
    return taken.cast(pa.string())
