"""Where the rows of a table stand, by key: for small batches, in the driver's memory.

An index says where rows may be, never that they are: an entry is about a data file, which does not change, so it can't
be stale. Whether the file belongs to the table, and whether the row in it was marked as gone, the table's log says.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.sinks.lake.keys import Keys

_YOUNG = 100_000
"""Up to how many rows parts of an index are put together, so that there are few."""
_MOST_YOUNG = 16
_PAUSE = 64
"""So many batches of a table go by before it is tried again whether its keys fit."""


@dataclass(frozen=True)
class Hits:
    """Rows that have keys which were looked up; of one key there may be several.

    Args:
        keys: which key, by its place among those that were looked up.
        files: in which file, by its place in `paths`.
        rows: at which row.
        paths: the files.
    """

    keys: NDArray[np.int64]
    files: NDArray[np.int64]
    rows: NDArray[np.int64]
    paths: list[str]

    def by_file(self) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        order = np.argsort(self.files, kind="stable")
        cuts = np.flatnonzero(np.diff(self.files[order])) + 1
        hits = {}
        for indexes in np.split(order, cuts) if len(order) else []:
            hits[self.paths[int(self.files[indexes[0]])]] = self.keys[indexes], self.rows[indexes]
        return hits


@dataclass(frozen=True)
class _Part:
    """Entries of one or more files, ordered by `prints`."""

    prints: NDArray[np.int64]
    values: pa.Array | None
    files: NDArray[np.int32] | int
    rows: NDArray[np.int32]

    @property
    def size(self) -> int:
        files = 0 if isinstance(self.files, int) else self.files.nbytes
        values = 0 if self.values is None else int(self.values.nbytes)
        return self.prints.nbytes + self.rows.nbytes + files + values


class KeyIndex:
    """The keys of some data files. Not for several threads at once.

    Args:
        most_dropped: how many files that were dropped it may remember, beside as many as there are.
    """

    def __init__(self, most_dropped: int = 1_000) -> None:
        self._most_dropped = most_dropped
        self._parts: list[_Part] = []
        self._numbers: dict[str, int] = {}
        self._paths: list[str] = []

    @property
    def paths(self) -> Collection[str]:
        return self._numbers.keys()

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return sum(part.size for part in self._parts)

    def add(self, path: str, keys: Keys) -> None:
        """Take in the keys of a file's rows, those that are gone too. A file that is in it already stays as it is."""
        if path in self._numbers:
            return
        number = self._numbers[path] = len(self._paths)
        self._paths.append(path)
        order = np.argsort(keys.prints, kind="stable")
        values = None if keys.values is None else keys.values.take(pa.array(order))
        self._parts.append(_Part(keys.prints[order], values, number, keys.rows[order].astype(np.int32)))
        young = [part for part in self._parts if len(part.prints) <= _YOUNG]
        if len(young) > _MOST_YOUNG:
            self._parts = [part for part in self._parts if len(part.prints) > _YOUNG]
            self._parts.append(self._together(young))

    def drop(self, paths: Collection[str]) -> None:
        gone = {number for number in (self._numbers.pop(path, None) for path in paths) if number is not None}
        if not gone:
            return
        left = []
        for part in self._parts:
            if isinstance(part.files, int):
                left += [] if part.files in gone else [part]
            elif 2 * np.count_nonzero(np.isin(part.files, self._alive)) >= len(part.files):
                left.append(part)
            else:
                left.append(self._together([part]))
        self._parts = left
        if len(self._paths) > 2 * len(self._numbers) + self._most_dropped:
            self._renumber()

    def _renumber(self) -> None:
        """Forget the paths of dropped files. A table that runs for months drops millions of them."""
        # One more than there are, at the end: entries of files that went before have -1 already, and keep it.
        new = np.full(len(self._paths) + 1, -1, np.int32)
        new[self._alive] = np.arange(len(self._numbers), dtype=np.int32)
        self._parts = [
            replace(part, files=int(new[part.files]) if isinstance(part.files, int) else new[part.files])
            for part in self._parts
        ]
        self._paths = [*self._numbers]
        self._numbers = {path: number for number, path in enumerate(self._paths)}

    def look_up(self, keys: Keys) -> Hits:
        order = np.argsort(keys.prints, kind="stable")
        wanted = keys.prints[order]
        hits: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
        for part in self._parts:
            first = np.searchsorted(part.prints, wanted, "left")
            counts = np.searchsorted(part.prints, wanted, "right") - first
            total = int(counts.sum())
            if not total:
                continue
            of = np.repeat(np.arange(len(wanted)), counts)
            indexes = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
            of = order[of]
            if part.values is not None and keys.values is not None:
                # A hash never decides alone.
                same = pc.equal(part.values.take(pa.array(indexes)), keys.values.take(pa.array(of)))
                is_same = same.to_numpy(zero_copy_only=False)
                of, indexes = of[is_same], indexes[is_same]
            files = np.full(len(indexes), part.files) if isinstance(part.files, int) else part.files[indexes]
            hits.append((of, files.astype(np.int64), part.rows[indexes].astype(np.int64)))
        none = np.empty(0, np.int64)
        of, files, rows = (
            (np.concatenate([none, *column]) for column in zip(*hits, strict=True)) if hits else [none] * 3
        )
        alive = np.isin(files, self._alive)
        return Hits(of[alive], files[alive], rows[alive], self._paths)

    @property
    def _alive(self) -> NDArray[np.int32]:
        return np.fromiter(self._numbers.values(), np.int32, len(self._numbers))

    def _together(self, parts: list[_Part]) -> _Part:
        prints = np.concatenate([part.prints for part in parts])
        files = np.concatenate([np.broadcast_to(np.asarray(part.files, np.int32), part.prints.shape) for part in parts])
        rows = np.concatenate([part.rows for part in parts])
        kept = np.flatnonzero(np.isin(files, self._alive))
        order = kept[np.argsort(prints[kept], kind="stable")]
        values = None
        if parts[0].values is not None:
            values = pa.concat_arrays([part.values for part in parts]).take(pa.array(order))
        return _Part(prints[order], values, files[order], rows[order])


class Sized(Protocol):
    """Something that takes memory."""

    @property
    def size(self) -> int:
        """How many bytes."""


Item = TypeVar("Item", bound=Sized)


class Bounded(Generic[Item]):
    """What is kept of several tables, up to so many bytes: then the ones go that were used the longest ago.

    For several threads; one table is used by one of them at a time.

    Args:
        most: how many bytes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._items: OrderedDict[str, Item] = OrderedDict()
        self._refused: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Item | None:
        with self._lock:
            if name in self._items:
                self._items.move_to_end(name)
            return self._items.get(name)

    def put(self, name: str, item: Item) -> bool:
        """Keep it, as the one that was used last, after it may have grown.

        Returns:
            Whether it is kept: not where it alone is larger than what there may be.
        """
        if item.size > self.most:
            self.refuse(name)
            return False
        with self._lock:
            self._refused.pop(name, None)
            self._items[name] = item
            self._items.move_to_end(name)
            while sum(kept.size for kept in self._items.values()) > self.most:
                self._items.popitem(last=False)
            return name in self._items

    def refuse(self, name: str) -> None:
        """Forget a table, which would be larger than what there may be."""
        with self._lock:
            self._items.pop(name, None)
            _, pause = self._refused.get(name, (0, _PAUSE // 2))
            self._refused[name] = 2 * pause, 2 * pause

    def is_left_out(self, name: str) -> bool:
        """Whether a table was refused, so that it is not read again and again for nothing. Each question counts.

        It may have become smaller, or its files fewer. So it has another turn after a pause, which is twice as long
        each time that it is refused.
        """
        with self._lock:
            if name not in self._refused:
                return False
            left, pause = self._refused[name]
            self._refused[name] = left - 1, pause
            return left > 0

    def sizes(self) -> Mapping[str, int]:
        """How many bytes each takes."""
        with self._lock:
            return {name: item.size for name, item in self._items.items()}
