"""What a batch does to a target if none of its rows lacks a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
