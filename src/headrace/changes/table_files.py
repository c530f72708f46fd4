"""How rows get from the worker that reads or decodes them into files of their table's target, so that they do not pass
through Spark."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headrace.changes.table import TableSchema

WRITTEN = "written_file"
"""In `source` of a `schema` row: the file that a task wrote of rows of its table (`WrittenFile`)."""
WRITTEN_ROWS = "written_rows"
"""In `source` of such a row: how many rows the file has."""
ATTEMPT = "attempt"
"""In `source` of a row that a task could not write into its file: the attempt that gives it."""
FOLDED = "folded_rows"
"""In `source` of a `schema` row: `FoldedPart.results` of its table."""
FOLDED_COUNTS = "folded_counts"
"""In `source` of such a row: the rest of `FoldedPart`."""

TABLE_FILES = "headrace.tableFiles"
"""Spark's local property by which a pipeline tells the tasks of one job into which files they may write rows: the
sink's name, and what belongs to it."""


@dataclass(frozen=True)
class WrittenFile:
    """A file that is closed and that no commit names yet.

    Args:
        rows: how many rows it has; 0 means that no file was written.
        attempt: tells the rows that belong beside it from those of another attempt of the same task.
        action: what the commit says of it, in the words of the target's format.
    """

    rows: int
    attempt: str
    action: str = ""

    def to_text(self) -> str:
        """All of it as one line."""
        return json.dumps([self.rows, self.attempt, self.action])

    @classmethod
    def from_text(cls, text: str) -> WrittenFile:
        """Read `to_text`'s form back."""
        return cls(*json.loads(text))


class TableFile(ABC):
    """Takes the rows of one table that one attempt of a task reads. Used in a worker.

    Attributes:
        attempt: its name, which no other attempt has.
    """

    attempt: str

    @abstractmethod
    def write(self, texts: Sequence[pa.Array], position: str) -> bool:
        """Take rows, in order, all of them or none.

        Args:
            texts: the columns of the table's structure, as canonical texts.
            position: that of all these rows.

        Returns:
            Whether it took them. If not, some value is none of its column's type, and the rows go on as change rows.

        Raises:
            SinkError: the file can't be written; nothing of it is the table's.
        """

    @abstractmethod
    def close(self) -> WrittenFile:
        """Finish the file."""

    @abstractmethod
    def discard(self) -> None:
        """Delete the file if it was not finished."""


@dataclass(frozen=True)
class TableFiles(ABC):
    """Where workers write the rows of tables in one batch. Goes to executors as text, which holds no secrets."""

    sink: ClassVar[str]
    """The registered name of the sink that it belongs to."""

    @abstractmethod
    def to_text(self) -> str:
        """All of it as one line of text, for `from_text`."""

    @classmethod
    @abstractmethod
    def from_text(cls, text: str, login: str = "") -> TableFiles:
        """Read `to_text`'s form back.

        Args:
            text: of `to_text`.
            login: by which a store is reached (`Sink.storage_login`).
        """

    @abstractmethod
    def file(self, schema: TableSchema) -> TableFile | None:
        """The file for rows of a table, which is made when the first rows come; None where they go on as change rows.

        Args:
            schema: the structure that the rows follow. One that another structure was prepared for is not written.
        """


@dataclass(frozen=True)
class FoldedPart:
    """What a task decoded of one table, folded and wrote into files that no commit names yet.

    Args:
        counts: the number of change rows by operation.
        times: the earliest and the latest event time, in seconds since 1970; None where no time is known.
        sequences: the sequences of the positions (`headrace.apply.sequence`).
        results: what the sink needs for its commit, as text.
    """

    counts: Mapping[str, int]
    times: tuple[float, float] | None
    sequences: tuple[str, ...]
    results: str = ""

    def to_source(self) -> dict[str, str]:
        """The entries of `source` in a `schema` row."""
        return {FOLDED: self.results, FOLDED_COUNTS: json.dumps([self.counts, self.times, self.sequences])}

    @classmethod
    def from_source(cls, counts: str, results: str = "") -> FoldedPart:
        """Read `to_source`'s form back."""
        rows, times, sequences = json.loads(counts)
        return cls(rows, None if times is None else (times[0], times[1]), tuple(sequences), results)


class DecodedRowWriter(ABC):
    """Writes change rows into files where one attempt of a task decodes them. Used in a worker."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Buffer or write rows, and give what Spark gets: the other rows, and `schema` rows with a `FoldedPart`.

        Args:
            rows: change rows; those of a partition come in the order of their positions.
        """

    @abstractmethod
    def close(self) -> Iterator[pa.RecordBatch]:
        """What Spark gets after the last row."""
