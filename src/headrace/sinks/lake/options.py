"""AUTO CDC's words as options of the lakehouse sinks: what is stored of a table, and which columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.apply import TableProfile
from headrace.changes.table import TableId
from headrace.errors import OptionError
from headrace.options import Names, Option, bare

STORED_AS = Option(
    "stored_as_scd_type",
    str,
    "`1` keeps each table equal to its source. `2` keeps every version of each row, true from `__START_AT` until "
    "`__END_AT` (null: now), both a struct of `position` and `event_time`. `append` adds each change as a row of a "
    "plain change log.",
    default="1",
    choices=("1", "2", "append"),
)
TRACK = Option(
    "track_history_column_list",
    list,
    "With type 2: the columns whose changes make a new version; changes of others are written into the version that "
    "is there. By default all.",
    default=(),
    names=Names("columns", "chooses"),
)
TRACK_EXCEPT = Option(
    "track_history_except_column_list",
    list,
    "With type 2: all columns make a new version but these.",
    default=(),
    names=Names("columns", "chooses"),
)
COLUMNS = Option(
    "column_list",
    list,
    "The columns to write, besides the key; by default all. A name counts in every table, `table.column` in one.",
    default=(),
    names=Names("columns", "chooses"),
)
COLUMNS_EXCEPT = Option(
    "except_column_list",
    list,
    "The columns not to write. Spelled like `column_list`.",
    default=(),
    names=Names("columns", "protects"),
)
IGNORE_NULLS = Option(
    "ignore_null_updates",
    bool,
    "Whether a null in a change leaves the target's value as it is.",
    default=False,
)
AUTO_CDC = (STORED_AS, TRACK, TRACK_EXCEPT, COLUMNS, COLUMNS_EXCEPT, IGNORE_NULLS)


def refuse_contradictions(settings: Mapping[str, Any]) -> None:
    """Stop where options exclude each other.

    Raises:
        OptionError: with which.
    """
    for one, other in ((TRACK, TRACK_EXCEPT), (COLUMNS, COLUMNS_EXCEPT)):
        if settings[one.name] and settings[other.name]:
            raise OptionError(
                f"The options '{one.name}' and '{other.name}' exclude each other.", remedy="Give one of them."
            )
    for option in (TRACK, TRACK_EXCEPT):
        if settings[option.name] and settings[STORED_AS.name] != "2":
            raise OptionError(
                f"Option '{option.name}' is for histories only.", remedy="Set stored_as_scd_type to 2, or remove it."
            )
    if settings[IGNORE_NULLS.name] and settings[STORED_AS.name] == "append":
        raise OptionError(
            "Option 'ignore_null_updates' does not go with a change log, which has every change as it came.",
            remedy="Remove it.",
        )


def written(settings: Mapping[str, Any], table: TableProfile) -> TableProfile:
    """The table with the columns that are written."""
    only, never = settings[COLUMNS.name], settings[COLUMNS_EXCEPT.name]
    if not only and not never:
        return table
    return table.selecting(lambda name: _among(table.id, name, only) if only else not _among(table.id, name, never))


def tracked(settings: Mapping[str, Any], table: TableProfile) -> tuple[str, ...]:
    """The columns whose changes make a version."""
    only, never = settings[TRACK.name], settings[TRACK_EXCEPT.name]
    names = [column.name for column in table.schema.columns if column.name not in table.schema.key]
    return tuple(
        name for name in names if (_among(table.id, name, only) if only else not _among(table.id, name, never))
    )


def _among(id: TableId, column: str, listed: tuple[str, ...]) -> bool:
    return any(bare(name) in (column, f"{id.name}.{column}", f"{id.path}.{column}") for name in listed)
