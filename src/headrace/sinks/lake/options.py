"""AUTO CDC's words as options of the lakehouse sinks: what is stored of a table, and which columns."""

from __future__ import annotations

from headrace.apply import TableProfile
from headrace.changes.table import TableId
from headrace.errors import OptionError
from headrace.options import Names, bare
from headrace.settings import Settings, option
from headrace.sinks.lake.partitions import column_of, listed_fields
from headrace.sinks.lake.upkeep import UpkeepSettings
from headrace.sinks.lake.variants import VARIANT
from headrace.sinks.misfits import KeptValues
from headrace.sinks.table_sink import TableSettings
from headrace.spark.memory import memory_limit


class AutoCdcSettings(Settings):
    """What is stored of a table, and which columns."""

    stored_as_scd_type: str = option(
        "`1` keeps each table equal to its source. `2` keeps every version of each row, true from `__START_AT` until "
        "`__END_AT` (null: now), both a struct of `position` and `event_time`. `append` adds each change as a row of a "
        "plain change log.",
        default="1",
        choices=("1", "2", "append"),
    )
    track_history_column_list: tuple[str, ...] = option(
        "With type 2: the columns whose changes create a new version; changes of other columns are written into "
        "the current version. Default: all columns.",
        default=(),
        names=Names("columns", "chooses"),
    )
    track_history_except_column_list: tuple[str, ...] = option(
        "With type 2: the columns whose changes create no new version.",
        default=(),
        names=Names("columns", "chooses"),
    )
    column_list: tuple[str, ...] = option(
        "The columns to write in addition to the key. Default: all columns. A name counts in every table, "
        "`table.column` in one.",
        default=(),
        names=Names("columns", "chooses"),
    )
    except_column_list: tuple[str, ...] = option(
        "The columns not to write, in the form of `column_list`.",
        default=(),
        names=Names("columns", "protects"),
    )
    ignore_null_updates: bool = option(
        "Whether a null in a change keeps the target's value.",
        default=False,
    )


class LakeSettings(TableSettings, AutoCdcSettings, UpkeepSettings):
    """What the lakehouse sinks share."""

    delete_mode: str = option(
        "What happens to a row that the source deletes: `hard` removes it, `soft` keeps it with its last values, "
        "marked in `deleted_column`. A row that is created again with the key is not marked any more.",
        default="hard",
        choices=("hard", "soft"),
    )
    deleted_column: str = option(
        "With `delete_mode: soft`: the name of the boolean column that marks deleted rows.",
        default="_headrace_deleted",
    )

    json_columns: str = option(
        "What new JSON columns of targets are: `string` keeps each document as it is written; `variant` (Delta) is "
        "quicker to query. A document with a number that has an exponent or more than 38 digits, which Spark would "
        "read as a double, is one string in its variant. Columns of keys, and of tables without a key, are strings. "
        "New Delta tables then rewrite files instead of marking rows: Delta can't read variants beside marked rows.",
        default="string",
        choices=("string", "variant"),
    )

    @property
    def mark(self) -> str:
        """The column that marks deleted rows; empty where they are removed."""
        return self.deleted_column if self.delete_mode == "soft" else ""

    partition_by: tuple[str, ...] = option(
        "By what new tables are partitioned: columns (`region`), and in Iceberg `year(c)`, `month(c)`, `day(c)`, "
        "`hour(c)`, `bucket(16, c)` and `truncate(4, c)`, too. A name counts in every table that has the column, "
        "`table.column` in one. A table that is there keeps its partitions. Every writer of Delta makes null of an "
        "empty text in a column of its partitions: such a value stops the batch, unless `unrepresentable` is null and "
        "the column is none of the key.",
        kind=listed_fields,
        default=(),
        names=Names("columns", "chooses", column_of),
    )
    cluster_by_key: bool = option(
        "Whether new tables are clustered by their key, so that files that are compacted later hold ranges of keys: "
        "liquid clustering in Delta, which other writers must know too, a sort order in Iceberg. At most four columns "
        "of the key, and none of a type for which files have no statistics.",
        default=False,
    )


_MOST_INDEX = 512 << 20


class IndexSettings(Settings):
    """The index of keys, of the sinks that have one."""

    index_memory: int | None = option(
        "How many MB of the driver's memory the keys of tables may take; without it an eighth of what the machine or "
        "its container has, at most 512. By them small batches of whole rows find the "
        "rows that go without a MERGE: into Delta tables with deletion vectors, and Iceberg tables that "
        "are merged on read, in local folders or in S3. The keys of a million rows take 12 MB where they are one whole "
        "number, and about 50 MB otherwise; the tables that were used the longest ago go first, and a table that does "
        "not fit is written by MERGE. 0 for MERGE always.",
        default=None,
        minimum=0,
    )

    @property
    def index_bytes(self) -> int:
        """How many bytes the indexes of the sink's tables may take together."""
        if self.index_memory is None:
            return min(_MOST_INDEX, memory_limit() // 8)
        return self.index_memory << 20


def refuse_contradictions(settings: LakeSettings) -> None:
    """Stop where options exclude each other.

    Raises:
        OptionError: with which.
    """
    listed = {
        "track_history_column_list": settings.track_history_column_list,
        "track_history_except_column_list": settings.track_history_except_column_list,
        "column_list": settings.column_list,
        "except_column_list": settings.except_column_list,
    }
    given = [name for name, columns in listed.items() if columns]
    tracking = [name for name in given if name.startswith("track")]
    for names in (tracking, [name for name in given if name not in tracking]):
        if len(names) == 2:
            one, other = names
            raise OptionError(f"The options '{one}' and '{other}' exclude each other.", remedy="Give one of them.")
    for name in tracking:
        if settings.stored_as_scd_type != "2":
            raise OptionError(f"Option '{name}' needs a history.", remedy="Set stored_as_scd_type to 2, or remove it.")
    if settings.json_columns == VARIANT and settings.stored_as_scd_type == "2":
        raise OptionError(
            "A history compares the values of its versions, and variants can't be compared.",
            remedy="Set 'json_columns' to string, or stored_as_scd_type to 1 or append.",
        )
    if settings.mark and settings.stored_as_scd_type != "1":
        what = "closes the version of a deleted row" if settings.stored_as_scd_type == "2" else "has deletes as rows"
        raise OptionError(
            f"Option 'delete_mode' has no effect with stored_as_scd_type {settings.stored_as_scd_type}, which {what}.",
            remedy="Remove 'delete_mode', or set stored_as_scd_type to 1.",
        )
    if settings.mark and settings.mark.lower() == settings.position_column.lower():
        raise OptionError(
            f"The options 'deleted_column' and 'position_column' both name '{settings.mark}'.",
            remedy="Give them different names.",
        )
    if settings.ignore_null_updates and settings.stored_as_scd_type == "append":
        raise OptionError(
            "Option 'ignore_null_updates' has no effect on a change log, which stores every change as it came.",
            remedy="Remove it.",
        )


def written(settings: LakeSettings, table: TableProfile) -> TableProfile:
    """The table with the columns that are written, as the target keeps them."""
    table = KeptValues(settings.unrepresentable).profile(table)
    only, never = settings.column_list, settings.except_column_list
    if not only and not never:
        return table
    return table.selecting(lambda name: _among(table.id, name, only) if only else not _among(table.id, name, never))


def tracked(settings: LakeSettings, table: TableProfile) -> tuple[str, ...]:
    """The columns whose changes make a version."""
    only, never = settings.track_history_column_list, settings.track_history_except_column_list
    names = [column.name for column in table.schema.columns if column.name not in table.schema.key]
    return tuple(
        name for name in names if (_among(table.id, name, only) if only else not _among(table.id, name, never))
    )


def _among(id: TableId, column: str, listed: tuple[str, ...]) -> bool:
    return any(bare(name) in (column, f"{id.name}.{column}", f"{id.path}.{column}") for name in listed)
