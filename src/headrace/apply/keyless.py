"""Tables without a key: a row is known by all of its values and by how many such rows there are.

The folded rows are a DataFrame with `op` (`insert` or `delete`), `position`, `occurrences` and `row` (struct of all
columns, typed). An insert stands for one new row and carries its own position; a delete stands for as many rows of
the target as `occurrences` says, equal in every column (NULL equals NULL), and which of them go does not matter: the
oldest position is the habit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.apply.profile import TableProfile
from headrace.changes.typed import quote, texts_in_order, typed_columns
from headrace.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fold_keyless(rows: DataFrame, table: TableProfile) -> DataFrame:
    """Net the changes of one table without a key: which rows to insert, and how many of which to delete.

    Reads and creates add a row, deletes take one away, an update does both. Per distinct row only the difference is
    left, so a row that came and went inside the batch is not seen at all. Rows up to the last truncate are left out
    (`TableProfile.truncate_at`). Lazy and pure. Applying the result twice is not harmless: the caller commits it once.

    Args:
        rows: the batch's change rows with images as maps, whose positions say their sequence (`sequenced`), so that
            none repeats; rows of other tables are left out.
        table: the profile of the table. Its schema has no key.

    Raises:
        SchemaError: an image lacks columns, so rows can't be distinguished.
    """
    if table.partial:
        raise SchemaError(
            f"Table {table.id} has no key and its changes do not carry whole rows, so it can't be mirrored.",
            remedy="Add a key or let the source log whole rows. Until then, use a change log "
            "(sinks that take messages).",
        )
    changes = rows.where(table.where)
    if table.inserts_only:
        texts = changes.selectExpr("position", f"{texts_in_order('after', table.schema.columns)} as texts")
        return texts.selectExpr("'insert' as op", "position", "1L as occurrences", f"{_row(table)} as row")
    values = ", ".join(f"row.{quote(column.name)}" for column in table.schema.columns)
    signed = changes.selectExpr(
        "position",
        "explode(filter(array(struct(1 as sign, after as image), struct(-1 as sign, before as image)), "
        "x -> if(x.sign = 1, op in ('r', 'c', 'u'), op in ('u', 'd')))) as one",
    ).selectExpr("position", "one.sign as sign", f"{texts_in_order('one.image', table.schema.columns)} as texts")
    signed = signed.selectExpr("position", "sign", f"{_row(table)} as row")
    netted = signed.selectExpr(
        "*",
        f"sum(sign) over (partition by {values}) as net",
        f"row_number() over (partition by {values} order by sign desc, position desc) as nth",
    )
    # The latest additions are the ones that stay, because whatever is taken away is the oldest. A net loss is told
    # once.
    return netted.where("(net > 0 and sign = 1 and nth <= net) or (net < 0 and nth = 1)").selectExpr(
        "if(net > 0, 'insert', 'delete') as op", "position", "if(net > 0, 1L, -net) as occurrences", "row"
    )


def _row(table: TableProfile) -> str:
    return f"struct({', '.join(typed_columns('texts', table.schema.columns, misfit=table.misfit))})"
