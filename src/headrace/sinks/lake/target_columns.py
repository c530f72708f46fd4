"""The columns that a target gets: those of the source's table, and ours."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.apply.change_log import ABSENT, BEFORE, EVENT_TIME, OPERATION
from headrace.changes.table import TableSchema
from headrace.errors import SchemaError
from headrace.sinks.evolution import TargetColumn
from headrace.sinks.lake import history
from headrace.sinks.lake.layout import TargetLayout
from headrace.sinks.lake.options import LakeSettings
from headrace.sinks.lake.partitions import Partitioning, partitioning_of
from headrace.sinks.lake.variants import VARIANT, may_be_variant

_LOG = (
    TargetColumn(OPERATION, "string", "Headrace: r read, c create, u update, d delete, t truncate"),
    TargetColumn(EVENT_TIME, "timestamp", "Headrace: when the source committed the change"),
    TargetColumn(ABSENT, "array<string>", "Headrace: columns that the change did not carry; null for none"),
    TargetColumn(BEFORE, "map<string,string>", "Headrace: the row before the change, as canonical texts"),
)


def wanted_layout(settings: LakeSettings, schema: TableSchema) -> TargetLayout:
    """How the target of a table must look.

    Args:
        settings: the sink's.
        schema: the table's structure.

    Raises:
        SchemaError: it is to be partitioned by a column that has no such values.
    """
    stored_as = settings.stored_as_scd_type
    # A truncate is a row of a change log too, and has no key.
    never_null = {c.name for c in schema.key_columns if not c.nullable and stored_as != "append"}
    json = frozenset(c.name for c in schema.columns if may_be_variant(c, schema))
    kinds = {
        c.name: VARIANT if settings.json_columns == VARIANT and c.name in json else c.logical.spark_type
        for c in schema.columns
    }
    return TargetLayout(
        source=schema.id.full_path,
        columns=tuple(TargetColumn(c.name, kinds[c.name], c.comment, c.name not in never_null) for c in schema.columns),
        key=schema.key,
        own=own_columns(settings),
        comment=schema.comment,
        stored_as=stored_as,
        deleted=settings.mark,
        json=json,
        clustered=settings.cluster_by_key,
        partitioning=_partitioning(settings, schema, kinds),
        beside=history.UNSEEN_COLUMNS if stored_as == "2" else (),
    )


def own_columns(settings: LakeSettings) -> tuple[TargetColumn, ...]:
    """Our columns beside those of the source's table."""
    position = TargetColumn(settings.position_column, "string", "Headrace: position of the row's last change")
    if settings.stored_as_scd_type == "2":
        return history.columns("struct<position:string,event_time:timestamp>")
    if settings.stored_as_scd_type == "append":
        return (position, *_LOG)
    mark = settings.mark
    deleted = (TargetColumn(mark, "boolean", "Headrace: whether the source has deleted the row"),) if mark else ()
    return (position, *deleted)


def _partitioning(settings: LakeSettings, schema: TableSchema, columns: Mapping[str, str]) -> Partitioning:
    partitioning = partitioning_of(settings.partition_by, schema.id, columns)
    if odd := partitioning.odd_column(columns):
        raise SchemaError(
            f"The target of table {schema.id} can't be partitioned by {odd}.",
            remedy="Name another column in the sink's option 'partition_by', or for other tables only: table.column.",
        )
    return partitioning
