"""Histories of one table as hypothesis draws them, and their cut into batches."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from headrace.changes import TableSchema
from headrace.testing.change_history import Batch

Step = tuple[str, str, str, str | None, bool]
"""What is done, to which key, with which other key or value, with which value, and whether its image is cut."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "move", "delete", "delete", "truncate"]),
        st.sampled_from("123"),
        st.sampled_from("123"),
        st.sampled_from(["x", "y", None]),
        st.booleans(),
    ),
    min_size=4,
    max_size=24,
)


def history(steps: Sequence[Step], schema: TableSchema, partial: bool, *, bare_moves: bool = False) -> list[Batch]:
    """Each step as a change that a database could have made, in a batch of its own.

    Args:
        steps: what is done.
        schema: the table's structure.
        partial: whether images may be cut.
        bare_moves: whether a change of key may say nothing but the keys, as where large values are left out.
    """
    rows: dict[str, dict[str, str | None]] = {}
    out = []
    for number, (what, key, other, value, cut) in enumerate(steps, 1):
        batch = Batch()
        row = rows.get(key)
        if what == "put" and row is None:
            rows[key] = {"id": key, "a": other, "b": value}
            batch.add("c", schema, number, rows[key])
        elif what == "put" and row is not None:
            rows[key] = {**row, "b": value}
            after = {"id": key, "b": value} if partial and cut else rows[key]
            batch.add("u", schema, number, after, {"id": key} if partial and cut else row)
        elif what == "move" and row is not None and other not in rows:
            del rows[key]
            rows[other] = {**row, "id": other}
            before = {"id": key} if partial and cut and bare_moves and value != "x" else row
            batch.add("u", schema, number, {"id": other} if partial and cut else rows[other], before)
        elif what == "delete" and row is not None:
            del rows[key]
            batch.add("d", schema, number, None, {"id": key} if partial and cut else row)
        elif what == "truncate" and cut:
            rows.clear()
            batch.add("t", schema, number)
        out.append(batch)
    return out


def cut(changes: Sequence[Batch], schema: TableSchema, sizes: Sequence[int]) -> list[Batch]:
    """The changes in batches of these sizes, the last one with the rest."""
    out, rest = [], [line for change in changes for line in change.lines]
    for size in [*sizes, len(rest)]:
        if rest:
            out.append(Batch(schema))
            out[-1].lines += rest[:size]
            rest = rest[size:]
    return out
