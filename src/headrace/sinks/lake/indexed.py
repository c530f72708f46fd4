"""Small batches into a table without a Spark job: which of its rows go, by file and row, and which come.

What is here is true of any format. What files a table has, and which of their rows are gone, the format's log says;
how a commit marks more of them is the format's too.

A batch also keeps the number of files in bounds: many small files of about one size become one, and a file that has
lost a third of its rows is written again without them. A row is rewritten once for each size that its file grows
through.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headrace.apply.sequence import has_disorder, no_order
from headrace.sinks.lake.data_files import DataFile, arrow_type
from headrace.sinks.lake.key_index import Bounded, KeyIndex
from headrace.sinks.lake.keys import KeyForm, Keys
from headrace.sinks.lake.storage import Storage
from headrace.sinks.lake.whole_rows import CollectedRows

Rows = NDArray[np.int64]
"""Row numbers in a file, from 0 on, in order."""
YOUNG = 8
"""So many small files of about one size become one."""
_LOST = 1 / 3
"""A file that has lost so much of its rows is written again without them."""
_SIZE = 4
"""Two files are of about one size where their bytes are, to so many bits."""
_MOST_BYTES = 64 << 20
"""A batch rewrites no more than this to drop rows, and merges no more than this at once."""
_OTHER_CALENDAR = b"org.apache.spark.legacyDateTime"


class LogUnreadable(Exception):
    """The log has no such version, or a part that is not known here, or names a file that can't be read."""


class FilesAtVersion(ABC):
    """The data files of a table at the version up to which its log was read."""

    @property
    @abstractmethod
    def rows(self) -> Mapping[str, int]:
        """The files by path, each with its number of rows, those that are gone too; 0 where the log does not say."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many bytes what is known of their rows takes."""

    @property
    @abstractmethod
    def storage(self) -> Storage:
        """What its files are in."""

    @abstractmethod
    def bytes_of(self, path: str) -> int:
        """How large a file is."""

    @abstractmethod
    def location(self, path: str) -> str:
        """Where a file is in the storage.

        Raises:
            LogUnreadable: somewhere else.
        """

    @contextmanager
    def open(self, path: str) -> Iterator[pq.ParquetFile]:
        """A file.

        Raises:
            OSError: it can't be read.
            LogUnreadable: it is somewhere else.
        """
        with self.storage.parquet(self.location(path)) as file:
            yield file

    @abstractmethod
    def gone(self, path: str) -> Rows:
        """The rows of a file that are marked as gone.

        Raises:
            OSError: the marks can't be read.
        """

    def columns(self, file: pq.ParquetFile) -> Mapping[str, str]:
        """The names of the table's columns as a file has them, by their names now."""
        return {name: name for name in file.schema_arrow.names}

    def partition(self, path: str) -> str:
        """To which partition a file belongs, as text that no other partition has."""
        return ""

    def constants(self, path: str) -> Mapping[str, pa.Scalar]:
        """The values of columns that have one in all rows of a file, and are not in it.

        Raises:
            pyarrow.ArrowInvalid: one is none of its column's type.
        """
        return {}

    def read(
        self, path: str, file: pq.ParquetFile, columns: Collection[str], missing: pa.Schema | None = None
    ) -> pa.Table:
        """Columns of a file, by their names now.

        Args:
            path: the file.
            file: the same, open.
            columns: which ones.
            missing: the types of columns that may be missing, and then are null.

        Raises:
            OSError: it can't be read.
            KeyError: a column is not there.
        """
        names, constants = self.columns(file), self.constants(path)
        inside = [name for name in columns if name not in constants and (missing is None or name in names)]
        stored = file.read(columns=[names[name] for name in inside], use_threads=False)
        rows = file.metadata.num_rows
        arrays = []
        for name in columns:
            if name in inside:
                arrays.append(stored.column(names[name]))
            elif name in constants:
                arrays.append(pa.chunked_array([pa.repeat(constants[name], rows)]))
            else:
                assert missing is not None
                arrays.append(pa.chunked_array([pa.nulls(rows, missing.field(name).type)]))
        return pa.table(dict(zip(columns, arrays, strict=True)))


@dataclass(frozen=True)
class Effect:
    """What a batch does to a table.

    Args:
        marks: the rows that go now, by file, of files that stay.
        ends: the files that go.
        comes: the rows that come, and those that the files which go still have.
        written: files of rows that come which tasks wrote, each with its keys and the rows that are marked in it.
        young: small files that become one.
        moved: the rows that these still have.
    """

    marks: Mapping[str, Rows]
    ends: Collection[str]
    comes: pa.Table
    written: Sequence[tuple[DataFile, pa.Table, Rows]]
    young: Collection[str]
    moved: pa.Table


Files = TypeVar("Files", bound=FilesAtVersion)


class IndexedTable(Generic[Files]):
    """The files of a table at a version, with the keys of their rows. One batch at a time uses it.

    Args:
        table: identifies the table, and the columns that are read here.
        form: how its keys are compared.
        position: the name of the column with the position.
        files: of the table, not read yet.
    """

    def __init__(self, table: tuple[object, ...], form: KeyForm, position: str, files: Files) -> None:
        self.identity = (*table, form.identity, position)
        self.form = form
        self.files = files
        self._position = position
        self._index = KeyIndex()
        self._newest: dict[str, str | None] = {}
        self._rows: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._written: dict[str, tuple[Keys, str | None, int]] = {}
        self._kept: set[str] = set()
        """The files that were found to be such that only Spark can rewrite them."""

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return self._index.size + self.files.size

    def rows_to_index(self) -> int:
        """How many rows the files, which were read on to another version, have whose keys are not known yet."""
        live = self.files.rows
        self._index.drop([path for path in self._index.paths if path not in live])
        for path in [path for path in self._newest if path not in live]:
            del self._newest[path], self._rows[path], self._bytes[path]
            self._kept.discard(path)
        for path, (keys, newest, size) in self._written.items():
            if path in live:
                self._take_in(path, keys, newest, size)
        self._written = {}
        return sum(rows for path, rows in live.items() if path not in self._index.paths)

    def index(self) -> None:
        """Read the keys of the files that are new.

        Raises:
            OSError: a file can't be read.
            LogUnreadable: a file is somewhere else.
            KeyError: a file does not have the columns of the key.
            pyarrow.ArrowException: its values are none of the table's.
        """
        for path in self.files.rows:
            if path not in self._index.paths:
                with self.files.open(path) as file:
                    keys = self.form.keys(self.files.read(path, file, self.form.columns))
                    newest = _newest(file.metadata, self.files.columns(file).get(self._position))
                    self._take_in(path, keys, newest, self.files.bytes_of(path), file.metadata.num_rows)

    def _take_in(self, path: str, keys: Keys, newest: str | None, size: int, rows: int | None = None) -> None:
        self._index.add(path, keys)
        self._newest[path], self._bytes[path] = newest, size
        self._rows[path] = len(keys) if rows is None else rows

    def bytes_of(self, path: str) -> int:
        return self._bytes[path]

    def rows_of(self, path: str) -> int:
        """How many rows an indexed file has, those that are gone too."""
        return self._rows[path]

    def effect(self, change: CollectedRows, schema: pa.Schema, label: str) -> Effect:
        """What a batch does, after `index`.

        Args:
            change: the batch.
            schema: that of a new file.
            label: the table as messages name it.

        Raises:
            LogUnreadable: a file can't be read.
            SchemaError: which of two changes is the later one is not known.
        """
        try:
            return self._effect(change, schema, label)
        except OSError as failure:
            raise LogUnreadable(f"{failure}") from failure

    def _effect(self, change: CollectedRows, schema: pa.Schema, label: str) -> Effect:
        keys = self.form.keys(change.rows)
        newer = np.zeros(change.rows.num_rows, np.bool_)
        goes: dict[str, Rows] = {}
        positions = change.rows.column(change.position).combine_chunks()
        for path, (indexes, rows) in self._index.look_up(keys).by_file().items():
            here = ~np.isin(rows, self.files.gone(path))
            indexes, rows = keys.rows[indexes[here]], rows[here]
            if not len(rows):
                continue
            is_older = self._are_older(path, rows, positions.take(pa.array(indexes)), change, label)
            newer[indexes[~is_older]] = True
            if is_older.any():
                goes[path] = np.unique(rows[is_older])
        if change.written is None:
            comes = [change.rows.filter(pc.and_(change.comes, pa.array(~newer))).select(schema.names).cast(schema)]
            written = []
        else:
            comes, lost = [schema.empty_table()], change.written.rows_to_mark(newer)
            written = [
                (file, keys, marked)
                for (file, keys), marked in zip(change.written.files, lost, strict=True)
                if len(marked) < file.rows
            ]
        small = self._alike()
        marks, ends, room = {}, [], _MOST_BYTES
        for path, rows in goes.items():
            gone, most = np.union1d(self.files.gone(path), rows), self._rows[path]
            if len(gone) == most:
                ends.append(path)
                continue
            is_worn = len(gone) >= most * _LOST and self._bytes[path] <= room
            left = self._left(path, gone, schema) if is_worn or path in small else None
            if left is None:
                marks[path] = rows
                continue
            room -= self._bytes[path]
            ends.append(path)
            comes.append(left)
        # Rows of files that this batch does not change move; those of the others come, as the batch's own do.
        untouched = {path: self._left(path, self.files.gone(path), schema) for path in small if path not in goes}
        moved = {path: rows for path, rows in untouched.items() if rows is not None}
        if len(moved) == 1:
            # It would become itself.
            moved.clear()
        rows = pa.concat_tables([schema.empty_table(), *moved.values()])
        return Effect(marks, ends, pa.concat_tables(comes), written, moved.keys(), rows)

    def _alike(self) -> list[str]:
        """Small files of about one size that had better become one, without those that only Spark can rewrite."""
        return of_one_size(
            {path: (size, self.files.partition(path)) for path, size in self._bytes.items() if path not in self._kept}
        )

    def _left(self, path: str, gone: Rows, schema: pa.Schema) -> pa.Table | None:
        """The rows of a file without some; None where it was written in a form that pyarrow reads as other values:
        timestamps as INT96, or days of the Julian calendar."""
        with self.files.open(path) as file:
            kinds = {file.schema.column(n).physical_type for n in range(file.metadata.num_columns)}
            if "INT96" in kinds or _OTHER_CALENDAR in (file.metadata.metadata or {}):
                self._kept.add(path)
                return None
            rows = self.files.read(path, file, schema.names, missing=schema)
        rows = rows.take(pa.array(np.delete(np.arange(rows.num_rows), gone)))
        try:
            return rows.cast(schema)
        except pa.ArrowInvalid:
            self._kept.add(path)
            return None

    def wrote(self, path: str, rows: pa.Table, size: int) -> None:
        """Know the keys of a new file of so many bytes, which count from the version on that has it."""
        newest = pc.min_max(rows.column(self._position))["max"].as_py()
        self._written[path] = self.form.keys(rows), newest, size

    def _are_older(self, path: str, rows: Rows, new: pa.Array, change: CollectedRows, label: str) -> NDArray[np.bool_]:
        """For each of these rows of a file whether it is older than the position beside it."""
        newest = self._newest[path]
        if not change.decoded and newest is not None and newest < pc.min_max(new)["min"].as_py():
            return np.ones(len(rows), np.bool_)
        with self.files.open(path) as file:
            name = self.files.columns(file).get(self._position)
            if name is None:
                return np.ones(len(rows), np.bool_)
            kept = _values(file, name, rows)
        if change.decoded and has_disorder(kept, new):
            raise no_order(change.source, label)
        is_older: NDArray[np.bool_] = pc.fill_null(pc.less(kept, new), True).to_numpy(zero_copy_only=False)
        return is_older


_File = TypeVar("_File")


def of_one_size(files: Mapping[_File, tuple[int, str]]) -> list[_File]:
    """Small files of a partition that are of about one size, where there are so many that they had better become one.

    Args:
        files: the bytes and the partition of each.
    """
    sizes = defaultdict(list)
    for file, (size, partition) in files.items():
        if size <= _MOST_BYTES // YOUNG:
            sizes[size.bit_length() // _SIZE, partition].append(file)
    return next((some[:YOUNG] for _, some in sorted(sizes.items(), key=itemgetter(0)) if len(some) >= YOUNG), [])


def indexed(
    indexes: Bounded[IndexedTable[Any]], location: str, table: IndexedTable[Files], advance: Callable[[Files], None]
) -> IndexedTable[Files] | None:
    """A table with the keys of all rows that it has at a version; None where they need more memory than there may be.

    Args:
        indexes: those of all tables.
        location: under which name it is kept.
        table: one of which nothing was read, in case that none like it is kept.
        advance: reads its files on to the version.

    Raises:
        as `advance` and `IndexedTable.index`.
    """
    known = indexes.get(location)
    table = known if known is not None and known.identity == table.identity else table
    advance(table.files)
    rows = table.rows_to_index()
    if table.size + rows * table.form.bytes_per_row > indexes.most:
        indexes.refuse(location)
        return None
    table.index()
    return table if indexes.put(location, table) else None


def unfit(rows: Mapping[str, pa.DataType | None], columns: Mapping[str, str]) -> str:
    """Why rows can't be a table's as they are, as the end of a sentence; empty where they can, and nothing of them is
    cast but to wider whole numbers.

    Args:
        rows: their columns with the types that these have.
        columns: the table's, with Spark's types.
    """
    if columns.keys() - rows.keys():
        return "it has columns that the source's table lacks"
    return next(
        (
            f"its column '{name}' is {columns.get(name)}, and the source's table has another type"
            for name, kind in rows.items()
            if not _becomes(kind, arrow_type(columns.get(name, "")))
        ),
        "",
    )


def _becomes(kind: pa.DataType | None, wanted: pa.DataType | None) -> bool:
    if kind is None or wanted is None:
        return False
    kind = _plain(kind)
    if kind == wanted:
        return True
    if not (pa.types.is_integer(kind) and pa.types.is_integer(wanted)):
        return False
    return bool(kind.bit_width < wanted.bit_width)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of the same instants in UTC, whatever the session's zone, and of texts, however long they may be."""
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return pa.string() if pa.types.is_large_string(kind) else pa.binary()
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def _newest(metadata: pq.FileMetaData, position: str | None) -> str | None:
    """A position that is not less than any in a file; None where that is not known."""
    indexes = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path == position]
    if not indexes:
        # None has one.
        return ""
    newest = ""
    for group in range(metadata.num_row_groups):
        column = metadata.row_group(group).column(indexes[0])
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
    values = file.read_row_groups(groups.tolist(), columns=[column], use_threads=False).column(column)
    before = np.zeros(len(sizes), np.int64)
    before[groups] = np.cumsum([0, *(sizes[group] for group in groups)])[:-1]
    of = np.searchsorted(starts, rows, "right") - 1
    taken = values.take(pa.array(rows - starts[of] + before[of])).combine_chunks()
    return taken.cast(pa.string())
