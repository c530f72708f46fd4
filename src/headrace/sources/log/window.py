"""A window of a database's log: what the planner finds, what the offset keeps, and the slices that tasks read.

Each kind is a class, whose objects reach the executor pickled.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from headrace.changes import TableSchema
from headrace.changes.table_files import TableFiles
from headrace.errors import OptionError
from headrace.sources.base import Slice
from headrace.sources.offset import Offset, all_known
from headrace.sources.rows import Marker, marker_batch
from headrace.sources.signals import Signal
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.requests import IncrementalChunk
from headrace.sources.table_versions import MovePlan, TableMove
from headrace.sources.tables.table_rules import SourceTable


@dataclass(frozen=True)
class Window:
    """What the log has after an offset, as far as the next batch may go. Places are in the form of `Offset.commit`.

    Args:
        end: where the batch ends; where it begins, when there is nothing new.
        rows: whether there is anything to read before that.
        commit_time: when the last commit with rows was made, as far as they were read.
        signals: what signals ask for, in the order of their commits.
        cuts: where several tasks that read it begin and end, without its own edges.
        size: how many bytes of the log it is.
        altered: whether tables may have been made, altered or dropped in it, as far as the log says so.
        cut: whether it ends in front of changes that one batch can't have with those before them.
    """

    end: str
    rows: bool = False
    commit_time: dt.datetime | None = None
    signals: tuple[Signal, ...] = ()
    cuts: tuple[str, ...] = ()
    size: int = 0
    altered: bool = False
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class WindowState:
    """What `Offset.log` keeps of the window of the batch that ends there; a source adds what it reads the log by.

    Args:
        cuts: as `Window.cuts`.
        reads: whether the window is read at all; not where the log had nothing for the captured tables.
        waiting: tables that were first captured and are not read yet; their changes are not streamed before.
    """

    cuts: tuple[str, ...] = ()
    reads: bool = False
    waiting: tuple[str, ...] = ()

    @classmethod
    def of(cls, offset: Offset) -> Self:
        """The state at an offset. A class whose own fields are no JSON values says how they are read and written.

        Raises:
            NewerRelease: a later release wrote it.
        """
        kept = offset.log
        all_known(kept, [field.name for field in fields(cls)])
        return cls(**{**kept, "cuts": tuple(kept["cuts"]), "waiting": tuple(kept["waiting"])})

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "cuts": list(self.cuts), "waiting": list(self.waiting)}

    def with_begun(self, tables: Collection[str]) -> Self:
        """The state of a batch that begins to read tables as they are now, by their paths."""
        return replace(self, waiting=tuple(path for path in self.waiting if path not in tables))

    def settled(self) -> Self:
        """The same position, seen from a batch without a window."""
        return replace(self, cuts=(), reads=False)

    def in_offset(self, offset: Offset) -> Offset:
        """The offset with this state."""
        return replace(offset, log=self.to_json())


def checked_skip(move: TableMove, offset: Offset, head: str | None = None) -> MovePlan:
    """The skip, if it can be done.

    Args:
        move: with a commit in the form of `Offset.commit`.
        offset: up to where all is delivered.
        head: the newest commit of the log; None where it was not asked for.

    Raises:
        OptionError: it can't; the sentence says why.
    """
    path, to = move.table, move.to
    if path not in offset.known:
        raise OptionError(f"Table '{path}' is not captured yet.", remedy="Wait until the pipeline has taken it in.")
    progress = offset.tables.get(path)
    if offset.initial or (progress is not None and not progress.done):
        raise OptionError(
            f"Table '{path}' is in its snapshot, so none of its changes is delivered.",
            remedy="Wait until the snapshot is complete.",
        )
    at = offset.commit if progress is None else max(offset.commit, progress.commit)
    if len(to) != len(at):
        raise OptionError(f"'{to}' is no place in this log.", remedy=f"They look like {at}.")
    if to <= at:
        raise OptionError(
            f"Changes of table '{path}' are delivered up to {at} already, so none is left out up to {to}.",
            remedy="Name a later place, or now.",
        )
    if head is not None and to > head:
        raise OptionError(f"The log does not go up to {to} yet; it ends at {head}.", remedy="Name that, or now.")
    return MovePlan(move, at)


def refuse_rewind(move: TableMove) -> None:
    """A log is read once for all tables, so the changes of one can't come again.

    Raises:
        OptionError: the move is one back.
    """
    if move.kind == "rewind":
        raise OptionError(
            f"Changes of table '{move.table}' can't come again: this source reads the log once, for all tables.",
            remedy="Read the table again: headrace repair reread.",
        )


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


Table = TypeVar("Table", bound=SourceTable[Any])
Rows = TypeVar("Rows", Chunk, IncrementalChunk)


@dataclass(frozen=True)
class ChunkSlice(LogSlice[Settings], Generic[Settings, Table, Rows]):
    """Reads a chunk of a table itself, be it of a snapshot or beside the stream. The table lives on, so another reading
    may find other rows.

    Args:
        table: the table as the offset knows it.
        chunk: which rows of it.
        capture_time: when the batch was planned.
    """

    same_rows: ClassVar[bool] = False
    table: Table
    chunk: Rows
    capture_time: dt.datetime | None

    @property
    def tables(self) -> tuple[str, ...]:
        """That of the chunk."""
        return (self.chunk.table,)

    @property
    def schemas(self) -> Sequence[TableSchema]:
        """That of the table."""
        return [self.table.schema]


class ReadWindow(Protocol):
    """A part of the log that one task reads; pickled."""

    @property
    def tables(self) -> Mapping[str, SourceTable[Any]]:
        """Those whose rows are taken, by path."""

    def without(self, table: str) -> Self:
        """The same part without the changes of one table."""


Part = TypeVar("Part", bound=ReadWindow)


@dataclass(frozen=True)
class WindowSlice(LogSlice[Settings], Generic[Settings, Part]):
    """Reads a part of the log.

    Args:
        window: which, and of which tables.
        capture_time: when the batch was planned.
    """

    kind: ClassVar[str] = "stream"
    window: Part
    capture_time: dt.datetime | None

    @property
    def schemas(self) -> Sequence[TableSchema]:
        """Those of its tables."""
        return [table.schema for table in self.window.tables.values()]

    def without(self, table: str) -> Self:
        """The slice without the changes of one table."""
        return replace(self, window=self.window.without(table))


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
