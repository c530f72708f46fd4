"""The data files of an Iceberg table at a snapshot, and their rows that files of positions delete, without a Spark job.

They are followed from snapshot to snapshot, each by what it added and removed, as Iceberg's Java API says it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.sinks.lake.iceberg.facts import number_of
from headrace.sinks.lake.indexed import FilesAtVersion, LogUnreadable, Rows
from headrace.sinks.lake.storage import Folder, Location, Storage

PATH, POSITION = "file_path", "pos"
"""The columns of a file of positions."""
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

    @property
    def rows(self) -> Mapping[str, int]:
        """As manifests say."""
        return self._rows

    @property
    def size(self) -> int:
        """That of the positions."""
        return sum(rows.nbytes for rows in self._gone.values())

    @property
    def storage(self) -> Storage:
        """That of the table's folder."""
        return self.folder.storage

    def bytes_of(self, path: str) -> int:
        """As manifests say."""
        return self._bytes[path]

    def location(self, path: str) -> str:
        """Where a file is."""
        parsed = Location.of_name(path, self._default_scheme)
        here = parsed.is_local if self.storage.is_local else parsed.bucket == self.folder.path.partition("/")[0]
        if not here:
            raise LogUnreadable("it has files in another place than its folder")
        return parsed.path

    def gone(self, path: str) -> Rows:
        """Those in files of positions."""
        return self._gone.get(path, np.empty(0, np.int64))

    def partition(self, path: str) -> str:
        """As `TableFacts.partition_text` has it."""
        return self._partitions.get(path, "{}")

    def columns(self, file: pq.ParquetFile) -> Mapping[str, str]:
        """By the numbers that the file has of its columns."""
        names = {}
        for field in file.schema_arrow:
            name = self.names.get(number_of(field))
            if name is not None:
                names[name] = field.name
        return names

    def advance(self, manifests: Any, table: Any, snapshot: int | None) -> None:
        """Read on up to a snapshot.

        Args:
            manifests: Iceberg's reader of them.
            table: Iceberg's own.
            snapshot: which one; None for a table that has none.

        Raises:
            LogUnreadable: it deletes rows in a form that is not read here.
            OSError: a file of positions can't be read.
        """
        if snapshot == self.snapshot:
            return
        before, self.snapshot = self.snapshot, None
        steps = None if before is None or snapshot is None else _steps(table, before, snapshot)
        if steps is None or not all(self._take(table.io(), step) for step in steps):
            self._rows, self._gone, self._partitions, self._bytes = {}, {}, {}, {}
            if snapshot is not None:
                self._read(manifests, table, table.snapshot(snapshot))
        self.snapshot = snapshot

    def _take(self, files: Any, snapshot: Any) -> bool:
        """Take in what a snapshot changed; False where positions don't count any more, and all must be read."""
        if next(_each(snapshot.removedDeleteFiles(files)), None) is not None:
            return False
        for file in _each(snapshot.removedDataFiles(files)):
            path = str(file.location())
            self._rows.pop(path, None)
            self._partitions.pop(path, None)
            self._bytes.pop(path, None)
            self._gone.pop(path, None)
        for file in _each(snapshot.addedDataFiles(files)):
            self._add(file)
        for file in _each(snapshot.addedDeleteFiles(files)):
            self._delete(file)
        return True

    def _read(self, manifests: Any, table: Any, snapshot: Any) -> None:
        files, specs = table.io(), table.specs()
        for manifest in _each(snapshot.dataManifests(files)):
            for file in _each(manifests.read(manifest, files, specs)):
                self._add(file)
        for manifest in _each(snapshot.deleteManifests(files)):
            for file in _each(manifests.readDeleteManifest(manifest, files, specs)):
                self._delete(file)

    def _add(self, file: Any) -> None:
        if file.format().name() != "PARQUET":
            raise LogUnreadable("it has files that are not Parquet")
        path = str(file.location())
        self._rows[path], self._bytes[path] = int(file.recordCount()), int(file.fileSizeInBytes())
        if self.partition_of is not None:
            self._partitions[path] = self.partition_of(file)

    def _delete(self, file: Any) -> None:
        if file.content().name() != "POSITION_DELETES" or file.format().name() != "PARQUET":
            raise LogUnreadable("it has deletes of another kind than files of positions")
        with self.open(str(file.location())) as deletes:
            positions = deletes.read(columns=[PATH, POSITION], use_threads=False).combine_chunks()
        paths = pa.concat_arrays(positions.column(PATH).chunks).dictionary_encode()
        numbers = paths.indices.to_numpy()
        order = np.argsort(numbers, kind="stable")
        rows = positions.column(POSITION).to_numpy()[order]
        ends = np.searchsorted(numbers[order], np.arange(1, len(paths.dictionary)))
        for path, some in zip(paths.dictionary.to_pylist(), np.split(rows, ends), strict=True):
            if path in self._rows:
                self._gone[path] = np.union1d(self.gone(path), some)


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
