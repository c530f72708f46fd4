"""The plain change log: every change of a table as one row, as it came.

The columns of the table hold the image after the change, of a delete what the source said of the row before. Ours say
the rest; what of a row was not sent is named, so that absent and NULL stay two things.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.apply.survey import TableBatch
from headrace.changes.typed import literal, quote, typed_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPERATION, EVENT_TIME, ABSENT, BEFORE = (
    "_headrace_op",
    "_headrace_event_time",
    "_headrace_absent",
    "_headrace_before",
)


def change_log(rows: DataFrame, table: TableBatch, position_column: str) -> DataFrame:
    """The data changes of one table, truncates too, in the columns of its change log. Lazy and pure.

    Args:
        rows: the batch's change rows with images as maps; rows of other tables are left out.
        table: what `survey` said of the table.
        position_column: the name of the column that holds the position.
    """
    names = ", ".join(literal(column.name) for column in table.schema.columns)
    image = "case when op = 't' then null when op <> 'd' then after else coalesce(before, key) end"
    return (
        rows.where(f"op in ('r', 'c', 'u', 'd', 't') and {table.same}")
        .selectExpr("*", f"{image} as image")
        .selectExpr(
            *(
                f"{typed_value(f'image[{literal(column.name)}]', column)} as {quote(column.name)}"
                for column in table.schema.columns
            ),
            f"position as {quote(position_column)}",
            f"op as {OPERATION}",
            f"event_time as {EVENT_TIME}",
            f"nullif(array_except(array({names}), map_keys(image)), cast(array() as array<string>)) as {ABSENT}",
            f"before as {BEFORE}",
        )
    )
