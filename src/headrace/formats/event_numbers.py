"""The places of a batch's messages in their transactions and commits, for formats that write one message per change.

A source numbers a change of a key as the two events that it is for Debezium, and a sink may get only some of a
source's tables. So the numbers of these formats are counted here, over the rows that become messages. A batch has whole
transactions; of a DataFrame that was cut elsewhere the numbers are those of the part.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.changes.typed import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT, SIZE, PLACE = "event", "transaction_size", "place_in_commit"
"""Columns: the number of a captured change in its transaction, how many there are, and the number of any change in the
commit of its position."""
_GROUPS = 64


def with_event_numbers(changes: DataFrame, operations: Collection[str]) -> DataFrame:
    """Change rows with the columns `EVENT`, `SIZE` and `PLACE`, where each is known; of a stream none is.

    Args:
        changes: change rows.
        operations: those that become messages of a transaction.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    if changes.isStreaming:
        return changes.withColumns({name: sf.lit(None).cast("bigint") for name in (EVENT, SIZE, PLACE)})
    counted = f"op in ({', '.join(map(literal, sorted(operations)))}) and position is not null"
    commit = (
        "concat_ws(' ', table.database, message.topic, message.partition, substring_index(position, '/', 1), "
        "if(message is null, 'captured', 'read'))"
    )
    # Other rows are many in a snapshot, and must not all go to one task.
    group = f"if({counted}, {commit}, concat('/', pmod(hash(position), {_GROUPS})))"
    captured = f"{counted} and message is null and transaction.id is not null"
    grouped = changes.withColumns(
        {"commit": sf.expr(group), "transaction_id": sf.expr(f"if({captured}, transaction.id, null)")}
    )
    of_commit = Window.partitionBy("commit")
    of_transaction = Window.partitionBy("commit", "transaction_id")

    def where(condition: str, window: str) -> str:
        return f"if({condition}, {window}, null)"

    numbered = grouped.withColumns(
        {
            PLACE: sf.row_number().over(of_commit.orderBy("position")).cast("bigint"),
            EVENT: sf.row_number().over(of_transaction.orderBy("position")).cast("bigint"),
            SIZE: sf.count(sf.lit(1)).over(of_transaction),
        }
    )
    return numbered.withColumns(
        {
            name: sf.expr(where(condition, name))
            for name, condition in ((PLACE, counted), (EVENT, captured), (SIZE, captured))
        }
    ).drop("commit", "transaction_id")
