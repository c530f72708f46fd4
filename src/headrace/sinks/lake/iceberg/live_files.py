"""The data files of an Iceberg table at a snapshot, and which of their rows are deleted, without a Spark job.

They are followed from snapshot to snapshot, each by what it added and removed, as Iceberg's Java API says it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.sinks.lake.iceberg.deletes import PARQUET, PUFFIN, Deletes, rows_of_positions
from headrace.sinks.lake.iceberg.facts import ROW_ID, SEQUENCE, number_of
from headrace.sinks.lake.indexed import FilesAtVersion, LogUnreadable, Rows
from headrace.sinks.lake.storage import Folder, Location, Storage
from headrace.sinks.lake.vectors import unframed

_MOST_STEPS = 100
"""With more new snapshots than this, all manifests are read again."""


class LiveFiles(FilesAtVersion):
    """What the snapshots of a table say of its files, followed from one to the next.

    Args:
        folder: that of the table's data files.
        default_scheme: that of paths without one.

    Attributes:
        names: the names of the table's columns, by their numbers.
        partition_of: the values of a file's partition as Iceberg's JSON has them; None where there are no partitions.
        has_lineage: whether rows have numbers of their own, as in format 3.
    """

    def __init__(self, folder: Folder, default_scheme: str) -> None:
        self.folder = folder
        self._default_scheme = default_scheme
        self._bytes: dict[str, int] = {}
        self.snapshot: int | None = None
        self.partition_of: Callable[[Any], str] | None = None
        self._partitions: dict[str, str] = {}
        self.names: Mapping[int | None, str] = {}
        self._rows: dict[str, int] = {}
        self._gone: dict[str, Rows] = {}
        self._deletes: dict[tuple[str, int | None], Deletes] = {}
        self._deletes_of: dict[str, set[tuple[str, int | None]]] = defaultdict(set)
        self.has_lineage = False
        self._lineage: dict[str, tuple[int | None, int | None]] = {}

    @property
    def rows(self) -> Mapping[str, int]:
        return self._rows

    @property
    def size(self) -> int:
        """That of the positions: all of a data file, and those of each delete file, which somebody may take back."""
        of_files = (rows for deletes in self._deletes.values() for rows in deletes.rows.values())
        return sum(rows.nbytes for rows in (*self._gone.values(), *of_files))

    @property
    def storage(self) -> Storage:
        return self.folder.storage

    def bytes_of(self, path: str) -> int:
        return self._bytes[path]

    def location(self, path: str) -> str:
        parsed = Location.of_name(path, self._default_scheme)
        here = parsed.is_local if self.storage.is_local else parsed.bucket == self.folder.path.partition("/")[0]
        if not here:
            raise LogUnreadable("it has files in another place than its folder")
        return parsed.path

    def gone(self, path: str) -> Rows:
        return self._gone.get(path, np.empty(0, np.int64))

    def deletes(self, path: str) -> list[Deletes]:
        """What says which rows of a data file are gone."""
        return [self._deletes[identity] for identity in self._deletes_of.get(path, ())]

    def position_files(self, partition: str) -> list[Deletes]:
        return [file for file in self._deletes.values() if file.offset is None and file.partition == partition]

    def partition(self, path: str) -> str:
        return self._partitions.get(path, "{}")

    def columns(self, file: pq.ParquetFile) -> Mapping[str, str]:
        names: dict[str, str] = {}
        for field in file.schema_arrow:
            name = self.names.get(number_of(field))
            if name is not None:
                names[name] = field.name
        return names

    def read(
        self, path: str, file: pq.ParquetFile, columns: Collection[str], missing: pa.Schema | None = None
    ) -> pa.Table:
        """Columns of a file, with the number of each row and of its last commit, which it keeps wherever it moves."""
        rows = super().read(path, file, columns, missing)
        first, sequence = self._lineage.get(path, (None, None))
        inherited = {
            ROW_ID: None if first is None else pa.array(np.arange(first, first + rows.num_rows)),
            SEQUENCE: None if sequence is None else pa.scalar(sequence, pa.int64()),
        }
        for name, values in inherited.items():
            if name in columns and values is not None:
                index = rows.schema.get_field_index(name)
                rows = rows.set_column(index, rows.field(index), pc.coalesce(rows.column(index), values))
        return rows

    def advance(self, manifests: Any, table: Any, snapshot: int | None) -> None:
        """Read on up to a snapshot.

        Args:
            manifests: Iceberg's reader of them.
            table: Iceberg's own.
            snapshot: which one; None for a table that has none.

        Raises:
            LogUnreadable: it deletes rows in a form that is not read here.
            OSError: a file of positions, or of vectors, can't be read.
        """
        if snapshot == self.snapshot:
            return
        before, self.snapshot = self.snapshot, None
        steps = None if before is None or snapshot is None else _steps(table, before, snapshot)
        if steps is not None:
            for step in steps:
                self._take(table.io(), step)
                self._number(manifests, table, step)
        else:
            self._rows, self._gone, self._partitions, self._bytes, self._lineage = {}, {}, {}, {}, {}
            self._deletes, self._deletes_of = {}, defaultdict(set)
            if snapshot is not None:
                self._read(manifests, table, table.snapshot(snapshot))
        self.snapshot = snapshot

    def _take(self, files: Any, snapshot: Any) -> None:
        for file in _each(snapshot.removedDataFiles(files)):
            path = str(file.location())
            known: tuple[dict[str, Any], ...] = (
                self._rows, self._bytes, self._partitions, self._gone, self._deletes_of, self._lineage
            )  # fmt: skip
            for of_path in known:
                of_path.pop(path, None)
        for file in _each(snapshot.addedDataFiles(files)):
            self._add(file)
        # Some of the rows may be in a file that is added.
        restored = [path for file in _each(snapshot.removedDeleteFiles(files)) for path in self._drop(file)]
        for file in _each(snapshot.addedDeleteFiles(files)):
            self._delete(file)
        for path in restored:
            self._gone[path] = _union(deletes.rows[path] for deletes in self.deletes(path))

    def _number(self, manifests: Any, table: Any, snapshot: Any) -> None:
        """Learn which numbers the rows of a snapshot's new files got, which its list of them does not say.

        The first commit of format 3 numbers the rows of older files too, in manifests that stay as they are.
        """
        if not self.has_lineage:
            return
        files, specs = table.io(), table.specs()
        is_first = any(first is None for first, _ in self._lineage.values())
        for manifest in _each(snapshot.dataManifests(files)):
            if is_first or manifest.snapshotId() == snapshot.snapshotId():
                for file in _each(manifests.read(manifest, files, specs)):
                    self._learn_number(file)

    def _learn_number(self, file: Any) -> None:
        if self.has_lineage:
            self._lineage[str(file.location())] = file.firstRowId(), file.dataSequenceNumber()

    def _read(self, manifests: Any, table: Any, snapshot: Any) -> None:
        files, specs = table.io(), table.specs()
        for manifest in _each(snapshot.dataManifests(files)):
            for file in _each(manifests.read(manifest, files, specs)):
                self._add(file)
                self._learn_number(file)
        for manifest in _each(snapshot.deleteManifests(files)):
            for file in _each(manifests.readDeleteManifest(manifest, files, specs)):
                self._delete(file)

    def _add(self, file: Any) -> None:
        if file.format().name() != PARQUET:
            raise LogUnreadable("it has files that are not Parquet")
        path = str(file.location())
        self._rows[path], self._bytes[path] = int(file.recordCount()), int(file.fileSizeInBytes())
        if self.partition_of is not None:
            self._partitions[path] = self.partition_of(file)

    def _drop(self, file: Any) -> Iterable[str]:
        """Forget deletes, and say whose rows may not be deleted any more."""
        offset = file.contentOffset() if file.format().name() == PUFFIN else None
        deletes = self._deletes.pop((str(file.location()), offset), None)
        if deletes is None:
            return []
        paths = [path for path in deletes.rows if path in self._rows]
        for path in paths:
            self._deletes_of[path].discard(deletes.identity)
        return paths

    def _delete(self, file: Any) -> None:
        form = file.format().name()
        if file.content().name() != "POSITION_DELETES" or form not in (PARQUET, PUFFIN):
            raise LogUnreadable("it has deletes of another kind than files of positions and vectors")
        path, size = str(file.location()), int(file.fileSizeInBytes())
        partition = "{}" if self.partition_of is None else self.partition_of(file)
        if form == PARQUET:
            with self.open(path) as positions:
                deletes = Deletes(path, size, partition, rows_of_positions(positions))
        else:
            offset, length = int(file.contentOffset()), int(file.contentSizeInBytes())
            frame = self.storage.read(self.location(path), offset, length)
            try:
                rows = {str(file.referencedDataFile()): unframed(frame, path)}
            except ValueError as failure:
                raise LogUnreadable(str(failure)) from failure
            deletes = Deletes(path, size, partition, rows, offset, length)
        self._deletes[deletes.identity] = deletes
        for data, some in deletes.rows.items():
            if data in self._rows:
                self._deletes_of[data].add(deletes.identity)
                self._gone[data] = np.union1d(self.gone(data), some)


def _union(rows: Iterable[Rows]) -> Rows:
    return np.unique(np.concatenate([np.empty(0, np.int64), *rows]))


def _steps(table: Any, before: int, snapshot: int) -> list[Any] | None:
    """The snapshots after one up to another, in order; None where the one is not before the other, or long before."""
    steps: list[Any] = []
    at: int | None = snapshot
    while at != before:
        earlier = None if at is None else table.snapshot(at)
        if earlier is None or len(steps) == _MOST_STEPS:
            return None
        steps.append(earlier)
        at = earlier.parentId()
    return steps[::-1]


def _each(iterable: Any) -> Iterator[Any]:
    """What something of Java's gives."""
    items = iterable.iterator()
    while items.hasNext():
        yield items.next()
