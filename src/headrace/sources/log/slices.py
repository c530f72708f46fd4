"""Slices of databases that are read from a log of their own: what one task reads, with everything that it needs.

Each kind is a class, whose objects reach the executor pickled.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import pyarrow as pa

from headrace.changes import TableSchema
from headrace.changes.table_files import TableFiles
from headrace.sources.base import Slice
from headrace.sources.markers import Marker, marker_batch

Settings = TypeVar("Settings", contravariant=True)
"""The options of the source."""


class LogSlice(ABC, Generic[Settings]):
    """What one task reads."""

    kind: ClassVar[str]
    same_rows: ClassVar[bool] = True
    """Whether every reading gives the same rows in the same order; if not, they are of live tables."""

    @property
    def tables(self) -> tuple[str, ...] | None:
        """As `Slice.tables`."""
        return None

    @property
    def schemas(self) -> Sequence[TableSchema]:
        """The schemas that are known before it is read; rows of others come after their `schema` row."""
        return ()

    @abstractmethod
    def rows(self, settings: Settings) -> Iterator[pa.RecordBatch]:
        """Its change rows, in position order."""

    def rows_to_files(self, settings: Settings, files: TableFiles) -> Iterator[pa.RecordBatch]:
        """As `Source.read_to_files`."""
        return self.rows(settings)

    def without(self, table: str) -> Self | None:
        """As `Source.without`."""
        return None if self.tables == (table,) else self

    def planned(self) -> Slice:
        """The slice as the reader of the stream hands it to a task."""
        return Slice(self.kind, {"slice": self}, tables=self.tables)


def slice_of(planned: Slice) -> LogSlice[Any]:
    """Unpack the slice that a task got."""
    slice: LogSlice[Any] = planned.details["slice"]
    return slice


@dataclass(frozen=True)
class MarkerSlice(LogSlice[object]):
    """Announces what has no rows of its own: empty tables, gaps, heartbeats.

    Args:
        markers: the marker rows, in order of their positions.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "markers"
    markers: tuple[Marker, ...]
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        """Those that the announcements are about."""
        return tuple(dict.fromkeys(marker.table.path for marker in self.markers if marker.table is not None))

    @property
    def schemas(self) -> Sequence[TableSchema]:
        """Those that are announced."""
        return [marker.schema for marker in self.markers if marker.schema is not None]

    def rows(self, settings: object) -> Iterator[pa.RecordBatch]:
        """The announcements."""
        yield marker_batch(self.markers, self.capture_time)
