"""What a batch does to a target if none of its rows lacks a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes.typed import quote
from headrace.sinks.lake.data_files import DataFile, delete_data_files
from headrace.sinks.lake.storage import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class WholeRows:
    """Folded rows that carry every column, for a table whose deleted rows are removed.

    A row here replaces the target's row with the same key if that is older, and is ignored if it isn't. A delete
    leaves nothing in its place.

    Args:
        rows: `op` (`upsert` or `delete`), `position` and `row`, at most one per key, computed already.
        key: names of the key columns.
        same_key: Spark SQL: do a row `t` of the target and a row `s` of these have one key?
        older: Spark SQL: is `t` older than `s`?
        columns: the target's columns, and Spark SQL over `s` for each.
        within: Spark SQL conditions that are true of each row `t` that has one of the keys.
        sent: they may be sent to every task.
        few: so few that one file holds those that come.
    """

    rows: DataFrame
    key: Sequence[str]
    same_key: str
    older: str
    columns: Mapping[str, str]
    within: Sequence[str]
    sent: bool
    few: bool


@dataclass(frozen=True)
class CollectedRows:
    """The same rows in the driver: at most one per key, each carrying every column.

    Args:
        rows: the target's columns, typed; of a row that goes the columns of the key and the position are filled. Where
            tasks wrote those that come into files, these columns are all that is here.
        comes: for each row whether it is there after the change; else it goes.
        key: names of the key columns.
        nullable: names of those of them that may be null.
        position: the name of the column with the position.
        decoded: some row comes from a message, whose position compares in its sequence only.
        source: the table that they are of, as messages name it.
        written: the files that tasks wrote; None where the rows are here.
    """

    rows: pa.Table
    comes: pa.Array
    key: tuple[str, ...]
    nullable: frozenset[str]
    position: str
    decoded: bool
    source: str
    written: RowsInFiles | None = None

    @property
    def types(self) -> dict[str, pa.DataType]:
        return dict(zip(self.rows.schema.names, self.rows.schema.types, strict=True))

    def with_nulls(self, columns: pa.Schema) -> CollectedRows:
        rows = self.rows
        for column in columns:
            rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
        return replace(self, rows=rows)


@dataclass(frozen=True)
class RowsInFiles:
    """Data files that tasks wrote of a batch's rows, and that no commit names yet.

    Args:
        folder: where they are.
        schema: their columns, as the table had them when they were written.
        files: each with the columns of the key and the position of its rows, in their order.
        file_of: for each row of `CollectedRows.rows` by which file it comes, by its place; -1 where it goes.
        row_of: and which row of the file it is.
        superseded: for each file the rows that have a later change in the batch, in order.
    """

    folder: Folder
    schema: pa.Schema
    files: Sequence[tuple[DataFile, pa.Table]]
    file_of: NDArray[np.int64]
    row_of: NDArray[np.int64]
    superseded: Sequence[NDArray[np.int64]]

    def discard(self) -> None:
        """Delete them, before any commit was tried with them."""
        delete_data_files(self.folder, [file for file, _ in self.files])

    def matches(self, schema: pa.Schema) -> bool:
        """Whether a table whose files have these columns, in any order, takes them."""
        theirs = {field.name: field for field in schema}
        return theirs.keys() == {*self.schema.names} and all(
            field.equals(theirs[field.name], check_metadata=True) for field in self.schema
        )

    def rows_to_mark(self, old: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
        """For each file the rows that the commit marks as deleted.

        Args:
            old: for each row of `CollectedRows.rows` whether the table has a newer one.
        """
        files, rows = self.file_of[old], self.row_of[old]
        return [np.union1d(gone, rows[files == number]) for number, gone in enumerate(self.superseded)]


def collect(folded: DataFrame, columns: Mapping[str, str]) -> tuple[pa.Table, pa.Array]:
    """Compute folded rows, and bring them into the driver. Runs one Spark job.

    Args:
        folded: as in `WholeRows`.
        columns: likewise.

    Returns:
        `rows` and `comes` of `CollectedRows`.
    """
    # Longer than the name of any column, so it is none.
    comes = max(columns, key=len) + "_"
    written = (f"{value} as {quote(name)}" for name, value in columns.items())
    collected = folded.alias("s").selectExpr(*written, f"s.op = 'upsert' as {quote(comes)}").toArrow()
    return collected.drop_columns([comes]), pa.concat_arrays(
        [pa.array([], pa.bool_()), *collected.column(comes).chunks]
    )
