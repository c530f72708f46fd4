"""Pipelines that were found by chance, made small: each once showed something wrong."""

from __future__ import annotations

from tests.search.drawn import Batch, Change, Column, Commit, Drain, Once, Pipeline, Table

_REST = (Column("N", "n", "int"), Column("V", "v", "int"), Column("S", "s", "text"), Column("D", "d", "number"))
_KEYED = (Column("ID", "key", "int"), *_REST)
_HALF_NULL = ((None, 1), (None, 2), (None, 3), (1, None), (1, 2), (2, None))

KEPT: dict[str, Pipeline] = {
    "a run that should end does not, where an idle Oracle was read further than its offset says": Pipeline(
        server="oracle",
        tables=(Table("T", _KEYED, "primary"),),
        options=(("snapshot_mode", "initial"),),
        sinks=("once",),
        steps=(Drain(), Once(), Once()),
    ),
    "rows with NULL in the key come after a chunk's end": Pipeline(
        server="db2-images",
        tables=(
            Table(
                "ORDERS",
                (Column("A", "key", "int"), Column("B", "key", "int"), *_REST),
                "unique",
                rows=tuple((a, b, n, n, None, None) for n, (a, b) in enumerate(_HALF_NULL)),
            ),
        ),
        options=(("snapshot_mode", "initial"), ("snapshot_chunk_rows", 2)),
        sinks=("once",),
        steps=(
            Batch(
                point="source.snapshot.chunk",
                meanwhile=Commit((Change(0, "insert", row=(None, 9, 9, 9, None, None)),)),
            ),
            Drain(),
        ),
    ),
    "names with commas, quotes and dots in the list of tables and in those of columns": Pipeline(
        server="sqlserver",
        tables=tuple(
            Table(
                name,
                (Column("a,b", "key", "int"), Column("c.d", "n", "int"), *_REST[1:]),
                "primary",
                ((1, 1, 1, "x", None),),
            )
            for name in ("a,b", "a.b", "q'uote")
        ),
        options=(("snapshot_mode", "initial"),),
        sinks=("once",),
        steps=(Batch(), Commit((Change(0, "insert", row=(2, 2, 2, "secret", None)),)), Once()),
        column_options=((0, 3, "masked"), (1, 3, "left out"), (2, 3, "hashed")),
        listed="names",
    ),
}
