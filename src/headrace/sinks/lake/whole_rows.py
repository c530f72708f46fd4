"""What a batch does to a target if none of its rows lacks a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.changes.typed import quote

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
        rows: the target's columns, typed; of a row that goes the columns of the key and the position are filled.
        comes: for each row whether it is there after the change; else it goes.
        key: names of the key columns.
        nullable: names of those of them that may be null.
        position: the name of the column with the position.
        decoded: some row comes from a message, whose position compares in its sequence only.
        source: the table that they are of, as messages name it.
    """

    rows: pa.Table
    comes: pa.Array
    key: tuple[str, ...]
    nullable: frozenset[str]
    position: str
    decoded: bool
    source: str


_COMES = "headrace comes"
"""No column of a source has a blank in its name here: Delta needs column mapping for it, and then rows go by MERGE."""


def collect(folded: DataFrame, columns: Mapping[str, str]) -> tuple[pa.Table, pa.Array]:
    """Compute folded rows, and bring them into the driver. Runs one Spark job.

    Args:
        folded: as in `WholeRows`.
        columns: likewise.

    Returns:
        `rows` and `comes` of `CollectedRows`.
    """
    written = (f"{value} as {quote(name)}" for name, value in columns.items())
    found = folded.alias("s").selectExpr(*written, f"s.op = 'upsert' as {quote(_COMES)}").toArrow()
    return found.drop_columns([_COMES]), pa.concat_arrays([pa.array([], pa.bool_()), *found.column(_COMES).chunks])
