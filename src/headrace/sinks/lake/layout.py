"""How a target must look, and what has to be done to one that is there before a batch's data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.changes.typed import literal, quote
from headrace.sinks.evolution import Evolution, TargetColumn
from headrace.sinks.lake.key_ranges import comparable
from headrace.sinks.lake.partitions import Partitioning

_MOST_CLUSTERED = 4
"""Delta takes no more."""


@dataclass(frozen=True)
class TargetLayout:
    """How a target must look.

    Args:
        source: what it mirrors, as messages name it and as the target remembers it.
        columns: the source's; of those with JSON the type that they get if they are new.
        key: names of the key columns.
        own: our columns beside them.
        comment: what the source says of the table.
        stored_as: `1` and `2` (the SCD type), `append`, or the kind of a table of Headrace's own.
        deleted: which of our columns marks deleted rows; empty where they are removed.
        json: names of the columns with JSON, which may be strings or variants in a target that is there.
        clustered: a new table is clustered by its key.
        partitioning: how a new table is partitioned.
        beside: names of our columns in a table beside the target, which has the source's columns too.
    """

    source: str
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    own: tuple[TargetColumn, ...]
    comment: str | None = None
    stored_as: str = "1"
    deleted: str = ""
    json: frozenset[str] = frozenset()
    clustered: bool = False
    partitioning: Partitioning = field(default_factory=Partitioning)
    beside: tuple[str, ...] = ()

    @property
    def cluster(self) -> tuple[str, ...]:
        """The columns by which a new table is clustered."""
        kinds = {column.name: column.type for column in self.columns}
        fit = tuple(name for name in self.key if comparable(kinds.get(name, "")))
        return fit[:_MOST_CLUSTERED] if self.clustered else ()

    @property
    def key_names(self) -> str:
        """The key columns as they stand in the target's property."""
        return key_names(self.key)


@dataclass(frozen=True)
class LakePlan:
    """What has to be done to a target before a batch's data, and how the data goes in. Nothing was done yet.

    Args:
        layout: how the target must look.
        exists: whether the table is there.
        append: the rows are new for certain, so that they need not be merged.
        done: the target has the batch already.
        set: table properties to set; all of them where the table is to be created.
        evolution: what to do with columns that differ.
        mark: the rows that are there must be marked as not deleted, in a column that is new.
        variants: names of columns with JSON that are variants in the target.
    """

    layout: TargetLayout
    exists: bool
    append: bool
    done: bool
    set: Mapping[str, str]
    evolution: Evolution = field(default_factory=Evolution)
    mark: bool = False
    variants: frozenset[str] = frozenset()

    @property
    def changes_columns(self) -> bool:
        """Whether the target's columns become others before the data."""
        return self.mark or self.evolution != Evolution()


def key_names(key: tuple[str, ...]) -> str:
    """Key columns as they stand in a target's property."""
    return ", ".join(quote(name) for name in key)


def column_ddl(column: TargetColumn, *, nullable: bool) -> str:
    comment = f" comment {literal(column.comment)}" if column.comment else ""
    return f"{quote(column.name)} {column.type}{'' if nullable or column.nullable else ' not null'}{comment}"
